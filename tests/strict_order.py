"""The strictest order of messages that a server of the field asks for, in one checker for all wires.

- Mistral (mistral-common's validator: "Unexpected role 'user' after role 'tool'", "Not the same number of function
  calls and responses", "must be a-z, A-Z, 0-9, with a length of 9"): after results only the assistant; ids of nine
  letters and digits; the last message is the user's or a result.
- Chat templates of Gemma, Mistral and others ("Conversation roles must alternate"): one system message, at the start;
  user and assistant alternate, calls and results apart.
- Gemini ("the number of function response parts is equal to the number of function call parts", "function response turn
  comes immediately after a function call turn"): as many results as calls, right after them, in their order.
- Anthropic ("tool_use ids were found without tool_result blocks immediately after", "must begin with a matching number
  of tool_result blocks"): user and assistant alternate, and a user message has its results first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple


class WireTurn(NamedTuple):
    role: str
    text: str = ""
    calls: tuple[str, ...] = ()  # ids of calls that an assistant makes, or whose results a user turn has


def find_fault(wire: str, body: Mapping[str, Any]) -> str | None:
    """Returns what a strict server would refuse in a request of `chat`, `responses` or `messages`, else None."""
    try:
        _check({"chat": _chat, "responses": _responses, "messages": _messages}[wire](body))
    except Refused as refused:
        return str(refused)
    return None


class Refused(Exception):
    pass


def _refuse(text: str) -> None:
    raise Refused(text)


def _check(turns: Iterator[WireTurn]) -> None:
    """Turns alternate. Between calls and the next turn of the assistant there are their results, and nothing else."""
    before: WireTurn | None = None
    seen: set[str] = set()
    for turn in turns:
        if before is None and turn.role != "user":
            _refuse(f"The first turn is that of the {turn.role}.")
        if before is not None and turn.role == before.role:
            _refuse(f"Two turns of the {turn.role} follow each other: {before} {turn}")
        if turn.role == "user":
            open_calls = before.calls if before is not None else ()
            if turn.calls != open_calls:
                _refuse(f"Calls {open_calls} have results {turn.calls}.")
        else:
            if seen & set(turn.calls) or len(set(turn.calls)) != len(turn.calls):
                _refuse(f"An id is used twice: {turn.calls}")
            seen.update(turn.calls)
        if not turn.text.strip() and not turn.calls:
            _refuse(f"A turn of the {turn.role} is empty.")
        before = turn
    if before is None or before.role != "user":
        _refuse("The last turn is not that of the user.")


def _chat(body: Mapping[str, Any]) -> Iterator[WireTurn]:
    messages = list(body["messages"])
    if messages and messages[0]["role"] == "system":
        messages.pop(0)
    results: list[str] = []
    for at, message in enumerate(messages):
        role, text = message["role"], _text(message.get("content"))
        if role == "tool":
            _check_id(message["tool_call_id"])
            if not text.strip():
                _refuse("A result is empty.")
            results.append(message["tool_call_id"])
            following = messages[at + 1]["role"] if at + 1 < len(messages) else "assistant"
            if following not in ("tool", "assistant"):
                _refuse(f"Unexpected role '{following}' after role 'tool'")
            if following == "assistant":
                yield WireTurn("user", text, tuple(results))
                results = []
            continue
        if role not in ("user", "assistant"):
            _refuse(f"A message of the {role} is in the middle.")
        calls = [call["id"] for call in message.get("tool_calls", ())]
        for id in calls:
            _check_id(id)
        yield WireTurn(role, text, tuple(calls))


def _check_id(id: str) -> None:
    if not re.fullmatch(r"[a-zA-Z0-9]{9}", id):
        _refuse(f"Tool call id was {id} but must be a-z, A-Z, 0-9, with a length of 9.")


def _responses(body: Mapping[str, Any]) -> Iterator[WireTurn]:
    """Items in a row with the same sender are one turn, but nothing follows results in it."""
    sender, text, ids = "", "", list[str]()
    for item in body["input"]:
        is_result = item["type"] == "function_call_output"
        role = {"function_call": "assistant", "function_call_output": "user"}.get(item["type"], item.get("role"))
        if role not in ("user", "assistant"):
            _refuse(f"A message of the {role} is in the middle.")
        if role == sender and role == "user" and not (is_result and ids):
            _refuse(f"Unexpected {item['type']} after that of the user.")
        if role != sender:
            if sender:
                yield WireTurn(sender, text, tuple(ids))
            sender, text, ids = str(role), "", []
        ids += [item["call_id"]] if "call_id" in item else []
        text += _text(item.get("content") or item.get("output"))
    yield WireTurn(sender, text, tuple(ids))


def _messages(body: Mapping[str, Any]) -> Iterator[WireTurn]:
    for message in body["messages"]:
        kinds = [block["type"] for block in message["content"]]
        results = kinds.count("tool_result")
        if kinds[:results] != ["tool_result"] * results:
            _refuse("tool_result blocks are not first in their message.")
        if (message["role"] == "user" and "tool_use" in kinds) or (message["role"] == "assistant" and results):
            _refuse(f"A block is in a message of the {message['role']}.")
        ids = [block.get("id") or block.get("tool_use_id") for block in message["content"]]
        for block in message["content"]:
            if block["type"] == "text" and not block["text"].strip():
                _refuse("A text block is empty.")
        yield WireTurn(message["role"], _text(message["content"]), tuple(id for id in ids if id))


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        return "".join(_text(content.get(name)) for name in ("text", "content")) or "(a picture or a file)"
    return "".join(map(_text, content or ()))
