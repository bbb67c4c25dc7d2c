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
from math import inf
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
    ModelRetried,
    NoteAppended,
    RunFinished,
    SessionImported,
    SkillLoaded,
    UnknownEvent,
)

_CALLS = (CallPlanned, CallDecided, ApprovalAsked, ApprovalAnswered, CallActed)
_OF_THE_PLACE = (CallDecided, ApprovalAsked, ApprovalAnswered)
_OF_LIMITS = ("limit:", "budget")  # kinds of notes; the second is that of older records
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
    "output_requested": "start",
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
    our_runs = _by_run(recorded)
    their_runs = _by_run(actual)
    for ours, theirs in zip_longest(our_runs, their_runs, fillvalue=[]):
        found = _first(ours, theirs, ignore, reordered)
        if found is None:
            continue
        if first is None or _place(found) < _place(first):
            first = found
    return first


def _place(difference: Difference) -> float:
    """Returns the place in the record. Events that it does not have come last."""
    seq = difference.seq
    if seq is None:
        return inf
    return seq


def without_place(envelopes: Sequence[Envelope]) -> list[Envelope]:
    """Drops what another machine, executor or limit changes: decisions, approvals, notes about what is left, and the
    output of programs. A call that is denied because of them still differs in its outcome."""
    found: list[Envelope] = []
    for envelope in envelopes:
        event = envelope.event
        if isinstance(event, _OF_THE_PLACE):
            continue
        if isinstance(event, NoteAppended) and event.kind.startswith(_OF_LIMITS):
            continue
        if isinstance(event, CallActed) and "exit_code" in event.outcome.data:
            outcome = replace(event.outcome, content="")
            event = replace(event, outcome=outcome)
            envelope = replace(envelope, event=event)
        found.append(envelope)
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
        if isinstance(event, ModelRequested):
            dropped.update(pending)
            tried[envelope.run] = [place]
        elif isinstance(event, ModelRetried):
            dropped.add(place)
        elif not isinstance(event, ErrorRaised):
            pending.clear()
        elif event.hint and event.hint.startswith("Trying again"):
            dropped.add(place)
        elif pending:
            pending.append(place)
    return [each for place, each in enumerate(events) if place not in dropped]


def _by_run(envelopes: Sequence[Envelope]) -> list[list[Envelope]]:
    """Returns the events of each run, in the order of their starts and without retries."""
    runs: dict[str, list[Envelope]] = {}
    for envelope in settled(envelopes):
        if isinstance(envelope.event, SessionImported):  # of the record, not of the run
            continue
        own = runs.setdefault(envelope.run, [])
        own.append(envelope)
    return [_in_order(own) for own in runs.values()]


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
    """Returns the call that an event is about, if any."""
    if isinstance(event, CallPlanned):
        return event.call.id
    if isinstance(event, _CALLS):
        return event.call_id
    return None


def _first(
    recorded: Sequence[Envelope], actual: Sequence[Envelope], ignore: Sequence[str], reordered: bool
) -> Difference | None:
    """Returns the first difference between the events of two runs."""
    our_calls = _number_calls(recorded)
    their_calls = _number_calls(actual)
    to_the_letter = True
    for ours, theirs in zip_longest(recorded, actual):
        if ours is None or theirs is None or ours.event.type != theirs.event.type:
            return _other_event(ours, theirs, ended=(_has_ended(recorded), _has_ended(actual)))
        before = ours.event
        now = theirs.event
        if isinstance(before, ModelRequested) and isinstance(now, ModelRequested):
            # A stored line has sorted keys, so the model's order of arguments is only in the first request.
            excused = reordered and before.bytes == now.bytes
            if excused or not to_the_letter:
                continue
        our_fields = _fields(before, our_calls)
        their_fields = _fields(now, their_calls)
        found = _differing_field(before.type, our_fields, their_fields, ignore)
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
        ids = [_call_id(event)]
        if isinstance(event, ModelReplied):
            ids = [call.id for call in event.calls]
        for call_id in ids:
            if call_id is not None:
                number = len(numbers) + 1
                numbers.setdefault(call_id, f"call {number}")
    return numbers


def _other_event(ours: Envelope | None, theirs: Envelope | None, *, ended: tuple[bool, bool]) -> Difference:
    """Returns the difference between an event and another one, or none."""
    recorded = "nothing: it had ended" if ended[0] else _STOPS
    actual = "nothing: it has ended" if ended[1] else _STOPS
    seq = other_seq = None
    kind = ""
    if theirs is not None:
        actual = describe(theirs.event)
        other_seq = theirs.seq
        kind = theirs.event.type
    if ours is not None:
        recorded = describe(ours.event)
        seq = ours.seq
        kind = ours.event.type
    return Difference("event", seq, other_seq, kind, recorded, actual)


def _has_ended(events: Sequence[Envelope]) -> bool:
    """True if the run has ended. The record of a killed run just stops. A run that never started needs no remark."""
    if not events:
        return True
    return any(isinstance(each.event, RunFinished) for each in events)


def _fields(event: Event | UnknownEvent, calls: Mapping[str, str]) -> dict[str, Any]:
    """Returns the fields that are compared, as JSON. `calls` has the numbers that stand for call ids."""
    if isinstance(event, UnknownEvent):
        return to_json(event.data)
    if isinstance(event, ModelRequested):
        return {"request": f"{event.bytes} bytes, sha256 {event.sha256}"}
    fields = to_json(event)
    not_compared = _NOT_COMPARED.get(event.type, "")
    for path in not_compared.split():
        _drop(fields, path.split("."))
    if isinstance(event, CallActed):
        outcome = fields["outcome"]
        fields["content"] = outcome.pop("content")
        data = outcome.pop("data")
        for name in _PROGRAM_RESULTS:
            if name in data:
                outcome[name] = data[name]
    elif isinstance(event, Compacted):
        numbers = [calls.get(call_id, call_id) for call_id in event.replaced]
        fields["replaced"] = sorted(numbers)
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
    """Replaces texts that have another name, at any depth."""
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
    names = {**ours, **theirs}
    for name in sorted(names, key=lambda name: f"{event}.{name}" in _KINDS):
        what = _KINDS.get(f"{event}.{name}", kind)
        before = _text(ours.get(name))
        now = _text(theirs.get(name))
        if what in ignore or before == now:
            continue
        if what in _TO_THE_LETTER:
            return what, before, now
        if mask(before) != mask(now):
            before, now = _around(before, now)
            return what, before, now
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
    if isinstance(event, CallPlanned):
        args = _text(to_json(event.call.args))
        text += f" {event.call.tool} {args}"
    elif isinstance(event, CallActed):
        text += f" {event.outcome.status} {event.outcome.code or ''}"
    elif isinstance(event, ErrorRaised):
        text += f" {event.code}: {event.message}"
    elif isinstance(event, RunFinished):
        text += f" {event.stop_reason} {event.code or ''}"
    elif isinstance(event, SkillLoaded):
        text += f" {event.id}"
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
