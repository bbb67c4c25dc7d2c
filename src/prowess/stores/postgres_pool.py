"""Connections to a PostgreSQL database. They are opened on demand, and a broken one is never used again.

Work may be repeated on a new connection: when a connection is lost at the end of a statement, nobody knows whether the
statement was executed. So all work here is safe to repeat. No message contains a password. Waiting happens in threads,
and a server that does not answer is given up.
"""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from prowess.errors import MissingExtra, StoreError

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")

_LOSSES = 3  # lost connections per piece of work; after that, the work itself may crash the server
_CLASHES = 5  # retries after serialization failures and deadlocks

# Settings of the database or the role that would change the meaning of a commit; `off` could lose commits.
_PREPARE = """SELECT set_config('statement_timeout', %s, false), set_config('lock_timeout', %s, false),
    set_config('idle_in_transaction_session_timeout', %s, false),
    set_config('default_transaction_isolation', 'read committed', false),
    set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') = 'off' THEN 'on'
        ELSE current_setting('synchronous_commit') END, false)"""


class PostgresPool:
    """Pool of connections. `prepare` is called with the first connection."""

    def __init__(
        self, url: str, *, timeout_s: float, retry_s: float, prepare: Callable[[psycopg.Connection[Any]], None]
    ) -> None:
        try:
            import psycopg
            from psycopg.conninfo import conninfo_to_dict
        except ImportError:
            raise MissingExtra("postgres", wanted_for="A session store in PostgreSQL") from None
        self._psycopg = psycopg
        try:
            given = conninfo_to_dict(url)
        except psycopg.Error:
            given = None
        if given is None:  # outside the handler, because libpq's error contains the whole URL
            raise StoreError(
                "The address of the PostgreSQL database cannot be read.",
                code="store-url-invalid",
                hint="Write postgresql://USER@HOST:PORT/DATABASE; write special characters as %XX.",
            )
        self._password = str(given.get("password") or "")
        self.place = _shown(given)
        connect_s = round(timeout_s / 3)
        self._params: dict[str, Any] = {
            "application_name": "prowess",
            "connect_timeout": max(2, connect_s),  # libpq's minimum is 2
            "keepalives_idle": 30,
            "keepalives_interval": 10,
            "keepalives_count": 3,
            "tcp_user_timeout": round(timeout_s * 1000),
            **given,
            "client_encoding": "UTF8",
        }
        self._timeout_s = timeout_s
        self._retry_s = retry_s
        self._prepare = prepare
        self._lock = threading.Lock()
        self._idle: list[psycopg.Connection[Any]] = []
        self._busy: dict[int, tuple[psycopg.Connection[Any], float]] = {}  # thread -> its connection, and since when
        self._first = threading.Lock()
        self._prepared = False

    def use(self, work: Callable[[psycopg.Connection[Any]], T]) -> T:
        """Does the work, on a new connection if needed. The first connection attempt is not retried, because nothing
        has started."""
        until: float | None = None
        losses = clashes = 0
        while True:
            connection = None
            try:
                connection = self._take()
                return work(connection)
            except self._psycopg.Error as error:
                if connection is not None and is_lost(connection):
                    losses += 1
                    until = until or time.monotonic() + self._retry_s
                    self.drop()  # the others are probably lost too
                elif connection is not None and error.sqlstate in ("40001", "40P01") and clashes < _CLASHES:
                    clashes += 1
                    continue
                elif connection is not None or until is None or _refusal(error):
                    raise self.store_error(error) from _without(error, self._password)
                if losses >= _LOSSES or time.monotonic() > until:
                    raise self._unreachable(error) from _without(error, self._password)
                time.sleep(0.05 * losses)
            except UnicodeEncodeError as error:
                raise StoreError(
                    f"{error.object!r} is not text."[:300],
                    code="session-key-invalid",
                    hint="Use whole Unicode characters.",
                ) from error
            finally:
                if connection is not None:
                    self._give_back(connection)

    def give_up_on_silence(self) -> None:
        """Closes connections that have been silent for too long. The server's own time-outs are shorter, so it will not
        answer. Called by a timer."""
        with self._lock:
            for connection, since in self._busy.values():
                if self._is_silent(since):
                    _hang_up(connection)

    def drop(self) -> None:
        """Closes idle connections. Work on other connections goes on to its end."""
        with self._lock:
            idle = self._idle
            self._idle = []
        for connection in idle:
            connection.close()

    def store_error(self, error: psycopg.Error) -> StoreError:
        """Turns a server error into a StoreError with a hint."""
        state = error.sqlstate or ""
        meaning = _MEANINGS.get(state) or _MEANINGS.get(state[:2]) or _refusal(error)
        if meaning is None:
            if not state and isinstance(error, self._psycopg.OperationalError):
                return self._unreachable(error)
            meaning = _OTHER
        code, what, hint = meaning
        said = self._said(error)
        return StoreError(f"{self.place} {what} ({said}).", code=code, hint=hint)

    def _unreachable(self, error: psycopg.Error) -> StoreError:
        said = self._said(error)
        hint = "Check that the server runs and that the address in the setting store is right, then try again."
        return StoreError(f"{self.place} cannot be reached ({said}).", code="store-unreachable", hint=hint)

    def _said(self, error: psycopg.Error) -> str:
        """Returns the server's message in one line, without the password."""
        words = str(error).split() or [type(error).__name__]
        text = " ".join(words)[:300]
        text = text.rstrip(". ")
        if self._password:
            text = text.replace(self._password, "***")
        return text

    def _take(self) -> psycopg.Connection[Any]:
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            return self._open()
        self._hold(connection)
        return connection

    def _hold(self, connection: psycopg.Connection[Any]) -> None:
        """Remembers the connection of this thread, and since when it waits."""
        with self._lock:
            self._busy[threading.get_ident()] = connection, time.monotonic()

    def _open(self) -> psycopg.Connection[Any]:
        connection = self._psycopg.connect(**self._params, autocommit=True)
        self._hold(connection)
        opened = False
        try:
            statement_ms = str(round(self._timeout_s * 1000))
            lock_ms = str(round(self._timeout_s * 500))
            connection.execute(_PREPARE, [statement_ms, lock_ms, statement_ms])
            with self._first:
                if not self._prepared:
                    self._prepare(connection)
                    self._prepared = True
            opened = True
        finally:
            if not opened:
                self._give_back(connection, usable=False)
        self._hold(connection)
        return connection

    def _give_back(self, connection: psycopg.Connection[Any], *, usable: bool = True) -> None:
        with self._lock:
            self._busy.pop(threading.get_ident(), None)
            is_idle = not is_lost(connection) and connection.info.transaction_status == 0
            if usable and is_idle:
                self._idle.append(connection)
                return
        connection.close()

    def _is_silent(self, since: float) -> bool:
        """True if the server has not answered for twice the time-out of a statement."""
        silence_s = time.monotonic() - since
        return silence_s > 2 * self._timeout_s


