"""Lets any text model drive the loop: it writes one JSON document per reply, and the loop sees ordinary calls.

    model = StructuredActions(text_model)      # protocol "actions"

The transcript is rendered for a model without tools: calls as the documents that it wrote, results as observations.
Rendered messages never change when new ones are added, so prefix caching works. A reply that is no document is repaired
once, then sent back with the reason, at most `tries` times.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import count
from typing import Any

from prowess._internal.json_values import load_json
from prowess.core.events import CallDelta, ModelReplied, TextDelta
from prowess.core.ports import ClosableModel, FiniteModel, Model, describe_model
from prowess.core.values import Message, Part, ToolCall, ToolSpec, Usage
from prowess.errors import ModelMalformed
from prowess.models.actions.calls import tool_of, translate
from prowess.models.actions.json_repair import Close, find_objects
from prowess.models.actions.partial_json import MAX_DEPTH, Completed, Grown, JsonStream
from prowess.models.actions.schema import PLANNING, ActionDocument, is_document, parse_document, render_schema
from prowess.models.actions.transcript import render_transcript

OnDelta = Callable[[TextDelta | CallDelta], None]


class StructuredActions:
    """Model around a text model."""

    protocol = "actions"

    def __init__(self, model: Model, *, tries: int = 2) -> None:
        self.inner = model
        self._tries = tries

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def context_tokens(self) -> int | None:
        return describe_model(self.inner).context_tokens

    @property
    def notes(self) -> Sequence[str]:
        return describe_model(self.inner).notes

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        on_delta: OnDelta | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> ModelReplied:
        names = [tool.name for tool in tools]
        wanted = render_schema(names, schema)
        request = render_transcript(messages, tools)
        live = _LiveDocument(on_delta)
        listen = live.take if on_delta else None
        usage = Usage()
        for left in range(self._tries, -1, -1):
            reply = await self.inner.reply(request, (), on_delta=listen, schema=wanted)
            usage = _sum(usage, reply.usage)
            if reply.calls or reply.finish == "filter":  # the model has its own tools, or its reply was filtered
                return replace(reply, usage=usage)
            try:
                document = _read(reply, names)
            except ValueError as error:
                if not left:
                    raise self._invalid(reply.text, str(error)) from error
                live.forget()
                request = [*request, *_sent_back(reply.text, str(error))]
                continue
            done = translate(document, _new_ids(messages))
            live.complete(done.text, done.calls)
            return replace(reply, text=done.text, calls=done.calls, finish=done.finish, usage=usage)
        raise AssertionError("the last try returns or raises")

    async def aclose(self) -> None:
        if isinstance(self.inner, ClosableModel):
            await self.inner.aclose()

    def assert_finished(self) -> None:
        if isinstance(self.inner, FiniteModel):
            self.inner.assert_finished()

    def _invalid(self, text: str, why: str) -> ModelMalformed:
        return ModelMalformed(
            f"{self.name} gave no valid action in {self._tries + 1} tries: {why}. Its last reply began: {text[:500]!r}",
            code="action-invalid",
            hint="Use a model that can be held to a JSON Schema, or, if it can call tools, --protocol tools.",
        )


def _read(reply: ModelReplied, tools: Sequence[str]) -> ActionDocument:
    """Reads the document in a reply. ValueError tells the model what is wrong. A reply that was cut off is an error."""
    text = _THOUGHT.sub("", reply.text, count=1)
    try:
        data = load_json(text)
    except (ValueError, RecursionError) as error:
        data = _repaired(text, ("nothing",) if reply.finish == "length" else ("nothing", "objects", "all"))
        if data is None and reply.finish == "length":
            raise ModelMalformed(
                f"The reply was cut off after {len(reply.text)} characters, before its JSON document was complete.",
                code="reply-cut",
                hint="Let the model write longer replies (max_tokens), or ask for less at once.",
            ) from None
        if data is None:
            raise ValueError(f"it is not one JSON object: {error}") from None
    return parse_document(_storable(data), tools)


def _repaired(text: str, closing: Sequence[Close]) -> Any:
    """Returns the first document in the text. Only an answer may be completed by closing a list or a text.

    A call could otherwise run with arguments that are shorter than the model meant.
    """
    for close in closing:
        for repaired in find_objects(text, close=close):
            data = load_json(repaired)
            if is_document(data):
                action = data["action"] if isinstance(data.get("action"), dict) else data
                return data if close != "all" or action.get("type") == "final_answer" else None
    return None


def _storable(value: Any, depth: int = 0) -> Any:
    """Replaces lone surrogates, which cannot be sent on, and refuses infinite numbers, which are no JSON."""
    if depth > MAX_DEPTH:
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, str):
        return _HALVES.sub("\ufffd", value)
    if isinstance(value, list):
        return [_storable(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {_storable(name): _storable(item, depth + 1) for name, item in value.items()}
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        raise ValueError("a number is too large")
    return value


def _sent_back(text: str, why: str) -> list[Message]:
    said = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    ask = f"This reply cannot be used: {why[:1000]}. Reply again, with exactly one JSON object and nothing else."
    return [
        Message(role="assistant", parts=(Part(text=said or "(nothing)"),)),
        Message(role="user", parts=(Part(text=ask, ref="note:protocol"),)),
    ]


def _new_ids(messages: Sequence[Message]) -> Iterator[str]:
    """Yields a1, a2 …, after the ids of the transcript: the same transcript gives the same ids."""
    taken = [int(found[1]) for m in messages for call in m.calls if (found := _ID.fullmatch(call.id))]
    return (f"a{number}" for number in count(max(taken, default=0) + 1))


def _sum(left: Usage, right: Usage) -> Usage:
    known = [cost for cost in (left.cost, right.cost) if cost is not None]
    numbers = {f.name: getattr(left, f.name) + getattr(right, f.name) for f in fields(Usage) if f.name != "cost"}
    return Usage(**numbers, cost=sum(known) if known else None)


_THOUGHT = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
_HALVES = re.compile(r"[\ud800-\udfff]")
_ID = re.compile(r"a([0-9]{1,9})")
_SHOWN = 4_000


# --- while it arrives ------------------------------------------------------------------------------------------------


class _LiveDocument:
    """Passes on parts before the document is complete: the answer as it grows, the tool once it is known."""

    def __init__(self, on_delta: OnDelta | None) -> None:
        self._on_delta = on_delta
        self._shown: list[str] = []  # pieces of the answer
        self.forget()

    def forget(self) -> None:
        """Resets the reader: the next piece belongs to another reply."""
        self._before = ""  # text before the document, as much as the search for its start needs
        self._stream: JsonStream | None = None
        self._tools: list[str] = []
        self._type, self._depth = "", 0
        self._held: dict[int, list[str]] = {}  # by depth: content that may not be the answer
        self._quiet = bool(self._shown)  # two answers must not run into each other

    def take(self, delta: TextDelta | CallDelta) -> None:
        if self._on_delta is None:
            return
        if isinstance(delta, CallDelta):
            self._on_delta(delta)
            return
        if self._quiet:
            return
        text = delta.text
        if self._stream is None:
            text = self._from_document_on(text)
            if not text:
                return
            self._stream = JsonStream(_WATCHED)
        try:
            found = self._stream.feed(text)
        except ValueError:
            self._quiet = True  # the whole reply is parsed later
            return
        for news in found:
            self._tell(news)

    def complete(self, text: str, calls: Sequence[ToolCall]) -> None:
        """Passes on the parts that could not be streamed."""
        shown = "".join(self._shown)
        if text.startswith(shown):
            self._show(text[len(shown) :])
        for index, call in enumerate(calls[len(self._tools) :], len(self._tools)):
            self._announce(index, call.tool)

    def _from_document_on(self, text: str) -> str:
        """Returns the text from the opening bracket on, or "" before it came. Thoughts before it are skipped."""
        before = (self._before + text).lstrip()
        if before.startswith("<think>"):
            _, found, after = before.partition("</think>")
            if not found:
                self._before = "<think>" + before[7:][-8:]
                return ""
            before = after
        elif "<think>".startswith(before):
            self._before = before
            return ""
        start = before.find("{")
        self._before = "."
        return before[start:] if start >= 0 else ""

    def _tell(self, news: Grown | Completed) -> None:
        field, depth = news.path[-1], len(news.path)
        if isinstance(news, Grown):
            if field == "content":
                self._held.setdefault(depth, []).append(news.text)
        elif field in ("plan", "plan_update") and isinstance(news.value, dict) and news.value:
            self._announce(len(self._tools), PLANNING)
        elif field == "type" and isinstance(news.value, str):
            self._type, self._depth = news.value, depth
            if tool := tool_of(self._type):
                self._announce(len(self._tools), tool)
        elif field == "tool" and isinstance(news.value, str) and self._type == "call_tool":
            self._announce(len(self._tools), news.value)
        if self._type == "final_answer" and (answer := self._held.pop(self._depth, None)):
            self._show("".join(answer))

    def _show(self, text: str) -> None:
        text = _HALVES.sub("\ufffd", text)
        if text and self._on_delta is not None:
            self._shown.append(text)
            self._on_delta(TextDelta(text=text))

    def _announce(self, index: int, tool: str) -> None:
        if self._on_delta is not None:
            self._tools.append(tool)
            self._on_delta(CallDelta(index=index, tool=tool))


_WATCHED = [
    *("plan", "plan_update", "action.type", "action.tool", "action.content"),
    *("type", "tool", "content"),  # for an action without a document around it
]
