"""A session database of somebody else is read from a checked copy, and nothing of it acts on this machine."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import dear
from guard import GUARD_S
from prowess.core.events import Envelope, NoteAppended
from prowess.core.values import Lease, SessionKey
from prowess.errors import StoreError
from prowess.records.audit import check_session, read_session
from prowess.records.sessions import all_sessions
from prowess.stores.foreign_copy import BOUNDS, ForeignBounds, connect
from prowess.stores.foreign_sqlite import ForeignCopy, ForeignLog, open_foreign
from prowess.stores.migrations import SQLITE
from prowess.stores.sqlite import SqliteEventLog, migrate

CORPUS = Path(__file__).parents[1] / "corpus"
KEY = SessionKey(session="s")
Texts = dict[str, list[str]]


@pytest.fixture
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the copies are made."""
    return tmp_path_factory.mktemp("copies")


@pytest.fixture
def db(tmp_path: Path) -> Path:
    path = tmp_path / "theirs" / "prowess.db"
    asyncio.run(write(path))
    return path


async def write(path: Path, *keys: SessionKey, state_dir: Path | None = None) -> None:
    log = SqliteEventLog(path, state_dir=None if state_dir is None else str(state_dir))
    try:
        for key in keys or (KEY, SessionKey(session="t", tenant="other")):
            lease = await log.lease(key)
            await log.append(key, 0, lease, [note(key, text) for text in ("a", "b", "c")])
    finally:
        await log.close()


def note(key: SessionKey, text: str) -> Envelope:
    return Envelope(
        at="2026-01-02T03:04:05.000006Z",
        tenant=key.tenant,
        app=key.app,
        user=key.user,
        session=key.session,
        run="r",
        event=NoteAppended(text=text),
    )


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


async def lines_of(log: SqliteEventLog) -> Texts:
    infos = await all_sessions(log)
    return {str(info.key): [line async for line in log.lines(info.key)] for info in infos}


def read(path: Path, copies: Path) -> Texts:
    """All lines, of sessions that are valid."""

    async def go() -> Texts:
        async with open_foreign(path, folder=str(copies)) as log:
            assert await log.orphans() == []
            for info in await all_sessions(log):
                assert check_session(await read_session(log, info.key)).valid
            return await lines_of(log)

    return asyncio.run(go())


def failure(path: Path, copies: Path, bounds: ForeignBounds = BOUNDS) -> StoreError:
    async def go() -> None:
        async with open_foreign(path, bounds=bounds, folder=str(copies)) as log:
            await lines_of(log)

    with pytest.raises(StoreError) as caught:
        asyncio.run(go())
    assert caught.value.hint and str(path) in caught.value.message
    assert list(copies.iterdir()) == []
    return caught.value


def as_own(path: Path, tmp_path: Path) -> Texts:
    """All lines as our own log reads them, from a copy of the folder."""

    async def go() -> Texts:
        log = SqliteEventLog(tmp_path / "own" / path.name, state_dir=str(tmp_path / "own"))
        try:
            return await lines_of(log)
        finally:
            await log.close()

    shutil.copytree(path.parent, tmp_path / "own")
    return asyncio.run(go())


@contextmanager
def untouched(folder: Path) -> Iterator[None]:
    def seen() -> dict[str, tuple[int, int, int]]:
        found = [folder, *folder.iterdir()]
        return {str(path): (path.lstat().st_ino, path.lstat().st_mtime_ns, path.lstat().st_mode) for path in found}

    before = seen()
    yield
    assert seen() == before


# --- what is read


@pytest.mark.parametrize("made_by", sorted(folder.name for folder in CORPUS.iterdir() if folder.is_dir()))
def test_a_record_of_each_release_is_read_whole(made_by: str, tmp_path: Path, copies: Path) -> None:
    path = CORPUS / made_by / "prowess.db"
    with untouched(path.parent):
        found = read(path, copies)
    assert len(found) == 7 and found == as_own(path, tmp_path)


@pytest.mark.parametrize("version", range(1, len(SQLITE) + 1))
def test_every_schema_that_was_ever_written_is_read(version: int, tmp_path: Path, copies: Path) -> None:
    path = tmp_path / "prowess.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate(connection, str(path), "then", SQLITE[:version])
    shutil.copy(path, tmp_path / "filled.db")
    asyncio.run(write(tmp_path / "filled.db", state_dir=tmp_path))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("ATTACH ? AS filled", (str(tmp_path / "filled.db"),))
        connection.execute("INSERT INTO events SELECT * FROM filled.events")
        known = ", ".join(row[1] for row in connection.execute("PRAGMA table_info(sessions)"))
        connection.execute(f"INSERT INTO sessions ({known}) SELECT {known} FROM filled.sessions")
    assert [len(lines) for lines in read(path, copies).values()] == [3, 3]


