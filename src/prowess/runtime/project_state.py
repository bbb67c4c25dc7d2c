"""Keeps what Prowess writes for a project in the person's state folder, `projects/<name>-<hash>/`.

`project.json` says which folder it belongs to: path, device and inode. A project that was moved takes its state along.
A folder that was put in the place of another one goes on with the record of that place, but no answer in it counts.
Without a project (no `.agent/`), the state folder itself is used.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

from prowess._internal.files import read_regular, write_whole
from prowess._internal.state_folder import PROJECTS, find_state, make_own_folder, make_state_dir, state_unavailable
from prowess.core.events import render_at
from prowess.core.findings import visible
from prowess.runtime.config import ConfigPlaces

SCHEMA = "prowess.project/1"
DATABASE, ARTIFACTS, EVAL_RUNS = "prowess.db", "artifacts", "eval-runs"
FILE = "project.json"
_MOST_BYTES = 64 * 1024
_GET_GENERATION = 0x80087601  # FS_IOC_GETVERSION of Linux
_NAME = re.compile(r"[A-Za-z0-9._-]{0,40}-[0-9a-f]{32}")


class ProjectInfo(NamedTuple):
    """Content of `project.json`. `store`: the name by which sessions have their workspaces; it stays when the project
    is moved. `since`: earlier questions and answers belong to another folder, and do not count. `taken`: inode of the
    database of an earlier release that was copied here. `generation`: see FolderId."""

    path: str
    device: int
    inode: int
    store: str
    since: str = ""
    taken: int = 0
    generation: int = 0

    def is_at(self, here: FolderId) -> bool:
        """True for the same folder at another path. Without generations, nobody can tell."""
        return bool(here.generation) and here == (self.device, self.inode, self.generation)

    def is_still(self, here: FolderId) -> bool:
        """True for the same folder at the same path. The number of a device may change when a machine starts."""
        return (self.inode, self.generation) == (here.inode, here.generation)


class FolderId(NamedTuple):
    """Identity of a folder. A file system gives the inode of a removed folder to the next one, with another generation;
    0 where it tells none."""

    device: int
    inode: int
    generation: int


def is_project(places: ConfigPlaces) -> bool:
    return os.path.isdir(os.path.join(places.project, ".agent"))


def state_path(places: ConfigPlaces) -> str:
    """Returns the folder of the project's state, or the state folder itself without a project. Makes nothing."""
    return find_state(places.state_dir, places.project)


def store_of_project(places: ConfigPlaces) -> str:
    """Returns the name of the default store. Workspaces are named by it, so it stays that of earlier releases."""
    if not is_project(places):
        return os.path.realpath(os.path.join(places.state_dir, DATABASE))
    info = read_info(state_path(places))
    if info is None and (moved := _find_moved(places)):  # it is taken along when the store is opened
        _, info = moved
    return info.store if info else _first_name(places)


def _first_name(places: ConfigPlaces) -> str:
    """Returns a name that no other project has: one that was moved away from here kept its name, and its workspaces."""
    name = os.path.join(os.path.realpath(places.project), ".agent", DATABASE)
    if any(info is not None and info.store == name for _, info in list_projects(places.state_dir)):
        return f"{name}-{os.stat(places.project).st_ino}"
    return name


def make_state(places: ConfigPlaces) -> str:
    """Makes the folder of the project's state, and returns it. StoreError when it cannot be written."""
    real = make_state_dir(places.state_dir)
    if not is_project(places):
        return real
    project = os.path.realpath(places.project)
    folder = find_state(real, project)
    try:
        make_own_folder(os.path.dirname(folder))
        make_own_folder(folder)
        if read_info(folder) is None:
            here = identify(project)
            info = ProjectInfo(project, here.device, here.inode, _first_name(places), generation=here.generation)
            write_info(folder, info)
    except OSError as error:
        raise state_unavailable(folder, error) from error
    return folder


def settle_state(places: ConfigPlaces, tell: Callable[[str], object]) -> str:
    """Looks at whether the project is still the folder that its state belongs to. Returns `since`: only questions and
    answers after it count. Tells what changed, once."""
    if not is_project(places):
        return ""
    folder = state_path(places)
    project = os.path.realpath(places.project)
    info = read_info(folder)
    if info is None:
        info = _take_along(places, folder, project, tell)
        return info.since if info else ""
    try:
        here = identify(project)
    except OSError:
        return info.since
    if info.is_still(here):
        return info.since
    info = info._replace(path=project, **here._asdict(), since=render_at(datetime.now(UTC)))
    write_info(folder, info)
    tell(
        f"{visible(project)} is another folder than the one whose record is kept for this path. Its sessions go on, "
        "and what they asked is asked again."
    )
    return info.since


