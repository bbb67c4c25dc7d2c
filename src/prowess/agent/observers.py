"""Passes events to observers. An observer that raises, blocks or falls behind can neither stop nor slow down a run.

An observer that is a plain function runs in its own thread, an `async def` in its own task, so both may be slow.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import Empty, Full, Queue
from typing import Any, Protocol, runtime_checkable

from prowess.core.events import Envelope
from prowess.errors import StoreError

Observer = Callable[[Envelope], Awaitable[None] | None]
Failed = Callable[[str, Exception], None]
_PENDING = 10_000  # events that wait for a slow observer; durable events can be read from the log


class Feed(Protocol):
    def put(self, envelope: Envelope) -> None: ...

    async def close(self, timeout_s: float) -> None: ...


@runtime_checkable
class FeedingObserver(Protocol):
    """Observer that has a feed of its own."""

    def open_feed(self, failed: Failed) -> Feed: ...


def open_feed(observer: Observer, failed: Failed) -> Feed:
    """Makes the feed of an observer. `failed` is called once, with its name and its error, if it fails."""
    if isinstance(observer, FeedingObserver):
        return observer.open_feed(failed)
    is_async = inspect.iscoroutinefunction(observer)
    if is_async or inspect.iscoroutinefunction(type(observer).__call__):
        return _TaskFeed(observer, failed)
    return _ThreadFeed(observer, failed)


class ObserverFeed:
    """Passes events to one observer, in order, and reports once if it fails."""

    def __init__(self, observer: Callable[..., Any], failed: Failed) -> None:
        self._observer = observer
        self._failed = failed
        self._said = False

    def say(self, error: Exception) -> None:
        if self._said:
            return
        self._said = True
        kind = type(self._observer).__name__
        name = getattr(self._observer, "__qualname__", kind)
        self._failed(name, error)

    def say_behind(self) -> None:
        hint = "Make it faster, or read the events from the log."
        self.say(StoreError("It does not keep up, and misses events.", code="observer-overflow", hint=hint))


class _TaskFeed(ObserverFeed):
    def __init__(self, observer: Observer, failed: Failed) -> None:
        super().__init__(observer, failed)
        self._queue: asyncio.Queue[Envelope | None] = asyncio.Queue(_PENDING)
        self._task: asyncio.Task[None] | None = None

    def put(self, envelope: Envelope | None) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        try:
            self._queue.put_nowait(envelope)
        except asyncio.QueueFull:
            self.say_behind()

    async def close(self, timeout_s: float) -> None:
        if self._task is not None:
            self.put(None)
            await asyncio.wait([self._task], timeout=timeout_s)
            if not self._task.done():
                self._task.cancel()
                self.say_behind()

    async def _run(self) -> None:
        while (envelope := await self._queue.get()) is not None:
            with Shielded(self.say):
                await self._observer(envelope)


class _ThreadFeed(ObserverFeed):
    def __init__(self, observer: Observer, failed: Failed) -> None:
        super().__init__(observer, failed)
        self._queue: Queue[Envelope | Callable[[], object]] = Queue(_PENDING)
        self._thread: threading.Thread | None = None

    def put(self, envelope: Envelope | Callable[[], object]) -> None:
        if self._thread is None:  # a daemon, because a blocked observer must not keep the process alive
            work = partial(copy_context().run, self._run)
            self._thread = threading.Thread(target=work, name="prowess-observer", daemon=True)
            self._thread.start()
        try:
            self._queue.put_nowait(envelope)
        except Full:
            self.say_behind()

    async def close(self, timeout_s: float) -> None:
        if self._thread is not None:
            loop, seen = asyncio.get_running_loop(), asyncio.Event()
            if self._queue.full():  # the end has to fit, or the thread would wait for it for ever
                with suppress(Empty):
                    self._queue.get_nowait()
                self.say_behind()
            self.put(lambda: loop.call_soon_threadsafe(seen.set))
            try:
                await asyncio.wait_for(seen.wait(), timeout_s)
            except TimeoutError:
                self.say_behind()

    def _run(self) -> None:
        while isinstance(item := self._queue.get(), Envelope):
            with Shielded(self.say):
                self._observer(item)
        with Shielded(lambda _: None):  # the loop may be closed by now
            item()


class Shielded:
    """Context manager that passes exceptions to `failed` and stops them. A cancellation is still raised."""

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        self._failed = failed

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, Exception):
            self._failed(error)
            return True
        return False
