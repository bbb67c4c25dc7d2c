"""One table gives the text of an event to every view."""

from __future__ import annotations

from typing import Any

import pytest

from prowess.core.events import (
    EPHEMERAL,
    EVENT_TYPES,
    CallActed,
    Compacted,
    Event,
    RunStarted,
    SkillLoaded,
    UnknownEvent,
    parse_event,
)
from prowess.core.values import Outcome, ToolCall
from prowess.records.timeline import EventContext, EventLine, describe_event

LEAST: dict[str, dict[str, Any]] = {  # the fields that an event must have
    "run_started": {"model": "m"},
    "output_requested": {"json_schema": "{}"},
    "epoch_started": {"why": "run started"},
    "catalog_planned": {"plan": {"shown": [], "tokens": {"budget": 1, "used": 0}}},
    "model_requested": {"bytes": 1, "sha256": "ab"},
    "model_retried": {"attempt": 1, "tries": 5, "code": "c", "message": "m", "wait_s": 0.5},
    "text_delta": {"text": "x"},
    "call_delta": {"index": 0},
    "plan_changed": {"plan": {"goal": "g", "steps": []}},
    "call_planned": {"call": {"id": "c", "tool": "t"}},
    "call_decided": {"call_id": "c", "decision": {"verdict": "allow", "rule": "r", "why": "w"}},
    "approval_asked": {"call_id": "c", "why": "w"},
    "approval_answered": {"call_id": "c", "answer": "no"},
    "call_acted": {"call_id": "c", "outcome": {"status": "ok"}},
    "skill_loaded": {"id": "a", "digest": "d", "trigger": "model"},
    "skill_unloaded": {"id": "a"},
    "note_appended": {"text": "n"},
    "compacted": {"why": "w", "before_tokens": 2, "after_tokens": 1},
    "error": {"code": "c", "message": "m"},
    "run_finished": {"stop_reason": "answer"},
    "session_imported": {"source": "/old/prowess.db", "events": 7},
}


@pytest.mark.parametrize("kind", [*EVENT_TYPES, "of_tomorrow"])
def test_every_stored_event_has_a_line_in_the_timeline(kind: str) -> None:
    line = {"at": "2026-01-02T03:04:05Z", "session": "s", "run": "r", "type": kind, **LEAST.get(kind, {})}
    event = parse_event(line).event
    assert isinstance(event, EVENT_TYPES.get(kind, UnknownEvent))
    assert (describe_event(event, EventContext()).timeline is None) is (kind in EPHEMERAL)


@pytest.mark.parametrize(
    ("event", "timeline", "story", "live"),
    [
        (
            SkillLoaded(id="builtin:csv", name="csv", digest="sha256:12", trigger="path"),
            "loads csv · by path · builtin:csv@12",
            "loaded csv (by a file)",
            ["loaded csv (for a file)"],
        ),
        (
            Compacted(why="context", before_tokens=9000, after_tokens=40),
            "shortens the conversation: 9000 to 40 tokens · context",
            "shortened the conversation: 9000 to 40 tokens (context)",
            ["made room: context (9,000 -> 40)"],
        ),
        (
            RunStarted(model="m", request="Look", parent="r-1"),
            "run begins as a part of r-1 · m · tools",
            "child run r-2: Look",
            ["a child run: Look"],
        ),
    ],
)
def test_an_event_has_a_wording_for_each_view(event: Event, timeline: str, story: str, live: list[str]) -> None:
    text = describe_event(event, EventContext(run="r-2"))
    assert text.timeline and text.timeline.text == timeline and text.story and text.story.text == story
    assert [line.text for line in text.live] == live


def test_the_success_of_a_routine_call_is_a_detail() -> None:
    call = ToolCall(id="c", tool="read_file", args={"path": "a.txt"})
    acted = CallActed(call_id="c", outcome=Outcome(status="ok", data={"warnings": ["cut"]}))
    context = EventContext(tool="read_file", call=call, routine={"read_file"})
    done = EventLine("outcome", "read_file a.txt: ok", is_detail=True)
    assert describe_event(acted, context).live == [done, EventLine("warning", "warning: cut")]
    assert describe_event(acted, context._replace(routine=())).live[0] == done._replace(is_detail=False)
    assert describe_event(acted, context._replace(call=None)).live == (), "a record has no call that is being made"
