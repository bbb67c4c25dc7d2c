"""What every adapter promises: `CASES` runs on each wire against a server that nobody here wrote (llmock).

A case is a coroutine function that is given a Peer. After each one, every request that the server got must be what the
provider's own SDK declares a request to be.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

import jsonschema
import pytest
from anthropic.types.message_create_params import MessageCreateParams
from llmock.scenarios import Behavior, Delay, Fail, Reply, StreamFault, ToolFault
from llmock.scenarios import ToolCall as Scripted
from llmock.testing import LLMockServer
from llmock.verdict import judge
from openai.types.chat.completion_create_params import CompletionCreateParams
from openai.types.responses.response_create_params import ResponseCreateParams
from pydantic import TypeAdapter

from guard import GUARD_S
from prowess.core.events import CallDelta, TextDelta
from prowess.core.ports import Model
from prowess.core.values import Message, Part, ToolSpec
from prowess.errors import ModelAuth, ModelError, ModelOverloaded
from prowess.models.providers.anthropic import AnthropicModel
from prowess.models.providers.openai import OpenAIModel

KEY = "sk-a-secret-that-nobody-may-see"
WEATHER = ToolSpec(
    name="get_weather",
    description="Get the weather of a city",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
TIME = ToolSpec(name="get_time", description="Get the time of a city", parameters=WEATHER.parameters)


@dataclass(frozen=True, kw_only=True)
class Wire:
    """One protocol: how to open a model that speaks it, and what its SDK says a request is."""

    name: str
    open: Callable[..., Model]  # (base_url, **arguments)
    provider: str  # as llmock names it
    request_type: Any
    holds_to_schema: bool = True  # whether llmock honours a schema here


def open_chat(base_url: str, *, name: str = "small-1", **arguments: Any) -> OpenAIModel:
    return OpenAIModel(name, api_key=KEY, base_url=base_url, api="chat", **arguments)


def open_responses(base_url: str, *, name: str = "small-1", **arguments: Any) -> OpenAIModel:
    return OpenAIModel(name, api_key=KEY, base_url=base_url, api="responses", **arguments)


def open_messages(base_url: str, *, name: str = "small-1", **arguments: Any) -> AnthropicModel:
    return AnthropicModel(name, api_key=KEY, base_url=base_url, **arguments)


CHAT = Wire(name="chat", open=open_chat, provider="openai", request_type=CompletionCreateParams)
RESPONSES = Wire(name="responses", open=open_responses, provider="openai", request_type=ResponseCreateParams)
MESSAGES = Wire(
    name="messages", open=open_messages, provider="anthropic", request_type=MessageCreateParams, holds_to_schema=False
)


@dataclass
class Peer:
    wire: Wire
    server: LLMockServer
    opened: list[Model] = field(default_factory=list)

    def model(self, **arguments: Any) -> Model:
        model = self.wire.open(self.server.base_url(self.wire.provider), **arguments)
        self.opened.append(model)
        return model

    def script(self, *behaviours: Behavior) -> None:
        for behaviour in behaviours:
            self.server.state.scenarios.add(behaviour)

    @property
    def requests(self) -> int:
        return len(self.server.state.journal.records(wait=2.0))


Case = Callable[[Peer], Coroutine[Any, Any, None]]


def go(case: Case, wire: Wire, server: LLMockServer) -> None:
    server.state.reset()
    peer = Peer(wire, server)

    async def inside() -> None:
        try:
            async with asyncio.timeout(GUARD_S):  # against hangs, never as a measure
                await case(peer)
        finally:
            for model in peer.opened:
                await model.aclose()  # type: ignore[attr-defined]

    asyncio.run(inside())
    for record in server.state.journal.records(wait=2.0):
        if record.method == "POST" and record.body is not None:
            check_request(wire.request_type, record.body)


def check_request(request_type: Any, body: Mapping[str, Any]) -> None:
    """The body is exactly what the SDK's types allow: nothing missing, nothing of another type, nothing unknown."""
    stated = {name: value for name, value in body.items() if name not in ("temperature", "top_p")}
    checker = TypeAdapter(request_type)  # must live as long as what it gives is walked
    assert _plain(checker.validate_python(stated)) == stated


def _plain(value: Any) -> Any:
    """Iterables in the SDKs' types are checked only while they are walked."""
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)) or hasattr(value, "__next__"):
        return [_plain(inner) for inner in value]
    return value


