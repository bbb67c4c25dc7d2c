"""Checks the Python named by `workspace.python`: an interpreter or a venv, tried as the user that scripts run as.

A sandbox shows its folders read-only: the venv, and the installation the venv is based on.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence

from prowess._internal.paths import is_inside
from prowess.errors import WorkspaceError, WorkspaceUnavailable
from prowess.workspace.process.client import Processes
from prowess.workspace.process.command import Command

_BASE = "import sys; print(sys.base_prefix)"
_TIMEOUT_S = 20.0
_MOST_LINKS = 40
_WIDE = frozenset("/ /boot /dev /etc /home /media /mnt /opt /proc /root /run /srv /sys /tmp /var".split())


async def try_python(named: str, processes: Processes, uid: int | None) -> tuple[str, str]:
    """Returns (interpreter, installation folder). Raises WorkspaceUnavailable `workspace-python` when it cannot be
    started. No package of a venv is imported."""
    path = _python_of(named)
    command = Command(argv=[path, "-I", "-S", "-c", _BASE], cwd="/", env={}, uid=uid, timeout_s=_TIMEOUT_S)
    said = bytearray()
    problem = bytearray()
    base = ""
    try:
        ended = await processes.run(command, said.extend, problem.extend)
        why = problem.decode("utf-8", "replace").strip()[-200:] or "it is no Python"
        if ended.exit_code == 0:
            base = said.decode("utf-8", "replace").strip()
    except WorkspaceError as error:
        why = error.message
    if not os.path.isabs(base):
        who = f"user {uid}" if uid is not None else "you"
        raise _unusable(f"'{path}' cannot be used by {who}: {why.rstrip('.')}.")
    return path, base


def _python_of(named: str) -> str:
    if not os.path.isdir(named):
        return named
    return os.path.join(os.path.realpath(named), "bin", "python")


def folders_of_python(path: str, base: str) -> tuple[str, tuple[str, ...]]:
    """Returns (interpreter path in a sandbox, folders and files to show there beyond the system). A folder is shown if
    it is a Python installation or a venv; of any other folder only the file or link of that Python is shown."""
    ways = list(_links(path))
    first = next((way for way in ways if _prefix_of(way)), path)
    if not _is_system(first):  # through a link from elsewhere it may not find its own library
        path = first
        ways = ways[ways.index(first) :]
    found = [base, os.path.realpath(base)]
    for way in ways:
        prefix = _prefix_of(way)
        if not prefix:
            found.append(way)
            break  # shown as the file it links to
        found.append(prefix)
    shown = []
    for each in dict.fromkeys(found):
        if not _is_system(each if each in ways else f"{each}/bin/python"):
            shown.append(each)
    for each in shown:
        is_python = each in ways or _is_prefix(each)
        if not is_python or _is_wide(each):
            raise _unusable(f"A script would see all of {each}, where that Python is installed.")
    return path, tuple(each for each in shown if not _is_below_another(each, shown))


def _is_wide(path: str) -> bool:
    """True when a script would see a home folder, or a whole folder of the system."""
    home = os.path.expanduser("~")
    if is_inside(path, home) or is_inside(path, os.path.realpath(home)):
        return True
    return os.path.realpath(path) in _WIDE


def _is_below_another(path: str, others: Sequence[str]) -> bool:
    return any(is_inside(other, path) for other in others if other != path)


def _links(path: str) -> Iterator[str]:
    for _ in range(_MOST_LINKS):
        yield path
        if not os.path.islink(path):
            break
        target = os.path.join(os.path.dirname(path), os.readlink(path))
        path = os.path.normpath(target)


def _prefix_of(path: str) -> str:
    """Returns the installation folder of a Python at this path, or ""."""
    inner = os.path.dirname(path)
    folder = os.path.dirname(inner)
    if os.path.basename(inner) in ("bin", "Scripts") and _is_prefix(folder):
        return folder
    return ""


def _is_prefix(folder: str) -> bool:
    if os.path.isfile(os.path.join(folder, "pyvenv.cfg")):
        return True
    escaped = glob.escape(folder)
    return any(glob.glob(os.path.join(escaped, lib, "python*")) for lib in ("lib", "lib64"))


def _is_system(path: str) -> bool:
    """True when every sandbox already shows this path."""
    folder = os.path.realpath(os.path.dirname(path))
    return is_inside("/usr", folder) or is_inside("/etc/alternatives", path)


def _unusable(why: str) -> WorkspaceUnavailable:
    hint = "Name an interpreter, or a venv: python3 -m venv FOLDER makes one."
    return WorkspaceUnavailable(f"workspace.python: {why}", op="isolation", code="workspace-python", hint=hint)
