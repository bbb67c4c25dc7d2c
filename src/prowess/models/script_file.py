"""Reads a script: a JSON or YAML list of replies. Any fault is a ConfigError with the file, the line and the entry."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from typing import Any

from prowess._internal.json_values import JsonObject
from prowess._internal.yaml_lines import LinedValue, UnreadableText, read_lined
from prowess.errors import ConfigError
from prowess.models.actions.schema import parse_document

LIMIT_BYTES = 4 << 20


def read_script(path: str | os.PathLike[str]) -> list[JsonObject]:
    """Reads and checks the replies of a file."""
    file = os.fspath(path)
    found = _read(file)
    entries = found.value
    if not isinstance(entries, list):
        raise _refused(file, None, f"it must be a list of replies, not {entries!r}")
    for at, entry in enumerate(entries):
        line = found.lines[at,]
        number = at + 1
        check_entry(entry, f"{file}:{line}: reply {number}")
    return entries


_KEYS = ("text", "calls", "action", "plan", "plan_update")
_CALL_KEYS = ("tool", "args", "id")


def check_entry(entry: Any, where: str) -> None:
    """Checks one reply. ConfigError `script-invalid` says what is wrong and where."""
    if not isinstance(entry, Mapping):
        raise _invalid(where, f"must be an object, not {entry!r}", 'Such as {"text": "…"} or {"calls": […]}.')
    _check_known(entry, _KEYS, where)
    _check_action(entry, where)
    text = entry.get("text", "")
    if not isinstance(text, str):
        raise _invalid(where, f"text must be a text, not {text!r}", "Put it into quotes.")
    calls = entry.get("calls", ())
    if not isinstance(calls, (list, tuple)):
        raise _invalid(where, f"calls must be a list, not {calls!r}", 'Such as [{"tool": "…", "args": {}}].')
    for number, call in enumerate(calls, 1):
        _check_call(call, f"{where}, call {number}")


def _check_action(entry: Mapping[str, Any], where: str) -> None:
    """Checks that a reply is a valid action, or text and calls without a plan."""
    says = "text" in entry or "calls" in entry
    if "action" in entry:
        if says:
            raise _invalid(where, "has an action and also text or calls", "Say one of them.")
        try:
            parse_document(entry)
        except ValueError as error:
            raise _invalid(where, str(error), "See the page on structured actions.") from error
    elif "plan" in entry or "plan_update" in entry:
        raise _invalid(where, "has a plan without an action", "Add the action, or call update_plan.")
    elif not says:
        raise _invalid(where, "says nothing", "It needs one of: text, calls, action.")


def _check_call(call: Any, where: str) -> None:
    """Checks one call of a reply."""
    if not isinstance(call, Mapping):
        raise _invalid(where, f"must be an object, not {call!r}", 'Such as {"tool": "…", "args": {}}.')
    _check_known(call, _CALL_KEYS, where)
    tool = call.get("tool")
    if not isinstance(tool, str) or not tool:
        raise _invalid(where, "names no tool", 'Such as {"tool": "skill_load", "args": {"skill": "pdf"}}.')
    args = call.get("args") or {}
    if not isinstance(args, Mapping):
        raise _invalid(where, f"args must be an object, not {args!r}", 'Such as {"skill": "pdf"}.')
    id = call.get("id") or ""
    if not isinstance(id, str):
        raise _invalid(where, f"id must be a text, not {id!r}", "Or leave it out.")


def _check_known(given: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    """Refuses a field that is not known, and names the nearest one."""
    for name in given:
        if name in known:
            continue
        written = str(name)[:64]
        names = ", ".join(known)
        hint = f"There are: {names}."
        for near in difflib.get_close_matches(written, known, n=1):
            hint = f"Did you mean '{near}'?"
        raise _invalid(where, f"there is no field {written!r}", hint)


def _invalid(where: str, what: str, hint: str) -> ConfigError:
    shown = what[:300]
    message = f"{where}: {shown}."
    return ConfigError(message, code="script-invalid", hint=hint)


# --- the file -------------------------------------------------------------------------------------------------------


def _read(file: str) -> LinedValue:
    """Reads the values of a file and the lines on which they stand."""
    try:
        return read_lined(file, LIMIT_BYTES)
    except UnreadableText as error:
        raise _refused(file, error.line, error.why) from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        message = f"The script {file} cannot be read: {why}."
        hint = "It must be a readable, regular file."
        raise ConfigError(message, code="script-unreadable", hint=hint) from error


def _refused(file: str, line: int | None, why: str) -> ConfigError:
    place = f"{file}:{line}" if line else file
    shown = why[:200]
    message = f"The script {place} cannot be used: {shown}."
    hint = 'A script is a list of {"text": …}, {"calls": […]} or {"action": {…}}.'
    return ConfigError(message, code="script-invalid", hint=hint)
