"""SQL statements of the PostgreSQL event log. Each is one statement or one transaction, and is safe to repeat."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from prowess.core.values import ChainHead, OrphanedEvents, SessionInfo, SessionKey
from prowess.records.chain import GENESIS
from prowess.stores.migrations import POSTGRES, POSTGRES_LINK, read_info, too_new

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]

_MIGRATING = 7305815021937  # number of the lock for migrations: arbitrary, but always the same
_PAGE, _PAGE_BYTES = 256, 4 << 20  # lines per page, and about how many bytes

_HAS_TABLES = "SELECT FROM pg_catalog.pg_class WHERE relname = 'prowess_migrations' AND pg_table_is_visible(oid)"
# An expiry that is not linked to the chain was edited into the row, and has no effect.
_LIVES = f"(expires_at IS NULL OR expires_at > %(now)s OR (expiry_link = {POSTGRES_LINK}) IS NOT TRUE)"
_ENDED = f"expires_at <= %(now)s AND expiry_link = {POSTGRES_LINK}"
_GET = f"""SELECT id, lease, seq, hash FROM prowess_sessions
    WHERE key_hash = %(key)s AND {_LIVES}"""
# Waits for a writer that holds the session now.
_WAIT = f"""SELECT id, lease, seq, hash FROM prowess_sessions
    WHERE key_hash = %(key)s AND {_LIVES} FOR UPDATE"""
_TAKE = """INSERT INTO prowess_sessions AS old
        (key_hash, tenant, app, "user", session, seq, hash, lease, owner, created_at, updated_at)
    VALUES (%(key)s, %(tenant)s, %(app)s, %(user)s, %(session)s, 0, %(genesis)s, nextval('prowess_leases'), %(owner)s,
        %(now)s, %(now)s)
    ON CONFLICT (key_hash) DO UPDATE SET lease = nextval('prowess_leases'), owner = excluded.owner
    RETURNING old.lease"""
# Checks and writes at once: nothing is inserted unless the session still ends where these lines start.
_ADD = f"""WITH held AS (
        UPDATE prowess_sessions SET seq = seq + %(count)s, hash = %(last)s, updated_at = %(now)s
        WHERE key_hash = %(key)s AND lease = %(lease)s AND seq = %(seq)s AND hash = %(hash)s
            AND {_LIVES}
        RETURNING id)
    INSERT INTO prowess_events (session, seq, line)
    SELECT held.id, %(seq)s + added.number, added.line
    FROM held, unnest(%(lines)s::text[]) WITH ORDINALITY AS added (line, number)"""
_LINE = "SELECT line FROM prowess_events WHERE session = %s AND seq = %s"
# PostgreSQL knows the length of a long line without reading it.
_PART = """SELECT seq, line FROM (
        SELECT seq, line, sum(octet_length(line)) OVER (ORDER BY seq) - octet_length(line) AS before
        FROM prowess_events WHERE session = %s AND seq > %s AND seq <= %s ORDER BY seq LIMIT %s) AS part
    WHERE before < %s ORDER BY seq"""
_LIST = f"""SELECT tenant, app, "user", session, seq, hash, created_at, updated_at,
        CASE WHEN expiry_link = {POSTGRES_LINK} THEN expires_at END FROM prowess_sessions
    WHERE tenant = %(tenant)s AND (%(app)s::text IS NULL OR app = %(app)s)
    AND (%(user)s::text IS NULL OR "user" = %(user)s) AND starts_with(session, %(prefix)s)
    AND {_LIVES}"""
# A missing row cannot name the owner of the events; their first line can.
_STRAY = """SELECT found.events, found.first, found.tenant, found.app, found."user", found.session,
        (SELECT line FROM prowess_events WHERE session = found.id AND seq = found.first)
    FROM (
        SELECT events.session AS id, count(*) AS events, min(events.seq) AS first,
            min(sessions.tenant) AS tenant, min(sessions.app) AS app, min(sessions."user") AS "user",
            min(sessions.session) AS session
        FROM prowess_events AS events LEFT JOIN prowess_sessions AS sessions ON sessions.id = events.session
        WHERE sessions.id IS NULL OR events.seq > sessions.seq OR events.seq < 1
        GROUP BY events.session) AS found
    ORDER BY found.id"""
_LINK = f"UPDATE prowess_sessions SET expiry_link = {POSTGRES_LINK} WHERE key_hash = %(key)s"
# A real expiry was written with its link, after an event that still exists.
_EDITED = f"""SELECT tenant, app, "user", session, expires_at FROM prowess_sessions
    WHERE (expires_at IS NOT NULL OR expiry_link IS NOT NULL) AND (
        (expiry_link = {POSTGRES_LINK}) IS NOT TRUE
        OR (expiry_after <> %(genesis)s AND NOT EXISTS (
            SELECT FROM prowess_events AS events WHERE events.session = prowess_sessions.id
                AND strpos(line, '"hash":"' || expiry_after || '"') > 0)))"""
_EXPIRE = f"""UPDATE prowess_sessions SET expires_at = %(at)s, expiry_after = hash
    WHERE key_hash = %(key)s AND {_LIVES}"""
_DELETE = f"""DELETE FROM prowess_sessions
    WHERE key_hash = %(key)s AND {_LIVES}"""
_BURY = f"DELETE FROM prowess_sessions WHERE key_hash = %(key)s AND {_ENDED}"
_PRUNE = f"DELETE FROM prowess_sessions WHERE {_ENDED}"


class Row(NamedTuple):
    id: int
    lease: int
    seq: int
    hash: str


def migrate(connection: Connection, place: str, now: str) -> None:
    """Brings the tables up to date in one transaction. If several processes start at once, one of them does it."""
    if _version(connection, place) == len(POSTGRES):
        return
    with connection.transaction():
        connection.execute("SET LOCAL statement_timeout = 0")
        connection.execute("SELECT pg_advisory_xact_lock(%s)", [_MIGRATING])
        done = _version(connection, place)
        if done == 0:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS prowess_migrations"
                " (number integer PRIMARY KEY, name text NOT NULL, applied_at text NOT NULL)"
            )
        for number, (name, statements) in enumerate(POSTGRES[done:], done + 1):
            for statement in statements:
                connection.execute(statement.encode())
            connection.execute("INSERT INTO prowess_migrations VALUES (%s, %s, %s)", [number, name, now])


def find(connection: Connection, key: SessionKey, now: str, *, wait: bool = False) -> Row | None:
    """Finds the row of a session that lives. With `wait`, after the writer that holds it now."""
    given = {"key": key_hash(key), "now": now}
    row = connection.execute(_WAIT if wait else _GET, given).fetchone()
    if row is None:
        return None
    return Row(*row)


def take(connection: Connection, key: SessionKey, owner: str, now: str) -> int:
    """Takes a new lease and returns its token. An expired session is deleted first, so that the session starts anew."""
    given = {"tenant": key.tenant, "app": key.app, "user": key.user, "session": key.session}
    given |= {"genesis": GENESIS.hash, "owner": owner.replace("\0", ""), "now": now}
    values = {"key": key_hash(key), **given}
    with connection.transaction():
        connection.execute(_BURY, values)
        row = connection.execute(_TAKE, values).fetchone()
    assert row is not None
    return row[0]


def add(
    connection: Connection, key: SessionKey, token: int, head: ChainHead, last: str, lines: list[str], now: str
) -> bool:
    """Writes all lines right after `head`, under this lease. Returns False if the head has changed or the lease is
    lost."""
    number = len(lines)
    given: dict[str, Any] = {"key": key_hash(key), "lease": token, "seq": head.seq, "hash": head.hash}
    given |= {"count": number, "last": last, "lines": lines, "now": now}
    added = connection.execute(_ADD, given)
    return added.rowcount == number


def find_line(connection: Connection, session: int, seq: int) -> str | None:
    row = connection.execute(_LINE, [session, seq]).fetchone()
    if row is None:
        return None
    return row[0]


def page(connection: Connection, session: int, after_seq: int, end: int) -> list[tuple[int, str]]:
    """Returns the next lines, at least one, and no more than a page."""
    given = [session, after_seq, end, _PAGE, _PAGE_BYTES]
    return connection.execute(_PART, given).fetchall()


def tenants(connection: Connection) -> Sequence[str]:
    found = connection.execute("SELECT DISTINCT tenant FROM prowess_sessions")
    return sorted(str(tenant) for (tenant,) in found)


def infos(
    connection: Connection, tenant: str, app: str | None, user: str | None, prefix: str, now: str
) -> Sequence[SessionInfo]:
    """Returns the sessions, sorted by their keys."""
    given = {"tenant": tenant, "app": app, "user": user, "prefix": prefix, "now": now}
    for text in given.values():
        if text and "\0" in text:
            return []  # no key contains NUL, and PostgreSQL refuses it
    found: list[SessionInfo] = []
    for row in connection.execute(_LIST, given):
        found.append(read_info(row))
    found.sort(key=lambda info: info.key)
    return found


def orphans(connection: Connection) -> list[OrphanedEvents]:
    """Returns events without a row, and expiries that were edited."""
    found: list[OrphanedEvents] = []
    for row in connection.execute(_STRAY):
        found.append(_orphan(*row))
    for tenant, app, user, session, at in connection.execute(_EDITED, {"genesis": GENESIS.hash}):
        edited = OrphanedEvents(tenant, session, expiry=str(at), app=app, user=user)
        found.append(edited)
    return found


def expire(connection: Connection, key: SessionKey, at: str | None, now: str) -> bool:
    """Sets the expiry of a session and its link. Returns False if there is no such session."""
    given = {"key": key_hash(key), "at": at, "now": now}
    with connection.transaction():
        changed = connection.execute(_EXPIRE, given)
        if changed.rowcount != 1:
            return False
        linked = connection.execute(_LINK, given)
        return linked.rowcount == 1


def delete(connection: Connection, key: SessionKey, now: str) -> bool:
    """Deletes a session with its events. Returns False if there is none."""
    given = {"key": key_hash(key), "now": now}
    deleted = connection.execute(_DELETE, given)
    return deleted.rowcount == 1


def prune(connection: Connection, now: str) -> int:
    """Deletes expired sessions of every tenant, and returns their number."""
    return connection.execute(_PRUNE, {"now": now}).rowcount


def key_hash(key: SessionKey) -> bytes:
    """Returns the sha256 of the key. No part contains a line break, so keys cannot collide."""
    text = f"{key.tenant}\n{key.app}\n{key.user}\n{key.session}"
    return sha256(text.encode()).digest()


def _orphan(events: int, first: int, *stored: str | None) -> OrphanedEvents:
    """`stored` is the key of the row, and the first line, which can name the key if the row is missing."""
    *key, line = stored
    orphaned = key[-1] is None
    if orphaned:
        try:
            told = json.loads(line or "")
        except (ValueError, RecursionError):
            told = None
        if not isinstance(told, dict):
            told = {}
        key = [*(told.get(part) or "default" for part in ("tenant", "app", "user")), told.get("session") or "?"]
    tenant, app, user, session = map(str, key)
    return OrphanedEvents(tenant, session, events, first, orphaned, app=app, user=user)


def _version(connection: Connection, place: str) -> int:
    # Not to_regclass(): it caches that a table is missing, and does not see one that was just created.
    if connection.execute(_HAS_TABLES).fetchone() is None:
        return 0
    done = connection.execute("SELECT coalesce(max(number), 0) FROM prowess_migrations").fetchone()
    number: int = done[0] if done else 0
    if number > len(POSTGRES):
        raise too_new(place, number, POSTGRES)
    return number
