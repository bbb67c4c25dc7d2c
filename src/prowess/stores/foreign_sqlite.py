"""Reads session databases that somebody else wrote. Nothing is ever written to them or created beside them.

The file is copied with its `-wal` into a private folder of this process, and SQLite opens the copy. The copy is read
only after its schema, its structure and the types, counts and lengths of its values were checked, see foreign_copy.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sqlite3
import tempfile
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import NoReturn, TypeVar

from prowess.core.events import Envelope
from prowess.core.values import Lease, SessionKey
from prowess.errors import StoreError
from prowess.stores.foreign_copy import (
    BOUNDS,
    ForeignBounds,
    check_database,
    connect,
    copy_database,
    damaged,
    too_large,
)
from prowess.stores.sqlite import SqliteEventLog, store_error

T = TypeVar("T")

_STEPS_PER_TICK = 100_000
# A header can say that its format is not to be written, and text that is not UTF-8 fails in a function.
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_ERROR)
_TOO_LARGE = "store-foreign-large"


def open_foreign(
    path: str | os.PathLike[str], *, bounds: ForeignBounds = BOUNDS, folder: str | None = None
) -> ForeignLog:
    """Returns the reading side of an event log, over a copy of the file. The copy is made in `folder`, else where
    temporary files lie, by `async with` or on first use. Close it after use."""
    return ForeignLog(path, bounds=bounds, folder=folder)


class ForeignLog(SqliteEventLog):
    """Event log that is only read. Every write is StoreError `store-foreign`."""

    def __init__(self, path: str | os.PathLike[str], *, bounds: ForeignBounds, folder: str | None) -> None:
        super().__init__(path, answers_since=None)
        self._bounds = bounds
        self._copy = ForeignCopy(path, bounds=bounds, folder=folder)

    async def __aenter__(self) -> ForeignLog:
        opened = False
        try:
            await super().__aenter__()
            opened = True
        finally:
            if not opened:
                await self.close()  # ends the thread, and what it does
        return self

    async def lines(self, key: SessionKey, *, after_seq: int = 0) -> AsyncIterator[str]:
        size = 0
        try:
            async for line in super().lines(key, after_seq=after_seq):
                size += len(line)
                if size > self._bounds.session_bytes:
                    raise too_large(self.path, f"has more than {self._bounds.session_bytes} bytes of events")
                yield line
        except StoreError as error:
            if error.code != _TOO_LARGE:
                raise
            what = f"Session '{key.session}' is not read whole: {error.message}"
            raise StoreError(what, code=_TOO_LARGE, hint=error.hint) from error

    async def lease(self, key: SessionKey, owner: str = "") -> Lease:
        self._refuse()

    async def append(
        self, key: SessionKey, expected_seq: int, lease: Lease, events: Sequence[Envelope]
    ) -> Sequence[Envelope]:
        self._refuse()

    async def expire(self, key: SessionKey, at: str | None) -> None:
        self._refuse()

    async def prune_expired(self) -> int:
        """Removes nothing."""
        return 0

    async def delete(self, key: SessionKey) -> None:
        self._refuse()

    async def close(self) -> None:
        """Ends a statement that runs, and removes the copy."""
        self._copy.stop()
        await super().close()

    def _refuse(self) -> NoReturn:
        raise StoreError(
            f"{self.path} was not made by you here. It is only read, and nothing was written.",
            code="store-foreign",
            hint=f"Take its sessions over: prowess runs import {shlex.quote(self.path)}",
        )

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return self._copy.run(work)

    def _close(self) -> None:
        self._copy.close()


class ForeignCopy:
    """Checked copy of a foreign database, for code that is not async. Call `run` from one thread at a time, and `stop`
    from any."""

    def __init__(
        self, path: str | os.PathLike[str], *, bounds: ForeignBounds = BOUNDS, folder: str | None = None
    ) -> None:
        self.path: str = os.path.abspath(path)
        self._bounds = bounds
        self._folder = folder
        self._connection: sqlite3.Connection | None = None
        self._remove: Callable[[], object] = _nothing
        self._stopped = threading.Event()
        self._ticks = 0

    def __enter__(self) -> ForeignCopy:
        self.run(_nothing)
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Calls `work` with a connection to the copy, which is made on first use. SQLite's errors become
        StoreErrors."""
        self._ticks = 0
        try:
            return work(self._connection or self._open())
        except (sqlite3.Error, UnicodeDecodeError) as error:  # a message of SQLite can quote bytes of the file
            raise self._explain(error) from error
        except OSError as error:
            raise StoreError(
                f"A copy of {self.path} cannot be made: {error}.",
                code="store-unavailable",
                hint="Set TMPDIR to a folder that can be written and has room.",
            ) from error

    def stop(self) -> None:
        """Ends the statement that runs, and refuses others. Call `close` after it."""
        self._stopped.set()
        connection = self._connection
        if connection is not None:
            with suppress(sqlite3.ProgrammingError):  # closed just now
                connection.interrupt()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        self._remove()

    def _open(self) -> sqlite3.Connection:
        folder = tempfile.mkdtemp(prefix="prowess-foreign-", dir=self._folder)
        self._remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)  # at exit, too
        opened = False
        try:
            copy = os.path.join(folder, "prowess.db")
            copy_database(self.path, copy, self._bounds, self._stopped)
            if self._stopped.is_set():
                raise self._closed()
            self._connection = connection = connect(copy, self._bounds)
            connection.set_progress_handler(self._tick, _STEPS_PER_TICK)
            check_database(connection, self.path, self._bounds)
            connection.execute("PRAGMA journal_mode = DELETE")  # from here on it is one file
            connection.execute("PRAGMA query_only = ON")
            opened = True
        finally:
            if not opened:
                self.close()
        if os.name == "posix":
            self._remove()  # an open file needs no name, and a process that is killed leaves none
        return connection

    def _tick(self) -> bool:
        """Ends the statement if it is true. Python code runs here, so Ctrl-C is noticed."""
        self._ticks += 1
        return self._is_over()

    def _is_over(self) -> bool:
        return self._stopped.is_set() or self._ticks * _STEPS_PER_TICK > self._bounds.steps

    def _explain(self, error: sqlite3.Error | UnicodeDecodeError) -> StoreError:
        code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)  # text that is not UTF-8 has none
        if code == sqlite3.SQLITE_TOOBIG:
            return too_large(self.path, f"has a value of more than {self._bounds.line_bytes} bytes")
        if code & 0xFF in _DAMAGED:
            return damaged(self.path, str(error))
        if code != sqlite3.SQLITE_INTERRUPT:
            return store_error(error, self.path)
        if self._stopped.is_set():
            return self._closed()
        if self._is_over():
            return too_large(self.path, f"needs more than {self._bounds.steps} steps of SQLite for one request")
        raise KeyboardInterrupt from error  # the sqlite3 module drops what a progress handler raises

    def _closed(self) -> StoreError:
        return StoreError(f"{self.path} was closed.", code="store-closed", hint="Open it again.")


def _nothing(*given: object) -> None:
    pass
