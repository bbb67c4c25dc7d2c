"""Checks before every run, for all executors: names, folders, owner and program.

The checks refuse unsafe names, workspace folders that were replaced or have another owner, folders that the user of the
script cannot reach, and programs that cannot start. Each run gets new folders, and a HOME and TMPDIR of its own.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager

from prowess.core.ports import Program
from prowess.errors import PathEscape, WorkspaceError
from prowess.workspace.layout import FOLDERS, safe_name
from prowess.workspace.session_folder import Place


def check_names(name: str, what: str = "skill") -> None:
    """Raises when a name is not safe as a part of a path."""
    if name != safe_name(name):
        raise WorkspaceError(
            f"{name[:80]!r} is not a name for the folder of a {what}.",
            op="stage",
            code="unsafe-name",
            hint="layout.safe_name makes one of any name.",
        )


def check_unchanged(place: Place) -> None:
    """Raises when a folder of the workspace is no longer a plain folder. A script that runs as our user without a
    sandbox could have put a link in its place."""
    folders = [os.path.join(place.root, folder) for folder in FOLDERS]
    for path in (place.root, *folders):
        try:
            plain = stat.S_ISDIR(os.stat(path, follow_symlinks=False).st_mode)
        except FileNotFoundError:
            plain = False
        if not plain:
            raise PathEscape(
                f"{path} is not the folder that was made there.",
                op="run",
                code="workspace-changed",
                hint="Remove this session's workspace: prowess workspaces clean.",
            )


def check_owner(place: Place, uid: int | None) -> None:
    """Raises when the workspace belongs to another user than the one scripts run as. `uid` None means our own user."""
    owner = os.geteuid() if uid is None else uid
    found = os.stat(os.path.join(place.root, "work")).st_uid
    if place.uid != uid or found != owner:
        message = f"The workspace {place.path} belongs to user {found}, and scripts would run as user {owner}."
        hint = "Use another session, or remove this one's workspace: prowess workspaces clean."
        raise WorkspaceError(message, op="open", code="workspace-owner", hint=hint)


def check_reachable(path: str, uid: int | None, gid: int | None = None) -> None:
    """Raises when user `uid`, with group `gid` or that of its number, cannot pass a folder on the way to `path`. None
    means our own user, who can."""
    if uid is None:
        return
    folder = os.path.realpath(path)
    if not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    while folder != "/":
        if not may(os.stat(folder), uid, 0o1, gid):
            raise WorkspaceError(
                f"Scripts run as user {uid}, who cannot enter {folder} and so does not reach {path}.",
                op="open",
                code="workspace-unreachable",
                hint="Name a folder that every user can pass (mode 711): workspace.dir.",
            )
        folder = os.path.dirname(folder)


def may(status: os.stat_result, uid: int, bit: int, gid: int | None = None) -> bool:
    """True when user `uid`, with one group and no privileges, has the right `bit`: 4 read, 2 write, 1 execute."""
    shift = 0
    if status.st_uid == uid:
        shift = 6
    elif status.st_gid == (gid or uid):
        shift = 3
    return bool(status.st_mode >> shift & bit)


def missing_cwd(given: str) -> WorkspaceError:
    return WorkspaceError(
        f"There is no folder '{given}' in the workspace to start in.",
        op="run",
        code="no-cwd",
        hint="Make it first, or start in another one.",
    )


def leaving_cwd(given: str) -> PathEscape:
    return PathEscape(
        f"'{given}' leads out of the workspace.",
        op="run",
        hint="A link on the way leads elsewhere; start in a folder of the workspace.",
    )


def check_program(program: Program, *, staged: Container[str], place: Place) -> None:
    """Raises when a program cannot be run: an unsafe name, a skill that is not staged, or a NUL, where the kernel would
    cut a text short."""
    check_names(program.run, "run")
    check_names(program.skill)
    if program.skill not in staged:
        raise WorkspaceError(
            f"The skill '{program.skill}' is not staged in this workspace.",
            op="run",
            code="not-staged",
            hint="Stage its tree first.",
        )
    if "\0" in program.cwd:
        raise leaving_cwd(program.cwd)
    if not program.argv or any("\0" in argument for argument in program.argv):
        raise WorkspaceError("A program needs a name, and no argument can hold a NUL.", op="run", code="bad-argv")
    for name, value in program.env.items():
        if not name or "=" in name or "\0" in name + value:
            raise WorkspaceError(f"{name!r} cannot be a variable with that value.", op="run", code="bad-variable")
    check_unchanged(place)


def check_open(closed: bool) -> None:
    if closed:
        raise WorkspaceError("This workspace was closed.", op="run", code="workspace-closed")


@contextmanager
def making_folders(run: str) -> Iterator[None]:
    """Turns errors while the folders of a run are created into a WorkspaceError that names the run."""
    try:
        yield
    except FileExistsError:
        raise WorkspaceError(
            f"There was a run '{run}' in this workspace before.",
            op="run",
            code="run-exists",
            hint="Every run has a name of its own.",
        ) from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        message = f"The folders of the run '{run}' could not be made: {reason}."
        raise WorkspaceError(message, op="run", code="workspace-dir", hint="Is there room on the disk?") from error


def with_own_home(given: Mapping[str, str], usual: Mapping[str, str], own: str) -> dict[str, str]:
    """Returns the variables with HOME and TMPDIR set to `own`, unless the caller has changed them.

    `own` is "" when each run has a sandbox with its own /tmp: the usual values are right there.
    """
    variables = dict(given)
    for name in ("HOME", "TMPDIR"):
        if given.get(name, usual[name]) == usual[name]:
            variables[name] = own or usual[name]
    return variables
