"""Parses patterns of calls: `TOOL`, `TOOL(SKILL)`, `TOOL(SKILL, ARGUMENT=VALUE, ARGUMENT=~'PATTERN')`.

`*` in the name of a tool or skill stands for any text. Tools of other systems (`Bash`, `WebFetch`) are accepted, and
stand for all of our tools that do the same. A value with a blank, a comma or a bracket is written in quotes.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from prowess._internal.text import one_line
from prowess.core.findings import visible
from prowess.core.tool_table import ALIASES, ARGUMENTS, TOOLS
from prowess.policy.allowed_tools import canonical_tools
from prowess.policy.globs import match_anything
from prowess.records.trajectory import CallStep

_LONGEST = 2_000
_HEAD = re.compile(r"\s*+([^\s(),='\"]++)\s*+(\()?")
# A value, or a name with `=` or `=~` and its value, and the comma or bracket after it.
_QUOTED = r"'[^'\\]*+(?:\\.[^'\\]*+)*'|\"[^\"\\]*+(?:\\.[^\"\\]*+)*\""  # Python 3.11.2 misreads possessive groups
_NAME = r"[A-Za-z_][\w-]*+"
_ITEM = re.compile(rf"\s*+(?:({_NAME})\s*+(=~?+)\s*+|(?!{_NAME}\s*+=))({_QUOTED}|[^\s,()'\"]++)\s*+([,)])", re.DOTALL)

Search = Callable[[str, str], bool]  # (regular expression, text) -> found


class ArgumentTest(NamedTuple):
    name: str
    value: str
    is_pattern: bool

    def fits(self, args: dict[str, Any], search: Search) -> bool:
        """True if the argument is there and has the value. A value that is no text is compared as JSON."""
        given = args.get(self.name)
        if given is None:
            return False
        text = given if isinstance(given, str) else json.dumps(given, default=str)
        if self.is_pattern:
            return search(self.value, text)
        return text == self.value


class CallPattern(NamedTuple):
    tools: tuple[str, ...]  # names, or globs
    skill: str
    arguments: tuple[ArgumentTest, ...]

    def fits(self, step: CallStep, search: Search) -> bool:
        if not any(match_anything(tool, step.tool) for tool in self.tools):
            return False
        if not match_anything(self.skill, step.skill):
            return False
        return all(test.fits(step.args, search) for test in self.arguments)


def parse_call_pattern(text: str) -> CallPattern:
    """Parses a pattern. ValueError says what is wrong and where."""
    if len(text) > _LONGEST:
        raise ValueError(f"a pattern of calls has at most {_LONGEST} characters")
    head = _HEAD.match(text)
    if head is None:
        raise ValueError(f"{_shown(text)} does not begin with the name of a tool")
    tools = _get_tools(head[1])
    skill = "*"
    tests: list[ArgumentTest] = []
    at = head.end()
    is_open = head[2] is not None
    while is_open:
        item = _ITEM.match(text, at)
        if item is None:
            raise ValueError(f"{_shown(text)}: expected SKILL, NAME=VALUE or NAME=~'PATTERN' at character {at + 1}")
        name = item[1]
        value = _without_quotes(item[3])
        if name is not None:
            _check_argument(name, tools)
            tests.append(ArgumentTest(name, value, item[2] == "=~"))
        elif at == head.end():
            skill = value.rpartition(":")[2]
        else:
            raise ValueError(f"{_shown(text)}: only the first value is a skill; write NAME=VALUE for an argument")
        at = item.end()
        is_open = item[4] == ","
    rest = text[at:].strip()
    if rest:
        raise ValueError(f"{_shown(text)}: {_shown(rest)} at character {at + 1} is too much")
    return CallPattern(tools, skill, tuple(tests))


def _without_quotes(value: str) -> str:
    """Takes the quotes away. A backslash changes the meaning of the quote only, because patterns have many."""
    quote = value[0]
    if quote not in "'\"":
        return value
    return value[1:-1].replace(f"\\{quote}", quote)


def _get_tools(name: str) -> tuple[str, ...]:
    found = canonical_tools(name)
    if found[0] not in TOOLS and "*" not in name:
        near = _nearest(name, [*TOOLS, *ALIASES])
        raise ValueError(f"there is no tool {_shown(name)}{near}")
    return found


def _check_argument(name: str, tools: tuple[str, ...]) -> None:
    known: set[str] = set()
    for tool in tools:
        known.update(ARGUMENTS.get(tool, ()))
    if known and name not in known:
        near = _nearest(name, known)
        raise ValueError(f"{tools[0]} has no argument {_shown(name)}{near}")


def _nearest(name: str, names: Collection[str]) -> str:
    near = difflib.get_close_matches(name, sorted(names), n=1)
    if not near:
        return ""
    return f"; did you mean '{near[0]}'?"


def _shown(text: str) -> str:
    return f"'{visible(one_line(text, 80))}'"
