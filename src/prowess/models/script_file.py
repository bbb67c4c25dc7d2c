"""Reads a script: a JSON or YAML list of replies. Any fault is a ConfigError with the file, the line and the entry."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from prowess._internal.yaml_lines import LinedValue, UnreadableText, read_lined
from prowess.errors import ConfigError
from prowess.models.actions.schema import parse_document

LIMIT_BYTES = 4 << 20


def read_script(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Reads and checks the replies of a file."""
    file = os.fspath(path)
    found = _read(file)
    entries = found.value
    if not isinstance(entries, list):
        _refuse(file, None, f"it must be a list of replies, not {entries!r}"[:200])
    for number, entry in enumerate(entries, 1):
        check_entry(entry, f"{file}:{found.lines[number - 1,]}: reply {number}")
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


def _read(file: str) -> LinedValue:
    try:
        return read_lined(file, LIMIT_BYTES)
    except UnreadableText as error:
        _refuse(file, error.line, error.why)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"The script {file} cannot be read: {why}.",
            code="script-unreadable",
            hint="It must be a readable, regular file.",
        ) from error


def _refuse(file: str, line: int | None, why: str) -> NoReturn:
    place = f"{file}:{line}" if line else file
    raise ConfigError(
        f"The script {place} cannot be used: {why[:200]}.",
        code="script-invalid",
        hint='A script is a list of {"text": …}, {"calls": […]} or {"action": {…}}.',
    )
