"""Ctrl-C comes between two steps of an event loop: the first cancels the work, the second leaves it.

Python raises KeyboardInterrupt wherever the program is. In the middle of a step, a `finally` that waits would hold it
up, and a callback that the loop was about to call would be lost.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Runs work in a loop of its own, as `asyncio.run` does."""
    with asyncio.Runner() as runner:
        return run_interruptible(runner, work)


def run_interruptible(runner: asyncio.Runner, work: Coroutine[Any, Any, T]) -> T:
    """Runs work in the runner's loop. Raises KeyboardInterrupt when Ctrl-C has ended it, and at the second Ctrl-C, also
    if it has not ended. The third is raised in place: a step that does not end keeps the loop from the second."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is not signal.default_int_handler:
        return runner.run(work)
    loop = runner.get_loop()
    task: asyncio.Task[Any] | None = None
    came = acted = 0

    async def watched() -> T:
        nonlocal task
        task = asyncio.current_task()
        return await work

    def note(*_: object) -> None:
        nonlocal came
        came += 1
        if came > 2:
            raise KeyboardInterrupt
        loop.call_soon_threadsafe(act)  # also wakes the loop

    def act() -> None:
        nonlocal acted
        if task is None:  # its first step is the next one
            loop.call_soon(act)
        elif not task.done():
            acted += 1
            if acted > 1:
                raise KeyboardInterrupt
            task.cancel()

    signal.signal(signal.SIGINT, note)
    try:
        result = runner.run(watched())
    except asyncio.CancelledError:
        if acted:
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, before)
    if came > acted:  # in its last step
        raise KeyboardInterrupt
    return result
