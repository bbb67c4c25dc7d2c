"""Events whose stored lines are kept in `golden/lines.jsonl`: every type with every field filled, and awkward values.

The lines were written by commit cd64221, before pydantic was the codec. They are never written anew: a line that
differs is a fault of the code.
"""

from __future__ import annotations

import types
from collections import OrderedDict
from typing import Any

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
    UnknownEvent,
)
from prowess.core.values import (
    CatalogPlan,
    Decision,
    Finding,
    Outcome,
    Part,
    Plan,
    SessionKey,
    Step,
    TokenUse,
    ToolCall,
    ToolSpec,
    Usage,
)

KEY = SessionKey(tenant="t", app="a", user="ü 会", session="s-golden")


class Text(str):
    """Text of a library that has its own class for it."""


USAGE = Usage(input=11, cached=7, output=5, reasoning=3, cache_written=2, requests=1, cost=0.1)
CALL = ToolCall(id="c-1", tool="skill_run", args={"z": [1, {"y": None}], "a": "ä"}, trigger="nested")

FILLED: list[Event] = [
    RunStarted(
        schema="prowess.events/1",
        model="scripted:x",
        protocol="actions",
        versions={"prowess": "0.1.0", "python": "3.11"},
        request="Do it\n世界 😀",
        attachments=(Part(kind="image", text=None, ref="artifact://a@0", mime_type="image/png"), Part(text="t")),
        load_mode="session",
        placement="system",
        limits={"max_turns": 12, "max_seconds": 1.5},
        parent="r-0",
        call="c-0",
        resumes="r-9",
        requested_skills=({"skill": "pdf", "deep": {"x": [True, None]}}, {}),
        resume_arguments=("--root", "x"),
        notes=("no model",),
        mark="m" * 8,
    ),
    EpochStarted(
        why="first",
        first_changed=0,
        system="You are",
        tools=(ToolSpec(name="t", description="d", parameters={"type": "object"}, read_only=True),),
    ),
    CatalogPlanned(
        plan=CatalogPlan(
            tokens=TokenUse(budget=100, used=9, exact=True),
            shown=("a", "b"),
            name_only=("c",),
            searchable=("d",),
            hidden=("e",),
        )
    ),
    ModelRequested(bytes=4096, sha256="0" * 64),
    ModelReplied(
        text="Hello", calls=(CALL,), usage=USAGE, finish="calls", request_id="req", model="m-2", code="reply-cut"
    ),
    PlanChanged(
        plan=Plan(
            goal="g",
            steps=(Step(id="1", title="t", status="in_progress"),),
            assumptions=("x",),
            constraints={"max_turns": 3},
        )
    ),
    CallPlanned(call=CALL),
    CallDecided(
        call_id="c-1",
        decision=Decision(verdict="ask", rule="r", why="w", limits={"timeout_s": 1.0}, about={"risk": "high"}),
    ),
    ApprovalAsked(call_id="c-1", why="w", capability="network", mark="m"),
    ApprovalAnswered(
        call_id="c-1", answer="always", why="fine", by="me", capability="network", asked=False, later=True, mark="m"
    ),
    CallActed(
        call_id="c-1",
        outcome=Outcome(
            status="failed", content="out", code="exit", hint="h", data={"exit_code": 1}, state_delta={"k": [1]}
        ),
        state_delta={"k": {"n": -1}},
    ),
    SkillLoaded(id="user:pdf", name="pdf", digest="sha256:0", trigger="path", rank=1, reason="asked"),
    SkillUnloaded(id="user:pdf", reason="full"),
    NoteAppended(text="n", kind="budget"),
    Compacted(
        why="full",
        before_tokens=10,
        after_tokens=2,
        replaced={"c-1": "artifact://x@0", "c-0": "y"},
        dropped=3,
        summary="s",
        usage=USAGE,
    ),
    ErrorRaised(code="x", message="m", hint="h"),
    RunFinished(stop_reason="limit:turns", text="so far", usage=USAGE, code="c", hint="h", prompts=2),
]

