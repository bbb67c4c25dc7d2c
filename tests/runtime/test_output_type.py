"""`output_type`: the answer is a value of this type, or the run says that it is not."""

from __future__ import annotations

import asyncio
import enum
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, field_validator
from typing_extensions import TypedDict

import prowess
from agents import call
from command_lines import run_here
from prowess.core.events import ErrorRaised, ModelReplied, NoteAppended, OutputRequested, RunFinished
from prowess.core.values import SessionKey, Usage
from prowess.errors import ConfigError, ModelError, ProwessError, StoreError
from prowess.models.scripted import ScriptedModel
from prowess.stores.memory import MemoryEventLog
from prowess.testing import ReplayModel, StructuredActions, skill_dir


class Line(BaseModel):
    what: str
    price: float


class Invoice(BaseModel):
    """Invoice of a shop."""

    number: str
    lines: list[Line]
    note: str | None = None


@dataclass
class Point:
    x: int
    y: int = 0


class Book(TypedDict):
    title: str
    pages: int


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Tree(BaseModel):
    name: str
    children: list[Tree] = []


GOOD = '{"number": "A-1", "lines": [{"what": "pen", "price": 2.5}]}'
INVOICE = Invoice(number="A-1", lines=[Line(what="pen", price=2.5)])


class NativeModel(ScriptedModel):
    """Scripted model whose provider takes schemas."""

    schemas = True

    def __init__(self, replies: Sequence[Any]) -> None:
        super().__init__(replies)
        self.given: list[Mapping[str, Any] | None] = []

    async def reply(self, *args: Any, schema: Mapping[str, Any] | None = None, **options: Any) -> ModelReplied:
        self.given.append(schema)
        return await super().reply(*args, schema=schema, **options)


def said(*texts: str) -> ScriptedModel:
    return ScriptedModel([{"text": text} for text in texts])


def ask(output_type: Any, *texts: str, **options: Any) -> prowess.Result[Any]:
    return prowess.run_sync("x", model=said(*texts), output_type=output_type, store="memory:", **options)


def system_of(model: ScriptedModel) -> str:
    first = model.requests[0][0][0]
    return str(first.parts[0].text) if first.role == "system" else ""


def last_notes(model: ScriptedModel, number: int) -> str:
    """What the model is told after its last answer."""
    messages = model.requests[number][0]
    return "\n".join(str(part.text) for message in messages[-2:] for part in message.parts)


# --- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output_type", "text", "value"),
    [
        (Invoice, GOOD, INVOICE),
        (Point, '{"x": 1}', Point(1)),
        (Book, '{"title": "t", "pages": 3}', {"title": "t", "pages": 3}),
        (int, '{"result": 42}', 42),
        (int, "42", 42),
        (list[int], '{"result": [1, 2]}', [1, 2]),
        (list[int], "```json\n[1, 2]\n```", [1, 2]),
        (dict[str, Any], '{"result": 1, "b": [null]}', {"result": 1, "b": [None]}),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (Literal["a", "b"], '{"result": "b"}', "b"),
        (Literal["a", "b"], " b\n", "b"),
        (Colour, "blue", Colour.BLUE),
        (int | str, '{"result": "b"}', "b"),
        (Line | Point, '{"result": {"x": 1, "y": 2}}', Point(1, 2)),
        (Invoice | None, '{"result": null}', None),
        (Invoice | None, "null", None),
        (datetime, '{"result": "2026-01-02T03:04:05Z"}', datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        (Decimal, '{"result": "0.10"}', Decimal("0.10")),
        (bytes, '{"result": "abc"}', b"abc"),
        (Colour, '{"result": "blue"}', Colour.BLUE),
        (Annotated[int, Field(gt=3)], "4", 4),
        (bool, '{"result": false}', False),
        (Tree, '{"name": "a", "children": [{"name": "b"}]}', Tree(name="a", children=[Tree(name="b")])),
    ],
    ids=str,
)
def test_the_output_is_a_value_of_the_type(output_type: Any, text: str, value: Any) -> None:
    result = ask(output_type, text)
    assert (result.ok, result.output, type(result.output)) == (True, value, type(value))
    assert result.text == text


