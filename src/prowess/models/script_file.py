"""Reads a script: a JSON or YAML list of replies. Any fault is a ConfigError with the file, the line and the entry.

YAML is limited to the values of JSON: no anchors, aliases or tags; `no` and `2024-01-01` are texts.
"""

from __future__ import annotations

import difflib
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from prowess._internal.files import read_regular
from prowess.errors import ConfigError
from prowess.models.actions.schema import parse_document

LIMIT_BYTES = 4 << 20
MAX_DEPTH = 50


def read_script(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Reads and checks the replies of a file."""
    file = os.fspath(path)
    text = _read(file)
    entries, lines = _parse_json(file, text) if file.endswith(".json") else _parse_yaml(file, text)
    if not isinstance(entries, list):
        _refuse(file, None, f"it must be a list of replies, not {entries!r}"[:200])
    for number, entry in enumerate(entries, 1):
        line = f":{lines[number - 1]}" if lines else ""
        check_entry(entry, f"{file}{line}: reply {number}")
    return entries


_KEYS = ("text", "calls", "action", "plan", "plan_update")
_CALL_KEYS = ("tool", "args", "id")


def check_entry(entry: Any, where: str) -> None:
    """Checks one reply. ConfigError `script-invalid` says what is wrong and where."""
    if not isinstance(entry, Mapping):
        raise _invalid(where, f"must be an object, not {entry!r}", 'Such as {"text": "…"} or {"calls": […]}.')
    _check_known(entry, _KEYS, where)
    if "action" in entry:
        if "text" in entry or "calls" in entry:
            raise _invalid(where, "has an action and also text or calls", "Say one of them.")
        try:
            parse_document(entry)
        except ValueError as error:
            raise _invalid(where, str(error), "See the page on structured actions.") from error
    elif "plan" in entry or "plan_update" in entry:
        raise _invalid(where, "has a plan without an action", "Add the action, or call update_plan.")
    elif not entry.keys() & {"text", "calls"}:
        raise _invalid(where, "says nothing", f"It needs one of: {', '.join(_KEYS[:3])}.")
    if not isinstance(entry.get("text", ""), str):
        raise _invalid(where, f"text must be a text, not {entry['text']!r}", "Put it into quotes.")
    calls = entry.get("calls", ())
    if not isinstance(calls, (list, tuple)):
        raise _invalid(where, f"calls must be a list, not {calls!r}", 'Such as [{"tool": "…", "args": {}}].')
    for number, call in enumerate(calls, 1):
        _check_call(call, f"{where}, call {number}")


def _check_call(call: Any, where: str) -> None:
    if not isinstance(call, Mapping):
        raise _invalid(where, f"must be an object, not {call!r}", 'Such as {"tool": "…", "args": {}}.')
    _check_known(call, _CALL_KEYS, where)
    if not isinstance(call.get("tool"), str) or not call["tool"]:
        raise _invalid(where, "names no tool", 'Such as {"tool": "skill_load", "args": {"skill": "pdf"}}.')
    if not isinstance(call.get("args") or {}, Mapping):
        raise _invalid(where, f"args must be an object, not {call['args']!r}", 'Such as {"skill": "pdf"}.')
    if not isinstance(call.get("id") or "", str):
        raise _invalid(where, f"id must be a text, not {call['id']!r}", "Or leave it out.")


def _check_known(given: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(str(name)[:64], known, n=1)
            hint = f"Did you mean '{near[0]}'?" if near else f"There are: {', '.join(known)}."
            raise _invalid(where, f"there is no field {str(name)[:64]!r}", hint)


def _invalid(where: str, what: str, hint: str) -> ConfigError:
    return ConfigError(f"{where}: {what[:300]}.", code="script-invalid", hint=hint)


# --- the file -------------------------------------------------------------------------------------------------------


def _read(file: str) -> str:
    try:
        data = read_regular(file, LIMIT_BYTES, follow=True)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"The script {file} cannot be read: {why}.",
            code="script-unreadable",
            hint="It must be a readable, regular file.",
        ) from error
    if len(data) > LIMIT_BYTES:
        _refuse(file, None, f"it is larger than {LIMIT_BYTES >> 20} MiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        _refuse(file, data.count(b"\n", 0, error.start) + 1, "it is not UTF-8")


def _parse_json(file: str, text: str) -> tuple[Any, list[int]]:
    try:
        return json.loads(text, object_pairs_hook=_without_twins, parse_constant=_no_constant), []
    except RecursionError:
        _refuse(file, None, "it is nested too deep")
    except ValueError as error:
        _refuse(file, getattr(error, "lineno", None), getattr(error, "msg", None) or str(error))


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the field {next(n for n in names if names.count(n) > 1)!r} is there twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _parse_yaml(file: str, text: str) -> tuple[Any, list[int]]:
    """Returns the value, and the line on which each entry of the list begins.

    Built from the parser's events, so that nothing is expanded and nothing recurses.
    """
    import yaml

    lines: list[int] = []
    documents: list[Any] = []
    opened: list[Any] = [documents]
    keys: list[str | None] = [None]  # for each open container: the key that waits for its value
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            line = event.start_mark.line + 1
            if isinstance(event, yaml.CollectionEndEvent):
                opened.pop()
                keys.pop()
            if not isinstance(event, yaml.NodeEvent):
                continue
            if event.anchor or getattr(event, "tag", None):
                _refuse(file, line, "anchors, aliases and tags are not read")
            value: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
            if isinstance(event, yaml.ScalarEvent):
                value = event.value if event.style else _scalar(event.value)
            top, key = opened[-1], keys[-1]
            if isinstance(top, list):
                if len(opened) == 2:
                    lines.append(line)
                top.append(value)
            elif key is not None:
                top[key], keys[-1] = value, None
            elif not isinstance(event, yaml.ScalarEvent):
                _refuse(file, line, "a key must be a text")
            elif event.value in top:
                _refuse(file, line, f"the field {event.value!r} is there twice")
            else:
                keys[-1] = event.value
                continue
            if isinstance(value, (list, dict)):
                if len(opened) > MAX_DEPTH:
                    _refuse(file, line, f"it is nested more than {MAX_DEPTH} levels deep")
                opened.append(value)
                keys.append(None)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        why = str(getattr(error, "problem", None) or error).split("\n")[0]
        _refuse(file, mark.line + 1 if mark else None, why)
    except ValueError as error:  # a number of 5,000 digits, a lone surrogate
        _refuse(file, None, str(error))
    if len(documents) > 1:
        _refuse(file, None, "it has more than one YAML document")
    return documents[0] if documents else None, lines


_WORDS = {"true": True, "True": True, "false": False, "False": False, "null": None, "~": None, "": None}
_INT = re.compile(r"-?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")


def _scalar(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    number = float(text) if _FLOAT.fullmatch(text) else math.inf
    return number if math.isfinite(number) else text


def _refuse(file: str, line: int | None, why: str) -> NoReturn:
    place = f"{file}:{line}" if line else file
    raise ConfigError(
        f"The script {place} cannot be used: {why[:200]}.",
        code="script-invalid",
        hint='A script is a list of {"text": …}, {"calls": […]} or {"action": {…}}.',
    )
