"""Parses strict JSON, also out of a text with one code block; says where a text is no JSON; compares JSON values."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from math import isinf
from typing import Any, NoReturn, TypeAlias

JsonObject = dict[str, Any]
JsonValue: TypeAlias = "str | int | float | bool | Sequence[JsonValue] | Mapping[str, JsonValue] | None"


def load_json(text: str) -> Any:
    """Parses JSON like the standard library, but refuses NaN and Infinity, which are no JSON, and numbers that would
    become infinite."""
    return json.loads(text, parse_constant=_check_constant, parse_float=_parse_float)


def _parse_float(digits: str) -> float:
    number = float(digits)
    if isinf(number):
        raise ValueError(f"{digits} is too large a number")
    return number


def _check_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


# Argument of a call whose arguments are no JSON object: their text, as it was sent.
INVALID_JSON = "INVALID_JSON"
_AROUND = 24  # characters shown on each side of a fault
_LONGEST_TOKEN = 8  # a literal or an escape that was cut
_DEEPEST = 100  # lists and objects in each other: codecs recurse
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}|[\ud800-\udfff]")


def parse_object(text: str) -> JsonObject:
    """Parses a JSON object. Any other text becomes the argument INVALID_JSON."""
    try:
        value = _load_storable(text)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {INVALID_JSON: text}


def _load_storable(text: str) -> Any:
    """Parses JSON that a log can store: not too deep, and without halves of surrogate pairs."""
    value = load_json(text)
    if text.count("[") + text.count("{") > _DEEPEST and isinstance(value, (dict, list)):
        _check_depth(value)
    half = _SURROGATE.search(text)
    if half:
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError(f"half of a surrogate pair, as `{half[0]}`, is no character") from None
    return value


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(_DEEPEST):
        inner: list[Any] = []
        for each in level:
            inner.extend(each.values() if isinstance(each, dict) else each)
        level = [each for each in inner if isinstance(each, (dict, list))]
    if level:
        raise RecursionError


def find_invalid(args: Mapping[str, Any]) -> str | None:
    """Returns the text of arguments that are no JSON object, else None."""
    text = args.get(INVALID_JSON)
    return text if len(args) == 1 and isinstance(text, str) else None


def read_again(args: JsonObject) -> JsonObject:
    """Parses the text of arguments that were no JSON object. Other arguments stay."""
    text = find_invalid(args)
    return args if text is None else parse_object(text)


def describe_fault(text: str) -> str:
    """Says why a text is no JSON object: what is wrong, where, and what stands there."""
    try:
        value = _load_storable(text)
    except json.JSONDecodeError as error:
        at = error.pos
        before = text[max(0, at - _AROUND) : at]
        after = text[at : at + _AROUND]
        place = f"character {at + 1} of {len(text)}" if after else "its end"
        fault = f"{error.msg.removesuffix(' at')} at {place}"
        if before:
            fault += f", after `{_shown(before)}`"
        return f"{fault}, before `{_shown(after)}`" if after else fault
    except RecursionError:
        return "it is nested too deeply"
    except ValueError as error:
        return str(error)[:200]
    kind = {str: "a text", list: "a list", dict: "an object"}.get(type(value), "no object")
    return f"it is {kind}, and must be an object: {{…}}"


def ends_early(text: str) -> bool:
    """True if a text is no JSON because something is missing at its end."""
    try:
        load_json(text)
    except json.JSONDecodeError as error:
        rest = text[error.pos :]
        is_cut_token = len(rest) < _LONGEST_TOKEN and not set('}]",').intersection(rest)
        return error.msg.startswith("Unterminated") or (is_cut_token and error.msg != "Extra data")
    except (ValueError, RecursionError):
        return False
    return False


def _shown(text: str) -> str:
    """Text on one line. A control character is named, because it may be the fault."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else f"<U+{ord(char):04X}>" for char in text)


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
