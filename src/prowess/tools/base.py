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


class Tools:
    """Toolset of these tools, always in this order. Plain functions become tools, as with `@prowess.tool`."""

    def __init__(self, *tools: Tool | Callable[..., Any]) -> None:
        self._tools: dict[str, Tool] = {}
        for given in tools:
            if is_toolset(given):
                message = f"Tools was given {type(given).__name__}, which is a set of tools already."
                hint = "Use it as it is, or make one set of several: Joined(Tools(…), …)."
                raise ConfigError(message, code="tool-invalid", hint=hint)
            tool: Tool = as_tool(given)
            name = tool.spec.name
            if name in self._tools:
                message = f"There would be two tools '{name}'."
                hint = "Give one of them another name: tool(name=…)(function)."
                raise ConfigError(message, code="tool-duplicate", hint=hint)
            self._tools[name] = tool

    def specs(self) -> Sequence[ToolSpec]:
        return [tool.spec for tool in self._tools.values()]

    def normalise(self, call: ToolCall) -> ToolCall:
        tool = self._get(call.tool)
        check_storable(call.args)
        normal = tool.normalise(call.args)
        return replace(call, args=normal)

    async def needs(self, call: ToolCall) -> Sequence[CapabilityRequest]:
        tool = self._get(call.tool)
        return await tool.needs(call.args)

    async def call(self, call: ToolCall, within: CallGrant) -> Outcome | Spawn:
        tool = self._get(call.tool)
        return await tool.call(call.args, within)

    def _get(self, name: str) -> Tool:
        tool = self._tools.get(name)
        if tool is None:
            raise no_tool(name, self._tools)
        return tool


def is_toolset(given: object) -> bool:
    """True for an object with the methods of ports.Toolset, false for a class."""
    if isinstance(given, type):
        return False
    return all(hasattr(given, name) for name in ("specs", "normalise", "needs", "call"))


def no_tool(name: str, known: Collection[str]) -> ToolRetry:
    """Signal for a tool that is not there, with a similar name and the names that are there."""
    names = ", ".join(known) or "none"
    there = f"There are: {names}."
    if name in SWITCHED_TOOLS:
        return ToolRetry(f"{name} is switched off. A person can enable it: tools.enable = ['{name}']. {there}")
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        there = f"Did you mean {near[0]}? {there}"
    return ToolRetry(f"There is no tool '{name[:80]}'. {there}")


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
