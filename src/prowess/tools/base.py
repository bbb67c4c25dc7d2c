"""A tool is a schema, a normal form for its arguments, and one coroutine; a set of tools is found by name.

Nothing here decides whether a call may be made: a tool that is called has been allowed, within exactly what it is
given.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from prowess.errors import ToolRetry
from prowess.ports import Need, Within
from prowess.values import Outcome, Spawn, ToolCall, ToolSpec


class Tool(Protocol):
    @property
    def spec(self) -> ToolSpec: ...

    def normalise(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """By our own names, complete and checked. ToolRetry says what is wrong."""
        ...

    async def needs(self, args: Mapping[str, Any]) -> Sequence[Need]: ...

    async def call(self, args: Mapping[str, Any], within: Within) -> Outcome | Spawn: ...


class Tools:
    """A Toolset of these tools, always in this order."""

    def __init__(self, *tools: Tool) -> None:
        self._tools = {tool.spec.name: tool for tool in tools}

    def specs(self) -> Sequence[ToolSpec]:
        return [tool.spec for tool in self._tools.values()]

    def normalise(self, call: ToolCall) -> ToolCall:
        tool = self._get(call.tool)
        refuse_unstorable(call.args)
        return replace(call, args=tool.normalise(call.args))

    async def needs(self, call: ToolCall) -> Sequence[Need]:
        return await self._get(call.tool).needs(call.args)

    async def call(self, call: ToolCall, within: Within) -> Outcome | Spawn:
        return await self._get(call.tool).call(call.args, within)

    def _get(self, name: str) -> Tool:
        tool = self._tools.get(name)
        if tool is None:
            near = difflib.get_close_matches(name, self._tools, n=1)
            meant = f" Did you mean {near[0]}?" if near else ""
            raise ToolRetry(f"There is no tool '{name[:80]}'.{meant} There are: {', '.join(self._tools) or 'none'}.")
        return tool


def refuse_unstorable(args: Mapping[str, Any]) -> None:
    """A call is written down before it is made, so what cannot be written down cannot be called."""
    try:
        json.dumps(args, allow_nan=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise ToolRetry(f"The arguments are not plain JSON: {error}.") from error
    try:
        json.dumps(args, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ToolRetry("The arguments hold half of a surrogate pair, which is no character.") from None
