"""Renders tool calls as one line each, safe to print: what is being done, and the result."""

from __future__ import annotations

import shlex
from typing import Any

from prowess.cli.screen import printable
from prowess.core.values import Outcome, ToolCall

_LONGEST = 100
_VERBS = {
    "skill_load": "loading",
    "skill_unload": "unloading",
    "skill_run": "running",
    "skill_exec": "running",
    "skill_write_stdin": "answering",
    "skill_poll_session": "watching",
    "skill_kill_session": "ending",
    "skill_read": "reading",
    "skill_list_docs": "looking through",
    "skill_select_docs": "selecting docs of",
    "skill_search": "searching for",
    "read_file": "reading",
    "list_dir": "looking into",
    "grep": "searching for",
    "write_file": "writing",
    "delete_file": "deleting",
    "network_request": "asking",
    "update_plan": "planning",
    "ask_user": "asking you",
}
_OBJECTS = ("script", "command", "path", "file_name", "pattern", "query", "url", "skill", "session_id")


def render_doing(call: ToolCall) -> str:
    """Renders `running scripts/report.py sales.csv (csv-report)`."""
    what = _object(call.args)
    skill = call.args.get("skill")
    of = f" ({one_line(skill)})" if isinstance(skill, str) and skill != what else ""
    verb = _VERBS.get(call.tool)
    return " ".join(filter(None, [verb or f"calling {one_line(call.tool)}", one_line(what)])) + of


def render_done(call: ToolCall, outcome: Outcome) -> str:
    """Renders `skill_run scripts/report.py sales.csv: ok (0.4 s)`."""
    what = one_line(_object(call.args))
    return f"{one_line(call.tool)}{' ' if what else ''}{what}: {_result(outcome)}"


def _result(outcome: Outcome) -> str:
    data = outcome.data
    took = f" ({seconds(data['duration_ms'] / 1000)})" if isinstance(data.get("duration_ms"), (int, float)) else ""
    exit_code = data.get("exit_code")
    if data.get("timed_out"):
        return f"time-out{took}"
    if isinstance(exit_code, int) and exit_code != 0:
        said = str(data.get("stderr") or "").strip()
        return f"exit {exit_code}{took}{f': {one_line(said, 300)}' if said else ''}"
    if outcome.status == "ok":
        return f"ok{took}"
    code = f" [{outcome.code}]" if outcome.code else ""
    return f"{outcome.status}{took}{code}: {one_line(outcome.content, 300)}"


def _object(args: dict[str, Any]) -> str:
    for name in _OBJECTS:
        value = args.get(name)
        if isinstance(value, str) and value.strip():
            more = args.get("args") if name == "script" else None
            return f"{value} {shlex.join(map(str, more))}" if isinstance(more, list) and more else value
    return ""


def one_line(text: str, longest: int = _LONGEST) -> str:
    line = " ".join(text[: longest * 4].split())
    return printable(line if len(line) <= longest else f"{line[: longest - 1]}…")


def seconds(number: float) -> str:
    if number < 0.9995:
        return f"{number * 1000:.0f} ms"
    return f"{number:.1f} s" if number < 60 else f"{int(number // 60)} min {int(number % 60)} s"
