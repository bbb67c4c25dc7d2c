"""Event loop in a thread of its own. Any thread and any other loop may hand it work and wait for the result.

The work runs with the context variables of whoever hands it over. Whoever stops waiting cancels the work, and goes on
when the work has ended.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from prowess.errors import ConfigError

T = TypeVar("T")
END_S = 5.0  # for the work that is left at the end


class LoopThread:
    """Loop and thread, started by the first work. `close` ends both."""

    def __init__(self, name: str) -> None:
        self.pid = os.getpid()  # process that has the thread
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_forked(self) -> bool:
        """True in a process that was forked since the start. It has no copy of the thread."""
        return self._loop is not None and self.pid != os.getpid()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Loop, which is started if needed."""
        with self._lock:
            if self._loop is None:
                self.pid = os.getpid()
                loop = asyncio.new_event_loop()
                thread = threading.Thread(target=_serve, args=(loop,), name=self._name, daemon=True)
                thread.start()
                self._loop, self._thread = loop, thread
            return self._loop

    @property
    def is_gone(self) -> bool:
        """True when nothing can run here any more: in a forked process, and while Python ends."""
        return self.is_forked or sys.is_finalizing()

    def run(self, work: Coroutine[Any, Any, T], wait: Callable[[Future[None]], None] = Future.result) -> T:
        """Waits in the calling thread. Ctrl-C cancels the work, and is raised when the work has ended. `wait` may do
        something else meanwhile, until its future is done."""
        if sys.is_finalizing():  # a thread would not start, and this one wait for ever
            work.close()
            hint = "Make it before the program ends, not in `__del__`."
            raise ConfigError("Python is ending, so no call can be made.", code="python-ending", hint=hint)
        if threading.current_thread() is self._thread:
            work.close()
            message = "The loop that makes this call cannot wait for itself."
            raise ConfigError(message, code="loop-running", hint="Use the async form, such as await agent.run(…).")
        handed = _Handed(self.loop, work)
        try:
            wait(handed.ended)
        finally:
            if not handed.ended.done():
                handed.cancel()
                wait(handed.ended)
        return handed.result()

    async def carry(self, work: Coroutine[Any, Any, T]) -> T:
        """Waits in the calling loop. A cancellation is raised when the work has ended."""
        return await carry_to(self.loop, work)

    def close(self) -> bool:
        """Cancels the work that is left, closes what belongs to the loop, and ends the thread. False if it has not
        ended after five seconds: something that was cancelled goes on."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None or self.pid != os.getpid():
            return True
        loop.call_soon_threadsafe(loop.stop)
        if thread is threading.current_thread():
            return True
        thread.join(END_S)
        return not thread.is_alive()


async def carry_to(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Runs the work in that loop, and waits in this one. A cancellation is raised when the work has ended."""
    if asyncio.get_running_loop() is loop:
        return await work
    handed = _Handed(loop, work)
    ended = asyncio.wrap_future(handed.ended)
    try:
        await asyncio.shield(ended)
    finally:
        if not ended.done():
            handed.cancel()
            await asyncio.shield(ended)
    return handed.result()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        while not _run(loop):
            pass
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


def _run(loop: asyncio.AbstractEventLoop) -> bool:
    """Runs the loop. False if a task raised SystemExit or KeyboardInterrupt, which ends a loop: whoever waits for that
    task gets it, and all others go on."""
    try:
        loop.run_forever()
    except (SystemExit, KeyboardInterrupt):
        return False
    return True


class _Handed(Generic[T]):
    """Work that was handed to a loop. `ended` is set when nothing of it runs any more."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> None:
        self.ended: Future[None] = Future()
        self._loop = loop
        self._work = work
        self._task: asyncio.Task[T] | None = None
        try:
            loop.call_soon_threadsafe(self._start)  # with a copy of the caller's context
        except RuntimeError:  # the loop is closed
            work.close()
            raise

    def _start(self) -> None:
        self._task = self._loop.create_task(self._work)
        self._task.add_done_callback(lambda _: self.ended.set_result(None))

    def cancel(self) -> None:
        self._loop.call_soon_threadsafe(self._cancel)  # after the start: calls keep their order

    def _cancel(self) -> None:
        assert self._task is not None
        self._task.cancel()

    def result(self) -> T:
        assert self._task is not None
        return self._task.result()


_SHARED: list[LoopThread] = []
_SHARED_LOCK = threading.Lock()


def shared_loop() -> LoopThread:
    """Returns the loop thread that every `run_sync` of this process uses. It ends with the process."""
    with _SHARED_LOCK:
        if not _SHARED or _SHARED[0].pid != os.getpid():
            _SHARED[:] = [LoopThread("prowess-run-sync")]
            atexit.register(_SHARED[0].close)
        return _SHARED[0]
