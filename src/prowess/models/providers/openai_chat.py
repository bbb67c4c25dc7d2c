"""Chat Completions, the protocol of OpenAI, Ollama, vLLM, llama.cpp, LiteLLM and most others."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from prowess.core.events import Finish
from prowess.core.values import Part, ToolSpec, Usage
from prowess.models.providers.attachments import PDF, PICTURES, describe_missing, find_attachment, find_text
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
) -> dict[str, Any]:
    body: dict[str, Any] = {"messages": _messages(transcript)}
    if tools:
        body["tools"] = [{"type": "function", "function": _function(tool)} for tool in tools]
    if schema is not None:
        form = {"name": "answer", "schema": dict(schema), "strict": is_strict(schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": form}
    return body


def _function(tool: ToolSpec) -> dict[str, Any]:
    parameters = object_schema(tool.parameters)
    return {"name": wire_name(tool.name), "description": clean(tool.description), "parameters": parameters}


def _messages(transcript: OrderedMessages) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    if transcript.system:
        messages.append({"role": "system", "content": "\n\n".join(transcript.system)})
    for turn in transcript.turns:
        match turn:
            case LateSystemMessage():
                messages.append({"role": "system", "content": turn.text})
            case Assistant():
                messages.append(_assistant(turn))
            case User():
                messages += _user(turn)
    return messages


def _assistant(turn: Assistant) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": turn.text}
    if turn.calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.args, ensure_ascii=False)},
            }
            for call in turn.calls
        ]
    return message


def _user(turn: User) -> list[dict[str, Any]]:
    """Renders a user turn. A result can hold only text here; its pictures and files follow in a user message."""
    messages: list[dict[str, Any]] = []
    said = list(turn.parts)
    for call, parts in reversed(turn.results):
        messages.insert(0, {"role": "tool", "tool_call_id": call.id, "content": joined(parts) or "(empty)"})
        if shown := [part for part in parts if part.kind != "text"]:
            said[:0] = [Part(text=f"(From the result of {call.ours.tool}:)"), *shown]
    if content := _content(said):
        messages.append({"role": "user", "content": content})
    elif not turn.results:
        messages.append({"role": "user", "content": "."})
    return messages


def _content(parts: Sequence[Part]) -> str | list[dict[str, Any]]:
    """Returns one text when there is nothing else, because not every server takes a list."""
    content = [piece for part in parts if (piece := _piece(part))]
    if all(piece["type"] == "text" for piece in content):
        return "\n\n".join(piece["text"] for piece in content)
    return content


def _piece(part: Part) -> dict[str, Any] | None:
    if part.kind == "text":
        return {"type": "text", "text": clean(part.text)} if part.text and part.text.strip() else None
    found = find_attachment(part)
    if found and found.kind == "image" and (found.url or found.mime_type in PICTURES):
        return {"type": "image_url", "image_url": {"url": found.url or found.data_url}}
    if found and (text := find_text(found)) is not None:
        return {"type": "text", "text": f"File {found.name}:\n\n{text}"}
    if found and found.data and found.mime_type == PDF:
        return {"type": "file", "file": {"filename": found.name, "file_data": found.data_url}}
    return {"type": "text", "text": describe_missing(part)}


def read_event(draft: Draft, event: Mapping[str, Any]) -> None:
    """Reads one chunk of a stream, or a whole reply that was not streamed."""
    draft.model = text_of(event.get("model")) or draft.model
    draft.request_id = draft.request_id or text_of(event.get("id")) or None
    if usage := table_of(event.get("usage")):
        draft.usage = _usage(usage)
    choice = table_of(next(iter(list_of(event.get("choices"))), None))
    delta = table_of(choice.get("delta")) or table_of(choice.get("message"))
    draft.add_text(_text(delta.get("content")))
    refusal = text_of(delta.get("refusal"))
    draft.add_text(refusal)
    draft.refused = draft.refused or bool(refusal)
    for at, call in enumerate(map(table_of, list_of(delta.get("tool_calls")))):
        function = table_of(call.get("function"))
        args = function.get("arguments")
        draft.add_call(
            call.get("index") if isinstance(call.get("index"), int) else text_of(call.get("id")) or at,
            id=text_of(call.get("id")),
            name=text_of(function.get("name")),
            args=json.dumps(args) if isinstance(args, dict) else text_of(args),
        )
    if reason := text_of(choice.get("finish_reason")):
        draft.finish = "filter" if draft.refused else _FINISH.get(reason, "stop")


def _text(content: Any) -> str:
    """Reads a text, or the list of pieces that Mistral's reasoning models send."""
    return text_of(content) or "".join(text_of(table_of(piece).get("text")) for piece in list_of(content))


def _usage(usage: dict[str, Any]) -> Usage:
    given = table_of(usage.get("prompt_tokens_details"))
    return Usage(
        input=number_of(usage.get("prompt_tokens")),
        cached=number_of(given.get("cached_tokens")),
        cache_written=number_of(given.get("cache_write_tokens")),
        output=number_of(usage.get("completion_tokens")),
        reasoning=number_of(table_of(usage.get("completion_tokens_details")).get("reasoning_tokens")),
        requests=1,
    )
