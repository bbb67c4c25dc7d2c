"""anthropic: models: the contract against llmock and aimock; caching and thoughts against our own stub."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from llmock.testing import LLMockServer
from test_openai_adapter import FIXTURES

from model_contract import CASES, KEY, MESSAGES, WEATHER, Case, case_name, check_request, go, user
from protocol_servers import Unavailable, open_aimock, open_llmock
from prowess.core.events import CallDelta, ModelReplied, TextDelta
from prowess.core.values import Message, Part, ToolSpec
from prowess.errors import ModelAuth
from prowess.models.providers.anthropic import AnthropicModel
from stub_provider import Answer, Stub, messages, open_stub, spoken


@pytest.fixture(scope="module")
def llmock_server() -> Iterator[LLMockServer]:
    with open_llmock() as server:
        yield server


@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_contract(case: Case, llmock_server: LLMockServer) -> None:
    go(case, MESSAGES, llmock_server)


@pytest.fixture
def stub() -> Iterator[Stub]:
    with open_stub() as server:
        yield server


def ask(
    stub: Stub, said: list[Message], *answers: bytes, tools: list[ToolSpec] | None = None, **more: Any
) -> ModelReplied:
    stub.say(*(Answer(body=answer) for answer in answers))

    async def inside() -> ModelReplied:
        model = AnthropicModel("claude-small-1", api_key=None, base_url=stub.url, **more)
        try:
            return await model.reply(said, tools or [])
        finally:
            await model.aclose()

    return asyncio.run(inside())


FINE = messages(spoken("fine"))
RULES = Message(role="system", parts=(Part(text="Be brief."),))


def marks(body: dict[str, Any]) -> list[str]:
    """Where the cache marks are."""
    places = [f"tools[{at}]" for at, tool in enumerate(body.get("tools", [])) if "cache_control" in tool]
    places += [f"system[{at}]" for at, block in enumerate(body.get("system", [])) if "cache_control" in block]
    for at, message in enumerate(body["messages"]):
        blocks = message["content"]
        places += [f"{message['role']}[{at}][{n}]" for n, block in enumerate(blocks) if "cache_control" in block]
    return places


def test_the_stable_prefix_is_marked_for_the_cache(stub: Stub) -> None:
    said = [RULES, user("one")]
    second = ToolSpec(name="get_time", description="", parameters={})
    ask(stub, said, FINE, tools=[WEATHER, second])
    assert marks(stub.body) == ["tools[1]", "system[0]", "user[0][0]"]
    before = stub.body
    for text in ("two", "three", "four"):
        said += [Message(role="assistant", parts=(Part(text="ok"),)), user(text)]
        ask(stub, said, FINE, tools=[WEATHER, second])
        check_request(MESSAGES.request_type, stub.body)
        assert len(marks(stub.body)) == 4
        last = len(stub.body["messages"]) - 1
        assert marks(stub.body)[2:] == [f"user[{last - 2}][0]", f"user[{last}][0]"]
        assert _unmarked(stub.body["messages"])[: len(before["messages"])] == _unmarked(before["messages"])
        before = stub.body
    ask(stub, [user("nothing else")], FINE)
    assert marks(stub.body) == ["user[0][0]"]


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _unmarked(inner) for name, inner in value.items() if name != "cache_control"}
    return [_unmarked(inner) for inner in value] if isinstance(value, list) else value


def test_what_was_written_to_and_read_from_the_cache_is_counted(stub: Stub) -> None:
    usage = {"input_tokens": 10, "cache_creation_input_tokens": 2000, "cache_read_input_tokens": 0, "output_tokens": 1}
    found = ask(stub, [user("x")], messages(spoken("x"), usage=usage)).usage
    assert (found.input, found.cached, found.cache_written, found.output) == (2010, 0, 2000, 9)
    usage = {"input_tokens": 10, "cache_creation_input_tokens": 30, "cache_read_input_tokens": 2000}
    found = ask(stub, [user("x")], messages(spoken("x"), usage=usage)).usage
    assert (found.input, found.cached, found.cache_written, found.requests) == (2040, 2000, 30, 1)
    found = ask(
        stub, [user("x")], messages(spoken("x"), usage={"input_tokens": 7, "cache_read_input_tokens": None})
    ).usage
    assert (found.input, found.cached, found.output) == (7, 0, 9)


def test_why_it_stopped(stub: Stub) -> None:
    for reason, finish in (
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "filter"),
        ("a_new_reason", "stop"),
    ):
        assert ask(stub, [user("x")], messages(spoken("x"), stop=reason)).finish == finish


def test_a_call_that_the_length_limit_cut_keeps_what_came(stub: Stub) -> None:
    half = [{"type": "input_json_delta", "partial_json": '{"city": "Par'}]
    call = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {}, "deltas": half}
    reply = ask(stub, [user("x")], messages(call, stop="max_tokens"), tools=[WEATHER])
    assert (reply.finish, [call.args for call in reply.calls]) == ("length", [{"INVALID_JSON": '{"city": "Par'}])


def test_a_call_in_pieces_with_text_before_it(stub: Stub) -> None:
    call = {
        "type": "tool_use",
        "id": "toolu_1",
        "name": "get_weather",
        "input": {},
        "deltas": [{"type": "input_json_delta", "partial_json": text} for text in ("", '{"city": ', '"Paris"}')],
    }
    reply = ask(stub, [user("x")], messages(spoken("I look."), call, stop="tool_use"), tools=[WEATHER])
    assert (reply.text, reply.finish, reply.model, reply.request_id) == ("I look.", "calls", "served", "msg_1")
    assert [(c.id, c.tool, c.args) for c in reply.calls] == [("toolu_1", "get_weather", {"city": "Paris"})]


def test_thoughts_go_back_as_they_came(stub: Stub) -> None:
    """They are signed, and the provider refuses a request that continues calls without them."""
    thinking = {
        "type": "thinking",
        "thinking": "",
        "signature": "",
        "deltas": [
            {"type": "thinking_delta", "thinking": "Paris is "},
            {"type": "thinking_delta", "thinking": "far."},
            {"type": "signature_delta", "signature": "c2ln"},
        ],
    }
    hidden = {"type": "redacted_thinking", "data": "ZGF0YQ=="}
    call = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Paris"}}
    stub.say(Answer(body=messages(thinking, hidden, spoken("I look."), call, stop="tool_use")), Answer(body=FINE))

    async def talk() -> ModelReplied:
        model = AnthropicModel("claude-small-1", api_key=None, base_url=stub.url)
        try:
            said = [user("weather?")]
            reply = await model.reply(said, [WEATHER])
            said.append(Message(role="assistant", parts=(Part(text=reply.text),), calls=reply.calls))
            said.append(Message(role="tool", call_id="toolu_1", parts=(Part(text="cold"),)))
            await model.reply(said, [WEATHER])
            return reply
        finally:
            await model.aclose()

    reply = asyncio.run(talk())
    assert reply.text == "I look.", "thoughts are no part of the answer"
    check_request(MESSAGES.request_type, stub.body)
    assert stub.body["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "Paris is far.", "signature": "c2ln"},
        hidden,
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Paris"}},
    ]


def test_the_longest_reply_is_always_said(stub: Stub) -> None:
    ask(stub, [user("x")], FINE)
    assert stub.body["max_tokens"] == 16384
    ask(stub, [user("x")], FINE, params={"max_tokens": 100_000, "stream": False})
    assert (stub.body["max_tokens"], stub.body["stream"]) == (100_000, False)


def test_the_address_may_end_in_v1(stub: Stub) -> None:
    stub.say(Answer(body=FINE))

    async def inside() -> None:
        model = AnthropicModel("claude-small-1", api_key=None, base_url=f"{stub.url}/v1/")
        await model.reply([user("x")], [])
        await model.aclose()

    asyncio.run(inside())
    assert stub.asked[-1].path == "/v1/messages"


def test_no_key_and_what_it_says_about_itself() -> None:
    with pytest.raises(ModelAuth) as caught:
        AnthropicModel("claude-small-1", api_key=None)
    assert caught.value.code == "model-no-key"
    assert "ANTHROPIC_API_KEY" in (caught.value.hint or "")
    model = AnthropicModel("claude-small-1", api_key=KEY)
    assert (model.name, model.context_tokens) == ("anthropic:claude-small-1", 200_000)


def test_aimock_is_understood(tmp_path: Path, not_run: Callable[[str, str], None]) -> None:
    async def talk(root: str) -> None:
        model = AnthropicModel("claude-sonnet-5", api_key=KEY, base_url=root)
        try:
            deltas: list[TextDelta | CallDelta] = []
            reply = await model.reply([user("hello")], [], on_delta=deltas.append)
            assert (reply.text, reply.finish) == ("Hello from a stranger.", "stop")
            assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == reply.text
            said, deltas = [user("weather in two cities")], []
            reply = await model.reply(said, [WEATHER], on_delta=deltas.append)
            assert [call.args for call in reply.calls] == [{"city": "Paris"}, {"city": "Rome"}]
            pieces = [d.args for d in deltas if isinstance(d, CallDelta) and d.index == 1]
            assert json.loads("".join(pieces)) == {"city": "Rome"}
            said.append(Message(role="assistant", calls=reply.calls))
            said += [Message(role="tool", call_id=call.id, parts=(Part(text="fine"),)) for call in reply.calls]
            assert (await model.reply(said, [WEATHER])).text == "Cold and hot."
        finally:
            await model.aclose()

    try:
        with open_aimock(FIXTURES, tmp_path) as root:
            asyncio.run(talk(root))
    except Unavailable as error:
        not_run("adapters against aimock", str(error))
