"""What the adapters send and how they read odd servers, against our own stub: the same cases on all three wires."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import random
import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import prowess
from model_contract import CHAT, KEY, MESSAGES, RESPONSES, WEATHER, Wire, check_request, user
from prowess.core.events import ModelReplied
from prowess.core.ports import Model
from prowess.core.values import Message, Part, ToolCall, ToolSpec, Usage, describe_model, find_cost
from prowess.errors import ConfigError, MissingExtra, ModelError, ModelOverloaded
from prowess.models.providers.anthropic import AnthropicModel
from prowess.models.providers.client import check_sdk
from prowess.models.providers.message_order import Assistant, LateSystemMessage, User, arrange, wire_id, wire_name
from prowess.models.providers.openai import OpenAIModel
from prowess.models.providers.schemas import is_strict
from prowess.models.providers.sse import BrokenEvent, EventReader
from stub_provider import Answer, Stub, chat, messages, open_stub, spoken, sse

WIRES = pytest.mark.parametrize("wire", [CHAT, RESPONSES, MESSAGES], ids=lambda wire: wire.name)
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(20)).decode()
PDF = base64.b64encode(b"%PDF-1.4 nothing").decode()


@dataclass
class Report:
    city: str
    degrees: float | None
    on: date


def get_weather(city: str) -> str:
    """Weather of a city."""
    return city


@pytest.fixture
def stub() -> Iterator[Stub]:
    with open_stub() as server:
        yield server


def completed(text: str, *calls: dict[str, Any]) -> bytes:
    """A response that says everything at its end."""
    output: list[dict[str, Any]] = [{"type": "message", "id": "m", "content": [{"type": "output_text", "text": text}]}]
    response = {"id": "r-1", "model": "served", "status": "completed", "output": [*output, *calls], "usage": {}}
    return sse([{"type": "response.completed", "response": response}])


def well(wire: Wire, text: str = "fine") -> Answer:
    bodies = {"chat": chat({"content": text}), "responses": completed(text), "messages": messages(spoken(text))}
    return Answer(body=bodies[wire.name])


def ask(
    wire: Wire, stub: Stub, said: Sequence[Message], tools: Sequence[ToolSpec] = (), *, schema: Any = None, **more: Any
) -> ModelReplied:
    base = stub.url if wire is MESSAGES else f"{stub.url}/v1"

    async def inside() -> ModelReplied:
        model = wire.open(base, **more)
        try:
            return await model.reply(said, tools, schema=schema)
        finally:
            await model.aclose()  # type: ignore[attr-defined]

    return asyncio.run(inside())


def fails(wire: Wire, stub: Stub, answer: Answer, **more: Any) -> ModelError:
    stub.say(answer)
    with pytest.raises(ModelError) as caught:
        ask(wire, stub, [user("hello")], **more)
    assert KEY not in str(caught.value)
    return caught.value


def texts_of(value: Any) -> str:
    """Every text in a request."""
    if isinstance(value, dict):
        return " ".join(texts_of(inner) for inner in value.values())
    return " ".join(map(texts_of, value)) if isinstance(value, list) else str(value)


# --- what is sent -----------------------------------------------------------------------------------------------------

CALL = ToolCall(id="c1", tool="get_weather", args={"city": "Paris"})
OTHER = ToolCall(id="c2", tool="get_weather", args={"city": "Rome"})


def result(id: str, *parts: Part) -> Message:
    return Message(role="tool", call_id=id, parts=parts)


@WIRES
def test_a_whole_conversation_has_the_shape_that_the_sdk_declares(wire: Wire, stub: Stub) -> None:
    said = [
        Message(role="system", parts=(Part(text="Be brief."),)),
        Message(role="system", parts=(Part(text="Be kind."),)),
        user("one"),
        user("two"),
        Message(role="assistant", parts=(Part(text="I look."),), calls=(CALL, OTHER)),
        result("c2", Part(text="hot")),
        result("c1", Part(text="cold"), Part(text="wet")),
        Message(role="assistant"),
        user("three"),
        user("four"),
    ]
    stub.say(well(wire))
    ask(wire, stub, said, [WEATHER])
    check_request(wire.request_type, stub.body)
    expected: Any
    if wire is CHAT:
        expected = [
            ("system", "Be brief.\n\nBe kind."),
            ("user", "one\n\ntwo"),
            ("assistant", "I look."),
            ("tool", "cold\n\nwet"),
            ("tool", "hot"),
            ("user", "three\n\nfour"),
        ]
        assert [(message["role"], message["content"]) for message in stub.body["messages"]] == expected
        assert [call["id"] for call in stub.body["messages"][2]["tool_calls"]] == ["c1", "c2"]
        assert stub.body["stream_options"] == {"include_usage": True}
    elif wire is RESPONSES:
        assert stub.body["instructions"] == "Be brief.\n\nBe kind."
        kinds = [item.get("role") or item["type"] for item in stub.body["input"]]
        calls, results = ["function_call"] * 2, ["function_call_output"] * 2
        assert kinds == ["user", "assistant", *calls, *results, "user"]
        assert [item["output"] for item in stub.body["input"][4:6]] == ["cold\n\nwet", "hot"]
        assert stub.body["store"] is False
        assert [tool["strict"] for tool in stub.body["tools"]] == [False]  # the default there would refuse our schemas
    else:
        assert [block["text"] for block in stub.body["system"]] == ["Be brief.", "Be kind."]
        roles = [message["role"] for message in stub.body["messages"]]
        assert roles == ["user", "assistant", "user"]
        last = stub.body["messages"][-1]["content"]
        assert [block["type"] for block in last] == ["tool_result", "tool_result", "text", "text"]
        assert [block["tool_use_id"] for block in last[:2]] == ["c1", "c2"]


@WIRES
def test_a_call_that_was_never_answered_is_answered(wire: Wire, stub: Stub) -> None:
    said = [user("go"), Message(role="assistant", calls=(CALL, OTHER)), result("c2", Part(text="hot")), user("well?")]
    stub.say(well(wire))
    ask(wire, stub, said, [WEATHER])
    check_request(wire.request_type, stub.body)
    assert texts_of(stub.body).count("(no result)") == 1


@WIRES
def test_a_result_without_its_call_is_not_lost(wire: Wire, stub: Stub) -> None:
    stub.say(well(wire))
    ask(wire, stub, [user("go"), result("gone", Part(text="a precious result"))])
    check_request(wire.request_type, stub.body)
    assert "a precious result" in texts_of(stub.body)


@WIRES
@pytest.mark.parametrize(
    "said",
    [
        [],
        [Message(role="system", parts=(Part(text="only rules"),))],
        [Message(role="assistant", parts=(Part(text="I begin."),))],
        [user("")],
        [user(" \n ")],
        [user("x"), Message(role="assistant", parts=(Part(text="and the last word  "),))],
        [user("x"), Message(role="assistant", calls=(CALL,)), result("c1")],
        [user("x"), Message(role="system", parts=(Part(text="late rules"),)), user("y")],
        [user("half a character: \ud83c, and a zero: \x00")],
        [user("x"), Message(role="assistant", calls=(ToolCall(id="c", tool="t", args={"k": "\udfff"}),))],
    ],
    ids=["empty", "system", "assistant", "no-text", "blank", "ends", "bare-result", "late-system", "halves", "args"],
)
def test_odd_conversations_still_make_a_request(wire: Wire, said: list[Message], stub: Stub) -> None:
    stub.say(well(wire))
    assert ask(wire, stub, said).text == "fine"
    check_request(wire.request_type, stub.body)


@WIRES
def test_ids_and_names_that_providers_refuse_are_spelled_otherwise_and_back(wire: Wire, stub: Stub) -> None:
    odd = ToolSpec(name="Wetter für München/2", description="…", parameters={})
    long = ToolSpec(name="x" * 100, description="…", parameters={})
    ids = ["call/1", "x" * 200, "", "same", "same"]
    calls = [ToolCall(id=id, tool=odd.name) for id in ids]
    said = [user("go"), Message(role="assistant", calls=tuple(calls))]
    said += [result(call.id, Part(text=f"result {at}")) for at, call in enumerate(calls)]
    wired = wire_name(odd.name)
    args = json.dumps({"a": 1})
    answers = {
        "chat": chat({"tool_calls": [{"index": 0, "id": "n", "function": {"name": wired, "arguments": args}}]}),
        "responses": completed(
            "", {"type": "function_call", "id": "i", "call_id": "n", "name": wired, "arguments": args}
        ),
        "messages": messages({"type": "tool_use", "id": "n", "name": wired, "input": {"a": 1}}, stop="tool_use"),
    }
    stub.say(Answer(body=answers[wire.name]))
    reply = ask(wire, stub, said, [odd, long])
    assert [(call.tool, call.args) for call in reply.calls] == [(odd.name, {"a": 1})]
    check_request(wire.request_type, stub.body)
    sent = json.dumps(stub.body)
    found = {name: set(_values(stub.body, name)) for name in ("tool_call_id", "tool_use_id", "call_id", "name")}
    answered = found["tool_call_id"] | found["tool_use_id"] | found["call_id"]
    assert len(answered) == len(ids), "every call has an id of its own, and its result the same one"
    assert all(wire_id(id) == id for id in answered)
    assert {wired, wire_name(long.name)} <= found["name"]
    assert odd.name not in sent and long.name not in sent


def _values(value: Any, name: str) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from [value[name]] if isinstance(value.get(name), str) else []
        for inner in value.values():
            yield from _values(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from _values(inner, name)


@WIRES
def test_an_id_that_the_transcript_has_already_is_not_given_again(wire: Wire, stub: Stub) -> None:
    answers = {
        "chat": chat({"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "t", "arguments": "{}"}}]}),
        "responses": completed("", {"type": "function_call", "call_id": "c1", "name": "t", "arguments": "{}"}),
        "messages": messages({"type": "tool_use", "id": "c1", "name": "t", "input": {}}, stop="tool_use"),
    }
    said = [user("go"), Message(role="assistant", calls=(CALL,)), result("c1", Part(text="cold"))]
    stub.say(Answer(body=answers[wire.name]))
    reply = ask(wire, stub, said, [WEATHER])
    assert [call.tool for call in reply.calls] == ["t"]
    assert reply.calls[0].id not in ("c1", "")


@WIRES
def test_pictures_and_files_are_shown_or_said_to_be_missing(wire: Wire, stub: Stub) -> None:
    parts = (
        Part(text="Look:"),
        Part(kind="image", ref=f"data:image/png;base64,{PNG}"),
        Part(kind="image", ref="https://example.com/cat.png"),
        Part(kind="image", ref="data:image/tiff;base64,SUkqAA=="),
        Part(kind="image", ref="workspace://work/a.png"),
        Part(kind="file", text="paper.pdf", ref=f"data:application/pdf;base64,{PDF}"),
        Part(kind="file", text="notes.txt", ref="data:text/plain,three%20words%20here"),
        Part(kind="file", text="all.zip", ref="data:application/zip;base64,UEsDBA=="),
        Part(kind="file", text="torn.pdf", ref="data:application/pdf;base64,%%%"),
    )
    said = [
        Message(role="user", parts=parts),
        Message(role="assistant", calls=(CALL,)),
        result("c1", Part(text="a map"), Part(kind="image", ref=f"data:image/jpeg;base64,{PNG}")),
    ]
    stub.say(well(wire))
    ask(wire, stub, said, [WEATHER])
    check_request(wire.request_type, stub.body)
    sent = json.dumps(stub.body)
    for shown in (PNG, "https://example.com/cat.png", PDF, "paper.pdf", "notes.txt"):
        assert shown in sent
    assert "three words here" in texts_of(stub.body)
    assert sent.count("it cannot be shown") == 4
    for named in ("workspace://work/a.png", "all.zip", "torn.pdf"):
        assert named in texts_of(stub.body)
    assert sent.count(PNG) == 2, "the picture of the result is there too"


@WIRES
def test_parameters_go_to_the_provider(wire: Wire, stub: Stub) -> None:
    stub.say(well(wire))
    ask(wire, stub, [user("x")], params={"temperature": 0.5, "max_tokens": 77, "stream": True, "context_tokens": 9})
    length = {"chat": "max_tokens", "responses": "max_output_tokens", "messages": "max_tokens"}[wire.name]
    assert stub.body["temperature"] == 0.5
    assert stub.body[length] == 77
    assert not {"context_tokens", "api", "timeout_s"} & stub.body.keys()


@WIRES
def test_a_schema_is_passed_on(wire: Wire, stub: Stub) -> None:
    strict = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    for schema, strictly in ((strict, True), ({**strict, "required": []}, False)):
        stub.say(well(wire))
        ask(wire, stub, [user("x")], schema=schema)
        check_request(wire.request_type, stub.body)
        if wire is MESSAGES:
            assert stub.body["output_config"]["format"]["schema"]["properties"] == {"n": {"type": "integer"}}
        else:
            form = stub.body["response_format"]["json_schema"] if wire is CHAT else stub.body["text"]["format"]
            assert form["schema"] == schema
            assert form["strict"] is strictly


@WIRES
@pytest.mark.parametrize("schemas", [True, None])
def test_an_output_type_goes_to_the_provider_with_the_tools(wire: Wire, stub: Stub, schemas: bool | None) -> None:
    """A server of an unknown address is told in words, because most cannot combine a schema with tools."""
    stub.say(well(wire, "no"), well(wire, '{"city": "Ulm", "degrees": null, "on": "2026-01-02"}'))
    base = stub.url if wire is MESSAGES else f"{stub.url}/v1"

    async def work() -> Any:
        model = wire.open(base, params={} if schemas is None else {"schemas": schemas})
        try:
            return await prowess.run("x", model=model, tools=get_weather, output_type=Report, store="memory:")
        finally:
            await model.aclose()  # type: ignore[attr-defined]

    result = asyncio.run(work())
    assert result.output == Report(city="Ulm", degrees=None, on=date(2026, 1, 2))
    for body in (asked.body for asked in stub.asked):
        check_request(wire.request_type, body)
        names = {CHAT: "response_format", RESPONSES: "text", MESSAGES: "output_config"}
        form = body.get(names[wire])
        assert (form is None) == (schemas is None)
        assert ("must be only JSON" in json.dumps(body)) == (schemas is None)
        assert body["tools"]
        if form is not None and wire is not MESSAGES:
            assert '"strict": true' in json.dumps(form)


@pytest.mark.parametrize(
    ("model", "schemas"),
    [
        (OpenAIModel("gpt-5", api_key="k"), True),
        (OpenAIModel("gpt-4.1-mini", api_key="k"), True),
        (OpenAIModel("gpt-4", api_key="k"), False),
        (OpenAIModel("gpt-4-turbo", api_key="k"), False),
        (OpenAIModel("gpt-5", api_key="k", base_url="http://localhost:1/v1"), False),
        (OpenAIModel("gpt-5", api_key="k", params={"schemas": False}), False),
        (AnthropicModel("claude-sonnet-4-5", api_key="k"), True),
        (AnthropicModel("claude-opus-4-1", api_key="k"), True),
        (AnthropicModel("claude-sonnet-4-20250514", api_key="k"), False),
        (AnthropicModel("claude-3-7-sonnet-latest", api_key="k"), False),
        (AnthropicModel("claude-sonnet-4-5", api_key="k", base_url="http://localhost:1"), False),
    ],
)
def test_it_is_known_which_models_take_schemas(model: Model, schemas: bool) -> None:
    assert describe_model(model).schemas is schemas


def test_a_parameter_that_is_no_truth_value_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"schemas .* must be true or false"):
        OpenAIModel("gpt-5", api_key="k", params={"schemas": "yes"})


@pytest.mark.parametrize(
    "field",
    [
        {},
        {"type": "string", "format": "binary"},
        {"type": "array", "prefixItems": [{"type": "string"}]},
        {"$ref": "#/$defs/x", "description": "d"},
        {"type": "string", "default": "a"},
    ],
)
def test_strict_mode_is_not_asked_for_what_it_refuses(field: Any) -> None:
    def make(field: Any) -> dict[str, Any]:
        properties = {"a": field}
        return {"type": "object", "properties": properties, "required": ["a"], "additionalProperties": False}

    assert not is_strict(make(field))
    assert is_strict(make({"type": "string", "format": "date"}))
    assert is_strict(make({"$ref": "#/$defs/x"}))


@WIRES
def test_the_same_conversation_is_the_same_request(wire: Wire, stub: Stub) -> None:
    said = [user("go"), Message(role="assistant", calls=(CALL,)), result("c1", Part(text="cold"))]
    stub.say(well(wire), well(wire))
    ask(wire, stub, said, [WEATHER])
    ask(wire, stub, said, [WEATHER])
    assert stub.asked[0].body == stub.asked[1].body


def test_the_key_goes_into_its_header_and_nowhere_else(stub: Stub) -> None:
    for wire in (CHAT, RESPONSES, MESSAGES):
        stub.say(well(wire))
        ask(wire, stub, [user("x")])
        rest = dict(stub.asked[-1].headers)
        assert KEY in rest.pop("authorization", "") + rest.pop("x-api-key", "")
        assert KEY not in json.dumps([rest, stub.body, stub.asked[-1].path])


# --- what is read -----------------------------------------------------------------------------------------------------


@WIRES
@pytest.mark.parametrize("pieces", [1, 3, 1000])
def test_events_may_be_cut_anywhere(wire: Wire, pieces: int, stub: Stub) -> None:
    answer = well(wire, "Grüße 東京 🎉 \u2028 and \r\n all")
    stub.say(Answer(body=answer.body, pieces=pieces))
    assert ask(wire, stub, [user("x")]).text == "Grüße 東京 🎉 \u2028 and \r\n all"


@WIRES
def test_a_server_that_does_not_stream_is_understood(wire: Wire, stub: Stub) -> None:
    whole = {
        "chat": {"choices": [{"message": {"content": "fine"}, "finish_reason": "stop"}]},
        "responses": {
            "object": "response",
            "status": "completed",
            "output": [{"type": "message", "content": [{"type": "output_text", "text": "fine"}]}],
        },
        "messages": {"type": "message", "content": [{"type": "text", "text": "fine"}], "stop_reason": "end_turn"},
    }
    stub.say(Answer(content_type="application/json", body=json.dumps(whole[wire.name]).encode()))
    reply = ask(wire, stub, [user("x")])
    assert (reply.text, reply.finish) == ("fine", "stop")


@WIRES
@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("text/html", b"<html><body>Welcome to the router</body></html>"),
        ("application/json", b"not json at all"),
        ("application/json", b"[1, 2]"),
        ("text/plain", b"hello"),
        ("application/octet-stream", bytes(range(256))),
    ],
)
def test_an_answer_that_is_no_reply(wire: Wire, content_type: str, body: bytes, stub: Stub) -> None:
    error = fails(wire, stub, Answer(content_type=content_type, body=body))
    assert error.code == "model-malformed"
    assert content_type in error.message


@WIRES
@pytest.mark.parametrize(
    "body",
    [b"", b"data: {}\n\n", b"data: [DONE]\n\n", b": only a comment\n\n", b'data: {"choices": 5, "type": []}\n\n'],
    ids=["nothing", "empty", "done", "comment", "odd"],
)
def test_a_stream_without_a_finish_is_no_reply(wire: Wire, body: bytes, stub: Stub) -> None:
    error = fails(wire, stub, Answer(body=body))
    assert error.code in ("stream-broken", "model-malformed")
    assert error.code == "model-malformed" or error.retryable


@WIRES
def test_a_body_that_ends_before_its_length_is_no_reply(wire: Wire, stub: Stub) -> None:
    error = fails(wire, stub, Answer(body=well(wire, "word " * 500).body, cut=True))
    assert error.code == "stream-broken" and error.retryable


@WIRES
def test_json_that_is_nested_without_end_is_no_reply(wire: Wire, stub: Stub) -> None:
    error = fails(wire, stub, Answer(body=b"data: " + b"[" * 200_000 + b"\n\n"))
    assert error.code == "stream-broken"


@WIRES
def test_an_error_inside_a_stream(wire: Wire, stub: Stub) -> None:
    event = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    begun = well(wire).body.split(b"\n\n")[0] + b"\n\n"
    error = fails(wire, stub, Answer(body=begun + sse([event])))
    assert isinstance(error, ModelOverloaded)
    assert "Overloaded" in error.message
    event["error"] = {"type": "server_error", "message": "boom"}
    error = fails(wire, stub, Answer(body=sse([event])))
    assert error.retryable and "boom" in error.message


@WIRES
def test_how_long_to_wait_is_read_in_every_form(wire: Wire, stub: Stub) -> None:
    def wait_s(**headers: str) -> float | None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        error = fails(wire, stub, Answer(status=429, content_type="application/json", body=b"{}", headers=named))
        assert isinstance(error, ModelOverloaded)
        return error.retry_after_s

    assert wait_s() is None
    assert wait_s(retry_after="3") == 3
    assert wait_s(retry_after="2.5") == 2.5
    assert wait_s(retry_after="3", retry_after_ms="250") == 0.25
    date = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    assert 3000 < (wait_s(retry_after=date) or 0) <= 3600
    assert wait_s(retry_after="Wed, 21 Oct 2015 07:28:00 GMT") == 0
    for nonsense in ("soon", "-5", "nan", "1e999", "99999999999999999999"):
        assert wait_s(retry_after=nonsense) is None


@WIRES
@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (400, {"error": {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"}}, "context-overflow"),
        (400, {"error": {"code": 400, "type": "exceed_context_size_error", "message": "…"}}, "context-overflow"),
        (500, {"error": {"message": "Requested tokens (9) exceed context window of 8"}}, "context-overflow"),
        (413, {"error": {"type": "request_too_large", "message": "…"}}, "context-overflow"),
        (429, {"error": {"code": "insufficient_quota", "message": "You exceeded …"}}, "model-quota"),
        (429, {"error": {"message": "Request too large for gpt: Limit 30000, Requested 40000"}}, "context-overflow"),
        (429, {"error": {"message": "Too many tokens, please wait before trying again."}}, "model-overloaded"),
        (402, {"error": {"message": "Pay"}}, "model-quota"),
        (400, {"error": {"message": "Your credit balance is too low"}}, "model-quota"),
        (422, {"detail": [{"loc": ["body"], "msg": "field required"}]}, "model-refused"),
        (400, {"error": "a bare text"}, "model-refused"),
        (400, "<html>Bad</html>", "model-refused"),
        (418, None, "model-refused"),
        (408, {}, "model-timeout"),
        (409, {}, "model-failed"),
        (404, {"error": {"message": "model not found, try pulling it first"}}, "model-unknown"),
        (400, {"error": {"code": "model_not_found", "message": "no such model"}}, "model-unknown"),
    ],
)
def test_what_a_refusal_means(wire: Wire, status: int, body: Any, code: str, stub: Stub) -> None:
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    kind = "text/html" if isinstance(body, str) else "application/json"
    headers = {"x-request-id": "req-17"}
    error = fails(wire, stub, Answer(status=status, content_type=kind, body=data, headers=headers))
    assert error.code == code
    assert error.retryable == (code in ("model-timeout", "model-failed", "model-overloaded"))
    if code == "model-refused":
        assert "(request req-17)" in error.message
    if code == "model-unknown":
        assert "big-1, small-1" in (error.hint or "")


@WIRES
def test_a_key_in_a_providers_words_is_taken_out(wire: Wire, stub: Stub) -> None:
    body = json.dumps({"error": {"message": f"Bad key {KEY} in {KEY}"}}).encode()
    error = fails(wire, stub, Answer(status=401, content_type="application/json", body=body))
    assert "Bad key *** in ***" in error.message


@WIRES
def test_an_address_where_nobody_listens(wire: Wire) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    error = fails(wire, Stub(url=f"http://user:secret@127.0.0.1:{port}"), Answer())
    assert error.code == "model-unreachable" and error.retryable
    assert f"127.0.0.1:{port}" in error.message and "secret" not in str(error)


@WIRES
def test_a_name_that_nobody_knows(wire: Wire) -> None:
    error = fails(wire, Stub(url="http://nowhere.invalid"), Answer())
    assert error.code == "model-unreachable" and "nowhere.invalid" in error.message


@WIRES
def test_a_peer_that_does_not_speak_http(wire: Wire) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def speak() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

        thread = threading.Thread(target=speak, daemon=True)
        thread.start()
        error = fails(wire, Stub(url=f"http://127.0.0.1:{listener.getsockname()[1]}"), Answer())
    assert error.code == "stream-broken"


# --- the parts --------------------------------------------------------------------------------------------------------


@given(st.lists(st.dictionaries(st.text(max_size=5), st.text(), max_size=3), max_size=5), st.integers(0, 2**32))
def test_events_are_the_same_however_they_are_cut(events: list[dict[str, str]], seed: int) -> None:
    dice = random.Random(seed)
    data = sse(events, end=dice.choice(["\n", "\r\n", "\r"]), done=dice.random() < 0.5)
    reader, found = EventReader(), []
    while data:
        size = dice.randint(1, 9)
        found += reader.feed(data[:size])
        data = data[size:]
    found += reader.finish()
    assert found == events


def test_an_event_has_a_largest_size() -> None:
    reader = EventReader()
    with pytest.raises(BrokenEvent, match="larger"):
        for _ in range(100):
            list(reader.feed(b"data: " + b"x" * 1024 * 1024))


PARTS = st.builds(lambda text: (Part(text=text),), st.sampled_from(["", " ", "a", "b\n", "\ud800"]))
CALLS = st.lists(st.builds(ToolCall, id=st.sampled_from(["1", "2", "/", ""]), tool=st.just("t")), max_size=3)
MESSAGES_OF = st.lists(
    st.one_of(
        st.builds(Message, role=st.sampled_from(["user", "system"]), parts=PARTS),
        st.builds(lambda parts, calls: Message(role="assistant", parts=parts, calls=tuple(calls)), PARTS, CALLS),
        st.builds(Message, role=st.just("tool"), parts=PARTS, call_id=st.sampled_from(["1", "2", "/", "", None])),
    ),
    max_size=12,
)


@given(MESSAGES_OF)
def test_whatever_the_messages_every_call_is_answered_once_and_turns_alternate(said: list[Message]) -> None:
    turns = arrange(said).turns
    assert isinstance(turns[0], User) and not isinstance(turns[-1], Assistant)
    ids = [call.id for turn in turns if isinstance(turn, Assistant) for call in turn.calls]
    assert len(ids) == len(set(ids)) == sum(len(message.calls) for message in said)
    for before, turn in itertools.pairwise(turns):
        assert type(before) is not type(turn) or isinstance(turn, LateSystemMessage)
        asked = [call.id for call in before.calls] if isinstance(before, Assistant) else []
        answered = [call.id for call, _ in turn.results] if isinstance(turn, User) else []
        assert asked == answered


def test_an_sdk_that_is_not_installed() -> None:
    with pytest.raises(MissingExtra) as caught:
        check_sdk("no_such_sdk")
    assert "prowess[no_such_sdk]" in (caught.value.hint or "")


def test_what_tokens_cost() -> None:
    usage = Usage(input=1_000_000, cached=400_000, cache_written=100_000, output=200_000)
    assert find_cost(usage, {}) is None
    assert find_cost(usage, {"input": 2.0}) is None
    assert find_cost(usage, {"input": 2.0, "output": 10.0}) == pytest.approx(4.0)
    prices = {"input": 2.0, "output": 10.0, "cached": 0.2, "cache_written": 2.5}
    assert find_cost(usage, prices) == pytest.approx(1.0 + 2.0 + 0.08 + 0.25)
