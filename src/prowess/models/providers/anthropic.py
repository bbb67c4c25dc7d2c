"""`anthropic:NAME`: Anthropic, or any server with its Messages API, through the official SDK.

The stable prefix of a request is marked for prefix caching. At most four marks are allowed: the tools, the system text,
and the last two user messages. The last mark writes the prefix that the next request reads. The mark before it is the
one that this request reads, if the last turn was long.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from prowess.core.events import Finish, ModelReplied
from prowess.core.values import Message, Part, ToolSpec, Usage
from prowess.models.model_info import find_window
from prowess.models.providers.attachments import PDF, PICTURES, describe_missing, find_attachment, find_text
from prowess.models.providers.client import Provider, open_endpoint
from prowess.models.providers.message_order import (
    Assistant,
    LateSystemMessage,
    OrderedMessages,
    User,
    arrange,
    clean,
    wire_name,
)
from prowess.models.providers.reply_builder import Draft, OnDelta, begin_draft, list_of, number_of, table_of, text_of
from prowess.models.providers.schemas import object_schema

_FINISH: dict[str, Finish] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "filter",
}
_THOUGHTS = ("thinking", "redacted_thinking")

# Finds the blocks of an earlier reply by the id of its first call. Blocks with thoughts must go back unchanged.
FindBlocks = Callable[[str], Sequence[dict[str, Any]] | None]


def render_request(transcript: OrderedMessages, tools: Sequence[ToolSpec], find_blocks: FindBlocks) -> dict[str, Any]:
    body: dict[str, Any] = {"messages": _messages(transcript, find_blocks)}
    if transcript.system:
        body["system"] = [{"type": "text", "text": text} for text in transcript.system]
        _mark(body["system"])
    if tools:
        body["tools"] = [
            {
                "name": wire_name(tool.name),
                "description": clean(tool.description),
                "input_schema": object_schema(tool.parameters),
            }
            for tool in tools
        ]
        _mark(body["tools"])
    for message in [message for message in body["messages"] if message["role"] == "user"][-2:]:
        _mark(message["content"])
    return body


def _mark(blocks: list[dict[str, Any]]) -> None:
    blocks[-1]["cache_control"] = {"type": "ephemeral"}


def _messages(transcript: OrderedMessages, find_blocks: FindBlocks) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for turn in transcript.turns:
        if isinstance(turn, Assistant):
            messages.append({"role": "assistant", "content": _assistant(turn, find_blocks)})
            continue
        content = [_text(turn.text)] if isinstance(turn, LateSystemMessage) else _user(turn)
        if messages and messages[-1]["role"] == "user":  # this API has no role for a late system message
            messages[-1]["content"] += content
        else:
            messages.append({"role": "user", "content": content})
    return messages


def _assistant(turn: Assistant, find_blocks: FindBlocks) -> list[dict[str, Any]]:
    calls = [{"type": "tool_use", "id": call.id, "name": call.name, "input": call.args} for call in turn.calls]
    kept = find_blocks(turn.calls[0].ours.id) if turn.calls else None
    if kept and sum(block["type"] == "tool_use" for block in kept) == len(calls):
        each = iter(calls)
        return [next(each) if block["type"] == "tool_use" else dict(block) for block in kept]
    # The API refuses a request whose last text ends in white space, and that space has no meaning.
    said = [_text(turn.text.rstrip())] if turn.text.strip() else []
    return [*said, *calls]


def _user(turn: User) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = []
    for call, parts in turn.results:
        shown = _result([piece for part in parts if (piece := _piece(part))])
        content.append({"type": "tool_result", "tool_use_id": call.id, "content": shown})
    content += [piece for part in turn.parts if (piece := _piece(part))]
    return content or [_text(".")]


def _result(pieces: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Joins the texts into one; the other pieces follow."""
    texts = "\n\n".join(piece["text"] for piece in pieces if piece["type"] == "text")
    return [_text(texts or "(empty)"), *(piece for piece in pieces if piece["type"] != "text")]


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _piece(part: Part) -> dict[str, Any] | None:
    if part.kind == "text":
        return _text(clean(part.text)) if part.text and part.text.strip() else None
    found = find_attachment(part)
    if found and found.kind == "image" and found.mime_type in PICTURES and found.data:
        return {"type": "image", "source": {"type": "base64", "media_type": found.mime_type, "data": found.data}}
    if found and found.kind == "image" and found.url:
        return {"type": "image", "source": {"type": "url", "url": found.url}}
    if found and found.mime_type == PDF:
        source = (
            {"type": "url", "url": found.url}
            if found.url
            else {"type": "base64", "media_type": PDF, "data": found.data}
        )
        return {"type": "document", "title": found.name, "source": source}
    if found and (text := find_text(found)) and text.strip():
        source = {"type": "text", "media_type": "text/plain", "data": text}
        return {"type": "document", "title": found.name, "source": source}
    return _text(describe_missing(part))


def read_event(draft: Draft, event: Mapping[str, Any]) -> None:
    """Reads one event of a stream, or a whole reply that was not streamed."""
    match text_of(event.get("type")):
        case "message":
            for at, block in enumerate(map(table_of, list_of(event.get("content")))):
                _start(draft, at, block)
            _read_message(draft, event)
            _stop(draft, event)
        case "message_start":
            _read_message(draft, table_of(event.get("message")))
        case "content_block_start":
            _start(draft, event.get("index"), table_of(event.get("content_block")))
        case "content_block_delta":
            _delta(draft, event.get("index"), table_of(event.get("delta")))
        case "message_delta":
            draft.usage = _usage(table_of(event.get("usage")), draft.usage)
            _stop(draft, table_of(event.get("delta")))


