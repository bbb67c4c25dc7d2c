"""The stored bytes of an event never change, and what earlier code could read is still read the same way."""

from __future__ import annotations

import dataclasses
import json
import typing
from pathlib import Path
from typing import Any

import pytest
from golden_events import FILLED, KEY, LATER, golden_events

from prowess.core.events import EPHEMERAL, Event, RunFinished, RunStarted, UnknownEvent, parse_event, render_event
from prowess.core.values import Usage
from prowess.errors import StoreError
from prowess.records.chain import GENESIS, seal, verify_chain

GOLDEN = Path(__file__).parent / "golden"
LINES = (GOLDEN / "lines.jsonl").read_text(encoding="ascii").splitlines()
READINGS = [json.loads(line) for line in (GOLDEN / "readings.jsonl").read_text(encoding="ascii").splitlines()]


def test_every_stored_event_is_there_with_every_field_filled() -> None:
    filled = [*FILLED, *LATER]
    assert {type(event) for event in filled} == {cls for cls in typing.get_args(Event) if cls.type not in EPHEMERAL}
    for event in filled:
        for each in dataclasses.fields(event):
            values = [getattr(other, each.name) for other in filled if type(other) is type(event)]
            assert any(value not in (None, (), {}, "") for value in values), f"{event.type}.{each.name} has no value"


def test_the_lines_are_those_of_the_code_before() -> None:
    _, lines = seal(KEY, GENESIS, golden_events())
    assert lines == LINES
    assert verify_chain(LINES).valid


def test_a_line_that_was_read_is_written_with_the_same_bytes() -> None:
    read = [parse_event(json.loads(line)) for line in LINES]
    _, lines = seal(KEY, GENESIS, read)
    changed = [
        before for before, after in zip(LINES, lines, strict=True) if without_links(before) != without_links(after)
    ]
    # An integer in a field for floats becomes a float when it is read.
    assert [json.loads(line)["type"] for line in changed] == ["run_started", "run_finished", "run_started"]


def without_links(line: str) -> str:
    data = json.loads(line)
    return json.dumps({name: value for name, value in data.items() if name not in ("prev", "hash")})


@pytest.mark.parametrize("reading", READINGS, ids=lambda reading: reading["name"])
def test_a_line_is_read_as_before(reading: dict[str, Any]) -> None:
    """A reading has a line, and either the event that the code before made of it or the field that it refused."""
    try:
        envelope = parse_event(reading["line"])
    except ValueError as error:
        assert str(error).split(" must be ")[0].split(" is missing")[0] == reading.get("refused"), str(error)
        return
    assert json.dumps(render_event(envelope)) == json.dumps(reading["read"])
    assert ("unknown" in reading) == isinstance(envelope.event, UnknownEvent)


@pytest.mark.parametrize(
    "number", [float("nan"), float("inf"), float("-inf"), 10**5000], ids=["nan", "inf", "-inf", "long"]
)
def test_a_number_that_json_cannot_carry_is_refused(number: float) -> None:
    (first, *_) = golden_events()
    usage = Usage(cost=number)
    for event in (
        RunStarted(model="m", limits={"x": number}),
        RunFinished(stop_reason="answer", usage=usage),
        UnknownEvent(type="x", data={"usage": usage}),
    ):
        with pytest.raises(StoreError) as caught:
            seal(KEY, GENESIS, [dataclasses.replace(first, event=event)])
        assert caught.value.code == "event-invalid"