@pytest.mark.parametrize(
    "text",
    [
        f"```json\n{GOOD}\n```",
        f"Here it is:\n```json\n{GOOD}\n```\nAnything else?",
        f"Here it is: {GOOD} Anything else?",
        f"<think>Is {{}} an invoice?</think>\n{GOOD}",
        f'The line {{"what": "pen", "price": 2.5}} belongs to {GOOD}',
        GOOD.replace("}]}", "},]}"),
    ],
)
def test_what_small_models_write_around_the_json_is_left_out(text: str) -> None:
    assert ask(Invoice, text).output == INVOICE


def test_without_a_type_the_output_is_the_text() -> None:
    assert ask(None, "hello").output == "hello"
    model = said("hello")
    assert prowess.run_sync("x", model=model, output_type=str, store="memory:").output == "hello"
    assert "schema" not in system_of(model)


def test_names_of_fields_are_those_of_the_model() -> None:
    class Aliased(BaseModel):
        model_config = ConfigDict(strict=True)
        total: int = Field(alias="totalAmount")
        day: datetime = Field(validation_alias=AliasChoices("day", "date"))

    model = said('{"totalAmount": 3, "date": "2026-01-02T00:00:00Z"}')
    result = prowess.run_sync("x", model=model, output_type=Aliased, store="memory:")
    assert (result.output.total, result.output.day.year) == (3, 2026)
    assert '"totalAmount"' in system_of(model)


# --- the schema ------------------------------------------------------------------------------------------------------


