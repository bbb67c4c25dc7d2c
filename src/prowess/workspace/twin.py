"""Two folders with the same files, where nothing can be mounted: `work/inputs`, and the `inputs` of a skill's copy.

A link in its place would be no folder to `find inputs`, `cp -r inputs` or `tar`. Files are hard links, so what is
written in place is the same in both; what was added, replaced or removed in one is carried to the other by `agree`.
"""

from __future__ import annotations

import os
import posixpath
import stat
import threading
from contextlib import suppress

from prowess.errors import WorkspaceError
from prowess.workspace.beneath import open_folder, walk

_MOST = 1_000_000


class Twin:
    """`first` and `second` are folders below `root`; `uid` owns what is made in them.

    Where both changed, `first` counts. Nothing is carried while one of them is not a folder: a script may have put
    something else there.
    """

    def __init__(self, root: str, first: str, second: str, uid: int | None = None) -> None:
        self._root, self._first, self._second, self._uid = root, first, second, uid
        self._known: dict[str, str] | None = None  # path -> what was there when both agreed
        self._lock = threading.Lock()

    def agree(self) -> None:
        with self._lock, suppress(OSError, WorkspaceError):
            first, second = self._list(self._first), self._list(self._second)
            known = second if self._known is None else self._known
            if first != second:
                self._carry(first, second, known)
                first = self._list(self._first)
            self._known = first

    def _carry(self, first: dict[str, str], second: dict[str, str], known: dict[str, str]) -> None:
        different = sorted(path for path in first.keys() | second.keys() if first.get(path) != second.get(path))
        back = {path for path in different if first.get(path) == known.get(path)}  # from the second to the first
        for path in reversed(different):
            if path in (first if path in back else second):
                self._remove(self._first if path in back else self._second, path)
        for path in different:
            kind = (second if path in back else first).get(path)
            if kind is not None:
                with suppress(OSError, WorkspaceError):
                    self._put(path, kind, back=path in back)

    def _put(self, path: str, kind: str, *, back: bool) -> None:
        source, target = (self._second, self._first) if back else (self._first, self._second)
        above, name = posixpath.split(path)
        with open_folder(
            self._root, f"{target}/{path if kind == 'folder' else above}", make=True, uid=self._uid
        ) as there:
            if kind == "link" and not back:  # one that a script made may lead elsewhere from there, and stays
                up = posixpath.relpath(f"{source}/{path}", f"{target}/{above}")
                os.symlink(up, name, dir_fd=there)
            elif kind not in ("folder", "link"):
                with open_folder(self._root, f"{source}/{above}") as here:
                    os.link(name, name, src_dir_fd=here, dst_dir_fd=there, follow_symlinks=False)

    def _remove(self, folder: str, path: str) -> None:
        above, name = posixpath.split(path)
        with suppress(OSError, WorkspaceError), open_folder(self._root, f"{folder}/{above}") as fd:
            try:
                os.unlink(name, dir_fd=fd)
            except IsADirectoryError:
                os.rmdir(name, dir_fd=fd)

    def _list(self, folder: str) -> dict[str, str]:
        found = {}
        for path, status, _, _ in walk(self._root, folder, max_entries=_MOST):
            if stat.S_ISREG(status.st_mode):
                found[path[len(folder) + 1 :]] = str(status.st_ino)
            elif stat.S_ISDIR(status.st_mode) or stat.S_ISLNK(status.st_mode):
                found[path[len(folder) + 1 :]] = "folder" if stat.S_ISDIR(status.st_mode) else "link"
        return found
