"""A Prowess database in SQLite: brought up to date when it is opened; what its failures mean to a person."""

from __future__ import annotations

import os
import sqlite3
from hashlib import sha256

from prowess.errors import StoreError
from prowess.stores.migrations import SQLITE, SQLITE_SHA256, foreign, refuse_newer


def migrate(connection: sqlite3.Connection, path: str, now: str) -> None:
    """Bring the file up to date, in one transaction. A file that is newer than this release is left as it is. The
    connection gets the function that expiry is linked by."""
    connection.create_function(SQLITE_SHA256, 1, _sha256, deterministic=True)
    if _version(connection, path) == len(SQLITE):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        done = _version(connection, path)  # somebody else may have been faster
        if done == 0:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS migrations"
                " (number INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at TEXT NOT NULL)"
            )
        for number, (name, statements) in enumerate(SQLITE[done:], done + 1):
            for statement in statements:
                connection.execute(statement)
            connection.execute("INSERT INTO migrations VALUES (?, ?, ?)", (number, name, now))
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.rollback()


def _sha256(text: object) -> str | None:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest() if isinstance(text, str) else None


def store_error(error: sqlite3.Error, path: str) -> StoreError:
    """What SQLite said, as something a person can act on."""
    extended: int = getattr(error, "sqlite_errorcode", 0)
    code, what, hint = _MEANINGS.get(extended) or _MEANINGS.get(extended & 0xFF) or _OTHER
    if code == "store-unavailable" and os.path.isfile(path) and not os.access(path, os.W_OK):
        code, what, hint = _MEANINGS[sqlite3.SQLITE_READONLY]
    if code == "store-read-only" and (owner := _another_owner(path)) is not None:
        hint = (
            f"It belongs to user {owner}, as happens when Prowess is once started with sudo: "
            "have its folder given back to you (chown -R), or name another file with the setting store."
        )
    return StoreError(f"{path} {what} ({error}).", code=code, hint=hint)


def _another_owner(path: str) -> int | None:
    """Whose it is, if not ours."""
    try:
        owner = os.stat(path).st_uid
    except OSError:
        return None
    return owner if hasattr(os, "geteuid") and owner != os.geteuid() else None


def _version(connection: sqlite3.Connection, path: str) -> int:
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if tables and "migrations" not in tables:
        raise foreign(path)
    done = connection.execute("SELECT coalesce(max(number), 0) FROM migrations").fetchone()[0] if tables else 0
    refuse_newer(path, done, SQLITE)
    return done


_FULL = ("store-full", "could not be written", "Free some space, or raise the quota, and try again; nothing is lost.")
_CORRUPT = ("store-corrupt", "is damaged or no database", "Keep a copy of it, then restore it or move it away.")
_OTHER = ("store-error", "failed", "Look at the disk and at the message; nothing was written.")
_MEANINGS = {
    sqlite3.SQLITE_BUSY: ("store-busy", "is in use by somebody else", "Try again in a moment; nothing was written."),
    sqlite3.SQLITE_LOCKED: ("store-busy", "is in use by somebody else", "Try again in a moment; nothing was written."),
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_IOERR_WRITE: _FULL,  # what a quota or a limit of file size looks like to SQLite
    sqlite3.SQLITE_IOERR_SHMSIZE: _FULL,
    sqlite3.SQLITE_CORRUPT: _CORRUPT,
    sqlite3.SQLITE_NOTADB: _CORRUPT,
    sqlite3.SQLITE_READONLY: ("store-read-only", "cannot be written", "Give yourself the right to write it."),
    sqlite3.SQLITE_CANTOPEN: ("store-unavailable", "cannot be opened", "Name a file in a folder that can be written."),
    sqlite3.SQLITE_TOOBIG: ("event-too-large", "does not take so large an event", "Save large content as an artifact."),
}
