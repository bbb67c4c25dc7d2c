"""Every event log keeps the same promises; the one on disk keeps them also when killed, full, locked or damaged."""

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
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from guard import GUARD_S
from postgres_server import Server, running_server
from prowess.core.events import Envelope, NoteAppended, TextDelta, UnknownEvent
from prowess.core.ports import EventLog
from prowess.core.values import ChainHead, OrphanedEvents, SessionKey
from prowess.errors import AuditBroken, SessionConflict, StoreError
from prowess.records.chain import GENESIS, seal, verify_chain
from prowess.records.sessions import all_sessions
from prowess.stores.memory import MemoryEventLog
from prowess.stores.migrations import SQLITE
from prowess.stores.postgres import PostgresEventLog
from prowess.stores.run_folders import CopyingLog, CopyPlace
from prowess.stores.sqlite import SqliteEventLog

KEY = SessionKey(session="s")
Opened = Callable[[Callable[[EventLog], Awaitable[None]]], None]


@pytest.fixture(scope="module")
def postgres() -> Iterator[Server]:
    with running_server() as server:
        yield server


class Clock:
    """Stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 2, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "mirrored", "sqlite", "postgres"])
def with_log(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Opened:
    """with_log(test): run the coroutine with an open log."""

    def make() -> EventLog:
        if request.param == "memory":
            return MemoryEventLog(clock=clock)
        if request.param == "sqlite":
            return SqliteEventLog(tmp_path / "prowess.db", clock=clock)
        if request.param == "mirrored":
            return CopyingLog(MemoryEventLog(clock=clock), CopyPlace(str(tmp_path)), on_problem=lambda line: None)
        return PostgresEventLog(request.getfixturevalue("postgres").url(), clock=clock)

    async def go(test: Callable[[EventLog], Awaitable[None]]) -> None:
        log = make()
        try:
            await test(log)
        finally:
            await log.close()

    return lambda test: asyncio.run(go(test))


def notes(*texts: str, key: SessionKey = KEY) -> list[Envelope]:
    return [note(text, key) for text in texts]


def note(text: str, key: SessionKey = KEY) -> Envelope:
    return Envelope(
        at="2026-01-02T03:04:05.000006Z",
        tenant=key.tenant,
        app=key.app,
        user=key.user,
        session=key.session,
        run="r",
        event=NoteAppended(text=text),
    )


async def texts(log: EventLog, key: SessionKey = KEY, after_seq: int = 0) -> list[str]:
    return [getattr(envelope.event, "text", "?") async for envelope in log.read(key, after_seq=after_seq)]


async def check_whole(log: EventLog, key: SessionKey = KEY) -> ChainHead:
    """The chain is whole and ends where the log says."""
    head = await log.head(key)
    report = verify_chain([line async for line in log.lines(key)], head)
    assert report.valid and report.events == head.seq, report
    return head


# --- what every log promises


def test_an_append_returns_the_lines_as_they_are_stored(with_log: Opened) -> None:
    async def test(log: EventLog) -> None:
        lease = await log.lease(KEY)
        stored = [
            *await log.append(KEY, 0, lease, notes("a", "joined \ud83d\ude00, half \ud800")),
            *await log.append(KEY, 2, lease, notes("c")),
        ]
        assert [envelope.line for envelope in stored] == [line async for line in log.lines(KEY)]

    with_log(test)


def test_whatever_is_done_leaves_no_events_behind(with_log: Opened, clock: Clock) -> None:
    async def test(log: Any) -> None:
        for name in ("kept", "deleted", "expired", "pruned"):
            key = SessionKey(session=name)
            lease = await log.lease(key)
            await log.append(key, 0, lease, notes("a", "b", key=key))
        await log.delete(SessionKey(session="deleted"))
        for name in ("expired", "pruned"):
            await log.expire(SessionKey(session=name), "2030-01-01T00:00:00Z")
        clock.now = datetime(2031, 1, 1, tzinfo=UTC)
        assert await log.orphans() == [], "what has expired is not removed yet, and nobody's fault"
        await log.lease(SessionKey(session="expired"))
        await log.prune_expired()
        assert await log.orphans() == []

    with_log(test)


def test_what_was_appended_is_read_in_order(with_log: Opened) -> None:
    async def test(log: EventLog) -> None:
        lease = await log.lease(KEY, "me")
        assert (lease.key, lease.owner) == (KEY, "me")
        assert await log.head(KEY) == GENESIS
        first = await log.append(KEY, 0, lease, notes("a", "b"))
        second = await log.append(KEY, 2, lease, notes("c"))
        assert [envelope.seq for envelope in (*first, *second)] == [1, 2, 3]
        assert [envelope async for envelope in log.read(KEY)] == [*first, *second]
        assert [envelope.prev for envelope in (*first, *second)] == [GENESIS.hash, first[0].hash, first[1].hash]
        assert await texts(log, after_seq=1) == ["b", "c"]
        assert await texts(log, after_seq=3) == await texts(log, after_seq=99) == []
        assert await check_whole(log) == ChainHead(seq=3, hash=second[0].hash or "")

    with_log(test)


def test_a_wrong_place_is_a_conflict_and_changes_nothing(with_log: Opened) -> None:
    async def test(log: EventLog) -> None:
        lease = await log.lease(KEY)
        await log.append(KEY, 0, lease, notes("a"))
        for expected in (0, 2, -1):
            with pytest.raises(SessionConflict) as caught:
                await log.append(KEY, expected, lease, notes("b"))
            assert caught.value.code == "session-conflict" and caught.value.hint
        assert await texts(log) == ["a"]
        assert (await check_whole(log)).seq == 1

    with_log(test)


def test_a_new_lease_ends_the_old_one(with_log: Opened) -> None:
    async def test(log: EventLog) -> None:
        old = await log.lease(KEY, "old")
        await log.append(KEY, 0, old, notes("a"))
        new = await log.lease(KEY, "new")
        assert new.token > old.token
        with pytest.raises(SessionConflict) as caught:
            await log.append(KEY, 1, old, notes("from the grave"))
        assert caught.value.code == "lease-lost"
        await log.append(KEY, 1, new, notes("b"))
        assert await texts(log) == ["a", "b"]

    with_log(test)


def test_a_lease_is_for_one_session(with_log: Opened) -> None:
    async def test(log: EventLog) -> None:
        other = SessionKey(session="other")
        lease = await log.lease(other)
        await log.lease(KEY)
        with pytest.raises(SessionConflict) as caught:
            await log.append(KEY, 0, lease, notes("a"))
        assert caught.value.code == "lease-lost"

    with_log(test)


def test_of_many_writers_one_is_first(with_log: Opened) -> None:
    async def test(log: EventLog) -> None:
        lease = await log.lease(KEY)
        for seq in range(5):
            tries = [log.append(KEY, seq, lease, notes(f"{seq}-{n}")) for n in range(10)]
            done = await asyncio.gather(*tries, return_exceptions=True)
            assert sum(not isinstance(each, BaseException) for each in done) == 1
            assert sum(isinstance(each, SessionConflict) for each in done) == 9
        assert (await check_whole(log)).seq == 5

    with_log(test)


def test_all_or_nothing(with_log: Opened) -> None:
    async def test(log: EventLog) -> None:
        lease = await log.lease(KEY)
        bad: list[Any] = [TextDelta(text="d"), UnknownEvent(type="x", data={"n": float("inf")})]
        for event, code in zip(bad, ("event-ephemeral", "event-invalid"), strict=True):
            wrong = Envelope(at="now", session="s", run="r", event=event)
            with pytest.raises(StoreError) as caught:
                await log.append(KEY, 0, lease, [*notes("a"), wrong, *notes("b")])
            assert caught.value.code == code
        with pytest.raises(StoreError):
            await log.append(KEY, 0, lease, notes("a", key=SessionKey(tenant="else", session="s")))
        assert await log.head(KEY) == GENESIS
        assert await log.append(KEY, 0, lease, []) == []
        assert await texts(log) == []

    with_log(test)


def test_sessions_of_one_name_are_four_parts_apart(with_log: Opened) -> None:
    async def test(log: EventLog) -> None:
        keys = [
            SessionKey(session="s"),
            SessionKey(tenant="t", session="s"),
            SessionKey(app="a", session="s"),
            SessionKey(user="u", session="s"),
            SessionKey(user="u", session="s2"),
        ]
        for key in keys:
            await log.append(key, 0, await log.lease(key), notes(str(key), key=key))
        for key in keys:
            assert await texts(log, key) == [str(key)]
            await check_whole(log, key)
        await log.delete(keys[0])
        listed = await log.sessions()
        assert [info.key for info in listed] == [keys[2], keys[3], keys[4]]
        for info in listed:
            assert info.head == await log.head(info.key) and info.created_at.endswith("Z")
        assert [info.key for info in await log.sessions("t")] == [keys[1]]
        assert {info.key for info in await all_sessions(log)} == set(keys[1:])
        assert [info.key for info in await log.sessions(app="a")] == [keys[2]]
        assert [info.key for info in await log.sessions(user="u", prefix="s2")] == [keys[4]]
        assert await log.sessions(prefix="%") == await log.sessions("T") == []

    with_log(test)


def test_an_unknown_session_is_said_to_be_unknown(with_log: Opened) -> None:
    async def test(log: EventLog) -> None:
        lease = await log.lease(KEY)
        await log.append(KEY, 0, lease, notes("a"))
        await log.delete(KEY)
        tries: list[Callable[[], Awaitable[Any]]] = [
            lambda: texts(log),
            lambda: log.head(KEY),
            lambda: log.delete(KEY),
            lambda: log.append(KEY, 1, lease, notes("b")),
        ]
        for attempt in tries:
            with pytest.raises(StoreError) as caught:
                await attempt()
            assert caught.value.code == "session-unknown" and "'s'" in caught.value.message
        assert await log.sessions() == []

    with_log(test)


def test_a_lease_of_a_deleted_session_does_not_come_back_to_life(with_log: Opened) -> None:
    async def test(log: EventLog) -> None:
        old = await log.lease(KEY)
        await log.delete(KEY)
        new = await log.lease(KEY)
        with pytest.raises(SessionConflict) as caught:
            await log.append(KEY, 0, old, notes("a"))
        assert caught.value.code == "lease-lost"
        await log.append(KEY, 0, new, notes("b"))
        assert await texts(log) == ["b"]

    with_log(test)


def test_any_text_survives(with_log: Opened) -> None:
    async def test(log: EventLog) -> None:
        given = [
            "",
            "é 会议 \N{PILE OF POO}",
            "a\x00b\n\u2028",
            "half a pair \ud83d",
            "x" * 5_000_000,
            "'); DROP TABLE events",
        ]
        key = SessionKey(tenant="会议", app="a'b", user="ü@example.com", session='"; --')
        await log.append(key, 0, await log.lease(key, owner="ö"), notes(*given, key=key))
        assert await texts(log, key) == given
        await check_whole(log, key)

    with_log(test)


def test_an_event_of_a_newer_release_is_kept_as_it_is(with_log: Opened) -> None:
    async def test(log: EventLog) -> None:
        event = UnknownEvent(type="of_tomorrow", data={"deep": {"list": [1, 2.5, None]}})
        await log.append(KEY, 0, await log.lease(KEY), [Envelope(at="now", session="s", run="r", event=event)])
        assert [envelope.event async for envelope in log.read(KEY)] == [event]

    with_log(test)


def test_later_changes_to_a_value_do_not_reach_the_log(with_log: Opened) -> None:
    async def test(log: EventLog) -> None:
        data = {"list": [1]}
        event = UnknownEvent(type="x", data=data)
        await log.append(KEY, 0, await log.lease(KEY), [Envelope(at="now", session="s", run="r", event=event)])
        data["list"].append(2)
        assert [getattr(envelope.event, "data", None) async for envelope in log.read(KEY)] == [{"list": [1]}]

    with_log(test)


def test_ten_thousand_events(with_log: Opened) -> None:
    async def test(log: EventLog) -> None:
        lease = await log.lease(KEY)
        for start in range(0, 10_000, 500):
            await log.append(KEY, start, lease, notes(*(str(n) for n in range(start, start + 500))))
        assert (await check_whole(log)).seq == 10_000
        assert await texts(log, after_seq=9_990) == [str(n) for n in range(9_990, 10_000)]

    with_log(test)


def test_reading_sees_the_session_as_it_was_when_it_began(with_log: Opened) -> None:
    async def test(log: EventLog) -> None:
        lease = await log.lease(KEY)
        await log.append(KEY, 0, lease, notes(*map(str, range(600))))
        seen = []
        async for envelope in log.read(KEY):
            if envelope.seq == 1:
                await log.append(KEY, 600, lease, notes("later"))
            seen.append(envelope.seq)
        assert seen == list(range(1, 601))

    with_log(test)


def test_threads_share_a_log(with_log: Opened) -> None:
    async def test(log: EventLog) -> None:
        async def write(key: SessionKey) -> None:
            lease = await log.lease(key)
            for seq in range(20):
                await log.append(key, seq, lease, notes(str(seq), key=key))

        keys = [SessionKey(session=f"s{n}") for n in range(4)]
        threads = [threading.Thread(target=lambda key=key: asyncio.run(write(key))) for key in keys]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join)
        for key in keys:
            assert (await check_whole(log, key)).seq == 20

    with_log(test)


def test_what_has_expired_is_as_if_deleted(with_log: Opened, clock: Clock) -> None:
    async def test(log: EventLog) -> None:
        lease = await log.lease(KEY)
        await log.append(KEY, 0, lease, notes("a"))
        await log.expire(KEY, "2026-01-02T04:00:00+02:00")  # in two hours
        assert [info.expires_at for info in await log.sessions()] == ["2026-01-02T02:00:00.000000Z"]
        clock.now += timedelta(hours=1)
        await log.append(KEY, 1, lease, notes("b"))  # does not put it off
        clock.now += timedelta(hours=1)
        tries: list[Callable[[], Awaitable[Any]]] = [
            lambda: texts(log),
            lambda: log.head(KEY),
            lambda: log.delete(KEY),
            lambda: log.expire(KEY, None),
            lambda: log.append(KEY, 2, lease, notes("c")),
        ]
        for attempt in tries:
            with pytest.raises(StoreError) as caught:
                await attempt()
            assert caught.value.code == "session-unknown"
        assert await log.sessions() == []
        new = await log.lease(KEY)
        assert await log.head(KEY) == GENESIS and new.token > lease.token
        with pytest.raises(SessionConflict):
            await log.append(KEY, 0, lease, notes("from the grave"))
        await log.append(KEY, 0, new, notes("d"))
        assert await texts(log) == ["d"]
        assert [info.expires_at for info in await log.sessions()] == [None]

    with_log(test)


def test_an_expiry_can_be_moved_and_taken_back(with_log: Opened, clock: Clock) -> None:
    async def test(log: EventLog) -> None:
        await log.append(KEY, 0, await log.lease(KEY), notes("a"))
        await log.expire(KEY, "2026-01-03T00:00:00Z")
        await log.expire(KEY, "2026-01-05T00:00:00Z")
        clock.now += timedelta(days=2)
        assert await texts(log) == ["a"]
        await log.expire(KEY, None)
        clock.now += timedelta(days=2000)
        assert await texts(log) == ["a"]
        for wrong in ("tomorrow", "2026-01-05", "2026-01-05T00:00:00", ""):
            with pytest.raises(StoreError) as caught:
                await log.expire(KEY, wrong)
            assert caught.value.code == "expiry-invalid" and caught.value.hint
        await log.expire(KEY, "0999-01-01T00:00:00Z")
        assert await log.sessions() == []

    with_log(test)


def test_pruning_removes_what_has_expired_and_nothing_else(with_log: Opened, clock: Clock) -> None:
    async def test(log: Any) -> None:
        keys = [SessionKey(tenant=tenant, session=name) for tenant in ("default", "t") for name in ("old", "new")]
        for key in keys:
            await log.append(key, 0, await log.lease(key), notes("a", key=key))
            if key.session == "old":
                await log.expire(key, "2026-01-02T01:00:00Z")
        assert await log.prune_expired() == 0
        clock.now += timedelta(days=1)
        assert await log.prune_expired() == 2
        assert await log.prune_expired() == 0
        assert [info.key.session for info in [*await log.sessions(), *await log.sessions("t")]] == ["new", "new"]
        for key in keys[1::2]:
            await check_whole(log, key)

    with_log(test)


# --- what the one on disk promises as well


@asynccontextmanager
async def opened(path: Path, **options: Any) -> AsyncIterator[SqliteEventLog]:
    log = SqliteEventLog(path, **options)
    try:
        yield log
    finally:
        await log.close()


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "prowess.db"


@pytest.fixture
def own_db(machine: Path) -> Path:
    """A place in the state folder of this home, where a file is ours whoever made it."""
    return machine / ".prowess" / "folder" / "prowess.db"


def fill(db: Path, *given: str) -> None:
    async def go() -> None:
        async with opened(db) as log:
            await log.append(KEY, 0, await log.lease(KEY), notes(*given))

    asyncio.run(go())


def stored(db: Path, key: SessionKey = KEY) -> list[str]:
    async def go() -> list[str]:
        async with opened(db) as log:
            await check_whole(log, key)
            return await texts(log, key)

    return asyncio.run(go())


def failure(db: Path, attempt: Callable[[SqliteEventLog], Awaitable[Any]], **options: Any) -> StoreError:
    async def go() -> None:
        async with opened(db, **options) as log:
            await attempt(log)

    with pytest.raises(StoreError) as caught:
        asyncio.run(go())
    assert caught.value.hint and str(db) in caught.value.message
    return caught.value


def test_it_is_still_there_tomorrow_and_only_for_its_owner(db: Path) -> None:
    fill(db, "a", "b")
    assert stored(db) == ["a", "b"]
    assert db.stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(db)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("SELECT number FROM migrations").fetchall() == [(n + 1,) for n in range(len(SQLITE))]


def test_entering_opens_and_a_closed_log_says_so(db: Path) -> None:
    async def go() -> None:
        async with SqliteEventLog(db) as log:
            pass
        await log.close()
        with pytest.raises(StoreError) as caught:
            await log.head(KEY)
        assert caught.value.code == "store-closed"

    asyncio.run(go())
    assert db.exists()


FORKED = """
import asyncio, os, sys
from prowess import ProwessError, SqliteEventLog

