"""Finds the first difference between two records of a run.

Events are compared as JSON, field by field. A field that is added to an event is compared, unless `_NOT_COMPARED` names
it. Expected differences in texts do not count: times, durations, generated ids, temporary folders, workspaces, hashes.
Nor does a request that was tried again. The bytes of requests are compared only as long as everything that went into
them was exactly equal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, NamedTuple

from prowess.core.codec import to_json
from prowess.core.events import (
    ApprovalAnswered,
    ApprovalAsked,
    CallActed,
    CallDecided,
    CallPlanned,
    Compacted,
    Envelope,
    EpochStarted,
    ErrorRaised,
    Event,
    ModelReplied,
    ModelRequested,
    NoteAppended,
    RunFinished,
    SkillLoaded,
    UnknownEvent,
)

_CALLS = (CallPlanned, CallDecided, ApprovalAsked, ApprovalAnswered, CallActed)
_OF_THE_PLACE = (CallDecided, ApprovalAsked, ApprovalAnswered)
_IN_REQUESTS = (EpochStarted, ModelReplied, CallActed, NoteAppended)
_PROGRAM_RESULTS = ("exit_code", "timed_out")  # the only data of an outcome that is compared
_NOT_COMPARED = {
    "run_started": "schema versions attachments.ref parent call resumes requested_skills resume_arguments notes mark",
    "epoch_started": "first_changed",
    "catalog_planned": "plan.tokens",
    "model_replied": "usage request_id model",
    "call_decided": "decision.why decision.limits decision.about",
    "approval_asked": "why mark",
    "approval_answered": "why by asked later mark",
    "call_acted": "outcome.hint outcome.state_delta state_delta",
    "skill_loaded": "name rank reason",
    "skill_unloaded": "reason",
    "compacted": "before_tokens after_tokens usage",
    "error": "message hint",
    "run_finished": "usage hint prompts",
}
_KINDS = {  # kinds of difference, by event or by field of an event; the kind of all others is "event"
    "run_started": "start",
    "run_started.limits": "limits",
    "run_started.model": "model",
    "epoch_started": "request",
    "catalog_planned": "catalog",
    "model_requested": "request-bytes",
    "model_replied": "reply",
    "call_planned": "call",
    "call_decided": "decision",
    "approval_asked": "approval",
    "approval_answered": "approval",
    "call_acted": "outcome",
    "call_acted.content": "output",
    "skill_loaded": "skill",
    "skill_loaded.digest": "digest",
    "skill_unloaded": "skill",
    "note_appended": "request",
    "compacted": "request",
    "error": "error",
    "run_finished": "end",
    "run_finished.text": "answer",
}
_NATURE = (
    (re.compile(r"(?:/[\w.@+-]{1,100}){0,20}/s-[0-9a-f]{12}-[0-9a-f]{32}/root\b|(?<![\w/])/workspace\b"), "…workspace"),
    (re.compile(r'("duration_ms\\*+"\s*+:\s*+)\d+'), r"\1…"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?"), "…time"),
    (re.compile(r"\b\d{8}T\d{6}Z\b"), "…time"),
    (re.compile(r"\b[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?: [A-Z]{2,5})? \d{4}\b"), "…time"),  # ctime
    (re.compile(r"\b1[6-9]\d{8}(?:\.\d+)?\b"), "…time"),
    (re.compile(r"\b\d+(?:\.\d+)?\s?(?:ms|µs|us|ns|s|secs?|seconds?)\b"), "…time"),
    (re.compile(r"\b(?:run|r|s)-[0-9a-f]{12}\b"), "…id"),  # our ids, which can consist of digits only
    (re.compile(r"\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)[0-9a-f]{8,}\b"), "…id"),
    (re.compile(r'host://[^"\s\\]+'), "host://…"),
    (re.compile(r"(/(?:var/)?tmp/)[\w.-]+"), r"\1…"),
)
_TO_THE_LETTER = ("digest", "request-bytes")  # hashes that are compared exactly
_LONGEST = 300  # characters of a value in a report
_STOPS = "nothing: the record ends here"


class Difference(NamedTuple):
    """First difference. `what` is its kind. The numbers are those of the events, or None if a record has no event
    there."""

    what: str
    seq: int | None
    other_seq: int | None
    type: str
    recorded: str
    actual: str


def first_difference(
    recorded: Sequence[Envelope],
    actual: Sequence[Envelope],
    *,
    ignore: Sequence[str] = (),
    reordered: bool = False,
) -> Difference | None:
    """Returns the first difference. `ignore` names kinds that do not count. `reordered`: the arguments of earlier calls
    may be in another order. Child runs are compared in the order of their starts, because their events can be
    interleaved."""
    first: Difference | None = None
    for ours, theirs in zip_longest(_by_run(recorded), _by_run(actual), fillvalue=[]):
        found = _first(ours, theirs, ignore, reordered)
        if found is not None and (first is None or _place(found) < _place(first)):
            first = found
    return first


def _place(difference: Difference) -> tuple[bool, int]:
    return difference.seq is None, difference.seq or 0


def without_place(envelopes: Sequence[Envelope]) -> list[Envelope]:
    """Drops what another machine, executor or limit changes: decisions, approvals, notes about what is left, and the
    output of programs. A call that is denied because of them still differs in its outcome."""
    found: list[Envelope] = []
    for each in envelopes:
        event = each.event
        is_budget = isinstance(event, NoteAppended) and event.kind == "budget"
        if isinstance(event, CallActed) and "exit_code" in event.outcome.data:
            found.append(replace(each, event=replace(event, outcome=replace(event.outcome, content=""))))
        elif not is_budget and not isinstance(event, _OF_THE_PLACE):
            found.append(each)
    return found


def mask(text: str) -> str:
    """Replaces the expected differences by placeholders."""
    for pattern, instead in _NATURE:
        text = pattern.sub(instead, text)
    return text


def settled(events: Sequence[Envelope]) -> list[Envelope]:
    """Drops the events of retries: the same request counts once."""
    dropped: set[int] = set()
    tried: dict[str, list[int]] = {}  # run -> places of its last request and of the errors after it
    for place, envelope in enumerate(events):
        event = envelope.event
        pending = tried.setdefault(envelope.run, [])
        if isinstance(event, ErrorRaised) and (event.hint or "").startswith("Trying again"):
            dropped.add(place)
        elif isinstance(event, ModelRequested):
            dropped.update(pending)
            tried[envelope.run] = [place]
        elif isinstance(event, ErrorRaised) and pending:
            pending.append(place)
        else:
            pending.clear()
    return [each for place, each in enumerate(events) if place not in dropped]


def _by_run(envelopes: Sequence[Envelope]) -> list[list[Envelope]]:
    runs: dict[str, list[Envelope]] = {}
    for envelope in settled(envelopes):
        runs.setdefault(envelope.run, []).append(envelope)
    return [_in_order(part) for part in runs.values()]


def _in_order(envelopes: Sequence[Envelope]) -> list[Envelope]:
    """Sorts the events of parallel calls call by call. They were stored as they happened, so their order varies."""
    found: list[Envelope] = []
    calls: dict[str, list[Envelope]] = {}
    for envelope in envelopes:
        call_id = _call_id(envelope.event)
        if call_id is not None:
            calls.setdefault(call_id, []).append(envelope)
            continue
        for call in calls.values():
            found += call
        calls.clear()
        found.append(envelope)
    for call in calls.values():
        found += call
    return found


def _call_id(event: Event | UnknownEvent) -> str | None:
    if isinstance(event, CallPlanned):
        return event.call.id
    return event.call_id if isinstance(event, _CALLS) else None


def _first(
    recorded: Sequence[Envelope], actual: Sequence[Envelope], ignore: Sequence[str], reordered: bool
) -> Difference | None:
    our_calls = _number_calls(recorded)
    their_calls = _number_calls(actual)
    to_the_letter = True
    for ours, theirs in zip_longest(recorded, actual):
        if ours is None or theirs is None or ours.event.type != theirs.event.type:
            return _other_event(ours, theirs, ended=(_has_ended(recorded), _has_ended(actual)))
        before, now = ours.event, theirs.event
        if isinstance(before, ModelRequested) and isinstance(now, ModelRequested):
            # A stored line has sorted keys, so the model's order of arguments is only in the first request.
            excused = reordered and before.bytes == now.bytes
            if excused or not to_the_letter:
                continue
        found = _differing_field(before.type, _fields(before, our_calls), _fields(now, their_calls), ignore)
        if found is not None:
            what, text, other_text = found
            return Difference(what, ours.seq, theirs.seq, before.type, text, other_text)
        if isinstance(before, _IN_REQUESTS) and to_json(before) != to_json(now):
            to_the_letter = False
        reordered = reordered or _has_an_order(before)
    return None


def _number_calls(envelopes: Sequence[Envelope]) -> dict[str, str]:
    """Returns a number for each call id. Providers generate the ids, so they differ from run to run."""
    numbers: dict[str, str] = {}
    for envelope in envelopes:
        event = envelope.event
        ids = [call.id for call in event.calls] if isinstance(event, ModelReplied) else [_call_id(event)]
        for call_id in ids:
            if call_id is not None:
                numbers.setdefault(call_id, f"call {len(numbers) + 1}")
    return numbers


def _other_event(ours: Envelope | None, theirs: Envelope | None, *, ended: tuple[bool, bool]) -> Difference:
    recorded = "nothing: it had ended" if ended[0] else _STOPS
    actual = "nothing: it has ended" if ended[1] else _STOPS
    kind = ""
    if theirs is not None:
        actual = describe(theirs.event)
        kind = theirs.event.type
    if ours is not None:
        recorded = describe(ours.event)
        kind = ours.event.type
    return Difference("event", ours and ours.seq, theirs and theirs.seq, kind, recorded, actual)


def _has_ended(events: Sequence[Envelope]) -> bool:
    """True if the run has ended. The record of a killed run just stops. A run that never started needs no remark."""
    return not events or any(isinstance(each.event, RunFinished) for each in events)


def _fields(event: Event | UnknownEvent, calls: Mapping[str, str]) -> dict[str, Any]:
    """Returns the fields that are compared, as JSON. `calls` has the numbers that stand for call ids."""
    if isinstance(event, UnknownEvent):
        return to_json(event.data)
    if isinstance(event, ModelRequested):
        return {"request": f"{event.bytes} bytes, sha256 {event.sha256}"}
    fields = to_json(event)
    for path in _NOT_COMPARED.get(event.type, "").split():
        _drop(fields, path.split("."))
    if isinstance(event, CallActed):
        outcome = fields["outcome"]
        fields["content"] = outcome.pop("content")
        data = outcome.pop("data")
        outcome |= {name: data[name] for name in _PROGRAM_RESULTS if name in data}
    elif isinstance(event, Compacted):
        fields["replaced"] = sorted(calls.get(call_id, call_id) for call_id in event.replaced)
    return _renamed(fields, calls)


def _drop(value: Any, path: Sequence[str]) -> None:
    """Removes a field, in each item of a list."""
    name, *rest = path
    if isinstance(value, list):
        for item in value:
            _drop(item, path)
    elif rest:
        _drop(value[name], rest)
    else:
        del value[name]


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, list):
        return [_renamed(item, names) for item in value]
    if isinstance(value, dict):
        return {name: _renamed(item, names) for name, item in value.items()}
    return value


def _differing_field(
    event: str, ours: Mapping[str, Any], theirs: Mapping[str, Any], ignore: Sequence[str]
) -> tuple[str, str, str] | None:
    """Returns the kind of the first difference, and both texts. Fields with a kind of their own come last."""
    kind = _KINDS.get(event, "event")
    for name in sorted({**ours, **theirs}, key=lambda name: f"{event}.{name}" in _KINDS):
        what = _KINDS.get(f"{event}.{name}", kind)
        if what in ignore:
            continue
        before = _text(ours.get(name))
        now = _text(theirs.get(name))
        if before == now:
            continue
        if what in _TO_THE_LETTER:
            return what, before, now
        if mask(before) != mask(now):
            return what, *_around(before, now)
    return None


def _has_an_order(event: Event | UnknownEvent) -> bool:
    """True for a reply with arguments that could be in another order."""
    if not isinstance(event, ModelReplied):
        return False
    for call in event.calls:
        nested = any(isinstance(value, dict | list) for value in call.args.values())
        if nested or len(call.args) > 1:
            return True
    return False


def describe(event: Event | UnknownEvent) -> str:
    """Returns an event in one line."""
    text: str = event.type
    match event:
        case CallPlanned(call=call):
            text += f" {call.tool} {_text(call.args)}"
        case CallActed(outcome=outcome):
            text += f" {outcome.status} {outcome.code or ''}"
        case ErrorRaised(code=code, message=message):
            text += f" {code}: {message}"
        case RunFinished(stop_reason=reason, code=code):
            text += f" {reason} {code or ''}"
        case SkillLoaded(id=id):
            text += f" {id}"
        case _:
            pass
    return text[:_LONGEST].rstrip()


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _around(before: str, now: str) -> tuple[str, str]:
    """Cuts two long texts to the place where they differ."""
    if len(before) <= _LONGEST and len(now) <= _LONGEST:
        return before, now
    before = mask(before)
    now = mask(now)
    place = 0
    for ours, theirs in zip(before, now, strict=False):
        if ours != theirs:
            break
        place += 1
    start = max(0, place - 60)
    return _cut(before, start), _cut(now, start)


def _cut(text: str, start: int) -> str:
    end = start + _LONGEST
    cut = text[start:end]
    if start:
        cut = f"…{cut}"
    if len(text) > end:
        cut += "…"
    return cut
