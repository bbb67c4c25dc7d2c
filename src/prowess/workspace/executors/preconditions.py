"""What comes before every program, whichever executor starts it: what cannot be run is refused, the run has folders
that nobody had before, and a HOME and a TMPDIR of its own.

What is refused before anything is done in a workspace: names that are no names, folders that are not ours any more,
folders that are somebody else's, and folders that whoever a script runs as cannot reach.
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
    """A name becomes a path here, and must already be one."""
    if name != safe_name(name):
        raise WorkspaceError(
            f"{name[:80]!r} is not a name for the folder of a {what}.",
            op="stage",
            code="unsafe-name",
            hint="layout.safe_name makes one of any name.",
        )


def check_unchanged(place: Place) -> None:
    """Our own folders are what we made, and nothing that leads elsewhere: where a script runs as ourselves and without
    a box, it could have put a link in their place."""
    for path in (place.root, *(os.path.join(place.root, folder) for folder in FOLDERS)):
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
    """What scripts write belongs to whoever they run as; `uid` is None when that is ourselves."""
    owner = os.geteuid() if uid is None else uid
    found = os.stat(os.path.join(place.root, "work")).st_uid
    if place.uid != uid or found != owner:
        raise WorkspaceError(
            f"The workspace {place.path} belongs to user {found}, and scripts would run as user {owner}.",
            op="open",
            code="workspace-owner",
            hint="Use another session, or remove this one's workspace: prowess workspaces clean.",
        )


def check_reachable(path: str, uid: int | None) -> None:
    """Every folder on the way can be passed by that user. We ourselves got there."""
    if uid is None:
        return
    folder = os.path.realpath(path)
    if not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    while folder != "/":
        if not may(os.stat(folder), uid, 0o1):
            raise WorkspaceError(
                f"Scripts run as user {uid}, who cannot enter {folder} and so does not reach {path}.",
                op="open",
                code="workspace-unreachable",
                hint="Name a folder that every user can pass (mode 711): workspace.dir.",
            )
        folder = os.path.dirname(folder)


def may(status: os.stat_result, uid: int, bit: int) -> bool:
    """Whether that user, who has one group and no privileges, may do it: 4 read, 2 write, 1 execute or pass."""
    shift = 6 if status.st_uid == uid else 3 if status.st_gid == uid else 0
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
    """Names of skill and run become paths; what the kernel would cut short at a NUL is not run at all."""
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
    """Around the making of a run's folders: whatever goes wrong there is said of that run."""
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
        raise WorkspaceError(
            f"The folders of the run '{run}' could not be made: {(error.strerror or str(error)).lower()}.",
            op="run",
            code="workspace-dir",
            hint="Is there room on the disk?",
        ) from error


def with_own_home(given: Mapping[str, str], usual: Mapping[str, str], own: str) -> dict[str, str]:
    """HOME and TMPDIR that are those of the workspace's environment, or are not there, become the run's own; "" when
    the usual ones are that already, because each run has a box of its own."""
    changed = {name: own or usual[name] for name in ("HOME", "TMPDIR") if given.get(name, usual[name]) == usual[name]}
    return {**given, **changed}