def test_a_model_without_schemas_reads_the_schema_in_the_system_text() -> None:
    model = said(GOOD)
    prowess.run_sync("x", model=model, output_type=Invoice, store="memory:", instructions="Be brief.")
    system = system_of(model)
    before, _, schema = system.rpartition("\n")
    assert before.startswith("Be brief.")
    assert before.endswith("Your final answer must be only JSON that fits this schema:")
    assert json.loads(schema) == {
        "$defs": {
            "Line": {
                "type": "object",
                "properties": {"what": {"type": "string"}, "price": {"type": "number"}},
                "required": ["what", "price"],
                "additionalProperties": False,
            }
        },
        "description": "Invoice of a shop.",
        "type": "object",
        "properties": {
            "number": {"type": "string"},
            "lines": {"type": "array", "items": {"$ref": "#/$defs/Line"}},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "required": ["number", "lines", "note"],
        "additionalProperties": False,
    }


def test_a_provider_with_schemas_is_given_the_schema_with_every_request() -> None:
    model = NativeModel([{"text": "{}"}, {"text": '{"result": 3}'}])
    assert prowess.run_sync("x", model=model, output_type=int, store="memory:").output == 3
    schema = {
        "type": "object",
        "properties": {"result": {"type": "integer"}},
        "required": ["result"],
        "additionalProperties": False,
    }
    assert model.given == [schema, schema]
    assert "schema" not in system_of(model)


@pytest.mark.parametrize("output_type", [dict[str, int], Tree, list[Any], list[dict[str, str]]], ids=str)
def test_a_schema_that_no_provider_can_enforce_is_told_in_words(output_type: Any) -> None:
    model = NativeModel([{"text": '{"result": [], "name": "a"}'}] * 3)
    prowess.run_sync("x", model=model, output_type=output_type, store="memory:")
    assert not any(model.given)
    assert "must be only JSON" in system_of(model)


# --- answers that do not fit -----------------------------------------------------------------------------------------


def test_the_model_is_told_what_is_wrong_and_asked_again() -> None:
    log = MemoryEventLog()
    model = said('{"number": 1, "lines": [{"what": "pen", "price": "dear"}]}', "I do not know", GOOD)
    result = prowess.run_sync("x", model=model, output_type=Invoice, store=log, session="s")
    assert result.output == INVOICE
    first = last_notes(model, 1)
    assert "- number: Input should be a valid string\n- lines.0.price: Input should be a valid number" in first
    assert "Give the whole answer again." in first
    assert "- It is not JSON: expected value at line 1 column 1." in last_notes(model, 2)
    assert result.usage.requests == 3
    events = [envelope.event for envelope in read(log)]
    errors = [event for event in events if isinstance(event, ErrorRaised)]
    assert [error.hint for error in errors] == ["Asking again (1 of 2).", "Asking again (2 of 2)."]
    assert {error.code for error in errors} == {"output-invalid"}
    notes = [event for event in events if isinstance(event, NoteAppended) and event.kind == "output"]
    assert len(notes) == 2


def read(log: MemoryEventLog) -> list[Any]:
    async def work() -> list[Any]:
        return [envelope async for envelope in log.read(SessionKey(session="s"))]

    return asyncio.run(work())


def test_half_of_a_surrogate_pair_is_refused_and_asked_again() -> None:
    result = ask(list[str], '{"result": "\\ud800"}', '{"result": ["a"]}')
    assert result.output == ["a"]


def test_after_three_answers_the_run_ends_as_an_error() -> None:
    result = ask(int, "one", "two", "three")
    assert (result.ok, result.stop_reason, result.code, result.text) == (False, "error", "output-invalid", "three")
    with pytest.raises(ProwessError, match="no answer of the model fitted") as caught:
        _ = result.output
    assert caught.value.code == "output-invalid"


def test_a_limit_counts_also_while_it_is_asked_again() -> None:
    result = ask(int, "one", "two", limits={"turns": 2})
    assert result.stop_reason == "limit:turns"
    with pytest.raises(ProwessError, match="limit on turns") as caught:
        _ = result.output
    assert (caught.value.code, "resume=True" in str(caught.value.hint)) == ("limit-turns", True)


@pytest.mark.parametrize(
    ("output_type", "text", "told"),
    [
        (Invoice, "null", "- answer: Input should be an object"),
        (float, "NaN", "- It is not JSON"),
        (float, '{"result": NaN}', "- It is not JSON"),
        (list[Any], "[" * 10_000, "- It is not JSON: recursion limit exceeded"),
        (list[Any], "[" * 10_000 + "]" * 10_000, "- It is not JSON: recursion limit exceeded"),
        (dict[str, Any], '{"a":' * 10_000 + "1" + "}" * 10_000, "- It is not JSON: recursion limit exceeded"),
        (Point, '{"x": 1} or {"x": 2}', "- It has 2 JSON objects. Give exactly one."),
        (list[int], json.dumps(["a"] * 100), "- and 92 more"),
        (int, '{"result": "a"}', "- result: Input should be a valid integer"),
        (Point, '{"x": ' + "1" * 5000 + "}", "- It is not JSON: number out of range"),
        (Point, '{"</note>": 1}', "- x: Field required"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_odd_answers_are_refused(output_type: Any, text: str, told: str) -> None:
    model = said(text, text, text)
    result = prowess.run_sync("x", model=model, output_type=output_type, store="memory:")
    assert (result.code, result.text) == ("output-invalid", text)
    assert told in last_notes(model, 1)


@pytest.mark.parametrize("text", ["x" * 10_000_000, '{"a": "' * 1_400_000, "{" * 10_000_000], ids=["x", "open", "{"])
def test_ten_megabytes_that_are_no_json_are_refused_in_a_moment(text: str) -> None:
    from prowess.agent.output import OutputMismatch
    from prowess.runtime.output_type import TypedOutput

    form = TypedOutput(Invoice)
    began = time.process_time()
    with pytest.raises(OutputMismatch):
        form.parse(text)
    assert time.process_time() - began < 20  # quadratic would be hours


def test_an_answer_that_is_cut_off_goes_on() -> None:
    first = ModelReplied(text='{"result": [1, ', finish="length", usage=Usage(requests=1))
    model = ScriptedModel([first, {"text": "2]}"}])
    assert prowess.run_sync("x", model=model, output_type=list[int], store="memory:").output == [1, 2]


def test_a_provider_with_schemas_begins_a_cut_off_answer_again() -> None:
    cut = ModelReplied(text='{"result": [1, ', finish="length", usage=Usage(requests=1))
    model = NativeModel([cut, {"text": '{"result": [1]}'}])
    assert prowess.run_sync("x", model=model, output_type=list[int], store="memory:").output == [1]
    assert "cut off at its greatest length. Be shorter." in last_notes(model, 1)


def test_an_empty_reply_is_no_answer() -> None:
    assert ask(int, "", "3").output == 3


def test_tools_are_called_before_the_answer(tmp_path: Path) -> None:
    def price(of: str) -> float:
        """Price of a thing."""
        return 2.5

    model = NativeModel([call("price", of="pen"), {"text": GOOD}])
    assert prowess.run_sync("x", model=model, tools=price, output_type=Invoice, store="memory:").output == INVOICE
    assert "price" in [tool.name for tool in model.requests[0][1]]
    assert all(model.given)


def test_a_stream_shows_each_answer_after_its_request() -> None:
    async def work() -> list[str]:
        found: list[str] = []
        events = prowess.stream("x", model=said("no", '{"result": 1}'), output_type=int, store="memory:")
        async for envelope in events:
            if envelope.event.type != "text_delta" or found[-1] != "text_delta":
                found.append(envelope.event.type)
        return found

    types = asyncio.run(work())
    kept = ("output_requested", "model_requested", "text_delta", "error", "run_finished")
    assert [each for each in types if each in kept] == [
        "output_requested",
        *("model_requested", "text_delta", "error"),
        *("model_requested", "text_delta", "run_finished"),
    ]


# --- other parts -----------------------------------------------------------------------------------------------------


def test_structured_actions_answer_in_the_form() -> None:
    action = {"type": "final_answer", "content": {"x": 1}}
    text = {"type": "final_answer", "content": '{"x": 2}'}
    wrong = {"type": "final_answer", "content": "none"}
    for last, value in ((action, Point(1)), (text, Point(2))):
        inner = ScriptedModel([{"action": wrong}, {"action": last}])
        result = prowess.run_sync("x", model=StructuredActions(inner), output_type=Point, store="memory:")
        assert result.output == value
        assert 'The "content" of final_answer must be JSON' in system_of(inner)


def test_structured_actions_pass_the_schema_on() -> None:
    inner = NativeModel([{"action": {"type": "final_answer", "content": {"x": 1, "y": 2}}}])
    result = prowess.run_sync("x", model=StructuredActions(inner), output_type=Point, store="memory:")
    assert result.output == Point(1, 2)
    assert '"x": {"type": "integer"}' in json.dumps(inner.given[0])


def test_a_child_run_answers_in_plain_text(tmp_path: Path) -> None:
    skill_dir(tmp_path / "skills", "helper", "Help.", context="fork")
    model = NativeModel([call("skill_load", skill="helper"), {"text": "I helped."}, {"text": '{"x": 1}'}])
    result = prowess.run_sync("x", model=model, skills=tmp_path / "skills", output_type=Point, store="memory:")
    assert result.output == Point(1)
    assert [schema is None for schema in model.given] == [False, True, False]


def test_secrets_are_not_in_the_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "s3cret-token-value")
    settings = {"secrets": {"MY_TOKEN": "env:MY_TOKEN"}}
    result = ask(list[str], '["s3cret-token-value"]', settings=settings)
    assert "s3cret" not in str(result.output) + result.text


def test_code_in_an_answer_runs_before_the_answer_is_read(tmp_path: Path) -> None:
    skill_dir(tmp_path / "skills", "demo", "Demo.")
    replies = [call("skill_load", skill="demo"), {"text": "```bash\necho 41\n```"}, {"text": "```json\n42\n```"}]
    options: dict[str, Any] = {"settings": {"tools.code_blocks": True}, "approve": ["skill_run"]}
    model = ScriptedModel(replies)
    result = prowess.run_sync("x", model=model, skills=tmp_path / "skills", output_type=int, store="memory:", **options)
    assert (result.output, result.usage.requests) == (42, 3)


def test_a_conversation_that_is_shortened_keeps_the_form() -> None:
    def long() -> str:
        """A long text."""
        return "word " * 4_000

    replies = [call("long"), call("long"), call("long"), {"text": "no"}, {"text": "42"}]
    model = ScriptedModel(replies, context_tokens=14_000)
    log = MemoryEventLog()
    result = prowess.run_sync("x", model=model, tools=long, output_type=int, store=log, session="s")
    assert result.output == 42
    assert "compacted" in [envelope.event.type for envelope in read(log)]
    assert "must be only JSON" in str(model.requests[-1][0][0])


def test_a_session_gives_an_output_with_every_run() -> None:
    agent = prowess.Agent(said('{"x": 1}', '{"x": 2}'), output_type=Point, store="memory:")

    async def work() -> list[int]:
        async with agent.session() as chat:
            return [(await chat.run("a")).output.x, (await chat.run("b")).output.x]

    assert asyncio.run(work()) == [1, 2]


# --- records ---------------------------------------------------------------------------------------------------------


class Dead(Exception):
    """End of the process."""


class DyingLog(MemoryEventLog):
    """Log whose process dies before the first event of this type, with a number of model replies before it."""

    def __init__(self, before: str, replies: int) -> None:
        super().__init__()
        self._before = before
        self._left = replies

    async def append(self, key: Any, expected_seq: int, lease: Any, events: Any) -> Any:
        for envelope in events:
            self._left -= envelope.event.type == "model_replied"
            if self._left <= 0 and envelope.event.type == self._before:
                self._left = 1_000
                raise StoreError("dead", code="dead")
        return await super().append(key, expected_seq, lease, events)


@pytest.mark.parametrize("before", ["error", "note_appended", "model_replied"])
def test_a_run_that_died_after_an_answer_goes_on_with_the_tries_it_had_left(before: str) -> None:
    """It died after the first answer, which does not fit: before that was noted, before the next request, and before
    the reply to that."""
    log = DyingLog(before, 2 if before == "model_replied" else 1)
    with pytest.raises(StoreError):
        prowess.run_sync("x", model=said("one", "gone"), output_type=int, store=log, session="s")
    model = said("two", "three", "four")
    result = prowess.run_sync(model=model, output_type=int, store=log, session="s", resume=True)
    assert (result.code, result.text, model.unused) == ("output-invalid", "three", 1)
    assert "does not fit the schema:\n- It is not JSON" in last_notes(model, 0)


def test_a_run_that_died_between_the_answer_and_its_end_is_not_asked_again() -> None:
    log = DyingLog("run_finished", 1)
    with pytest.raises(StoreError):
        prowess.run_sync("x", model=said('{"x": 1}'), output_type=Point, store=log, session="s")
    result = prowess.run_sync(model=said(), output_type=Point, store=log, session="s", resume=True)
    assert result.output == Point(1)


def test_a_run_that_failed_has_new_tries_when_it_is_resumed() -> None:
    log = MemoryEventLog()
    prowess.run_sync("x", model=said("one", "two", "three"), output_type=int, store=log, session="s")
    result = prowess.run_sync(model=said("four", "5"), output_type=int, store=log, session="s", resume=True)
    assert result.output == 5


def test_a_program_without_the_type_cannot_resume_the_run() -> None:
    log = MemoryEventLog()
    prowess.run_sync("x", model=said("one"), output_type=int, store=log, session="s", limits={"turns": 1})
    with pytest.raises(StoreError, match="only its own program can check") as caught:
        prowess.run_sync(model=said("2"), store=log, session="s", resume=True)
    assert caught.value.code == "output-type-missing"
    assert prowess.run_sync("another", model=said("2"), store=log, session="s").output == "2"


@pytest.mark.parametrize("is_native", [False, True])
@pytest.mark.parametrize("last", ["2", "c"])
def test_a_replay_refuses_the_same_answers_with_and_without_the_type(is_native: bool, last: str) -> None:
    log = MemoryEventLog()
    texts = [{"text": text} for text in ("a", "b", last)]
    model = NativeModel(texts) if is_native else ScriptedModel(texts)
    first = prowess.run_sync("x", model=model, output_type=int, store=log, session="s")
    for output_type in (int, None):
        replay = ReplayModel(read(log), strict=True)
        result = prowess.run_sync("x", model=replay, output_type=output_type, store="memory:")
        assert (result.text, result.code, replay.unused) == (first.text, first.code, 0)


def test_the_command_line_replays_such_a_run_and_does_not_resume_it(tmp_path: Path) -> None:
    store = f"{tmp_path}/runs.db"
    options: dict[str, Any] = {"output_type": int, "store": store, "session": "s"}
    done = prowess.run_sync("x", model=said("a", "2"), **options)
    (tmp_path / ".agent").mkdir()
    (tmp_path / ".agent/config.toml").write_text(f'store = "{store}"\n', encoding="utf-8")
    environ = {"PROWESS_TRUST": "1"}
    replayed = run_here(["runs", "replay", done.run], cwd=tmp_path, environ=environ)
    assert replayed.code == 0, replayed
    prowess.run_sync("x", model=said("a"), limits={"turns": 1}, **options)
    script = tmp_path / "script.json"
    script.write_text('[{"text": "b"}]', encoding="utf-8")
    words = ["run", "--session", "s", "--resume", "--model", f"scripted:{script}"]
    resumed = run_here(words, cwd=tmp_path, environ=environ)
    assert resumed.code == 1, resumed
    assert "only its own program can check" in resumed.err


def test_the_record_says_which_form_was_asked_for() -> None:
    log = MemoryEventLog()
    prowess.run_sync("x", model=said("[1]"), output_type=list[int], store=log, session="s")
    (event,) = [each.event for each in read(log) if isinstance(each.event, OutputRequested)]
    assert (json.loads(event.json_schema)["required"], event.native) == (["result"], False)
    prowess.run_sync("y", model=said("[1]"), store=log, session="s")
    assert sum(isinstance(each.event, OutputRequested) for each in read(log)) == 1
    assert isinstance(read(log)[-1].event, RunFinished)


# --- types that cannot be used ---------------------------------------------------------------------------------------


def function(a: int) -> int:
    return a


class Unresolved(BaseModel):
    other: Missing  # noqa: F821 - this is the point


@dataclass
class UnresolvedData:
    other: Missing  # noqa: F821 - this is the point


@pytest.mark.parametrize(
    "output_type",
    [42, "Invoice", function, lambda: 1, len, object(), Unresolved, UnresolvedData, Literal, DyingLog, type],
    ids=lambda given: getattr(given, "__name__", repr(given)[:20]),
)
def test_what_is_no_type_is_refused_before_a_run(output_type: Any) -> None:
    with pytest.raises(ConfigError, match="output_type=") as caught:
        prowess.Agent(said(), output_type=output_type)
    assert (caught.value.code, caught.value.hint is not None) == ("output-type-invalid", True)


def test_a_validator_that_fails_ends_the_run_and_says_where() -> None:
    class Broken(BaseModel):
        x: int

        @field_validator("x")
        @classmethod
        def check(cls, value: int) -> int:
            return {}[value]

    log = MemoryEventLog()
    with pytest.raises(ConfigError, match=r"Broken failed with KeyError in test_output_type\.py:\d+") as caught:
        prowess.run_sync("x", model=said('{"x": 1}'), output_type=Broken, store=log, session="s")
    assert (caught.value.code, type(caught.value.__cause__)) == ("output-type-failed", KeyError)
    assert read(log)[-1].event.code == "output-type-failed"


def test_the_offline_planner_says_that_it_cannot(tmp_path: Path) -> None:
    log = MemoryEventLog()
    with pytest.raises(ModelError, match="'offline' cannot answer in the form of output_type") as caught:
        prowess.run_sync("x", model="offline", output_type=Invoice, store=log, session="s")
    assert caught.value.code == "model-no-schema"
    assert asyncio.run(log.sessions()) == []


def test_a_huge_schema_is_recorded_and_told() -> None:
    fields = {f"field_number_{number}": (int, number) for number in range(5_000)}
    from pydantic import create_model

    huge = create_model("Huge", **fields)  # type: ignore[call-overload]
    result = ask(huge, "{}")
    assert result.output.field_number_7 == 7


# --- types for a checker ---------------------------------------------------------------------------------------------


def test_pyright_knows_the_type_of_the_output(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        """
from dataclasses import dataclass
from typing import Any, TypedDict
from pydantic import BaseModel
from prowess.runtime.agent import Agent
from prowess.runtime.api import run, run_sync

class Invoice(BaseModel):
    total: float

@dataclass
class Point:
    x: int

class Book(TypedDict):
    title: str

async def main() -> None:
    reveal_type(Agent("offline").run_sync("x").output)
    reveal_type(Agent("offline", output_type=Invoice).run_sync("x").output)
    reveal_type(Agent("offline", output_type=Point).run_sync("x").output)
    reveal_type(Agent("offline", output_type=Book).run_sync("x").output)
    reveal_type(Agent("offline", output_type=int).run_sync("x").output)
    reveal_type(Agent("offline", output_type=list[int]).run_sync("x").output)
    reveal_type(run_sync("x").output)
    reveal_type((await run("x", output_type=Invoice, skills="a")).output)
    async with Agent("offline", output_type=Invoice).session() as chat:
        reveal_type((await chat.run("x")).output)
""",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    told = json.loads(done.stdout)["generalDiagnostics"]
    assert [each["severity"] for each in told] == ["information"] * 9, told
    types = [each["message"].rpartition(' is "')[2].rstrip('"') for each in told]
    assert types == ["str", "Invoice", "Point", "Book", "int", "list[int]", "str", "Invoice", "Invoice"]
