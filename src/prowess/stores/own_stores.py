"""SQLite files that this home made, by `stores.json` in the state folder: 128 random bits, path, device and inode.

The bits are also in the file. A file in a folder that others can ship is ours only if all of it fits. What lies in the
state folder is ours by its place.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from prowess._internal.files import UserFile, check_owner, read_regular
from prowess._internal.paths import is_inside
from prowess._internal.state_folder import find_state_dir, make_state_dir, state_unavailable
from prowess.errors import StoreError

SCHEMA = "prowess.stores/1"
_MOST_GONE = 100
_BITS_WITHIN = 256 * 1024  # bytes; our table of one row is made with the file


class OwnStore(NamedTuple):
    """`wal`: inode of the `-wal` that we made beside it; 0 while nobody has the store open."""

    id: str
    path: str
    device: int
    inode: int
    wal: int = 0


class OwnStores:
    """Registry of one home. Without `state_dir`, the one that the environment names."""

    def __init__(self, state_dir: str | None = None) -> None:
        self.state_dir: str = state_dir or find_state_dir(os.environ, os.getcwd())
        self._file = UserFile(self.state_dir, "stores", SCHEMA)

    def is_in_state(self, path: str) -> bool:
        """True for a file in the state folder, by its own path: a link elsewhere can lead there."""
        path = os.path.abspath(path)
        return any(is_inside(top(self.state_dir), path) for top in (os.path.abspath, os.path.realpath))

    def check_state(self) -> None:
        """StoreError if the state folder belongs to another user."""
        try:
            with suppress(FileNotFoundError):
                check_owner(self.state_dir)
        except OSError as error:
            raise state_unavailable(self.state_dir, error) from error

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

    @contextmanager
    def opening(self, path: str) -> Iterator[OwnStore]:
        """Yields the entry of a file that is opened now, and notes its `-wal`. StoreError if the file is not ours, or
        if something beside it is not, which SQLite would take for its newest content."""
        with self._locked():
            own = self.find(path)
            # Our files use WAL from their first byte. A rollback journal can name other files, which are then deleted.
            if own is None:
                raise store_foreign(path)
            if os.path.lexists(f"{path}-journal"):
                raise StoreError(
                    f"{path}-journal lies beside the record, and Prowess never makes one.",
                    code="store-foreign-journal",
                    hint="Somebody else put it there. Remove it: SQLite would change the record as it says.",
                )
            real = os.path.realpath(path)
            self._change(own, own._replace(path=real, wal=_settle_wal(real, own.wal)))
            yield own

    @contextmanager
    def closing(self, path: str) -> Iterator[None]:
        """Closes a file in its context. The last one to close it removes the `-wal`: one that is there later is not
        ours."""
        with self._locked():
            yield
            own = self.find(path)
            if own is not None and not os.path.lexists(f"{os.path.realpath(path)}-wal"):
                self._change(own, own._replace(wal=0))

    def _read(self) -> list[OwnStore]:
        try:
            rows: Any = self._file.read()["stores"]
            return [
                OwnStore(str(r["id"]), str(r["path"]), int(r["device"]), int(r["inode"]), int(r.get("wal", 0)))
                for r in rows
            ]
        except FileNotFoundError:
            return []
        except PermissionError as error:
            raise state_unavailable(self.state_dir, error) from error
        except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
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

    def _change(self, old: OwnStore, new: OwnStore) -> None:
        """Replaces an entry. The caller holds the lock."""
        if old != new:
            self._file.write({"stores": [(new if each == old else each)._asdict() for each in self._read()]})

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


def _settle_wal(path: str, known: int) -> int:
    """Returns the inode of the `-wal`, made here if there is none. StoreError if somebody else made it."""
    wal = f"{path}-wal"
    with suppress(FileExistsError):
        os.close(os.open(wal, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    found = os.lstat(wal)
    is_empty = stat.S_ISREG(found.st_mode) and found.st_size == 0  # made just before a kill: it says nothing
    if found.st_ino != known and not is_empty:
        raise StoreError(
            f"{wal} was not written by Prowess, and would change what {path} says.",
            code="store-foreign-wal",
            hint=f"Close the program that has {path} open. If the file came with a download or a pull, move it away.",
        )
    return found.st_ino


def store_foreign(path: str) -> StoreError:
    return StoreError(
        f"{path} was not made by you here, so nothing is written to it and nothing in it approves.",
        code="store-foreign",
        hint=f"Name another file, and take its sessions over: prowess runs import {path}",
    )
