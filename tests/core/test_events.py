"""Every event is the same after a trip through a line of JSON, and a line of a newer release is not lost."""

from __future__ import annotations

import dataclasses
import json
import typing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_values import strategy_of

from prowess.core.events import (
    EPHEMERAL,
    EVENT_TYPES,
    PLACE,
    ApprovalAnswered,
    CallActed,
    CallDecided,
    CallPlanned,
    Envelope,
    ErrorRaised,
    Event,
    RunFinished,
    RunStarted,
    SkillLoaded,
    TextDelta,
    UnknownEvent,
    parse_event,
    render_event,
)
from prowess.core.values import Decision, Outcome, SessionKey, ToolCall, Usage
from prowess.records.chain import GENESIS, seal

CONTRACT = (
    *("run_started", "output_requested", "epoch_started", "catalog_planned", "model_requested", "model_replied"),
    "model_retried",
    *("text_delta", "call_delta", "plan_changed", "call_planned", "call_decided"),
    *("approval_asked", "approval_answered", "call_acted"),
    *("skill_loaded", "skill_unloaded", "note_appended", "compacted", "error", "run_finished"),
    "session_imported",
)


def envelope_of(event: Any, seq: int | None = 1) -> Envelope:
    return Envelope(seq=seq, at="2026-01-02T03:04:05Z", session="s", run="r", event=event)


def test_the_types_are_those_of_the_contract() -> None:
    assert tuple(EVENT_TYPES) == CONTRACT
    assert set(EVENT_TYPES) > EPHEMERAL


@pytest.mark.parametrize("cls", typing.get_args(Event), ids=lambda cls: cls.type)
def test_no_field_hides_a_part_of_the_envelope(cls: type) -> None:
    assert not {f.name for f in dataclasses.fields(cls)} & set(PLACE)


@pytest.mark.parametrize("cls", typing.get_args(Event), ids=lambda cls: cls.type)
@settings(deadline=None, max_examples=50, database=None)
@given(data=st.data())
def test_round_trip(cls: type, data: st.DataObject) -> None:
    envelope = Envelope(
        seq=data.draw(st.none() | st.integers(min_value=1)),
        at=data.draw(st.text(max_size=5)),
        tenant=data.draw(st.just("default") | st.text(max_size=5)),
        app=data.draw(st.just("default") | st.text(max_size=5)),
        user=data.draw(st.just("default") | st.text(max_size=5)),
        session=data.draw(st.text(max_size=5)),
        prev=data.draw(st.none() | st.text(max_size=5)),
        hash=data.draw(st.none() | st.text(max_size=5)),
        run=data.draw(st.text(max_size=5)),
        event=data.draw(strategy_of(cls)),
    )
    line = json.dumps(render_event(envelope))
    assert parse_event(json.loads(line)) == envelope


@settings(deadline=None, database=None)
@given(
    kind=st.text(max_size=10).filter(lambda kind: kind not in EVENT_TYPES),
    data=st.dictionaries(st.text(max_size=5).filter(lambda name: name not in PLACE), strategy_of(Any), max_size=3),
    seq=st.integers(),
)
def test_an_unknown_event_survives(kind: str, data: dict[str, Any], seq: int) -> None:
    line = {"seq": seq, "at": "now", "session": "s", "run": "r", "type": kind, **data}
    envelope = parse_event(json.loads(json.dumps(line)))
    assert envelope.event == UnknownEvent(type=kind, data=data)
    assert render_event(envelope) == line


def test_a_line_is_flat() -> None:
    assert render_event(envelope_of(CallPlanned(call=ToolCall(id="c1", tool="skill_load", args={"skill": "pdf"})))) == {
        "seq": 1,
        "at": "2026-01-02T03:04:05Z",
        "session": "s",
        "run": "r",
        "type": "call_planned",
        "call": {"id": "c1", "tool": "skill_load", "args": {"skill": "pdf"}, "trigger": "model"},
    }


