"""The Python that `workspace.python` names: an interpreter or a venv, tried as the user that scripts run as.

In a box it needs its own folders, which are shown there read-only: the venv, and the installation that it is made from.
"""

from __future__ import annotations

import os

from prowess._paths import is_inside
from prowess.errors import WorkspaceError, WorkspaceUnavailable
from prowess.workspace.process.command import Command
from prowess.workspace.process.processes import Processes

_BASE = "import sys; print(sys.base_prefix)"
_TIMEOUT_S = 20.0
_MOST_LINKS = 40


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


def folders_of_python(path: str, base: str) -> tuple[str, ...]:
    """What it needs to be seen in a box, beyond the system: every folder that a link on the way leads to."""
    found = [base, os.path.realpath(base)]
    for _ in range(_MOST_LINKS):
        found.append(os.path.dirname(os.path.dirname(path)))
        if not os.path.islink(path):
            break
        path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))
    shown = [folder for folder in dict.fromkeys(found) if not is_inside("/usr", os.path.realpath(f"{folder}/bin"))]
    home = os.path.expanduser("~")
    for folder in shown:
        if is_inside(folder, home) or is_inside(folder, os.path.realpath(home)):
            raise _unusable(f"A script would see all of {folder}, where that Python is installed.")
    return tuple(each for each in shown if not any(is_inside(other, each) for other in shown if other != each))


def _unusable(why: str) -> WorkspaceUnavailable:
    hint = "Name an interpreter, or a venv: python3 -m venv FOLDER makes one."
    return WorkspaceUnavailable(f"workspace.python: {why}", op="isolation", code="workspace-python", hint=hint)
