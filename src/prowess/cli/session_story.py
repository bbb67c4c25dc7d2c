"""A session as a person reads it: run by run what was asked, what was loaded and called, and what came of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from prowess.cli.screen import Screen, count, printable
from prowess.core.events import (
    ApprovalAnswered,
    ApprovalAsked,
    CallActed,
    CallPlanned,
    Compacted,
    Envelope,
    ErrorRaised,
    ModelReplied,
    RunFinished,
    RunStarted,
    SkillLoaded,
    SkillUnloaded,
    UnknownEvent,
)
from prowess.core.findings import visible
from prowess.core.values import Outcome, ToolCall
from prowess.records.summary import RunSummary, summarise

_ARGS = 100  # characters of a call's arguments that a person is shown


def tell(envelopes: Sequence[Envelope]) -> list[dict[str, Any]]:
    """Each run as in run.json, and what was said and done in it, in order."""
    runs = summarise(envelopes)
    root = {run: summary.run for summary in runs for run in (summary.run, *summary.children)}
    said: dict[str, list[dict[str, Any]]] = {summary.run: [] for summary in runs}
    acted = {
        (envelope.run, envelope.event.call_id): envelope.event.outcome
        for envelope in envelopes
        if isinstance(envelope.event, CallActed)
    }
    for envelope in envelopes:
        thing = _thing(envelope, acted)
        if thing is not None:
            said[root[envelope.run]].append({"run": envelope.run, **thing})
    return [{**summary.to_json(), "said": _without_answer(said[summary.run], summary)} for summary in runs]


def show(screen: Screen, runs: Sequence[dict[str, Any]]) -> None:
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


def one_line(text: str, most: int) -> str:
    line = " ".join(text[: most * 4].split())
    return line if len(line) <= most else line[: most - 1] + "…"


_MARKS = {"skill": "* ", "unload": "* ", "call": "- ", "text": "  ", "note": "! ", "error": "! ", "run": "+ "}


def _thing(envelope: Envelope, acted: dict[tuple[str, str], Outcome]) -> dict[str, Any] | None:
    event = envelope.event
    if isinstance(event, SkillLoaded):
        name = event.name or event.id.rpartition(":")[2]
        return {"kind": "skill", "id": event.id, "text": f"loaded {name} (by {_WHO.get(event.trigger, event.trigger)})"}
    if isinstance(event, SkillUnloaded):
        return {"kind": "unload", "id": event.id, "text": f"unloaded {event.id.rpartition(':')[2]}"}
    if isinstance(event, CallPlanned):
        outcome = acted.get((envelope.run, event.call.id))
        # Written before it was executed, and nothing after: it was cut off, or is under way at this moment.
        status, code = (outcome.status, outcome.code) if outcome else ("unfinished", None)
        return {"kind": "call", "id": event.call.id, "text": _call(event.call), "status": status, "code": code}
    if isinstance(event, ModelReplied):
        return {"kind": "text", "text": event.text} if event.text.strip() else None
    if isinstance(event, ApprovalAsked):
        return {"kind": "note", "id": event.call_id, "text": f"asked: {event.why}"}
    if isinstance(event, ApprovalAnswered):
        by = f" by {event.by}" if event.by else ""
        return {"kind": "note", "id": event.call_id, "text": f"answered{by}: {event.answer}"}
    if isinstance(event, Compacted):
        text = f"shortened the conversation: {event.before_tokens} to {event.after_tokens} tokens ({event.why})"
        return {"kind": "note", "text": text}
    if isinstance(event, ErrorRaised):
        return {"kind": "error", "text": event.message, "code": event.code}
    if isinstance(event, RunStarted) and event.parent is not None:
        what = f"goes on with {event.resumes}" if event.resumes else event.request
        return {"kind": "run", "text": f"child run {envelope.run}: {what}"}
    if isinstance(event, RunFinished) and event.code:
        return {"kind": "error", "text": event.text or "The run ended with an error.", "code": event.code}
    if isinstance(event, UnknownEvent):
        return {"kind": "note", "text": f"{event.type} (of a newer release)"}
    return None


_WHO = {"model": "the model", "user": "the user", "caller": "the caller", "path": "a file", "nested": "a skill"}


def _call(call: ToolCall) -> str:
    args = json.dumps(call.args, ensure_ascii=False, separators=(", ", ": "))
    return f"{call.tool} {one_line(args, _ARGS)}" if call.args else call.tool


def _without_answer(said: list[dict[str, Any]], summary: RunSummary) -> list[dict[str, Any]]:
    """The last reply is the answer, and stands at the end of the run."""
    for number in range(len(said) - 1, -1, -1):
        if said[number]["kind"] in ("text", "error") and said[number]["run"] == summary.run:
            if summary.text and said[number]["text"] == summary.text and said[number]["kind"] == "text":
                return said[:number] + said[number + 1 :]
            if said[number]["kind"] == "text":
                break
    return said


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
