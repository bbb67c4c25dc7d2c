"""Reads the docstring of a function for a model: its summary, and the text about each parameter."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

_ARGS = re.compile(r"^(?:Args|Arguments|Parameters):\s*$")
_HEADING = re.compile(r"^[A-Z]\w[\w ]*:\s*$")
_GOOGLE = re.compile(r"^\*{0,2}(?P<name>\w++)\s*+(?:\([^)]*+\))?\s*+:\s*+(?P<text>.*)$")
_SPHINX = re.compile(r"^:(?:param|parameter|arg|argument)\s(?P<name>[^:]*+):\s*+(?P<text>.*)$")
_FIELD = re.compile(r"^:\w+")


def summary_of(function: Callable[..., Any]) -> str:
    """First paragraph of the docstring, on one line."""
    lines: list[str] = []
    doc = inspect.getdoc(function) or ""
    for line in doc.strip().splitlines():
        text = line.strip()
        if not text or _ARGS.match(line) or _FIELD.match(text):
            break
        lines.append(text)
    return " ".join(lines)


def parameters_of(function: Callable[..., Any]) -> dict[str, str]:
    """Maps each parameter name to its text in the docstring."""
    doc = inspect.getdoc(function) or ""
    reader = _ParameterReader()
    for line in doc.splitlines():
        reader.read(line)
    return {name: " ".join(filter(None, texts)) for name, texts in reader.found.items()}


class _ParameterReader:
    """Reads a docstring line by line, and collects the texts of the parameters."""

    def __init__(self) -> None:
        self.found: dict[str, list[str]] = {}
        self._in_args = False  # below `Args:`
        self._current = ""  # parameter whose text may go on
        self._margin = 0  # indent of its first line

    def read(self, line: str) -> None:
        text = line.strip()
        indent = len(line) - len(line.lstrip())
        field = _SPHINX.match(text)
        if field is not None and field["name"].strip():
            *_, name = field["name"].split()  # a type may stand before it
            self._begin(name.lstrip("*"), field["text"], indent)
        elif _ARGS.match(line):
            self._in_args = True
            self._current = ""
            self._margin = 0
        elif not text:
            self._current = ""
        elif _FIELD.match(text) or (indent == 0 and _HEADING.match(line)):
            self._end()
        elif self._can_begin(indent) and (entry := _GOOGLE.match(text)):
            self._begin(entry["name"], entry["text"], indent)
        elif self._current and indent > self._margin:
            self.found[self._current].append(text)
        elif indent == 0:
            self._end()

    def _end(self) -> None:
        self._in_args = False
        self._current = ""

    def _can_begin(self, indent: int) -> bool:
        """True if a parameter of `Args:` can begin with this indent."""
        if not self._in_args or indent == 0:
            return False
        return self._margin == 0 or indent <= self._margin

    def _begin(self, name: str, text: str, indent: int) -> None:
        self.found[name] = [text]
        self._current = name
        self._margin = indent
