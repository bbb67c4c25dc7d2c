"""Renders recorded runs for people: a run as a timeline, a session run by run.

A timeline has one line per event, with time and reason; events of a child run are indented. A session shows for each
run the request, the skills that were loaded, the calls, and the answer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from prowess.cli.screen import Screen, count, printable
from prowess.core.events import (
    ApprovalAnswered,
    ApprovalAsked,
    CallActed,
    CallDecided,
    CallPlanned,
    CatalogPlanned,
    Compacted,
    Envelope,
    EpochStarted,
    ErrorRaised,
    ModelReplied,
    ModelRequested,
    NoteAppended,
    PlanChanged,
    RunFinished,
    RunStarted,
    SkillLoaded,
    SkillUnloaded,
    UnknownEvent,
)
from prowess.core.findings import visible
from prowess.core.values import Outcome, Plan, ToolCall
from prowess.records.summary import RunSummary, summarise

_ARGS = 100  # characters of a call's arguments that are shown


def tell(envelopes: Sequence[Envelope]) -> list[dict[str, Any]]:
    """Returns each run as in run.json, with the things said and done in it, in order."""
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
        # A call is recorded before it is executed. Without an outcome it was cut off, or is running now.
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
    """Leaves out the last reply: it is the answer, which is shown at the end of the run."""
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


_SHORT = 100  # characters of a text, unless `full`


class Moment(NamedTuple):
    """Line of a timeline. `more` is text that follows it, line by line."""

    seq: int | None
    offset_ms: int | None  # since the run began; None when the recorded time is missing or unreadable
    run: str
    kind: str
    text: str
    more: str = ""


def timeline(envelopes: Sequence[Envelope], *, full: bool = False) -> list[Moment]:
    """Returns the lines of a run, in recorded order. With `full`, texts are whole; otherwise they fit a line."""
    began = _moment(envelopes[0].at) if envelopes else None
    calls: dict[tuple[str, str], ToolCall] = {}
    found: list[Moment] = []
    for envelope in envelopes:
        event = envelope.event
        if isinstance(event, CallPlanned):
            calls[envelope.run, event.call.id] = event.call
        told = _tell(event, calls, envelope.run, full)
        if told is None:
            continue
        kind, text, more = told
        if not full:
            more = one_line(more, _SHORT)
            text, more = (f"{text}: {more}", "") if kind == "note" else (text, more)
        at = _moment(envelope.at)
        offset = round((at - began).total_seconds() * 1000) if at and began else None
        found.append(Moment(envelope.seq, offset, envelope.run, kind, text, more))
    return found


def _tell(event: Any, calls: dict[tuple[str, str], ToolCall], run: str, full: bool) -> tuple[str, str, str] | None:
    """Returns (kind, text, further text), or None for an event that is not shown."""
    for kind, tell in _TELLERS:
        if isinstance(event, kind):
            return tell(event)
    if isinstance(event, CallPlanned):
        return "call", f"{_who(event.call)}calls {event.call.tool}", _args(event.call, full)
    if isinstance(event, CallDecided):
        call, decision = calls.get((run, event.call_id)), event.decision
        tool = call.tool if call else event.call_id
        return "decision", f"{decision.verdict} {tool} · {decision.rule} · {decision.why}", ""
    if isinstance(event, CallActed):
        call = calls.get((run, event.call_id))
        return "outcome", f"{call.tool if call else event.call_id}: {_outcome(event.outcome)}", _said(event.outcome)
    if isinstance(event, UnknownEvent):
        return "unknown", f"{event.type} (of a newer release)", ""
    return None


def _started(event: RunStarted) -> tuple[str, str, str]:
    of = f" as a part of {event.parent}" if event.parent else ""
    of += f" and goes on with {event.resumes}" if event.resumes else ""
    files = [part.text or "" for part in event.attachments if part.kind == "file"]
    given = f" · with {', '.join(files)}" if files else ""
    return "request", f"run begins{of} · {event.model} · {event.protocol}{given}", event.request


def _epoch(event: EpochStarted) -> tuple[str, str, str]:
    where = "" if event.first_changed is None else f" · changes from byte {event.first_changed}"
    return "epoch", f"epoch: {event.why}{where}", ""


def _catalog(event: CatalogPlanned) -> tuple[str, str, str]:
    plan = event.plan
    parts = [f"{len(plan.shown)} shown", f"{len(plan.name_only)} by name", f"{len(plan.searchable)} to be searched"]
    return "catalog", f"catalog: {', '.join(parts)}, {len(plan.hidden)} hidden", ""


def _requested(event: ModelRequested) -> tuple[str, str, str]:
    return "request-sent", f"asks the model · {event.bytes} bytes · {event.sha256[:12]}", ""


def _replied(event: ModelReplied) -> tuple[str, str, str]:
    usage = event.usage
    cached = f" ({usage.cached} cached)" if usage.cached else ""
    tokens = f" · {usage.input} tokens in{cached}, {usage.output} out" if usage.input or usage.output else ""
    wants = f" · {count(len(event.calls), 'call')}" if event.calls else ""
    return "reply", f"the model replies ({event.finish}){tokens}{wants}", event.text


def _asked(event: ApprovalAsked) -> tuple[str, str, str]:
    return "approval", f"a person is asked: {event.why}", ""


def _answered(event: ApprovalAnswered) -> tuple[str, str, str]:
    by, why = f" by {event.by}" if event.by else "", f": {event.why}" if event.why else ""
    return "approval", f"answered{by}: {event.answer}{why}", ""


def _loaded(event: SkillLoaded) -> tuple[str, str, str]:
    name = event.name or event.id.rpartition(":")[2]
    rank = f" · rank {event.rank}" if event.rank is not None else ""
    why = f" · {event.reason}" if event.reason else ""
    digest = event.digest.removeprefix("sha256:")[:12]
    return "skill", f"loads {name} · by {event.trigger}{rank} · {event.id}@{digest}{why}", ""


def _unloaded(event: SkillUnloaded) -> tuple[str, str, str]:
    why = f" · {event.reason}" if event.reason else ""
    return "skill", f"unloads {event.id}{why}", ""


def _plan(event: PlanChanged) -> tuple[str, str, str]:
    plan: Plan = event.plan
    done = sum(step.status == "completed" for step in plan.steps)
    marks = {"completed": "[x]", "in_progress": "[>]", "pending": "[ ]"}
    steps = "\n".join(f"{marks.get(step.status, '[?]')} {step.id} {step.title}" for step in plan.steps)
    return "plan", f"plan: {one_line(plan.goal, _SHORT)} · {done} of {len(plan.steps)} done", steps


def _noted(event: NoteAppended) -> tuple[str, str, str]:
    return "note", f"note ({event.kind})", event.text.removeprefix("<note>").removesuffix("</note>").strip("\n")


def _compacted(event: Compacted) -> tuple[str, str, str]:
    text = f"shortens the conversation: {event.before_tokens} to {event.after_tokens} tokens · {event.why}"
    return "compacted", text, event.summary or ""


def _error(event: ErrorRaised) -> tuple[str, str, str]:
    return "error", f"error: {event.message} [{event.code}]", event.hint or ""


def _finished(event: RunFinished) -> tuple[str, str, str]:
    code = f" [{event.code}]" if event.code else ""
    usage = event.usage
    tokens = f" · {usage.input} tokens in, {usage.output} out" if usage.input or usage.output else ""
    cost = f" · cost {usage.cost:g}" if usage.cost else ""
    return "end", f"run ends: {event.stop_reason}{code}{tokens}{cost}", event.text


_TELLERS: tuple[tuple[type[Any], Any], ...] = (
    (RunStarted, _started),
    (EpochStarted, _epoch),
    (CatalogPlanned, _catalog),
    (ModelRequested, _requested),
    (ModelReplied, _replied),
    (ApprovalAsked, _asked),
    (ApprovalAnswered, _answered),
    (SkillLoaded, _loaded),
    (SkillUnloaded, _unloaded),
    (PlanChanged, _plan),
    (NoteAppended, _noted),
    (Compacted, _compacted),
    (ErrorRaised, _error),
    (RunFinished, _finished),
)


def _who(call: ToolCall) -> str:
    return "" if call.trigger == "model" else f"(for the {call.trigger}) "


def _args(call: ToolCall, full: bool) -> str:
    if not call.args:
        return ""
    return json.dumps(
        call.args, ensure_ascii=False, indent=1 if full else None, separators=None if full else (", ", ": ")
    )


def _outcome(outcome: Outcome) -> str:
    data = outcome.data
    parts = [f"{outcome.status}{f' [{outcome.code}]' if outcome.code else ''}"]
    if type(data.get("exit_code")) is int:
        parts.append(f"exit code {data['exit_code']}")
    if type(data.get("duration_ms")) is int:
        parts.append(f"{data['duration_ms']} ms")
    isolation = data.get("isolation")
    if isinstance(isolation, dict):
        parts.append(f"{isolation.get('executor')} ({isolation.get('mechanism')})")
    return " · ".join(parts)


def _said(outcome: Outcome) -> str:
    """Returns what a script printed, if anything, instead of the JSON that the model is given."""
    streams = [outcome.data.get(name) for name in ("stdout", "stderr")]
    if any(isinstance(text, str) and text for text in streams):
        return "\n".join(text.rstrip("\n") for text in streams if isinstance(text, str) and text)
    return outcome.content


def _moment(at: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None
