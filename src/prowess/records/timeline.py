"""Texts about the events of a run: one table for the live view, the timeline of a run and the story of a session.

Each type of event has one function, with the wordings of all three views. A timeline has one line per event, with time
and reason; for the story, see `records/story.py`. Texts are not escaped: the surface that prints them does that.
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
    ModelRetried,
    NoteAppended,
    OutputRequested,
    PlanChanged,
    RunFinished,
    RunStarted,
    SessionImported,
    SkillLoaded,
    SkillUnloaded,
    TextDelta,
    UnknownEvent,
)
from prowess.core.values import Outcome, ToolCall, Usage
from prowess.records.call_text import render_doing, render_done

_STEP_MARKS = {"completed": "[x]", "in_progress": "[>]", "pending": "[ ]"}
_RETRY = "Trying again"
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
    if describe is None:
        return EventText()
    return describe(event, context)


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
    began = envelopes[0].at if envelopes else ""
    tools: dict[tuple[str, str], str] = {}  # by run and call
    found: list[Moment] = []
    for envelope in envelopes:
        event = envelope.event
        run = envelope.run
        tool = ""
        if isinstance(event, CallPlanned):
            tools[run, event.call.id] = event.call.tool
        elif isinstance(event, CallDecided | CallActed):
            tool = tools.get((run, event.call_id), event.call_id)
        context = EventContext(run=run, tool=tool, full=full)
        line = describe_event(event, context).timeline
        if line is None:
            continue
        if not full:
            line = _shortened(line)
        offset = _offset_ms(began, envelope.at)
        found.append(Moment(envelope.seq, offset, run, line.kind, line.text, line.more))
    return found


def _shortened(line: EventLine) -> EventLine:
    """Cuts what follows a line to one line. A note follows on the same line."""
    more = one_line(line.more)
    if line.kind != "note":
        return line._replace(more=more)
    text = f"{line.text}: {more}"
    return line._replace(text=text, more="")


def _offset_ms(began: str, at: str) -> int | None:
    start = _parse_time(began)
    moment = _parse_time(at)
    if start is None or moment is None:
        return None
    seconds = (moment - start).total_seconds()
    return round(seconds * 1000)


def _parse_time(at: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


# --- the table: runs and models ---------------------------------------------------------------------------------------


def _run_started(event: RunStarted, context: EventContext) -> EventText:
    text = "run begins"
    if event.parent:
        text += f" as a part of {event.parent}"
    if event.resumes:
        text += f" and goes on with {event.resumes}"
    text += f" · {event.model} · {event.protocol}"
    files = [part.text or "" for part in event.attachments if part.kind == "file"]
    if files:
        text += f" · with {', '.join(files)}"
    line = EventLine("request", text, event.request)
    if event.parent is None:
        notes = [EventLine("fact", one_line(note, 300)) for note in event.notes]
        return EventText(line, live=notes)
    told = event.request
    live = f"a child run: {one_line(told, 200)}"
    if event.resumes:
        told = f"goes on with {event.resumes}"
        live = "the child run goes on"
    story = EventLine("run", f"child run {context.run}: {told}")
    return EventText(line, story, [EventLine("run", live)])


def _epoch_started(event: EpochStarted, _: EventContext) -> EventText:
    text = f"epoch: {event.why}"
    if event.first_changed is not None:
        text += f" · changes from byte {event.first_changed}"
    return EventText(EventLine("epoch", text))


def _catalog_planned(event: CatalogPlanned, _: EventContext) -> EventText:
    plan = event.plan
    text = f"catalog: {len(plan.shown)} shown"
    text += f", {len(plan.name_only)} by name"
    text += f", {len(plan.searchable)} to be searched"
    text += f", {len(plan.hidden)} hidden"
    return EventText(EventLine("catalog", text))


def _model_requested(event: ModelRequested, _: EventContext) -> EventText:
    text = f"asks the model · {event.bytes} bytes"
    text += f" · {event.sha256[:12]}"
    line = EventLine("request-sent", text)
    return EventText(line, doing="thinking")


def _text_delta(_: TextDelta, __: EventContext) -> EventText:
    return EventText(doing="writing")


def _call_delta(event: CallDelta, _: EventContext) -> EventText:
    if not event.tool:
        return EventText()
    tool = one_line(event.tool)
    return EventText(doing=f"preparing {tool}")


def _model_replied(event: ModelReplied, _: EventContext) -> EventText:
    number = len(event.calls)
    text = f"the model replies ({event.finish})"
    text += _tokens(event.usage, cached=True)
    if number == 1:
        text += " · 1 call"
    elif number:
        text += f" · {number} calls"
    line = EventLine("reply", text, event.text)
    said = event.text.strip()
    if not said:
        return EventText(line)
    story = EventLine("text", event.text)
    if not number or event.finish == "stop":
        return EventText(line, story)
    shown = said[:_LONGEST_REPLY].split("\n")
    return EventText(line, story, [EventLine("text", each) for each in shown])


def _model_retried(event: ModelRetried, context: EventContext) -> EventText:
    hint = f"{_RETRY} in {event.wait_s:.1f} s ({event.attempt} of {event.tries - 1})."
    return _error_raised(ErrorRaised(code=event.code, message=event.message, hint=hint), context)


def _run_finished(event: RunFinished, _: EventContext) -> EventText:
    code = event.code
    text = f"run ends: {event.stop_reason}"
    if code:
        text += f" [{code}]"
    text += _tokens(event.usage)
    if event.usage.cost:
        text += f" · cost {event.usage.cost:g}"
    line = EventLine("end", text, event.text)
    story = EventLine("error", event.text or "The run ended with an error.", code=code) if code else None
    return EventText(line, story, doing="ending")


def _tokens(usage: Usage, *, cached: bool = False) -> str:
    """Renders ` · 1200 tokens in (800 cached), 30 out`; nothing when no tokens were counted."""
    if not usage.input and not usage.output:
        return ""
    text = f" · {usage.input} tokens in"
    if cached and usage.cached:
        text += f" ({usage.cached} cached)"
    return f"{text}, {usage.output} out"


# --- calls ------------------------------------------------------------------------------------------------------------


def _call_planned(event: CallPlanned, context: EventContext) -> EventText:
    call = event.call
    args = ""
    shown = ""
    if call.args:
        args = json.dumps(call.args, ensure_ascii=False)
        shown = args
        if context.full:
            shown = json.dumps(call.args, ensure_ascii=False, indent=1)
    text = f"calls {call.tool}"
    if call.trigger != "model":
        text = f"(for the {call.trigger}) {text}"
    line = EventLine("call", text, shown)
    # A call is recorded before it is executed. Without an outcome it was cut off, or is running now.
    status = "unfinished"
    code = None
    if context.outcome is not None:
        status = context.outcome.status
        code = context.outcome.code
    told = call.tool
    if args:
        told += f" {one_line(args)}"
    return EventText(line, EventLine("call", told, id=call.id, status=status, code=code))


def _call_decided(event: CallDecided, context: EventContext) -> EventText:
    decision = event.decision
    text = f"{decision.verdict} {context.tool}"
    text += f" · {decision.rule} · {decision.why}"
    return EventText(EventLine("decision", text))


def _call_acted(event: CallActed, context: EventContext) -> EventText:
    outcome = event.outcome
    text = f"{context.tool}: {_result(outcome)}"
    line = EventLine("outcome", text, _output(outcome))
    call = context.call
    if call is None:
        return EventText(line, doing="going on")
    done = render_done(call, outcome)
    is_detail = outcome.status == "ok" and call.tool in context.routine
    live = [EventLine("outcome", done, is_detail=is_detail)]
    for warning in outcome.data.get("warnings") or ():
        told = one_line(str(warning), 500)
        live.append(EventLine("warning", f"warning: {told}"))
    return EventText(line, live=live, doing="going on")


def _result(outcome: Outcome) -> str:
    data = outcome.data
    text = outcome.status
    if outcome.code:
        text += f" [{outcome.code}]"
    exit_code = data.get("exit_code")
    if type(exit_code) is int:
        text += f" · exit code {exit_code}"
    duration_ms = data.get("duration_ms")
    if type(duration_ms) is int:
        text += f" · {duration_ms} ms"
    isolation = data.get("isolation")
    if isinstance(isolation, dict):
        text += f" · {isolation.get('executor')} ({isolation.get('mechanism')})"
    return text


def _output(outcome: Outcome) -> str:
    """Returns what a script printed, if anything, instead of the whole text that the model is given."""
    printed: list[str] = []
    for name in ("stdout", "stderr"):
        text = outcome.data.get(name)
        if isinstance(text, str) and text:
            printed.append(text.rstrip("\n"))
    if not printed:
        return outcome.content
    return "\n".join(printed)


def _approval_asked(event: ApprovalAsked, _: EventContext) -> EventText:
    why = event.why
    line = EventLine("approval", f"a person is asked: {why}")
    told = f"asked: {why}"
    story = EventLine("note", told, id=event.call_id)
    doing = "waiting for a person's approval"
    return EventText(line, story, doing=doing)


def _approval_answered(event: ApprovalAnswered, context: EventContext) -> EventText:
    answer = event.answer
    by = event.by
    text = "answered"
    if by:
        text += f" by {by}"
    text += f": {answer}"
    story = EventLine("note", text, id=event.call_id)
    if event.why:
        text += f": {event.why}"
    line = EventLine("approval", text)
    doing = "going on"
    if context.call is not None:
        doing = render_doing(context.call)
    if not by or by == "terminal":
        return EventText(line, story, doing=doing)
    said = "denied" if answer == "no" else f"approved ({answer})"
    live = EventLine("note", f"{said}: {one_line(by)}")
    return EventText(line, story, [live], doing)


# --- skills, plans and notes ------------------------------------------------------------------------------------------


def _skill_loaded(event: SkillLoaded, _: EventContext) -> EventText:
    trigger = event.trigger
    name = event.name or _name_in(event.id)
    text = f"loads {name} · by {trigger}"
    if event.rank is not None:
        text += f" · rank {event.rank}"
    digest = event.digest.removeprefix("sha256:")[:12]
    text += f" · {event.id}@{digest}"
    if event.reason:
        text += f" · {event.reason}"
    line = EventLine("skill", text)
    by = _TRIGGERS.get(trigger, trigger)
    story = EventLine("skill", f"loaded {name} (by {by})", id=event.id)
    live = f"loaded {one_line(event.name or event.id)}"
    if trigger in _CAUSES:
        live += f" ({_CAUSES[trigger]})"
    return EventText(line, story, [EventLine("skill", live)])


_TRIGGERS = {"model": "the model", "user": "the user", "caller": "the caller", "path": "a file", "nested": "a skill"}
_CAUSES = {"user": "named by you", "caller": "named by you", "path": "for a file", "nested": "as a child run"}


def _name_in(id: str) -> str:
    return id.rpartition(":")[2]


def _skill_unloaded(event: SkillUnloaded, _: EventContext) -> EventText:
    id = event.id
    text = f"unloads {id}"
    live = f"unloaded {one_line(id)}"
    if event.reason:
        text += f" · {event.reason}"
        live += f": {one_line(event.reason)}"
    line = EventLine("skill", text)
    told = f"unloaded {_name_in(id)}"
    story = EventLine("unload", told, id=id)
    return EventText(line, story, [EventLine("skill", live)])


def _plan_changed(event: PlanChanged, _: EventContext) -> EventText:
    goal = one_line(event.plan.goal)
    steps = event.plan.steps
    done = 0
    rows: list[str] = []
    for step in steps:
        if step.status == "completed":
            done += 1
        mark = _STEP_MARKS.get(step.status, "[?]")
        rows.append(f"{mark} {step.id} {step.title}")
    number = len(steps)
    text = f"plan: {goal} · {done} of {number} done"
    line = EventLine("plan", text, "\n".join(rows))
    told = f"plan: {goal}, {number} steps"
    live = EventLine("plan", told, is_detail=True)
    return EventText(line, live=[live])


def _note_appended(event: NoteAppended, _: EventContext) -> EventText:
    note = event.text.removeprefix("<note>")
    note = note.removesuffix("</note>")
    note = note.strip("\n")
    line = EventLine("note", f"note ({event.kind})", note)
    return EventText(line)


def _output_requested(event: OutputRequested, _: EventContext) -> EventText:
    return EventText(EventLine("note", "the answer must fit a schema", event.json_schema))


def _compacted(event: Compacted, _: EventContext) -> EventText:
    why, before, after = event.why, event.before_tokens, event.after_tokens
    size = f"the conversation: {before} to {after} tokens"
    line = EventLine("compacted", f"shortens {size} · {why}", event.summary or "")
    story = EventLine("note", f"shortened {size} ({why})")
    live = f"made room: {one_line(why)} ({before:,} -> {after:,})"
    return EventText(line, story, [EventLine("note", live)])


def _error_raised(event: ErrorRaised, _: EventContext) -> EventText:
    code = event.code
    message = event.message
    hint = event.hint or ""
    line = EventLine("error", f"error: {message} [{code}]", hint)
    story = EventLine("error", message, code=code)
    said = f"{one_line(message, 300)} {one_line(hint, 300)}"
    if hint.startswith(_RETRY):  # so a retry was recorded before there was `model_retried`
        live = EventLine("error", f"{said} [{one_line(code)}]")
        return EventText(line, story, [live], doing=f"waiting: {one_line(message)}")
    if code == "skill-not-found" and "taken as" in message:
        live = EventLine("warning", f"warning: {said}".rstrip())
        return EventText(line, story, [live])
    return EventText(line, story)


def _unknown(event: UnknownEvent, _: EventContext) -> EventText:
    text = f"{event.type} (of a newer release)"
    return EventText(EventLine("unknown", text), EventLine("note", text))


_TABLE: dict[type[Any], Callable[[Any, EventContext], EventText]] = {
    RunStarted: _run_started,
    OutputRequested: _output_requested,
    EpochStarted: _epoch_started,
    CatalogPlanned: _catalog_planned,
    ModelRequested: _model_requested,
    TextDelta: _text_delta,
    CallDelta: _call_delta,
    ModelReplied: _model_replied,
    ModelRetried: _model_retried,
    RunFinished: _run_finished,
    SessionImported: lambda event, _: EventText(
        EventLine("note", f"imported from {event.source}; no answer before it counts")
    ),
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
