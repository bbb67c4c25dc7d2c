"""Chat Completions, the protocol of OpenAI, Ollama, vLLM, llama.cpp, LiteLLM and most others."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from prowess._internal.json_values import JsonObject
from prowess.core.events import Finish
from prowess.core.values import Part, ToolSpec, Usage
from prowess.models.providers.attachments import (
    PDF,
    PICTURES,
    Attachment,
    describe_missing,
    find_attachment,
    find_text,
)
from prowess.models.providers.message_order import (
    Assistant,
    LateSystemMessage,
    OrderedMessages,
    User,
    WireCall,
    clean,
    is_blank,
    joined,
    wire_name,
)
from prowess.models.providers.reply_builder import Draft, number_in, table_in, tables_in, text_in
from prowess.models.providers.schemas import is_strict, object_schema

_FINISH: dict[str, Finish] = {
    "stop": "stop",
    "tool_calls": "calls",
    "function_call": "calls",
    "length": "length",
    "model_length": "length",
    "content_filter": "filter",
}


def render_request(
    transcript: OrderedMessages, tools: Sequence[ToolSpec], schema: Mapping[str, Any] | None
) -> JsonObject:
    body: JsonObject = {"messages": _messages(transcript)}
    if tools:
        body["tools"] = [{"type": "function", "function": _function(tool)} for tool in tools]
    if schema is not None:
        strict = is_strict(schema)
        form = {"name": "answer", "schema": dict(schema), "strict": strict}
        body["response_format"] = {"type": "json_schema", "json_schema": form}
    return body


def _function(tool: ToolSpec) -> JsonObject:
    name = wire_name(tool.name)
    parameters = object_schema(tool.parameters)
    return {"name": name, "description": clean(tool.description), "parameters": parameters}


def _messages(transcript: OrderedMessages) -> list[JsonObject]:
    messages: list[JsonObject] = []
    if transcript.system:
        system = "\n\n".join(transcript.system)
        messages.append({"role": "system", "content": system})
    for turn in transcript.turns:
        match turn:
            case LateSystemMessage():
                messages.append({"role": "system", "content": turn.text})
            case Assistant():
                messages.append(_assistant(turn))
            case User():
                messages += _user(turn)
    return messages


def _assistant(turn: Assistant) -> JsonObject:
    message: JsonObject = {"role": "assistant", "content": turn.text}
    if turn.calls:
        message["tool_calls"] = [_call(call) for call in turn.calls]
    return message


def _call(call: WireCall) -> JsonObject:
    args = json.dumps(call.args, ensure_ascii=False)
    function = {"name": call.name, "arguments": args}
    return {"id": call.id, "type": "function", "function": function}


def _user(turn: User) -> list[JsonObject]:
    """Renders a user turn. A result can hold only text here; its pictures and files follow in a user message."""
    messages: list[JsonObject] = []
    said: list[Part] = []
    for call, parts in turn.results:
        text = joined(parts) or "(empty)"
        messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
        shown = [part for part in parts if part.kind != "text"]
        if shown:
            source = Part(text=f"(From the result of {call.ours.tool}:)")
            said += [source, *shown]
    content = _content([*said, *turn.parts])
    if not content and not turn.results:
        content = "."
    if content:
        messages.append({"role": "user", "content": content})
    return messages


def _content(parts: Sequence[Part]) -> str | list[JsonObject]:
    """Returns one text when there is nothing else, because not every server takes a list."""
    content = [_piece(part) for part in parts if not is_blank(part)]
    texts = [piece["text"] for piece in content if piece["type"] == "text"]
    if len(texts) == len(content):
        return "\n\n".join(texts)
    return content


def _piece(part: Part) -> JsonObject:
    if part.kind == "text":
        return _text(clean(part.text or ""))
    found = find_attachment(part)
    piece = _attached(found) if found else None
    return piece or _text(describe_missing(part))


def _attached(found: Attachment) -> JsonObject | None:
    if found.kind == "image" and (found.url or found.mime_type in PICTURES):
        url = found.url or found.data_url
        return {"type": "image_url", "image_url": {"url": url}}
    text = find_text(found)
    if text is not None:
        return _text(f"File {found.name}:\n\n{text}")
    if found.data and found.mime_type == PDF:
        file = {"filename": found.name, "file_data": found.data_url}
        return {"type": "file", "file": file}
    return None


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def read_event(draft: Draft, event: JsonObject) -> None:
    """Reads one chunk of a stream, or a whole reply that was not streamed."""
    draft.model = text_in(event, "model") or draft.model
    draft.request_id = draft.request_id or text_in(event, "id") or None
    usage = table_in(event, "usage")
    if usage:
        draft.usage = _usage(usage)
    for choice in tables_in(event, "choices")[:1]:
        _read_choice(draft, choice)


def _read_choice(draft: Draft, choice: JsonObject) -> None:
    delta = table_in(choice, "delta") or table_in(choice, "message")
    draft.add_text(_content_of(delta))
    refusal = text_in(delta, "refusal")
    if refusal:
        draft.add_text(refusal)
        draft.refused = True
    for at, call in enumerate(tables_in(delta, "tool_calls")):
        _read_call(draft, at, call)
    reason = text_in(choice, "finish_reason")
    if reason:
        draft.finish = "filter" if draft.refused else _FINISH.get(reason, "stop")


def _read_call(draft: Draft, at: int, call: JsonObject) -> None:
    id = text_in(call, "id")
    index = call.get("index")
    key = index if isinstance(index, int) else id or at
    function = table_in(call, "function")
    name = text_in(function, "name")
    args = text_in(function, "arguments")
    whole = function.get("arguments")
    if isinstance(whole, dict):
        args = json.dumps(whole)
    draft.add_call(key, id=id, name=name, args=args)


def _content_of(delta: JsonObject) -> str:
    """Reads a text, or the list of pieces that Mistral's reasoning models send."""
    text = text_in(delta, "content")
    if text:
        return text
    pieces = tables_in(delta, "content")
    return "".join(text_in(piece, "text") for piece in pieces)


def _usage(usage: JsonObject) -> Usage:
    details = table_in(usage, "prompt_tokens_details")
    output_details = table_in(usage, "completion_tokens_details")
    return Usage(
        input=number_in(usage, "prompt_tokens"),
        cached=number_in(details, "cached_tokens"),
        cache_written=number_in(details, "cache_write_tokens"),
        output=number_in(usage, "completion_tokens"),
        reasoning=number_in(output_details, "reasoning_tokens"),
        requests=1,
    )
