"""Runs blocking disk work in one thread, in order, so that no event loop blocks.

A ThreadPoolExecutor with one thread takes twice as long per job, which matters for a commit.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class OneThread:
    """Worker thread with a queue. Several event loops may use it. A job is not started if its caller was
    cancelled."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._line: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()  # process that has the thread

    @property
    def is_forked(self) -> bool:
        """True in a process that was forked since the start. It has no copy of the thread."""
        return self._thread is not None and self._pid != os.getpid()

    def ask(self, work: Callable[[], T]) -> asyncio.Future[T]:
        if self._thread is None:
            self._start()
        job = _Job(work)
        self._line.put(job)
        return job.future

    def end(self) -> None:
        """Stops the thread after the jobs in the queue. Call `ask` no more after this."""
        self._line.put(None)

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:  # a daemon, so that a log that was not closed does not keep the process alive
                self._pid = os.getpid()
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while (job := self._line.get()) is not None:
            if not job.future.cancelled():
                with job:
                    job.result = job.work()
            del job  # free its objects before waiting for the next job


class _Job(Generic[T]):
    __slots__ = ("error", "future", "loop", "result", "work")

    def __init__(self, work: Callable[[], T]) -> None:
        self.work = work
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[T] = self.loop.create_future()
        self.result: Any = None
        self.error: BaseException | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        """Reports every exception to the caller, of any kind."""
        self.error = error
        try:
            self.loop.call_soon_threadsafe(self._tell)
        except RuntimeError:  # the loop is closed, so nobody waits for the result
            pass
        return True

    def _tell(self) -> None:
        if self.future.cancelled():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


def without_stop_iteration(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Calls a function. Replaces StopIteration, because it cannot leave a thread: the caller would wait for ever."""
    try:
        return function(*args, **kwargs)
    except StopIteration as error:
        raise RuntimeError("it raised StopIteration") from error
