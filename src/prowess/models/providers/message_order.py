"""Brings neutral messages into the order that providers require: user and assistant alternate, every call has a result.

A message that does not fit is rewritten visibly, never dropped: an interrupted call gets "(no result)", a result
without its call becomes text, and a note after results becomes a part of the last one. New messages never change an
earlier turn, they only extend the last one, so prefix caching works.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from prowess._internal.json_values import JsonObject, find_invalid
from prowess.core.values import Message, Part, ToolCall

NO_RESULT = "(no result)"
_WIRE_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NOT_ON_WIRE = re.compile(r"[^a-zA-Z0-9_-]+")
_WIRE_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")  # the smallest of the providers' limits, apart from Mistral's
_SHORT_ID = re.compile(r"[a-zA-Z0-9]{9}")


@dataclass(slots=True, kw_only=True, eq=False)
class WireCall:
    id: str  # on the wire
    name: str  # on the wire
    args: JsonObject
    ours: ToolCall
    is_verbatim: bool = False  # the server takes arguments that are no JSON

    @property
    def text(self) -> str:
        """Arguments as text. Most servers parse them, and refuse a conversation in which some are no JSON: these get an
        object that holds the text."""
        invalid = find_invalid(self.args) if self.is_verbatim else None
        return json.dumps(self.args, ensure_ascii=False) if invalid is None else invalid


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


def arrange(messages: Sequence[Message], *, short_ids: bool = False, is_verbatim: bool = False) -> OrderedMessages:
    """Brings messages into order. `short_ids`: ids of calls have nine letters and digits, as Mistral requires.
    `is_verbatim`: arguments that are no JSON are sent back as the model wrote them."""
    system: list[str] = []
    rest = list(messages)
    while rest and rest[0].role == "system":
        first = rest.pop(0)
        text = joined(first.parts)
        if text.strip():
            system.append(text)
    turns = _Turns(short_ids, is_verbatim).of(rest)
    return OrderedMessages(system=system, turns=turns)


class _Turns:
    """Collects turns from messages."""

    def __init__(self, short_ids: bool, is_verbatim: bool) -> None:
        self._wire_id = short_id if short_ids else wire_id
        self._is_verbatim = is_verbatim
        self._turns: list[Turn] = []
        self._waiting: list[WireCall] = []  # calls of the last assistant turn that have no result yet
        self._asked: list[WireCall] = []  # all calls of that turn
        self._ids: set[str] = set()

    def of(self, messages: Iterable[Message]) -> list[Turn]:
        """Returns the turns. The first and the last are never those of the assistant."""
        for message in messages:
            self._add(message)
        self._answer_all()
        first = self._turns[0] if self._turns else None
        if not isinstance(first, User):
            opening = Part(text="(The conversation goes on from here.)")
            self._turns.insert(0, User(parts=[opening]))
        last = self._turns[-1]
        if isinstance(last, Assistant):
            closing = Part(text="Go on.")
            self._turns.append(User(parts=[closing]))
        return self._turns

    def _add(self, message: Message) -> None:
        match message.role:
            case "assistant":
                self._assistant(message)
            case "tool":
                self._result(message)
            case "system":
                self._answer_all()
                text = joined(message.parts)
                self._turns.append(LateSystemMessage(text=text))
            case _:
                user = self._user()
                for part in message.parts:
                    self._said(user, part)

    def _said(self, user: User, part: Part) -> None:
        """Adds a part of a user message. A text of the runtime goes into the last result, because some servers refuse a
        user message after results."""
        is_own = part.kind != "text" or part.ref is None
        if is_own or not user.results:
            user.parts.append(part)
            return
        _, shown = user.results[-1]
        shown.append(part)

    def _assistant(self, message: Message) -> None:
        """Adds a message of the assistant to its turn. An empty one is left out."""
        text = joined(message.parts)
        if not text.strip() and not message.calls:
            return
        self._answer_all()
        last = self._turns[-1] if self._turns else None
        if not isinstance(last, Assistant):
            last = Assistant()
            self._turns.append(last)
        said = filter(None, (last.text, text))
        last.text = "\n\n".join(said)
        self._asked = [self._call(call) for call in message.calls]
        self._waiting = list(self._asked)
        last.calls.extend(self._asked)

    def _call(self, call: ToolCall) -> WireCall:
        """Gives a call an id that is unique in the request."""
        id = self._wire_id(call.id)
        while id in self._ids:
            id = self._wire_id(f"{id} again")
        self._ids.add(id)
        name = wire_name(call.tool)
        args = _plain(call.args)
        return WireCall(id=id, name=name, args=args, ours=call, is_verbatim=self._is_verbatim)

    def _result(self, message: Message) -> None:
        """Puts a result into the place of its call. One without a call becomes text."""
        call = self._find_waiting(message.call_id)
        user = self._user()
        if call is None:
            name = message.call_id or "unnamed"
            said = Part(text=f"(The result of an earlier call, {name}.)")
            user.parts.extend((said, *message.parts))
            return
        self._waiting.remove(call)
        result = (call, list(message.parts))
        user.results.append(result)
        user.results.sort(key=lambda result: self._asked.index(result[0]))

    def _find_waiting(self, id: str | None) -> WireCall | None:
        for call in self._waiting:
            if call.ours.id == id:
                return call
        return None

    def _answer_all(self) -> None:
        """Gives every open call a result, before anything but results and user messages follows."""
        nothing = Part(text=NO_RESULT)
        for call in list(self._waiting):
            result = Message(role="tool", call_id=call.ours.id, parts=(nothing,))
            self._result(result)

    def _user(self) -> User:
        last = self._turns[-1] if self._turns else None
        if not isinstance(last, User):
            last = User()
            self._turns.append(last)
        return last


def joined(parts: Iterable[Part]) -> str:
    """Joins the texts with a blank line between them."""
    texts: list[str] = []
    for part in parts:
        if part.kind == "text" and part.text:
            texts.append(clean(part.text))
    return "\n\n".join(texts)


def is_blank(part: Part) -> bool:
    """True for a text without content, which providers refuse."""
    if part.kind != "text":
        return False
    text = part.text or ""
    return not text.strip()


def clean(text: str) -> str:
    """Replaces lone surrogates, which JSON can hold and UTF-8 cannot."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def wire_name(tool: str) -> str:
    """Returns a name that every provider accepts; the same tool always gets the same name."""
    if _WIRE_NAME.fullmatch(tool):
        return tool
    return f"{_spelled(tool, 55)}_{_digest(tool)[:8]}"


def wire_id(id: str) -> str:
    """Returns an id that every provider accepts; the same id always becomes the same."""
    if _WIRE_ID.fullmatch(id):
        return id
    return f"{_spelled(id, 23)}_{_digest(id)[:16]}"


def short_id(id: str) -> str:
    """Returns an id that Mistral accepts, too."""
    if _SHORT_ID.fullmatch(id):
        return id
    return _digest(id)[:9]


def _spelled(text: str, length: int) -> str:
    spelled = _NOT_ON_WIRE.sub("_", text)
    return spelled[:length]


def _digest(text: str) -> str:
    data = text.encode("utf-8", "surrogatepass")
    return hashlib.sha256(data).hexdigest()


def _plain(args: JsonObject) -> JsonObject:
    """Converts arguments to plain JSON values without lone surrogates."""
    text = json.dumps(args, ensure_ascii=False, default=str)
    return json.loads(clean(text))
