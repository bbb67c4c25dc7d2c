"""Defines a tool (a schema, normalised arguments and one coroutine), and a set of tools that are found by name.

Nothing here decides if a call is allowed. A tool runs only after its call was allowed, within the grant it receives.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from prowess.core.ports import CallGrant, CapabilityRequest
from prowess.core.tool_table import SWITCHED_TOOLS
from prowess.core.values import Outcome, Spawn, ToolCall, ToolSpec
from prowess.errors import ConfigError, ToolRetry
from prowess.tools.function import as_tool
from prowess.tools.schema import Arguments, parse_arguments


class Tool(Protocol):
    @property
    def spec(self) -> ToolSpec: ...

    def normalise(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Returns checked, complete arguments under our own names. Raises ToolRetry with the problem."""
        ...

    async def needs(self, args: Mapping[str, Any]) -> Sequence[CapabilityRequest]: ...

    async def call(self, args: Mapping[str, Any], within: CallGrant) -> Outcome | Spawn: ...


class PlainTool:
    """Base of most tools: one class of arguments, and no extra capabilities to grant."""

    kind: type[Arguments]
    spec: ToolSpec

    def normalise(self, args: Mapping[str, Any]) -> dict[str, Any]:
        return parse_arguments(self.kind, args, self.spec.name).normal()

    async def needs(self, args: Mapping[str, Any]) -> Sequence[CapabilityRequest]:
        return ()


class Tools:
    """Toolset of these tools, always in this order. Plain functions become tools, as with `@prowess.tool`."""

    def __init__(self, *tools: Tool | Callable[..., Any]) -> None:
        self._tools: dict[str, Tool] = {}
        for given in tools:
            if is_toolset(given):
                raise ConfigError(
                    f"Tools was given {type(given).__name__}, which is a set of tools already.",
                    code="tool-invalid",
                    hint="Use it as it is, or make one set of several: Joined(Tools(…), …).",
                )
            tool: Tool = as_tool(given)
            if tool.spec.name in self._tools:
                raise ConfigError(
                    f"There would be two tools '{tool.spec.name}'.",
                    code="tool-duplicate",
                    hint="Give one of them another name: tool(name=…)(function).",
                )
            self._tools[tool.spec.name] = tool

    def specs(self) -> Sequence[ToolSpec]:
        return [tool.spec for tool in self._tools.values()]

    def normalise(self, call: ToolCall) -> ToolCall:
        tool = self._get(call.tool)
        check_storable(call.args)
        return replace(call, args=tool.normalise(call.args))

    async def needs(self, call: ToolCall) -> Sequence[CapabilityRequest]:
        return await self._get(call.tool).needs(call.args)

    async def call(self, call: ToolCall, within: CallGrant) -> Outcome | Spawn:
        return await self._get(call.tool).call(call.args, within)

    def _get(self, name: str) -> Tool:
        tool = self._tools.get(name)
        if tool is None:
            raise no_tool(name, self._tools)
        return tool


def is_toolset(given: object) -> bool:
    """True for an object with the methods of ports.Toolset, false for a class."""
    return not isinstance(given, type) and all(hasattr(given, name) for name in ("specs", "normalise", "needs", "call"))


def no_tool(name: str, known: Collection[str]) -> ToolRetry:
    there = f"There are: {', '.join(known) or 'none'}."
    if name in SWITCHED_TOOLS:
        return ToolRetry(f"{name} is switched off. A person can enable it: tools.enable = ['{name}']. {there}")
    near = difflib.get_close_matches(name, known, n=1)
    meant = f" Did you mean {near[0]}?" if near else ""
    return ToolRetry(f"There is no tool '{name[:80]}'.{meant} {there}")


def check_storable(args: Mapping[str, Any]) -> None:
    """Checks that the arguments can be stored as JSON, because a call is recorded before it is made."""
    try:
        json.dumps(args, allow_nan=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise ToolRetry(f"The arguments are not plain JSON: {error}.") from error
    try:
        json.dumps(args, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ToolRetry("The arguments hold half of a surrogate pair, which is no character.") from None