log = SqliteEventLog(sys.argv[1])
asyncio.run(log.sessions())
if os.fork() == 0:
    try:
        asyncio.run(log.sessions())
    except ProwessError as error:
        print(error.code, flush=True)
    asyncio.run(log.close())
    os._exit(0)
os.wait()
print(asyncio.run(log.sessions()))
"""


def test_after_a_fork_it_is_refused_in_the_child_alone(db: Path) -> None:
    command = [sys.executable, "-c", FORKED, str(db)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=GUARD_S)
    assert done.stdout.splitlines() == ["store-forked", "[]"], done.stderr


# What a child does: append one event after the other, and say so on stdout after each.
CHILD = """
import asyncio, sys
sys.path[:0] = {tests!r}
from test_event_log import *

async def main():
    db, name, count, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    async with SqliteEventLog(db) as log:
        lease = await log.lease(KEY, name)
        print("ready", flush=True)
        sys.stdin.readline()
        {body}

asyncio.run(main())
"""
APPEND = """
        seq = (await log.head(KEY)).seq
        for n in range(count):
            events = [note(f"{name} {n} {part} " + "x" * size) for part in range(3)]
            await log.append(KEY, seq, lease, events)
            seq += 3
            print(seq, flush=True)
"""
RACE = """
        from dataclasses import replace
        lease = replace(lease, token=int(sys.argv[5]))  # both have the token of the one that came last
        won = 0
        while (seq := (await log.head(KEY)).seq) < count:
            try:
                await log.append(KEY, seq, lease, [note(name)])
                won += 1
            except SessionConflict as error:
                assert error.code == "session-conflict", error
        print(won, flush=True)
