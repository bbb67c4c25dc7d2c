"""Opens regular files only, with bounded reads, hashes and copies them, and writes files atomically.

A JSON file in the user's folder has one writer at a time, and a broken one is kept aside.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

_READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_CHUNK_BYTES = 64 * 1024
_COPIED_BYTES = 1024 * 1024
_PASSABLE = 0o711  # the user of a script must reach its own files, and need not list others


class NotRegular(OSError):
    """The path is a FIFO, a device, a socket or a folder. Opening it could block or have side effects."""


def open_regular(path: str, *, follow: bool = False, was_regular: bool = False) -> int:
    """Returns a descriptor of a regular file. The type is checked before and after opening, so that a swap in between
    is noticed. With O_NONBLOCK even a FIFO that is swapped in cannot block. `was_regular`: the caller just made the
    check before."""
    if not was_regular:
        before = os.stat(path, follow_symlinks=follow)
        if not stat.S_ISREG(before.st_mode):
            raise NotRegular(f"{kind_of(before.st_mode)}, not a regular file: {path}")
    fd = os.open(path, _READ if follow else _READ | _NOFOLLOW)
    after = os.fstat(fd)
    if not stat.S_ISREG(after.st_mode):
        os.close(fd)
        raise NotRegular(f"{kind_of(after.st_mode)}, not a regular file: {path}")
    return fd


def read_regular(path: str, limit_bytes: int, *, follow: bool = False) -> bytes:
    """Reads at most limit_bytes + 1 bytes, so that the caller can tell "at the limit" from "over the limit"."""
    fd = open_regular(path, follow=follow)
    with open(fd, "rb") as file:
        return file.read(limit_bytes + 1)


def read_chunks(path: str) -> Iterator[bytes]:
    """Yields the content of a regular file. The file is opened when the first chunk is read."""
    with open(open_regular(path), "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


def hash_regular(path: str) -> str:
    """Returns the sha256 of a regular file, read in chunks. Links are followed."""
    import hashlib  # imported late: many readers need no hash

    with open(open_regular(path, follow=True), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def copy_regular(source: str, target: str, *, executable: bool) -> str:
    """Copies a regular file to a new one, with the folders above it, and returns the sha256 of what was copied."""
    import hashlib

    os.makedirs(os.path.dirname(target), exist_ok=True)
    whole = hashlib.sha256()
    with open(open_regular(source, follow=True), "rb") as read, open(target, "xb") as written:
        while chunk := read.read(_COPIED_BYTES):
            whole.update(chunk)
            written.write(chunk)
    os.chmod(target, 0o755 if executable else 0o644)
    return whole.hexdigest()


def kind_of(mode: int) -> str:
    for test, word in (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a FIFO"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISLNK, "a link"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
    ):
        if test(mode):
            return word
    return "a regular file"


def write_whole(path: str | os.PathLike[str], data: bytes | Iterable[bytes], *, mode: int = 0o644) -> None:
    """Writes a temporary file beside the target and renames it. A reader never sees half a file, even after a crash or
    on a full disk."""
    import tempfile  # imported late: readers do not need it

    target = os.fspath(path)
    folder = os.path.dirname(target) or "."
    os.makedirs(folder, exist_ok=True)
    fd, temporary = tempfile.mkstemp(dir=folder, prefix=f".{os.path.basename(target)}.")
    try:
        with open(fd, "wb") as file:
            file.writelines([data] if isinstance(data, bytes) else data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def make_passable(folder: str) -> None:
    """Creates the folder and missing parents, passable for other users. Existing folders keep their mode."""
    missing = []
    while not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for folder in reversed(missing):
        try:
            os.mkdir(folder)
            os.chmod(folder, _PASSABLE)
        except FileExistsError:
            if not os.path.isdir(folder):
                raise


# --- JSON files of the user -------------------------------------------------------------------------------------------

_LIMIT_BYTES = 16 << 20


class UserFile(NamedTuple):
    """File `<folder>/<name>.json`, which contains `"schema": "<schema>"`."""

    folder: str
    name: str
    schema: str

    @property
    def path(self) -> str:
        """Path of the file."""
        return os.path.join(self.folder, f"{self.name}.json")

    def read(self) -> dict[str, Any]:
        """Reads the file. FileNotFoundError if it does not exist; OSError, ValueError or RecursionError if it cannot be
        read."""
        try:
            data = read_regular(self.path, _LIMIT_BYTES, follow=True)
        except NotADirectoryError as error:  # there is no home, or a file is in the way of its folder
            raise FileNotFoundError(error.errno, error.strerror, self.path) from error
        if len(data) > _LIMIT_BYTES:
            raise ValueError(f"it is larger than {_LIMIT_BYTES} bytes")
        store: Any = json.loads(data)
        if not isinstance(store, dict) or store.get("schema") != self.schema:
            raise ValueError(f'it does not say "schema": "{self.schema}"')
        return store

    def write(self, store: dict[str, Any]) -> None:
        """Writes the file; the caller holds the lock. OSError if the result would be too large to read again."""
        data = json.dumps({"schema": self.schema, **store}, indent=1).encode() + b"\n"
        if len(data) > _LIMIT_BYTES:
            raise OSError(f"it would be larger than {_LIMIT_BYTES} bytes")
        # The file may be a link that the user made. The link stays, and its target is written.
        write_whole(os.path.realpath(self.path), data, mode=0o600)

    def move_aside(self) -> str:
        """Renames a broken file instead of overwriting it, and returns its new path. The caller holds the lock."""
        number = 1
        while os.path.lexists(kept := f"{self.path}.broken-{number}"):
            number += 1
        os.rename(self.path, kept)
        return kept

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Locks the file against other writers, in this process and in others, so that no change is lost."""
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        lock = os.path.join(self.folder, f"{self.name}.lock")
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        try:
            try:
                import fcntl
            except ImportError:  # Windows has no flock: a race can lose a change there, but never the file
                pass
            else:
                fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)


def file_signature(path: str) -> object:
    """Returns a value that changes whenever the file is rewritten. Never None."""
    try:
        found = os.stat(path)
    except OSError as error:
        return error.errno
    return found.st_ino, found.st_mtime_ns, found.st_size


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