def is_lost(connection: psycopg.Connection[Any]) -> bool:
    """True if the connection cannot be used again."""
    return connection.closed or connection.broken


def _hang_up(connection: psycopg.Connection[Any]) -> None:
    """Shuts down the socket, so that the waiting thread gets an error."""
    try:
        fd = os.dup(connection.fileno())
        with socket.socket(fileno=fd) as line:
            line.shutdown(socket.SHUT_RDWR)
    except (OSError, ValueError):  # lost at this very moment
        pass


def _without(error: psycopg.Error, password: str) -> psycopg.Error | None:
    """Returns the cause for a traceback, or None if it contains the password."""
    if password and password in str(error):
        return None
    return error


def _refusal(error: psycopg.Error) -> tuple[str, str, str] | None:
    """Returns the meaning of an error that a retry cannot fix. A refused connection has no SQLSTATE, only a message."""
    if error.sqlstate is not None:
        return None
    said = str(error)
    for pattern, meaning in _REFUSALS:
        if re.search(pattern, said):
            return meaning
    return None


def _shown(given: dict[str, Any]) -> str:
    """Returns the address without its password."""
    place = given.get("host") or given.get("hostaddr") or ""
    if given.get("user"):
        place = f"{given['user']}@{place}"
    if given.get("port"):
        place += f":{given['port']}"
    database = given.get("dbname") or ""
    return f"postgresql://{place}/{database}"


_OTHER = ("store-error", "failed", "Look at the message and at the log of the server; nothing was written.")
_BUSY = ("store-busy", "is busy", "Try again in a moment; nothing was written.")
_FULL = ("store-full", "has no room", "Free some space on the server and try again; nothing is lost.")
_DENIED = ("store-denied", "refused", "Check user, password and rights in the setting store.")
_GONE = ("store-gone", "no longer has the tables of Prowess", "Restore them, or start again to create them.")
_AWAY = ("store-unreachable", "is shutting down or starting", "Try again in a moment.")
_TOO_LARGE = ("event-too-large", "does not take so large an event", "Save large content as an artifact.")
_CORRUPT = ("store-corrupt", "is damaged", "Restore it from a copy.")
_NO_DATABASE = ("store-unavailable", "does not exist", "Make it: createdb NAME; or name another one.")
_READ_ONLY = ("store-read-only", "cannot be written", "Name the server that takes writes.")
_NOT_TEXT = ("session-key-invalid", "does not take this text", "Use characters that the database can hold.")
_FOREIGN = ("store-not-prowess", "has other tables with the names that Prowess uses", "Name another database.")
_REFUSALS = (
    (r'database "[^"]*" does not exist', _NO_DATABASE),
    (r"authentication failed|no password supplied|role \"[^\"]*\" does not exist|no pg_hba.conf entry", _DENIED),
    (r"too many (clients|connections)|connection slots", _BUSY),
)
# By the SQLSTATE of the error, else by its first two characters.
_MEANINGS = {
    "08": ("store-unreachable", "cannot be reached", "Check that the server runs, then try again."),
    "22021": _NOT_TEXT,
    "22P05": _NOT_TEXT,
    "25006": _READ_ONLY,
    "28": _DENIED,
    "3D000": _NO_DATABASE,
    "40": _BUSY,
    "42501": _DENIED,
    "42P01": _GONE,
    "42P07": _FOREIGN,
    "42703": _FOREIGN,
    "53100": _FULL,
    "53": _BUSY,
    "54": _TOO_LARGE,
    "55P03": _BUSY,
    "57014": _BUSY,
    "57P": _AWAY,
    "57P01": _AWAY,
    "57P02": _AWAY,
    "57P03": _AWAY,
    "58030": _FULL,
    "XX001": _CORRUPT,
    "XX002": _CORRUPT,
}
