"""Keeps two folders the same where nothing can be mounted: `work/inputs`, and `inputs` in the copy of a skill.

A symbolic link would not work: `find inputs`, `cp -r inputs` and `tar` do not see it as a folder. Files are hard links,
so a write in place changes both. `agree` carries files that were added, replaced or removed to the other folder.
"""

from __future__ import annotations

import os
import posixpath
import stat
import threading
from collections.abc import Callable

from prowess.errors import WorkspaceError
from prowess.workspace.dirfd import enter, open_folder, walk

_MOST = 20_000


class Twin:
    """Pair of folders `first` and `second` below `root`. `uid` owns the files that are created in them.

    When both changed, `first` wins. Nothing is carried while one of them is not a folder: a script may have replaced
    it. A link that a script made in `second` is not carried: it could point elsewhere from `first`.
    """

    def __init__(self, root: str, first: str, second: str, uid: int | None = None) -> None:
        self._root = root
        self._first = first
        self._second = second
        self._uid = uid
        self._known: dict[str, str] | None = None  # path -> its kind when both folders were the same
        self._lock = threading.Lock()

    def is_empty(self) -> bool:
        """True when both folders are empty. A quick check, because most runs have no inputs."""
        if self._known:
            return False
        try:
            for folder in (self._first, self._second):
                with os.scandir(os.path.join(self._root, folder)) as entries:
                    if next(entries, None) is not None:
                        return False
        except OSError:
            return False
        self._known = {}
        return True

    def agree(self) -> str | None:
        """Carries changes to the other folder. Returns a sentence about those that could not be carried, or None."""
        with self._lock:
            try:
                first = self._list(self._first)
                second = self._list(self._second)
                second = {path: kind for path, kind in second.items() if kind != "own" or path in first}
                known = second if self._known is None else self._known
                failed = []
                if first != second:
                    failed = self._carry(first, second, known)
                    first = self._list(self._first)
                self._known = first
            except (OSError, WorkspaceError) as error:
                why = error.strerror if isinstance(error, OSError) else error
                return f"What changed in {self._first} or {self._second} was not carried to the other: {why}"
        if not failed:
            return None
        more = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
        return f"Not the same in {self._first} and {self._second}: {failed[0]}{more}."

    def _carry(self, first: dict[str, str], second: dict[str, str], known: dict[str, str]) -> list[str]:
        different = sorted(path for path in first.keys() | second.keys() if first.get(path) != second.get(path))
        back = {path for path in different if first.get(path) == known.get(path)}  # carried from second to first
        failed: list[str] = []
        with _Hand(self._root, self._first, self._uid) as one, _Hand(self._root, self._second, self._uid) as other:
            for path in reversed(different):
                if path in back and path in first:
                    _try(failed, path, one.remove, path)
                elif path not in back and path in second:
                    _try(failed, path, other.remove, path)
            for path in different:
                if path not in back:
                    kind = first.get(path)
                    if kind is not None:
                        _try(failed, path, _put, path, kind, one, other)
                    continue
                kind = second.get(path)
                if kind is not None and kind not in ("link", "own"):
                    _try(failed, path, _put, path, kind, other, one)
        return failed

    def _list(self, folder: str) -> dict[str, str]:
        found = {}
        for rel, status, fd, name in walk(self._root, folder, max_entries=_MOST):
            path = rel[len(folder) + 1 :]
            if stat.S_ISREG(status.st_mode):
                found[path] = str(status.st_ino)
            elif stat.S_ISDIR(status.st_mode):
                found[path] = "folder"
            elif stat.S_ISLNK(status.st_mode):
                ours = folder == self._first or os.readlink(name, dir_fd=fd) == _up(path, self._first, folder)
                found[path] = "link" if ours else "own"
        return found


class _Hand:
    """Access to one of the two folders. Keeps the folders of the last path open: the next path is mostly near it."""

    def __init__(self, root: str, folder: str, uid: int | None) -> None:
        self.folder = folder
        self._uid = uid
        self._parts: list[str] = []
        with open_folder(root, folder) as fd:
            self._fds = [os.dup(fd)]

    def __enter__(self) -> _Hand:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self._fds:
            os.close(fd)

    def at(self, path: str, *, make: bool = False) -> int:
        parts = path.split("/") if path else []
        while parts[: len(self._parts)] != self._parts:
            self._parts.pop()
            os.close(self._fds.pop())
        for part in parts[len(self._parts) :]:
            self._fds.append(enter(self._fds[-1], part, path, make=make, uid=self._uid))
            self._parts.append(part)
        return self._fds[-1]

    def remove(self, path: str) -> None:
        above, name = posixpath.split(path)
        fd = self.at(above)
        try:
            os.unlink(name, dir_fd=fd)
        except IsADirectoryError:
            os.rmdir(name, dir_fd=fd)


def _put(path: str, kind: str, source: _Hand, target: _Hand) -> None:
    if kind == "folder":
        target.at(path, make=True)
        return
    above, name = posixpath.split(path)
    there = target.at(above, make=True)
    if kind == "link":
        os.symlink(_up(path, source.folder, target.folder), name, dir_fd=there)
    else:
        os.link(name, name, src_dir_fd=source.at(above), dst_dir_fd=there, follow_symlinks=False)


def _up(path: str, source: str, target: str) -> str:
    folder = posixpath.dirname(f"{target}/{path}")
    return posixpath.relpath(f"{source}/{path}", folder)


def _try(failed: list[str], path: str, do: Callable[..., None], *args: object) -> None:
    try:
        do(*args)
    except FileNotFoundError:  # gone meanwhile
        pass
    except (OSError, WorkspaceError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        failed.append(f"'{path[:100]}' ({why})")
