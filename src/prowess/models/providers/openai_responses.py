"""Responses API of OpenAI. Nothing is stored there: each request carries the whole conversation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from prowess.core.values import Part, ToolSpec, Usage
from prowess.models.providers.attachments import OFFICE, PDF, PICTURES, describe_missing, find_attachment, find_text
from prowess.models.providers.message_order import (
    Assistant,
    LateSystemMessage,
    OrderedMessages,
    User,
    clean,
    joined,
    wire_name,
)
from prowess.models.providers.reply_builder import Draft, list_of, number_of, table_of, text_of
from prowess.models.providers.schemas import is_strict, object_schema


def render_request(
    transcript: OrderedMessages, tools: Sequence[ToolSpec], schema: Mapping[str, Any] | None
) -> dict[str, Any]:
    body: dict[str, Any] = {"input": _items(transcript), "store": False}
    if transcript.system:
        body["instructions"] = "\n\n".join(transcript.system)
    if tools:
        body["tools"] = [_function(tool) for tool in tools]
    if schema is not None:
        form = {"type": "json_schema", "name": "answer", "schema": dict(schema), "strict": is_strict(schema)}
        body["text"] = {"format": form}
    return body


def _function(tool: ToolSpec) -> dict[str, Any]:
    """Renders a tool with `strict` off. The default is on, and then every property of a schema must be required."""
    return {
        "type": "function",
        "name": wire_name(tool.name),
        "description": clean(tool.description),
        "parameters": object_schema(tool.parameters),
        "strict": False,
    }


def _items(transcript: OrderedMessages) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for turn in transcript.turns:
        match turn:
            case LateSystemMessage():
                items.append(_message("system", turn.text))
            case Assistant():
                if turn.text.strip():
                    items.append(_message("assistant", turn.text))
                items += [
                    {
                        "type": "function_call",
                        "call_id": call.id,
                        "name": call.name,
                        "arguments": json.dumps(call.args, ensure_ascii=False),
                    }
                    for call in turn.calls
                ]
            case User():
                items += _user(turn)
    return items


def _user(turn: User) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    content: list[dict[str, Any]] = []
    for call, parts in turn.results:
        items.append({"type": "function_call_output", "call_id": call.id, "output": joined(parts) or "(empty)"})
        if shown := [piece for part in parts if part.kind != "text" and (piece := _piece(part))]:
            content += [{"type": "input_text", "text": f"(From the result of {call.ours.tool}:)"}, *shown]
    content += [piece for part in turn.parts if (piece := _piece(part))]
    if not content and not turn.results:
        content = [{"type": "input_text", "text": "."}]
    if content:
        items.append(_message("user", content))
    return items


def _message(role: str, content: str | list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content}  # llama.cpp requires the type, OpenAI does not


def _piece(part: Part) -> dict[str, Any] | None:
    if part.kind == "text":
        return {"type": "input_text", "text": clean(part.text)} if part.text and part.text.strip() else None
    found = find_attachment(part)
    if found and found.kind == "image" and (found.url or found.mime_type in PICTURES):
        return {"type": "input_image", "detail": "auto", "image_url": found.url or found.data_url}
    if found and (text := find_text(found)) is not None:
        return {"type": "input_text", "text": f"File {found.name}:\n\n{text}"}
    if found and found.url:
        return {"type": "input_file", "file_url": found.url}
    if found and (found.mime_type == PDF or found.mime_type in OFFICE):
        return {"type": "input_file", "filename": found.name, "file_data": found.data_url}
    return {"type": "input_text", "text": describe_missing(part)}


def read_event(draft: Draft, event: Mapping[str, Any]) -> None:
    """Reads one event of a stream, or a whole reply that was not streamed."""
    if event.get("object") == "response":
        _read_end(draft, event)
        return
    match text_of(event.get("type")):
        case "response.created" | "response.in_progress":
            response = table_of(event.get("response"))
            draft.model = text_of(response.get("model")) or draft.model
            draft.request_id = draft.request_id or text_of(response.get("id")) or None
        case "response.output_text.delta":
            draft.add_text(text_of(event.get("delta")))
        case "response.refusal.delta":
            draft.refused = True
            draft.add_text(text_of(event.get("delta")))
        case "response.output_item.added":
            _read_call(draft, _key(event), table_of(event.get("item")))
        case "response.function_call_arguments.delta":
            draft.add_call(_key(event), args=text_of(event.get("delta")))
        case "response.function_call_arguments.done":
            draft.set_args(_key(event), text_of(event.get("arguments")))
        case "response.output_item.done":
            _read_call(draft, _key(event), table_of(event.get("item")))
        case "response.completed" | "response.incomplete":
            _read_end(draft, table_of(event.get("response")))


def _key(event: Mapping[str, Any]) -> str:
    """Returns the key of an item. llama.cpp sends only the item, without an index."""
    return (
        text_of(event.get("item_id"))
        or text_of(table_of(event.get("item")).get("id"))
        or str(event.get("output_index"))
    )


def _read_call(draft: Draft, key: Any, item: dict[str, Any]) -> None:
    if item.get("type") == "function_call":
        draft.add_call(key, id=text_of(item.get("call_id")) or text_of(item.get("id")), name=text_of(item.get("name")))
        draft.set_args(key, text_of(item.get("arguments")))


def _read_end(draft: Draft, response: Mapping[str, Any]) -> None:
    """Reads the last event. It repeats everything; only what did not come in pieces is taken from it."""
    had_text, had_calls = bool(draft.text), draft.has_calls
    for at, item in enumerate(map(table_of, list_of(response.get("output")))):
        if not had_calls:
            _read_call(draft, at, item)
        for piece in map(table_of, list_of(item.get("content")) if item.get("type") == "message" else []):
            draft.refused = draft.refused or piece.get("type") == "refusal"
            if not had_text:
                draft.add_text(text_of(piece.get("text")) or text_of(piece.get("refusal")))
    draft.model = text_of(response.get("model")) or draft.model
    draft.request_id = draft.request_id or text_of(response.get("id")) or None
    if usage := table_of(response.get("usage")):
        draft.usage = _usage(usage)
    match text_of(response.get("status")):
        case "completed":
            draft.finish = "filter" if draft.refused else "calls" if draft.has_calls else "stop"
        case "incomplete":
            reason = table_of(response.get("incomplete_details")).get("reason")
            draft.finish = "filter" if reason == "content_filter" else "length"


def _usage(usage: dict[str, Any]) -> Usage:
    given = table_of(usage.get("input_tokens_details"))
    return Usage(
        input=number_of(usage.get("input_tokens")),
        cached=number_of(given.get("cached_tokens")),
        cache_written=number_of(given.get("cache_write_tokens")),
        output=number_of(usage.get("output_tokens")),
        reasoning=number_of(table_of(usage.get("output_tokens_details")).get("reasoning_tokens")),
        requests=1,
    )
