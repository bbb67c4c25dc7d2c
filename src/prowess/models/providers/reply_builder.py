"""Builds a reply while it arrives: pieces in, `ModelReplied` out.

A reply is complete only when the provider gave a finish reason. Providers send almost any type in any field, so values
are read with `text_in`, `table_in`, `tables_in` and `number_in`: a value of another type counts as absent.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence

from prowess._internal.json_values import JsonObject, parse_object
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
        # In the form in which the provider needs them back, if it does.
        self.blocks: list[JsonObject] = []

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def has_calls(self) -> bool:
        return bool(self._calls)

    def set_origin(self, reply: JsonObject) -> None:
        """Reads the names of the model and of the reply. The first id counts."""
        model = text_in(reply, "model")
        if model:
            self.model = model
        if not self.request_id:
            self.request_id = text_in(reply, "id") or None

    def add_text(self, piece: str) -> None:
        if piece:
            self._text.append(piece)
            delta = TextDelta(text=piece)
            self._tell(delta)

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
            delta = CallDelta(index=at, tool=call.name)
            self._tell(delta)
        if args:
            call.args.append(args)
            delta = CallDelta(index=at, args=args)
            self._tell(delta)

    def _find_call(self, key: Hashable, id: str, name: str) -> int | None:
        """Returns the position of the call that a piece continues, or None for a new call."""
        at = self._by_key.get(key)
        if at is None:
            if id or name or not self._calls:
                return None
            return len(self._calls) - 1  # no index: continues the last call
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
        calls = self._finished_calls()
        return ModelReplied(
            text=self.text,
            calls=tuple(calls),
            usage=self.usage,
            finish=finish,
            request_id=self.request_id,
            model=self.model,
        )

    def _finished_calls(self) -> Iterator[ToolCall]:
        """Yields the calls. One without an id, or with the id of another call, gets a new one."""
        taken = set(self._taken)
        for call in self._calls:
            id = call.id
            if not id or id in taken:
                unique = uuid.uuid4().hex
                id = f"call_{unique[:24]}"
            taken.add(id)
            written = "".join(call.args)
            args = parse_args(written)
            yield ToolCall(id=id, tool=call.name, args=args)


def begin_draft(messages: Sequence[Message], tools: Sequence[ToolSpec], on_delta: OnDelta | None) -> Draft:
    """Starts the draft of the reply to this request."""
    taken: set[str] = set()
    for message in messages:
        for call in message.calls:
            taken.add(call.id)
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
    return parse_object(text)


def text_in(table: JsonObject, name: str) -> str:
    """Returns the text of a field, or an empty text."""
    value = table.get(name)
    return value if isinstance(value, str) else ""


def table_in(table: JsonObject, name: str) -> JsonObject:
    """Returns the object of a field, or an empty one."""
    value = table.get(name)
    return value if isinstance(value, dict) else {}


def tables_in(table: JsonObject, name: str) -> list[JsonObject]:
    """Returns the items of a list. An item of another type becomes an empty table, so positions stay."""
    value = table.get(name)
    if not isinstance(value, list):
        return []
    return [item if isinstance(item, dict) else {} for item in value]


def number_in(table: JsonObject, name: str) -> int:
    """Returns the count of a field, or 0."""
    value = table.get(name)
    if not isinstance(value, (int, float)):
        return 0
    return int(value) if 0 < value < 2**53 else 0


def usage_in(usage: JsonObject, request: str, reply: str) -> Usage:
    """Returns token counts in the form of OpenAI: `prompt_tokens` and `completion_tokens`, or other two names."""
    input = number_in(usage, f"{request}_tokens")
    details = table_in(usage, f"{request}_tokens_details")
    cached = number_in(details, "cached_tokens")
    written = number_in(details, "cache_write_tokens")
    output = number_in(usage, f"{reply}_tokens")
    details = table_in(usage, f"{reply}_tokens_details")
    thoughts = number_in(details, "reasoning_tokens")
    return Usage(input=input, cached=cached, cache_written=written, output=output, reasoning=thoughts, requests=1)
