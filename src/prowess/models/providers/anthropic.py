"""`anthropic:NAME`: Anthropic, or any server with its Messages API, through the official SDK.

The stable prefix of a request is marked for prefix caching. At most four marks are allowed: the tools, the system text,
and the last two user messages. The last mark writes the prefix that the next request reads. The mark before it is the
one that this request reads, if the last turn was long.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from prowess._internal.json_values import JsonObject
from prowess.core.events import Finish, ModelReplied
from prowess.core.values import Message, Part, ToolSpec, Usage
from prowess.models.model_info import find_window, takes_schemas
from prowess.models.providers.attachments import (
    PDF,
    PICTURES,
    Attachment,
    describe_missing,
    find_attachment,
    find_text,
)
from prowess.models.providers.client import Provider, open_endpoint
from prowess.models.providers.message_order import (
    Assistant,
    LateSystemMessage,
    OrderedMessages,
    User,
    WireCall,
    arrange,
    clean,
    is_blank,
    wire_name,
)
from prowess.models.providers.reply_builder import Draft, OnDelta, begin_draft, number_in, table_in, tables_in, text_in
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
FindBlocks = Callable[[str], Sequence[JsonObject] | None]


def render_request(transcript: OrderedMessages, tools: Sequence[ToolSpec], find_blocks: FindBlocks) -> JsonObject:
    messages = _messages(transcript, find_blocks)
    body: JsonObject = {"messages": messages}
    if transcript.system:
        system = [_text(text) for text in transcript.system]
        _mark(system)
        body["system"] = system
    if tools:
        functions = [_function(tool) for tool in tools]
        _mark(functions)
        body["tools"] = functions
    of_user = [message for message in messages if message["role"] == "user"]
    for message in of_user[-2:]:
        _mark(message["content"])
    return body


def _mark(blocks: list[JsonObject]) -> None:
    """Marks the last block for prefix caching."""
    last = blocks[-1]
    last["cache_control"] = {"type": "ephemeral"}


def _function(tool: ToolSpec) -> JsonObject:
    name = wire_name(tool.name)
    description = clean(tool.description)
    parameters = object_schema(tool.parameters)
    return {"name": name, "description": description, "input_schema": parameters}


def _messages(transcript: OrderedMessages, find_blocks: FindBlocks) -> list[JsonObject]:
    """Renders the turns. Two user messages in a row become one."""
    messages: list[JsonObject] = []
    for turn in transcript.turns:
        match turn:
            case Assistant():
                content = _assistant(turn, find_blocks)
                message = {"role": "assistant", "content": content}
                messages.append(message)
            case LateSystemMessage():
                content = [_text(turn.text)]
                _add_user(messages, content)  # this API has no role for it
            case User():
                content = _user(turn)
                _add_user(messages, content)
    return messages


def _add_user(messages: list[JsonObject], content: list[JsonObject]) -> None:
    """Adds a user message, or continues the last one: two in a row are refused."""
    if messages:
        last = messages[-1]
        if last["role"] == "user":
            last["content"] += content
            return
    messages.append({"role": "user", "content": content})


def _assistant(turn: Assistant, find_blocks: FindBlocks) -> list[JsonObject]:
    """Renders a turn of the assistant, with the thoughts of that reply if they are known."""
    calls = [_call(call) for call in turn.calls]
    if turn.calls:
        first = turn.calls[0].ours
        kept = find_blocks(first.id) or ()
        places = [block for block in kept if block["type"] == "tool_use"]
        if len(places) == len(calls):
            return list(_with_calls(kept, calls))
    if not turn.text.strip():
        return calls
    # The API refuses a request whose last text ends in white space, and that space has no meaning.
    said = _text(turn.text.rstrip())
    return [said, *calls]


def _with_calls(blocks: Sequence[JsonObject], calls: Iterable[JsonObject]) -> Iterator[JsonObject]:
    """Yields the blocks of an earlier reply with the calls in their places."""
    rest = iter(calls)
    for block in blocks:
        if block["type"] == "tool_use":
            yield next(rest)
        else:
            yield dict(block)


def _call(call: WireCall) -> JsonObject:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": call.args}


def _user(turn: User) -> list[JsonObject]:
    content: list[JsonObject] = []
    for call, parts in turn.results:
        shown = _result(_pieces(parts))
        result = {"type": "tool_result", "tool_use_id": call.id, "content": shown}
        content.append(result)
    content += _pieces(turn.parts)
    if not content:
        content.append(_text("."))
    return content


def _result(pieces: list[JsonObject]) -> list[JsonObject]:
    """Joins the texts into one; the other pieces follow."""
    texts: list[str] = []
    others: list[JsonObject] = []
    for piece in pieces:
        if piece["type"] == "text":
            texts.append(piece["text"])
        else:
            others.append(piece)
    text = "\n\n".join(texts) or "(empty)"
    return [_text(text), *others]


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _pieces(parts: Sequence[Part]) -> list[JsonObject]:
    """Renders the parts. Blank texts are left out, because the API refuses them."""
    shown = [part for part in parts if not is_blank(part)]
    return [_piece(part) for part in shown]


def _piece(part: Part) -> JsonObject:
    """Renders a part; what cannot be shown is described."""
    if part.kind == "text":
        text = clean(part.text or "")
        return _text(text)
    found = find_attachment(part)
    block = _attached(found) if found else None
    if block is None:
        return _text(describe_missing(part))
    return block


def _attached(found: Attachment) -> JsonObject | None:
    """Renders a picture or a file, if the API takes its type."""
    if found.kind == "image" and (found.url or found.mime_type in PICTURES):
        return {"type": "image", "source": _source(found)}
    if found.mime_type == PDF:
        return {"type": "document", "title": found.name, "source": _source(found)}
    text = find_text(found)
    if not text or not text.strip():
        return None
    source = {"type": "text", "media_type": "text/plain", "data": text}
    return {"type": "document", "title": found.name, "source": source}


def _source(found: Attachment) -> JsonObject:
    if found.url:
        return {"type": "url", "url": found.url}
    return {"type": "base64", "media_type": found.mime_type, "data": found.data}


def read_event(draft: Draft, event: JsonObject) -> None:
    """Reads one event of a stream, or a whole reply that was not streamed."""
    at = event.get("index")
    match text_in(event, "type"):
        case "message":
            _read_whole(draft, event)
        case "message_start":
            message = table_in(event, "message")
            _read_message(draft, message)
        case "content_block_start":
            block = table_in(event, "content_block")
            _start(draft, at, block)
        case "content_block_delta":
            delta = table_in(event, "delta")
            _delta(draft, at, delta)
        case "message_delta":
            usage = table_in(event, "usage")
            draft.usage = _usage(usage, draft.usage)
            delta = table_in(event, "delta")
            _stop(draft, delta)


def _read_whole(draft: Draft, message: JsonObject) -> None:
    blocks = tables_in(message, "content")
    for at, block in enumerate(blocks):
        _start(draft, at, block)
    _read_message(draft, message)
    _stop(draft, message)


def _read_message(draft: Draft, message: JsonObject) -> None:
    draft.set_origin(message)
    usage = table_in(message, "usage")
    draft.usage = _usage(usage, draft.usage)


def _start(draft: Draft, at: Any, block: JsonObject) -> None:
    """Reads the beginning of a block, or a whole block."""
    kept = {**block, "at": at}
    draft.blocks.append(kept)
    match block.get("type"):
        case "text":
            text = text_in(block, "text")
            draft.add_text(text)
        case "tool_use":
            id = text_in(block, "id")
            name = text_in(block, "name")
            draft.add_call(at, id=id, name=name)
            args = table_in(block, "input")
            if args:
                draft.add_call(at, args=json.dumps(args))


def _delta(draft: Draft, at: Any, delta: JsonObject) -> None:
    """Reads a piece of a block."""
    match delta.get("type"):
        case "text_delta":
            text = text_in(delta, "text")
            draft.add_text(text)
            _extend(draft, at, "text", text)
        case "input_json_delta":
            args = text_in(delta, "partial_json")
            draft.add_call(at, args=args)
        case "thinking_delta":
            thinking = text_in(delta, "thinking")
            _extend(draft, at, "thinking", thinking)
        case "signature_delta":
            signature = text_in(delta, "signature")
            _extend(draft, at, "signature", signature)


def _extend(draft: Draft, at: Any, field: str, piece: str) -> None:
    """Adds a piece to a field of the block with this index."""
    for block in draft.blocks:
        if block["at"] == at:
            block[field] = text_in(block, field) + piece
            return


def _stop(draft: Draft, told: JsonObject) -> None:
    reason = text_in(told, "stop_reason")
    if reason:
        draft.finish = _FINISH.get(reason, "stop")


def _usage(usage: JsonObject, before: Usage) -> Usage:
    """Reads token counts. They are cumulative and come twice, the second time perhaps without the input counts.

    Anthropic counts cached input beside the input; here the cached part is included in the input.
    """
    cached = _count(usage, "cache_read_input_tokens", before.cached)
    written = _count(usage, "cache_creation_input_tokens", before.cache_written)
    fresh_before = before.input - before.cached - before.cache_written
    fresh = _count(usage, "input_tokens", fresh_before)
    output = _count(usage, "output_tokens", before.output)
    details = table_in(usage, "output_tokens_details")
    thoughts = number_in(details, "thinking_tokens") or before.reasoning
    total = fresh + cached + written
    return Usage(input=total, cached=cached, cache_written=written, output=output, reasoning=thoughts, requests=1)


def _count(usage: JsonObject, name: str, before: int) -> int:
    """Returns a count, or the one before it when it is not sent again."""
    if usage.get(name) is None:
        return before
    return number_in(usage, name)


def blocks_to_keep(draft: Draft) -> list[JsonObject] | None:
    """Returns the blocks that must be sent back unchanged: thoughts are signed, and refused when they were changed."""
    kinds = {text_in(block, "type") for block in draft.blocks}
    if not draft.has_calls or kinds.isdisjoint(_THOUGHTS):
        return None
    kept = map(_kept, draft.blocks)
    return [block for block in kept if block]


def _kept(block: JsonObject) -> JsonObject | None:
    """Returns a block in the form in which it is sent back."""
    match block.get("type"):
        case "thinking":
            thinking = text_in(block, "thinking")
            signature = text_in(block, "signature")
            return {"type": "thinking", "thinking": thinking, "signature": signature}
        case "redacted_thinking":
            data = text_in(block, "data")
            return {"type": "redacted_thinking", "data": data}
        case "text":
            text = text_in(block, "text")
            return _text(text) if text.strip() else None
        case "tool_use":
            return {"type": "tool_use"}  # marks the position; the call itself is in the transcript
    return None


PROVIDER = Provider(sdk="anthropic", address="https://api.anthropic.com", variable="ANTHROPIC_API_KEY", added="/v1")
_NO_PARAMS: Mapping[str, Any] = {}
_KEPT_REPLIES = 256


class AnthropicModel:
    """Model of the Messages API."""

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
        self._is_anthropic = self._endpoint.where.address == PROVIDER.address
        self._thoughts: OrderedDict[str, list[JsonObject]] = OrderedDict()  # by the first call of a reply

    @property
    def name(self) -> str:
        return f"anthropic:{self._name}"

    @property
    def context_tokens(self) -> int | None:
        configured = self._options.context_tokens
        return configured or find_window(self._name)

    @property
    def schemas(self) -> bool:
        configured = self._options.schemas
        if configured is not None:
            return configured
        return self._is_anthropic and takes_schemas("anthropic", self._name)

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        on_delta: OnDelta | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> ModelReplied:
        options = self._options
        transcript = arrange(messages)
        body = render_request(transcript, tools, self._thoughts.get)
        said = body.pop("messages")
        body |= options.body
        body |= self._form(schema)
        length = options.max_tokens or self._default_length()
        client = self._endpoint.client()
        create = client.messages.with_streaming_response.create
        opened = create(
            model=self._name,
            max_tokens=length,
            messages=said,
            stream=options.stream,
            timeout=client.timeout,  # explicit, or the SDK refuses a long reply that is not streamed
            extra_body=body,
        )
        draft = begin_draft(messages, tools, on_delta)
        await self._endpoint.exchange(opened, read_event, draft)
        reply = draft.reply()
        self._keep(reply, draft)
        return reply

    def _default_length(self) -> int:
        """Returns the longest reply in tokens. This API has no default of its own."""
        if self._name.startswith("claude-"):
            return 16_384
        return 4096

    def _keep(self, reply: ModelReplied, draft: Draft) -> None:
        """Keeps the blocks that the next request must send back."""
        blocks = blocks_to_keep(draft)
        if not blocks:
            return
        first = reply.calls[0]
        self._thoughts[first.id] = blocks
        while len(self._thoughts) > _KEPT_REPLIES:
            self._thoughts.popitem(last=False)

    def _form(self, schema: Mapping[str, Any] | None) -> JsonObject:
        """Returns the field that holds the answer to a schema."""
        if schema is None:
            return {}
        from anthropic import transform_schema

        try:
            fitting = transform_schema(dict(schema))
        except ValueError:  # the SDK does not know this form; the provider's error is more exact
            fitting = dict(schema)
        given = self._options.body.get("output_config")
        config = dict(given) if isinstance(given, Mapping) else {}
        config["format"] = {"type": "json_schema", "schema": fitting}
        return {"output_config": config}

    def prepare(self) -> None:
        self._endpoint.prepare()

    async def aclose(self) -> None:
        await self._endpoint.aclose()
