"""The Python that `workspace.python` names: an interpreter or a venv, tried as the user that scripts run as.

In a box it needs its own folders, which are shown there read-only: the venv, and the installation that it is made from.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator

from prowess._internal.paths import is_inside
from prowess.errors import WorkspaceError, WorkspaceUnavailable
from prowess.workspace.process.client import Processes
from prowess.workspace.process.command import Command

_BASE = "import sys; print(sys.base_prefix)"
_TIMEOUT_S = 20.0
_MOST_LINKS = 40
_WIDE = frozenset("/ /boot /dev /etc /home /media /mnt /opt /proc /root /run /srv /sys /tmp /var".split())


async def try_python(named: str, processes: Processes, uid: int | None) -> tuple[str, str]:
    """(the interpreter, the folder that it is installed in). WorkspaceUnavailable `workspace-python` when nobody can
    start it. No package of a venv is looked at."""
    path = _python_of(named)
    command = Command(argv=[path, "-I", "-S", "-c", _BASE], cwd="/", env={}, uid=uid, timeout_s=_TIMEOUT_S)
    said, problem = bytearray(), bytearray()
    try:
        ended = await processes.run(command, said.extend, problem.extend)
        why = problem.decode("utf-8", "replace").strip()[-200:] or "it is no Python"
        base = said.decode("utf-8", "replace").strip() if ended.exit_code == 0 else ""
    except WorkspaceError as error:
        base, why = "", error.message
    if not os.path.isabs(base):
        who = f"user {uid}" if uid is not None else "you"
        raise _unusable(f"'{path}' cannot be used by {who}: {why.rstrip('.')}.")
    return path, base


def _python_of(named: str) -> str:
    return os.path.join(os.path.realpath(named), "bin", "python") if os.path.isdir(named) else named


def folders_of_python(path: str, base: str) -> tuple[str, tuple[str, ...]]:
    """(the interpreter as a box has it, what has to be seen there beyond the system). A folder is shown when a Python
    is installed in it, or when it is a venv. Of any other, nothing but the file or link of that Python is."""
    ways = list(_links(path))
    first = next((way for way in ways if _prefix_of(way)), path)
    if not _is_system(first):  # by a link from elsewhere it might not find what it is installed with
        path, ways = first, ways[ways.index(first) :]
    found = [base, os.path.realpath(base)]
    for way in ways:
        found.append(_prefix_of(way) or way)
        if found[-1] == way:
            break  # shown as what it leads to
    shown = [each for each in dict.fromkeys(found) if not _is_system(each if each in ways else f"{each}/bin/python")]
    home = os.path.expanduser("~")
    for each in shown:
        hides = any(is_inside(each, secret) for secret in (home, os.path.realpath(home)))
        if hides or os.path.realpath(each) in _WIDE or not (each in ways or _is_prefix(each)):
            raise _unusable(f"A script would see all of {each}, where that Python is installed.")
    return path, tuple(each for each in shown if not any(is_inside(other, each) for other in shown if other != each))


def _links(path: str) -> Iterator[str]:
    for _ in range(_MOST_LINKS):
        yield path
        if not os.path.islink(path):
            break
        path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))


def _prefix_of(path: str) -> str:
    """The folder that a Python with this path is installed in; "" when it is none of its own."""
    inner = os.path.dirname(path)
    folder = os.path.dirname(inner)
    return folder if os.path.basename(inner) in ("bin", "Scripts") and _is_prefix(folder) else ""


def _is_prefix(folder: str) -> bool:
    if os.path.isfile(os.path.join(folder, "pyvenv.cfg")):
        return True
    return any(glob.glob(os.path.join(glob.escape(folder), lib, "python*")) for lib in ("lib", "lib64"))


def _is_system(path: str) -> bool:
    """Tell whether it is in every box as it is."""
    return is_inside("/usr", os.path.realpath(os.path.dirname(path))) or is_inside("/etc/alternatives", path)


def _unusable(why: str) -> WorkspaceUnavailable:
    hint = "Name an interpreter, or a venv: python3 -m venv FOLDER makes one."
    return WorkspaceUnavailable(f"workspace.python: {why}", op="isolation", code="workspace-python", hint=hint)
