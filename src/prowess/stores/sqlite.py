"""Event log in a SQLite file. A finished append survives a kill and a power cut, and a failed one writes nothing.

A single thread with one connection does all work, so that the event loop never waits for a disk. SQLite itself handles
other processes and other logs on the same file. The last writer remembers the head of the session and prepares its next
lines before it asks for the file. The statement that writes them checks that the head is right.

The file uses WAL, so that readers and a writer do not wait for each other. It uses synchronous=FULL, because NORMAL can
lose the last commits in a power cut: a call that was decided, recorded and executed would then look as if it had never
been made.

The file is migrated when it is opened. SQLite's errors become StoreErrors with a hint. A file outside the state folder
is opened only if this home made it (own_stores.py): opening the file of somebody else runs what its author put there.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import TypeVar

from prowess._internal.worker_thread import OneThread
from prowess.core.events import Envelope, parse_event, render_at
from prowess.core.values import ChainHead, Lease, OrphanedEvents, SessionInfo, SessionKey
from prowess.errors import StoreError
from prowess.records.chain import broken_record, link, numbered, parse_expiry
from prowess.stores import sqlite_queries as rows
from prowess.stores.migrations import SQLITE, SQLITE_SHA256, Migrations, foreign, too_new
from prowess.stores.own_stores import OwnStore, OwnStores, store_foreign


def migrate(connection: sqlite3.Connection, path: str, now: str, known: Migrations = SQLITE) -> None:
    """Brings the file up to date in one transaction. A file of a newer release is left unchanged. Also registers the
    SQL function for expiry links."""
    connection.create_function(SQLITE_SHA256, 1, _sha256, deterministic=True)
    if _version(connection, path) == len(known):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        done = _version(connection, path)  # another process may have been faster
        if done == 0:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS migrations"
                " (number INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at TEXT NOT NULL)"
            )
        for number, (name, statements) in enumerate(known[done:], done + 1):
            for statement in statements:
                connection.execute(statement)
            connection.execute("INSERT INTO migrations VALUES (?, ?, ?)", (number, name, now))
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.rollback()


def _sha256(text: object) -> str | None:
    if not isinstance(text, str):
        return None
    data = text.encode("utf-8", "surrogatepass")
    return sha256(data).hexdigest()


def store_error(error: sqlite3.Error | UnicodeDecodeError, path: str) -> StoreError:
    """Turns an SQLite error into a StoreError with a hint. The message about a damaged schema can quote bytes that the
    sqlite3 module cannot decode."""
    is_message = isinstance(error, UnicodeDecodeError)
    extended: int = sqlite3.SQLITE_CORRUPT if is_message else getattr(error, "sqlite_errorcode", 0)
    meaning = _MEANINGS.get(extended) or _MEANINGS.get(extended & 0xFF)
    code, what, hint = meaning or _OTHER
    if code == "store-unavailable" and os.path.isfile(path) and not os.access(path, os.W_OK):
        code, what, hint = _MEANINGS[sqlite3.SQLITE_READONLY]
    if code == "store-read-only":
        owner = _another_owner(path)
        if owner is not None:
            hint = (
                f"It belongs to user {owner}, for example because Prowess was started once with sudo: "
                "change the owner of its folder (chown -R), or name another file with the setting store."
            )
    return StoreError(f"{path} {what} ({error}).", code=code, hint=hint)


def _another_owner(path: str) -> int | None:
    """Returns the owner's user id, or None if the file is ours."""
    if not hasattr(os, "geteuid"):
        return None
    try:
        owner = os.stat(path).st_uid
    except OSError:
        return None
    if owner == os.geteuid():
        return None
    return owner


