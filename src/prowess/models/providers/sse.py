"""Turns the bytes of a provider's stream into events. No event is skipped; a broken event is an error.

The SDKs skip an event without a name, accept a stream that stops in the middle, and raise the errors of their JSON
parser. A reply must be whole, so events are read here, in the same way for every provider.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from prowess._internal.json_values import JsonObject

MAX_EVENT_BYTES = 32 * 1024 * 1024
_LINE_END = re.compile(rb"\r\n|\n|\r")


class BrokenEvent(Exception):
    """Event that is not a JSON object."""


class EventReader:
    """Reads events. `feed` yields those that are complete, `finish` the last one at the end of the stream."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._scanned = 0  # the rest has no line end before this position
        self._data: list[bytes] = []
        self._size_bytes = 0
        self.head = b""  # first bytes of the stream, for the error message if it is no event stream

    def feed(self, chunk: bytes) -> Iterator[JsonObject]:
        """Takes the next bytes and yields the events that they complete."""
        self.head = self.head or chunk[:200]
        self._rest += chunk
        while found := _LINE_END.search(self._rest, self._scanned):
            start, end = found.span()
            if end == len(self._rest) and found.group() == b"\r":
                self._scanned = start
                return  # the next byte decides between \r and \r\n
            line = bytes(self._rest[:start])
            del self._rest[:end]
            self._scanned = 0
            yield from self._take(line)
        self._scanned = len(self._rest)
        if len(self._rest) + self._size_bytes > MAX_EVENT_BYTES:
            raise BrokenEvent(f"an event is larger than {MAX_EVENT_BYTES} bytes")

    def finish(self) -> Iterator[JsonObject]:
        """Yields the last event, if the stream ended without a blank line."""
        line = bytes(self._rest).rstrip(b"\r")
        yield from self._take(line)
        self._rest.clear()
        yield from self._take(b"")

    def _take(self, line: bytes) -> Iterator[JsonObject]:
        if line:
            self._take_field(line)
            return
        data = b"\n".join(self._data).strip()
        self._data.clear()
        self._size_bytes = 0
        if data and data != b"[DONE]":
            yield parse_object(data)

    def _take_field(self, line: bytes) -> None:
        """Keeps the data of an event. Other fields have no meaning here."""
        field = line.removeprefix(b"\xef\xbb\xbf")
        name, _, value = field.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
            self._size_bytes += len(value)


def parse_object(data: bytes) -> JsonObject:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BrokenEvent(f"{_shown(data)} is not JSON") from error
    if not isinstance(value, dict):
        raise BrokenEvent(f"{_shown(data)} is not a JSON object")
    return value


def _shown(data: bytes) -> str:
    text = data[:80].decode("utf-8", "replace")
    if len(data) > 80:
        text += "…"
    return repr(text)
