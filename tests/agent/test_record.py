"""Nothing happens that was not written first, and whoever watches cannot get in the way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from guard import GUARD_S
from prowess.agent.recorder import Recorder
from prowess.core.events import Envelope, NoteAppended, RunStarted, TextDelta, UnknownEvent
from prowess.core.values import Lease, SessionKey
from prowess.errors import SessionConflict, StoreError
from prowess.records.chain import verify_chain
from prowess.stores.memory import MemoryEventLog

KEY = SessionKey(tenant="acme", user="ann", session="s")


def note(text: str) -> NoteAppended:
    return NoteAppended(text=text)


class Gate(MemoryEventLog):
    """A log that waits at its door, and fails when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.open = asyncio.Event()
        self.reached = asyncio.Event()
        self.error: Exception | None = None

    async def append(
        self, key: SessionKey, expected_seq: int, lease: Lease, events: Sequence[Envelope]
    ) -> Sequence[Envelope]:
        self.reached.set()
        await self.open.wait()
        if self.error:
            raise self.error
        return await super().append(key, expected_seq, lease, events)


async def recorder(log: MemoryEventLog, **options: Any) -> Recorder:
    return Recorder(log, KEY, await log.lease(KEY), "r1", **options)


async def texts(log: MemoryEventLog) -> list[str]:
    return [getattr(envelope.event, "text", "") async for envelope in log.read(KEY)]


def test_events_are_stored_in_order_with_their_place_and_time() -> None:
    async def test() -> None:
        log = MemoryEventLog()
        start = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
        ticks = iter(range(10))
        record = Recorder(log, KEY, await log.lease(KEY), "r1", lambda: start + timedelta(seconds=next(ticks)))
        assert record.seq is None
        stored = await record.append(RunStarted(model="offline"), note("a"))
        stored = [*stored, *await record.append(note("b"))]
        assert record.seq == 3 and not record.broken
        assert [envelope async for envelope in log.read(KEY)] == stored
        assert [(e.seq, e.run, e.key) for e in stored] == [(n, "r1", KEY) for n in (1, 2, 3)]
        assert [e.at for e in stored][::2] == ["2026-01-02T03:04:05.000006Z", "2026-01-02T03:04:07.000006Z"]
        assert list(await record.append()) == []

    asyncio.run(test())


def test_a_time_of_elsewhere_is_written_in_utc() -> None:
    async def test() -> None:
        zone = datetime.fromisoformat("2026-01-02T03:04:05+05:00")
        record = await recorder(MemoryEventLog(), clock=lambda: zone)
        assert (await record.append(note("a")))[0].at == "2026-01-01T22:04:05.000000Z"

    asyncio.run(test())


def test_a_second_run_goes_on_where_the_first_ended() -> None:
    async def test() -> None:
        log = MemoryEventLog()
        await (await recorder(log)).append(note("a"))
        record = await recorder(log)
        assert (await record.append(note("b")))[0].seq == 2
        late = await recorder(log, seq=1)  # read before the other had written
        with pytest.raises(SessionConflict):
            await late.append(note("c"))
        assert await texts(log) == ["a", "b"]

    asyncio.run(test())


def test_many_at_once_are_serialised() -> None:
    async def test() -> None:
        log = MemoryEventLog()
        record = await recorder(log)
        stored = await asyncio.gather(*(record.append(note(f"{n}a"), note(f"{n}b")) for n in range(100)))
        assert sorted(e.seq or 0 for batch in stored for e in batch) == list(range(1, 201))
        assert all((pair[1].seq or 0) - (pair[0].seq or 0) == 1 for pair in stored)
        assert verify_chain([line async for line in log.lines(KEY)], await log.head(KEY)).valid

    asyncio.run(test())


