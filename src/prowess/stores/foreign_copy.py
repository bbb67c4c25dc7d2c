"""Copies a foreign session database, and checks the copy before anything is read from it.

- A `-journal` makes SQLite change files that the journal names. It is refused; `-shm` is not copied.
- A trigger, a view or an index on an expression runs with our rights. The schema must be one that Prowess wrote, which
  is checked before a statement touches a table. SQLite parses a whole schema at once and cannot be stopped, so the
  schema must fit on the first page.
- A small file can describe trees of endless size. SQLite's integrity check refuses a page that is used twice.
- Types, counts and lengths are checked before values are read.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
import threading
from contextlib import ExitStack, closing, suppress
from functools import cache
from typing import BinaryIO, NamedTuple

from prowess._internal.files import NotRegular, open_regular
from prowess.core.values import SessionKey
from prowess.errors import StoreError
from prowess.stores.migrations import SQLITE
from prowess.stores.sqlite import migrate


class ForeignBounds(NamedTuple):
    """ForeignBounds of a foreign database. Real use stays far below them."""

    db_bytes: int = 8 << 30
    wal_bytes: int = 1 << 30
    spare_bytes: int = 256 << 20  # space that a copy leaves free
    line_bytes: int = 32 << 20
    session_bytes: int = 512 << 20  # lines of one session
    sessions: int = 50_000
    events: int = 10_000_000
    steps: int = 5_000_000_000  # of SQLite's virtual machine, for one request


BOUNDS = ForeignBounds()

_SUFFIXES = ("", "-wal", "-journal")
_ATTEMPTS, _BETWEEN_S = 5, 0.05
_CHUNK_BYTES = 1 << 20

# Of the file format: https://www.sqlite.org/fileformat.html
_HEADER_BYTES = 108  # of the file and of its first page
_WAL_HEADER, _FRAME_HEADER = 32, 24
_PAGE_SIZES = [1 << bits for bits in range(9, 17)]
_UTF_8 = (b"\0\0\0\0", b"\0\0\0\1")  # or not yet known
_LEAF = 0x0D
_MOST_ENTRIES = 16  # of a schema; ours has 7

_SHORT_BYTES = 1000  # a key has at most 200 characters
_SHORT = ("tenant", "app", "user", "session", "hash", "owner", "created_at", "updated_at")
_EXPIRY = ("expires_at", "expiry_after", "expiry_link")
_WRONG_SESSION = " OR ".join(
    f"typeof({column}) <> 'text' AND {column} IS NOT NULL OR length(CAST({column} AS BLOB)) > {_SHORT_BYTES}"
    for column in (*_SHORT, *_EXPIRY)
)
_WRONG_EVENT = " OR ".join(f"typeof({column}) <> 'text'" for column in ("tenant", "app", "user", "session", "line"))
_WRONG = {
    "sessions": f"SELECT 1 FROM sessions WHERE {_WRONG_SESSION} OR typeof(seq) <> 'integer' LIMIT 1",
    "events": f"SELECT 1 FROM events WHERE {_WRONG_EVENT} OR typeof(seq) <> 'integer' LIMIT 1",
}


def too_large(path: str, what: str) -> StoreError:
    return StoreError(
        f"{path} {what}. A record of somebody else is not read beyond that.",
        code="store-foreign-large",
        hint="Ask who wrote it for a smaller one, for example without its old sessions.",
    )


def damaged(path: str, why: str) -> StoreError:
    what = f"{path} is damaged or no database: {why}."
    return StoreError(what, code="store-corrupt", hint="Ask who wrote it for another copy.")


# --- the copy


def copy_database(path: str, copy: str, bounds: ForeignBounds, stopped: threading.Event) -> None:
    """Copies the file and its `-wal` as of one moment. StoreError if it changes meanwhile."""
    for _ in range(_ATTEMPTS):
        if _copy_once(path, copy, bounds, stopped):
            _check_first_pages(path, copy)
            return
        stopped.wait(_BETWEEN_S)
    raise StoreError(
        f"{path} changes while it is read.",
        code="store-foreign-changing",
        hint="End the program that writes it, then try again.",
    )


def _copy_once(path: str, copy: str, bounds: ForeignBounds, stopped: threading.Event) -> bool:
    """Returns False if something changed meanwhile."""
    before = [_state(path + suffix) for suffix in _SUFFIXES]
    if before[-1] is not None:
        raise StoreError(
            f"{path}-journal lies beside {path}. SQLite would write to the files that it names.",
            code="store-foreign-journal",
            hint="Ask who wrote it to open it once with their program, and to copy it again.",
        )
    with ExitStack() as stack:
        opened: list[_State | None] = []
        for suffix, most in (("", bounds.db_bytes), ("-wal", bounds.wal_bytes)):
            file = _opened(path + suffix)
            if file is not None:
                stack.enter_context(file)
                opened.append(_state_of(os.fstat(file.fileno())))
                _copy_file(file, path + suffix, copy + suffix, most, bounds.spare_bytes, stopped)
            elif not suffix:
                raise StoreError(f"{path} does not exist.", code="store-unavailable", hint="Name a file that exists.")
            else:
                opened.append(None)
    after = [_state(path + suffix) for suffix in _SUFFIXES]
    return before == [*opened, None] == after


def _opened(path: str) -> BinaryIO | None:
    try:
        return open(open_regular(path), "rb")
    except (FileNotFoundError, ValueError):  # no name has a NUL
        return None
    except NotRegular as error:
        raise StoreError(
            f"A record of somebody else is not read from {error}.",
            code="store-foreign-file",
            hint="Name the file itself, or a copy of it.",
        ) from error
    except OSError as error:  # a link that was swapped in, too
        raise StoreError(
            f"{path} cannot be opened: {error.strerror}.",
            code="store-unavailable",
            hint="Give yourself the right to read it, or name a copy.",
        ) from error


def _copy_file(
    file: BinaryIO, path: str, copy: str, most_bytes: int, spare_bytes: int, stopped: threading.Event
) -> None:
    size = os.fstat(file.fileno()).st_size
    if size > most_bytes:
        raise too_large(path, f"has {size} bytes, and at most {most_bytes} are read")
    free = shutil.disk_usage(os.path.dirname(copy)).free
    if size + spare_bytes > free:
        raise StoreError(
            f"{os.path.dirname(copy)} has no room for a copy of {path}: {size} bytes, and {free} are free.",
            code="store-full",
            hint="Free some space, or set TMPDIR to a folder with more.",
        )
    with open(copy, "wb") as written:
        while size > 0 and not stopped.is_set():
            chunk = file.read(min(size, _CHUNK_BYTES))
            if not chunk:
                return  # it was cut meanwhile, which the caller notices
            written.write(chunk)
            size -= len(chunk)


_State = tuple[int, int, int, int]


def _state(path: str) -> _State | None:
    try:
        return _state_of(os.stat(path, follow_symlinks=False))
    except (OSError, ValueError):
        return None


def _state_of(status: os.stat_result) -> _State:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _check_first_pages(path: str, copy: str) -> None:
    """Checks that the schema fits on the first page, in the file and wherever the WAL has this page."""
    with open(copy, "rb") as file:
        header = file.read(_HEADER_BYTES)
        page_bytes = int.from_bytes(header[16:18], "big")
        if page_bytes == 1:
            page_bytes = 65536
        _check_first_page(path, header, page_bytes)
    with suppress(FileNotFoundError), open(copy + "-wal", "rb") as wal:
        start = wal.read(_WAL_HEADER)
        if len(start) == _WAL_HEADER and int.from_bytes(start[8:12], "big") != page_bytes:
            raise damaged(path, "its -wal has pages of another size")
        place = _WAL_HEADER
        while wal.seek(place) and (frame := wal.read(_FRAME_HEADER + _HEADER_BYTES)):
            if int.from_bytes(frame[:4], "big") == 1:
                _check_first_page(path, frame[_FRAME_HEADER:], page_bytes)
            place += _FRAME_HEADER + page_bytes


def _check_first_page(path: str, page: bytes, page_bytes: int) -> None:
    if len(page) < _HEADER_BYTES or not page.startswith(b"SQLite format 3\0"):
        raise damaged(path, "it does not begin as one")
    if page[16:18] != (page_bytes & 0xFFFF or 1).to_bytes(2, "big") or page_bytes not in _PAGE_SIZES:
        raise damaged(path, "its pages have no size that is possible")
    encoding, kind, entries = page[56:60], page[100], int.from_bytes(page[103:105], "big")
    if encoding not in _UTF_8 or kind != _LEAF or entries > _MOST_ENTRIES:
        raise _other_schema(path)


# --- the database


def connect(copy: str, bounds: ForeignBounds) -> sqlite3.Connection:
    """Opens the copy, and sets what must hold before the first statement reads it."""
    connection = sqlite3.connect(copy, isolation_level=None, check_same_thread=False)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, bounds.line_bytes)
    connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, 1 << 14)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    if sys.version_info >= (3, 12):
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)
    for setting in ("trusted_schema = OFF", "cell_size_check = ON", "synchronous = OFF", "temp_store = MEMORY"):
        connection.execute(f"PRAGMA {setting}")
    return connection


def check_database(connection: sqlite3.Connection, path: str, bounds: ForeignBounds = BOUNDS) -> None:
    """Checks the schema and the structure, brings the database up to date, and checks the types, counts and lengths of
    its values. `path` is for the errors."""
    schema = _schema(connection)
    if schema not in _ours():
        raise _other_schema(path)
    version = _ours().index(schema) + 1
    numbers = connection.execute("SELECT number FROM migrations ORDER BY number LIMIT ?", (version + 1,)).fetchall()
    if numbers != [(number,) for number in range(1, version + 1)]:
        raise _other_schema(path)
    (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if found != "ok":
        raise damaged(path, found[:200])
    migrate(connection, path, "")
    for table, most in (("sessions", bounds.sessions), ("events", bounds.events)):
        # Not count(*) of the table, which is one step that a progress handler does not end.
        counted = f"SELECT count(*) FROM (SELECT 1 FROM {table} LIMIT ?)"
        (rows,) = connection.execute(counted, (most + 1,)).fetchone()
        if rows > most:
            raise too_large(path, f"has more than {most} {table}")
        if connection.execute(_WRONG[table]).fetchone() is not None:
            raise _wrong_row(path, f"a row of {table} has values of other types or lengths.")
    for tenant, app, user, session in connection.execute("SELECT tenant, app, user, session FROM sessions"):
        try:
            SessionKey(tenant=tenant, app=app, user=user, session=session)
        except StoreError as error:
            raise _wrong_row(path, error.message) from error


def _wrong_row(path: str, why: str) -> StoreError:
    return StoreError(
        f"{path} has values that Prowess does not write: {why}",
        code="store-foreign-rows",
        hint="Somebody edited it. Ask who wrote it for another copy.",
    )


def _other_schema(path: str) -> StoreError:
    return StoreError(
        f"{path} is not a record as this or an earlier release of Prowess makes it: its tables are others.",
        code="store-foreign-schema",
        hint="A newer release can read what it wrote. Nothing else is read, because a database can contain commands.",
    )


def _schema(connection: sqlite3.Connection) -> list[tuple[object, ...]]:
    entries = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall()
    return sorted(entries, key=repr)


@cache
def _ours() -> list[list[tuple[object, ...]]]:
    """Schema of each version."""
    found: list[list[tuple[object, ...]]] = []
    for version in range(1, len(SQLITE) + 1):
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
            migrate(connection, ":memory:", "", SQLITE[:version])
            found.append(_schema(connection))
    return found
