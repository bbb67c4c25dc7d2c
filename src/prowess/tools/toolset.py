"""Sets of tools that are found by name, and wrappers that select tools, rename them and join sets.

    Only(Prefixed(tools, "pdf_"), names=["pdf_read"])

Callers see and use only the outer names. The inner tool gets the call under its own name.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any, NamedTuple, TypeGuard

from prowess.core.codec import from_json, to_json
from prowess.core.ports import CallGrant, CapabilityRequest, Toolset
from prowess.core.tool_table import SWITCHED_TOOLS
from prowess.core.values import Outcome, Spawn, ToolCall, ToolSpec
from prowess.errors import ConfigError, ToolFailed, ToolRetry
from prowess.tools.base import InvalidCall, Tool

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Tools:
    """Toolset of these tools, always in this order. Plain functions become tools, as with `@prowess.tool`."""

    def __init__(self, *tools: Tool | Callable[..., Any]) -> None:
        self._tools: dict[str, Tool] = {}
        for given in tools:
            if is_toolset(given):
                message = f"Tools was given {type(given).__name__}, which is a set of tools already."
                hint = "Use it as it is, or make one set of several: Joined(Tools(…), …)."
                raise ConfigError(message, code="tool-invalid", hint=hint)
            tool: Tool = given if is_tool(given) else _make_tool(given)
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


def _make_tool(given: object) -> Tool:
    function = import_module("prowess.tools.function")  # it needs pydantic, and `prowess exec` has no function
    return function.as_tool(given)


def is_tool(given: object) -> TypeGuard[Tool]:
    """True for an object with the methods of a Tool, false for a class."""
    if isinstance(given, type):
        return False
    return all(hasattr(given, name) for name in ("spec", "normalise", "needs", "call"))


def is_toolset(given: object) -> bool:
    """True for an object with the methods of ports.Toolset, false for a class."""
    if isinstance(given, type):
        return False
    return all(hasattr(given, name) for name in ("specs", "normalise", "needs", "call"))


def no_tool(name: str, known: Collection[str]) -> ToolRetry:
    """Signal for a tool that is not there, with a similar name and the names that are there."""
    why = f"There is no tool '{name[:80]}'."
    if name in SWITCHED_TOOLS:
        why = f"{name} is switched off. A person can enable it: tools.enable = ['{name}']."
    elif near := difflib.get_close_matches(name, known, n=1):
        why = f"{why} Did you mean {near[0]}?"
    return InvalidCall(why, TOOLS_LABEL, list(known))


TOOLS_LABEL = "There are"


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


class _Way(NamedTuple):
    """Route to one tool: its spec with the outer name, its toolset, and its inner name."""

    spec: ToolSpec
    tools: Toolset
    inner: str


class _Routed:
    """Toolset that maps each outer name to an inner toolset and name."""

    def __init__(self, ways: Iterable[_Way]) -> None:
        self._ways: dict[str, _Way] = {}
        for way in ways:
            name = way.spec.name
            if name in self._ways:
                raise _duplicate(name, self._ways[name], way)
            self._ways[name] = way

    def specs(self) -> Sequence[ToolSpec]:
        return [way.spec for way in self._ways.values()]

    def normalise(self, call: ToolCall) -> ToolCall:
        way = self._get(call.tool)
        inner = replace(call, tool=way.inner)
        try:
            normal = way.tools.normalise(inner)
        except ToolRetry as error:
            raise _by_outer_name(error, way) from error
        return replace(normal, id=call.id, tool=call.tool, trigger=call.trigger)

    async def needs(self, call: ToolCall) -> Sequence[CapabilityRequest]:
        way = self._get(call.tool)
        inner = replace(call, tool=way.inner)
        try:
            return await way.tools.needs(inner)
        except ToolRetry as error:
            raise _by_outer_name(error, way) from error

    async def call(self, call: ToolCall, within: CallGrant) -> Outcome | Spawn:
        way = self._get(call.tool)
        inner = replace(call, tool=way.inner)
        try:
            return await way.tools.call(inner, within)
        except (ToolRetry, ToolFailed) as error:
            raise _by_outer_name(error, way) from error

    def _get(self, name: str) -> _Way:
        way = self._ways.get(name)
        if way is None:
            raise no_tool(name, self._ways)
        return way


class Only(_Routed):
    """Toolset with only the named tools, in their original order."""

    def __init__(self, tools: Toolset, *, names: Collection[str]) -> None:
        wanted = [names] if isinstance(names, str) else list(names)
        specs = tools.specs()
        _check_known(wanted, specs, "Only")
        kept = [spec for spec in specs if spec.name in wanted]
        super().__init__(_Way(spec, tools, spec.name) for spec in kept)


class Prefixed(_Routed):
    """Toolset with a prefix before every name."""

    def __init__(self, tools: Toolset, prefix: str) -> None:
        ways: list[_Way] = []
        for spec in tools.specs():
            name = f"{prefix}{spec.name}"
            ways.append(_way(spec, tools, name))
        super().__init__(ways)


class Renamed(_Routed):
    """Toolset with some tools renamed: {"old": "new"}."""

    def __init__(self, tools: Toolset, names: Mapping[str, str]) -> None:
        specs = tools.specs()
        _check_known(names, specs, "Renamed")
        ways: list[_Way] = []
        for spec in specs:
            name = names.get(spec.name, spec.name)
            ways.append(_way(spec, tools, name))
        super().__init__(ways)


class Joined(_Routed):
    """Several toolsets as one, in this order."""

    def __init__(self, *toolsets: Toolset) -> None:
        ways: list[_Way] = []
        for tools in toolsets:
            for spec in tools.specs():
                ways.append(_Way(spec, tools, spec.name))
        super().__init__(ways)


def _way(spec: ToolSpec, tools: Toolset, name: str) -> _Way:
    """Route to a tool under another name."""
    if not _NAME.fullmatch(name):
        message = f"'{name[:100]}' cannot be the name of a tool."
        hint = "Use at most 64 letters, digits, _ and -."
        raise ConfigError(message, code="tool-name", hint=hint)
    outer = replace(spec, name=name)
    return _Way(outer, tools, spec.name)


def _check_known(names: Iterable[str], specs: Sequence[ToolSpec], where: str) -> None:
    real = [spec.name for spec in specs]
    for name in names:
        if name in real:
            continue
        message = f"{where} names an unknown tool '{name[:80]}'."
        there = ", ".join(real) or "none"
        hint = f"There are: {there}"
        near = difflib.get_close_matches(name, real, n=1)
        if near:
            hint = f"Did you mean '{near[0]}'? {hint}"
        raise ConfigError(message, code="tool-unknown", hint=hint)


def _duplicate(name: str, one: _Way, other: _Way) -> ConfigError:
    if one.tools is other.tools:
        which = f"'{one.inner}' and '{other.inner}' would both have this name"
    else:
        which = f"{_described(one)} and {_described(other)} both have one with this name"
    message = f"There would be two tools '{name}': {which}."
    hint = "Give one of them another name with Renamed or Prefixed, or leave it out with Only."
    return ConfigError(message, code="tool-duplicate", hint=hint)


def _described(way: _Way) -> str:
    """Toolset of a route, with its first tools: `Tools(read, write)`."""
    names = [spec.name for spec in way.tools.specs()]
    if len(names) > 4:
        names = [*names[:4], "…"]
    listed = ", ".join(names)
    kind = type(way.tools).__name__
    return f"{kind}({listed})"


def _by_outer_name(error: ToolRetry | ToolFailed, way: _Way) -> ToolRetry | ToolFailed:
    """Replaces the inner name at the start of an error message by the outer name."""
    inner = f"{way.inner}: "
    outer = f"{way.spec.name}: "
    if isinstance(error, InvalidCall) and error.why.startswith(inner):
        return InvalidCall(outer + error.why.removeprefix(inner), error.label, error.names)
    text = str(error)
    if not text.startswith(inner):
        return error
    kind = ToolRetry if isinstance(error, ToolRetry) else ToolFailed
    return kind(outer + text.removeprefix(inner))


# --- outcomes ---------------------------------------------------------------------------------------------------------


def find_problem(call: ToolCall, outcome: Outcome) -> str | None:
    """Returns what a person should know of a call: their part did not work."""
    if call.tool == "ask_user":
        return outcome.data.get("problem")
    return outcome.content if outcome.code == "tool-result" else None


def check_outcome(call: ToolCall, outcome: Outcome) -> Outcome:
    """Returns the outcome, or a failure in its place if no record could hold it, or if it has no files where files of
    a run are read. Tools of others are foreign code."""
    try:
        text = json.dumps(to_json(outcome), allow_nan=False)
        _check_files(from_json(Outcome, json.loads(text)).data)
        return outcome
    except (TypeError, ValueError, RecursionError) as error:
        content = f"{call.tool} returned an Outcome that cannot be recorded: {error}"
    hint = "This is a mistake in the tool, not in the call."
    return Outcome(status="failed", code="tool-result", content=content[:2000], hint=hint)


def _check_files(data: Mapping[str, Any]) -> None:
    for name in ("output_files", "left_out", "staged_inputs", "artifact_files"):
        rows = data.get(name, [])
        is_list = isinstance(rows, list)
        if is_list and name == "output_files":
            is_list = all(isinstance(row, dict) and {"name", "mime_type", "size_bytes"} <= row.keys() for row in rows)
        if is_list and name == "left_out":
            is_list = all(isinstance(row, str) for row in rows)
        if not is_list:
            raise TypeError(f"data[{name!r}] is no list of files.")
