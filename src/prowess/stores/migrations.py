"""Tables of the event log in SQLite and PostgreSQL, with version numbers since the first release.

A released migration is never changed. A new table or column is a new migration at the end of the list. There is no
downgrade: a store that a newer release has written is left unchanged.

A session's expiry is linked to its chain: `expiry_after` is the hash of the last event when the expiry was set, and
`expiry_link` is the sha256 of this hash, the time and the session's key. If the link does not fit, somebody edited the
row, and the session does not expire.
"""

from __future__ import annotations

from prowess.core.values import ChainHead, SessionInfo, SessionKey
from prowess.errors import StoreError

# Each migration is a name and its statements.
Migrations = tuple[tuple[str, tuple[str, ...]], ...]

SQLITE_SHA256 = "prowess_sha256"  # not built into SQLite; each connection registers it
_LINKED = ("tenant", "app", '"user"', "session", "expiry_after", "expires_at")  # none contains a line break
SQLITE_LINK = f"{SQLITE_SHA256}({' || char(10) || '.join(_LINKED)})"
POSTGRES_LINK = f"encode(sha256(convert_to({' || chr(10) || '.join(_LINKED)}, 'UTF8')), 'hex')"

# No STRICT and no RETURNING, because some systems still have SQLite 3.34.
SQLITE: Migrations = (
    (
        "sessions and events",
        (
            """CREATE TABLE sessions (
                tenant TEXT NOT NULL, app TEXT NOT NULL, user TEXT NOT NULL, session TEXT NOT NULL,
                seq INTEGER NOT NULL, hash TEXT NOT NULL,
                lease INTEGER NOT NULL, owner TEXT NOT NULL,
                created_at TEXT NOT NULL, updated_at TEXT NOT NULL,
                PRIMARY KEY (tenant, app, user, session))""",
            """CREATE TABLE events (
                tenant TEXT NOT NULL, app TEXT NOT NULL, user TEXT NOT NULL, session TEXT NOT NULL,
                seq INTEGER NOT NULL, line TEXT NOT NULL,
                PRIMARY KEY (tenant, app, user, session, seq))""",
            "CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL)",
            "INSERT INTO counters (name, value) VALUES ('lease', 0)",
        ),
    ),
    ("expiry", ("ALTER TABLE sessions ADD COLUMN expires_at TEXT",)),
    (
        "expiry linked to the chain",
        (
            "ALTER TABLE sessions ADD COLUMN expiry_after TEXT",
            "ALTER TABLE sessions ADD COLUMN expiry_link TEXT",
            "UPDATE sessions SET expiry_after = hash WHERE expires_at IS NOT NULL",
            f"UPDATE sessions SET expiry_link = {SQLITE_LINK} WHERE expires_at IS NOT NULL",
        ),
    ),
    ("identity", ("CREATE TABLE identity (id TEXT NOT NULL)",)),  # one row, in a file outside the state folder
)

# A key can be too long for an index, so a session is found by the sha256 of its key. Lines are stored as text, because
# jsonb would change them and so break the chain.
POSTGRES: Migrations = (
    (
        "sessions and events",
        (
            """CREATE TABLE prowess_sessions (
                id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                key_hash bytea NOT NULL UNIQUE,
                tenant text NOT NULL, app text NOT NULL, "user" text NOT NULL, session text NOT NULL,
                seq bigint NOT NULL, hash text NOT NULL,
                lease bigint NOT NULL, owner text NOT NULL,
                created_at text NOT NULL, updated_at text NOT NULL, expires_at text)""",
            "CREATE INDEX prowess_sessions_of_tenant ON prowess_sessions (tenant)",
            "CREATE INDEX prowess_sessions_expiry ON prowess_sessions (expires_at) WHERE expires_at IS NOT NULL",
            """CREATE TABLE prowess_events (
                session bigint NOT NULL REFERENCES prowess_sessions (id) ON DELETE CASCADE,
                seq bigint NOT NULL, line text NOT NULL,
                PRIMARY KEY (session, seq))""",
            "CREATE SEQUENCE prowess_leases",
        ),
    ),
    (
        "expiry linked to the chain",
        (
            "ALTER TABLE prowess_sessions ADD COLUMN expiry_after text, ADD COLUMN expiry_link text",
            "UPDATE prowess_sessions SET expiry_after = hash WHERE expires_at IS NOT NULL",
            f"UPDATE prowess_sessions SET expiry_link = {POSTGRES_LINK} WHERE expires_at IS NOT NULL",
        ),
    ),
)


def too_new(place: str, version: int, known: Migrations) -> StoreError:
    return StoreError(
        f"{place} was written by a newer release: it has version {version}, this one knows {len(known)}.",
        code="store-too-new",
        hint="Upgrade Prowess, or name another store.",
    )


def foreign(place: str) -> StoreError:
    return StoreError(
        f"{place} is the database of another program.",
        code="store-not-prowess",
        hint="Name another one for the record.",
    )


def read_info(row: tuple[str, str, str, str, int, str, str, str, str | None]) -> SessionInfo:
    """Reads a row of the sessions: owner, head, times, and an expiry that counts."""
    tenant, app, user, session, seq, last, created_at, updated_at, expires_at = row
    key = SessionKey(tenant=tenant, app=app, user=user, session=session)
    head = ChainHead(seq=seq, hash=last)
    return SessionInfo(key=key, head=head, created_at=created_at, updated_at=updated_at, expires_at=expires_at)