def test_what_only_its_wal_has_is_read_while_its_owner_has_it_open(db: Path, copies: Path) -> None:
    async def go() -> None:
        log = SqliteEventLog(db)
        key = SessionKey(session="late")
        await log.append(key, 0, await log.lease(key), [note(key, "in the -wal")])
        with untouched(db.parent):
            async with open_foreign(db, folder=str(copies)) as theirs:
                assert await lines_of(theirs) == await lines_of(log)
        await log.close()

    asyncio.run(go())


def test_nothing_is_left_of_a_copy_even_after_a_kill(db: Path, copies: Path) -> None:
    with ForeignCopy(db, folder=str(copies)) as copy:
        if os.name == "posix":
            assert list(copies.iterdir()) == []
        assert copy.run(lambda connection: connection.execute("SELECT count(*) FROM events").fetchone()) == (6,)
    assert list(copies.iterdir()) == []
    code = "import sys; from prowess.stores.foreign_sqlite import *; ForeignCopy(sys.argv[1]).__enter__()"
    env = {**os.environ, "TMPDIR": str(copies)}
    subprocess.run([sys.executable, "-c", code, str(db)], env=env, check=True, timeout=GUARD_S)
    assert list(copies.iterdir()) == [], "not closed, and removed at exit"


# --- what is never done


@pytest.mark.parametrize("write_to", ["lease", "append", "expire", "delete"])
def test_it_is_never_written(db: Path, copies: Path, write_to: str) -> None:
    attempts: dict[str, Callable[[ForeignLog], Awaitable[object]]] = {
        "lease": lambda log: log.lease(KEY),
        "append": lambda log: log.append(KEY, 3, Lease(key=KEY, token=1, owner=""), [note(KEY, "d")]),
        "expire": lambda log: log.expire(KEY, None),
        "delete": lambda log: log.delete(KEY),
    }

    async def go() -> None:
        async with open_foreign(db, folder=str(copies)) as log:
            with pytest.raises(StoreError) as caught:
                await attempts[write_to](log)
            assert caught.value.code == "store-foreign"
            assert f"prowess runs import {db}" in (caught.value.hint or "")
            assert await log.prune_expired() == 0

    with untouched(db.parent):
        asyncio.run(go())
        with pytest.raises(StoreError, match="readonly"), ForeignCopy(db, folder=str(copies)) as copy:
            copy.run(lambda connection: connection.execute("DELETE FROM events"))


def test_nothing_is_made_beside_it_even_where_nothing_could_be(db: Path, copies: Path) -> None:
    with untouched(db.parent):
        read(db, copies)
    db.chmod(0o400)
    db.parent.chmod(0o500)
    with untouched(db.parent):
        assert len(read(db, copies)) == 2
    db.parent.chmod(0o700)


def test_a_hot_journal_removes_no_file(db: Path, copies: Path, tmp_path: Path) -> None:
    """SQLite ends a transaction over several files by removing the file that their journals name."""
    precious = tmp_path / "precious"
    precious.write_text("mine")
    name = os.fsencode(precious)
    journal = bytearray(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + bytes(504))
    journal += b"\0\0\0\1" + name + len(name).to_bytes(4, "big") + sum(name).to_bytes(4, "big") + journal[:8]
    change(db, "PRAGMA journal_mode = DELETE")
    Path(f"{db}-journal").write_bytes(journal)
    with untouched(db.parent):
        assert failure(db, copies).code == "store-foreign-journal"
    assert precious.read_text() == "mine"


@pytest.mark.parametrize("suffix", ["", "-wal"])
@pytest.mark.parametrize("kind", ["link", "dangling", "pipe", "folder"])
def test_only_regular_files_are_opened(db: Path, copies: Path, suffix: str, kind: str) -> None:
    place = Path(f"{db}{suffix}")
    if not suffix:
        db.rename(db.parent / "other")
    if kind == "link":
        place.symlink_to(db.parent / "other")
    elif kind == "dangling":
        place.symlink_to("nowhere")
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        place.mkdir()
    assert failure(db, copies).code == "store-foreign-file"


