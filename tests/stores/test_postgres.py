"""PostgreSQL ends connections, restarts, fills up, refuses: no event is lost, none is there twice, and it is said why.

That its log keeps the promises that every log makes is in test_event_log.py.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from test_event_log import KEY, check_whole, note, notes, texts

from postgres_server import Server, running_server
from prowess.core.values import OrphanedEvents, SessionKey
from prowess.errors import MissingExtra, SessionConflict, StoreError
from prowess.stores import postgres_queries as rows
from prowess.stores.migrations import POSTGRES
from prowess.stores.postgres import PostgresEventLog
from prowess.stores.postgres_pool import PostgresPool


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.fixture
def url(server: Server) -> str:
    return server.url()


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[PostgresEventLog]:
    log = PostgresEventLog(url, **options)
    try:
        yield log
    finally:
        await log.close()


def name_of(url: str) -> str:
    return url.partition("@/")[2].partition("?")[0]


def failure(url: str, attempt: Callable[[PostgresEventLog], Awaitable[Any]], **options: Any) -> StoreError:
    async def go() -> None:
        async with opened(url, **options) as log:
            await attempt(log)

    with pytest.raises(StoreError) as caught:
        asyncio.run(go())
    assert caught.value.hint
    return caught.value


def end_all(server: Server, url: str) -> int:
    """End every process of the server that works for somebody in that database."""
    ended = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name_of(url)}'"
    return len(server.do(ended))


# --- two writers

CHILD = """
import asyncio, sys
sys.path[:0] = {tests!r}
from test_postgres import *
from dataclasses import replace

async def main():
    url, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    async with opened(url, retry_s=30) as log:
        lease = await log.lease(KEY, name)
        print("ready", flush=True)
        {body}

asyncio.run(main())
"""
RACE = """
        lease = replace(lease, token=int(sys.stdin.readline()))  # all have the last: only the number keeps them apart
        won = 0

        async def write(n):
            nonlocal won
            while (seq := (await log.head(KEY)).seq) < count:
                try:
                    await log.append(KEY, seq, lease, notes(name, name))
                    won += 1
                except SessionConflict as error:
                    assert error.code == "session-conflict", error

        await asyncio.gather(*(write(n) for n in range(3)))
        print(won, flush=True)
"""
APPEND = """
        sys.stdin.readline()
        seq = (await log.head(KEY)).seq
        for n in range(count):
            await log.append(KEY, seq, lease, notes(*(f"{n} {part}" for part in range(3))))
            seq += 3
            print(seq, flush=True)
