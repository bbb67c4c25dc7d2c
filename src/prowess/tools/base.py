"""Defines a tool: a schema, normalised arguments and one coroutine.

Nothing here decides if a call is allowed. A tool runs only after its call was allowed, within the grant it receives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from prowess.core.ports import CallGrant, CapabilityRequest
from prowess.core.values import Outcome, Spawn, ToolSpec
from prowess.errors import ToolRetry

if TYPE_CHECKING:
    from prowess.tools.schema import Arguments

RunPlain = Callable[[Callable[[], Any]], Awaitable[Any]]
RUN_PLAIN: ContextVar[RunPlain] = ContextVar("prowess-run-plain", default=asyncio.to_thread)  # where `def` tools run


class InvalidCall(ToolRetry):
    """Signal for a call that names what is not there, with the names that are there."""

    def __init__(self, why: str, label: str, names: Collection[str]) -> None:
        listed = ", ".join(names)
        super().__init__(f"{why} {label}: {listed}." if names else why)
        self.why = why
        self.label = label
        self.names = names

    def among(self, offered: Collection[str]) -> InvalidCall:
        """Returns the signal without names that the model was never told."""
        return InvalidCall(self.why, self.label, [name for name in self.names if name in offered])


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
        parsed = self.kind.parse(args, self.spec.name)
        return parsed.normal()

    async def needs(self, args: Mapping[str, Any]) -> Sequence[CapabilityRequest]:
        return ()