@pytest.mark.parametrize("name", ["none.db", "none/none.db", "nu\0l.db", "prowess.db/more.db", "x" * 300])
def test_a_file_that_is_not_there_is_said_not_to_be(db: Path, copies: Path, name: str) -> None:
    assert failure(db.parent / name, copies).code == "store-unavailable"


def test_where_no_copy_can_be_made_it_is_said(db: Path, copies: Path) -> None:
    copies.rmdir()
    with pytest.raises(StoreError, match=r"A copy of .* cannot be made") as caught, ForeignCopy(db, folder=str(copies)):
        pass
    assert caught.value.code == "store-unavailable"


def test_a_record_that_is_refused_leaves_no_thread(db: Path, copies: Path) -> None:
    before = threading.enumerate()
    change(db, "CREATE TABLE more (a)")
    failure(db, copies)
    for thread in set(threading.enumerate()) - set(before):
        thread.join(GUARD_S)
        assert not thread.is_alive()


def test_a_file_that_changes_meanwhile_is_not_read(db: Path, copies: Path) -> None:
    with open(db, "r+b") as file:
        file.truncate(64 << 20)
    is_over = threading.Event()

    def touch() -> None:
        while not is_over.is_set():
            os.utime(db)

    thread = threading.Thread(target=touch)
    thread.start()
    try:
        assert failure(db, copies).code == "store-foreign-changing"
    finally:
        is_over.set()
        thread.join()


# --- its schema

_EDIT_SCHEMA = "PRAGMA writable_schema = ON"


@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE TRIGGER t AFTER INSERT ON events BEGIN UPDATE events SET line = prowess_sha256(line); END"],
        ["CREATE VIEW v AS SELECT prowess_sha256(line) FROM events"],
        ["ALTER TABLE sessions RENAME TO s", "CREATE VIEW sessions AS SELECT * FROM s"],
        ["CREATE TABLE more (a)"],
        ["CREATE INDEX i ON events (line)"],
        ["CREATE INDEX i ON events (lower(line))"],
        ["ALTER TABLE sessions ADD COLUMN more AS (upper(owner))"],
        ["ALTER TABLE sessions ADD COLUMN more TEXT DEFAULT 'x'"],
        ["DROP TABLE counters"],
        ["ANALYZE"],
        ["CREATE VIRTUAL TABLE v USING fts5(a)"],
        [_EDIT_SCHEMA, "UPDATE sqlite_master SET sql = replace(sql, 'line TEXT', 'line  TEXT')"],
        [_EDIT_SCHEMA, "UPDATE sqlite_master SET sql = CAST(sql AS BLOB) WHERE name = 'counters'"],
        [_EDIT_SCHEMA, "UPDATE sqlite_master SET type = NULL WHERE name = 'counters'"],
        ["DELETE FROM migrations WHERE number = 3"],
        [f"INSERT INTO migrations VALUES ({len(SQLITE) + 1}, 'of tomorrow', '')"],
        [f"CREATE TABLE t{number} (a)" for number in range(200)],
        ["PRAGMA page_size = 512", "PRAGMA journal_mode = DELETE", "VACUUM"],
    ],
    ids=lambda statements: statements[-1][:40],
)
@pytest.mark.parametrize("where", ["file", "wal"])
def test_a_schema_that_prowess_did_not_write_is_refused(
    db: Path, copies: Path, statements: list[str], where: str
) -> None:
    with ExitStack() as stack:
        if where == "wal":  # the change stays there, because somebody has the file open
            reader = stack.enter_context(closing(sqlite3.connect(db)))
            reader.execute("SELECT * FROM events").fetchone()
        if "VACUUM" in statements and where == "wal":
            return
        change(db, *statements)
        assert failure(db, copies).code in ("store-foreign-schema", "store-corrupt")


def test_another_encoding_is_refused(tmp_path: Path, copies: Path) -> None:
    path = tmp_path / "prowess.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA encoding = 'UTF-16'")
        migrate(connection, str(path), "")
    assert failure(path, copies).code == "store-foreign-schema"


