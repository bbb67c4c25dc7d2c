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
        resumed = f" · goes on with {run['resumes']}" if run["resumes"] else ""
        screen.heading(f"{visible(run['run'])} · {short_time(run['started_at'])} · {visible(run['model'])}{resumed}")
        if run["request"]:
            _paragraph(screen, "> ", run["request"])
        for thing in run["said"]:
            indent = "" if thing["run"] == run["run"] else "  "
            _paragraph(screen, indent + _MARKS[thing["kind"]], _line(thing))
        if run["text"]:
            screen.text()
            _paragraph(screen, "", run["text"])
        screen.note(f"  {_end(run)}")


def short_time(at: str) -> str:
    return visible(at[:16].replace("T", " "))


def _line(thing: dict[str, Any]) -> str:
    status, code = thing.get("status"), thing.get("code")
    tail = f"  {status}" if status else ""
    return f"{thing['text']}{tail}{f' [{code}]' if code else ''}"


def _end(run: dict[str, Any]) -> str:
    usage = run["usage"]
    parts = [run["stop_reason"] or "has not ended", count(run["events"], "event")]
    if usage["input"] or usage["output"]:
        parts.append(f"{usage['input'] + usage['output']} tokens")
    return visible(" · ".join(parts))


def _paragraph(screen: Screen, mark: str, text: str) -> None:
    for number, line in enumerate(printable(text.rstrip("\n"), lines=True).split("\n")):
        screen.text(((" " * len(mark) if number else mark) + line).rstrip())
