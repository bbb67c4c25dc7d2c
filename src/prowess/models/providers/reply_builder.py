"""Builds a reply while it arrives: pieces in, `ModelReplied` out.

A reply is complete only when the provider gave a finish reason. Providers send almost any type in any field, so values
are read with `text_in`, `table_in`, `tables_in` and `number_in`: a value of another type counts as absent.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any

from prowess._internal.json_values import JsonObject
from prowess.core.events import CallDelta, Finish, ModelReplied, TextDelta
from prowess.core.values import Message, ToolCall, ToolSpec, Usage
from prowess.models.providers.message_order import wire_name

OnDelta = Callable[[TextDelta | CallDelta], None]


class Draft:
    """Reply that is not complete yet."""

    def __init__(self, on_delta: OnDelta | None, names: Mapping[str, str], taken: Collection[str]) -> None:
        self._tell = on_delta or (lambda _: None)
        self._names = names  # tool name on the wire -> our name
        self._taken = taken  # ids of calls that are already in the transcript
        self._text: list[str] = []
        self._calls: list[_Call] = []
        self._by_key: dict[Hashable, int] = {}
        self.finish: Finish | None = None
        self.refused = False
        self.usage = Usage(requests=1)
        self.request_id: str | None = None
        self.model: str | None = None
        self.blocks: list[JsonObject] = []  # in the form in which the provider needs them back, if it does

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def has_calls(self) -> bool:
        return bool(self._calls)

    def add_text(self, piece: str) -> None:
        if piece:
            self._text.append(piece)
            self._tell(TextDelta(text=piece))

    def add_call(self, key: Hashable, *, id: str = "", name: str = "", args: str = "") -> None:
        """Adds a piece of the call that has this key in the stream. Some servers repeat id and name in every piece."""
        at = self._find_call(key, id, name)
        if at is None:
            at = len(self._calls)
            self._by_key[key] = at
            self._calls.append(_Call())
        call = self._calls[at]
        call.id = call.id or id
        if name and not call.name:
            call.name = self._names.get(name, name)
            self._tell(CallDelta(index=at, tool=call.name))
        if args:
            call.args.append(args)
            self._tell(CallDelta(index=at, args=args))

    def _find_call(self, key: Hashable, id: str, name: str) -> int | None:
        """Returns the position of the call that a piece continues, or None for a new call."""
        at = self._by_key.get(key)
        if at is None:
            is_rest = bool(self._calls) and not id and not name
            return len(self._calls) - 1 if is_rest else None
        known = self._calls[at].id
        if known and id and name and id != known:
            return None
        return at

    def set_args(self, key: Hashable, args: str) -> None:
        """Sets the whole arguments, for a provider that sends them again, or only, at the end."""
        at = self._by_key.get(key)
        if at is None or not args:
            return
        call = self._calls[at]
        if not call.args:
            self._tell(CallDelta(index=at, args=args))
        call.args = [args]

    def reply(self) -> ModelReplied:
        """Returns the finished reply. `finish` must be known."""
        finish = self.finish
        assert finish is not None
        if finish in ("stop", "calls"):  # servers mix them up
            finish = "calls" if self._calls else "stop"
        return ModelReplied(
            text=self.text,
            calls=tuple(self._finished_calls()),
            usage=self.usage,
            finish=finish,
            request_id=self.request_id,
            model=self.model,
        )

    def _finished_calls(self) -> Iterator[ToolCall]:
        taken = set(self._taken)
        for call in self._calls:
            id = call.id
            if not id or id in taken:
                unique = uuid.uuid4().hex
                id = f"call_{unique[:24]}"
            taken.add(id)
            args = parse_args("".join(call.args))
            yield ToolCall(id=id, tool=call.name, args=args)


def begin_draft(messages: Sequence[Message], tools: Sequence[ToolSpec], on_delta: OnDelta | None) -> Draft:
    """Starts the draft of the reply to this request."""
    taken: set[str] = set()
    for message in messages:
        taken.update(call.id for call in message.calls)
    names = {wire_name(tool.name): tool.name for tool in tools}
    return Draft(on_delta, names, taken)


class _Call:
    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.args: list[str] = []


def parse_args(text: str) -> JsonObject:
    """Parses the arguments of a call. Text that is no JSON object is kept as it is, so that the model can be told."""
    if text.strip() in ("", "null"):
        return {}
    try:
        args = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return {"arguments": text}
    return args if isinstance(args, dict) else {"arguments": text}


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def text_in(table: JsonObject, name: str) -> str:
    value = table.get(name)
    return value if isinstance(value, str) else ""


def table_in(table: JsonObject, name: str) -> JsonObject:
    value = table.get(name)
    return value if isinstance(value, dict) else {}


def tables_in(table: JsonObject, name: str) -> list[JsonObject]:
    """Returns the items of a list. An item of another type becomes an empty table, so positions stay."""
    value = table.get(name)
    if not isinstance(value, list):
        return []
    return [item if isinstance(item, dict) else {} for item in value]


def number_in(table: JsonObject, name: str) -> int:
    value = table.get(name)
    if not isinstance(value, (int, float)):
        return 0
    return int(value) if 0 < value < 2**53 else 0