def _version(connection: sqlite3.Connection, path: str) -> int:
    """Returns the number of migrations done. StoreError if the file is not ours, or of a newer release."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        return 0
    if "migrations" not in tables:
        raise foreign(path)
    row = connection.execute("SELECT coalesce(max(number), 0) FROM migrations").fetchone()
    done: int = row[0]
    if done > len(SQLITE):
        raise too_new(path, done, SQLITE)
    return done


_FULL = ("store-full", "could not be written", "Free some space, or raise the quota, and try again; nothing is lost.")
_CORRUPT = ("store-corrupt", "is damaged or no database", "Keep a copy of it, then restore it or move it away.")
_OTHER = ("store-error", "failed", "Look at the disk and at the message; nothing was written.")
_MEANINGS = {
    sqlite3.SQLITE_BUSY: ("store-busy", "is in use by somebody else", "Try again in a moment; nothing was written."),
    sqlite3.SQLITE_LOCKED: ("store-busy", "is in use by somebody else", "Try again in a moment; nothing was written."),
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_IOERR_WRITE: _FULL,  # a quota or a file size limit looks like this to SQLite
    sqlite3.SQLITE_IOERR_SHMSIZE: _FULL,
    sqlite3.SQLITE_CORRUPT: _CORRUPT,
    sqlite3.SQLITE_NOTADB: _CORRUPT,
    sqlite3.SQLITE_READONLY: ("store-read-only", "cannot be written", "Give yourself the right to write it."),
    sqlite3.SQLITE_CANTOPEN: ("store-unavailable", "cannot be opened", "Name a file in a folder that can be written."),
    sqlite3.SQLITE_TOOBIG: ("event-too-large", "does not take so large an event", "Save large content as an artifact."),
}


T = TypeVar("T")

_KNOWN = 4096  # sessions whose head is remembered


class SqliteEventLog:
    """Event log in a file. The file is opened or created on first use, or by `async with`. Close it after use.

    - `state_dir`: state folder of the person whose file it is; the default is the one that the environment names.
    - `prepare`: called before a file in the state folder is opened, to make and check its folder.
    - `answers_since`: a question or an answer of an earlier time does not count; "" means that all of them count, None
      that none does.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        busy_timeout_s: float = 10.0,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        state_dir: str | None = None,
        prepare: Callable[[], object] = lambda: None,
        answers_since: str | None = "",
    ) -> None:
        self.path: str = os.path.abspath(path)
        self.answers_since: str | None = answers_since
        self._state_dir = state_dir
        self._prepare = prepare
        self._busy_timeout_s = busy_timeout_s
        self._clock = clock
        self._thread = OneThread("prowess-log")
        self._heads: dict[SessionKey, ChainHead] = {}  # heads after our last writes; only a guess, always checked
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._closed = False

    async def lease(self, key: SessionKey, owner: str = "") -> Lease:
        return await self._ask(lambda connection: rows.take(connection, key, owner, self._now()))

    async def append(
        self, key: SessionKey, expected_seq: int, lease: Lease, events: Sequence[Envelope]
    ) -> Sequence[Envelope]:
        guess = self._heads.get(key)
        if events and guess is not None and guess.seq == expected_seq and lease.key == key:
            sealed = await self._append_after(guess, lease, events)
            if sealed is not None:
                return sealed
        sealed = await self._ask(
            lambda connection: rows.append(connection, key, expected_seq, lease, events, self._now())
        )
        if sealed:
            if len(self._heads) >= _KNOWN:
                self._heads.clear()
            last = sealed[-1]
            self._heads[key] = ChainHead(seq=last.seq or 0, hash=last.hash or "")
        return sealed

    async def _append_after(
        self, head: ChainHead, lease: Lease, events: Sequence[Envelope]
    ) -> Sequence[Envelope] | None:
        """Appends if the session still ends at this head. Returns None if it does not."""
        key = lease.key
        lines, hashes = link(key, head, events)
        last = hashes[-1]
        now = self._now()
        asked = self._ask(lambda connection: rows.add(connection, key, lease.token, head, lines, last, now))
        sealed = numbered(head, events, lines, hashes)  # while the thread writes
        if not await asked:
            return None
        self._heads[key] = ChainHead(seq=head.seq + len(lines), hash=last)
        return sealed

    async def read(self, key: SessionKey, *, after_seq: int = 0) -> AsyncIterator[Envelope]:
        async for line in self.lines(key, after_seq=after_seq):
            try:
                yield parse_event(json.loads(line))
            except (ValueError, RecursionError) as error:
                raise broken_record(key, f"has a line that is not an event: {error}") from error

    async def lines(self, key: SessionKey, *, after_seq: int = 0) -> AsyncIterator[str]:
        head = await self.head(key)
        end = head.seq
        seq = max(after_seq, 0)
        while seq < end:
            part = await self._ask(lambda connection, after=seq: rows.page(connection, key, after, end, self._now()))
            if not part:
                raise broken_record(key, f"has no event {seq + 1}, and {end} were recorded")
            for number, line in part:
                seq += 1
                if number != seq:
                    raise broken_record(key, f"has no event {seq}, and {end} were recorded")
                yield line

    async def head(self, key: SessionKey) -> ChainHead:
        _, seq, last = await self._ask(lambda connection: rows.get(connection, key, self._now()))
        return ChainHead(seq=seq, hash=last)

    async def sessions(
        self, tenant: str = "default", *, app: str | None = None, user: str | None = None, prefix: str = ""
    ) -> Sequence[SessionInfo]:
        return await self._ask(lambda connection: rows.infos(connection, tenant, app, user, prefix, self._now()))

    async def tenants(self) -> Sequence[str]:
        """Returns every tenant that has sessions."""
        return await self._ask(rows.tenants)

    async def orphans(self) -> Sequence[OrphanedEvents]:
        """Returns events left over after somebody edited or removed rows of sessions."""
        return await self._ask(rows.orphans)

    async def expire(self, key: SessionKey, at: str | None) -> None:
        wanted = parse_expiry(at)
        await self._ask(lambda connection: rows.expire(connection, key, wanted, self._now()))

    async def prune_expired(self) -> int:
        """Removes expired sessions of every tenant, and returns their number."""
        return await self._ask(lambda connection: rows.prune(connection, self._now()))

    async def delete(self, key: SessionKey) -> None:
        await self._ask(lambda connection: rows.delete(connection, key, self._now()))

    async def close(self) -> None:
        """Closes the log after the running work is finished."""
        if self._closed or self._thread.is_forked:
            return
        self._closed = True
        await self._thread.ask(self._close)
        self._thread.end()

    async def __aenter__(self) -> SqliteEventLog:
        await self._ask(lambda connection: None)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    # --- in the thread

    def _ask(self, work: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """Asks the thread to do the work with its connection."""
        if self._closed:
            raise StoreError(f"{self.path} is closed.", code="store-closed", hint="Open the log again.")
        if self._thread.is_forked:
            message = f"{self.path} was opened before this process was forked."
            raise StoreError(message, code="store-forked", hint="Open a log in each worker process, after the fork.")
        return self._thread.ask(lambda: self._work(work))

    def _now(self) -> str:
        return render_at(self._clock())

    def _work(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return self._run(work)
        except UnicodeEncodeError as error:
            what = f"{error.object!r} is not text."[:300]
            raise StoreError(what, code="session-key-invalid", hint="Use whole Unicode characters.") from error

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return work(self._connected())
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise store_error(error, self.path) from error

    def _connected(self) -> sqlite3.Connection:
        """Returns the connection, and opens it on first use. StoreError if the file was replaced."""
        if self._connection is None:
            self._connection = self._open()
            self._identity = _identity(self.path)
        elif self._identity != _identity(self.path):
            # SQLite would go on writing into the removed file.
            raise StoreError(
                f"{self.path} was removed or replaced while it was open.",
                code="store-gone",
                hint="Put it back, then start again.",
            )
        return self._connection

    def _open(self) -> sqlite3.Connection:
        own = self._make_sure_of_file()
        connection = sqlite3.connect(
            self.path, timeout=self._busy_timeout_s, isolation_level=None, check_same_thread=False
        )
        opened = False
        try:
            connection.execute("PRAGMA trusted_schema = OFF")
            if own is not None:
                _check_identity(connection, self.path, own)
                OwnStores(self._state_dir).note_place(own, self.path)
            self._use_wal(connection)
            connection.execute("PRAGMA synchronous = FULL")
            migrate(connection, self.path, self._now())
            opened = True
        finally:
            if not opened:
                connection.close()
        return connection

    def _make_sure_of_file(self) -> OwnStore | None:
        """Makes the file if it is missing. Returns its entry if it lies outside the state folder. StoreError if this
        home did not make it."""
        stores = OwnStores(self._state_dir)
        if stores.is_in_state(self.path):
            self._prepare()
            _make_private_file(self.path)
            return None
        if not os.path.lexists(self.path):
            _make_folder(self.path)
            stores.create(self.path, self._write_new)
        own = stores.find(self.path)
        # Our files use WAL from their first byte, so a rollback journal beside one is somebody else's, and SQLite would
        # obey it: it can name other files, which are then deleted.
        if own is None or os.path.lexists(f"{self.path}-journal"):
            raise store_foreign(self.path)
        return own

    def _write_new(self, path: str, id: str) -> None:
        _make_private_file(path)
        connection = sqlite3.connect(path, timeout=self._busy_timeout_s, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            migrate(connection, path, self._now())
            connection.execute("INSERT INTO identity VALUES (?)", (id,))
        finally:
            connection.close()  # the last connection writes the WAL into the file

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        """Switches to WAL. The switch needs exclusive access, and SQLite does not wait for it."""
        deadline = time.monotonic() + self._busy_timeout_s
        while connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                is_busy = store_error(error, self.path).code == "store-busy"
                if not is_busy or time.monotonic() > deadline:
                    raise
                time.sleep(0.005)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _check_identity(connection: sqlite3.Connection, path: str, own: OwnStore) -> None:
    """Compares the bits in the file. Path, device and inode fit already."""
    kinds = connection.execute("SELECT type FROM sqlite_master WHERE name = 'identity'").fetchall()
    if kinds != [("table",)] or connection.execute("SELECT id FROM identity").fetchall() != [(own.id,)]:
        raise store_foreign(path)


def _make_folder(path: str) -> None:
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    except OSError as error:
        raise _cannot_be_made(path, error) from error


def _make_private_file(path: str) -> None:
    """Creates the file, readable only by its owner. SQLite gives its other files the same rights."""
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        os.close(file)
    except FileExistsError:
        pass
    except OSError as error:
        raise _cannot_be_made(path, error) from error


def _cannot_be_made(path: str, error: OSError) -> StoreError:
    return StoreError(
        f"{path} cannot be made: {error.strerror}.",
        code="store-unavailable",
        hint="Make its folder writable, or set PROWESS_STATE_DIR, or name another file in the setting store.",
    )


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
