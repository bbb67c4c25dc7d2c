"""A kit as `prowess exec` opens it, on the executors that this machine has."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from prowess.agent.toolkit import Toolkit
from prowess.core.events import ApprovalAnswered, Envelope
from prowess.core.values import ChainHead, Decision, SessionKey, ToolCall
from prowess.runtime.runtime import open_runtime
from prowess.stores.memory import MemoryEventLog
from prowess.stores.sqlite import SqliteEventLog


async def answer_later(path: Path, key: SessionKey, run: str, event: ApprovalAnswered) -> None:
    """As `prowess approvals answer` writes it, by this user's home."""
    log = SqliteEventLog(path)
    lease, head = await log.lease(key, owner="somebody at another screen"), await log.head(key)
    event = replace(event, later=True)
    envelope = Envelope(at="2026-01-01T00:00:00.000000Z", session=key.session, run=run, event=event)
    await log.append(key, head.seq, lease, [envelope])
    await log.close()


class StuckLog(MemoryEventLog):
    """Begins work that nothing ends, until `end` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.end = threading.Event()

    async def head(self, key: SessionKey) -> ChainHead:
        asyncio.get_running_loop().run_in_executor(None, self.end.wait)
        return await super().head(key)


async def yes(call: ToolCall, decision: Decision) -> ApprovalAnswered:
    return ApprovalAnswered(call_id=call.id, answer="once", by="test")


@asynccontextmanager
async def open_kit(
    root: Path,
    *,
    executor: str = "auto",
    settings: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    load: str | None = "demo",
    **options: Any,
) -> AsyncIterator[Toolkit]:
    """The skills below `root`, one of them loaded. Whatever asks is told yes, unless there is another approver."""
    flags = {"workspace.executor": executor, "store": "memory:", "artifacts": "memory:", **(settings or {})}
    with open_runtime(
        cwd=str(root), environ={**os.environ, **(environ or {})}, roots=[str(root)], flags=flags
    ) as runtime:
        async with runtime.open_kit(**{"approver": yes, **options}) as kit:
            if load is not None:
                await kit.activate(load)
            yield kit


def with_kit(root: Path, work: Callable[[Toolkit], Awaitable[Any]], **given: Any) -> Any:
    async def run() -> Any:
        async with open_kit(root, **given) as kit:
            return await work(kit)

    return asyncio.run(run())