def test_a_trigger_and_a_view_cannot_call_our_function(db: Path) -> None:
    """Should one ever get past the check of the schema."""
    change(db, "CREATE VIEW v AS SELECT prowess_sha256('x')")
    change(db, "CREATE TRIGGER t AFTER INSERT ON counters BEGIN SELECT prowess_sha256(new.name); END")
    called: list[str] = []
    with closing(connect(str(db), BOUNDS)) as connection:
        connection.create_function("prowess_sha256", 1, called.append, deterministic=True)
        for statement in ("SELECT * FROM v", "INSERT INTO counters VALUES ('x', 1)"):
            with pytest.raises(sqlite3.OperationalError, match="unsafe use"):
                connection.execute(statement).fetchall()
    assert called == []


# --- its values


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE sessions SET session = CAST(session AS BLOB)",
        "UPDATE sessions SET tenant = CAST(tenant AS BLOB)",
        "UPDATE sessions SET seq = 'many'",
        "UPDATE sessions SET hash = x'00'",
        "UPDATE sessions SET updated_at = x'00'",
        "UPDATE sessions SET expires_at = x'00'",
        "UPDATE sessions SET owner = printf('%.2000c', 'x')",
        "UPDATE events SET line = CAST(line AS BLOB)",
        "UPDATE sessions SET user = ' '",
        "UPDATE events SET user = x'00'",
        "UPDATE events SET seq = 'x' WHERE seq = 2",
    ],
)
def test_values_of_another_type_or_length_are_refused(db: Path, copies: Path, statement: str) -> None:
    change(db, statement)
    assert failure(db, copies).code == "store-foreign-rows"


def test_text_that_is_none_is_an_error(db: Path, copies: Path) -> None:
    change(db, "UPDATE sessions SET hash = CAST(x'ff' AS TEXT)")
    assert failure(db, copies).code == "store-corrupt"


@pytest.mark.parametrize(
    "bounds",
    [
        ForeignBounds(db_bytes=4096),
        ForeignBounds(wal_bytes=0),
        ForeignBounds(line_bytes=1 << 16),
        ForeignBounds(session_bytes=1 << 16),
        ForeignBounds(sessions=1),
        ForeignBounds(events=5),
    ],
    ids=["db", "wal", "line", "session", "sessions", "events"],
)
def test_more_than_real_use_needs_is_refused(db: Path, copies: Path, bounds: ForeignBounds) -> None:
    change(db, "UPDATE events SET line = printf('%.100000c', 'x') WHERE seq = 2")
    with closing(sqlite3.connect(db)) as reader:
        reader.execute("SELECT * FROM events").fetchone()
        change(db, "UPDATE counters SET value = 9")
        assert failure(db, copies, bounds).code == "store-foreign-large"


def test_sessions_beside_one_that_is_too_large_are_read(db: Path, copies: Path) -> None:
    change(db, "UPDATE events SET line = printf('%.100000c', 'x') WHERE seq = 2 AND session = 's'")

    async def go() -> None:
        async with open_foreign(db, bounds=ForeignBounds(line_bytes=1 << 16), folder=str(copies)) as log:
            ours, theirs = await all_sessions(log)
            assert len([line async for line in log.lines(theirs.key)]) == 3
            with pytest.raises(StoreError, match="Session 's' is not read whole") as caught:
                await read_session(log, ours.key)
            assert caught.value.code == "store-foreign-large"

    asyncio.run(go())


def test_a_copy_that_does_not_fit_is_not_begun(db: Path, copies: Path) -> None:
    assert failure(db, copies, ForeignBounds(spare_bytes=1 << 60)).code == "store-full"


def test_a_small_file_that_describes_endless_rows_is_refused(db: Path, copies: Path) -> None:
    """Fifteen pages, each of which names the next one 300 times: 300 to the power of 15 rows."""
    change(db, "PRAGMA journal_mode = DELETE")
    with closing(sqlite3.connect(db)) as connection:
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'events'").fetchone()
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
    content = bytearray(db.read_bytes())
    leaf = content[(root - 1) * 4096 : root * 4096]

    def fan(child: int) -> bytes:
        cells = [child.to_bytes(4, "big") + b"\1"] * 300
        start = 4096 - 5 * len(cells)
        head = bytes([5, 0, 0]) + len(cells).to_bytes(2, "big") + start.to_bytes(2, "big") + b"\0"
        pointers = b"".join((start + 5 * place).to_bytes(2, "big") for place in range(len(cells)))
        page = head + child.to_bytes(4, "big") + pointers
        return page + bytes(start - len(page)) + b"".join(cells)

    for child in range(pages + 2, pages + 16):
        content += fan(child)
    content += leaf
    content[(root - 1) * 4096 : root * 4096] = fan(pages + 1)
    content[28:32] = (pages + 15).to_bytes(4, "big")
    db.write_bytes(content)
    assert failure(db, copies).code == "store-corrupt"


