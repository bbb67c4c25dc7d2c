"""SQLite files that this home made, by `stores.json` in the state folder: 128 random bits, path, device and inode.

The bits are also in the file. A file in a folder that others can ship is ours only if all of it fits. What lies in the
state folder is ours by its place.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from prowess._internal.files import UserFile, read_regular
from prowess._internal.paths import is_inside
from prowess._internal.state_folder import find_state_dir, make_state_dir, state_unavailable
from prowess.errors import StoreError

SCHEMA = "prowess.stores/1"
_MOST_GONE = 100
_BITS_WITHIN = 256 * 1024  # bytes; our table of one row is made with the file


class OwnStore(NamedTuple):
    id: str
    path: str
    device: int
    inode: int


class OwnStores:
    """Registry of one home. Without `state_dir`, the one that the environment names."""

    def __init__(self, state_dir: str | None = None) -> None:
        self.state_dir: str = state_dir or find_state_dir(os.environ, os.getcwd())
        self._file = UserFile(self.state_dir, "stores", SCHEMA)

    def is_in_state(self, path: str) -> bool:
        """True for a file in the state folder, or below a link in it: that is refused when its folder is made."""
        return any(is_inside(full(self.state_dir), full(path)) for full in (os.path.abspath, os.path.realpath))

    def find(self, path: str) -> OwnStore | None:
        """Returns the entry of the file at this path, or None if this home did not make it. A file that the person
        moved is found by device and inode."""
        try:
            found = os.stat(path)
        except OSError:
            return None
        real = os.path.realpath(path)
        for entry in self._read():
            if entry.inode != found.st_ino:
                continue
            is_moved = entry.device == found.st_dev and not os.path.lexists(entry.path)
            if entry.path == real or (is_moved and _has_bits(path, entry.id)):
                return entry
        return None

    def is_foreign(self, path: str) -> bool:
        """True for an existing file that this home did not make."""
        if not os.path.lexists(path) or self.is_in_state(path):
            return False
        entry = self.find(path)
        return entry is None or not _has_bits(path, entry.id)

    def create(self, path: str, make: Callable[[str, str], None]) -> None:
        """Makes the file whole or not at all: `make(temporary path, id)` writes it beside its place."""
        real = os.path.realpath(path)
        with self._locked():
            if os.path.lexists(path):  # another process was faster
                return
            id = secrets.token_hex(16)
            temporary = os.path.join(os.path.dirname(real), f".prowess-{id}.tmp")
            try:
                make(temporary, id)
                made = os.stat(temporary)
                self._add(OwnStore(id, real, made.st_dev, made.st_ino))
                _place(temporary, real)
            finally:
                for end in ("", "-wal", "-shm", "-journal"):
                    with suppress(OSError):
                        os.unlink(temporary + end)

    def note_place(self, entry: OwnStore, path: str) -> None:
        """Notes where the person moved a file, so that it stays ours when something else gets its old place."""
        real = os.path.realpath(path)
        if entry.path != real:
            with self._locked():
                self._add(entry._replace(path=real))

    def _read(self) -> list[OwnStore]:
        try:
            rows: Any = self._file.read()["stores"]
            return [OwnStore(str(r["id"]), str(r["path"]), int(r["device"]), int(r["inode"])) for r in rows]
        except FileNotFoundError:
            return []
        except PermissionError as error:
            raise state_unavailable(self.state_dir, error) from error
        except (OSError, ValueError, RecursionError, KeyError, TypeError) as error:
            raise StoreError(
                f"{self._file.path} cannot be read: {error}.",
                code="stores-corrupt",
                hint="It lists the record files that you made outside the state folder. Restore it, or move it away; "
                "then take their sessions over with: prowess runs import FILE --mine",
            ) from error

    def _add(self, entry: OwnStore) -> None:
        """Adds an entry. Of those whose file is gone, the last ones are kept: it may have been moved. The caller holds
        the lock."""
        others = [each for each in self._read() if each.path != entry.path and each.id != entry.id]
        gone = [each for each in others if not os.path.lexists(each.path)]
        kept = [each for each in others if each not in gone[:-_MOST_GONE]]
        self._file.write({"stores": [each._asdict() for each in (*kept, entry)]})

    @contextmanager
    def _locked(self) -> Iterator[None]:
        make_state_dir(self.state_dir)
        try:
            with self._file.locked():
                yield
        except PermissionError as error:
            raise state_unavailable(self.state_dir, error) from error


def _has_bits(path: str, id: str) -> bool:
    """Looks for the bits without SQLite: the number of a removed file is given to another one soon."""
    try:
        return id.encode() in read_regular(path, _BITS_WITHIN, follow=True)
    except OSError:
        return True  # opening it says why


def _place(temporary: str, path: str) -> None:
    """Gives the file its name, unless something has it by now."""
    try:
        os.link(temporary, path)
    except FileExistsError as error:
        raise store_foreign(path) from error
    except OSError:  # a file system without hard links
        if os.path.lexists(path):
            raise store_foreign(path) from None
        os.rename(temporary, path)


def store_foreign(path: str) -> StoreError:
    return StoreError(
        f"{path} was not made by you here, so nothing is written to it and nothing in it approves.",
        code="store-foreign",
        hint=f"Name another file, and take its sessions over: prowess runs import {path}",
    )
