"""A JSON file of the user's own: read whole or not at all, written by one at a time, kept aside when it is broken."""

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
    """`<folder>/<name>.json`, which says `"schema": "<schema>"`."""

    folder: str
    name: str
    schema: str

    @property
    def path(self) -> str:
        return os.path.join(self.folder, f"{self.name}.json")

    def read(self) -> dict[str, Any]:
        """FileNotFoundError when there is none; OSError, ValueError or RecursionError when it cannot be read."""
        data = read_regular(self.path, _LIMIT_BYTES, follow=True)
        if len(data) > _LIMIT_BYTES:
            raise ValueError(f"it is larger than {_LIMIT_BYTES} bytes")
        store: Any = json.loads(data)
        if not isinstance(store, dict) or store.get("schema") != self.schema:
            raise ValueError(f'it does not say "schema": "{self.schema}"')
        return store

    def write(self, store: dict[str, Any]) -> None:
        """Holding the lock. What could not be read again is not written: OSError."""
        data = json.dumps({"schema": self.schema, **store}, indent=1).encode() + b"\n"
        if len(data) > _LIMIT_BYTES:
            raise OSError(f"it would be larger than {_LIMIT_BYTES} bytes")
        # Through a link, if a person keeps the file elsewhere: the link is theirs and stays.
        write_whole(os.path.realpath(self.path), data, mode=0o600)

    def move_aside(self) -> str:
        """Holding the lock: a broken file is never overwritten. Where it is now."""
        number = 1
        while os.path.lexists(kept := f"{self.path}.broken-{number}"):
            number += 1
        os.rename(self.path, kept)
        return kept

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One writer at a time, in this process and in others, so that of two changes at once none is lost."""
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        lock = os.path.join(self.folder, f"{self.name}.lock")
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        try:
            try:
                import fcntl
            except ImportError:  # Windows: a lost race there loses a change, never the file
                pass
            else:
                fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)


def file_signature(path: str) -> object:
    """Another one whenever the file was written anew; never None."""
    try:
        found = os.stat(path)
    except OSError as error:
        return error.errno
    return found.st_ino, found.st_mtime_ns, found.st_size


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
