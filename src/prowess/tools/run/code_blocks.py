"""Fenced code in an answer, read as calls of skill_run, for models that write code instead of calling tools.

Only where somebody switched that on, only shell and Python, and only for a skill in use: what is found here is a call
like any other, decided about like any other. What is not run is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

_SHELL = ("bash", "sh", "shell")
_PYTHON = ("python", "py", "python3")
_FENCE = re.compile(r"(?P<indent>[ \t]*+)(?P<fence>`{3,}+|~{3,}+)[ \t]*+(?P<info>.*)")
_ITEM = re.compile(r"(?P<lead>[ \t]*+(?:[-*+]|\d{1,9}[.)])[ \t]++)(?P<rest>.*)")
_MOST_INDENT = 3  # what is indented further is a quotation of code


class Block(NamedTuple):
    language: str
    code: str
    line: int  # where it begins
    closed: bool


def find_code_calls(text: str, *, skill: str | None) -> list[dict[str, Any]]:
    """The arguments of skill_run for each block, in order; none when no skill is in use."""
    if skill is None:
        return []
    return [_arguments(block, skill) for block in _runnable(text) if block.closed]


def find_code_notes(text: str, *, skill: str | None) -> list[str]:
    """What was not run, and why."""
    notes: list[str] = []
    blocks = list(_runnable(text))
    if skill is None and any(block.closed for block in blocks):
        notes.append(
            "The code in your answer was not run: code is run for a loaded skill, and none is loaded. Load one first."
        )
    notes += [
        f"The {block.language} block at line {block.line} of your answer has no end, and was not run."
        for block in blocks
        if not block.closed
    ]
    return notes


def find_blocks(text: str) -> Iterator[Block]:
    """Every fenced block, as CommonMark reads them: ``` or ~~~, also in a list; what is inside one is only its text."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    at, column = 0, 0  # `column`: where the text of the list item begins that we are in
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
        begins, indent = at, _indent(line)
        while at < len(lines) and not _closes(lines[at], fence, indent):
            at += 1
        code = "".join(f"{_without(line, indent)}\n" for line in lines[begins:at])
        yield Block(language, code, begins, closed=at < len(lines))
        at += 1


def _runnable(text: str) -> Iterator[Block]:
    return (block for block in find_blocks(text) if block.language in (*_SHELL, *_PYTHON) and block.code.strip())


def _arguments(block: Block, skill: str) -> dict[str, Any]:
    if block.language in _SHELL:
        return {"skill": skill, "command": block.code}
    return {"skill": skill, "command": "python3 -", "stdin": block.code}


def _opened(line: str, column: int) -> tuple[str, str] | None:
    """(fence, language), when a block begins here."""
    found = _FENCE.fullmatch(line)
    if found is None or len(found["indent"]) - column > _MOST_INDENT:
        return None
    if found["fence"][0] == "`" and "`" in found["info"]:
        return None  # code within a line
    words = found["info"].split()
    return found["fence"], words[0].lower() if words else ""


def _closes(line: str, fence: str, indent: int) -> bool:
    text = line.expandtabs(4)
    end = text.strip()
    return len(end) >= len(fence) and set(end) == {fence[0]} and _indent(text) <= indent + _MOST_INDENT


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _without(line: str, indent: int) -> str:
    """As far as it is indented like its fence."""
    taken = 0
    while taken < indent and line[taken : taken + 1] == " ":
        taken += 1
    return line[taken:]
