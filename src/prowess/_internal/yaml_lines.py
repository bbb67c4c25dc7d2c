"""Reads JSON, and YAML limited to the values of JSON, and knows the line of every value.

No anchors, aliases or tags; `no` and `2024-01-01` are texts. A key that is there twice is a fault.
Built from the parser's events, so that nothing is expanded and nothing recurses.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from prowess._internal.files import read_regular

MAX_DEPTH = 50
_HALF = re.compile("[\ud800-\udfff]")
_MAX_PARTS = 4_000_000  # of the places of all values together: they need far more memory than the text

Place = tuple[str | int, ...]  # keys and indices from the outside to a value


class UnreadableText(ValueError):
    """Reason why a text cannot be used, and its line if that is known."""

    def __init__(self, why: str, line: int | None = None) -> None:
        super().__init__(why)
        self.why, self.line = why, line


class LinedValue(NamedTuple):
    """Value of a text, with the lines on which its keys and entries begin."""

    value: Any
    lines: dict[Place, int]

    def line_of(self, place: Sequence[str | int]) -> int | None:
        """Returns the line of a value, or else that of the nearest value around it. Parts that are not there are
        skipped."""
        here: Place = ()
        for part in place:
            if (*here, part) in self.lines:
                here = (*here, part)
        return self.lines.get(here)


def read_lined(file: str, limit_bytes: int) -> LinedValue:
    """Reads a file; only `.json` is JSON. OSError, or UnreadableText (a ValueError) for what it has."""
    data = read_regular(file, limit_bytes, follow=True)
    if len(data) > limit_bytes:
        raise UnreadableText(f"it is larger than {limit_bytes >> 20} MiB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableText("it is not UTF-8", data.count(b"\n", 0, error.start) + 1) from error
    return parse_json(text) if file.endswith(".json") else parse_yaml(text)


class _Builder:
    """Puts pieces together: scalars, beginnings and ends of lists and mappings."""

    def __init__(self) -> None:
        self.documents: list[Any] = []
        self.lines: dict[Place, int] = {}
        self._open: list[tuple[Any, Place]] = [(self.documents, ())]
        self._left = _MAX_PARTS
        self._keys: list[tuple[str, int] | None] = [None]  # for each open container: the key that waits for its value

    def add(self, value: Any, line: int, *, key: str | None) -> None:
        """Adds a value. `key` is its text if it can be a key."""
        if key is not None and _HALF.search(key):
            raise UnreadableText("it has half of a surrogate pair, which is no character", line)
        top, place = self._open[-1]
        waiting = self._keys[-1]
        if isinstance(top, list):
            place = (*place, len(top)) if len(self._open) > 1 else ()
            top.append(value)
        elif waiting is not None:
            name, line = waiting
            place = (*place, name)
            top[name] = value
            self._keys[-1] = None
        elif key is None:
            raise UnreadableText("a key must be a text", line)
        elif key in top:
            raise UnreadableText(f"the field {key!r} is there twice", line)
        else:
            self._keys[-1] = key, line
            return
        self.lines[place] = line
        self._left -= len(place) + 4
        if self._left < 0:
            raise UnreadableText("it has too many values", line)
        if isinstance(value, (list, dict)):
            if len(self._open) > MAX_DEPTH:
                raise UnreadableText(f"it is nested more than {MAX_DEPTH} levels deep", line)
            self._open.append((value, place))
            self._keys.append(None)

    def close(self) -> None:
        self._open.pop()
        self._keys.pop()


_PIECE = re.compile(r'"(?:[^"\\]++|\\.)*"|[{}\[\]\n]|[^\s{}\[\]:,"]++')


def parse_json(text: str) -> LinedValue:
    try:
        json.loads(text, parse_constant=_no_constant)  # checks the whole text, so that its pieces need no checks
    except RecursionError:
        raise UnreadableText("it is nested too deep") from None
    except ValueError as error:
        why = getattr(error, "msg", None) or str(error)
        raise UnreadableText(why, getattr(error, "lineno", None)) from error
    built = _Builder()
    line = 1
    for found in _PIECE.finditer(text):
        piece = found[0]
        if piece == "\n":
            line += 1
        elif piece in "]}":
            built.close()
        elif piece == "[":
            built.add([], line, key=None)
        elif piece == "{":
            built.add({}, line, key=None)
        else:
            value = json.loads(piece)
            built.add(value, line, key=value if isinstance(value, str) else None)
    return LinedValue(built.documents[0], built.lines)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def parse_yaml(text: str) -> LinedValue:
    import yaml

    try:
        try:
            documents, lines = _build(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except yaml.YAMLError:  # the messages of PyYAML's own parser are better, and the same everywhere
            documents, lines = _build(text, yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        why = str(getattr(error, "problem", None) or error).split("\n")[0]
        raise UnreadableText(why, mark.line + 1 if mark else None) from error
    except UnreadableText:
        raise
    except ValueError as error:  # a number of 5,000 digits, a lone surrogate
        raise UnreadableText(str(error)) from error
    if len(documents) > 1:
        raise UnreadableText("it has more than one YAML document")
    return LinedValue(documents[0] if documents else None, lines)


def _build(text: str, loader: Any) -> tuple[list[Any], dict[Place, int]]:
    import yaml

    built = _Builder()
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.CollectionEndEvent):
            built.close()
        if not isinstance(event, yaml.NodeEvent):
            continue
        line = event.start_mark.line + 1
        if event.anchor or getattr(event, "tag", None):
            raise UnreadableText("anchors, aliases and tags are not read", line)
        if isinstance(event, yaml.ScalarEvent):
            value = event.value if event.style else _scalar(event.value)
            built.add(value, line, key=event.value)
        elif isinstance(event, yaml.MappingStartEvent):
            built.add({}, line, key=None)
        else:
            built.add([], line, key=None)
    return built.documents, built.lines


_WORDS = {"true": True, "True": True, "false": False, "False": False, "null": None, "~": None, "": None}
_INT = re.compile(r"-?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")


def _scalar(text: str) -> Any:
    """Returns the value of a text without quotes."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    if not _FLOAT.fullmatch(text):
        return text
    number = float(text)
    if not math.isfinite(number):
        return text
    return number
