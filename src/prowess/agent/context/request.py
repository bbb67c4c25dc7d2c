"""Builds the provider-neutral request and its bytes: one line of JSON for each tool, then one for each message.

Lines are encoded once and kept, so that a request costs only the lines that are new.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from prowess.agent.context.render import (
    CONTEXT,
    SkillTextRenderer,
    paired,
    render_messages,
    shortened,
    shows,
    without_above,
)
from prowess.agent.context.state import AnsweredCall, Item, Noted, State
from prowess.core.codec import to_json
from prowess.core.events import Compacted, RunStarted
from prowess.core.values import Message, Outcome, Part, ToolSpec
from prowess.tools.skills.state import part_ref

# Keys are sorted, because a log may change the order of fields.
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode


class ModelRequest(NamedTuple):
    tools: tuple[ToolSpec, ...]
    messages: tuple[Message, ...]
    size_bytes: int
    sha256: str
    has_images: bool


class RequestLines:
    """Tools and messages with their bytes, and the hash of all bytes so far."""

    def __init__(self, tools: Iterable[ToolSpec] = (), messages: Iterable[Message] = ()) -> None:
        self.tools: tuple[ToolSpec, ...] = tuple(tools)
        self.messages: list[Message] = []
        self.refs: set[str] = set()  # refs of the texts in this request
        self.lines: list[bytes] = []
        self._has_images = False
        self._size = 0
        self._hash = hashlib.sha256()
        for tool in self.tools:
            self._add(tool)
        for message in messages:
            self.append(message)

    def append(self, message: Message) -> None:
        self.messages.append(message)
        for part in message.parts:
            if part.ref:
                self.refs.add(part.ref)
            if part.kind == "image":
                self._has_images = True
        self._add(message)

    def _add(self, value: ToolSpec | Message) -> None:
        text = _encode(to_json(value))
        line = text.encode("utf-8", "replace") + b"\n"
        self.lines.append(line)
        self._size += len(line)
        self._hash.update(line)

    def request(self) -> ModelRequest:
        sha256 = self._hash.hexdigest()
        return ModelRequest(self.tools, tuple(self.messages), self._size, sha256, self._has_images)


class RequestDraft:
    """Items of a conversation, and the request that they make. The request only grows until another epoch begins."""

    def __init__(self, shown: SkillTextRenderer, state: State) -> None:
        """Takes the state of the session, which says the texts of skills that are in use."""
        self.items: list[Item] = []
        self.number = 0  # number of the current request of the user
        self.lines: RequestLines = RequestLines()
        self.system: str = ""
        self.tools: tuple[ToolSpec, ...] = ()
        self.load_mode: str | None = None
        self.is_in_system: bool = False  # texts of skills are in the system message
        self._shown = shown
        self._state = state
        self._answered: set[str] = set()
        self._sent = 0  # number of lines that a model has seen
        self._compacted = 0  # number of the request at the last compaction, which drops skill arguments

    def start_run(self, event: RunStarted) -> None:
        self.load_mode = event.load_mode
        self.is_in_system = event.placement == "system"

    def add(self, item: Item) -> None:
        self.items.append(item)
        shown = self._shown_now(item)
        for message in render_messages(item, shown):
            self.lines.append(message)

    def answer(self, call_id: str, outcome: Outcome, *, own: bool = True) -> bool:
        """Adds an outcome. The old outcome of a call that waited or was interrupted is replaced: then returns True,
        and the next request has to begin an epoch."""
        item = AnsweredCall(self.number, call_id, outcome, own)
        if own and call_id in self._answered:
            for index, old in enumerate(self.items):
                if isinstance(old, AnsweredCall) and old.call_id == call_id:
                    self.items[index] = item
                    return True
        self._answered.add(call_id)
        self.add(item)
        return False

    def compact(self, event: Compacted) -> None:
        """Drops and shortens items. The lines change with the next epoch."""
        kept = self.items[event.dropped :]
        self.items = [shortened(item, event.replaced) for item in kept]
        if event.summary:
            summary = Noted(self.number, "summary", event.summary)
            self.items.insert(0, summary)
        self._compacted = self.number

    def note_sent(self) -> None:
        """Notes that a model sees all lines so far."""
        self._sent = len(self.lines.lines)

    def _shown_now(self, item: Item) -> list[Part]:
        """Texts that a call puts into view."""
        if not isinstance(item, AnsweredCall) or self.is_in_system:
            return []
        data = item.outcome.data
        parts: list[Part] = []
        for path in shows(item.outcome):
            if part_ref(data["skill"], data["digest"], path) in self.lines.refs:
                continue
            part = self._shown.part(data["skill"], data["digest"], path)
            if part is not None:
                parts.append(part)
        return parts + self._shown.argument_parts(item.outcome)

    # --- epochs -----------------------------------------------------------------------------------------------------

    def start_epoch(self, system: str | None, tools: tuple[ToolSpec, ...] | None) -> None:
        """Builds the request anew, with another system prompt and other tools, if given."""
        if system is not None:
            self.system = system
        if tools is not None:
            self.tools = tools
        self.lines = self._build(self.system, self.tools)
        self._sent = 0

    def first_change(self, system: str, tools: tuple[ToolSpec, ...]) -> int | None:
        """Finds the first byte of the last request that a new epoch would change."""
        before = self.lines.lines[: self._sent]
        if not before:
            return None
        after = self._build(system, tools).lines
        change = first_change(before, after)
        if change is None:
            return sum(map(len, before))
        return change

    def keep_tools(self, tools: tuple[ToolSpec, ...]) -> None:
        """Replaces tools read from the log by equal ones with the original order of fields, which a log may change."""
        if tools == self.tools:
            self.tools = tools

    def _build(self, system: str, tools: tuple[ToolSpec, ...]) -> RequestLines:
        """Builds the whole request again. Unused texts are left out; texts whose result is gone come first."""
        wanted = self._shown.parts(self._state.wanted())
        told = set(wanted)
        messages: list[Message] = []
        for item in self.items:
            if isinstance(item, Noted) and item.kind != "summary":
                continue
            shown: list[Part] = []
            if isinstance(item, AnsweredCall):
                shown = self._shown_again(item, wanted)
                item = without_above(item, told if self._may_show(item) else ())
            messages += render_messages(item, shown)
        first: list[Message] = []
        if system:
            prompt = Part(text=system)
            first.append(Message(role="system", parts=(prompt,)))
        if wanted:
            heading = Part(text=CONTEXT, ref="note:context")
            first.append(Message(role="system", parts=(heading, *wanted.values())))
        return RequestLines(tools, first + paired(messages))

    def _shown_again(self, item: AnsweredCall, wanted: dict[tuple[str, str, str], Part]) -> list[Part]:
        """Texts that an earlier result shows in the new epoch. Takes them from `wanted`: each is shown once."""
        if self.is_in_system or not self._may_show(item):
            return []
        data = item.outcome.data
        shown: list[Part] = []
        for path in shows(item.outcome):
            part = wanted.pop((data["skill"], data["digest"], path), None)
            if part is not None:
                shown.append(part)
        if item.request == self.number and self._compacted != self.number:
            shown += self._shown.argument_parts(item.outcome)
        return shown

    def _may_show(self, item: AnsweredCall) -> bool:
        """True if a result may show texts. In turn mode, results of earlier requests stay stubs."""
        return item.request == self.number or self.load_mode == "session"


def first_change(before: Sequence[bytes], after: Sequence[bytes]) -> int | None:
    """Finds the offset of the first byte of `before` that differs in `after`. None if `after` only grew."""
    place = 0
    for index, line in enumerate(before):
        if index >= len(after):
            return place
        if after[index] != line:
            return place + _first_difference(line, after[index])
        place += len(line)
    return None


def _first_difference(one: bytes, other: bytes) -> int:
    """Finds the first byte that differs. Every line ends with a line feed, so none is the beginning of another."""
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return index
    raise AssertionError("unreachable")
