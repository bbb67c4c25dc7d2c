"""Defines a tool: a schema, normalised arguments and one coroutine.

Nothing here decides if a call is allowed. A tool runs only after its call was allowed, within the grant it receives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Protocol

from prowess.core.ports import CallGrant, CapabilityRequest
from prowess.core.values import Outcome, Spawn, ToolSpec
from prowess.tools.schema import Arguments, parse_arguments

RunPlain = Callable[[Callable[[], Any]], Awaitable[Any]]
RUN_PLAIN: ContextVar[RunPlain] = ContextVar("prowess-run-plain", default=asyncio.to_thread)  # where `def` tools run


class Tool(Protocol):
    @property
    def spec(self) -> ToolSpec: ...

    def normalise(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Returns checked, complete arguments under our own names. Raises ToolRetry with the problem."""
        ...

    async def needs(self, args: Mapping[str, Any]) -> Sequence[CapabilityRequest]:
        """Returns what must be granted besides the call, such as installing packages."""
        ...

    async def call(self, args: Mapping[str, Any], within: CallGrant) -> Outcome | Spawn:
        """Carries out a call that was allowed. Raises ToolRetry or ToolFailed with the problem."""
        ...


class PlainTool:
    """Base of most tools: one class of arguments, and no extra capabilities to grant."""

    kind: type[Arguments]
    spec: ToolSpec

    def normalise(self, args: Mapping[str, Any]) -> dict[str, Any]:
        parsed = parse_arguments(self.kind, args, self.spec.name)
        return parsed.normal()

    async def needs(self, args: Mapping[str, Any]) -> Sequence[CapabilityRequest]:
        return ()
