"""SQL statements of the SQLite event log. Each write is one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from prowess.core.events import Envelope
from prowess.core.values import ChainHead, Lease, OrphanedEvents, SessionInfo, SessionKey
from prowess.records.chain import GENESIS, broken_record, check_fence, seal, unknown_session
from prowess.stores.migrations import SQLITE_LINK, read_info

_PAGE, _PAGE_BYTES = 256, 4 << 20  # lines per page: large enough to be fast, small enough to let others in between

# An expiry that is not linked to the chain was edited into the row, and has no effect.
_LIVES = f"(expires_at IS NULL OR expires_at > ? OR (expiry_link = {SQLITE_LINK}) IS NOT TRUE)"
_GET = f"""SELECT lease, seq, hash FROM sessions
    WHERE tenant = ? AND app = ? AND user = ? AND session = ? AND {_LIVES}"""
# Checks and writes at once: no row changes unless the session still ends where these lines start.
_SET = f"""UPDATE sessions SET seq = ?, hash = ?, updated_at = ?
    WHERE tenant = ? AND app = ? AND user = ? AND session = ? AND lease = ? AND seq = ? AND hash = ?
    AND {_LIVES}"""
_ADD = "INSERT INTO events (tenant, app, user, session, seq, line) VALUES (?, ?, ?, ?, ?, ?)"
# Shared by all sessions, so that a new session never gets an old token.
_COUNT = "UPDATE counters SET value = value + 1 WHERE name = 'lease'"
_COUNTED = "SELECT value FROM counters WHERE name = 'lease'"
_TAKE = """INSERT INTO sessions (tenant, app, user, session, seq, hash, lease, owner, created_at, updated_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (tenant, app, user, session) DO UPDATE SET lease = excluded.lease, owner = excluded.owner"""
_PART = """SELECT seq, line FROM events WHERE tenant = ? AND app = ? AND user = ? AND session = ?
    AND seq > ? AND seq <= ? ORDER BY seq LIMIT ?"""
_LIST = f"""SELECT tenant, app, user, session, seq, hash, created_at, updated_at,
        CASE WHEN expiry_link = {SQLITE_LINK} THEN expires_at END FROM sessions
    WHERE tenant = ? AND (? IS NULL OR app = ?) AND (? IS NULL OR user = ?) AND substr(session, 1, ?) = ?
    AND typeof(app) = 'text' AND typeof(user) = 'text' AND {_LIVES}"""
_EXPIRE = f"""UPDATE sessions SET expires_at = ?, expiry_after = hash
    WHERE tenant = ? AND app = ? AND user = ? AND session = ? AND {_LIVES}"""
_LINK = f"UPDATE sessions SET expiry_link = {SQLITE_LINK} WHERE tenant = ? AND app = ? AND user = ? AND session = ?"
_EXPIRED = f"""SELECT tenant, app, user, session FROM sessions
    WHERE expires_at <= ? AND expiry_link = {SQLITE_LINK}"""
# A real expiry was written with its link, after an event that still exists.
_EDITED = f"""SELECT tenant, app, user, session, expires_at FROM sessions
    WHERE (expires_at IS NOT NULL OR expiry_link IS NOT NULL) AND ((expiry_link = {SQLITE_LINK}) IS NOT TRUE
        OR (expiry_after <> ? AND NOT EXISTS (
            SELECT 1 FROM events WHERE events.tenant = sessions.tenant AND events.app = sessions.app
                AND events.user = sessions.user AND events.session = sessions.session
                AND instr(line, '"hash":"' || expiry_after || '"') > 0)))"""
_STRAY = """SELECT tenant, app, user, session, count(*), min(events.seq), min(sessions.seq IS NULL)
    FROM events LEFT JOIN sessions USING (tenant, app, user, session)
    WHERE sessions.seq IS NULL OR events.seq > sessions.seq OR events.seq < 1
    GROUP BY events.tenant, events.app, events.user, events.session"""
# A value of another type is never equal to a text, so that no session has such a row.
_UNNAMED = """SELECT tenant, app, user, session FROM sessions WHERE typeof(tenant) <> 'text'
    OR typeof(app) <> 'text' OR typeof(user) <> 'text' OR typeof(session) <> 'text'"""
_HAS_ROW = "SELECT 1 FROM sessions WHERE tenant = ? AND app = ? AND user = ? AND session = ?"
_HAS_EVENTS = "SELECT count(*) FROM events WHERE tenant = ? AND app = ? AND user = ? AND session = ?"
_FORGET = (
    "DELETE FROM events WHERE tenant = ? AND app = ? AND user = ? AND session = ?",
    "DELETE FROM sessions WHERE tenant = ? AND app = ? AND user = ? AND session = ?",
)


def take(connection: sqlite3.Connection, key: SessionKey, owner: str, now: str) -> Lease:
    """Takes a new lease. An expired session is deleted first, so that the session starts anew."""
    columns = _columns(key)
    with _transaction(connection):
        row = connection.execute(_GET, (*columns, now)).fetchone()
        if row is None:
            left = _orphans(connection, columns)
            if left:  # these events may be the last evidence
                hint = "Restore the database from a copy, or use another session; see: prowess runs verify --all"
                raise broken_record(key, f"has {left} events, but no row in the table of sessions", hint)
            _forget(connection, columns)
        connection.execute(_COUNT)
        token: int = connection.execute(_COUNTED).fetchone()[0]
        fresh = (GENESIS.seq, GENESIS.hash, token, owner, now, now)
        connection.execute(_TAKE, (*columns, *fresh))
    return Lease(key=key, token=token, owner=owner)


def add(
    connection: sqlite3.Connection, key: SessionKey, token: int, head: ChainHead, lines: list[str], last: str, now: str
) -> bool:
    """Writes the lines right after `head`, under this lease. Returns False if the head has changed or the lease is
    lost."""
    with _transaction(connection):
        return _add(connection, key, token, head, lines, last, now)


def append(
    connection: sqlite3.Connection,
    key: SessionKey,
    expected_seq: int,
    lease: Lease,
    events: Sequence[Envelope],
    now: str,
) -> list[Envelope]:
    """Appends for a caller that does not know the head. SessionConflict says why an append is refused."""
    with _transaction(connection):
        token, seq, hash = get(connection, key, now)
        check_fence(key, lease, token, expected_seq, seq)
        head = ChainHead(seq=seq, hash=hash)
        sealed, lines = seal(key, head, events)
        if sealed:
            last = sealed[-1].hash or ""
            _add(connection, key, token, head, lines, last, now)
    return sealed


def get(connection: sqlite3.Connection, key: SessionKey, now: str) -> tuple[int, int, str]:
    """Returns (lease, seq, hash)."""
    row = connection.execute(_GET, (*_columns(key), now)).fetchone()
    if row is None:
        raise unknown_session(key)
    return row


def page(connection: sqlite3.Connection, key: SessionKey, after_seq: int, end: int, now: str) -> list[tuple[int, str]]:
    """Returns the next lines, at least one, and no more than a page."""
    found: list[tuple[int, str]] = []
    size = 0
    given = (*_columns(key), after_seq, end, _PAGE)
    for row in connection.execute(_PART, given):
        found.append(row)
        size += len(row[1])
        if size > _PAGE_BYTES:
            break
    if not found:
        get(connection, key, now)  # raises if the session was deleted meanwhile
    return found


def tenants(connection: sqlite3.Connection) -> Sequence[str]:
    found = connection.execute("SELECT DISTINCT tenant FROM sessions WHERE typeof(tenant) = 'text' ORDER BY tenant")
    return [tenant for (tenant,) in found]


def infos(
    connection: sqlite3.Connection, tenant: str, app: str | None, user: str | None, prefix: str, now: str
) -> Sequence[SessionInfo]:
    """Returns the sessions, sorted by their keys."""
    given = (tenant, app, app, user, user, len(prefix), prefix, now)
    found: list[SessionInfo] = []
    for row in connection.execute(_LIST, given):
        found.append(read_info(row))
    found.sort(key=lambda info: info.key)
    return found


def expire(connection: sqlite3.Connection, key: SessionKey, at: str | None, now: str) -> None:
    columns = _columns(key)
    with _transaction(connection):
        changed = connection.execute(_EXPIRE, (at, *columns, now))
        if changed.rowcount != 1:
            raise unknown_session(key)
        connection.execute(_LINK, columns)


def prune(connection: sqlite3.Connection, now: str) -> int:
    if connection.execute(_EXPIRED, (now,)).fetchone() is None:
        return 0  # without waiting for the write lock
    with _transaction(connection):
        expired = connection.execute(_EXPIRED, (now,)).fetchall()
        for columns in expired:
            _forget(connection, columns)
    return len(expired)


def delete(connection: sqlite3.Connection, key: SessionKey, now: str) -> None:
    """Deletes a session, including the events of one whose row is missing; otherwise its name could not be used
    again."""
    columns = _columns(key)
    with _transaction(connection):
        if not _orphans(connection, columns):
            get(connection, key, now)
        _forget(connection, columns)


def orphans(connection: sqlite3.Connection) -> list[OrphanedEvents]:
    """Returns events without a row, expiries that were edited, and rows with a key that is not text. Values can be of
    any type here."""
    found: list[OrphanedEvents] = []
    for *key, events, first, orphaned in connection.execute(_STRAY):
        if type(first) is not int:
            first = 0
        found.append(_stray(key)._replace(events=events, first=first, orphaned=bool(orphaned)))
    for *key, at in connection.execute(_EDITED, (GENESIS.hash,)):
        found.append(_stray(key)._replace(expiry=str(at)))
    for key in connection.execute(_UNNAMED):
        found.append(_stray(key)._replace(unnamed=True))
    return found


def _stray(key: Sequence[object]) -> OrphanedEvents:
    tenant, app, user, session = map(str, key)
    return OrphanedEvents(tenant, session, app=app, user=user)


def _orphans(connection: sqlite3.Connection, columns: tuple[str, ...]) -> int:
    """Returns the number of events of a session that has no row, not even an expired one."""
    if connection.execute(_HAS_ROW, columns).fetchone() is not None:
        return 0
    return connection.execute(_HAS_EVENTS, columns).fetchone()[0]


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Takes the write lock at the start, so that everything read stays true until the end."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.rollback()


def _add(
    connection: sqlite3.Connection, key: SessionKey, token: int, head: ChainHead, lines: list[str], last: str, now: str
) -> bool:
    columns = _columns(key)
    seq = head.seq + len(lines)
    given = (seq, last, now, *columns, token, head.seq, head.hash, now)
    changed = connection.execute(_SET, given)
    if changed.rowcount != 1:
        return False
    numbered = enumerate(lines, head.seq + 1)
    connection.executemany(_ADD, [(*columns, seq, line) for seq, line in numbered])
    return True


def _forget(connection: sqlite3.Connection, columns: tuple[str, ...]) -> None:
    """Deletes the events and the row of a session."""
    for statement in _FORGET:
        connection.execute(statement, columns)


def _columns(key: SessionKey) -> tuple[str, str, str, str]:
    return key.tenant, key.app, key.user, key.session
