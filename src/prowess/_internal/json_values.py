"""Parses strict JSON, also out of a text with one code block, and compares JSON values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

JsonObject = dict[str, Any]
JsonValue: TypeAlias = "str | int | float | bool | Sequence[JsonValue] | Mapping[str, JsonValue] | None"


def load_json(text: str) -> Any:
    """Parses JSON like the standard library, but refuses NaN and Infinity, which are no JSON."""
    return json.loads(text, parse_constant=_check_constant)


def _check_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def load_only_json(text: str) -> Any:
    """Parses the JSON of an answer: the whole text, or its only fenced block. ValueError if there is none."""
    parts = text.split("```")
    if len(parts) == 3:
        info, line_end, block = parts[1].partition("\n")
        text = block if line_end and " " not in info.strip() else parts[1]
    try:
        return load_json(text)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None


def are_equal(one: Any, other: Any) -> bool:
    """Compares JSON values: 1 equals 1.0, and differs from true."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        if one.keys() != other.keys():
            return False
        return all(are_equal(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        if len(one) != len(other):
            return False
        return all(map(are_equal, one, other))
    return one == other