"""


def child(body: str, *args: object) -> subprocess.Popen[str]:
    code = CHILD.format(tests=[str(folder) for folder in Path(__file__).parents[:2]], body=body.strip())
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, args)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def go_ahead(process: subprocess.Popen[str]) -> None:
    assert process.stdin and process.stdout
    assert process.stdout.readline() == "ready\n"
    process.stdin.write("go\n")
    process.stdin.flush()


def test_of_two_processes_one_is_first_at_every_number(db: Path) -> None:
    fill(db)
    # One lease was taken by fill, two by the children; all use the last, so that only the number keeps them apart.
    processes = [child(RACE, db, name, 100, 0, 3) for name in ("left", "right")]
    for process in processes:
        assert process.stdout and process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()
    won = {name: int(process.communicate()[0]) for name, process in zip(("left", "right"), processes, strict=True)}
    assert [process.returncode for process in processes] == [0, 0]
    kept = stored(db)
    assert {name: kept.count(name) for name in won} == won and len(kept) in (100, 101)


def test_many_processes_may_open_a_new_file_at_once(db: Path) -> None:
    processes = [child("pass", db, n, 0, 0) for n in range(6)]
    for process in processes:
        process.communicate("go\n")
    assert [process.returncode for process in processes] == [0] * 6
    assert stored(db) == []


def test_a_kill_loses_nothing_that_was_acknowledged(db: Path) -> None:
    chance = random.Random(7)
    acknowledged = 0
    for _ in range(20):
        process = child(APPEND, db, "child", 1_000, chance.choice([10, 5_000, 200_000]))
        go_ahead(process)
        assert process.stdout
        for _ in range(chance.randint(1, 10)):
            acknowledged = int(process.stdout.readline())
        until = time.perf_counter() + chance.random() * 0.01  # anywhere within the next append
        while time.perf_counter() < until:
            pass
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read() + process.communicate()[0]  # which alone forgets what was read ahead
        for line in rest.splitlines():  # said before it died
            acknowledged = int(line)
        kept = stored(db)
        assert len(kept) in (acknowledged, acknowledged + 3)
        assert [text.split()[2] for text in kept] == ["0", "1", "2"] * (len(kept) // 3)
        acknowledged = len(kept)


def test_a_full_disk_loses_nothing_and_is_over_when_there_is_room(db: Path) -> None:
    fill(db, "before")
    body = """
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
        seq = (await log.head(KEY)).seq
        failed = None
        while failed is None:
            try:
                await log.append(KEY, seq, lease, [note("y" * 5_000)])
                seq += 1
            except StoreError as error:
                failed = error
        assert failed.code == "store-full" and failed.hint, failed
        assert (await check_whole(log)).seq == seq
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        await log.append(KEY, seq, lease, [note("after")])
        print(seq + 1, flush=True)
    """
    process = child(body, db, "child", 0, 0)
    output = process.communicate("go\n")[0].split()
    assert process.returncode == 0
    kept = stored(db)
    assert len(kept) == int(output[-1]) > 3
    assert (kept[0], kept[1], kept[-1]) == ("before", "y" * 5_000, "after")


def test_a_locked_file_is_busy_and_then_free(db: Path) -> None:
    fill(db, "a")
    with closing(sqlite3.connect(db, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert failure(db, lambda log: log.lease(KEY), busy_timeout_s=0.02).code == "store-busy"
        assert stored(db) == ["a"]  # readers do not wait
        other.execute("ROLLBACK")

    async def go() -> None:
        async with opened(db) as log:
            await log.append(KEY, 1, await log.lease(KEY), notes("b"))

    asyncio.run(go())
    assert stored(db) == ["a", "b"]


@pytest.mark.parametrize(
    "content", [b"no database, but long enough to look like one" * 100, b"SQLite format 3\x00" + b"\xff" * 5000]
)
def test_a_file_that_is_no_database_is_left_as_it_is(db: Path, own_db: Path, content: bytes) -> None:
    for place, code in ((own_db, "store-corrupt"), (db, "store-foreign")):
        place.parent.mkdir(parents=True)
        place.write_bytes(content)
        assert failure(place, lambda log: log.lease(KEY)).code == code
        assert place.read_bytes() == content
        assert [path.name for path in place.parent.iterdir()] == ["prowess.db"]


def test_a_schema_that_is_not_even_text_is_said_to_be_damaged(db: Path) -> None:
    fill(db, "a")
    db.write_bytes(db.read_bytes().replace(b"tablecounters", b"table\xbc\xffunters"))
    assert failure(db, lambda log: log.lease(KEY)).code == "store-corrupt"


def test_a_damaged_file_is_left_as_it_is(db: Path) -> None:
    fill(db, *("x" * 3_000 for _ in range(50)))
    content = bytearray(db.read_bytes())
    content[8192:-4096] = os.urandom(len(content) - 8192 - 4096)
    db.write_bytes(content)

    async def read_all(log: SqliteEventLog) -> None:
        await texts(log)

    assert failure(db, read_all).code == "store-corrupt"
    assert db.read_bytes() == content


def test_a_row_that_somebody_removed_or_spoiled_is_noticed(db: Path) -> None:
    fill(db, "a", "b", "c")
    with closing(sqlite3.connect(db)) as connection:
        connection.execute("UPDATE events SET line = '{' WHERE seq = 2")
        connection.commit()
    with pytest.raises(AuditBroken, match="not an event"):
        stored_unchecked(db)
    for seq in (2, 3):
        with closing(sqlite3.connect(db)) as connection:
            connection.execute("DELETE FROM events WHERE seq = ?", (seq,))
            connection.commit()
        with pytest.raises(AuditBroken, match="no event 2"):
            stored_unchecked(db)


def change(db: Path, statement: str) -> None:
    with closing(sqlite3.connect(db)) as connection, connection:
        connection.execute(statement)


def orphans(db: Path) -> list[OrphanedEvents]:
    async def go() -> list[OrphanedEvents]:
        async with opened(db) as log:
            return list(await log.orphans())

    return asyncio.run(go())


def test_events_whose_session_was_removed_are_found_and_not_written_over(db: Path) -> None:
    fill(db, "a", "b", "c")
    change(db, "DELETE FROM sessions")
    assert orphans(db) == [OrphanedEvents("default", KEY.session, 3, 1, orphaned=True)]

    async def go() -> None:
        async with opened(db) as log:
            with pytest.raises(AuditBroken, match="3 events") as caught:
                await log.lease(KEY)
            assert "another session" in (caught.value.hint or "")
            assert await log.orphans(), "who begins the session anew does not take away what is left of it"
            with pytest.raises(StoreError, match="No session"):
                await log.delete(SessionKey(session="other"))
            await log.delete(KEY)
            await log.lease(KEY)
            assert await log.orphans() == []

    asyncio.run(go())


@pytest.mark.parametrize(
    ("statement", "events", "first"),
    [
        ("UPDATE sessions SET seq = 1", 2, 2),
        ("UPDATE sessions SET seq = 0", 3, 1),
        ("UPDATE events SET seq = -1 WHERE seq = 2", 1, -1),
        ("UPDATE events SET seq = 9 WHERE seq = 3", 1, 9),
        ("UPDATE events SET seq = 'x' WHERE seq = 3", 1, 0),
    ],
)
def test_events_outside_of_what_a_session_counts_are_found(db: Path, statement: str, events: int, first: int) -> None:
    fill(db, "a", "b", "c")
    change(db, statement)
    assert orphans(db) == [OrphanedEvents("default", KEY.session, events, first, orphaned=False)]


@pytest.mark.parametrize("part", ["tenant", "app", "user", "session"])
def test_a_session_whose_key_is_not_text_is_found(db: Path, part: str) -> None:
    fill(db, "a", "b", "c")
    other = SessionKey(session="other")
    asyncio.run(add(db, other, "d"))
    for table in ("sessions", "events"):
        change(db, f"UPDATE {table} SET {part} = CAST({part} AS BLOB) WHERE session = 's'")
    key: dict[str, Any] = {"tenant": "default", "app": "default", "user": "default", "session": KEY.session}
    key[part] = str(key[part].encode())
    assert orphans(db) == [OrphanedEvents(**key, unnamed=True)]

    async def look() -> None:
        async with opened(db) as log:
            assert [info.key for info in await all_sessions(log)] == [other]

    asyncio.run(look())


@pytest.mark.parametrize("part", ["tenant", "app", "user", "session"])
def test_events_are_found_under_their_whole_key(db: Path, part: str) -> None:
    other = replace(KEY, **{part: "other"})
    fill(db, "a", "b", "c")
    asyncio.run(add(db, other, "d", "e"))
    change(db, f"UPDATE sessions SET seq = 1 WHERE {part} = 'other'")
    (found,) = orphans(db)
    assert (found.events, found.first) == (1, 2) and found.is_of(other) and not found.is_of(KEY)


async def add(db: Path, key: SessionKey, *given: str) -> None:
    async with opened(db) as log:
        await log.append(key, 0, await log.lease(key), notes(*given, key=key))


PAST, FUTURE = "2020-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z"


@pytest.mark.parametrize(
    ("was_set", "edit"),
    [
        (None, f"expires_at = '{PAST}'"),
        (None, f"expires_at = '{PAST}', expiry_after = hash, expiry_link = 'x'"),
        (FUTURE, f"expires_at = '{PAST}'"),
        (FUTURE, "expires_at = NULL"),
        (FUTURE, "expiry_after = 'x'"),
    ],
)
def test_an_expiry_that_nobody_set_ends_nothing_and_is_found(db: Path, was_set: str | None, edit: str) -> None:
    async def prepare() -> None:
        async with opened(db) as log:
            await log.append(KEY, 0, await log.lease(KEY), notes("a", "b"))
            if was_set:
                await log.expire(KEY, was_set)
            assert await log.orphans() == []

    async def look() -> None:
        async with opened(db) as log:
            assert await texts(log) == ["a", "b"] and await log.prune_expired() == 0
            assert [(info.key, info.expires_at) for info in await log.sessions()] == [(KEY, None)]
            [found] = await log.orphans()
            assert found.expiry is not None and not found.orphaned
            lease = await log.lease(KEY)
            await log.append(KEY, 2, lease, notes("c"))
            assert await texts(log) == ["a", "b", "c"], "a lease does not begin it anew"
            await log.expire(KEY, FUTURE)
            assert await log.orphans() == [], "what is set anew is right"

    asyncio.run(prepare())
    change(db, f"UPDATE sessions SET {edit}")
    asyncio.run(look())


def stored_unchecked(db: Path) -> list[str]:
    async def go() -> list[str]:
        async with opened(db) as log:
            return await texts(log)

    return asyncio.run(go())


def test_a_newer_file_is_left_as_it_is(db: Path) -> None:
    fill(db, "a")
    with closing(sqlite3.connect(db)) as connection:
        connection.execute("INSERT INTO migrations VALUES (99, 'of tomorrow', 'then')")
        connection.commit()
    before = db.read_bytes()
    error = failure(db, lambda log: log.lease(KEY))
    assert error.code == "store-too-new" and "Upgrade" in (error.hint or "")
    assert db.read_bytes() == before


def test_a_file_of_the_first_release_is_brought_up_to_date(own_db: Path) -> None:
    """Its sessions have no expiry. What they have is kept."""
    db = own_db
    db.parent.mkdir(parents=True)
    sealed, lines = seal(KEY, GENESIS, notes("a", "b"))
    with closing(sqlite3.connect(db, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE migrations (number INTEGER PRIMARY KEY, name TEXT, applied_at TEXT)")
        connection.execute("INSERT INTO migrations VALUES (1, 'sessions and events', 'then')")
        for statement in SQLITE[0][1]:
            connection.execute(statement)
        key = ("default", "default", "default", "s")
        connection.execute("INSERT INTO sessions VALUES (?, ?, ?, ?, 2, ?, 7, '', '', '')", (*key, sealed[-1].hash))
        rows = [(*key, seq, line) for seq, line in enumerate(lines, 1)]
        connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", rows)
    processes = [child("pass", db, n, 0, 0) for n in range(3)]  # at once
    for process in processes:
        process.communicate("go\n")
    assert [process.returncode for process in processes] == [0] * 3
    assert stored(db) == ["a", "b"]
    with closing(sqlite3.connect(db)) as connection:
        assert connection.execute("SELECT number FROM migrations").fetchall() == [(n + 1,) for n in range(len(SQLITE))]


def test_an_expiry_that_an_older_release_set_still_holds(own_db: Path) -> None:
    """Which did not link it to the chain."""
    db = own_db
    fill(db, "a")
    for statement in (
        "ALTER TABLE sessions DROP COLUMN expiry_after",
        "ALTER TABLE sessions DROP COLUMN expiry_link",
        "DROP TABLE identity",
        "DELETE FROM migrations WHERE number >= 3",
        f"UPDATE sessions SET expires_at = '{PAST}'",
    ):
        change(db, statement)

    async def go() -> None:
        async with opened(db) as log:
            assert await log.orphans() == [] and await log.sessions() == [] and await log.prune_expired() == 1

    asyncio.run(go())


def test_a_database_of_something_else_is_left_as_it_is(db: Path, own_db: Path) -> None:
    for place, code in ((own_db, "store-not-prowess"), (db, "store-foreign")):
        place.parent.mkdir(parents=True)
        change(place, "CREATE TABLE bookmarks (url TEXT)")
        before = place.read_bytes()
        assert failure(place, lambda log: log.lease(KEY)).code == code
        with closing(sqlite3.connect(place)) as connection:
            assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("bookmarks",)]
    assert place.read_bytes() == before


def test_a_folder_or_a_file_in_the_way_is_said_to_be(tmp_path: Path, own_db: Path) -> None:
    for parent, code in ((own_db.parent, "store-unavailable"), (tmp_path, "store-foreign")):
        (parent / "db").mkdir(parents=True)
        (parent / "file").write_text("")
        assert failure(parent / "db", lambda log: log.lease(KEY)).code == code
        assert failure(parent / "file" / "db", lambda log: log.lease(KEY)).code == "store-unavailable"


def test_its_folder_is_private_whatever_the_umask_says(db: Path) -> None:
    before = os.umask(0)
    try:
        fill(db, "a")
    finally:
        os.umask(before)
    assert (db.parent.stat().st_mode & 0o777, db.stat().st_mode & 0o777) == (0o700, 0o600)


def test_a_file_that_was_removed_is_not_written_any_more(db: Path) -> None:
    async def go() -> None:
        async with opened(db) as log:
            lease = await log.lease(KEY)
            shutil.rmtree(db.parent)
            with pytest.raises(StoreError) as caught:
                await log.append(KEY, 0, lease, notes("into the void"))
            assert caught.value.code == "store-gone"

    asyncio.run(go())


AS_ANOTHER = """
import asyncio, os, sys
sys.path[:0] = {tests!r}
from test_event_log import *