@pytest.mark.parametrize("error", [StoreError("The disk is full.", code="store-full"), RuntimeError("a bug")])
def test_after_a_failed_append_nothing_is_written_any_more(error: Exception) -> None:
    async def test() -> None:
        log, seen = Gate(), []
        log.open.set()
        log.error = error
        async with await recorder(log, on_event=[seen.append]) as record:
            with pytest.raises(type(error)) as caught:
                await record.append(note("a"))
            assert caught.value is error and record.broken
            log.error = None
            with pytest.raises(StoreError) as broken:
                await record.append(note("b"))
            assert broken.value.code == "record-broken" and broken.value.hint
        assert await texts(log) == [] and seen == []

    asyncio.run(test())


def test_those_that_wait_behind_a_failed_append_fail_too() -> None:
    async def test() -> None:
        log = Gate()
        log.error = StoreError("no")
        record = await recorder(log)
        tries = [asyncio.ensure_future(record.append(note(str(n)))) for n in range(3)]
        await log.reached.wait()
        log.open.set()
        done = await asyncio.gather(*tries, return_exceptions=True)
        assert [getattr(each, "code", None) for each in done] == ["store-error", "record-broken", "record-broken"]

    asyncio.run(test())


def test_a_takeover_breaks_the_record() -> None:
    async def test() -> None:
        log = MemoryEventLog()
        record = await recorder(log)
        await record.append(note("a"))
        await log.lease(KEY, "somebody else")
        with pytest.raises(SessionConflict) as caught:
            await record.append(note("b"))
        assert caught.value.code == "lease-lost" and record.broken
        assert await texts(log) == ["a"]

    asyncio.run(test())


def test_an_event_that_cannot_be_kept_breaks_the_record() -> None:
    async def test() -> None:
        record = await recorder(MemoryEventLog())
        with pytest.raises(StoreError):
            await record.append(UnknownEvent(type="x", data={"n": float("nan")}))
        assert record.broken

    asyncio.run(test())


def test_a_cancelled_caller_leaves_the_record_in_order() -> None:
    async def test() -> None:
        log = Gate()
        record = await recorder(log)
        first = asyncio.ensure_future(record.append(note("a")))
        await log.reached.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        log.open.set()
        assert (await record.append(note("b")))[0].seq == 2
        assert not record.broken and await texts(log) == ["a", "b"]

    asyncio.run(test())


def test_closing_waits_for_what_is_being_written() -> None:
    async def test() -> None:
        log = Gate()
        record = await recorder(log)
        first = asyncio.ensure_future(record.append(note("a")))
        await log.reached.wait()
        first.cancel()
        closing = asyncio.ensure_future(record.close())
        log.open.set()
        await closing
        assert await texts(log) == ["a"]

    asyncio.run(test())


# --- observers


@pytest.fixture(params=["function", "coroutine", "object"])
def observer(request: pytest.FixtureRequest) -> Callable[[Callable[[Envelope], Any]], Callable[..., Any]]:
    """observer(function): an observer of each kind that calls it."""

    def make(function: Callable[[Envelope], Any]) -> Callable[..., Any]:
        async def coroutine(envelope: Envelope) -> None:
            function(envelope)

        class Callable_:
            async def __call__(self, envelope: Envelope) -> None:
                function(envelope)

        return {"function": function, "coroutine": coroutine, "object": Callable_()}[request.param]

    return make


def test_observers_see_all_in_order_and_the_log_only_what_lasts(observer: Callable[..., Any]) -> None:
    async def test() -> None:
        log, seen = MemoryEventLog(), []
        async with await recorder(log, on_event=[observer(lambda envelope: seen.append(envelope))]) as record:
            await record.append(note("a"))
            record.show(TextDelta(text="b"))
            await record.append(TextDelta(text="c"), note("d"), TextDelta(text="e"))
            await record.append(TextDelta(text="f"))
        assert "".join(e.event.text for e in seen) == "abcdef"
        assert [e.seq for e in seen] == [1, None, None, 2, None, None]
        assert await texts(log) == ["a", "d"]

    asyncio.run(test())