def user(text: str) -> Message:
    return Message(role="user", parts=(Part(text=text),))


async def fails(peer: Peer, *, timeout_s: float = 30.0, tools: tuple[ToolSpec, ...] = ()) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await peer.model(timeout_s=timeout_s).reply([user("hello")], tools)
    assert KEY not in str(caught.value) + repr(caught.value)
    assert peer.server.url in caught.value.message
    return caught.value


# --- what is said -----------------------------------------------------------------------------------------------------


async def a_reply_is_streamed_and_whole(peer: Peer) -> None:
    said = "Grüße aus 東京: one, two,\n\nthree … 🎉"
    peer.script(Reply(text=said))
    deltas: list[TextDelta | CallDelta] = []
    reply = await peer.model().reply([user("hello")], [], on_delta=deltas.append)
    assert reply.text == said
    assert reply.calls == ()
    assert reply.finish == "stop"
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == said
    assert len(deltas) > 1
    assert reply.usage.input > 0 and reply.usage.output > 0 and reply.usage.requests == 1
    assert reply.model == "small-1"
    assert reply.request_id


async def a_reply_can_come_at_once(peer: Peer) -> None:
    peer.script(Reply(text="all of it", times=1))
    reply = await peer.model(params={"stream": False}).reply([user("hello")], [])
    assert (reply.text, reply.finish) == ("all of it", "stop")
    assert reply.usage.output > 0
    assert peer.server.state.journal.records(wait=2.0)[0].stream is False


async def a_call_at_once(peer: Peer) -> None:
    peer.script(Reply(tool_calls=(Scripted("get_weather", {"city": "Paris"}),)))
    reply = await peer.model(params={"stream": False}).reply([user("weather?")], [WEATHER])
    assert [(call.tool, call.args) for call in reply.calls] == [("get_weather", {"city": "Paris"})]
    assert reply.finish == "calls"


async def a_call_is_streamed(peer: Peer) -> None:
    args = {"city": "San José “del Cabo”", "deep": {"list": [1, None, True]}}
    peer.script(Reply(tool_calls=(Scripted("get_weather", args),)))
    deltas: list[TextDelta | CallDelta] = []
    reply = await peer.model().reply([user("weather?")], [WEATHER], on_delta=deltas.append)
    assert [(call.tool, call.args) for call in reply.calls] == [("get_weather", args)]
    assert reply.finish == "calls"
    pieces = [delta for delta in deltas if isinstance(delta, CallDelta)]
    assert [piece.tool for piece in pieces if piece.tool] == ["get_weather"]
    assert json.loads("".join(piece.args for piece in pieces)) == args


async def several_calls_in_one_reply(peer: Peer) -> None:
    wanted = [("get_weather", {"city": "Paris"}), ("get_time", {"city": "Rome"}), ("get_time", {"city": "Oslo"})]
    peer.script(Reply(tool_calls=tuple(Scripted(name, args) for name, args in wanted)))
    deltas: list[TextDelta | CallDelta] = []
    reply = await peer.model().reply([user("weather and time?")], [WEATHER, TIME], on_delta=deltas.append)
    assert [(call.tool, call.args) for call in reply.calls] == wanted
    assert len({call.id for call in reply.calls}) == 3
    for at, (_, args) in enumerate(wanted):
        pieces = [delta.args for delta in deltas if isinstance(delta, CallDelta) and delta.index == at]
        assert json.loads("".join(pieces)) == args


async def a_conversation_with_results(peer: Peer) -> None:
    model = peer.model()
    messages = [Message(role="system", parts=(Part(text="Be brief."),)), user("What is the weather in Paris?")]
    first = await model.reply(messages, [WEATHER])
    assert [call.tool for call in first.calls] == ["get_weather"]
    messages.append(Message(role="assistant", parts=(Part(text="I look."),), calls=first.calls))
    messages.append(Message(role="tool", call_id=first.calls[0].id, parts=(Part(text="21 °C"),)))
    second = await model.reply(messages, [WEATHER])
    assert second.text and not second.calls
    assert second.finish == "stop"


