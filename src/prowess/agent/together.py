"""Calls that may be made at the same time, and how to make them so that none is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from prowess.core.values import Outcome, ToolCall


def make_groups(calls: Sequence[ToolCall], is_read_only: Callable[[ToolCall], bool]) -> list[list[ToolCall]]:
    """Neighbours that only read are one group, every other call is one of its own."""
    groups: list[list[ToolCall]] = []
    for call in calls:
        if groups and is_read_only(call) and is_read_only(groups[-1][-1]):
            groups[-1].append(call)
        else:
            groups.append([call])
    return groups


async def together(work: Sequence[Awaitable[Outcome]]) -> list[Outcome]:
    """When one of them cannot be recorded, the others end before that is raised."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
