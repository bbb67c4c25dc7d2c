"""Renders tool calls as one line each, safe to print: what is being done, and the result."""

from __future__ import annotations

import shlex
from typing import Any

from prowess._internal.text import one_line, render_seconds
from prowess.core.findings import visible
from prowess.core.tool_table import TOOLS
from prowess.core.values import Outcome, ToolCall

_OBJECTS = ("script", "command", "path", "file_name", "pattern", "query", "url", "skill", "session_id")


def render_doing(call: ToolCall) -> str:
    """Renders `running scripts/report.py sales.csv (csv-report)`."""
    what, skill = _object(call.args), call.args.get("skill")
    traits = TOOLS.get(call.tool)
    words = [traits.gerund if traits else f"calling {one_line(call.tool)}", one_line(what)]
    if isinstance(skill, str) and skill != what:
        words.append(f"({one_line(skill)})")
    return visible(" ".join(filter(None, words)))


def render_done(call: ToolCall, outcome: Outcome) -> str:
    """Renders `skill_run scripts/report.py sales.csv: ok (0.4 s)`."""
    words = [one_line(call.tool), one_line(_object(call.args))]
    return visible(f"{' '.join(filter(None, words))}: {_result(outcome)}")


def _result(outcome: Outcome) -> str:
    data = outcome.data
    duration, exit_code = data.get("duration_ms"), data.get("exit_code")
    took = f" ({render_seconds(duration / 1000)})" if isinstance(duration, (int, float)) else ""
    if data.get("timed_out"):
        return f"time-out{took}"
    if isinstance(exit_code, int) and exit_code != 0:
        said = one_line(str(data.get("stderr") or "").strip(), 300)
        return f"exit {exit_code}{took}{f': {said}' if said else ''}"
    if outcome.status == "ok":
        return f"ok{took}"
    label = f" [{outcome.code}]" if outcome.code else ""
    return f"{outcome.status}{took}{label}: {one_line(outcome.content, 300)}"


def _object(args: dict[str, Any]) -> str:
    """Returns what a call works on: the script with its arguments, the path, the pattern …"""
    for name in _OBJECTS:
        value = args.get(name)
        if isinstance(value, str) and value.strip():
            more = args.get("args") if name == "script" else None
            return f"{value} {shlex.join(map(str, more))}" if isinstance(more, list) and more else value
    return ""