async def main():
    if os.geteuid() == 0:  # to whom nothing is read-only
        os.setgid(65534)
        os.setuid(65534)
    log = SqliteEventLog(sys.argv[1])
    try:
        await log.lease(KEY)
    except StoreError as error:
        print(error.code, error.hint, sep="\\n")
    await log.close()

asyncio.run(main())
"""


def test_a_read_only_file_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("PROWESS_STATE_DIR", folder)  # of both users: else the file is somebody else's to one
        db = Path(folder, "prowess.db")
        fill(db, "a")
        db.chmod(0o444)
        Path(folder).chmod(0o555)
        code = AS_ANOTHER.format(tests=[str(folder) for folder in Path(__file__).parents[:2]])
        answer = subprocess.run([sys.executable, "-c", code, str(db)], stdout=subprocess.PIPE, text=True, check=True)
        Path(folder).chmod(0o755)
        db.chmod(0o644)
        said, hint = answer.stdout.splitlines()
        # As root, the other user is asked to open a file in the state folder of somebody else.
        assert said == ("state-unavailable" if os.geteuid() == 0 else "store-read-only") and hint
        assert stored(db) == ["a"]


def test_text_that_is_none_is_refused(db: Path) -> None:
    async def go() -> None:
        async with opened(db) as log:
            with pytest.raises(StoreError) as caught:
                await log.sessions(prefix="\ud800")
            assert caught.value.code == "session-key-invalid"

    asyncio.run(go())
