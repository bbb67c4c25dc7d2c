"""Does work concurrently: never more than a number of slots at a time, and never more than a cap on cost allows.

The worst case of a piece of work is reserved before it starts, and settled when it ends.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Generic, NamedTuple, TypeVar

Work = TypeVar("Work")
Result = TypeVar("Result")


class CostCap(Generic[Work]):
    """Money that all work may cost together. Without `most`, everything fits. `worst` gives the most that a piece can
    cost, if that is known."""

    def __init__(self, most: float | None, worst: Callable[[Work], float | None]) -> None:
        self.most = most
        self.spent = 0.0
        self._worst = worst
        self._reserved = 0.0
        self._seen = 0
        self._highest = 0.0

    def reserve(self, work: Work) -> float | None:
        """Reserves the worst case: the known one, else twice the highest cost so far. As long as few costs are known,
        an equal share for each of them and one more: the first piece has everything for itself. Returns it, or None
        if it does not fit."""
        if self.most is None:
            return 0.0
        left = self.most - self.spent - self._reserved
        worst = self._worst(work)
        if worst is None:
            worst = max(2 * self._highest, (self.most - self.spent) / (self._seen + 1))
        if left <= 0 or worst > left:
            return None
        self._reserved += worst
        return worst

    def settle(self, reserved: float, cost: float) -> None:
        self._reserved -= reserved
        self.spent += cost
        self._seen += 1
        self._highest = max(self._highest, cost)


class WorkState(NamedTuple):
    """State of the work: `rate` is per second, `remaining_s` is an estimate."""

    done: int
    total: int
    rate: float
    remaining_s: float


class WorkMeter:
    """Counts finished work. What was finished before this process began has no share in the rate."""

    def __init__(self, total: int, before: int) -> None:
        self.done = before
        self._total = total
        self._before = before
        self._began = time.monotonic()

    def step(self) -> WorkState:
        """Counts a piece of work that has ended."""
        self.done += 1
        seconds = time.monotonic() - self._began
        rate = (self.done - self._before) / max(seconds, 1e-9)
        remaining_s = (self._total - self.done) / rate
        return WorkState(self.done, self._total, rate, remaining_s)


async def do_all(
    todo: deque[Work],
    do: Callable[[Work], Awaitable[Result]],
    *,
    slots: int,
    cap: CostCap[Work],
    cost: Callable[[Result], float],
) -> AsyncGenerator[tuple[Work, Result], None]:
    """Takes work and yields its results, in the order in which they end. What the cap does not allow stays."""
    running: dict[asyncio.Future[Result], tuple[Work, float]] = {}
    try:
        while todo or running:
            while todo and len(running) < slots:
                reserved = cap.reserve(todo[0])
                if reserved is None:
                    break
                work = todo.popleft()
                future = asyncio.ensure_future(do(work))
                running[future] = work, reserved
            if not running:
                return
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                work, reserved = running.pop(ended)
                result = ended.result()
                cap.settle(reserved, cost(result))
                yield work, result
    finally:
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)