def test_the_fields_that_the_contract_names() -> None:
    decision = Decision(verdict="ask", rule="local-trusted", why="no isolation")
    started = render_event(envelope_of(RunStarted(model="offline", versions={"prowess": "0.1.0"})))
    assert (started["schema"], started["model"], started["protocol"]) == ("prowess.events/1", "offline", "tools")
    decided = render_event(envelope_of(CallDecided(call_id="c1", decision=decision)))["decision"]
    assert (decided["verdict"], decided["rule"], decided["why"]) == ("ask", "local-trusted", "no isolation")
    acted = render_event(envelope_of(CallActed(call_id="c1", outcome=Outcome(status="ok"), state_delta={"k": 1})))
    assert (acted["outcome"]["status"], acted["state_delta"]) == ("ok", {"k": 1})
    loaded = render_event(envelope_of(SkillLoaded(id="user:pdf", digest="sha256:0", trigger="path", rank=1)))
    assert {"id", "digest", "trigger", "rank", "reason"} < set(loaded)
    finished = render_event(envelope_of(RunFinished(stop_reason="limit:turns", text="so far", usage=Usage(input=3))))
    assert (finished["stop_reason"], finished["text"], finished["usage"]["input"]) == ("limit:turns", "so far", 3)


def test_an_ephemeral_event_has_no_number() -> None:
    assert "seq" not in render_event(envelope_of(TextDelta(text="Hel"), seq=None))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"type": None}, "event.type"),
        ({"seq": "1"}, "event.seq"),
        ({"seq": True}, "event.seq"),
        ({"at": 5}, "event.at"),
        ({"session": None}, "event.session"),
        ({"run": []}, "event.run"),
        ({"tenant": None}, "event.tenant"),
        ({"prev": 0}, "event.prev"),
        ({"hash": None}, "event.hash"),
        ({"answer": "perhaps"}, "ApprovalAnswered.answer"),
        ({"call_id": None}, "ApprovalAnswered.call_id"),
    ],
)
def test_a_bad_line_names_the_field(change: dict[str, Any], field: str) -> None:
    line = render_event(envelope_of(ApprovalAnswered(call_id="c1", answer="once"))) | change
    with pytest.raises(ValueError, match="must be") as caught:
        parse_event(line)
    assert field in str(caught.value)


def test_what_is_not_an_object_is_not_an_event() -> None:
    with pytest.raises(ValueError, match="an event must be an object"):
        parse_event(["run_started"])


def test_a_record_with_old_names_is_read() -> None:
    place = {"at": "2026-01-02T03:04:05.000006Z", "session": "s", "run": "r"}
    started = parse_event(
        {**place, "type": "run_started", "model": "m", "wishes": [{"ref": "pdf"}], "again": ["--root", "x"]}
    ).event
    assert isinstance(started, RunStarted)
    assert (started.requested_skills, started.resume_arguments) == (({"ref": "pdf"},), ("--root", "x"))
    raised = parse_event({**place, "type": "error", "code": "observer-behind", "message": "m"}).event
    assert isinstance(raised, ErrorRaised) and raised.code == "observer-overflow"
    outcome = {"status": "failed", "content": "c", "code": "look-failed"}
    acted = parse_event({**place, "type": "call_acted", "call_id": "c", "outcome": outcome}).event
    assert isinstance(acted, CallActed) and acted.outcome.code == "probe-failed"


def test_an_event_is_its_own_dictionary_and_line() -> None:
    event = ErrorRaised(code="c", message="m")
    assert event.to_dict() == {"type": "error", "code": "c", "message": "m", "hint": None}
    assert json.loads(event.to_json()) == event.to_dict()
    assert UnknownEvent(type="new", data={"x": 1}).to_dict() == {"type": "new", "x": 1}
    envelope = envelope_of(event)
    assert envelope.type == "error" and envelope.to_dict() == render_event(envelope)
    assert json.loads(envelope.to_json()) == envelope.to_dict()


def test_the_line_of_a_stored_event_is_the_stored_text() -> None:
    sealed, lines = seal(SessionKey(session="s"), GENESIS, [envelope_of(ErrorRaised(code="c", message="ü"), None)])
    assert [each.to_json() for each in sealed] == lines
    assert parse_event(json.loads(lines[0])).to_json() == lines[0], "also when it was read again"
    assert "\n" not in lines[0]
