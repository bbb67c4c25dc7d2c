"""A reply while it arrives: pieces in, `ModelReplied` out, and only if the provider said why it stopped.

Providers send almost anything in almost any field, so what is read goes through `text_of`, `table_of`, `list_of` and
`number_of`: a value of another kind counts as absent. That the reply is whole hangs on its finish alone.
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
        self._names = names  # on the wire -> ours
        self._taken = taken  # ids of calls that the transcript has already
        self._text: list[str] = []
        self._calls: list[_Call] = []
        self._by_key: dict[Hashable, int] = {}
        self.finish: Finish | None = None
        self.refused = False
        self.usage = Usage(requests=1)
        self.request_id: str | None = None
        self.model: str | None = None
        self.blocks: list[dict[str, Any]] = []  # as the provider wants them back, where it does

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
        """A piece of the call that goes by this key in the stream; some servers repeat id and name in every piece."""
        at = self._by_key.get(key)
        if at is None and self._calls and not (id or name):  # not numbered: it goes on with the last one
            at = len(self._calls) - 1
        if at is None or (id and name and self._calls[at].id not in ("", id)):  # one key for two calls: told by the id
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
        """The arguments as a whole, for a provider that says them again at the end, or only then."""
        at = self._by_key.get(key)
        if at is not None and args and "".join(self._calls[at].args) != args:
            if not self._calls[at].args:
                self._tell(CallDelta(index=at, args=args))
            self._calls[at].args = [args]

    def reply(self) -> ModelReplied:
        """The whole; its finish must be known."""
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
    """Of the reply to this request."""
    taken = {call.id for message in messages for call in message.calls}
    return Draft(on_delta, {wire_name(tool.name): tool.name for tool in tools}, taken)


class _Call:
    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.args: list[str] = []


def parse_args(text: str) -> dict[str, Any]:
    """The arguments of a call. What is no JSON object is kept as it came, for the model to be told."""
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