async def arguments_that_are_no_json_are_kept(peer: Peer) -> None:
    peer.script(ToolFault("malformed_arguments"))
    model = peer.model()
    asked = user("What is the weather in Paris?")
    reply = await model.reply([asked], [WEATHER])
    assert len(reply.calls) == 1
    assert list(reply.calls[0].args) == ["INVALID_JSON"]
    sent = reply.calls[0].args["INVALID_JSON"]
    with pytest.raises(ValueError, match=r"."):
        json.loads(sent)
    said = Message(role="assistant", calls=reply.calls)
    told = Message(role="tool", call_id=reply.calls[0].id, parts=(Part(text="failed [invalid-json]: no"),))
    await model.reply([asked, said, told], [WEATHER])
    body = json.dumps(peer.server.state.journal.records(wait=2.0)[-1].body)
    held = json.dumps({"INVALID_JSON": sent}, ensure_ascii=False)  # a server that parses it can
    assert held in body or json.dumps(held)[1:-1] in body or json.dumps({"INVALID_JSON": sent}) in body


async def a_tool_that_nobody_offered_is_passed_on(peer: Peer) -> None:
    peer.script(ToolFault("unknown_tool"))
    reply = await peer.model().reply([user("What is the weather in Paris?")], [WEATHER])
    assert len(reply.calls) == 1
    assert reply.calls[0].tool not in ("", "get_weather")


async def a_length_that_was_used_up_is_said(peer: Peer) -> None:
    reason = {"anthropic": "max_tokens"}.get(peer.wire.provider, "length")
    peer.script(Reply(text="half of an ans", finish_reason=reason))
    reply = await peer.model().reply([user("hello")], [])
    assert reply.finish == "length"


async def an_answer_that_fits_a_schema(peer: Peer) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "degrees": {"type": "integer"}},
        "required": ["city", "degrees"],
        "additionalProperties": False,
    }
    reply = await peer.model().reply([user("hello")], [], schema=schema)
    if peer.wire.holds_to_schema:
        jsonschema.validate(json.loads(reply.text), schema)


async def a_model_serves_one_event_loop_after_another(peer: Peer) -> None:
    """`run_sync` twice with one model."""
    model = peer.wire.open(peer.server.base_url(peer.wire.provider))

    async def once() -> str:
        try:
            return (await model.reply([user("hello")], [])).text
        finally:
            await model.aclose()  # type: ignore[attr-defined]

    for _ in range(2):
        assert await asyncio.to_thread(asyncio.run, once())


# --- what goes wrong --------------------------------------------------------------------------------------------------


async def a_refused_key(peer: Peer) -> None:
    for status in (401, 403):
        peer.script(Fail(status, message=f"Incorrect API key provided: {KEY}"))
        error = await fails(peer)
        assert isinstance(error, ModelAuth)
        assert error.code == "model-auth" and not error.retryable
        assert "_API_KEY" in (error.hint or "")


async def an_unknown_model_names_those_there_are(peer: Peer) -> None:
    peer.script(Fail(404, message="The model small-1 does not exist"))
    error = await fails(peer)
    assert error.code == "model-unknown" and not error.retryable
    assert "There are:" in (error.hint or "") or "Check the name" in (error.hint or "")


async def a_bad_request_is_refused_in_the_providers_words(peer: Peer) -> None:
    peer.script(Fail(400, message="temperature must be below 2"))
    error = await fails(peer)
    assert error.code == "model-refused" and not error.retryable
    assert "temperature must be below 2" in error.message


async def too_long_a_request(peer: Peer) -> None:
    peer.script(
        Fail(400, code="context_length_exceeded", message="This model's maximum context length is 8192 tokens.")
    )
    error = await fails(peer)
    assert error.code == "context-overflow" and not error.retryable


async def a_rate_limit_says_how_long(peer: Peer) -> None:
    peer.script(Fail(429, retry_after=7))
    error = await fails(peer)
    assert isinstance(error, ModelOverloaded)
    assert error.retryable and error.retry_after_s == 7
    assert peer.requests == 1, "the loop tries again, not the adapter"


async def a_server_that_fails(peer: Peer) -> None:
    for status in (500, 502, 503, 504, 529):
        peer.script(Fail(status))
        error = await fails(peer)
        assert error.retryable
        if status in (503, 529) or getattr(error, "retry_after_s", None):
            assert isinstance(error, ModelOverloaded)
        else:
            assert error.code == "model-failed"


async def a_truncated_stream_is_no_reply(peer: Peer) -> None:
    for after in (0, 1, 2, 4):
        peer.script(Reply(text="one two three four five six"), StreamFault("truncate", after_chunks=after))
        error = await fails(peer)
        assert error.code == "stream-broken" and error.retryable


