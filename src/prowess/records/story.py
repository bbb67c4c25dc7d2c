"""A session as a story: the request, the loaded skills, the calls and the answer of each run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prowess.core.events import CallActed, CallPlanned, Envelope
from prowess.core.values import Outcome
from prowess.records.summary import RunSummary, summarise
from prowess.records.timeline import EventContext, EventLine, describe_event

_Said = list[tuple[str, EventLine]]  # lines, with their runs


def tell(envelopes: Sequence[Envelope]) -> list[dict[str, Any]]:
    """Returns each run as in run.json, with the things said and done in it, in order."""
    outcomes = _outcomes(envelopes)
    runs = summarise(envelopes)
    said: dict[str, _Said] = {}  # child runs have the list of their parent
    for summary in runs:
        lines: _Said = []
        said |= dict.fromkeys((summary.run, *summary.children), lines)
    for envelope in envelopes:
        event = envelope.event
        run = envelope.run
        outcome = None
        if isinstance(event, CallPlanned):
            outcome = outcomes.get((run, event.call.id))
        context = EventContext(run=run, outcome=outcome)
        line = describe_event(event, context).story
        if line is not None:
            said[run].append((run, line))
    story: list[dict[str, Any]] = []
    for summary in runs:
        lines = _without_answer(said[summary.run], summary)
        rows = [_row(run, line) for run, line in lines]
        story.append({**summary.to_json(), "said": rows})
    return story


def _outcomes(envelopes: Sequence[Envelope]) -> dict[tuple[str, str], Outcome]:
    """Returns the last outcome of each call, by run and call."""
    found: dict[tuple[str, str], Outcome] = {}
    for envelope in envelopes:
        event = envelope.event
        if isinstance(event, CallActed):
            found[envelope.run, event.call_id] = event.outcome
    return found


def _without_answer(said: _Said, summary: RunSummary) -> _Said:
    """Leaves out the last reply: it is the answer, which is shown at the end of the run."""
    answer = summary.text
    place = len(said)
    while place > 0:
        place -= 1
        run, line = said[place]
        if run != summary.run or line.kind != "text":
            continue
        if not answer or line.text != answer:
            break
        return [*said[:place], *said[place + 1 :]]
    return said


def _row(run: str, line: EventLine) -> dict[str, Any]:
    """Returns a line for the JSON document. Fields that it does not have are left out."""
    row: dict[str, Any] = {"run": run, "kind": line.kind}
    if line.id is not None:
        row["id"] = line.id
    row["text"] = line.text
    if line.status is not None:
        row["status"] = line.status
        row["code"] = line.code
    elif line.code is not None:
        row["code"] = line.code
    return row
