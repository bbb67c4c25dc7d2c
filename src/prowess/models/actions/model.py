"""Lets any text model drive the loop: it writes one JSON document per reply, and the loop sees ordinary calls.

    model = StructuredActions(text_model)      # protocol "actions"

The transcript is rendered for a model without tools: calls as the documents that it wrote, results as observations.
Rendered messages never change when new ones are added, so prefix caching works. A reply that is no document is repaired
once, then sent back with the reason, at most `tries` times.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from prowess._internal.json_values import describe_fault, load_json
from prowess.core.events import CallDelta, ModelReplied, TextDelta
from prowess.core.ports import ClosableModel, FiniteModel, Model, PreparedModel
from prowess.core.values import Message, Part, ToolCall, ToolSpec, Usage, add_usage, describe_model
from prowess.errors import ModelMalformed
from prowess.models.actions.calls import translate
from prowess.models.actions.json_repair import Close, find_objects
from prowess.models.actions.partial_json import MAX_DEPTH, TextTail, parse_partial
from prowess.models.actions.schema import (
    NEEDS,
    PLANNING,
    ActionDocument,
    find_action,
    is_document,
    parse_document,
    render_schema,
)
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
    def schemas(self) -> bool:
        return describe_model(self.inner).schemas

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
        live = _LiveDocument(on_delta or _ignore)
        listen = live.take if on_delta else None
        usage = Usage()
        for left in range(self._tries, -1, -1):
            reply = await self.inner.reply(request, (), on_delta=listen, schema=wanted)
            usage = add_usage(usage, reply.usage)
            reply = replace(reply, usage=usage)
            if reply.calls or reply.finish == "filter":  # the model has its own tools, or its reply was filtered
                return reply
            try:
                document = _read(reply, names)
            except ValueError as error:
                why = str(error)
                if not left and isinstance(error, _CutOff):
                    raise _cut_off(reply.text) from error
                if not left:
                    raise self._invalid(reply.text, why) from error
                live.forget()
                request = [*request, *_sent_back(reply.text, why)]
                continue
            ids = _new_ids(messages)
            done = translate(document, ids)
            live.complete(done.text, done.calls)
            return replace(reply, **done._asdict())
        raise AssertionError("the last try returns or raises")

    def prepare(self) -> None:
        if isinstance(self.inner, PreparedModel):
            self.inner.prepare()

    async def aclose(self) -> None:
        if isinstance(self.inner, ClosableModel):
            await self.inner.aclose()

    def assert_finished(self) -> None:
        if isinstance(self.inner, FiniteModel):
            self.inner.assert_finished()

    def _invalid(self, text: str, why: str) -> ModelMalformed:
        """Describes the last reply, after which there is no other try."""
        said = f"Its last reply began: {text[:500]!r}"
        tries = self._tries + 1
        message = f"{self.name} gave no valid action in {tries} tries: {why}. {said}"
        hint = "Use a model that can be held to a JSON Schema, or, if it can call tools, --protocol tools."
        return ModelMalformed(message, code="action-invalid", hint=hint)


def _ignore(delta: TextDelta | CallDelta) -> None:
    """Ignores a piece, because nobody listens."""


def _read(reply: ModelReplied, tools: Sequence[str]) -> ActionDocument:
    """Reads the document in a reply. ValueError tells the model what is wrong. A reply that was cut off is an error."""
    text = _THOUGHT.sub("", reply.text, count=1)
    is_cut = reply.finish == "length"
    try:
        data = load_json(text)
    except (ValueError, RecursionError):
        data = _repaired(text, _IF_CUT if is_cut else _IF_WHOLE)
        if data is None and is_cut:
            raise _CutOff("it was cut off by the length limit of a reply. Make it shorter") from None
        if data is None:
            raise ValueError(f"it is not one JSON object: {describe_fault(text)}") from None
    return parse_document(_storable(data), tools)


class _CutOff(ValueError):
    """The reply ended before its document was complete."""


def _cut_off(text: str) -> ModelMalformed:
    message = f"The reply was cut off after {len(text)} characters, before its JSON document was complete."
    hint = "Let the model write longer replies (max_tokens), or ask for less at once."
    return ModelMalformed(message, code="reply-cut", hint=hint)


def _repaired(text: str, closing: Sequence[Close]) -> Any:
    """Returns the first document in the text. Only an answer may be completed by closing a list or a text.

    A call could otherwise run with arguments that are shorter than the model meant.
    """
    for close in closing:
        for repaired in find_objects(text, close=close):
            data = load_json(repaired)
            if not is_document(data):
                continue
            is_answer = find_action(data).get("type") == "final_answer"
            return data if is_answer or close != "all" else None
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
    if isinstance(value, float) and math.isinf(value):
        raise ValueError("a number is too large")
    return value


def _sent_back(text: str, why: str) -> list[Message]:
    """Returns the reply and the reason why it cannot be used, as messages."""
    said = text or "(nothing)"
    if len(text) > _SHOWN:
        said = text[:_SHOWN] + "…"
    why = why[:1000]
    ask = f"This reply cannot be used: {why}. Reply again, with exactly one JSON object and nothing else."
    shown = Part(text=said)
    asked = Part(text=ask, ref="note:protocol")
    reply = Message(role="assistant", parts=(shown,))
    reason = Message(role="user", parts=(asked,))
    return [reply, reason]


def _new_ids(messages: Sequence[Message]) -> Iterator[str]:
    """Yields a1, a2 …, after the ids of the transcript: the same transcript gives the same ids."""
    last = 0
    for message in messages:
        for call in message.calls:
            found = _ID.fullmatch(call.id)
            if found:
                last = max(last, int(found[1]))
    while True:
        last += 1
        yield f"a{last}"


_THOUGHT = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
_HALVES = re.compile(r"[\ud800-\udfff]")
_ID = re.compile(r"a([0-9]{1,9})")
_SHOWN = 4_000
_IF_CUT: Sequence[Close] = ("nothing",)
_IF_WHOLE: Sequence[Close] = ("nothing", "objects", "all")


# --- while it arrives ------------------------------------------------------------------------------------------------


class _LiveDocument:
    """Passes on parts before the document is complete: the answer as it grows, the tool once it is known."""

    def __init__(self, on_delta: OnDelta) -> None:
        self._on_delta = on_delta
        self._shown: list[str] = []  # pieces of the answer
        self.forget()

    def forget(self) -> None:
        """Resets the reader: the next piece belongs to another reply."""
        self._text = ""  # of the reply, up to the beginning of the answer
        self._answer: TextTail | None = None
        self._tools: list[str] = []
        self._quiet = bool(self._shown)  # two answers must not run into each other

    def take(self, delta: TextDelta | CallDelta) -> None:
        if self._quiet:
            return
        if isinstance(delta, CallDelta):
            self._on_delta(delta)
            return
        try:
            if self._answer is None:
                self._text += delta.text
                self._look()
            else:
                self._show(self._answer.feed(delta.text))
        except (ValueError, RecursionError):
            self._quiet = True  # the whole reply is parsed later

    def complete(self, text: str, calls: Sequence[ToolCall]) -> None:
        """Passes on the parts that could not be streamed."""
        shown = "".join(self._shown)
        if text.startswith(shown):
            rest = text.removeprefix(shown)
            self._show(rest)
        for call in calls[len(self._tools) :]:
            self._announce(call.tool)

    def _look(self) -> None:
        """Looks for the next action. Once it is known, only an answer is read on."""
        text = self._text.lstrip()
        if "<think>".startswith(text[:7]):
            text = text.partition("</think>")[2]
        _, bracket, rest = text.partition("{")
        document = bracket + rest
        data = parse_partial(document) if document else {}
        self._announce_plans(data)
        action = find_action(data)
        kind = action.get("type")
        tool = action.get("tool") if kind == "call_tool" else NEEDS.get(str(kind))
        if isinstance(tool, str) and tool:
            self._announce(tool)
        elif kind == "final_answer":
            self._begin_answer(document)
        if tool or len(self._text) > _LOOKED_AT:
            self._quiet = True

    def _announce_plans(self, data: Mapping[str, Any]) -> None:
        """Announces each plan that is whole, once."""
        whole = dict(data)
        if whole:
            whole.popitem()  # the last field may still grow
        plans = bool(whole.get("plan")) + bool(whole.get("plan_update"))
        while len(self._tools) < plans:
            self._announce(PLANNING)

    def _begin_answer(self, document: str) -> None:
        data = parse_partial(document, cut_texts=True)
        content = find_action(data).get("content")
        if not isinstance(content, str):
            return
        for found in reversed(list(_CONTENT.finditer(document))):
            tail = TextTail()
            if tail.feed(document[found.end() :]) == content:
                self._answer = tail
                self._show(content)
                return

    def _show(self, text: str) -> None:
        if text:
            self._shown.append(text)
            self._on_delta(TextDelta(text=text))

    def _announce(self, tool: str) -> None:
        index = len(self._tools)
        self._on_delta(CallDelta(index=index, tool=tool))
        self._tools.append(tool)


_CONTENT = re.compile(r'"content"\s*+:\s*+"')
_LOOKED_AT = 16_000  # characters before the action is known; each new piece reads them again