async def a_truncated_call_is_no_reply(peer: Peer) -> None:
    peer.script(
        Reply(tool_calls=(Scripted("get_weather", {"city": "Paris"}),)), StreamFault("truncate", after_chunks=2)
    )
    error = await fails(peer, tools=(WEATHER,))
    assert error.code == "stream-broken" and error.retryable


async def a_dropped_connection_is_no_reply(peer: Peer) -> None:
    for after in (0, 2):
        peer.script(Reply(text="one two three four five six"), StreamFault("disconnect", after_chunks=after))
        error = await fails(peer)
        assert error.code == "stream-broken" and error.retryable


async def a_chunk_that_is_no_json_is_no_reply(peer: Peer) -> None:
    peer.script(Reply(text="one two three four five six"), StreamFault("malformed", after_chunks=2))
    error = await fails(peer)
    assert error.code == "stream-broken" and error.retryable


async def a_stalled_stream_ends(peer: Peer) -> None:
    peer.script(Reply(text="one two three four five six"), StreamFault("stall", after_chunks=2, stall_seconds=60.0))
    error = await fails(peer, timeout_s=0.3)
    assert error.code == "model-timeout" and error.retryable


async def a_server_that_says_nothing(peer: Peer) -> None:
    peer.script(Delay(1.0))
    error = await fails(peer, timeout_s=0.3)
    assert error.code == "model-timeout" and error.retryable


async def a_request_that_is_cancelled_leaves_the_model_usable(peer: Peer) -> None:
    peer.script(Reply(text="word " * 50), StreamFault("stall", after_chunks=10, stall_seconds=60.0))
    model, begun = peer.model(), asyncio.Event()
    asking = asyncio.create_task(model.reply([user("hello")], [], on_delta=lambda _: begun.set()))
    await begun.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    peer.script(Reply(text="still here"))
    assert (await model.reply([user("hello again")], [])).text == "still here"


async def a_caller_who_tries_again_gets_through(peer: Peer) -> None:
    """Each fault is known for what it is: the server sees that none of the broken streams was taken for a reply."""
    peer.script(StreamFault("truncate", after_chunks=3), StreamFault("disconnect", after_chunks=3))
    model = peer.model()
    for _ in range(2):
        with pytest.raises(ModelError) as caught:
            await model.reply([user("hello")], [])
        assert caught.value.retryable
        # An attempt counts as one more of the same only when the server has seen the end of the last one.
        await asyncio.to_thread(peer.server.state.journal.records, wait=10.0)
    assert (await model.reply([user("hello")], [])).text
    verdict = judge(peer.server.state.journal.records(wait=2.0))
    assert (verdict.attempts, verdict.faults) == (3, 2)
    # How long to wait between attempts is the business of the loop.
    wrong = [finding for finding in (*verdict.errors, *verdict.warnings) if finding.code != "no_backoff"]
    assert not wrong, verdict.render()


async def an_error_of_the_listener_is_its_own(peer: Peer) -> None:
    class Oops(OSError):
        pass

    def listen(_: TextDelta | CallDelta) -> None:
        raise Oops("not the provider's fault")

    with pytest.raises(Oops):
        await peer.model().reply([user("hello")], [], on_delta=listen)


CASES: list[Case] = [
    a_reply_is_streamed_and_whole,
    a_reply_can_come_at_once,
    a_call_at_once,
    a_call_is_streamed,
    several_calls_in_one_reply,
    a_conversation_with_results,
    arguments_that_are_no_json_are_kept,
    a_tool_that_nobody_offered_is_passed_on,
    a_length_that_was_used_up_is_said,
    an_answer_that_fits_a_schema,
    a_model_serves_one_event_loop_after_another,
    a_refused_key,
    an_unknown_model_names_those_there_are,
    a_bad_request_is_refused_in_the_providers_words,
    too_long_a_request,
    a_rate_limit_says_how_long,
    a_server_that_fails,
    a_truncated_stream_is_no_reply,
    a_truncated_call_is_no_reply,
    a_dropped_connection_is_no_reply,
    a_chunk_that_is_no_json_is_no_reply,
    a_stalled_stream_ends,
    a_server_that_says_nothing,
    a_request_that_is_cancelled_leaves_the_model_usable,
    a_caller_who_tries_again_gets_through,
    an_error_of_the_listener_is_its_own,
]


def case_name(case: Case) -> str:
    return case.__name__