EMPTY: list[Event] = [
    RunStarted(model="m"),
    EpochStarted(why=""),
    CatalogPlanned(plan=CatalogPlan(tokens=TokenUse(budget=0, used=0))),
    ModelReplied(),
    CallPlanned(call=ToolCall(id="", tool="")),
    ApprovalAnswered(call_id="", answer="no"),
    CallActed(call_id="", outcome=Outcome(status="ok")),
    Compacted(why="", before_tokens=0, after_tokens=0),
    RunFinished(stop_reason="answer"),
]


def acted(**data: Any) -> CallActed:
    return CallActed(call_id="c", outcome=Outcome(status="ok", data=data))


HIGH, LOW = "\ud800", "\udc00"  # halves of a surrogate pair

AWKWARD: list[Event | UnknownEvent] = [
    NoteAppended(text="half \ud800, other half \udc00, joined \ud83d\ude00, whole 😀"),
    CallPlanned(call=ToolCall(id="\udfff", tool="t", args={HIGH: 1, LOW: HIGH, "\ue000": 2})),
    acted(joined={"\ud83d\ude00": 1, "\uffff": 2}),  # a joined pair sorts after U+FFFF, its first half before
    Compacted(why="w", before_tokens=1, after_tokens=0, replaced={"\ud800": "\udc00"}),
    acted(floats=[0.1, -0.0, 1e100, 1e-7, 5e-324, 1.7976931348623157e308, 1e16, 123456789.123]),
    acted(integers=[0, -1, 2**53 + 1, 2**63, -(2**64), 10**400]),
    RunFinished(stop_reason="answer", usage=Usage(input=2**70, cost=1e-9), prompts=2**65),
    RunFinished(stop_reason="answer", usage=Usage(cost=1)),  # an integer where the type says float
    RunStarted(model="m", limits={"max_turns": 3, "max_cost": 0.5, "big": 10**30}),
    acted(controls='\x00\x01\x1f\x7f\x80"\\/\u2028\u2029'),
    acted(**{"": 0, "a b": 1, "Ä": 2, "会议": 3, "é": 4, "e\u0301": 5, "😀": 6}),
    acted(nested=[[[[{"a": {"b": ({"c": ()},)}}]]]], tuple=(1, (2,)), none=None, yes=True, no=False),
    acted(keys={1: "a", 10: "b", 2: "c", None: "d", 1.5: "e", (1, 2): "f"}, flags={True: 1, False: 0}),
    acted(text=Text("sub"), mapping=types.MappingProxyType({"k": (1,)}), ordered=OrderedDict(b=1, a=2)),
    acted(value=USAGE, values=[CALL, (Step(id="1", title="t"),)], named=Finding("c", "info", "p", "m")),
    UnknownEvent(type="of_tomorrow"),
    UnknownEvent(type="of tomorrow \ud800", data={"call": {"id": 1}, "x": [1.5, (2, None)], "é": USAGE, "text": "t"}),
]

# Types that were added later, at the end: the lines before them keep their bytes.
LATER: list[Event] = [
    OutputRequested(json_schema='{"type":"object"}', native=True),
    ModelRetried(attempt=1, tries=5, code="model-overloaded", message="busy", wait_s=0.5),
    NoteAppended(text="n", kind="limit:turns", call_id="c-1"),
    SessionImported(source="/old/prowess.db", events=7),
]


def golden_events() -> list[Envelope]:
    """Returns all events, each with its place and no number yet."""
    place = {"tenant": KEY.tenant, "app": KEY.app, "user": KEY.user, "session": KEY.session}
    every = [*FILLED, *EMPTY, *AWKWARD, *LATER]
    return [
        Envelope(at=f"2026-01-02T03:04:{number:02d}.000006Z", run=f"r-{number % 3}", event=event, **place)
        for number, event in enumerate(every)
    ]
