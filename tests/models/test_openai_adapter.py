"""openai: models, on both of their wires: the contract against llmock and aimock, and the oddities of real servers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from llmock.testing import LLMockServer

from model_contract import CASES, CHAT, KEY, RESPONSES, WEATHER, Case, Wire, case_name, go, user
from protocol_servers import Unavailable, open_aimock, open_llmock
from prowess.core.events import CallDelta, ModelReplied, TextDelta
from prowess.core.values import Message, Part, ToolCall
from prowess.errors import ConfigError, ModelAuth, ModelError
from prowess.models.providers import openai_chat, openai_responses
from prowess.models.providers.message_order import arrange
from prowess.models.providers.openai import OpenAIModel
from stub_provider import Answer, Stub, chat, open_stub, sse


@pytest.fixture(scope="module")
def llmock_server() -> Iterator[LLMockServer]:
    with open_llmock() as server:
        yield server


@pytest.mark.parametrize("case", CASES, ids=case_name)
@pytest.mark.parametrize("wire", [CHAT, RESPONSES], ids=lambda wire: wire.name)
def test_contract(case: Case, wire: Wire, llmock_server: LLMockServer) -> None:
    go(case, wire, llmock_server)


@pytest.fixture
def stub() -> Iterator[Stub]:
    with open_stub() as server:
        yield server


def ask(
    stub: Stub, *answers: bytes, api: Any = "chat", **more: Any
) -> tuple[ModelReplied, list[TextDelta | CallDelta]]:
    stub.say(*(Answer(body=answer) for answer in answers))
    deltas: list[TextDelta | CallDelta] = []

    async def inside() -> ModelReplied:
        model = OpenAIModel("small-1", api_key=None, base_url=f"{stub.url}/v1", api=api, **more)
        try:
            return await model.reply([user("x")], [WEATHER], on_delta=deltas.append)
        finally:
            await model.aclose()

    return asyncio.run(inside()), deltas


def piece(args: str, **more: Any) -> dict[str, Any]:
    return {"function": {"arguments": args, **({"name": more.pop("name")} if "name" in more else {})}, **more}


def test_a_server_that_repeats_id_and_name_in_every_chunk(stub: Stub) -> None:
    """llama-cpp-python does."""
    pieces = [piece(text, index=0, id="call_0", name="get_weather") for text in ('{"ci', 'ty": "Pa', 'ris"}')]
    reply, deltas = ask(stub, chat(*({"tool_calls": [each]} for each in pieces), finish="tool_calls"))
    assert [(call.id, call.tool, call.args) for call in reply.calls] == [("call_0", "get_weather", {"city": "Paris"})]
    assert [delta.tool for delta in deltas if isinstance(delta, CallDelta) and delta.tool] == ["get_weather"]


@pytest.mark.parametrize("index", [{"index": 0}, {}], ids=["one-index", "no-index"])
def test_a_server_that_does_not_number_its_calls(stub: Stub, index: dict[str, int]) -> None:
    """Some that imitate the protocol give every call the index 0, or none."""
    calls = [piece(json.dumps({"city": city}), id=city, name="get_weather", **index) for city in ("Paris", "Rome")]
    for deltas in ([{"tool_calls": [each]} for each in calls], [{"tool_calls": calls}]):
        reply, _ = ask(stub, chat(*deltas, finish="tool_calls"))
        assert [call.args for call in reply.calls] == [{"city": "Paris"}, {"city": "Rome"}]


def test_a_server_that_names_a_call_only_once_and_numbers_nothing(stub: Stub) -> None:
    begun, rest = piece('{"city"', id="c", name="get_weather"), piece(': "Paris"}')
    reply, _ = ask(stub, chat({"tool_calls": [begun]}, {"tool_calls": [rest]}, finish="tool_calls"))
    assert [(call.tool, call.args) for call in reply.calls] == [("get_weather", {"city": "Paris"})]


def test_a_server_that_gives_no_ids_and_says_stop(stub: Stub) -> None:
    reply, _ = ask(stub, chat({"tool_calls": [piece('{"city": "Paris"}', index=0, name="get_weather")]}))
    assert reply.finish == "calls"
    assert reply.calls[0].id


def test_arguments_of_every_kind(stub: Stub) -> None:
    for sent, read in [
        ("", {}),
        ("null", {}),
        ("{}", {}),
        ({"city": "Paris"}, {"city": "Paris"}),
        ("[1]", {"INVALID_JSON": "[1]"}),
        ('"text"', {"INVALID_JSON": '"text"'}),
        ('{"n": NaN}', {"INVALID_JSON": '{"n": NaN}'}),
        ('{"city": "Par', {"INVALID_JSON": '{"city": "Par'}),
        ("[" * 100_000, {"INVALID_JSON": "[" * 100_000}),
    ]:
        call = {"index": 0, "id": "c", "function": {"name": "get_weather", "arguments": sent}}
        reply, _ = ask(stub, chat({"tool_calls": [call]}, finish="tool_calls"))
        assert [call.args for call in reply.calls] == [read]


def test_a_call_that_the_length_limit_cut_keeps_what_came(stub: Stub) -> None:
    half = '{"city": "Par'
    sent = {"index": 0, "id": "c", "function": {"name": "get_weather", "arguments": half}}
    by_chat, _ = ask(stub, chat({"tool_calls": [sent]}, finish="length"))
    item = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "get_weather", "arguments": ""}
    end = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    events: list[dict[str, Any]] = [
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.function_call_arguments.delta", "output_index": 0, "item_id": "fc_1", "delta": half},
        {"type": "response.incomplete", "response": end},
    ]
    by_responses, _ = ask(stub, sse(events), api="responses")
    for reply in (by_chat, by_responses):
        assert (reply.finish, [call.args for call in reply.calls]) == ("length", [{"INVALID_JSON": half}])


def test_a_refusal_and_a_filter_are_said(stub: Stub) -> None:
    reply, _ = ask(stub, chat({"refusal": "I will "}, {"refusal": "not."}))
    assert (reply.text, reply.finish) == ("I will not.", "filter")
    reply, _ = ask(stub, chat({"content": "half"}, finish="content_filter"))
    assert (reply.text, reply.finish) == ("half", "filter")
    reply, _ = ask(stub, chat({"content": [{"type": "text", "text": "in pieces"}]}, finish="length"))
    assert (reply.text, reply.finish) == ("in pieces", "length")


def test_usage_of_a_chat(stub: Stub) -> None:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "prompt_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 8},
        "completion_tokens_details": {"reasoning_tokens": 12},
    }
    reply, _ = ask(stub, chat({"content": "x"}, usage=usage))
    found = reply.usage
    assert (found.input, found.cached, found.cache_written) == (100, 64, 8)
    assert (found.output, found.reasoning, found.requests) == (20, 12, 1)
    reply, _ = ask(stub, chat({"content": "x"}, usage={"prompt_tokens": "many", "completion_tokens": -1}))
    assert (reply.usage.input, reply.usage.output) == (0, 0)
    assert (reply.model, reply.request_id) == ("served", "c-1")


def test_a_response_that_is_streamed(stub: Stub) -> None:
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "get_weather", "arguments": ""}
    usage = {
        "input_tokens": 50,
        "output_tokens": 9,
        "input_tokens_details": {"cached_tokens": 32},
        "output_tokens_details": {"reasoning_tokens": 4},
    }
    end = {"id": "resp_1", "model": "served", "status": "completed", "usage": usage, "output": [{"type": "reasoning"}]}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {"id": "resp_1", "model": "served", "status": "in_progress"}},
        {"type": "response.reasoning_summary_text.delta", "delta": "thinking aloud"},
        {"type": "response.output_text.delta", "output_index": 1, "delta": "I lo"},
        {"type": "response.output_text.delta", "output_index": 1, "delta": "ok."},
        {"type": "response.output_item.added", "output_index": 2, "item": call},
        {"type": "response.function_call_arguments.delta", "output_index": 2, "item_id": "fc_1", "delta": '{"city"'},
        {"type": "response.function_call_arguments.delta", "output_index": 2, "item_id": "fc_1", "delta": ': "P"}'},
        {"type": "response.function_call_arguments.done", "item_id": "fc_1", "arguments": '{"city": "P"}'},
        {"type": "response.output_item.done", "output_index": 2, "item": call | {"arguments": '{"city": "P"}'}},
        {"type": "response.completed", "response": end},
    ]
    reply, deltas = ask(stub, sse(events), api="responses")
    assert reply.text == "I look."
    assert [(c.id, c.tool, c.args) for c in reply.calls] == [("call_1", "get_weather", {"city": "P"})]
    assert (reply.finish, reply.model, reply.request_id) == ("calls", "served", "resp_1")
    assert (reply.usage.input, reply.usage.cached, reply.usage.reasoning) == (50, 32, 4)
    assert "".join(d.args for d in deltas if isinstance(d, CallDelta)) == '{"city": "P"}'


def test_how_a_response_can_end(stub: Stub) -> None:
    def end(status: str, **more: Any) -> bytes:
        return sse([{"type": f"response.{status}", "response": {"status": status, **more}}])

    cut = {"incomplete_details": {"reason": "max_output_tokens"}}
    filtered = {"incomplete_details": {"reason": "content_filter"}}
    assert ask(stub, end("incomplete", **cut), api="responses")[0].finish == "length"
    assert ask(stub, end("incomplete", **filtered), api="responses")[0].finish == "filter"
    for error, retryable in (
        ({"code": "server_error", "message": "boom"}, True),
        ({"code": "rate_limit_exceeded", "message": "slower"}, True),
        ({"code": "invalid_prompt", "message": "no"}, False),
    ):
        with pytest.raises(ModelError, match=error["message"]) as caught:
            ask(stub, end("failed", error=error), api="responses")
        assert caught.value.retryable is retryable
    with pytest.raises(ModelError) as caught:
        ask(stub, end("cancelled"), api="responses")
    assert caught.value.code == "stream-broken"


def test_which_api_speaks() -> None:
    def api(**more: Any) -> str:
        return OpenAIModel("gpt-5", api_key=KEY, **more).api

    assert api() == "responses"
    assert api(base_url="https://api.openai.com/v1/") == "responses"
    assert api(base_url="http://localhost:11434/v1") == "chat"
    assert api(base_url="http://localhost:8080/v1", params={"api": "responses"}) == "responses"
    assert api(api="chat") == "chat"


def test_what_a_model_says_about_itself() -> None:
    assert OpenAIModel("gpt-5", api_key=KEY).name == "openai:gpt-5"
    assert OpenAIModel("gpt-4o-mini", api_key=KEY).context_tokens == 128_000
    assert OpenAIModel("qwen", api_key=KEY).context_tokens is None
    assert OpenAIModel("qwen", api_key=KEY, params={"context_tokens": 8192}).context_tokens == 8192
    assert KEY not in repr(OpenAIModel("gpt-5", api_key=KEY))


def test_no_key() -> None:
    for key in (None, "", "  \n"):
        with pytest.raises(ModelAuth) as caught:
            OpenAIModel("gpt-5", api_key=key)
        assert caught.value.code == "model-no-key"
        assert "OPENAI_API_KEY" in (caught.value.hint or "")


def test_a_key_that_cannot_be_sent() -> None:
    for key in ("sk-Ключ", "sk-a\nb", "sk-\x00"):
        with pytest.raises(ModelAuth) as caught:
            OpenAIModel("gpt-5", api_key=key)
        assert caught.value.code == "model-auth"
        assert "sk-" not in str(caught.value)


@pytest.mark.parametrize(
    "address", ["localhost:11434", "ftp://host/v1", "http://", "http://h:99999/v1", "x", "http://[::"]
)
def test_an_address_that_is_none(address: str) -> None:
    with pytest.raises(ConfigError) as caught:
        OpenAIModel("gpt-5", api_key=KEY, base_url=address)
    assert caught.value.code == "model-address-invalid"


@pytest.mark.parametrize(
    "params",
    [
        {"api_key": "sk-1"},
        {"messages": []},
        {"tools": []},
        {"model": "other"},
        {"stream": "no"},
        {"context_tokens": 0},
        {"context_tokens": "8k"},
        {"timeout_s": -1},
        {"max_tokens": True},
        {"api": "completions"},
    ],
    ids=str,
)
def test_parameters_that_cannot_be(params: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        OpenAIModel("gpt-5", api_key=KEY, params=params)
    assert caught.value.code == "model-params-invalid"
    assert "sk-1" not in str(caught.value)


# --- aimock -----------------------------------------------------------------------------------------------------------

FIXTURES: list[dict[str, Any]] = [
    {"match": {"userMessage": "hello"}, "response": {"content": "Hello from a stranger."}},
    {
        "match": {"userMessage": "weather", "turnIndex": 0},
        "response": {
            "toolCalls": [
                {"name": "get_weather", "arguments": '{"city": "Paris"}'},
                {"name": "get_weather", "arguments": '{"city": "Rome"}'},
            ]
        },
    },
    {"match": {"userMessage": "weather"}, "response": {"content": "Cold and hot."}},
]


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_aimock_is_understood(api: Any, tmp_path: Path, not_run: Callable[[str, str], None]) -> None:
    async def talk(root: str) -> None:
        model = OpenAIModel("gpt-4o", api_key=KEY, base_url=f"{root}/v1", api=api)
        try:
            deltas: list[TextDelta | CallDelta] = []
            reply = await model.reply([user("hello")], [], on_delta=deltas.append)
            assert (reply.text, reply.finish) == ("Hello from a stranger.", "stop")
            assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == reply.text
            said = [user("weather in two cities")]
            reply = await model.reply(said, [WEATHER])
            assert [call.args for call in reply.calls] == [{"city": "Paris"}, {"city": "Rome"}]
            said.append(Message(role="assistant", calls=reply.calls))
            said += [Message(role="tool", call_id=call.id, parts=(Part(text="fine"),)) for call in reply.calls]
            reply = await model.reply(said, [WEATHER])
            assert (reply.text, reply.finish) == ("Cold and hot.", "stop")
        finally:
            await model.aclose()

    try:
        with open_aimock(FIXTURES, tmp_path) as root:
            asyncio.run(talk(root))
    except Unavailable as error:
        not_run("adapters against aimock", str(error))


@pytest.mark.parametrize("is_verbatim", [True, False])
def test_arguments_that_are_no_json_go_back_as_they_came_where_the_server_takes_them(is_verbatim: bool) -> None:
    """OpenAI takes them. vLLM, llama.cpp, SGLang and others parse them, and refuse every later request."""
    sent = '{"city": "Par'
    bad = ToolCall(id="c1", tool="get_weather", args={"INVALID_JSON": sent})
    good = ToolCall(id="c2", tool="get_weather", args={"city": "Paris"})
    transcript = arrange([Message(role="assistant", calls=(bad, good))], is_verbatim=is_verbatim)
    wanted = [sent if is_verbatim else json.dumps({"INVALID_JSON": sent}), '{"city": "Paris"}']
    said = openai_chat.render_request(transcript, (), None)["messages"][1]
    assert [call["function"]["arguments"] for call in said["tool_calls"]] == wanted
    items = openai_responses.render_request(transcript, (), None)["input"]
    assert [item["arguments"] for item in items if item["type"] == "function_call"] == wanted
