"""Brings neutral messages into the order that providers require: user and assistant alternate, every call has a result.

A message that does not fit is rewritten visibly, never dropped: an interrupted call gets "(no result)", a result
without its call becomes text. New messages never change an earlier turn, they only extend the last one, so prefix
caching works.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from prowess.core.values import Message, Part, ToolCall

NO_RESULT = "(no result)"
_WIRE_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_WIRE_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")  # the smallest of the providers' limits


@dataclass(slots=True, kw_only=True, eq=False)
class WireCall:
    id: str  # on the wire
    name: str  # on the wire
    args: dict[str, Any]
    ours: ToolCall


@dataclass(slots=True, kw_only=True)
class Assistant:
    text: str = ""
    calls: list[WireCall] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class User:
    """Results of the calls before it, in their order, then the user's parts."""

    results: list[tuple[WireCall, list[Part]]] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class LateSystemMessage:
    """System message that is not at the beginning."""

    text: str


Turn = Assistant | User | LateSystemMessage


@dataclass(slots=True, kw_only=True)
class OrderedMessages:
    system: list[str]
    turns: list[Turn]


def arrange(messages: Sequence[Message]) -> OrderedMessages:
    first = next((at for at, message in enumerate(messages) if message.role != "system"), len(messages))
    system = [text for message in messages[:first] if (text := joined(message.parts)).strip()]
    return OrderedMessages(system=system, turns=_Turns().of(messages[first:]))


class _Turns:
    def __init__(self) -> None:
        self._turns: list[Turn] = []
        self._waiting: list[WireCall] = []  # calls of the last assistant turn that have no result yet
        self._asked: list[WireCall] = []  # all calls of that turn
        self._ids: set[str] = set()

    def of(self, messages: Iterable[Message]) -> list[Turn]:
        for message in messages:
            match message.role:
                case "assistant":
                    self._assistant(message)
                case "tool":
                    self._result(message)
                case "system":
                    self._answer_all()
                    self._turns.append(LateSystemMessage(text=joined(message.parts)))
                case _:
                    self._user().parts.extend(message.parts)
        self._answer_all()
        if not self._turns or not isinstance(self._turns[0], User):
            self._turns.insert(0, User(parts=[Part(text="(The conversation goes on from here.)")]))
        if isinstance(self._turns[-1], Assistant):
            self._turns.append(User(parts=[Part(text="Go on.")]))
        return self._turns

    def _assistant(self, message: Message) -> None:
        text = joined(message.parts)
        if not text.strip() and not message.calls:
            return
        self._answer_all()
        last = self._turns[-1] if self._turns else None
        if not isinstance(last, Assistant):
            last = Assistant()
            self._turns.append(last)
        last.text = "\n\n".join(filter(None, (last.text, text)))
        self._asked = [self._call(call) for call in message.calls]
        self._waiting = list(self._asked)
        last.calls.extend(self._asked)

    def _call(self, call: ToolCall) -> WireCall:
        id = wire_id(call.id)
        while id in self._ids:
            id = wire_id(f"{id} again")
        self._ids.add(id)
        return WireCall(id=id, name=wire_name(call.tool), args=_plain(call.args), ours=call)

    def _result(self, message: Message) -> None:
        call = next((call for call in self._waiting if call.ours.id == message.call_id), None)
        if call is None:
            said = Part(text=f"(The result of an earlier call, {message.call_id or 'unnamed'}.)")
            self._user().parts.extend((said, *message.parts))
            return
        self._waiting.remove(call)
        results = self._user().results
        results.append((call, list(message.parts)))
        results.sort(key=lambda result: self._asked.index(result[0]))

    def _answer_all(self) -> None:
        """Gives every open call a result, before anything but results and user messages follows."""
        for call in list(self._waiting):
            self._result(Message(role="tool", call_id=call.ours.id, parts=(Part(text=NO_RESULT),)))

    def _user(self) -> User:
        last = self._turns[-1] if self._turns else None
        if not isinstance(last, User):
            last = User()
            self._turns.append(last)
        return last


def joined(parts: Iterable[Part]) -> str:
    """Joins the texts with a blank line between them."""
    return "\n\n".join(clean(part.text) for part in parts if part.kind == "text" and part.text)


def clean(text: str) -> str:
    """Replaces lone surrogates, which JSON can hold and UTF-8 cannot."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def wire_name(tool: str) -> str:
    """Returns a name that every provider accepts; the same tool always gets the same name."""
    return tool if _WIRE_NAME.fullmatch(tool) else _spelled(tool, 55)


def wire_id(id: str) -> str:
    return id if _WIRE_ID.fullmatch(id) else _spelled(id, 23)


def _spelled(text: str, length: int) -> str:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    kept = re.sub(r"[^a-zA-Z0-9_-]+", "_", text)[:length]
    return f"{kept}_{digest[: 8 if length > 40 else 16]}"


def _plain(args: dict[str, Any]) -> dict[str, Any]:
    """Converts arguments to plain JSON values without lone surrogates."""
    return json.loads(clean(json.dumps(args, ensure_ascii=False, default=str)))
