"""Reads TOML of anybody in bounded time, and changes single lines of a file that a person edits, too: comments and all
other lines stay."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_MOST_DOTS = 256  # in a line: the standard parser needs quadratic time for a dotted key


def parse_toml(text: str) -> dict[str, Any]:
    """Returns the tables of a text that anybody may have written. ValueError or RecursionError if it cannot be read."""
    import tomllib  # imported late: most commands find no TOML

    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") > _MOST_DOTS:
            raise ValueError(f"more than {_MOST_DOTS} dots in one line (at line {number}, column 1)")
    return tomllib.loads(text)


def edit_table(text: str, table: str, changes: Mapping[str, str | Mapping[str, str] | None]) -> str:
    """Returns a valid text with keys of one table set, or removed where the value is None. The result is read again;
    ValueError if the text has a form that cannot be edited line by line."""
    before = parse_toml(text)
    rows = {**before.get(table, {}), **changes}
    wanted = {key: value for key, value in rows.items() if value is not None}
    lines = text.removesuffix("\n").split("\n") if text else []
    if table not in before:
        lines.append(f"[{table}]")
    numbers: dict[str, int] = {}
    for number, line in enumerate(lines):
        for key in _find_row(line):
            numbers[key] = number
    removed: set[int | None] = set()
    for key, value in changes.items():
        number = numbers.get(key)
        if value is None:
            removed.add(number)
            continue
        row = f"{_render_key(key)} = {_render_value(value)}"
        if number is None:
            lines.append(row)
        else:
            lines[number] = row + _comment(lines[number])
    edited = "".join(f"{line}\n" for number, line in enumerate(lines) if number not in removed)
    if parse_toml(edited) != {**before, table: wanted}:
        raise ValueError("the table is not written with one line for each key")
    return edited


def _find_row(line: str) -> dict[str, Any]:
    """Returns the value of a line that is whole by itself, by its key."""
    if "=" not in line:
        return {}
    try:
        return parse_toml(line.rstrip("\r"))
    except (ValueError, RecursionError):
        return {}


def _comment(line: str) -> str:
    """Returns the comment at the end of a line, with blanks before it."""
    row = _find_row(line)
    end = len(line)
    for _ in range(20):  # a # can also be part of a value
        at = line.rfind("#", 0, end)
        if at < 0 or _find_row(line[:at]) != row:
            break
        end = at
    comment = line[end:]
    if not comment:
        return ""
    return f"  {comment}"


def _render_key(key: str) -> str:
    if _BARE_KEY.fullmatch(key):
        return key
    return _render_value(key)


def _render_value(value: str | Mapping[str, str]) -> str:
    import json  # imported late: readers do not need it

    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    pairs = [f"{_render_key(key)} = {_render_value(item)}" for key, item in value.items()]
    return f"{{ {', '.join(pairs)} }}"
