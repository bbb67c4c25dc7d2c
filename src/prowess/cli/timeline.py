"""Prints a session as a story, run by run: the request, the loaded skills, the calls, and the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prowess.cli.screen import Screen, count, printable
from prowess.core.findings import visible

_MARKS = {"skill": "* ", "unload": "* ", "call": "- ", "text": "  ", "note": "! ", "error": "! ", "run": "+ "}


def show(screen: Screen, runs: Sequence[dict[str, Any]]) -> None:
    """Prints the runs that `prowess.records.story.tell` returns."""
    for number, run in enumerate(runs):
        if number:
            screen.text()
        screen.heading(_heading(run))
        if run["request"]:
            _paragraph(screen, "> ", run["request"])
        for thing in run["said"]:
            mark = _MARKS[thing["kind"]]
            if thing["run"] != run["run"]:
                mark = f"  {mark}"
            line = _line(thing)
            _paragraph(screen, mark, line)
        if run["text"]:
            screen.text()
            _paragraph(screen, "", run["text"])
        end = _end(run)
        screen.note(f"  {end}")


def _heading(run: dict[str, Any]) -> str:
    name = visible(run["run"])
    started = short_time(run["started_at"])
    model = visible(run["model"])
    text = f"{name} · {started} · {model}"
    if run["resumes"]:
        text += f" · goes on with {run['resumes']}"
    return text


def short_time(at: str) -> str:
    """Renders `2026-11-16 08:30`."""
    minute = at[:16]
    return visible(minute.replace("T", " "))


def _line(thing: dict[str, Any]) -> str:
    text = f"{thing['text']}"
    status = thing.get("status")
    if status:
        text += f"  {status}"
    code = thing.get("code")
    if code:
        text += f" [{code}]"
    return text


def _end(run: dict[str, Any]) -> str:
    """Renders `end · 12 events · 3400 tokens`."""
    reason = run["stop_reason"] or "has not ended"
    events = count(run["events"], "event")
    parts = [reason, events]
    usage = run["usage"]
    tokens = usage["input"] + usage["output"]
    if tokens:
        parts.append(f"{tokens} tokens")
    return visible(" · ".join(parts))


def _paragraph(screen: Screen, mark: str, text: str) -> None:
    shown = printable(text.rstrip("\n"), lines=True)
    for line in shown.split("\n"):
        screen.text(f"{mark}{line}".rstrip())
        mark = " " * len(mark)
