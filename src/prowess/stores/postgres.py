"""Event log in PostgreSQL, shared by many machines. Of two writers to one session, only one gets each number.

An append is one statement that checks and writes: the lease must be the newest, and the session must end where these
events start. If the connection is lost before the answer, the log first looks whether its lines are stored, and writes
them only if not. The check in the statement prevents duplicates.

A few threads do the work, each with its own connection. So several event loops can share a log, and a cancelled caller
never leaves a statement half sent.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from prowess.core.events import Envelope, parse_event, render_at
from prowess.core.values import ChainHead, Lease, OrphanedEvents, SessionInfo, SessionKey
from prowess.errors import SessionConflict, StoreError
from prowess.records.chain import broken_record, check_fence, parse_expiry, seal, unknown_session
from prowess.stores import postgres_queries as rows
from prowess.stores.postgres_pool import PostgresPool, is_lost

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]

T = TypeVar("T")

_KNOWN = 4096  # sessions whose head is remembered


class PostgresEventLog:
    """Event log at a libpq URL: postgresql://user@host/database. It connects on first use. Close it after use.

    `timeout_s` is the time-out of one statement. `retry_s` is the time to retry after a lost connection.
    """

    def __init__(
        self,
        url: str,
        *,
        connections: int = 4,
        timeout_s: float = 30.0,
        retry_s: float = 5.0,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._clock = clock
        self._timeout_s = timeout_s
        self._link = PostgresPool(url, timeout_s=timeout_s, retry_s=retry_s, prepare=self._migrate)
        self.path: str = self._link.place  # without the password
        self._threads = ThreadPoolExecutor(connections, thread_name_prefix="prowess-log")
        self._heads: dict[SessionKey, ChainHead] = {}  # heads after our last writes; only a guess, always checked
        self._closed = False

    async def lease(self, key: SessionKey, owner: str = "") -> Lease:
        token = await self._do(lambda connection: rows.take(connection, key, owner, self._now()))
        return Lease(key=key, token=token, owner=owner)

    async def append(
        self, key: SessionKey, expected_seq: int, lease: Lease, events: Sequence[Envelope]
    ) -> Sequence[Envelope]:
        guess = self._heads.get(key)
        attempt = _Append(key, expected_seq, lease, events, guess, self._now)
        try:
            await self._do(attempt)
        except StoreError as error:
            self._heads.pop(key, None)
            is_settled = isinstance(error, SessionConflict) or error.code == "session-unknown"
            if attempt.unsure and not is_settled:
                raise _unconfirmed(key, error) from error
            raise
        sealed = attempt.sealed
        if sealed:
            if len(self._heads) >= _KNOWN:
                self._heads.clear()
            last = sealed[-1]
            self._heads[key] = ChainHead(seq=last.seq or 0, hash=last.hash or "")
        return sealed

    async def read(self, key: SessionKey, *, after_seq: int = 0) -> AsyncIterator[Envelope]:
        async for line in self.lines(key, after_seq=after_seq):
            try:
                yield parse_event(json.loads(line))
            except (ValueError, RecursionError) as error:
                raise broken_record(key, f"has a line that is not an event: {error}") from error

    async def lines(self, key: SessionKey, *, after_seq: int = 0) -> AsyncIterator[str]:
        """Yields the lines page by page. No connection or snapshot is held while the caller works with a line."""
        found = await self._do(lambda connection: self._get(connection, key))
        end = found.seq
        seq = max(after_seq, 0)
        while seq < end:
            part = await self._do(lambda connection, after=seq: rows.page(connection, found.id, after, end))
            if not part:
                await self.head(key)  # raises if the session was deleted meanwhile
                raise broken_record(key, f"has no event {seq + 1}, and {end} were recorded")
            for number, line in part:
                seq += 1
                if number != seq:
                    raise broken_record(key, f"has no event {seq}, and {end} were recorded")
                yield line

    async def head(self, key: SessionKey) -> ChainHead:
        found = await self._do(lambda connection: self._get(connection, key))
        return ChainHead(seq=found.seq, hash=found.hash)

    async def sessions(
        self, tenant: str = "default", *, app: str | None = None, user: str | None = None, prefix: str = ""
    ) -> Sequence[SessionInfo]:
        return await self._do(lambda connection: rows.infos(connection, tenant, app, user, prefix, self._now()))

    async def tenants(self) -> Sequence[str]:
        """Returns every tenant that has sessions."""
        return await self._do(rows.tenants)

    async def orphans(self) -> Sequence[OrphanedEvents]:
        """Returns events left over after somebody edited or removed rows of sessions, past the foreign key."""
        return await self._do(rows.orphans)

    async def expire(self, key: SessionKey, at: str | None) -> None:
        wanted = parse_expiry(at)
        known = await self._do(lambda connection: rows.expire(connection, key, wanted, self._now()))
        if not known:
            raise unknown_session(key)

    async def prune_expired(self) -> int:
        """Removes expired sessions of every tenant, and returns their number."""
        return await self._do(lambda connection: rows.prune(connection, self._now()))

    async def delete(self, key: SessionKey) -> None:
        self._heads.pop(key, None)
        tries = 0

        def work(connection: Connection) -> bool:
            nonlocal tries
            tries += 1
            is_deleted = rows.delete(connection, key, self._now())
            return is_deleted or tries > 1  # the first try may have worked

        if not await self._do(work):
            raise unknown_session(key)

    async def close(self) -> None:
        """Closes the log after the running work is finished."""
        if self._closed:
            return
        self._closed = True
        await asyncio.to_thread(self._threads.shutdown)
        self._link.drop()

    async def __aenter__(self) -> PostgresEventLog:
        await self._do(lambda connection: None)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def _do(self, work: Callable[[Connection], T]) -> T:
        """Does the work in a thread, and gives up on a server that is silent."""
        if self._closed:
            raise StoreError(f"{self.path} is closed.", code="store-closed", hint="Open the log again.")
        loop = asyncio.get_running_loop()
        done = loop.run_in_executor(self._threads, self._link.use, work)

        def look() -> None:
            nonlocal watch
            self._link.give_up_on_silence()
            watch = loop.call_later(self._timeout_s, look)

        watch = loop.call_later(self._timeout_s, look)
        try:
            return await done
        finally:
            watch.cancel()

    def _get(self, connection: Connection, key: SessionKey) -> rows.Row:
        found = rows.find(connection, key, self._now())
        if found is None:
            raise unknown_session(key)
        return found

    def _migrate(self, connection: Connection) -> None:
        rows.migrate(connection, self.path, self._now())

    def _now(self) -> str:
        return render_at(self._clock())


class _Append:
    """Append that survives lost connections. `unsure`: it was sent, but no answer came."""

    def __init__(
        self,
        key: SessionKey,
        expected_seq: int,
        lease: Lease,
        events: Sequence[Envelope],
        guess: ChainHead | None,
        now: Callable[[], str],
    ) -> None:
        self.sealed: list[Envelope] = []
        self.unsure = False
        self._key = key
        self._expected_seq = expected_seq
        self._lease = lease
        self._events = events
        self._now = now
        self._lines: list[str] = []
        self._guess: ChainHead | None = None
        if events and guess is not None and guess.seq == expected_seq and lease.key == key:
            self._guess = guess

    def __call__(self, connection: Connection) -> None:
        """Appends, unless an earlier call did. It is called again after a lost connection."""
        while not (self.unsure and self._is_there(connection)):
            head = self._guess or self._find_head(connection)
            self._guess = None
            if head is None:
                return
            self.sealed, self._lines = seal(self._key, head, self._events)
            if not self.sealed or self._write(connection, head):
                return

    def _find_head(self, connection: Connection) -> ChainHead | None:
        """Returns the head to append to, or None if the lines are already stored: a statement that seemed lost has
        succeeded."""
        found = rows.find(connection, self._key, self._now())
        if found is None:
            raise unknown_session(self._key)
        try:
            check_fence(self._key, self._lease, found.lease, self._expected_seq, found.seq)
        except SessionConflict:
            if self.unsure and self._is_there(connection):
                return None
            raise
        return ChainHead(seq=found.seq, hash=found.hash)

    def _write(self, connection: Connection, head: ChainHead) -> bool:
        """Returns True if the lines are stored now."""
        was_unsure = self.unsure
        self.unsure = True
        answered = False
        last = self.sealed[-1].hash or ""
        try:
            written = rows.add(connection, self._key, self._lease.token, head, last, self._lines, self._now())
            answered = True
        finally:
            if answered:
                self.unsure = False
            elif not is_lost(connection):
                self.unsure = was_unsure
        if written:
            return True
        return was_unsure and self._is_there(connection)

    def _is_there(self, connection: Connection) -> bool:
        """True if the last line of this append is stored."""
        found = rows.find(connection, self._key, self._now(), wait=True)
        if found is None:
            return False
        seq = self._expected_seq + len(self._lines)
        return rows.find_line(connection, found.id, seq) == self._lines[-1]


def _unconfirmed(key: SessionKey, error: StoreError) -> StoreError:
    what = f"It is not known whether the last events of session '{key.session}' were written: {error.message}"
    hint = "Read the session when the server is back: they are all there, or none is."
    return StoreError(what[:500], code="append-unconfirmed", hint=hint)
