"""Opens and walks files below a folder by descriptor. No link is followed, so no path can be swapped on the way.

The runtime reads the files of an ended script with this module, and writes files for the next script with it. A path
that leads through a link is refused.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from prowess._internal.paths import check_safe_name
from prowess.errors import PathEscape

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
MAX_DEPTH = 64


class FoundPath(NamedTuple):
    """File or folder that `walk` found. `folder_fd` is its parent folder, open until the next step of the walk."""

    rel: str
    status: os.stat_result
    folder_fd: int
    name: str


@contextmanager
def open_folder(
    root: str | os.PathLike[str], rel: str = "", *, make: bool = False, uid: int | None = None
) -> Iterator[int]:
    """Opens the folder `rel` below `root`. With `make`, creates missing folders, owned by `uid`."""
    fd = os.open(root, _FOLDER)
    try:
        for part in _parts(rel):
            below = enter(fd, part, rel, make=make, uid=uid)
            os.close(fd)
            fd = below
        yield fd
    finally:
        os.close(fd)


@contextmanager
def open_file(root: str | os.PathLike[str], rel: str) -> Iterator[int]:
    """Opens the regular file `rel` below `root` for reading."""
    folder, _, name = rel.rpartition("/")
    with open_folder(root, folder) as folder_fd:
        fd = open_child(folder_fd, name, rel)
        try:
            yield fd
        finally:
            os.close(fd)


def open_child(folder_fd: int, name: str, rel: str) -> int:
    """Opens a regular file in an open folder. Raises PathEscape when it is not a regular file."""
    if not stat.S_ISREG(os.stat(name, dir_fd=folder_fd, follow_symlinks=False).st_mode):
        raise _refused(rel)
    fd = os.open(name, _FILE, dir_fd=folder_fd)
    if not stat.S_ISREG(os.fstat(fd).st_mode):  # swapped between stat and open
        os.close(fd)
        raise _refused(rel)
    return fd


def walk(root: str | os.PathLike[str], rel: str = "", *, max_entries: int = 100_000) -> Iterator[FoundPath]:
    """Yields all files and folders below `rel`, sorted within each folder. Yields links, but does not enter them."""
    count = 0
    with open_folder(root, rel) as top:
        stack: list[tuple[int, str, list[str], int]] = [(os.dup(top), rel, _names(top), 0)]
        try:
            while stack:
                fd, path, names, depth = stack[-1]
                if not names:
                    os.close(fd)
                    stack.pop()
                    continue
                name = names.pop()
                count += 1
                if count > max_entries:
                    raise PathEscape(
                        f"There are more than {max_entries} files and folders below {rel or '.'}.",
                        op="walk",
                        code="too-many-entries",
                        hint="Collect fewer: name a folder that holds only the results.",
                    )
                child = f"{path}/{name}" if path else name
                try:
                    status = os.stat(name, dir_fd=fd, follow_symlinks=False)
                except FileNotFoundError:
                    continue
                yield FoundPath(child, status, fd, name)
                if stat.S_ISDIR(status.st_mode) and depth < MAX_DEPTH:
                    try:
                        below = os.open(name, _FOLDER, dir_fd=fd)
                    except OSError:
                        continue  # the folder itself was yielded; a closed folder is no error
                    stack.append((below, child, _names(below), depth + 1))
        finally:
            for fd, *_ in stack:
                os.close(fd)


def measure_folder(root: str, rel: str = "", *, max_entries: int) -> int:
    """Counts the bytes on disk of all files and folders below `rel`."""
    total = 0
    for found in walk(root, rel, max_entries=max_entries):
        total += found.status.st_blocks * 512
    return total


def _names(fd: int) -> list[str]:
    with os.scandir(fd) as listing:
        return sorted((entry.name for entry in listing), reverse=True)  # taken from the end


def _parts(rel: str) -> list[str]:
    check_safe_name(rel)
    return [part for part in rel.split("/") if part not in ("", ".")]


def enter(fd: int, part: str, rel: str, *, make: bool = False, uid: int | None = None) -> int:
    """Opens the folder `part` in an open folder. See `open_folder` for `make` and `uid`."""
    made = False
    try:
        if make:
            try:
                os.mkdir(part, 0o755, dir_fd=fd)
                made = True
            except FileExistsError:
                pass
        below = os.open(part, _FOLDER, dir_fd=fd)
        if made and uid is not None:
            os.fchown(below, uid, uid)
    except NotADirectoryError:
        raise _refused(rel) from None
    except OSError as error:
        if error.errno in (40, 62):  # ELOOP on Linux and macOS: it is a link
            raise _refused(rel) from None
        raise
    return below


def _refused(rel: str) -> PathEscape:
    return PathEscape(
        f"'{rel}' is or leads through something that is not a plain file or folder.",
        op="open",
        code="not-a-plain-file",
        hint="Links, devices and FIFOs are not followed here.",
    )


def read_beneath(root: str, path: str, limit_bytes: int) -> bytes | None:
    """Reads a whole file. Returns None when it is larger than `limit_bytes`."""
    with open_file(root, path) as fd:
        if os.fstat(fd).st_size > limit_bytes:
            return None
        return os.pread(fd, limit_bytes, 0)
