"""Turns fenced code in an answer into calls of skill_run, for models that write code instead of calling tools.

This happens only if it is enabled, only for shell and Python, and only while a skill is in use. Policy decides these
calls like any other call. Notes tell the model which code was not run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

_SHELL = ("bash", "sh", "shell")
_RUNNABLE = (*_SHELL, "python", "py", "python3")
_FENCE = re.compile(r"(?P<indent>[ \t]*+)(?P<fence>`{3,}+|~{3,}+)[ \t]*+(?P<info>.*)")
_ITEM = re.compile(r"(?P<lead>[ \t]*+(?:[-*+]|\d{1,9}[.)])[ \t]++)(?P<rest>.*)")
_MOST_INDENT = 3  # a fence with more indent is quoted code


class Block(NamedTuple):
    language: str
    code: str
    line: int  # first line
    closed: bool


def find_code_calls(text: str, *, skill: str | None) -> list[dict[str, Any]]:
    """Returns the skill_run arguments of each block, in order. Empty if no skill is in use."""
    if skill is None:
        return []
    return [_arguments(block, skill) for block in _runnable(text) if block.closed]


def find_code_notes(text: str, *, skill: str | None) -> list[str]:
    """Returns notes about code that was not run, with the reason."""
    notes: list[str] = []
    for block in _runnable(text):
        if not block.closed:
            notes.append(f"The {block.language} block at line {block.line} of your answer has no end, and was not run.")
        elif skill is None and _NO_SKILL not in notes:
            notes.insert(0, _NO_SKILL)
    return notes


_NO_SKILL = "The code in your answer was not run: code is run for a loaded skill, and none is loaded. Load one first."


def find_blocks(text: str) -> Iterator[Block]:
    """Yields every fenced block (``` or ~~~, also in lists) as CommonMark does. Fences inside a block are text."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    at = 0
    column = 0  # start of the text in the current list item
    while at < len(lines):
        line = lines[at].expandtabs(4)
        item = _ITEM.fullmatch(line)
        if item is not None:
            column = len(item["lead"])
            line = " " * column + item["rest"]
        elif line.strip() and _indent(line) < column:
            column = 0
        opened = _opened(line, column)
        at += 1
        if opened is None:
            continue
        fence, language = opened
        begins = at
        indent = _indent(line)
        while at < len(lines) and not _closes(lines[at], fence, indent):
            at += 1
        code = "".join(f"{_without(line, indent)}\n" for line in lines[begins:at])
        yield Block(language, code, begins, closed=at < len(lines))
        at += 1


def _runnable(text: str) -> Iterator[Block]:
    for block in find_blocks(text):
        if block.language in _RUNNABLE and block.code.strip():
            yield block


def _arguments(block: Block, skill: str) -> dict[str, Any]:
    arguments: dict[str, Any] = {"skill": skill}
    if block.language in _SHELL:
        arguments["command"] = block.code
    else:
        arguments["command"] = "python3 -"
        arguments["stdin"] = block.code
    return arguments


def _opened(line: str, column: int) -> tuple[str, str] | None:
    """Returns (fence, language) if a block begins on this line."""
    found = _FENCE.fullmatch(line)
    if found is None:
        return None
    indent, fence, info = found.groups()
    if len(indent) - column > _MOST_INDENT:
        return None
    if fence[0] == "`" and "`" in info:
        return None  # inline code
    words = info.split()
    language = words[0].lower() if words else ""
    return fence, language


def _closes(line: str, fence: str, indent: int) -> bool:
    """True for a line of at least as many fence characters, and nothing else."""
    text = line.expandtabs(4)
    if _indent(text) > indent + _MOST_INDENT:
        return False
    end = text.strip()
    return len(end) >= len(fence) and set(end) == {fence[0]}


def _indent(line: str) -> int:
    text = line.lstrip(" ")
    return len(line) - len(text)


def _without(line: str, indent: int) -> str:
    """Removes the indent of the fence from a line."""
    taken = 0
    while taken < indent and line[taken : taken + 1] == " ":
        taken += 1
    return line[taken:]
