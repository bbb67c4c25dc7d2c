"""A trajectory has everything that happened in a case's runs, and agrees with what the runs themselves counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents import call, calls, play
from prowess.core.events import (
    ApprovalAnswered,
    ApprovalAsked,
    CallActed,
    CallPlanned,
    Envelope,
    Event,
    ModelReplied,
    ModelRequested,
    RunFinished,
    RunStarted,
    SkillLoaded,
)
from prowess.core.values import Outcome, ToolCall, Usage
from prowess.evals.results import RunKey, RunRecord
from prowess.records.trajectory import read_trajectory

LOCAL = {"workspace.executor": "local"}
KEY = RunKey(suite="s", case="c", arm="with_skill", repeat=1, model="m", skills="d")


@pytest.fixture
def root(tmp_path: Path, make_skill: Any) -> Path:
    folder = tmp_path / "skills"
    make_skill(
        folder / "inner",
        front="name: inner\ndescription: Works apart. Use when asked.\ncontext: fork\n",
        files={"scripts/a.sh": "echo inner\n"},
    )
    make_skill(folder / "demo", body="DEMO\n", files={"scripts/a.sh": "echo ran\n", "scripts/bad.sh": "exit 3\n"})
    return folder


def test_a_run_with_a_child_run_and_failed_calls(root: Path) -> None:
    played = play(
        root,
        [
            calls(
                ("skill_load", {"skill": "demo"}), ("skill_run", {"skill": "demo", "command": "bash scripts/bad.sh"})
            ),
            call("Skill", skill="inner"),
            call("skill_run", skill="inner", command="bash scripts/a.sh"),
            {"text": "inner done"},
            call("update_plan", steps=["a"]),
            call("no_such_tool", x=1),
            {"text": "All done."},
        ],
        settings=LOCAL,
    )
    found = read_trajectory(played.envelopes)
    told = [(step.tool, step.skill, step.ok) for step in found.steps if step.trigger == "model"]
    assert told == [
        ("skill_load", "demo", True),
        ("skill_run", "demo", False),
        ("skill_load", "inner", True),
        ("skill_run", "inner", True),
        ("update_plan", "", True),
        ("no_such_tool", "", False),
    ]
    assert [step.index for step in found.steps] == list(range(len(found.steps)))
    assert found.loaded == ("demo", "inner")
    usage, whole = found.usage, played.result.usage
    assert (usage.input, usage.output, usage.requests) == (whole.input, whole.output, whole.requests)
    assert (found.turns, found.text, found.stop_reason) == (5, "All done.", "answer")
    assert found.requests == ("go",)
    assert {entry.kind for entry in found.timeline} == {"model", "call", "skill", "question"}
    assert all(0 <= entry.start_ms <= found.seconds * 1000 + 1 for entry in found.timeline)
    assert found.calls == 5  # without update_plan, as limits.calls counts


def test_calls_are_counted_as_the_limit_counts_them(root: Path) -> None:
    replies = [call("update_plan", steps=["a"]), *[call("skill_load", skill="demo")] * 3, {"text": "not reached"}]
    played = play(root, replies, settings={**LOCAL, "limits.calls": 2})
    assert played.result.stop_reason == "limit:calls"
    found = read_trajectory(played.envelopes)
    assert [(step.tool, step.status) for step in found.steps][-1] == ("skill_load", "denied")  # it was not begun
    assert found.calls == 3


def test_an_invalid_call_keeps_its_arguments(root: Path) -> None:
    wrong = call("skill_run", skill="demo", command="rm -rf /", timeout="soon")
    found = read_trajectory(play(root, [wrong, {"text": "no"}], settings=LOCAL).envelopes)
    load, step = found.steps
    assert (load.tool, load.status) == ("skill_load", "ok")
    assert (step.status, step.skill, step.args["command"]) == ("failed", "demo", "rm -rf /")


def test_several_turns_are_one_trajectory(root: Path) -> None:
    played = play(root, [{"text": "one"}, call("skill_load", skill="demo"), {"text": "two"}], "first", "second")
    found = read_trajectory(played.envelopes)
    assert (found.requests, found.text, found.turns) == (("first", "second"), "two", 3)
    assert found.stop_reasons == ("answer", "answer")
    assert found.usage.requests == 3


def envelopes(*events: Event, run: str = "r") -> list[Envelope]:
    return [
        Envelope(at=f"2026-01-01T00:00:{number:02}.000000Z", session="s", run=run, event=event)
        for number, event in enumerate(events)
    ]


def test_times_and_questions() -> None:
    found = read_trajectory(
        envelopes(
            RunStarted(model="m", request="go"),
            ModelRequested(bytes=1, sha256=""),
            ModelReplied(calls=(), usage=Usage(input=5, requests=1, cost=0.5)),
            CallPlanned(call=ToolCall(id="1", tool="skill_run", args={"skill": "project:demo"})),
            ApprovalAsked(call_id="1", why="", capability="skill_run"),
            ApprovalAnswered(call_id="1", answer="once", capability="skill_run"),
            CallActed(call_id="1", outcome=Outcome(status="ok")),
            ApprovalAsked(call_id="2", why="", capability="x"),
            ApprovalAnswered(call_id="2", answer="once", capability="x", asked=False),
            CallPlanned(call=ToolCall(id="3", tool="ask_user")),
            CallActed(call_id="3", outcome=Outcome(status="failed", code="nobody-to-ask")),
            RunFinished(stop_reason="answer", text="done"),
        )
    )
    assert (found.questions, found.seconds, found.usage.cost) == (2, 11.0, 0.5)
    assert [(entry.kind, entry.start_ms, entry.ms) for entry in found.timeline] == [
        ("model", 1000, 1000),
        ("call", 3000, 3000),
        ("question", 4000, 1000),
        ("question", 9000, 1000),
    ]
    assert found.steps[0].skill == "demo"


def test_a_run_that_was_cut_off() -> None:
    found = read_trajectory(
        envelopes(
            RunStarted(model="m"),
            ModelReplied(text="I will run it."),
            CallPlanned(call=ToolCall(id="1", tool="skill_run")),
        )
    )
    assert (found.text, found.stop_reason, found.steps[0].status) == ("I will run it.", None, "interrupted")
    assert read_trajectory([]).stop_reason is None


def test_a_call_that_waits_for_a_person_is_not_counted() -> None:
    waiting = CallActed(call_id="1", outcome=Outcome(status="waiting", code="approval-needed"))
    found = read_trajectory(envelopes(CallPlanned(call=ToolCall(id="1", tool="skill_run")), waiting))
    assert (found.calls, [step.status for step in found.steps]) == (0, ["waiting"])


_TEXTS = st.text(st.characters(exclude_categories=()), max_size=20)  # with halves of surrogate pairs


@given(text=_TEXTS, tool=_TEXTS, skill=_TEXTS)
def test_every_text_can_be_stored(text: str, tool: str, skill: str) -> None:
    found = read_trajectory(
        envelopes(
            RunStarted(model="m", request=text),
            SkillLoaded(id=skill, digest="", trigger="model"),
            CallPlanned(call=ToolCall(id="1", tool=tool, args={"skill": skill})),
            CallActed(call_id="1", outcome=Outcome(status="ok")),
            RunFinished(stop_reason="answer", text=text),
        )
    )
    record = RunRecord(
        key=KEY,
        status="passed",
        text=found.text,
        loaded_skills=found.loaded,
        calls_by_tool=found.calls_by_tool,
        timeline=found.timeline,
    )
    assert RunRecord.model_validate_json(record.model_dump_json()) == record
