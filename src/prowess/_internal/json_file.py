"""Reads and writes a JSON file in the user's folder: one writer at a time, and a broken file is kept aside."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from prowess._internal.files import read_regular, write_whole

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
        data = read_regular(self.path, _LIMIT_BYTES, follow=True)
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