def _read_message(draft: Draft, message: Mapping[str, Any]) -> None:
    draft.model = text_of(message.get("model")) or draft.model
    draft.request_id = draft.request_id or text_of(message.get("id")) or None
    draft.usage = _usage(table_of(message.get("usage")), draft.usage)


def _start(draft: Draft, at: Any, block: dict[str, Any]) -> None:
    draft.blocks.append({**block, "at": at})
    match block.get("type"):
        case "text":
            draft.add_text(text_of(block.get("text")))
        case "tool_use":
            draft.add_call(at, id=text_of(block.get("id")), name=text_of(block.get("name")))
            if given := table_of(block.get("input")):
                draft.add_call(at, args=json.dumps(given))


def _delta(draft: Draft, at: Any, delta: dict[str, Any]) -> None:
    block: dict[str, Any] = next((block for block in draft.blocks if block["at"] == at), {})
    match delta.get("type"):
        case "text_delta":
            draft.add_text(text_of(delta.get("text")))
            block["text"] = text_of(block.get("text")) + text_of(delta.get("text"))
        case "input_json_delta":
            draft.add_call(at, args=text_of(delta.get("partial_json")))
        case "thinking_delta":
            block["thinking"] = text_of(block.get("thinking")) + text_of(delta.get("thinking"))
        case "signature_delta":
            block["signature"] = text_of(block.get("signature")) + text_of(delta.get("signature"))


def _stop(draft: Draft, told: Mapping[str, Any]) -> None:
    if reason := text_of(told.get("stop_reason")):
        draft.finish = _FINISH.get(reason, "stop")


def _usage(usage: dict[str, Any], before: Usage) -> Usage:
    """Reads token counts. They are cumulative and come twice, the second time perhaps without the input counts.

    Anthropic counts cached input beside the input; here the cached part is included in the input.
    """
    given = {name: number_of(value) for name, value in usage.items() if value is not None}
    cached = given.get("cache_read_input_tokens", before.cached)
    written = given.get("cache_creation_input_tokens", before.cache_written)
    fresh = given.get("input_tokens", before.input - before.cached - before.cache_written)
    thoughts = table_of(usage.get("output_tokens_details")).get("thinking_tokens")
    return Usage(
        input=fresh + cached + written,
        cached=cached,
        cache_written=written,
        output=given.get("output_tokens", before.output),
        reasoning=number_of(thoughts) or before.reasoning,
        requests=1,
    )


def blocks_to_keep(draft: Draft) -> list[dict[str, Any]] | None:
    """Returns the blocks that must be sent back unchanged: thoughts are signed, and refused when they were changed."""
    if not draft.has_calls or not any(block.get("type") in _THOUGHTS for block in draft.blocks):
        return None
    return [kept for block in draft.blocks if (kept := _kept(block))]


def _kept(block: dict[str, Any]) -> dict[str, Any] | None:
    match block.get("type"):
        case "thinking":
            return {name: text_of(block.get(name)) for name in ("type", "thinking", "signature")}
        case "redacted_thinking":
            return {name: text_of(block.get(name)) for name in ("type", "data")}
        case "text":
            return _text(text_of(block.get("text"))) if text_of(block.get("text")).strip() else None
        case "tool_use":
            return {"type": "tool_use"}  # marks the position; the call itself is in the transcript
    return None


PROVIDER = Provider(sdk="anthropic", address="https://api.anthropic.com", variable="ANTHROPIC_API_KEY", added="/v1")
_NO_PARAMS: Mapping[str, Any] = {}
_KEPT_REPLIES = 256


class AnthropicModel:
    protocol = "tools"

    def __init__(
        self,
        name: str,
        *,
        api_key: str | None,
        base_url: str | None = None,
        params: Mapping[str, Any] = _NO_PARAMS,
        timeout_s: float = 600.0,
    ) -> None:
        self._name = name
        self._endpoint, self._options = open_endpoint(
            PROVIDER, self.name, api_key=api_key, base_url=base_url, params=params, timeout_s=timeout_s
        )
        self._thoughts: OrderedDict[str, list[dict[str, Any]]] = OrderedDict()  # by the first call of a reply

    @property
    def name(self) -> str:
        return f"anthropic:{self._name}"

    @property
    def context_tokens(self) -> int | None:
        return self._options.context_tokens or find_window(self._name)

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        on_delta: OnDelta | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> ModelReplied:
        body = render_request(arrange(messages), tools, self._thoughts.get)
        client = self._endpoint.client()
        opened = client.messages.with_streaming_response.create(
            model=self._name,
            max_tokens=self._options.max_tokens or (16_384 if self._name.startswith("claude-") else 4096),
            messages=body.pop("messages"),
            stream=self._options.stream,
            timeout=client.timeout,  # explicit, or the SDK refuses a long reply that is not streamed
            extra_body={**body, **self._options.body, **self._form(schema)},
        )
        draft = begin_draft(messages, tools, on_delta)
        await self._endpoint.exchange(opened, read_event, draft)
        reply = draft.reply()
        if kept := blocks_to_keep(draft):
            self._thoughts[reply.calls[0].id] = kept
            while len(self._thoughts) > _KEPT_REPLIES:
                self._thoughts.popitem(last=False)
        return reply

    def _form(self, schema: Mapping[str, Any] | None) -> dict[str, Any]:
        if schema is None:
            return {}
        from anthropic import transform_schema

        try:
            fitting = transform_schema(dict(schema))
        except ValueError:  # the SDK does not know this form; the provider's error is more exact
            fitting = dict(schema)
        given = self._options.body.get("output_config")
        kept = given if isinstance(given, Mapping) else {}
        return {"output_config": {**kept, "format": {"type": "json_schema", "schema": fitting}}}

    async def aclose(self) -> None:
        await self._endpoint.aclose()
