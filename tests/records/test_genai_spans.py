"""Spans with the names of OpenTelemetry's GenAI conventions: the same from the record and live, through its own SDK."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from agents import call, play
from prowess.core.events import (
    ApprovalAnswered,
    CallActed,
    CallDecided,
    CallPlanned,
    Envelope,
    ErrorRaised,
    Event,
    ModelReplied,
    ModelRequested,
    RunFinished,
    RunStarted,
    SkillLoaded,
    SkillUnloaded,
)
from prowess.core.values import Decision, Outcome, ToolCall, Usage
from prowess.records.spans import SpanTeller, live_spans, nanoseconds, render_spans, split_model
from spans import watch_spans

EXPORTER = InMemorySpanExporter()
PROVIDER = TracerProvider()  # not that of the process, which is another test's
PROVIDER.add_span_processor(SimpleSpanProcessor(EXPORTER))
TRACER = PROVIDER.get_tracer("test")


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    EXPORTER.clear()
    return EXPORTER


def seen(*events: tuple[str, Event]) -> list[Envelope]:
    return [
        Envelope(seq=n, at=f"2026-01-02T03:04:{n:02}.000250Z", session="s", run=run, event=event)
        for n, (run, event) in enumerate(events, 1)
    ]


def acted(run: str, id: str, outcome: Outcome, tool: str = "skill_run", **args: Any) -> list[tuple[str, Event]]:
    return [
        (run, CallPlanned(call=ToolCall(id=id, tool=tool, args=args))),
        (run, CallDecided(call_id=id, decision=Decision(verdict="ask", rule="rule:1", why="secret words"))),
        (run, ApprovalAnswered(call_id=id, answer="once", by="the user")),
        (run, CallActed(call_id=id, outcome=outcome)),
    ]


SKILL = SkillLoaded(id="project:csv", name="csv", digest="sha256:1", trigger="model", rank=2)
FAILED = Outcome(status="failed", code="command-failed", content="secret words", data={"exit_code": 3})
USAGE = Usage(input=10, cached=4, output=2, reasoning=1, cache_written=3, requests=1)
RUN = seen(
    ("r", RunStarted(model="openai:gpt-5", request="secret words", versions={"prowess": "9"})),
    ("r", ModelRequested(bytes=7, sha256="ab")),
    ("r", ErrorRaised(code="model-overloaded", message="busy")),
    ("r", ModelRequested(bytes=7, sha256="ab")),
    ("r", ModelReplied(text="secret words", finish="calls", usage=USAGE, request_id="q1", model="gpt-5-2026")),
    ("r", CallPlanned(call=ToolCall(id="c0", tool="skill_load", args={"skill": "csv"}))),
    ("r", SKILL),
    ("child", RunStarted(model="openai:gpt-5", request="secret words", parent="r")),
    ("child", ModelRequested(bytes=9, sha256="cd")),
    ("child", ModelReplied(text="x", usage=USAGE)),
    ("child", RunFinished(stop_reason="answer", text="secret words", usage=USAGE)),
    ("r", CallActed(call_id="c0", outcome=Outcome(status="ok", data={"skill": "project:csv"}))),
    *acted("r", "c1", FAILED, skill="csv", command="secret words"),
    ("r", ModelRequested(bytes=8, sha256="ef")),
    ("r", ModelReplied(text="done", usage=USAGE)),
    ("r", SkillUnloaded(id="project:csv")),
    ("r", ModelRequested(bytes=8, sha256="ef")),
    ("r", ModelReplied(text="done", usage=USAGE, finish="length")),
    ("r", RunFinished(stop_reason="answer", text="secret words", usage=Usage(input=30, output=6, cost=0.5))),
)


def exported(envelopes: list[Envelope]) -> list[dict[str, Any]]:
    return render_spans(envelopes)["resourceSpans"][0]["scopeSpans"][0]["spans"]


def attributes(span: dict[str, Any]) -> dict[str, Any]:
    return {each["key"]: plain(each["value"]) for each in span["attributes"]}


def plain(value: dict[str, Any]) -> Any:
    ((kind, inner),) = value.items()
    if kind == "arrayValue":
        return [plain(item) for item in inner["values"]]
    return int(inner) if kind == "intValue" else inner


def test_a_run_is_a_tree_of_spans() -> None:
    spans = exported(RUN)
    by_id = {span["spanId"]: span for span in spans}
    tree = [(span["name"], by_id.get(span["parentSpanId"], {}).get("name")) for span in spans]
    assert tree == [
        ("invoke_agent prowess", None),
        ("chat gpt-5", "invoke_agent prowess"),
        ("chat gpt-5", "invoke_agent prowess"),
        ("execute_tool skill_load", "invoke_agent prowess"),
        ("invoke_agent prowess", "execute_tool skill_load"),
        ("chat gpt-5", "invoke_agent prowess"),
        ("execute_tool skill_run", "invoke_agent prowess"),
        ("chat gpt-5", "invoke_agent prowess"),
        ("chat gpt-5", "invoke_agent prowess"),
    ]
    assert len({span["traceId"] for span in spans}) == 1 and len(by_id) == len(spans)
    assert all(len(span["traceId"]) == 32 and len(span["spanId"]) == 16 for span in spans)
    assert [span["kind"] for span in spans[:3]] == [1, 3, 3]
    assert int(spans[0]["endTimeUnixNano"]) - int(spans[0]["startTimeUnixNano"]) == (len(RUN) - 1) * 10**9
    assert exported(RUN) == spans, "the same record gives the same ids"


def test_spans_have_the_names_of_the_conventions() -> None:
    agent, retried, chat, load, _, _, tool, *_ = exported(RUN)
    assert attributes(agent) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-5",
        "gen_ai.agent.name": "prowess",
        "gen_ai.agent.version": "9",
        "gen_ai.conversation.id": "s",
        "prowess.run": "r",
        "prowess.protocol": "tools",
        "gen_ai.usage.input_tokens": 30,
        "gen_ai.usage.output_tokens": 6,
        "prowess.stop_reason": "answer",
        "prowess.cost": 0.5,
    }
    assert attributes(chat) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-5",
        "prowess.request.bytes": 7,
        "prowess.request.sha256": "ab",
        "gen_ai.response.model": "gpt-5-2026",
        "gen_ai.response.id": "q1",
        "gen_ai.response.finish_reasons": ["tool_call"],
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 2,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "gen_ai.usage.cache_creation.input_tokens": 3,
        "gen_ai.usage.reasoning.output_tokens": 1,
    }
    assert attributes(retried)["error.type"] == "model-overloaded" and retried["status"]["code"] == 2
    about = attributes(tool)
    assert about["gen_ai.operation.name"] == "execute_tool" and about["gen_ai.tool.name"] == "skill_run"
    assert (about["gen_ai.tool.call.id"], about["gen_ai.tool.type"]) == ("c1", "function")
    assert (about["skill.name"], about["skill.digest"], about["skill.trigger"]) == ("csv", "sha256:1", "model")
    assert (about["prowess.exit_code"], about["error.type"]) == (3, "command-failed")
    assert [event["name"] for event in tool["events"]] == ["prowess.decided", "prowess.answered"]
    assert attributes(load)["skill.digest"] == "sha256:1" and load["status"] == {}


def test_tokens_are_counted_for_a_skill_while_it_is_in_use() -> None:
    agent, *_ = exported(RUN)
    (used,) = [attributes(event) for event in agent["events"] if event["name"] == "skill.used"]
    assert (used["skill.name"], used["skill.usage.requests"]) == ("csv", 1)
    assert (used["skill.usage.input_tokens"], used["skill.usage.output_tokens"]) == (10, 2)
    in_use = [attributes(span).get("skill.names") for span in exported(RUN) if span["name"].startswith("chat")]
    assert in_use == [None, None, None, ["csv"], None]


def test_nothing_that_was_said_is_in_a_span() -> None:
    assert "secret words" not in json.dumps(render_spans(RUN))


@given(st.lists(st.sampled_from(RUN), max_size=30))
def test_any_record_can_be_exported(envelopes: list[Envelope]) -> None:
    spans = exported(envelopes)
    ids = {span["spanId"] for span in spans}
    assert all(span["parentSpanId"] in ids | {""} for span in spans)
    assert all(int(span["endTimeUnixNano"]) >= int(span["startTimeUnixNano"]) for span in spans)


def test_what_has_not_ended_says_so() -> None:
    spans = exported(RUN[:9])
    assert {attributes(span).get("error.type") for span in spans} >= {"interrupted", "unfinished"}


def test_without_a_tracer_of_its_own_it_is_that_of_the_process() -> None:
    exporter = watch_spans()
    observer = live_spans()
    assert isinstance(observer, SpanTeller)
    for envelope in RUN:
        observer(envelope)
    assert len(exporter.get_finished_spans()) == len(exported(RUN))


def test_nobody_observes_a_run_in_a_process_that_has_set_nothing_up() -> None:
    code = "from prowess.records.spans import live_spans; print(live_spans())"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "None\n"


def test_names_and_times() -> None:
    assert split_model("anthropic:claude:x") == ("anthropic", "claude:x")
    assert split_model("offline") == ("offline", "offline") and split_model("x:") == ("x:", "x:")
    assert nanoseconds("1970-01-01T00:00:01.000002Z", 7) == 1_000_002_000
    assert nanoseconds("yesterday", 7) == nanoseconds("2026-01-02T03:04:05", 7) == 7


# --- live -------------------------------------------------------------------------------------------------------------


def told(exporter: InMemorySpanExporter, envelopes: list[Envelope]) -> list[ReadableSpan]:
    exporter.clear()
    observer = live_spans(TRACER)
    assert observer is not None
    for envelope in envelopes:
        observer(envelope)
    return sorted(exporter.get_finished_spans(), key=lambda span: (span.start_time or 0, span.name))


def test_live_spans_are_those_of_the_record(exporter: InMemorySpanExporter) -> None:
    spans = told(exporter, RUN)
    recorded = sorted(exported(RUN), key=lambda span: (int(span["startTimeUnixNano"]), span["name"]))
    assert [span.name for span in spans] == [span["name"] for span in recorded]
    for live, kept in zip(spans, recorded, strict=True):
        given = {
            name: list(value) if isinstance(value, tuple) else value for name, value in (live.attributes or {}).items()
        }
        assert given == attributes(kept)
        assert (live.start_time, live.end_time) == (int(kept["startTimeUnixNano"]), int(kept["endTimeUnixNano"]))
        assert [event.name for event in live.events] == [event["name"] for event in kept["events"]]
        assert (live.status.status_code is StatusCode.ERROR) == bool(kept["status"])
        assert (live.kind is SpanKind.CLIENT) == (kept["kind"] == 3)
    by_id = {span.context.span_id: span for span in spans if span.context}
    parents = [by_id[span.parent.span_id].name if span.parent else None for span in spans]
    assert parents.count(None) == 1 and parents.count("execute_tool skill_load") == 1


def test_a_run_is_below_the_span_that_it_was_begun_in(exporter: InMemorySpanExporter) -> None:
    with TRACER.start_as_current_span("request") as above:
        observer = live_spans(TRACER)
    assert observer is not None
    for envelope in RUN:
        observer(envelope)
    agent = next(
        span for span in exporter.get_finished_spans() if span.attributes and "prowess.cost" in span.attributes
    )
    assert agent.parent is not None and agent.parent.span_id == above.get_span_context().span_id


def test_a_real_run_is_traced_while_it_happens(tmp_path: Path, make_skill: Any, exporter: InMemorySpanExporter) -> None:
    root = make_skill(tmp_path / "skills" / "demo").parent
    observer = live_spans(TRACER)
    exporter.clear()
    replies = [call("skill_load", skill="demo"), call("skill_run", skill="demo", command="exit 3"), {"text": "done"}]
    played = play(root, replies, "go")
    assert isinstance(observer, SpanTeller)
    for envelope in played.envelopes:
        observer(envelope)
    spans = [span for span in exporter.get_finished_spans() if not span.name.startswith("workspace.")]
    assert sorted(span.name for span in spans) == [
        *["chat scripted"] * 3,
        "execute_tool skill_load",
        "execute_tool skill_run",
        "invoke_agent prowess",
    ]
    run = next(span for span in spans if span.name == "execute_tool skill_run")
    assert run.attributes and run.attributes["prowess.exit_code"] == 3 and run.attributes["skill.name"] == "demo"
