"""Resolves paths as the sandbox will see them, on the host and before the sandbox exists.

So a missing program, or one that may not be executed, is an error that names it, as it is without a sandbox. Bubblewrap
would only print that to the stderr of the program, where the program could print the same text.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from prowess._internal.files import open_regular
from prowess.workspace.executors.preconditions import may
from prowess.workspace.isolation.bwrap import TMP, Bind

UNKNOWN = ("/proc", "/dev")  # made by the sandbox itself
MOST_LINKS = 40
_HEAD = 4096
_NOWHERE = os.stat_result((stat.S_IFDIR | 0o755, 0, 0, 1, 0, 0, 0, 0, 0, 0))


class BoxPath(NamedTuple):
    """File in the sandbox. `path` is its path there without links. `host` is "" if only the sandbox has the folder."""

    path: str
    host: str
    status: os.stat_result


class NotSeen(Exception):
    """Raised when a path cannot be seen. `errno` says why; 0 means that only the sandbox itself can know."""

    def __init__(self, number: int) -> None:
        super().__init__(os.strerror(number) if number else "unknown")
        self.errno = number


class View:
    """Files of a sandbox: its mounts, and the links in its root."""

    def __init__(self, binds: Sequence[Bind], links: Sequence[tuple[str, str]] = ()) -> None:
        self._sources = {bind.target: bind.source for bind in binds}
        self._links = {path: leads_to for leads_to, path in links}
        self._above = {"/", TMP}  # folders above a mount, or made by the sandbox
        for target in self._sources:
            while target != "/":
                target = os.path.dirname(target)
                self._above.add(target)

    def find(self, path: str, *, cwd: str = "/") -> BoxPath:
        """Resolves a path. Raises NotSeen when nothing is there, or when that cannot be known."""
        root = BoxPath("/", self._sources.get("/", ""), _NOWHERE)
        waiting = _parts_reversed(os.path.join(cwd, path))
        here = root
        followed = 0
        while waiting:
            part = waiting.pop()
            if not stat.S_ISDIR(here.status.st_mode):
                raise NotSeen(errno.ENOTDIR)
            child = os.path.dirname(here.path) if part == ".." else os.path.join(here.path, part)
            leads_to = self._links.get(child)
            below = here if leads_to is not None else self._look(child)
            if leads_to is None and stat.S_ISLNK(below.status.st_mode):
                leads_to = os.readlink(below.host)
            if leads_to is None:
                here = below
                continue
            followed += 1
            if followed > MOST_LINKS:
                raise NotSeen(errno.ELOOP)
            waiting += _parts_reversed(leads_to)
            if leads_to.startswith("/"):
                here = root
        return here

    def find_program(self, name: str, env: Mapping[str, str], *, cwd: str, uid: int) -> str:
        """Returns the path that will be executed in the sandbox. A name without a slash is searched only in absolute
        folders of PATH. Raises NotSeen with the reason."""
        paths = [name]
        if "/" not in name:
            folders = env.get("PATH", "").split(":")
            paths = [os.path.join(folder, name) for folder in folders if folder.startswith("/")]
        problem = NotSeen(errno.ENOENT)
        for path in paths:
            try:
                self._check_executable(os.path.join(cwd, path), uid)
                return path
            except NotSeen as error:
                if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
                    raise
                if error.errno == errno.EACCES:  # a later folder may have one that can be executed
                    problem = error
        raise problem

    def _look(self, path: str) -> BoxPath:
        if any(path == unknown or path.startswith(f"{unknown}/") for unknown in UNKNOWN):
            raise NotSeen(0)
        bound = path
        while bound not in self._sources and bound != "/":
            bound = os.path.dirname(bound)
        source = self._sources.get(bound)
        if source is not None:
            host = source + path[len(bound.rstrip("/")) :]
            try:
                return BoxPath(path, host, os.stat(host, follow_symlinks=path == bound))
            except OSError as error:
                if path not in self._above:
                    raise NotSeen(error.errno or errno.ENOENT) from error
        if path in self._above:
            return BoxPath(path, "", _NOWHERE)
        raise NotSeen(errno.ENOENT)

    def _check_executable(self, path: str, uid: int, depth: int = 0) -> None:
        seen = self.find(path)
        if not stat.S_ISREG(seen.status.st_mode) or not _executable(seen, uid):
            raise NotSeen(errno.EACCES)
        head = _head(seen.host)
        if head.startswith(b"#!") and depth < 4:
            line, _, _ = head[2:].partition(b"\n")
            words = line.split(maxsplit=1)
            if not words:
                raise NotSeen(errno.ENOEXEC)
            interpreter = os.path.join("/", os.fsdecode(words[0]))
            self._check_executable(interpreter, uid, depth + 1)
        elif head and not head.startswith((b"#!", b"\x7fELF")):
            raise NotSeen(errno.ENOEXEC)
        elif head[:4] == b"\x7fELF":
            loader = _loader(head)
            if loader:
                self.find(loader)


def _parts_reversed(path: str) -> list[str]:
    """Returns the names in a path, the last one first."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _executable(seen: BoxPath, uid: int) -> bool:
    """True when the user may execute the file. Our own user may have several groups; another user has one."""
    if uid == os.geteuid():
        return os.access(seen.host, os.X_OK)
    return may(seen.status, uid, 0o1)


def _head(path: str) -> bytes:
    """Reads the start of a file. Returns b"" when we may not read it: it then counts as a program."""
    try:
        fd = open_regular(path, follow=True)
    except OSError:
        return b""
    try:
        return os.read(fd, _HEAD) or b"\0"
    finally:
        os.close(fd)


def _loader(head: bytes) -> str:
    """Returns the loader of an ELF program, which must be in the sandbox, too. "" when it has none or is not 64-bit."""
    if head[4:6] != b"\x02\x01":
        return ""
    offset = int.from_bytes(head[32:40], "little")
    size = int.from_bytes(head[54:56], "little")
    count = int.from_bytes(head[56:58], "little")
    for start in range(offset, offset + size * count, size or 1):
        entry = head[start : start + size]
        if len(entry) == size >= 56 and int.from_bytes(entry[:4], "little") == 3:
            where = int.from_bytes(entry[8:16], "little")
            length = int.from_bytes(entry[32:40], "little")
            name = head[where : where + length]
            return os.fsdecode(name.rstrip(b"\0"))
    return ""