def test_what_lasts_is_not_shown_before_it_is_stored() -> None:
    async def test() -> None:
        record = await recorder(MemoryEventLog())
        with pytest.raises(StoreError) as caught:
            record.show(note("a"))
        assert caught.value.code == "event-durable"

    asyncio.run(test())


def test_an_observer_is_told_after_the_log() -> None:
    async def test() -> None:
        log, kept = Gate(), []
        seen = asyncio.Event()

        async def look(envelope: Envelope) -> None:
            kept.extend(await texts(log))
            seen.set()

        record = await recorder(log, on_event=[look])
        work = asyncio.ensure_future(record.append(note("a")))
        await log.reached.wait()
        assert not seen.is_set()
        log.open.set()
        await work
        await seen.wait()
        assert kept == ["a"]
        await record.close()

    asyncio.run(test())


def test_an_observer_that_raises_is_reported_once_and_harms_nobody(observer: Callable[..., Any]) -> None:
    async def test() -> None:
        log, seen, said = MemoryEventLog(), [], []

        def raises(envelope: Envelope) -> None:
            seen.append(envelope)
            raise KeyError("oh")

        others: list[Envelope] = []
        async with await recorder(log, on_event=[observer(raises), others.append], report=said.append) as record:
            for n in range(5):
                await record.append(note(str(n)))
        assert len(seen) == len(others) == 5  # it is asked again: the next event may be one that it can take
        assert [type(error) for error in record.observer_errors] == [KeyError]
        assert len(said) == 1 and said[0].startswith("error: observer") and "KeyError" in said[0]
        assert not record.broken and len(await texts(log)) == 5

    asyncio.run(test())


def test_a_report_that_raises_harms_nobody_and_the_default_is_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    def raises(envelope: Envelope) -> None:
        raise ValueError("no")

    def no_report(line: str) -> None:
        raise OSError("stderr is closed")

    async def test(**options: Any) -> None:
        async with await recorder(MemoryEventLog(), on_event=[raises], **options) as record:
            await record.append(note("a"))
        assert len(record.observer_errors) == 1

    asyncio.run(test(report=no_report))
    asyncio.run(test())
    assert "ValueError: no" in capsys.readouterr().err


def blocks_in_a_thread(release: threading.Event) -> Callable[[Envelope], Any]:
    return lambda envelope: release.wait() and None


def blocks_in_a_task(release: threading.Event) -> Callable[[Envelope], Awaitable[None]]:
    async def block(envelope: Envelope) -> None:
        await asyncio.Event().wait()

    return block


@pytest.mark.parametrize("make", [blocks_in_a_thread, blocks_in_a_task])
def test_an_observer_that_blocks_for_ever_does_not_block_the_run(make: Callable[..., Any]) -> None:
    async def test(release: threading.Event) -> None:
        log, said = MemoryEventLog(), []
        record = await recorder(log, on_event=[make(release)], report=said.append)
        for _ in range(3):
            await record.append(note("a"))
        record.show(*(TextDelta(text="x") for _ in range(20_000)))  # more than it may leave waiting
        await record.append(note("b"))
        await record.close(timeout_s=0.01)
        assert len(said) == 1 and "does not keep up" in said[0]
        assert [getattr(error, "code", None) for error in record.observer_errors] == ["observer-overflow"]
        assert len(await texts(log)) == 4

    release = threading.Event()
    try:
        asyncio.run(test(release))
    finally:
        release.set()
    for thread in threading.enumerate():  # once it goes on, it ends
        if thread.name == "prowess-observer":
            thread.join(GUARD_S)
            assert not thread.is_alive()


def test_an_observer_that_is_late_at_the_end_is_reported() -> None:
    async def test(release: threading.Event) -> None:
        record = await recorder(MemoryEventLog(), on_event=[blocks_in_a_thread(release)], report=lambda line: None)
        await record.append(note("a"))
        await record.close(timeout_s=0.01)
        assert len(record.observer_errors) == 1

    release = threading.Event()
    try:
        asyncio.run(test(release))
    finally:
        release.set()
