"""Builds the provider-neutral request and its bytes: one line of JSON for each tool, then one for each message.

Lines are encoded once and kept, so that a request costs only the lines that are new. The last message can still grow.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from prowess.agent.context.render import (
    CONTEXT,
    SkillTextRenderer,
    join,
    paired,
    render_message,
    render_went,
    shortened,
    shows,
    went_parts,
    without_above,
)
from prowess.agent.context.state import AnsweredCall, Item, Noted, State, find_result_place
from prowess.core.codec import to_json
from prowess.core.events import REQUEST_FORM, Compacted, RunStarted
from prowess.core.values import Message, Outcome, Part, ToolSpec
from prowess.tools.skills.state import part_ref

# Keys are sorted, because a log may change the order of fields.
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode
_TextKey = tuple[str, str, str]  # id and digest of a skill, and the path of a text of it


class ModelRequest(NamedTuple):
    tools: tuple[ToolSpec, ...]
    messages: tuple[Message, ...]
    size_bytes: int
    sha256: str
    has_images: bool


class RequestLines:
    """Tools and messages with their bytes, and the hash of all bytes before the last message."""

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

    @property
    def last(self) -> Message | None:
        if not self.messages:
            return None
        return self.messages[-1]

    def append(self, message: Message) -> None:
        self.messages.append(message)
        self._note_parts(message)
        self._add(message)

    def replace_last(self, message: Message) -> None:
        """Replaces the last message by one that has its parts and more."""
        self.messages[-1] = message
        self._note_parts(message)
        old = self.lines.pop()
        self._size -= len(old)
        line = _encode_line(message)
        self.lines.append(line)
        self._size += len(line)

    def _note_parts(self, message: Message) -> None:
        for part in message.parts:
            if part.ref:
                self.refs.add(part.ref)
            if part.kind == "image":
                self._has_images = True

    def _add(self, value: ToolSpec | Message) -> None:
        if self.lines:
            self._hash.update(self.lines[-1])
        line = _encode_line(value)
        self.lines.append(line)
        self._size += len(line)

    def request(self) -> ModelRequest:
        whole = self._hash.copy()
        if self.lines:
            whole.update(self.lines[-1])
        sha256 = whole.hexdigest()
        return ModelRequest(self.tools, tuple(self.messages), self._size, sha256, self._has_images)


def _encode_line(value: ToolSpec | Message) -> bytes:
    text = _encode(to_json(value))
    return text.encode("utf-8", "replace") + b"\n"


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
        self.is_strict: bool = False  # only a reply follows tool results
        self._shown = shown
        self._state = state
        self._answered: set[str] = set()
        self._sent: list[bytes] = []  # lines of the last request
        self._compacted = 0  # number of the request at the last compaction, which drops skill arguments
        self._at: dict[_TextKey, str] = {}  # text of a skill -> call whose result shows it now

    def start_run(self, event: RunStarted) -> None:
        self.load_mode = event.load_mode
        self.is_in_system = event.placement == "system"
        self.is_strict = event.versions.get("requests") == REQUEST_FORM

    def forget_view(self) -> None:
        """Forgets the texts of skills in view, because the next epoch leaves them out."""
        if self.is_strict:
            self.lines.refs.clear()

    def add(self, item: Item) -> None:
        self.items.append(item)
        shown = self._shown_now(item)
        message = render_message(item, shown)
        if message is None:
            return
        last = self.lines.last
        if last is None or not self.is_strict:
            self.lines.append(message)
            return
        first, *rest = join(last, item, message)
        if first is not last:
            self.lines.replace_last(first)
        for message in rest:
            self.lines.append(message)

    def answer(self, call_id: str, outcome: Outcome, *, own: bool = True) -> bool:
        """Adds an outcome. The old outcome of a call that waited or was interrupted is replaced, and one that comes
        late is put beside those of the same reply: then returns True, and the next request has to begin an epoch."""
        item = AnsweredCall(self.number, call_id, outcome, own)
        if own and call_id in self._answered:
            for index, old in enumerate(self.items):
                if isinstance(old, AnsweredCall) and old.call_id == call_id:
                    self.items[index] = item
                    self._shown_now(item)
                    return True
        self._answered.add(call_id)
        place = find_result_place(self.items, call_id)
        if own and self.is_strict and place < len(self.items):
            self.items.insert(place, item)
            self._shown_now(item)
            return True
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
        left = {item.call_id for item in self.items if isinstance(item, AnsweredCall)}
        self._at = {key: call_id for key, call_id in self._at.items() if call_id in left}

    def note_sent(self) -> None:
        """Notes that a model sees all lines so far."""
        self._sent = list(self.lines.lines)

    def _shown_now(self, item: Item) -> list[Part]:
        """Texts that a call puts into view, from now on in this place."""
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
                self._at[data["skill"], data["digest"], path] = item.call_id
        return parts + self._shown.argument_parts(item.outcome)

    # --- epochs -----------------------------------------------------------------------------------------------------

    def start_epoch(self, system: str | None, tools: tuple[ToolSpec, ...] | None) -> None:
        """Builds the request anew, with another system prompt and other tools, if given."""
        if system is not None:
            self.system = system
        if tools is not None:
            self.tools = tools
        self.lines = self._build(self.system, self.tools)
        self._sent = []

    def first_change(self, system: str, tools: tuple[ToolSpec, ...]) -> int | None:
        """Finds the first byte of the last request that a new epoch would change."""
        before = self._sent
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
        told = {part.ref for part in wanted.values()}
        placed = [(item, self._shown_again(item, wanted)) for item in self.items]
        if self.is_strict:
            told = {part.ref for part in wanted.values()}  # of texts that come first
        messages: list[Message] = []
        for item, shown in placed:
            if isinstance(item, Noted) and not item.stays:
                continue
            if isinstance(item, AnsweredCall):
                told.update(part.ref for part in shown)
                item = self._without_gone(item, told)
            message = render_message(item, shown)
            if message is None:
                continue
            if self.is_strict:
                last = messages[-1] if messages else None
                messages[-1:] = join(last, item, message)
            else:
                messages.append(message)
        first: list[Message] = []
        if system:
            prompt = Part(text=system)
            first.append(Message(role="system", parts=(prompt,)))
        if wanted:
            heading = Part(text=CONTEXT, ref="note:context")
            first.append(Message(role="system", parts=(heading, *wanted.values())))
        return RequestLines(tools, first + paired(messages))

    def _shown_again(self, item: Item, wanted: dict[_TextKey, Part]) -> list[Part]:
        """Texts that an earlier result shows in the new epoch. Takes them from `wanted`: each is shown once, where it
        was shown before."""
        if self.is_in_system or not isinstance(item, AnsweredCall):
            return []
        if not self._may_show(item):
            return went_parts(item) if self.is_strict else []
        data = item.outcome.data
        shown: list[Part] = []
        for path in shows(item.outcome):
            key = (data["skill"], data["digest"], path)
            if self.is_strict and self._at.get(key, item.call_id) != item.call_id:
                continue
            part = wanted.pop(key, None)
            if part is not None:
                shown.append(part)
        is_kept = item.request == self.number or self.is_strict
        if is_kept and item.request > self._compacted:
            shown += self._shown.argument_parts(item.outcome)
        return shown

    def _without_gone(self, item: AnsweredCall, told: Collection[str | None]) -> AnsweredCall:
        """Replaces what a result says of texts that are no longer above it. `told` are the refs of those that are."""
        if self._may_show(item):
            return without_above(item, told)
        item = without_above(item, ())
        return render_went(item) if self.is_strict else item

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
