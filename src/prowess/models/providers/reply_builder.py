"""Builds a reply while it arrives: pieces in, `ModelReplied` out.

A reply is complete only when the provider gave a finish reason. Providers send almost any type in any field, so values
are read with `text_of`, `table_of`, `list_of` and `number_of`: a value of another type counts as absent.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any

from prowess.core.events import CallDelta, Finish, ModelReplied, TextDelta
from prowess.core.values import Message, ToolCall, ToolSpec, Usage
from prowess.models.providers.message_order import wire_name

OnDelta = Callable[[TextDelta | CallDelta], None]


class Draft:
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
        self.blocks: list[dict[str, Any]] = []  # in the form in which the provider needs them back, if it does

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
        at = self._by_key.get(key)
        if at is None and self._calls and not (id or name):  # no index: continues the last call
            at = len(self._calls) - 1
        if at is None or (id and name and self._calls[at].id not in ("", id)):  # same key, other id: a new call
            at = self._by_key[key] = len(self._calls)
            self._calls.append(_Call())
        call = self._calls[at]
        call.id = call.id or id
        if name and not call.name:
            call.name = self._names.get(name, name)
            self._tell(CallDelta(index=at, tool=call.name))
        if args:
            call.args.append(args)
            self._tell(CallDelta(index=at, args=args))

    def set_args(self, key: Hashable, args: str) -> None:
        """Sets the whole arguments, for a provider that sends them again, or only, at the end."""
        at = self._by_key.get(key)
        if at is not None and args and "".join(self._calls[at].args) != args:
            if not self._calls[at].args:
                self._tell(CallDelta(index=at, args=args))
            self._calls[at].args = [args]

    def reply(self) -> ModelReplied:
        """Returns the finished reply. `finish` must be known."""
        assert self.finish is not None
        taken = set(self._taken)
        calls = []
        for call in self._calls:
            id = call.id if call.id and call.id not in taken else f"call_{uuid.uuid4().hex[:24]}"
            taken.add(id)
            calls.append(ToolCall(id=id, tool=call.name, args=parse_args("".join(call.args))))
        finish = "calls" if calls and self.finish == "stop" else self.finish
        return ModelReplied(
            text=self.text,
            calls=tuple(calls),
            usage=self.usage,
            finish="stop" if finish == "calls" and not calls else finish,
            request_id=self.request_id,
            model=self.model,
        )


def begin_draft(messages: Sequence[Message], tools: Sequence[ToolSpec], on_delta: OnDelta | None) -> Draft:
    """Starts the draft of the reply to this request."""
    taken = {call.id for message in messages for call in message.calls}
    return Draft(on_delta, {wire_name(tool.name): tool.name for tool in tools}, taken)


class _Call:
    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.args: list[str] = []


def parse_args(text: str) -> dict[str, Any]:
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


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else ""


def table_of(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def list_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def number_of(value: Any) -> int:
    return int(value) if isinstance(value, (int, float)) and 0 < value < 2**53 else 0
