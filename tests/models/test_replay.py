"""A recorded run is played again, reply by reply, and it is known whether the requests are still the same."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prowess.core.events import (
    Compacted,
    Envelope,
    ErrorRaised,
    Event,
    ModelReplied,
    ModelRequested,
    RunStarted,
    TextDelta,
    render_event,
)
from prowess.core.values import ToolCall, Usage
from prowess.errors import ConfigError, ModelError
from prowess.models.replay import Divergence, ReplayModel, load_recording


def asked(name: str) -> ModelRequested:
    return ModelRequested(bytes=len(name), sha256=name * 64)


def said(text: str, **more: Any) -> ModelReplied:
    return ModelReplied(text=text, usage=Usage(input=7, requests=1), **more)


def record(*events: tuple[str, Event]) -> list[Envelope]:
    return [
        Envelope(seq=n, at="2026-01-02T03:04:05.000006Z", session="s", run=run, event=event, prev="p", hash="h")
        for n, (run, event) in enumerate(events, 1)
    ]


def play(model: ReplayModel, *requests: ModelRequested | None, **more: Any) -> list[str]:
    async def go() -> list[str]:
        texts = []
        for request in requests:
            if request is not None:
                model.expect(request.sha256, request.bytes)
            texts.append((await model.reply((), (), **more)).text)
        return texts

    return asyncio.run(go())


CALL = said("b", calls=(ToolCall(id="x1", tool="t", args={"n": 1}),), finish="calls", request_id="q")
SIMPLE = record(
    ("r", RunStarted(model="openai:m", protocol="actions", request="do it")),
    ("r", asked("1")),
    ("r", CALL),
    ("r", asked("2")),
    ("r", ErrorRaised(code="model-overloaded", message="busy")),
    ("r", asked("2")),
    ("r", said("c")),
)


def test_replies_come_again_as_they_were() -> None:
    model = ReplayModel(SIMPLE)
    model.expect("1" * 64, 1)
    deltas: list[Any] = []
    assert asyncio.run(model.reply((), (), on_delta=deltas.append)) == CALL
    assert deltas == [TextDelta(text="b")]
    assert model.unused == 1
    assert play(model, asked("2")) == ["c"]
    assert (model.unused, model.divergence) == (0, None)
    assert model.started and (model.started.request, model.protocol) == ("do it", "actions")


def test_a_recording_is_played_whether_or_not_it_is_told_the_requests() -> None:
    model = ReplayModel(SIMPLE)
    assert play(model, None, None) == ["b", "c"] and model.divergence is None


def test_the_first_request_that_differs_is_remembered() -> None:
    model = ReplayModel(SIMPLE)
    assert play(model, asked("1"), asked("9")) == ["b", "c"]
    assert model.divergence == Divergence(2, asked("2"), asked("9"))
    with pytest.raises(ModelError) as caught:
        play(model, asked("8"))
    assert caught.value.code == "replay-exhausted" and not caught.value.retryable
    assert "number 3" in caught.value.message and "Request 2 had 1 bytes (222222222222)" in caught.value.message


def test_a_strict_replay_stops_at_a_difference_and_stays_there() -> None:
    model = ReplayModel(SIMPLE, strict=True)
    play(model, asked("1"))
    for _ in range(2):
        with pytest.raises(ModelError) as caught:
            play(model, asked("9"))
        assert caught.value.code == "replay-diverged" and "Request 2" in caught.value.message
    assert model.unused == 1
    assert play(model, asked("2")) == ["c"]


NESTED = record(
    ("p", RunStarted(model="m")),
    ("p", asked("1")),
    ("p", said("parent 1")),
    ("x", RunStarted(model="m", parent="p")),
    ("y", RunStarted(model="m", parent="p")),
    ("x", asked("3")),
    ("y", asked("4")),
    ("y", said("y 1")),
    ("x", said("x 1")),
    ("x", asked("5")),
    ("x", said("x 2")),
    ("p", asked("6")),
    ("p", said("parent 2")),
)


def test_child_runs_have_replies_of_their_own() -> None:
    assert play(ReplayModel(NESTED), *[None] * 5) == ["parent 1", "y 1", "x 1", "x 2", "parent 2"]
    model = ReplayModel(NESTED)
    order = [asked(name) for name in "13546"]  # this time the other child was faster
    assert play(model, *order) == ["parent 1", "x 1", "x 2", "y 1", "parent 2"]
    assert model.divergence is None and model.started and model.started.parent is None


@given(st.permutations(range(5)))
def test_whatever_order_children_are_played_in_each_hears_its_own(order: Sequence[int]) -> None:
    events: list[tuple[str, Event]] = []
    for child in range(5):
        events += [(f"r{child}", asked(str(child))), (f"r{child}", said(f"child {child}"))]
    model = ReplayModel(record(*events))
    assert play(model, *[asked(str(child)) for child in order]) == [f"child {child}" for child in order]
    assert model.divergence is None


def compacted(why: str) -> Compacted:
    return Compacted(why=why, before_tokens=9, after_tokens=3, summary="short", usage=Usage(input=5))


def test_what_was_shortened_is_known_where_it_was() -> None:
    model = ReplayModel(
        record(
            ("r", RunStarted(model="m", request="do it")),
            ("r", asked("1")),
            ("r", said("a")),
            ("r", ErrorRaised(code="busy", message="No summary: busy")),
            ("r", compacted("near")),
            ("r", asked("2")),
            ("r", compacted("full")),
            ("r", asked("3")),
            ("r", said("b")),
        )
    )
    assert model.unused == 2 and model.shortened("now", "do it") is None
    assert play(model, asked("1")) == ["a"]
    near = model.shortened("now", "do it")
    assert near and near.event.why == "near" and near.failed and near.failed.code == "busy"
    assert model.shortened("now", "do it", take=True) == near and model.shortened("now", "do it") is None
    with pytest.raises(ModelError) as caught:
        play(model, asked("2"))
    assert caught.value.code == "context-overflow" and not caught.value.retryable
    full = model.shortened("now", "do it", take=True)
    assert full and (full.event.why, full.failed) == ("full", None)
    assert play(model, asked("3")) == ["b"] and model.unused == 0 and model.divergence is None


def test_of_children_the_one_with_the_same_task_is_meant() -> None:
    model = ReplayModel(
        record(
            ("p", RunStarted(model="m", request="")),  # one that was resumed
            ("p", asked("1")),
            ("x", RunStarted(model="m", parent="p", request="left")),
            ("y", RunStarted(model="m", parent="p", request="right")),
            ("x", compacted("of the left one")),
            ("y", compacted("of the right one")),
        )
    )
    assert model.shortened("run", "left") is None, "the first one is the run itself, whatever it was given"
    wanted = {"b": ("right", "of the right one"), "a": ("left", "of the left one")}
    for run, (task, why) in wanted.items():
        found = model.shortened(run, task)
        assert found and found.event.why == why
    assert model.shortened("one more than there were", "left") is None


def test_a_recording_is_read_from_its_file_or_its_folder(tmp_path: Path) -> None:
    lines = [json.dumps(render_event(envelope)) for envelope in SIMPLE]
    lines.insert(3, '{"at": "x", "session": "s", "run": "r", "type": "of_the_future", "new": 1}')
    (tmp_path / "events.jsonl").write_text("\n".join(lines) + "\n\n", encoding="utf-8")
    for path in (tmp_path, tmp_path / "events.jsonl"):
        model = load_recording(path)
        assert play(model, asked("1"), asked("2")) == ["b", "c"]
        assert model.name == f"replay:{tmp_path / 'events.jsonl'}"
    assert load_recording(str(tmp_path), name="replay:7").name == "replay:7"
    with pytest.raises(ModelError):
        play(load_recording(tmp_path, strict=True), asked("7"))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "has no replies"),
        ('{"at": "x", "session": "s", "run": "r", "type": "note_appended", "text": "t"}\n', "has no replies"),
        ('{"at": "x", "session": "s", "run": "r", "type": "note_appended", "text": "t"}\n{"at": ', ":2"),
        ("[]\n", ":1 cannot be read: an event must be an object"),
        ('{"at": "x", "session": "s", "run": "r", "type": "model_replied", "calls": 3}', "must be a list"),
        ("[" * 100_000, ":1"),
        ("\x00\xff", ":1"),
    ],
)
def test_a_file_that_is_no_recording_is_refused_with_its_line(tmp_path: Path, content: str, says: str) -> None:
    file = tmp_path / "events.jsonl"
    file.write_bytes(content.encode("latin-1"))
    with pytest.raises(ConfigError) as caught:
        load_recording(file)
    assert caught.value.code == "recording-invalid"
    assert str(file) in caught.value.message and says in caught.value.message


def test_a_recording_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_recording(tmp_path / "none.jsonl")
    with pytest.raises(ConfigError, match="No such file"):
        load_recording(tmp_path)