def _take_along(places: ConfigPlaces, folder: str, project: str, tell: Callable[[str], object]) -> ProjectInfo | None:
    """Takes the state of a project along that was moved here."""
    found = _find_moved(places, tell)
    if found is None:
        return None
    name, info = found
    with locked_projects(places.state_dir):
        if os.path.lexists(folder):
            return read_info(folder)
        os.rename(folder_of(places.state_dir, name), folder)
        moved = info._replace(path=project)
        write_info(folder, moved)
    tell(f"The record of {visible(info.path)} was taken along to {visible(project)}.")
    return moved


def _find_moved(
    places: ConfigPlaces, tell: Callable[[str], object] = lambda text: None
) -> tuple[str, ProjectInfo] | None:
    """Finds the state of a project that was moved here: the same folder, and nothing at its old path."""
    here = identify(places.project)
    for name, info in list_projects(places.state_dir):
        if info is None or (info.device, info.inode) != here[:2] or os.path.lexists(info.path):
            continue
        if info.is_at(here):
            return name, info
        if not here.generation:
            what = f"{visible(os.path.realpath(places.project))} may be {visible(info.path)}, which has gone."
            tell(f"{what} If so: prowess projects adopt {visible(shlex.quote(info.path))}")
    return None


def identify(folder: str) -> FolderId:
    found = os.stat(folder)
    generation = 0
    with suppress(ImportError, OSError):  # no such call on this system or file system
        import fcntl

        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            generation = int.from_bytes(fcntl.ioctl(fd, _GET_GENERATION, bytes(8))[:4], sys.byteorder)
        finally:
            os.close(fd)
    return FolderId(found.st_dev, found.st_ino, generation)


# --- the file ---------------------------------------------------------------------------------------------------------


def read_info(folder: str) -> ProjectInfo | None:
    """Returns the content of `project.json`, or None if there is none that can be read."""
    try:
        document: Any = json.loads(read_regular(os.path.join(folder, FILE), _MOST_BYTES))
        path, store, since = str(document["path"]), str(document["store"]), str(document.get("since", ""))
        device, inode, *others = (int(document.get(name, 0)) for name in ("device", "inode", "taken", "generation"))
        return ProjectInfo(path, device, inode, store, since, *others)
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return None


def write_info(folder: str, info: ProjectInfo) -> None:
    document = {"schema": SCHEMA, **info._asdict()}
    write_whole(os.path.join(folder, FILE), json.dumps(document, indent=1).encode() + b"\n", mode=0o600)


def note_taken(places: ConfigPlaces, inode: int) -> None:
    """Notes that the record in the project folder was taken over, so that it is not named any more."""
    folder = make_state(places)
    info = read_info(folder) if is_project(places) else None
    if info is not None:
        write_info(folder, info._replace(taken=inode))


# --- all projects -----------------------------------------------------------------------------------------------------


def list_projects(state_dir: str) -> Iterator[tuple[str, ProjectInfo | None]]:
    """Yields name and content of each folder of a project's state. Links are skipped: we make none."""
    projects = os.path.join(state_dir, PROJECTS)
    with suppress(OSError):
        for name in sorted(os.listdir(projects)):
            folder = os.path.join(projects, name)
            if _NAME.fullmatch(name) and os.path.isdir(folder) and not os.path.islink(folder):
                yield name, read_info(folder)


def folder_of(state_dir: str, name: str) -> str:
    return os.path.join(state_dir, PROJECTS, name)


@contextmanager
def locked_projects(state_dir: str) -> Iterator[None]:
    """Locks the list of projects against other processes of this home."""
    folder = os.path.join(make_state_dir(state_dir), PROJECTS)
    try:
        make_own_folder(folder)
        fd = os.open(os.path.join(folder, ".lock"), os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    except OSError as error:
        raise state_unavailable(folder, error) from error
    try:
        with suppress(ImportError):  # Windows has no flock
            import fcntl

            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
