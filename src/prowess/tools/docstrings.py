"""What a docstring says to a model: its first paragraph, and a word about each parameter.

`Args:` in the style of Google, and `:param name:`; whatever else it holds is for people.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

_ARGS = re.compile(r"^(?:Args|Arguments|Parameters):\s*$")
_HEADING = re.compile(r"^[A-Z]\w[\w ]*:\s*$")
_GOOGLE = re.compile(r"^\*{0,2}(?P<name>\w++)\s*+(?:\([^)]*+\))?+\s*+:\s*+(?P<text>.*)$")
_SPHINX = re.compile(r"^:(?:param|parameter|arg|argument)\s(?P<name>[^:]*+):\s*+(?P<text>.*)$")
_FIELD = re.compile(r"^:\w+")


def summary_of(function: Callable[..., Any]) -> str:
    """Its first paragraph, on one line."""
    lines: list[str] = []
    for line in (inspect.getdoc(function) or "").strip().splitlines():
        if not line.strip() or _ARGS.match(line) or _FIELD.match(line.strip()):
            break
        lines.append(line.strip())
    return " ".join(lines)


def parameters_of(function: Callable[..., Any]) -> dict[str, str]:
    """Name -> what it says about it."""
    found: dict[str, list[str]] = {}
    in_args, current, margin = False, "", 0
    for line in (inspect.getdoc(function) or "").splitlines():
        text, indent = line.strip(), len(line) - len(line.lstrip())
        if (field := _SPHINX.match(text)) and field["name"].strip():
            current, margin = field["name"].split()[-1].lstrip("*"), indent  # a type may stand before it
            found[current] = [field["text"]]
        elif _ARGS.match(line):
            in_args, current, margin = True, "", 0
        elif not text or _FIELD.match(text) or (indent == 0 and _HEADING.match(line)):
            in_args = in_args and not text
            current = ""
        elif in_args and indent and (not margin or indent <= margin) and (entry := _GOOGLE.match(text)):
            current, margin = entry["name"], indent
            found[current] = [entry["text"]]
        elif current and indent > margin:
            found[current].append(text)
        elif indent == 0:
            in_args, current = False, ""
    return {name: " ".join(filter(None, texts)) for name, texts in found.items()}
