"""Work under a cap on cost: what is not known yet does not let much run at once."""

from __future__ import annotations

import asyncio
from collections import deque

from prowess._internal.capped_work import CostCap, do_all


def most_at_once(costs: list[float], most: float) -> tuple[int, float]:
    """Runs work with these costs in 8 slots. Returns how many pieces were under way at a time, and the cost."""
    cap, under_way, highest = CostCap[float](most, lambda work: None), 0, 0

    async def do(work: float) -> float:
        nonlocal under_way, highest
        under_way += 1
        highest = max(highest, under_way)
        for _ in range(3):
            await asyncio.sleep(0)
        under_way -= 1
        return work

    async def main() -> None:
        async for _ in do_all(deque(costs), do, slots=8, cap=cap, cost=lambda done: done):
            pass

    asyncio.run(main())
    return highest, cap.spent


def test_a_cheap_first_piece_does_not_open_all_slots() -> None:
    assert most_at_once([2**-10, *[1.0] * 20], 0.5) == (2, 2.0 + 2**-10)
    assert most_at_once([0.0, *[1.0] * 20], 1.5) == (2, 2.0)


def test_all_slots_are_used_when_costs_are_known() -> None:
    highest, spent = most_at_once([0.01] * 40, 100.0)
    assert highest == 8 and round(spent, 6) == 0.4
