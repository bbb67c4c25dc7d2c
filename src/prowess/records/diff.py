"""Finds the first difference between two records of a run.

Expected differences do not count: times, durations, generated ids, temporary folders, workspaces, hashes. The bytes of
requests are compared only as long as everything that went into them was exactly equal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    CatalogPlanned,
    Compacted,
    Envelope,
    EpochStarted,
    ErrorRaised,
    ModelReplied,
    ModelRequested,
    NoteAppended,
    RunFinished,
    RunStarted,
    SkillLoaded,
    SkillUnloaded,
    UnknownEvent,
)

_CALLS = (CallPlanned, CallDecided, ApprovalAsked, ApprovalAnswered, CallActed)
_OF_THE_PLACE = (CallDecided, ApprovalAsked, ApprovalAnswered)
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
    found = [
        difference
        for ours, theirs in zip_longest(_by_run(recorded), _by_run(actual), fillvalue=())
        if (difference := _first(ours, theirs, set(ignore), reordered)) is not None
    ]
    return min(found, key=lambda difference: (difference.seq is None, difference.seq or 0)) if found else None


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


def _by_run(envelopes: Sequence[Envelope]) -> list[list[Envelope]]:
    runs: dict[str, list[Envelope]] = {}
    for envelope in envelopes:
        runs.setdefault(envelope.run, []).append(envelope)
    return [_in_order(part) for part in runs.values()]


def _in_order(envelopes: Sequence[Envelope]) -> list[Envelope]:
    """Sorts the events of parallel calls call by call. They were stored as they happened, so their order varies."""
    found: list[Envelope] = []
    group: list[Envelope] = []
    for envelope in envelopes:
        if isinstance(envelope.event, _CALLS):
            group.append(envelope)
        else:
            found += [*_call_by_call(group), envelope]
            group = []
    return [*found, *_call_by_call(group)]


def _call_by_call(group: Sequence[Envelope]) -> list[Envelope]:
    order: dict[str, int] = {}
    for envelope in group:
        order.setdefault(_call_id(envelope), len(order))
    return sorted(group, key=lambda envelope: order[_call_id(envelope)])


def _call_id(envelope: Envelope) -> str:
    event: Any = envelope.event
    return event.call.id if isinstance(event, CallPlanned) else event.call_id


def _first(
    recorded: Sequence[Envelope], actual: Sequence[Envelope], ignore: set[str], reordered: bool
) -> Difference | None:
    to_the_letter = True
    for ours, theirs in zip_longest(recorded, actual):
        if ours is None or theirs is None or ours.event.type != theirs.event.type:
            return _other_event(ours, theirs, ended=(_has_ended(recorded), _has_ended(actual)))
        for what, before, now in _facts(ours.event, theirs.event, to_the_letter, reordered):
            same = before == now or (what not in _TO_THE_LETTER and mask(before) == mask(now))
            if what not in ignore and not same:
                before, now = (before, now) if what in _TO_THE_LETTER else _around(before, now)
                return Difference(what, ours.seq, theirs.seq, ours.event.type, before, now)
        to_the_letter = to_the_letter and _is_same(ours.event, theirs.event)
        reordered = reordered or _has_an_order(ours.event)
    return None


def _has_ended(events: Sequence[Envelope]) -> bool:
    """True if the run has ended. The record of a killed run just stops. A run that never started needs no remark."""
    return not events or any(isinstance(each.event, RunFinished) for each in events)


def _other_event(ours: Envelope | None, theirs: Envelope | None, *, ended: tuple[bool, bool]) -> Difference:
    there = ours or theirs
    return Difference(
        "event",
        ours.seq if ours else None,
        theirs.seq if theirs else None,
        there.event.type if there else "",
        describe(ours.event) if ours else "nothing: it had ended" if ended[0] else _STOPS,
        describe(theirs.event) if theirs else "nothing: it has ended" if ended[1] else _STOPS,
    )


def _facts(ours: Any, theirs: Any, to_the_letter: bool, reordered: bool) -> Iterator[tuple[str, str, str]]:
    """Yields (kind of difference, before, now) for all that is compared between two events of one type."""
    if isinstance(ours, ModelRequested):
        # A stored line has sorted keys, so the model's order of arguments is only in the first request.
        excused = reordered and ours.bytes == theirs.bytes
        if to_the_letter and not excused and ours.sha256 != theirs.sha256:
            yield "request-bytes", _bytes(ours), _bytes(theirs)
        return
    for kind, facts in _FACTS:
        if isinstance(ours, kind):
            for (what, before), (_, now) in zip(facts(ours), facts(theirs), strict=True):
                yield what, _text(before), _text(now)
            return
    yield "event", _text(to_json(ours)), _text(to_json(theirs))


def _bytes(event: ModelRequested) -> str:
    return f"{event.bytes} bytes, sha256 {event.sha256}"


def _acted(event: CallActed) -> list[tuple[str, Any]]:
    outcome, data = event.outcome, event.outcome.data
    result = {"status": outcome.status, "code": outcome.code}
    ran = {name: data.get(name) for name in ("exit_code", "timed_out") if name in data}
    return [("outcome", {**result, **ran}), ("output", outcome.content)]


_FACTS: tuple[tuple[type[Any], Callable[[Any], list[tuple[str, Any]]]], ...] = (
    (
        RunStarted,
        lambda event: [
            ("start", event.request),
            ("start", [part.text for part in event.attachments]),
            ("start", [event.protocol, event.load_mode, event.placement]),
            ("limits", event.limits),
            ("model", event.model),
        ],
    ),
    (
        EpochStarted,
        lambda event: [("request", event.why), ("request", event.system), ("request", to_json(event.tools))],
    ),
    (CatalogPlanned, lambda event: [("catalog", {**to_json(event.plan), "tokens": None})]),
    (ModelReplied, lambda event: [("reply", event.text), ("reply", to_json(event.calls)), ("reply", event.finish)]),
    (CallPlanned, lambda event: [("call", to_json(event.call))]),
    (CallDecided, lambda event: [("decision", [event.call_id, event.decision.verdict, event.decision.rule])]),
    (ApprovalAsked, lambda event: [("approval", event.call_id)]),
    (ApprovalAnswered, lambda event: [("approval", [event.call_id, event.answer])]),
    (CallActed, _acted),
    (SkillLoaded, lambda event: [("skill", [event.id, event.trigger]), ("digest", event.digest)]),
    (SkillUnloaded, lambda event: [("skill", event.id)]),
    (NoteAppended, lambda event: [("request", [event.kind, event.text])]),
    (Compacted, lambda event: [("request", [event.why, event.dropped, sorted(event.replaced)])]),
    (ErrorRaised, lambda event: [("error", event.code)]),
    (RunFinished, lambda event: [("end", event.stop_reason), ("end", event.code), ("answer", event.text)]),
    (UnknownEvent, lambda event: [("event", event.data)]),
)


def _has_an_order(event: Any) -> bool:
    return isinstance(event, ModelReplied) and any(len(call.args) > 1 or _nested(call.args) for call in event.calls)


def _nested(args: Mapping[str, Any]) -> bool:
    return any(isinstance(value, dict | list) for value in args.values())


def _is_same(ours: Any, theirs: Any) -> bool:
    """True if the parts of a request are exactly equal, including times and ids."""
    if isinstance(ours, CallActed):
        return ours.outcome == theirs.outcome
    if isinstance(ours, NoteAppended | ModelReplied | EpochStarted):
        return to_json(ours) == to_json(theirs)
    return True


def describe(event: Any) -> str:
    """Returns an event in one line."""
    if isinstance(event, CallPlanned):
        return f"call_planned {event.call.tool} {_text(event.call.args)}"[:_LONGEST]
    if isinstance(event, CallActed):
        return f"call_acted {event.outcome.status} {event.outcome.code or ''}".rstrip()
    if isinstance(event, ErrorRaised):
        return f"error {event.code}: {event.message}"[:_LONGEST]
    if isinstance(event, RunFinished):
        return f"run_finished {event.stop_reason} {event.code or ''}".rstrip()
    if isinstance(event, SkillLoaded):
        return f"skill_loaded {event.id}"
    return str(event.type)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(to_json(value), ensure_ascii=False, sort_keys=True)


def _around(before: str, now: str) -> tuple[str, str]:
    """Cuts two long texts to the place where they differ."""
    if len(before) <= _LONGEST and len(now) <= _LONGEST:
        return before, now
    before, now = mask(before), mask(now)
    place = next((n for n, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), min(len(before), len(now)))
    start = max(0, place - 60)
    return _cut(before, start), _cut(now, start)


def _cut(text: str, start: int) -> str:
    end = start + _LONGEST
    return f"{'…' if start else ''}{text[start:end]}{'…' if len(text) > end else ''}"
