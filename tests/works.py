"""A session's work on a real workspace, without a kit around it: for tests of single tools."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from prowess.core.ports import CallGrant, Redaction
from prowess.core.values import Decision, Outcome, SessionKey, ToolCall
from prowess.errors import ProwessError, ToolFailed, ToolRetry
from prowess.policy.secrets import Redactor
from prowess.skills.discover import discover
from prowess.skills.load import load
from prowess.stores.memory import MemoryArtifacts
from prowess.tools.base import Tool
from prowess.tools.session_work import SessionWork, WorkBackend, WorkOptions
from prowess.tools.toolset import Tools
from prowess.workspace.executors.local import LocalExecutor
from prowess.workspace.isolation.selftest import DEFAULT_UID
from prowess.workspace.limits import RunLimits
from prowess.workspace.process.client import Processes
from prowess.workspace.scripts.environments import Environments

UID = DEFAULT_UID if os.geteuid() == 0 else None  # whom scripts run as


@asynccontextmanager
async def open_work(
    dir: str, *roots: Path, use: tuple[str, ...] = (), environments: str | None = None
) -> AsyncIterator[SessionWork]:
    """Skills below `roots`, of which some are in use. `environments` is a folder for the packages of scripts."""
    catalog = discover(*roots)
    limits = RunLimits()
    async with Processes() as processes:
        executor = LocalExecutor(processes, uid=UID, limits=limits)
        backend = WorkBackend(
            executor=executor,
            uid=UID,
            limits=limits,
            artifacts=MemoryArtifacts(),
            environments=environments and Environments(environments, processes=processes, environ=os.environ),
        )
        work = SessionWork(SessionKey(session=f"s-{os.urandom(6).hex()}"), WorkOptions(dir=dir), lambda: backend)
        try:
            for name in use:
                await work.load(load(catalog, name))
            yield work
        finally:
            await work.aclose()
            await executor.aclose()


def with_work(dir: str, story: Callable[[SessionWork], Awaitable[Any]], *roots: Path, use: tuple[str, ...] = ()) -> Any:
    async def run() -> Any:
        async with open_work(dir, *roots, use=use) as work:
            return await story(work)

    return asyncio.run(run())


def within(limits: Mapping[str, Any] | None = None, *, redaction: Redaction | None = None, **more: Any) -> CallGrant:
    decision = Decision(verdict="allow", rule="test", why="", limits=dict(limits or {}))
    return CallGrant(decision=decision, redaction=redaction or Redactor({}), **more)


async def call(tool: Tool, args: Mapping[str, Any], given: CallGrant | None = None) -> Outcome:
    """As it would be called once it was allowed: what a tool raises is an outcome, too."""
    tools = Tools(tool)
    try:
        normal = tools.normalise(ToolCall(id="c", tool=tool.spec.name, args=dict(args)))
        assert tools.normalise(normal) == normal, "the normal form is its own normal form"
        outcome = await tools.call(normal, given or within())
    except ToolRetry as error:
        return Outcome(status="failed", code="invalid-call", content=str(error))
    except ToolFailed as error:
        return Outcome(status="failed", code="tool-failed", content=str(error))
    except ProwessError as error:
        return Outcome(status="failed", code=str(error.code), content=error.message, hint=error.hint)
    assert isinstance(outcome, Outcome)
    return outcome