# --- what ends a statement

_ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"


def test_ctrl_c_ends_a_statement(db: Path, copies: Path) -> None:
    begun = threading.Event()

    def interrupt() -> None:
        begun.wait(GUARD_S)
        os.kill(os.getpid(), signal.SIGINT)

    def endless(connection: sqlite3.Connection) -> None:
        begun.set()
        connection.execute(_ENDLESS)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt), ForeignCopy(db, folder=str(copies)) as copy:
        copy.run(endless)
    thread.join()


def test_closing_ends_a_statement(db: Path, copies: Path) -> None:
    class Watched(ForeignLog):
        async def endless(self) -> None:
            await self._ask(lambda connection: (begun.set(), connection.execute(_ENDLESS)))

    begun = threading.Event()

    async def go() -> None:
        log = Watched(db, bounds=BOUNDS, folder=str(copies))
        asked = asyncio.ensure_future(log.endless())
        await asyncio.to_thread(begun.wait, GUARD_S)
        await log.close()
        with pytest.raises(StoreError, match="closed"):
            await asked

    asyncio.run(go())


def test_a_statement_that_never_ends_is_ended(db: Path, copies: Path) -> None:
    bounds = ForeignBounds(steps=10_000_000)
    with pytest.raises(StoreError, match="steps") as caught, ForeignCopy(db, bounds=bounds) as copy:
        copy.run(lambda connection: connection.execute(_ENDLESS))
    assert caught.value.code == "store-foreign-large"


# --- damage


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: b"x",
        lambda content: content[:100],
        lambda content: content[:4096],
        lambda content: content[: len(content) // 2],
        lambda content: random.Random(0).randbytes(len(content)),
        lambda content: content[:100] + random.Random(0).randbytes(len(content) - 100),
        lambda content: b"SQLite format 2\0" + content[16:],
        lambda content: content[:16] + b"\0\3" + content[18:],
        lambda content: content[:18] + b"\3\3" + content[20:],
        lambda content: content.replace(b"tablecounters", b"table\xbc\xffunters"),
        lambda content: content[:28] + b"\xff\xff\xff\xfe" + content[32:],
    ],
)
def test_a_damaged_file_is_an_error(db: Path, copies: Path, damage: Callable[[bytes], bytes]) -> None:
    db.write_bytes(damage(db.read_bytes()))
    assert failure(db, copies).code in ("store-corrupt", "store-foreign-schema")


@pytest.fixture(scope="module")
def whole() -> Iterator[tuple[bytes, bytes, Texts]]:
    """A database and its -wal, and the lines in them."""
    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder, "prowess.db")
        asyncio.run(write(db))
        with closing(sqlite3.connect(db)) as reader:
            reader.execute("SELECT * FROM events").fetchone()
            asyncio.run(write(db, SessionKey(session="in the -wal")))
            wal = Path(f"{db}-wal").read_bytes()
            assert len(wal) > 4096
            content = db.read_bytes()
        yield content, wal, as_own(db, Path(folder, "work"))


@dear
@given(data=st.data())
def test_flipped_bytes_are_an_error_or_harmless(data: st.DataObject, whole: tuple[bytes, bytes, Texts]) -> None:
    """What can be read is what was written, or the check of a session finds it."""
    content, wal, _ = whole
    both = bytearray(content + wal)
    pages = st.integers(0, len(both) // 4096 - 1)
    nearby = st.one_of(st.integers(0, 127), st.integers(0, 4095))  # headers of pages are at their start
    for _ in range(data.draw(st.integers(1, 4))):
        both[data.draw(pages) * 4096 + data.draw(nearby)] = data.draw(st.integers(0, 255))
    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder, "prowess.db")
        db.write_bytes(both[: len(content)])
        Path(f"{db}-wal").write_bytes(both[len(content) :])

        async def go() -> None:
            async with open_foreign(db, folder=folder) as log:
                await log.orphans()
                for info in await all_sessions(log):
                    await read_session(log, info.key)

        try:
            asyncio.run(go())
        except StoreError as error:
            assert error.code.startswith("store-") or error.code == "session-key-invalid"
        assert sorted(os.listdir(folder)) == ["prowess.db", "prowess.db-wal"]
