"""Builds the provider-neutral request and its bytes: one line of JSON for each tool, then one for each message.

Lines are encoded once and kept, so that a request costs only the lines that are new.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from prowess.core.codec import to_json
from prowess.core.values import Message, ToolSpec

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
        self.tools = tuple(tools)
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
        line = _encode(to_json(value)).encode("utf-8", "replace") + b"\n"
        self.lines.append(line)
        self._size += len(line)
        self._hash.update(line)

    def request(self) -> ModelRequest:
        sha256 = self._hash.hexdigest()
        return ModelRequest(self.tools, tuple(self.messages), self._size, sha256, self._has_images)


def first_change(before: Sequence[bytes], after: Sequence[bytes]) -> int | None:
    """Finds the offset of the first byte of `before` that differs in `after`. None if `after` only grew."""
    place = 0
    for index, line in enumerate(before):
        if index >= len(after):
            return place
        if after[index] != line:
            return place + next(i for i, (a, b) in enumerate(zip(line, after[index], strict=False)) if a != b)
        place += len(line)
    return None
