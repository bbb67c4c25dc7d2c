"""Reads one config file into checked settings, or raises a ConfigError with the file, the line and the expected value.

A file is read once: the bytes that are hashed for trust are the bytes that are parsed. Any content leads to settings or
to a ConfigError, never to another exception.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, Union, get_args, get_origin

from prowess._internal.digest import content_sha256
from prowess._internal.files import read_regular
from prowess._internal.toml_lines import parse_toml
from prowess.errors import ConfigError

LIMIT_BYTES = 1 << 20
_LARGEST = (1 << 63) - 1  # a larger number can be read but not always written again
_DEEPEST = 16

Schema = Mapping[str, Any]  # field -> type, or schema of the section


class ConfigText(NamedTuple):
    """Config file as it was read: its data, and its text for finding lines."""

    path: str
    text: str
    sha256: str
    table: dict[str, Any]

    def find_line(self, name: str) -> int | None:
        """Returns the line of a dotted field, or of the nearest thing around it. A guess, good enough for a message."""
        parts = tuple(name.split("."))
        if self.path.endswith(".json"):
            return _find_json_line(self.text, parts)
        lines = _index_toml(self.text)
        while parts and parts not in lines:
            parts = parts[:-1]
        return lines.get(parts)


def load_config_text(path: str) -> ConfigText:
    try:
        data = read_regular(path, LIMIT_BYTES, follow=True)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        message = f"{path} cannot be read: {why}."
        hint = "It must be a readable, regular file."
        raise ConfigError(message, code="config-unreadable", hint=hint) from None
    if len(data) > LIMIT_BYTES:
        raise ConfigError(
            f"{path} is larger than 1 MiB.",
            code="config-too-large",
            hint="A config file is a few settings; move data out.",
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"{path}:{line}: not UTF-8."
        raise ConfigError(message, code="config-not-utf8", hint="Save the file as UTF-8.") from None
    parse = _parse_json if path.endswith(".json") else _parse_toml
    table = parse(path, text)
    return ConfigText(path=path, text=text, sha256=content_sha256(data), table=table)


def check_settings(table: Mapping[str, Any], schema: Schema, source: ConfigText | str) -> dict[str, Any]:
    """Returns dotted field -> value, each known and of the right type. `source` is the file, or a name for messages."""
    settings: dict[str, Any] = {}
    for name, value in table.items():
        kind = schema.get(name)
        if kind is None:
            _check_known(str(name), schema, source)
        elif not isinstance(kind, Mapping):
            settings[name] = _fit(kind, value, name, source)
        elif not isinstance(value, Mapping):
            fields = ", ".join(kind)
            check_type(name, f"a table with {fields}", value, source)
        else:
            for field, item in value.items():
                dotted = f"{name}.{field}"
                if field not in kind:
                    _check_known(dotted, schema, source)
                settings[dotted] = _fit(kind[field], item, dotted, source)
    return settings


def render_type(kind: Any) -> str:
    """Renders a type in the words of the docs and the errors."""
    options = get_args(kind)
    origin = get_origin(kind)
    if origin is Literal:
        return f"one of {', '.join(options)}"
    if origin is Annotated:
        of = options[1]
        return f"a whole number from {of}" if isinstance(of, int) else f"one of {', '.join(of.own)}"
    if origin in (Union, UnionType):
        others = _without_none(options)
        return " or ".join(map(render_type, others))
    if origin is tuple:
        return "a list of texts"
    if origin is dict:
        entry = options[1]
        return "a table" if entry is Any else f"a table, each entry {render_type(entry)}"
    return _PLAIN_TYPES.get(kind, "any value")


_PLAIN_TYPES = {bool: "true or false", int: "a whole number from 0", float: "a number from 0", str: "a text"}


def _without_none(options: Sequence[Any]) -> list[Any]:
    return [option for option in options if option is not type(None)]


def _parse_toml(path: str, text: str) -> dict[str, Any]:
    try:
        return parse_toml(text)
    except (ValueError, RecursionError) as error:
        found = re.search(r"\(at line (\d+), column \d+\)", str(error))
        line = int(found[1]) if found else None
        raise _syntax(path, line, _why(error)) from None


def _parse_json(path: str, text: str) -> dict[str, Any]:
    import json

    try:
        table = json.loads(text, object_pairs_hook=_without_twins, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        raise _syntax(path, line, _why(error)) from None
    if not isinstance(table, dict):
        check_type("the file", "an object", table, path)
    return table


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for name, value in pairs:
        if name in table:
            raise ValueError(f"{name[:100]!r} is given twice")
        table[name] = value
    return table


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _why(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return str(error)[:200]


def _syntax(path: str, line: int | None, why: str) -> ConfigError:
    kind = "JSON" if path.endswith(".json") else "TOML"
    message = f"{_place(path, line)}: not {kind}: {why}."
    return ConfigError(message, code="config-syntax", hint="Correct the file.")


def _fit(kind: Any, value: Any, name: str, source: ConfigText | str) -> Any:
    """Converts the value to the type: lists become tuples, everything else stays."""
    origin = get_origin(kind)
    options = get_args(kind)
    if kind is Any:
        return _fit_any(value, name, source, 0)
    if origin in (Union, UnionType):
        if value is None and type(None) in options:
            return None
        for option in _without_none(options):
            if _fits(option, value):
                return _fit(option, value, name, source)
        check_type(name, render_type(kind), value, source)
    if origin is tuple and isinstance(value, (list, tuple)):
        items = [_fit(options[0], item, name, source) for item in value]
        return tuple(items)
    if origin is dict and isinstance(value, Mapping):
        table: dict[str, Any] = {}
        for key, item in value.items():
            key = _fit(str, key, name, source)
            table[key] = _fit(options[1], item, f"{name}.{key}", source)
        return table
    if _fits(kind, value):
        return value
    wanted = render_type(kind)
    if origin is Annotated and not isinstance(options[1], int):
        wanted = f"one of {', '.join(options[1].names())}"
    return check_type(name, wanted, value, source)


def _fits(kind: Any, value: Any) -> bool:
    origin = get_origin(kind)
    options = get_args(kind)
    if origin is Literal:
        return isinstance(value, str) and value in options
    if origin is Annotated:
        of = options[1]
        if isinstance(of, int):  # the least number
            return _fits(int, value) and value >= of
        return isinstance(value, str) and of.has(value)
    if origin is tuple:
        return isinstance(value, (list, tuple))
    if origin is dict:
        return isinstance(value, Mapping)
    if kind is str:
        return isinstance(value, str) and _is_clean(value)
    if kind is bool:
        return isinstance(value, bool)
    numbers = int if kind is int else (int, float)
    if isinstance(value, bool) or not isinstance(value, numbers):
        return False
    return 0 <= value <= _LARGEST  # also excludes infinity and NaN


def _fit_any(value: Any, name: str, source: ConfigText | str, depth: int) -> Any:
    if depth > _DEEPEST:
        check_type(name, f"nested at most {_DEEPEST} deep", value, source)
    if isinstance(value, (list, tuple)):
        return [_fit_any(item, name, source, depth + 1) for item in value]
    if isinstance(value, Mapping):
        table: dict[str, Any] = {}
        for key, item in value.items():
            key = _fit(str, key, name, source)
            table[key] = _fit_any(item, f"{name}.{key}", source, depth + 1)
        return table
    if not _is_plain(value):
        check_type(name, "a text, a number, true or false, a list or a table", value, source)
    return value


def _is_plain(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return abs(value) <= _LARGEST
    if isinstance(value, str):
        return _is_clean(value)
    return value is None


def _is_clean(text: str) -> bool:
    """True without NUL and lone surrogates, which would fail later, in a path or in output."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def check_type(name: str, wanted: str, value: Any, source: ConfigText | str) -> NoReturn:
    where = _where(source, name)
    given = _render_value(value)
    message = f"{where}: {name!r} must be {wanted}, not {given}."
    raise ConfigError(message[:600], code="config-wrong-type", hint=f"Correct {name[:100]!r}.")