"""


def child(body: str, *args: object) -> subprocess.Popen[str]:
    code = CHILD.format(tests=[str(folder) for folder in Path(__file__).parents[:2]], body=body.strip())
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, args)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def stored(url: str) -> list[str]:
    async def go() -> list[str]:
        async with opened(url) as log:
            await check_whole(log)
            return await texts(log)

    return asyncio.run(go())


def test_of_many_writers_in_many_processes_one_is_first_at_every_number(server: Server, url: str) -> None:
    """They also open a new database at once, and each is ready only when its tables are there."""
    names = ("a", "b", "c", "d")
    processes = [child(RACE, url, name, 200) for name in names]
    for process in processes:
        assert process.stdout and process.stdout.readline() == "ready\n"
    token = server.do("SELECT lease FROM prowess_sessions", name=name_of(url))[0][0]
    won = {}
    for process in processes:
        assert process.stdin
        process.stdin.write(f"{token}\n")
        process.stdin.flush()
    for name, process in zip(names, processes, strict=True):
        won[name] = int(process.communicate()[0])
        assert process.returncode == 0
    kept = stored(url)
    assert {name: kept.count(name) for name in names} == {name: 2 * count for name, count in won.items()}
    assert kept[::2] == kept[1::2], "what was appended at once is not mixed"
    assert server.do("SELECT number FROM prowess_migrations", name=name_of(url)) == [(1,), (2,)]


def test_a_writer_that_was_killed_leaves_all_it_was_told_was_written(url: str) -> None:
    acknowledged = 0
    for _ in range(4):
        process = child(APPEND, url, "child", 1000)
        assert process.stdin and process.stdout and process.stdout.readline() == "ready\n"
        process.stdin.write("go\n")
        process.stdin.flush()
        for _ in range(5):
            acknowledged = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read() + process.communicate()[0]  # which alone forgets what was read ahead
        for line in rest.splitlines():
            acknowledged = int(line)
        kept = stored(url)
        assert len(kept) in (acknowledged, acknowledged + 3)
        acknowledged = len(kept)


# --- a connection that is lost


def test_a_connection_that_was_ended_in_between_is_not_noticed(server: Server, url: str) -> None:
    async def go() -> None:
        async with opened(url) as log:
            lease = await log.lease(KEY)
            for seq in range(4):
                assert await asyncio.to_thread(end_all, server, url) >= 1
                await log.append(KEY, seq, lease, notes(str(seq)))
            assert await asyncio.to_thread(end_all, server, url) >= 1
            assert await texts(log) == ["0", "1", "2", "3"]
            assert await asyncio.to_thread(end_all, server, url) >= 1
            await log.delete(KEY)
            assert await log.sessions() == []

    asyncio.run(go())


def test_connections_that_are_ended_all_the_time_lose_and_repeat_nothing(server: Server, url: str) -> None:
    over = threading.Event()
    ended = 0

    def rage() -> None:
        nonlocal ended
        while not over.wait(0.01):
            ended += end_all(server, url)

    async def go() -> None:
        async with opened(url, retry_s=30) as log:
            lease = await log.lease(KEY)
            thread = threading.Thread(target=rage)
            thread.start()
            seq = unsure = 0
            try:
                while seq < 300 or (ended <= 5 and seq < 30_000):  # one may be faster than the other
                    try:
                        await log.append(KEY, seq, lease, notes(f"{seq}", f"{seq + 1}"))
                        seq += 2
                    except StoreError as error:  # ended three times in one append: then it says what it knows
                        assert error.code in ("append-unconfirmed", "store-unreachable"), error
                        unsure += 1
                        seq = await find_seq(log)
            finally:
                over.set()
                await asyncio.to_thread(thread.join)
            assert ended > 5
            await check_whole(log)
            assert await texts(log) == [str(n) for n in range(seq)]

    async def find_seq(log: PostgresEventLog) -> int:
        while True:
            try:
                return (await log.head(KEY)).seq
            except StoreError as error:
                assert error.code == "store-unreachable"

    asyncio.run(go())


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["fast", "immediate"])
def test_a_restart_is_survived(server: Server, url: str, how: signal.Signals) -> None:
    async def go() -> None:
        async with opened(url, retry_s=60) as log:
            lease = await log.lease(KEY)
            await log.append(KEY, 0, lease, notes("before"))
            await asyncio.to_thread(server.stop, how)
            waiting = asyncio.ensure_future(log.append(KEY, 1, lease, notes("during")))
            await asyncio.to_thread(server.start)
            await waiting
            await log.append(KEY, 2, lease, notes("after"))
            assert await texts(log) == ["before", "during", "after"]
            await check_whole(log)

    asyncio.run(go())


def test_a_server_that_stays_away_is_said_to_be(server: Server, url: str) -> None:
    async def go() -> None:
        async with opened(url, retry_s=0.1) as log:
            lease = await log.lease(KEY)
            await log.append(KEY, 0, lease, notes("a"))
            await asyncio.to_thread(server.stop)
            try:
                for code in ("append-unconfirmed", "store-unreachable"):
                    with pytest.raises(StoreError) as caught:
                        await log.append(KEY, 1, lease, notes("b"))
                    assert caught.value.code == code and caught.value.hint, caught.value
                with pytest.raises(StoreError) as caught:
                    await log.head(KEY)
                assert caught.value.code == "store-unreachable" and name_of(url) in caught.value.message
            finally:
                await asyncio.to_thread(server.start)
            assert (await log.head(KEY)).seq == 1
            await log.append(KEY, 1, lease, notes("c"))
            assert await texts(log) == ["a", "c"]

    asyncio.run(go())


class Proxy:
    """Stands between a log and the server, and cuts the line at the moment that it was told.

    `swallow`: the next statement that has this in it reaches the server, its answer does not come back. `drop`: it does
    not even reach the server. `silent`: nothing comes back, and the line stays open.
    """

    def __init__(self, server: Server, folder: str) -> None:
        self.folder = folder
        self._server = f"{server.folder}/.s.PGSQL.5432"
        self.swallow: bytes | None = None
        self.drop: bytes | None = None
        self.silent: bytes | None = None
        self.cut = 0
        self.when_cut: Callable[[], None] = lambda: None
        self._threads: list[threading.Thread] = []
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(f"{folder}/.s.PGSQL.5432")
        self._listening.listen()
        self._start(self._accept)

    def _start(self, run: Callable[..., None], *args: Any) -> None:
        self._threads.append(threading.Thread(target=run, args=args, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server:
            server.connect(self._server)
            muted, answered = threading.Event(), threading.Event()
            self._start(self._back, server, client, muted, answered)
            while data := _received(client):
                if self.drop and self.drop in data:
                    self.drop, self.cut = None, self.cut + 1
                    self.when_cut()
                    break
                if self.silent and self.silent in data:
                    self.silent, self.cut = None, self.cut + 1
                    continue
                if self.swallow and self.swallow in data:
                    self.swallow, self.cut = None, self.cut + 1
                    muted.set()
                    server.sendall(data)
                    answered.wait()
                    self.when_cut()
                    break
                server.sendall(data)
            for end in (client, server):
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def _back(
        self, server: socket.socket, client: socket.socket, muted: threading.Event, answered: threading.Event
    ) -> None:
        while data := _received(server):
            if muted.is_set():  # the statement was done, and nobody is told
                answered.set()
                continue
            try:
                client.sendall(data)
            except OSError:
                return

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in self._threads:
            thread.join(5)
            assert not thread.is_alive()


def _received(end: socket.socket) -> bytes:
    try:
        return end.recv(1 << 16)
    except OSError:
        return b""


@pytest.fixture
def proxy(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    import tempfile

    with tempfile.TemporaryDirectory(prefix="prowess-px-") as folder:
        proxy = Proxy(server, folder)
        yield proxy
        proxy.close()


@pytest.mark.parametrize("what", ["swallow", "drop"])
def test_an_append_whose_answer_was_lost_is_there_once(server: Server, url: str, proxy: Proxy, what: str) -> None:
    async def go() -> None:
        async with opened(server.url_of(name_of(url), host=proxy.folder)) as log:
            lease = await log.lease(KEY)
            await log.append(KEY, 0, lease, notes("a"))
            for seq in range(1, 9, 2):  # the statement is a prepared one at last, and has another form then
                setattr(proxy, what, f"mark {seq}".encode())
                sealed = await log.append(KEY, seq, lease, notes(f"mark {seq}", f"{seq + 1}"))
                assert [each.seq for each in sealed] == [seq + 1, seq + 2]
                assert getattr(proxy, what) is None, "the line was not cut"
            await check_whole(log)
            assert await texts(log) == ["a", "mark 1", "2", "mark 3", "4", "mark 5", "6", "mark 7", "8"]

    asyncio.run(go())
    assert proxy.cut == 4


@pytest.mark.parametrize("what", ["swallow", "drop"])
def test_who_lost_the_line_and_then_the_session_knows_what_was_written(
    server: Server, url: str, proxy: Proxy, what: str
) -> None:
    """The answer is lost, and before the log can look, somebody else takes over."""

    async def go() -> None:
        async with opened(url) as other, opened(server.url_of(name_of(url), host=proxy.folder)) as log:
            lease = await log.lease(KEY)
            proxy.when_cut = lambda: asyncio.run(take_over())
            setattr(proxy, what, b"mark")
            if what == "swallow":
                assert [each.seq for each in await log.append(KEY, 0, lease, notes("mark"))] == [1]
                assert await texts(other) == ["mark", "theirs"]
            else:
                with pytest.raises(SessionConflict) as caught:
                    await log.append(KEY, 0, lease, notes("mark"))
                assert caught.value.code == "lease-lost"
                assert await texts(other) == ["theirs"]

    async def take_over() -> None:
        async with opened(url) as third:
            lease = await third.lease(KEY)
            await third.append(KEY, (await third.head(KEY)).seq, lease, notes("theirs"))

    asyncio.run(go())
    assert proxy.cut == 1


def test_a_server_that_says_nothing_is_given_up(server: Server, url: str, proxy: Proxy) -> None:
    async def go() -> None:
        async with opened(server.url_of(name_of(url), host=proxy.folder), timeout_s=0.2) as log:
            lease = await log.lease(KEY)
            proxy.silent = b"mark"
            await log.append(KEY, 0, lease, notes("mark"))  # on another line
            assert await texts(log) == ["mark"]

    asyncio.run(go())
    assert proxy.cut == 1


# --- what else can be wrong


def test_a_session_that_somebody_holds_is_busy(server: Server, url: str) -> None:
    import psycopg

    async def go() -> None:
        async with opened(url, timeout_s=0.2) as log:
            lease = await log.lease(KEY)
            with psycopg.connect(url) as other:
                other.execute("SELECT * FROM prowess_sessions FOR UPDATE")
                with pytest.raises(StoreError) as caught:
                    await log.append(KEY, 0, lease, notes("a"))
                assert caught.value.code == "store-busy"
                assert (await log.head(KEY)).seq == 0  # readers do not wait
            await log.append(KEY, 0, lease, notes("a"))
            assert await texts(log) == ["a"]

    asyncio.run(go())


def test_what_an_administrator_has_set_does_not_change_what_a_commit_means(server: Server, url: str) -> None:
    import psycopg

    for setting in ("synchronous_commit = off", "default_transaction_isolation = serializable"):
        server.do(f"ALTER DATABASE {name_of(url)} SET {setting}")

    async def go() -> None:
        async with opened(url) as log:
            lease = await log.lease(KEY)
            tries = [log.append(KEY, 0, lease, notes(str(n))) for n in range(8)]
            done = await asyncio.gather(*tries, return_exceptions=True)
            assert sum(isinstance(each, SessionConflict) for each in done) == 7
            with psycopg.connect(url) as other:
                assert other.execute("SHOW synchronous_commit").fetchone() == ("off",)

    link = PostgresPool(url, timeout_s=5, retry_s=1, prepare=lambda connection: None)
    assert link.use(lambda connection: connection.execute("SHOW synchronous_commit").fetchone()) == ("on",)
    link.drop()

    asyncio.run(go())


def test_a_newer_database_is_left_as_it_is(server: Server, url: str) -> None:
    async def head(log: PostgresEventLog) -> None:
        await log.lease(KEY)

    async def make() -> None:
        async with PostgresEventLog(url):
            pass

    asyncio.run(make())
    server.do(f"INSERT INTO prowess_migrations VALUES ({len(POSTGRES) + 1}, 'of tomorrow', 'then')", name=name_of(url))
    error = failure(url, head)
    assert error.code == "store-too-new" and "Upgrade" in (error.hint or "")
    assert server.do("SELECT count(*) FROM prowess_sessions", name=name_of(url)) == [(0,)]


def test_tables_of_the_same_names_are_left_as_they_are(server: Server, url: str) -> None:
    server.do("CREATE TABLE prowess_sessions (mine text)", name=name_of(url))
    assert failure(url, lambda log: log.lease(KEY)).code == "store-not-prowess"
    assert server.do("SELECT to_regclass('prowess_migrations')", name=name_of(url)) == [(None,)]


def test_events_whose_session_was_removed_or_counts_fewer_are_found(server: Server, url: str) -> None:
    """A foreign key removes them as well, unless somebody who may do everything says otherwise."""

    async def go() -> None:
        async with opened(url) as log:
            for session in ("gone", "cut", "whole", "spoiled"):
                key = SessionKey(tenant="t", session=session) if session == "gone" else SessionKey(session=session)
                lease = await log.lease(key)
                await log.append(key, 0, lease, [note("a", key), note("b", key)])
            assert await log.orphans() == []
            for statement in (
                "ALTER TABLE prowess_events DISABLE TRIGGER ALL",
                "ALTER TABLE prowess_sessions DISABLE TRIGGER ALL",
                "UPDATE prowess_events SET line = '[' WHERE session = 4",
                "DELETE FROM prowess_sessions WHERE session IN ('gone', 'spoiled')",
                "UPDATE prowess_sessions SET seq = 1 WHERE session = 'cut'",
            ):
                server.do(statement, name=name_of(url))
            assert await log.orphans() == [
                OrphanedEvents("t", "gone", 2, 1, orphaned=True),
                OrphanedEvents("default", "cut", 1, 2, orphaned=False),
                OrphanedEvents("default", "?", 2, 1, orphaned=True),
            ]

    asyncio.run(go())


@pytest.mark.parametrize(
    "edit", ["expires_at = '2020-01-01T00:00:00.000000Z'", "expires_at = NULL", "expiry_link = NULL"]
)
def test_an_expiry_that_nobody_set_ends_nothing_and_is_found(server: Server, url: str, edit: str) -> None:
    async def go() -> None:
        async with opened(url) as log:
            lease = await log.lease(KEY)
            await log.append(KEY, 0, lease, [note("a")])
            await log.expire(KEY, "2999-01-01T00:00:00Z")
            assert await log.orphans() == []
            server.do(f"UPDATE prowess_sessions SET {edit}", name=name_of(url))
            assert await log.prune_expired() == 0 and [info.key for info in await log.sessions()] == [KEY]
            await log.append(KEY, 1, lease, [note("b")])
            [found] = await log.orphans()
            assert found.expiry is not None and (await log.lease(KEY)).token > lease.token
            assert (await log.head(KEY)).seq == 2, "a lease does not begin it anew"

    asyncio.run(go())


def test_tables_that_were_dropped_are_missed(server: Server, url: str) -> None:
    async def go() -> None:
        async with opened(url) as log:
            await log.lease(KEY)
            server.do("DROP TABLE prowess_events, prowess_sessions", name=name_of(url))
            with pytest.raises(StoreError) as caught:
                await log.lease(KEY)
            assert caught.value.code == "store-gone"

    asyncio.run(go())


def test_a_key_that_is_as_long_as_it_can_be(url: str) -> None:
    async def go() -> None:
        async with opened(url) as log:
            long = SessionKey(tenant="\N{PILE OF POO}" * 200, app="会" * 200, user="ü" * 200, session="x" * 200)
            await log.append(long, 0, await log.lease(long, owner="a\0b"), notes("a", key=long))
            assert await texts(log, long) == ["a"]
            assert [info.key for info in await log.sessions(long.tenant, app=long.app, prefix="xx")] == [long]
            assert await log.sessions(prefix="\0") == await log.sessions("\0") == []
            with pytest.raises(StoreError) as caught:
                await log.sessions(prefix="\ud800")
            assert caught.value.code == "session-key-invalid"

    asyncio.run(go())


def test_large_events_are_read_a_few_at_a_time(url: str) -> None:
    async def go() -> None:
        async with opened(url) as log:
            lease = await log.lease(KEY)
            for seq in range(5):
                await log.append(KEY, seq, lease, [note(str(seq) * 3_000_000)])
            assert [text[:2] for text in await texts(log)] == ["00", "11", "22", "33", "44"]

    def first_page(connection: Any) -> list[int]:
        found = rows.find(connection, KEY, "2026")
        assert found is not None
        return [seq for seq, _ in rows.page(connection, found.id, 0, found.seq)]

    asyncio.run(go())
    link = PostgresPool(url, timeout_s=5, retry_s=1, prepare=lambda connection: None)
    assert link.use(first_page) == [1, 2], "four megabytes, and the line that goes over them"
    link.drop()


def test_a_database_that_cannot_hold_a_name_says_so(server: Server) -> None:
    server.do("CREATE DATABASE narrow ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    url = server.url_of("narrow")
    assert failure(url, lambda log: log.lease(SessionKey(session="会议"))).code == "session-key-invalid"

    async def go() -> None:
        async with opened(url) as log:
            key = SessionKey(session="ü")
            await log.append(key, 0, await log.lease(key), notes("会议", key=key))  # lines are ASCII
            assert await texts(log, key) == ["会议"]

    asyncio.run(go())


def test_who_may_not_make_tables_is_told_so(server: Server, url: str) -> None:
    server.do("CREATE ROLE guest LOGIN")
    server.do("REVOKE CREATE ON SCHEMA public FROM PUBLIC", name=name_of(url))
    guest = url.replace("app@", "guest@")
    assert failure(guest, lambda log: log.lease(KEY)).code == "store-denied"


def test_a_server_that_is_full_up_is_busy(server: Server, url: str) -> None:
    server.do("CREATE ROLE alone LOGIN CONNECTION LIMIT 1")
    server.do("GRANT ALL ON SCHEMA public TO PUBLIC", name=name_of(url))
    alone = url.replace("app@", "alone@")

    async def go() -> None:
        async with opened(alone) as log, opened(alone) as one_too_many:
            await log.lease(KEY)
            with pytest.raises(StoreError) as caught:
                await one_too_many.lease(KEY)
            assert caught.value.code == "store-busy"

    asyncio.run(go())


def test_a_read_only_database_is_said_to_be(server: Server, url: str) -> None:
    server.do(f"ALTER DATABASE {name_of(url)} SET default_transaction_read_only = on")
    assert failure(url, lambda log: log.lease(KEY)).code == "store-read-only"


def test_refusals_are_told_apart_and_no_password_is_in_them(server: Server) -> None:
    password = "hunter2-hunter2"
    hba = Path(server.folder, "data", "pg_hba.conf")
    rules = hba.read_text(encoding="utf-8")
    server.do(f"CREATE ROLE guarded LOGIN PASSWORD 'another-{password}'")
    try:
        hba.write_text(f"local all guarded scram-sha-256\n{rules}", encoding="utf-8")
        server.stop()
        server.start()
        wanted = {
            f"postgresql://guarded:{password}@/postgres?host={server.folder}": "store-denied",
            f"postgresql://nobody-here:{password}@/postgres?host={server.folder}": "store-denied",
            f"postgres://app:{password}@/not-there?host={server.folder}": "store-unavailable",
            f"postgresql://app:{password}@127.0.0.1:1/x": "store-unreachable",
            f"postgresql://app:{password}@/x?host=/nowhere/at/all": "store-unreachable",
        }
        for url, code in wanted.items():
            error = failure(url, lambda log: log.lease(KEY))
            assert error.code == code, error
            assert password not in f"{error}{error.__cause__}", error
    finally:
        hba.write_text(rules, encoding="utf-8")
        server.stop()
        server.start()


@pytest.mark.parametrize(
    "address", ["postgresql://app:hunter2@[::1/x", "postgresql://a@h/x?nonsense=hunter2", "hunter2"]
)
def test_an_address_that_cannot_be_read_is_not_repeated(server: Server, address: str) -> None:
    with pytest.raises(StoreError) as caught:
        PostgresEventLog(address)
    assert caught.value.code == "store-url-invalid"
    assert "hunter2" not in f"{caught.value}{caught.value.__cause__}{caught.value.__context__}"


def test_without_the_extra_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra, match=r"prowess\[postgres\]"):
        PostgresEventLog("postgresql://app@localhost/x")


def test_entering_connects_and_a_closed_log_says_so(url: str) -> None:
    async def go() -> None:
        async with PostgresEventLog(url) as log:
            pass
        await log.close()
        with pytest.raises(StoreError) as caught:
            await log.head(KEY)
        assert caught.value.code == "store-closed"

    asyncio.run(go())


def test_who_is_cancelled_does_not_spoil_a_connection(url: str) -> None:
    async def go() -> None:
        async with opened(url, connections=1) as log:
            lease = await log.lease(KEY)
            for seq in range(20):
                task = asyncio.ensure_future(log.append(KEY, seq, lease, notes(str(seq))))
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                head = await log.head(KEY)  # behind it in line, so that it has ended
                if head.seq == seq:
                    await log.append(KEY, seq, lease, notes(str(seq)))
            await check_whole(log)
            assert await texts(log) == [str(n) for n in range(20)]

    asyncio.run(go())
