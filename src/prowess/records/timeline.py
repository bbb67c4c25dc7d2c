"""Texts about the events of a run: one table for the live view, the timeline of a run and the story of a session.

Each type of event has one function, with the wordings of all three views. A timeline has one line per event, with time
and reason. A story has the request, the loaded skills, the calls and the answer of each run. Texts are not escaped: the
surface that prints them does that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from prowess._internal.text import one_line
from prowess.core.events import (
    ApprovalAnswered,
    ApprovalAsked,
    CallActed,
    CallDecided,
    CallDelta,
    CallPlanned,
    CatalogPlanned,
    Compacted,
    Envelope,
    EpochStarted,
    ErrorRaised,
    Event,
    ModelReplied,
    ModelRequested,
    NoteAppended,
    PlanChanged,
    RunFinished,
    RunStarted,
    SkillLoaded,
    SkillUnloaded,
    TextDelta,
    UnknownEvent,
)
from prowess.core.values import Outcome, ToolCall, Usage
from prowess.records.call_text import render_doing, render_done
from prowess.records.summary import RunSummary, summarise

_LONGEST_REPLY = 4000  # characters of the text that comes with a model's calls, live


class EventLine(NamedTuple):
    """Text about one event. `more` is text that follows it, line by line."""

    kind: str
    text: str
    more: str = ""
    id: str | None = None  # of the skill or the call that it is about
    status: str | None = None  # of the call
    code: str | None = None
    is_detail: bool = False  # for a person who asked for details


class EventText(NamedTuple):
    """Wordings of one event. A view that has none does not show the event."""

    timeline: EventLine | None = None
    story: EventLine | None = None
    live: Sequence[EventLine] = ()
    doing: str | None = None  # status of the run from now on


class EventContext(NamedTuple):
    """Facts that are not in the event itself, and that its texts need."""

    run: str = ""
    tool: str = ""  # tool of the call that the event is about
    outcome: Outcome | None = None  # outcome of the planned call, if the record has one
    full: bool = False  # no text is cut to a line
    call: ToolCall | None = None  # live: the call that is being made
    routine: Collection[str] = ()  # live: tools whose success is a detail


def describe_event(event: Event | UnknownEvent, context: EventContext) -> EventText:
    """Returns the texts about an event. An event that no view shows has none."""
    describe = _TABLE.get(type(event))
    return EventText() if describe is None else describe(event, context)


# --- a run as a timeline ----------------------------------------------------------------------------------------------


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
    began = _parse_time(envelopes[0].at) if envelopes else None
    tools: dict[tuple[str, str], str] = {}  # by run and call
    found: list[Moment] = []
    for envelope in envelopes:
        event, run = envelope.event, envelope.run
        if isinstance(event, CallPlanned):
            tools[run, event.call.id] = event.call.tool
        call_id = event.call_id if isinstance(event, CallDecided | CallActed) else ""
        tool = tools.get((run, call_id), call_id)
        line = describe_event(event, EventContext(run=run, tool=tool, full=full)).timeline
        if line is None:
            continue
        text, more = line.text, line.more
        if not full:
            more = one_line(more)
            text, more = (f"{text}: {more}", "") if line.kind == "note" else (text, more)
        at = _parse_time(envelope.at)
        offset = round((at - began).total_seconds() * 1000) if at and began else None
        found.append(Moment(envelope.seq, offset, run, line.kind, text, more))
    return found


def _parse_time(at: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


# --- a session as a story ---------------------------------------------------------------------------------------------


def tell(envelopes: Sequence[Envelope]) -> list[dict[str, Any]]:
    """Returns each run as in run.json, with the things said and done in it, in order."""
    runs = summarise(envelopes)
    root = {run: summary.run for summary in runs for run in (summary.run, *summary.children)}
    said: dict[str, list[tuple[str, EventLine]]] = {summary.run: [] for summary in runs}
    acted = {
        (envelope.run, envelope.event.call_id): envelope.event.outcome
        for envelope in envelopes
        if isinstance(envelope.event, CallActed)
    }
    for envelope in envelopes:
        event, run = envelope.event, envelope.run
        outcome = acted.get((run, event.call.id)) if isinstance(event, CallPlanned) else None
        line = describe_event(event, EventContext(run=run, outcome=outcome)).story
        if line is not None:
            said[root[run]].append((run, line))
    return [
        {**summary.to_json(), "said": [_row(*each) for each in _without_answer(said[summary.run], summary)]}
        for summary in runs
    ]


def _without_answer(said: list[tuple[str, EventLine]], summary: RunSummary) -> list[tuple[str, EventLine]]:
    """Leaves out the last reply: it is the answer, which is shown at the end of the run."""
    for number in range(len(said) - 1, -1, -1):
        run, line = said[number]
        if run == summary.run and line.kind == "text":
            is_answer = bool(summary.text) and line.text == summary.text
            return said[:number] + said[number + 1 :] if is_answer else said
    return said


def _row(run: str, line: EventLine) -> dict[str, Any]:
    row: dict[str, Any] = {"run": run, "kind": line.kind}
    if line.id is not None:
        row["id"] = line.id
    row["text"] = line.text
    if line.status is not None:
        row["status"] = line.status
    if line.status is not None or line.code is not None:
        row["code"] = line.code
    return row


# --- the table: runs and models ---------------------------------------------------------------------------------------


def _run_started(event: RunStarted, context: EventContext) -> EventText:
    of = f" as a part of {event.parent}" if event.parent else ""
    of += f" and goes on with {event.resumes}" if event.resumes else ""
    files = [part.text or "" for part in event.attachments if part.kind == "file"]
    given = f" · with {', '.join(files)}" if files else ""
    line = EventLine("request", f"run begins{of} · {event.model} · {event.protocol}{given}", event.request)
    if event.parent is None:
        return EventText(line, live=[EventLine("fact", one_line(note, 300)) for note in event.notes])
    what = f"goes on with {event.resumes}" if event.resumes else event.request
    child = "the child run goes on" if event.resumes else f"a child run: {one_line(event.request, 200)}"
    return EventText(line, EventLine("run", f"child run {context.run}: {what}"), [EventLine("run", child)])


def _epoch_started(event: EpochStarted, _: EventContext) -> EventText:
    where = "" if event.first_changed is None else f" · changes from byte {event.first_changed}"
    return EventText(EventLine("epoch", f"epoch: {event.why}{where}"))


def _catalog_planned(event: CatalogPlanned, _: EventContext) -> EventText:
    plan = event.plan
    shown = f"{len(plan.shown)} shown, {len(plan.name_only)} by name, {len(plan.searchable)} to be searched"
    return EventText(EventLine("catalog", f"catalog: {shown}, {len(plan.hidden)} hidden"))


def _model_requested(event: ModelRequested, _: EventContext) -> EventText:
    line = EventLine("request-sent", f"asks the model · {event.bytes} bytes · {event.sha256[:12]}")
    return EventText(line, doing="thinking")


def _text_delta(_: TextDelta, __: EventContext) -> EventText:
    return EventText(doing="writing")


def _call_delta(event: CallDelta, _: EventContext) -> EventText:
    return EventText(doing=f"preparing {one_line(event.tool)}" if event.tool else None)


def _model_replied(event: ModelReplied, _: EventContext) -> EventText:
    number = len(event.calls)
    calls = f" · {number} {'call' if number == 1 else 'calls'}" if number else ""
    text = f"the model replies ({event.finish}){_tokens(event.usage, cached=True)}{calls}"
    said = event.text.strip()
    comes_with_calls = bool(said and number) and event.finish != "stop"
    return EventText(
        EventLine("reply", text, event.text),
        EventLine("text", event.text) if said else None,
        [EventLine("text", line) for line in said[:_LONGEST_REPLY].split("\n")] if comes_with_calls else (),
    )


def _run_finished(event: RunFinished, _: EventContext) -> EventText:
    label = f" [{event.code}]" if event.code else ""
    cost = f" · cost {event.usage.cost:g}" if event.usage.cost else ""
    text = f"run ends: {event.stop_reason}{label}{_tokens(event.usage)}{cost}"
    failure = EventLine("error", event.text or "The run ended with an error.", code=event.code)
    return EventText(EventLine("end", text, event.text), failure if event.code else None, doing="ending")


def _tokens(usage: Usage, *, cached: bool = False) -> str:
    if not usage.input and not usage.output:
        return ""
    from_cache = f" ({usage.cached} cached)" if cached and usage.cached else ""
    return f" · {usage.input} tokens in{from_cache}, {usage.output} out"


# --- calls ------------------------------------------------------------------------------------------------------------


def _call_planned(event: CallPlanned, context: EventContext) -> EventText:
    call, outcome = event.call, context.outcome
    args = json.dumps(call.args, ensure_ascii=False) if call.args else ""
    shown = json.dumps(call.args, ensure_ascii=False, indent=1) if call.args and context.full else args
    whose = "" if call.trigger == "model" else f"(for the {call.trigger}) "
    # A call is recorded before it is executed. Without an outcome it was cut off, or is running now.
    status, code = (outcome.status, outcome.code) if outcome else ("unfinished", None)
    text = f"{call.tool} {one_line(args)}" if args else call.tool
    return EventText(
        EventLine("call", f"{whose}calls {call.tool}", shown),
        EventLine("call", text, id=call.id, status=status, code=code),
    )


def _call_decided(event: CallDecided, context: EventContext) -> EventText:
    decision = event.decision
    return EventText(EventLine("decision", f"{decision.verdict} {context.tool} · {decision.rule} · {decision.why}"))


def _call_acted(event: CallActed, context: EventContext) -> EventText:
    call, outcome = context.call, event.outcome
    line = EventLine("outcome", f"{context.tool}: {_result(outcome)}", _output(outcome))
    if call is None:
        return EventText(line, doing="going on")
    is_detail = outcome.status == "ok" and call.tool in context.routine
    live = [EventLine("outcome", render_done(call, outcome), is_detail=is_detail)]
    for warning in outcome.data.get("warnings") or ():
        live.append(EventLine("warning", f"warning: {one_line(str(warning), 500)}"))
    return EventText(line, live=live, doing="going on")


def _result(outcome: Outcome) -> str:
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


def _output(outcome: Outcome) -> str:
    """Returns what a script printed, if anything, instead of the JSON that the model is given."""
    streams = [outcome.data.get(name) for name in ("stdout", "stderr")]
    printed = [text.rstrip("\n") for text in streams if isinstance(text, str) and text]
    return "\n".join(printed) if printed else outcome.content


def _approval_asked(event: ApprovalAsked, _: EventContext) -> EventText:
    return EventText(
        EventLine("approval", f"a person is asked: {event.why}"),
        EventLine("note", f"asked: {event.why}", id=event.call_id),
        doing="waiting for a person's approval",
    )


def _approval_answered(event: ApprovalAnswered, context: EventContext) -> EventText:
    text = f"answered{f' by {event.by}' if event.by else ''}: {event.answer}"
    said = "denied" if event.answer == "no" else f"approved ({event.answer})"
    return EventText(
        EventLine("approval", f"{text}{f': {event.why}' if event.why else ''}"),
        EventLine("note", text, id=event.call_id),
        [EventLine("note", f"{said}: {one_line(event.by)}")] if event.by not in (None, "", "terminal") else (),
        doing="going on" if context.call is None else render_doing(context.call),
    )


# --- skills, plans and notes ------------------------------------------------------------------------------------------


def _skill_loaded(event: SkillLoaded, _: EventContext) -> EventText:
    name = event.name or event.id.rpartition(":")[2]
    rank = f" · rank {event.rank}" if event.rank is not None else ""
    why = f" · {event.reason}" if event.reason else ""
    digest = event.digest.removeprefix("sha256:")[:12]
    trigger = _TRIGGERS.get(event.trigger, event.trigger)
    cause = f" ({_CAUSES[event.trigger]})" if event.trigger in _CAUSES else ""
    return EventText(
        EventLine("skill", f"loads {name} · by {event.trigger}{rank} · {event.id}@{digest}{why}"),
        EventLine("skill", f"loaded {name} (by {trigger})", id=event.id),
        [EventLine("skill", f"loaded {one_line(event.name or event.id)}{cause}")],
    )


_TRIGGERS = {"model": "the model", "user": "the user", "caller": "the caller", "path": "a file", "nested": "a skill"}
_CAUSES = {"user": "named by you", "caller": "named by you", "path": "for a file", "nested": "as a child run"}


def _skill_unloaded(event: SkillUnloaded, _: EventContext) -> EventText:
    reason = event.reason or ""
    return EventText(
        EventLine("skill", f"unloads {event.id}{f' · {reason}' if reason else ''}"),
        EventLine("unload", f"unloaded {event.id.rpartition(':')[2]}", id=event.id),
        [EventLine("skill", f"unloaded {one_line(event.id)}{f': {one_line(reason)}' if reason else ''}")],
    )


def _plan_changed(event: PlanChanged, _: EventContext) -> EventText:
    goal, steps = one_line(event.plan.goal), event.plan.steps
    done = sum(step.status == "completed" for step in steps)
    marks = {"completed": "[x]", "in_progress": "[>]", "pending": "[ ]"}
    rows = "\n".join(f"{marks.get(step.status, '[?]')} {step.id} {step.title}" for step in steps)
    return EventText(
        EventLine("plan", f"plan: {goal} · {done} of {len(steps)} done", rows),
        live=[EventLine("plan", f"plan: {goal}, {len(steps)} steps", is_detail=True)],
    )


def _note_appended(event: NoteAppended, _: EventContext) -> EventText:
    note = event.text.removeprefix("<note>").removesuffix("</note>").strip("\n")
    return EventText(EventLine("note", f"note ({event.kind})", note))


def _compacted(event: Compacted, _: EventContext) -> EventText:
    before, after, why = event.before_tokens, event.after_tokens, event.why
    size = f"the conversation: {before} to {after} tokens"
    return EventText(
        EventLine("compacted", f"shortens {size} · {why}", event.summary or ""),
        EventLine("note", f"shortened {size} ({why})"),
        [EventLine("note", f"made room: {one_line(why)} ({before:,} -> {after:,})")],
    )


def _error_raised(event: ErrorRaised, _: EventContext) -> EventText:
    code, hint = event.code, event.hint or ""
    line = EventLine("error", f"error: {event.message} [{code}]", hint)
    story = EventLine("error", event.message, code=code)
    said = f"{one_line(event.message, 300)} {one_line(hint, 300)}"
    if hint.startswith("Trying again"):
        live = [EventLine("error", f"{said} [{one_line(code)}]")]
        return EventText(line, story, live, doing=f"waiting: {one_line(event.message)}")
    if code == "skill-not-found" and "taken as" in event.message:
        return EventText(line, story, [EventLine("warning", f"warning: {said}".rstrip())])
    return EventText(line, story)


def _unknown(event: UnknownEvent, _: EventContext) -> EventText:
    text = f"{event.type} (of a newer release)"
    return EventText(EventLine("unknown", text), EventLine("note", text))


_TABLE: dict[type[Any], Callable[[Any, EventContext], EventText]] = {
    RunStarted: _run_started,
    EpochStarted: _epoch_started,
    CatalogPlanned: _catalog_planned,
    ModelRequested: _model_requested,
    TextDelta: _text_delta,
    CallDelta: _call_delta,
    ModelReplied: _model_replied,
    RunFinished: _run_finished,
    CallPlanned: _call_planned,
    CallDecided: _call_decided,
    CallActed: _call_acted,
    ApprovalAsked: _approval_asked,
    ApprovalAnswered: _approval_answered,
    SkillLoaded: _skill_loaded,
    SkillUnloaded: _skill_unloaded,
    PlanChanged: _plan_changed,
    NoteAppended: _note_appended,
    Compacted: _compacted,
    ErrorRaised: _error_raised,
    UnknownEvent: _unknown,
}
