"""Calls of a model that is not ours: what it wrote becomes a call, and the call gets an id of its own.

An answer belongs to an id. A model that is not ours, or its framework, may use an id twice. While a call waits for a
person or is being made, another call under its id is made under another one, as in our own loop. The same call keeps
the id, and waits until the one before has ended.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from prowess._internal.json_values import parse_object
from prowess.agent.context import Conversation
from prowess.agent.tool_call import ToolCallRunner
from prowess.core.values import ToolCall


@dataclass(slots=True)
class _Held:
    form: ToolCall
    callers: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class OwnIds:
    def __init__(self, calls: ToolCallRunner, talk: Conversation) -> None:
        self._calls = calls
        self._talk = talk
        self._held: dict[str, _Held] = {}  # calls that are being made

    @asynccontextmanager
    async def hold(self, call: ToolCall) -> AsyncIterator[ToolCall]:
        """Yields the call with its own id, when no other call is being made under that."""
        call = replace(call, id=self.find(call))
        held = self._held.setdefault(call.id, _Held(self._calls.find_form(call)))
        held.callers += 1
        try:
            async with held.turn:
                yield call
        finally:
            held.callers -= 1
            if not held.callers:
                del self._held[call.id]

    def find(self, call: ToolCall) -> str:
        """Returns the id under which a call is made: the one that it waits under, its own, or a new one."""
        form = self._calls.find_form(call)
        taken = self._talk.questions.waiting()
        taken.update((id, held.form) for id, held in self._held.items())
        same = [id for id, other in taken.items() if (other.tool, other.args) == (form.tool, form.args)]
        if call.id in same:
            return call.id
        for id in same:
            if id.startswith(f"{call.id}-") and id.removeprefix(f"{call.id}-").isdecimal():
                return id
        if call.id not in taken and not call.id.endswith("-load"):  # the load that another call needs has such an id
            return call.id
        number = 2
        while (id := f"{call.id}-{number}") in self._talk.call_ids or id in taken:
            number += 1
        return id


def as_call(id: str, tool: str, args: object) -> ToolCall:
    """Makes a call of what a model that is not ours wrote: an object, or its JSON text. What is no object is refused
    when the call is made."""
    if isinstance(args, bytes):
        args = args.decode("utf-8", "replace")
    if args is None or (isinstance(args, str) and not args.strip()):
        given: dict[str, Any] = {}
    elif isinstance(args, Mapping):
        given = dict(args)
    else:
        given = parse_object(args if isinstance(args, str) else json.dumps(args, default=repr))
    return ToolCall(id=id, tool=str(tool), args=given)
