"""Which folders of the host a container sees, and what each really is.

An engine resolves the path of a mount with the rights of root, so a link that a script left in its workspace could lead
it anywhere. Therefore each folder is opened here without following one, and is known again by device and inode.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from prowess.errors import PathEscape, WorkspaceError
from prowess.workspace.container.inside_facts import SCRATCH
from prowess.workspace.container.spec import Folder
from prowess.workspace.dirfd import open_folder
from prowess.workspace.layout import LEADS
from prowess.workspace.session_folder import Place
from prowess.workspace.skill_trees import Tree

INSIDE = "/workspace"
_OWN = ("work", "out", "runs")
_OURS = (INSIDE, "/proc", "/sys", "/dev")
_SYSTEM = ("/", "/bin", "/etc", "/lib", "/lib64", "/run", "/sbin", "/usr", "/var", *SCRATCH)


def find_folders(place: Place, tree: Tree, name: str, digest: str, readable: Sequence[str]) -> tuple[Folder, ...]:
    """Of a session's container for one skill: its own folders, the skill, and in the skill the ways to the others."""
    try:
        return tuple(_folders(place, tree, name, digest, readable))
    except OSError as error:
        raise WorkspaceError(
            f"What the skill '{name}' needs in its container is not there: {error.filename}: {error.strerror}.",
            op="stage",
            code="stage-failed",
        ) from error


def _folders(place: Place, tree: Tree, name: str, digest: str, readable: Sequence[str]) -> Iterator[Folder]:
    skill = f"{INSIDE}/skills/{name}"
    yield Folder(tree.path, skill, False, _identity(tree.path))
    own = {f"{INSIDE}/{folder}": folder for folder in _OWN}
    leads = {f"{skill}/{folder}": leads_to for folder, leads_to in LEADS.items()}
    for target, rel in {**own, **leads}.items():
        if (identity := identity_below(place, rel)) is not None:
            yield Folder(f"{place.root}/{rel}", target, True, identity)
    venv = place.make_venv(name, digest)
    yield Folder(venv, f"{skill}/.venv", True, _identity(venv))
    for folder in readable:
        yield Folder(folder, folder, False, _identity(folder))


def identity_below(place: Place, name: str) -> tuple[int, int, int] | None:
    """Of a folder in the workspace, made if a script has removed it. None when a script has put something else there:
    that is not mounted, and the skill has an empty folder instead."""
    try:
        with open_folder(place.root, name, make=True, uid=place.uid) as fd:
            status = os.fstat(fd)
            return status.st_dev, status.st_ino, status.st_uid
    except PathEscape:
        return None


def refuse_readable(folder: str, socket: str | None) -> None:
    """It appears under the same path, so it must not cover what is there; and it is never the way to the engine."""
    covers = folder in _SYSTEM or any(folder == own or folder.startswith(f"{own}/") for own in _OURS)
    leads_out = socket is not None and os.path.realpath(socket).startswith(f"{os.path.realpath(folder)}/")
    if not folder.startswith("/") or os.path.normpath(folder) != folder or covers or leads_out:
        why = "is not a folder of its own, or holds the engine's socket"
    elif not os.path.isdir(folder):
        why = "is not there"
    else:
        return
    raise WorkspaceError(
        f"'{folder}' cannot be made readable in a container: it {why}.",
        op="run",
        code="unsafe-folder",
        hint="Name a folder by its whole path.",
    )


def _identity(path: str) -> tuple[int, int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_uid
