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
    traits = TOOLS.get(call.tool)
    doing = traits.gerund if traits else f"calling {one_line(call.tool)}"
    what = _object(call.args)
    words = [doing, one_line(what)]
    skill = call.args.get("skill")
    if isinstance(skill, str) and skill != what:
        words.append(f"({one_line(skill)})")
    return visible(_join(words))


def render_done(call: ToolCall, outcome: Outcome) -> str:
    """Renders `skill_run scripts/report.py sales.csv: ok (0.4 s)`."""
    what = one_line(_object(call.args))
    done = _join([one_line(call.tool), what])
    return visible(f"{done}: {_result(outcome)}")


def _join(words: list[str]) -> str:
    """Joins words. An empty word takes no space."""
    return " ".join(filter(None, words))


def _result(outcome: Outcome) -> str:
    """Returns `ok (0.4 s)`, `exit 2 (0.1 s): no such file`, or what else became of a call."""
    data = outcome.data
    took = ""
    duration = data.get("duration_ms")
    if isinstance(duration, (int, float)):
        took = f" ({render_seconds(duration / 1000)})"
    if data.get("timed_out"):
        return f"time-out{took}"
    exit_code = data.get("exit_code")
    if isinstance(exit_code, int) and exit_code != 0:
        result = f"exit {exit_code}{took}"
        stderr = str(data.get("stderr") or "")
        said = one_line(stderr.strip(), 300)
        return f"{result}: {said}" if said else result
    if outcome.status == "ok":
        return f"ok{took}"
    label = f" [{outcome.code}]" if outcome.code else ""
    content = one_line(outcome.content, 300)
    return f"{outcome.status}{took}{label}: {content}"


def _object(args: dict[str, Any]) -> str:
    """Returns what a call works on: the script with its arguments, the path, the pattern …"""
    for name in _OBJECTS:
        value = args.get(name)
        if not isinstance(value, str) or not value.strip():
            continue
        more = args.get("args")
        if name == "script" and isinstance(more, list) and more:
            value += f" {shlex.join(map(str, more))}"
        return value
    return ""
