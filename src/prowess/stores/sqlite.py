"""An event log in one SQLite file: an append that returned survives a kill and a power cut, a failed one left nothing.

All work is done by one thread with one connection, so that the event loop never waits for a disk; SQLite itself keeps
other processes and other logs on the same file apart. The file has WAL, so that readers and a writer do not wait for
each other, and synchronous=FULL, because NORMAL can forget the last commits at a power cut: a call that was decided,
recorded and executed would then look as if it had never been made.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TypeVar

from prowess.errors import AuditBroken, StoreError
from prowess.events import Envelope, parse_event, render_at
from prowess.stores.chain import GENESIS, check_fence, seal, unknown_session
from prowess.stores.sqlite_file import migrate, store_error
from prowess.values import Head, Lease, SessionInfo, SessionKey

T = TypeVar("T")

_PAGE = 256  # lines read at once: many enough to be fast, few enough to let others have the thread in between
_GET = "SELECT lease, seq, hash FROM sessions WHERE tenant = ? AND app = ? AND user = ? AND session = ?"
_SET = "UPDATE sessions SET seq = ?, hash = ?, updated_at = ? WHERE tenant = ? AND app = ? AND user = ? AND session = ?"
_TAKE = """INSERT INTO sessions (tenant, app, user, session, seq, hash, lease, owner, created_at, updated_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (tenant, app, user, session) DO UPDATE SET lease = excluded.lease, owner = excluded.owner"""
_LIST = """SELECT tenant, app, user, session, seq, hash, created_at, updated_at FROM sessions
    WHERE tenant = ? AND (? IS NULL OR app = ?) AND (? IS NULL OR user = ?) AND substr(session, 1, ?) = ?"""
_ADD = "INSERT INTO events (tenant, app, user, session, seq, line) VALUES (?, ?, ?, ?, ?, ?)"
_PART = """SELECT seq, line FROM events WHERE tenant = ? AND app = ? AND user = ? AND session = ?
    AND seq > ? AND seq <= ? ORDER BY seq LIMIT ?"""
_FORGET = (
    "DELETE FROM events WHERE tenant = ? AND app = ? AND user = ? AND session = ?",
    "DELETE FROM sessions WHERE tenant = ? AND app = ? AND user = ? AND session = ?",
)


class SqliteEventLog:
    """The file is opened, and made if need be, at the first use or on entering `async with`. Close it."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        busy_timeout_s: float = 10.0,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.path = os.path.abspath(path)
        self._busy_timeout_s = busy_timeout_s
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="prowess-log")
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._closed = False

    async def lease(self, key: SessionKey, owner: str = "") -> Lease:
        return await self._do(lambda connection: self._lease(connection, key, owner))

    async def append(
        self, key: SessionKey, expected_seq: int, lease: Lease, events: Sequence[Envelope]
    ) -> Sequence[Envelope]:
        return await self._do(lambda connection: self._append(connection, key, expected_seq, lease, events))

    async def read(self, key: SessionKey, *, after_seq: int = 0) -> AsyncIterator[Envelope]:
        async for line in self.lines(key, after_seq=after_seq):
            try:
                yield parse_event(json.loads(line))
            except (ValueError, RecursionError) as error:
                raise _broken(key, f"has a line that is not an event: {error}") from error

    async def lines(self, key: SessionKey, *, after_seq: int = 0) -> AsyncIterator[str]:
        end = (await self.head(key)).seq
        seq = max(after_seq, 0)
        while seq < end:
            rows = await self._do(lambda connection, after=seq: _page(connection, key, after, end))
            if not rows:
                raise _broken(key, f"has no event {seq + 1}, and {end} were recorded")
            for number, line in rows:
                seq += 1
                if number != seq:
                    raise _broken(key, f"has no event {seq}, and {end} were recorded")
                yield line

    async def head(self, key: SessionKey) -> Head:
        row = await self._do(lambda connection: _session(connection, key))
        return Head(seq=row[1], hash=row[2])

    async def sessions(
        self, tenant: str = "default", *, app: str | None = None, user: str | None = None, prefix: str = ""
    ) -> Sequence[SessionInfo]:
        wanted = (tenant, app, app, user, user, len(prefix), prefix)
        rows = await self._do(lambda connection: connection.execute(_LIST, wanted).fetchall())
        return sorted((_info(row) for row in rows), key=lambda info: info.key)

    async def delete(self, key: SessionKey) -> None:
        await self._do(lambda connection: _delete(connection, key))

    async def close(self) -> None:
        """What was begun is finished first."""
        if not self._closed:
            self._closed = True
            await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
            self._thread.shutdown(wait=False)

    async def __aenter__(self) -> SqliteEventLog:
        await self._do(lambda connection: None)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    # --- in the thread

    async def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._closed:
            raise StoreError(f"{self.path} is closed.", code="store-closed", hint="Open the log again.")
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._work, work)

    def _work(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            if self._connection is None:
                self._connection = self._open()
                self._identity = _identity(self.path)
            elif self._identity != _identity(self.path):
                # SQLite would go on writing into the file that nobody can find any more.
                raise StoreError(
                    f"{self.path} was removed or replaced while it was open.",
                    code="store-gone",
                    hint="Put it back, then start again.",
                )
            return work(self._connection)
        except sqlite3.Error as error:
            raise store_error(error, self.path) from error
        except UnicodeEncodeError as error:
            raise StoreError(
                f"{error.object!r} is not text."[:300], code="session-key-invalid", hint="Use whole Unicode characters."
            ) from error

    def _open(self) -> sqlite3.Connection:
        _make_private_file(self.path)
        connection = sqlite3.connect(
            self.path, timeout=self._busy_timeout_s, isolation_level=None, check_same_thread=False
        )
        opened = False
        try:
            self._use_wal(connection)
            connection.execute("PRAGMA synchronous = FULL")
            migrate(connection, self.path, render_at(self._clock()))
            opened = True
        finally:
            if not opened:
                connection.close()
        return connection

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        """The switch needs the file for itself, and SQLite does not wait for that by itself."""
        deadline = time.monotonic() + self._busy_timeout_s
        while connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if store_error(error, self.path).code != "store-busy" or time.monotonic() > deadline:
                    raise
                time.sleep(0.005)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _lease(self, connection: sqlite3.Connection, key: SessionKey, owner: str) -> Lease:
        now = render_at(self._clock())
        with _transaction(connection):
            # One counter for all sessions, so that a deleted one does not give a token twice.
            connection.execute("UPDATE counters SET value = value + 1 WHERE name = 'lease'")
            token: int = connection.execute("SELECT value FROM counters WHERE name = 'lease'").fetchone()[0]
            connection.execute(_TAKE, (*_columns(key), GENESIS.seq, GENESIS.hash, token, owner, now, now))
        return Lease(key=key, token=token, owner=owner)

    def _append(
        self,
        connection: sqlite3.Connection,
        key: SessionKey,
        expected_seq: int,
        lease: Lease,
        events: Sequence[Envelope],
    ) -> list[Envelope]:
        with _transaction(connection):
            token, seq, last = _session(connection, key)
            check_fence(key, lease, token, expected_seq, seq)
            sealed, lines = seal(key, Head(seq=seq, hash=last), events)
            if sealed:
                rows = [(*_columns(key), number, line) for number, line in enumerate(lines, seq + 1)]
                connection.executemany(_ADD, rows)
                now = render_at(self._clock())
                connection.execute(_SET, (seq + len(lines), sealed[-1].hash, now, *_columns(key)))
        return sealed


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing. It waits for the right to write at its start, so that what it reads stays true until its end."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.rollback()


def _session(connection: sqlite3.Connection, key: SessionKey) -> tuple[int, int, str]:
    row = connection.execute(_GET, _columns(key)).fetchone()
    if row is None:
        raise unknown_session(key)
    return row


def _page(connection: sqlite3.Connection, key: SessionKey, after_seq: int, end: int) -> list[tuple[int, str]]:
    rows = connection.execute(_PART, (*_columns(key), after_seq, end, _PAGE)).fetchall()
    if not rows:
        _session(connection, key)  # deleted while it was read: say so
    return rows


def _delete(connection: sqlite3.Connection, key: SessionKey) -> None:
    with _transaction(connection):
        _session(connection, key)
        for statement in _FORGET:
            connection.execute(statement, _columns(key))


def _columns(key: SessionKey) -> tuple[str, str, str, str]:
    return key.tenant, key.app, key.user, key.session


def _info(row: tuple[str, str, str, str, int, str, str, str]) -> SessionInfo:
    tenant, app, user, session, seq, last, created_at, updated_at = row
    key = SessionKey(tenant=tenant, app=app, user=user, session=session)
    return SessionInfo(key=key, head=Head(seq=seq, hash=last), created_at=created_at, updated_at=updated_at)


def _broken(key: SessionKey, what: str) -> AuditBroken:
    return AuditBroken(
        f"The record of session '{key.session}' {what}."[:300],
        hint="Restore the database from a copy, or delete the session.",
    )


def _make_private_file(path: str) -> None:
    """Only the owner may read what was said in a session; SQLite gives its other files the same rights."""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        pass
    except OSError as error:
        raise StoreError(
            f"{path} cannot be made: {error.strerror}.",
            code="store-unavailable",
            hint="Name a folder that can be written.",
        ) from error


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
