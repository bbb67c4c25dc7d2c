"""Calls of one reply: read-only neighbours are made at the same time, and their outcomes are recorded in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from prowess.agent.tool_call import BeforeEnd
from prowess.core.values import Outcome, ToolCall


def make_groups(calls: Sequence[ToolCall], is_read_only: Callable[[ToolCall], bool]) -> list[list[ToolCall]]:
    """Groups calls: read-only neighbours form one group, every other call is its own group."""
    groups: list[list[ToolCall]] = []
    was_read_only = False
    for call in calls:
        now_read_only = is_read_only(call)
        if was_read_only and now_read_only:
            groups[-1].append(call)
        else:
            groups.append([call])
        was_read_only = now_read_only
    return groups


async def act_together(
    calls: Sequence[ToolCall], act: Callable[[ToolCall, BeforeEnd | None], Awaitable[Outcome]]
) -> list[Outcome]:
    """Makes calls at the same time. Their outcomes are recorded in their order: `act` awaits the function that it is
    given before it records one. If a call raises (the record is broken), cancels the others and waits for their end
    first."""
    before_end: BeforeEnd | None = None
    tasks: list[asyncio.Task[Outcome]] = []
    for call in calls:
        ended = asyncio.Event()
        work = _act_and_tell(call, act, before_end, ended)
        tasks.append(asyncio.create_task(work))
        before_end = ended.wait
    try:
        return await asyncio.gather(*tasks)
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _act_and_tell(
    call: ToolCall,
    act: Callable[[ToolCall, BeforeEnd | None], Awaitable[Outcome]],
    before_end: BeforeEnd | None,
    ended: asyncio.Event,
) -> Outcome:
    try:
        return await act(call, before_end)
    finally:
        ended.set()
