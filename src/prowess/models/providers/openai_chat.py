"""Chat Completions, the protocol of OpenAI, Ollama, vLLM, llama.cpp, LiteLLM and most others."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from prowess._internal.json_values import JsonObject
from prowess.core.events import Finish
from prowess.core.values import Part, ToolSpec
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
from prowess.models.providers.reply_builder import Draft, table_in, tables_in, text_in, usage_in
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
        body["tools"] = [_function(tool) for tool in tools]
    if schema is not None:
        form: JsonObject = {"name": "answer"}
        form["schema"] = dict(schema)
        form["strict"] = is_strict(schema)
        body["response_format"] = {"type": "json_schema", "json_schema": form}
    return body


def _function(tool: ToolSpec) -> JsonObject:
    name = wire_name(tool.name)
    description = clean(tool.description)
    parameters = object_schema(tool.parameters)
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


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
                message = _assistant(turn)
                messages.append(message)
            case User():
                messages += _user(turn)
    return messages


def _assistant(turn: Assistant) -> JsonObject:
    message: JsonObject = {"role": "assistant", "content": turn.text}
    if turn.calls:
        message["tool_calls"] = [_call(call) for call in turn.calls]
    return message


def _call(call: WireCall) -> JsonObject:
    function = {"name": call.name, "arguments": call.text}
    return {"id": call.id, "type": "function", "function": function}


def _user(turn: User) -> list[JsonObject]:
    """Renders a user turn. A result can hold only text here; its pictures and files follow in a user message."""
    messages: list[JsonObject] = []
    said: list[Part] = []
    for call, parts in turn.results:
        text = joined(parts) or "(empty)"
        result = {"role": "tool", "tool_call_id": call.id, "content": text}
        messages.append(result)
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
    content: list[JsonObject] = []
    texts: list[str] = []
    for part in parts:
        if is_blank(part):
            continue
        piece = _piece(part)
        content.append(piece)
        if piece["type"] == "text":
            texts.append(piece["text"])
    if len(texts) == len(content):
        return "\n\n".join(texts)
    return content


def _piece(part: Part) -> JsonObject:
    """Renders a part; what cannot be shown is described."""
    if part.kind == "text":
        text = clean(part.text or "")
        return _text(text)
    found = find_attachment(part)
    piece = _attached(found) if found else None
    if piece is None:
        return _text(describe_missing(part))
    return piece


def _attached(found: Attachment) -> JsonObject | None:
    """Renders a picture or a file, if the API takes its type."""
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
    draft.set_origin(event)
    usage = table_in(event, "usage")
    if usage:
        draft.usage = usage_in(usage, "prompt", "completion")
    for choice in tables_in(event, "choices")[:1]:
        _read_choice(draft, choice)


def _read_choice(draft: Draft, choice: JsonObject) -> None:
    """Reads the first choice. More than one is never asked for."""
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
        draft.finish = _FINISH.get(reason, "stop")
    if reason and draft.refused:
        draft.finish = "filter"


def _read_call(draft: Draft, at: int, call: JsonObject) -> None:
    """Reads a piece of a call. Some servers send no index, and some send the arguments as an object."""
    id = text_in(call, "id")
    key = call.get("index")
    if not isinstance(key, int):
        key = id or at
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