def check_words(name: str, entry: str, source: ConfigText | str) -> NoReturn:
    where = _where(source, name)
    given = _render_value(entry)
    raise ConfigError(
        f"{where}: the entry {given} of {name!r} is not the name of a program.",
        code="config-not-a-program",
        hint="An entry names one program, such as git; for words (git push) write a rule in .agent/policy.toml.",
    )


def _check_known(name: str, schema: Schema, source: ConfigText | str) -> NoReturn:
    message = f"{_where(source, name)}: there is no field {name[:100]!r}."
    near = _find_nearest(name, schema)
    hint = f"Did you mean '{near}'?"
    if near is None:
        section = schema.get(name.partition(".")[0])
        known = section if isinstance(section, Mapping) else schema
        hint = f"Fields here: {', '.join(known)}."
    raise ConfigError(message, code="config-unknown-field", hint=hint)


def _find_nearest(name: str, schema: Schema) -> str | None:
    """Returns the nearest field in the same section, else a field with a similar name in another one."""
    import difflib

    wanted, _, last = name.rpartition(".")
    here: dict[str, str] = {}
    anywhere: dict[str, str] = {}
    for each in _names(schema):
        section, _, field = each.rpartition(".")
        anywhere[field] = each
        if section == wanted:
            here[field] = each
    for names in (here, anywhere):
        close = difflib.get_close_matches(last[:64], names, 1)
        if close:
            return names[close[0]]
    return None


def _names(schema: Schema) -> Iterable[str]:
    for name, kind in schema.items():
        yield name
        if isinstance(kind, Mapping):
            for field in kind:
                yield f"{name}.{field}"


def _render_value(value: Any) -> str:
    """Renders a value in short form, without the content of a table or list, which may be of any size."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if abs(value) <= _LARGEST else "a number of that size"
    if isinstance(value, str):
        return repr(value[:60])
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, (list, tuple)):
        return "a list"
    return "null" if value is None else f"a {type(value).__name__}"


def _where(source: ConfigText | str, name: str) -> str:
    if isinstance(source, str):
        return source
    line = source.find_line(name)
    return _place(source.path, line)


def _place(path: str, line: int | None) -> str:
    if line is None:
        return path
    return f"{path}:{line}"


@lru_cache(maxsize=2)
def _index_toml(text: str) -> dict[tuple[str, ...], int]:
    """Maps each key to its first line. One pass for all keys, because a hostile file may ask for many."""
    lines: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if line.startswith("["):
            key = table = _split_key(line.strip("[] "))
        elif "=" in line and not line.startswith("#"):
            key = table + _split_key(line.partition("=")[0])
        else:
            continue
        known_depth = min(len(key), 3)
        for depth in range(1, known_depth + 1):
            lines.setdefault(key[:depth], number)
    return lines


def _split_key(key: str) -> tuple[str, ...]:
    parts = [part.strip() for part in key.split(".")]
    return tuple(part.strip("\"'") for part in parts)


def _find_json_line(text: str, parts: tuple[str, ...]) -> int | None:
    at = 0
    line = None
    for part in parts:
        name = re.compile(rf'"{re.escape(part)}"\s*:')
        found = name.search(text, at)
        if found is None:
            break
        at = found.end()
        line = text.count("\n", 0, found.start()) + 1
    return line
