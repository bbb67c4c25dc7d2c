"""Responses API of OpenAI. Nothing is stored there: each request carries the whole conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prowess._internal.json_values import JsonObject
from prowess.core.values import Part, ToolSpec
from prowess.models.providers.attachments import (
    OFFICE,
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


def render_request(
    transcript: OrderedMessages, tools: Sequence[ToolSpec], schema: Mapping[str, Any] | None
) -> JsonObject:
    body: JsonObject = {"input": _items(transcript), "store": False}
    if transcript.system:
        body["instructions"] = "\n\n".join(transcript.system)
    if tools:
        body["tools"] = [_function(tool) for tool in tools]
    if schema is not None:
        form: JsonObject = {"type": "json_schema", "name": "answer"}
        form["schema"] = dict(schema)
        form["strict"] = is_strict(schema)
        body["text"] = {"format": form}
    return body


def _function(tool: ToolSpec) -> JsonObject:
    """Renders a tool with `strict` off. The default is on, and then every property of a schema must be required."""
    name = wire_name(tool.name)
    description = clean(tool.description)
    parameters = object_schema(tool.parameters)
    return {
        "type": "function",
        "name": name,
        "description": description,
        "parameters": parameters,
        "strict": False,
    }


def _items(transcript: OrderedMessages) -> list[JsonObject]:
    items: list[JsonObject] = []
    for turn in transcript.turns:
        match turn:
            case LateSystemMessage():
                message = _message("system", turn.text)
                items.append(message)
            case Assistant():
                items += _assistant(turn)
            case User():
                items += _user(turn)
    return items


def _assistant(turn: Assistant) -> list[JsonObject]:
    calls = [_call(call) for call in turn.calls]
    if not turn.text.strip():
        return calls
    said = _message("assistant", turn.text)
    return [said, *calls]


def _call(call: WireCall) -> JsonObject:
    return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.text}


def _user(turn: User) -> list[JsonObject]:
    """Renders a user turn. A result can hold only text here; its pictures and files follow in a user message."""
    items: list[JsonObject] = []
    content: list[JsonObject] = []
    for call, parts in turn.results:
        text = joined(parts) or "(empty)"
        result = {"type": "function_call_output", "call_id": call.id, "output": text}
        items.append(result)
        shown = [_piece(part) for part in parts if part.kind != "text"]
        if shown:
            source = _text(f"(From the result of {call.ours.tool}:)")
            content += [source, *shown]
    content += [_piece(part) for part in turn.parts if not is_blank(part)]
    if not content and not turn.results:
        content.append(_text("."))
    if content:
        message = _message("user", content)
        items.append(message)
    return items


def _message(role: str, content: str | list[JsonObject]) -> JsonObject:
    """Renders a message with its type, which llama.cpp requires and OpenAI does not."""
    return {"type": "message", "role": role, "content": content}


def _text(text: str) -> JsonObject:
    return {"type": "input_text", "text": text}


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
        return {"type": "input_image", "detail": "auto", "image_url": url}
    text = find_text(found)
    if text is not None:
        return _text(f"File {found.name}:\n\n{text}")
    if found.url:
        return {"type": "input_file", "file_url": found.url}
    if found.mime_type == PDF or found.mime_type in OFFICE:
        return {"type": "input_file", "filename": found.name, "file_data": found.data_url}
    return None


def read_event(draft: Draft, event: JsonObject) -> None:
    """Reads one event of a stream, or a whole reply that was not streamed."""
    if event.get("object") == "response":
        _read_end(draft, event)
        return
    piece = text_in(event, "delta")
    match text_in(event, "type"):
        case "response.created" | "response.in_progress":
            response = table_in(event, "response")
            draft.set_origin(response)
        case "response.output_text.delta":
            draft.add_text(piece)
        case "response.refusal.delta":
            draft.refused = True
            draft.add_text(piece)
        case "response.output_item.added" | "response.output_item.done":
            item = table_in(event, "item")
            _read_call(draft, _key(event), item)
        case "response.function_call_arguments.delta":
            draft.add_call(_key(event), args=piece)
        case "response.function_call_arguments.done":
            args = text_in(event, "arguments")
            draft.set_args(_key(event), args)
        case "response.completed" | "response.incomplete":
            response = table_in(event, "response")
            _read_end(draft, response)


def _key(event: JsonObject) -> str:
    """Returns the key of an item. llama.cpp sends only the item, without an index."""
    item = table_in(event, "item")
    index = event.get("output_index")
    return text_in(event, "item_id") or text_in(item, "id") or str(index)


def _read_call(draft: Draft, key: Any, item: JsonObject) -> None:
    """Reads an item that is a call; others are ignored."""
    if item.get("type") != "function_call":
        return
    id = text_in(item, "call_id") or text_in(item, "id")
    name = text_in(item, "name")
    args = text_in(item, "arguments")
    draft.add_call(key, id=id, name=name)
    draft.set_args(key, args)


def _read_end(draft: Draft, response: JsonObject) -> None:
    """Reads the last event. It repeats everything; only what did not come in pieces is taken from it."""
    had_text = bool(draft.text)
    had_calls = draft.has_calls
    for at, item in enumerate(tables_in(response, "output")):
        if not had_calls:
            _read_call(draft, at, item)
        if item.get("type") == "message":
            _read_message(draft, item, had_text)
    draft.set_origin(response)
    usage = table_in(response, "usage")
    if usage:
        draft.usage = usage_in(usage, "input", "output")
    _read_status(draft, response)


def _read_message(draft: Draft, item: JsonObject, had_text: bool) -> None:
    for piece in tables_in(item, "content"):
        if piece.get("type") == "refusal":
            draft.refused = True
        if not had_text:
            text = text_in(piece, "text") or text_in(piece, "refusal")
            draft.add_text(text)


def _read_status(draft: Draft, response: JsonObject) -> None:
    """Sets the finish reason, which the API does not send itself."""
    status = text_in(response, "status")
    if status == "completed":
        draft.finish = "calls" if draft.has_calls else "stop"
        if draft.refused:
            draft.finish = "filter"
    if status == "incomplete":
        details = table_in(response, "incomplete_details")
        reason = text_in(details, "reason")
        draft.finish = "filter" if reason == "content_filter" else "length"
