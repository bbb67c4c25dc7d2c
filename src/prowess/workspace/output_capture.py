"""A stream of any length is kept as its first and its last bytes, in memory that does not grow with it.

What passes through here is redacted first, then spilled whole, then cut: the redactor saw everything that is kept
anywhere. Cuts never split a character.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

DEFAULT_BYTES = 16 * 1024
_CONTINUATION = range(0x80, 0xC0)
_LONGEST = 4  # bytes in a character


class Transform(Protocol):
    """Such as a redactor, which holds back what may be the beginning of a secret until it knows."""

    def feed(self, data: bytes) -> bytes: ...
    def flush(self) -> bytes: ...
    def finish(self) -> bytes: ...


class Capture:
    """`feed` it a stream, `finish`, then ask for `text`. Of `limit_bytes`, half are for the start, half for the end."""

    def __init__(
        self,
        limit_bytes: int = DEFAULT_BYTES,
        *,
        spill: Callable[[bytes], object] | None = None,
        transform: Transform | None = None,
    ) -> None:
        self.seen_bytes = 0  # as they came
        self.total_bytes = 0  # as they left the transform, and as they were spilled
        self._spill = spill
        self._transform = transform
        self._head_bytes = limit_bytes - limit_bytes // 2
        self._tail_bytes = limit_bytes // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._finished = False

    def feed(self, data: bytes) -> None:
        self.seen_bytes += len(data)
        self._keep(self._transform.feed(data) if self._transform else data)

    def flush(self) -> None:
        """Let go what the transform holds back only to see whether it goes on: somebody waits for it."""
        if self._transform and not self._finished:
            self._keep(self._transform.flush())

    def finish(self) -> None:
        """The stream has ended: what the transform still holds back is let go. More than once does no harm."""
        if not self._finished:
            self._finished = True
            if self._transform:
                self._keep(self._transform.finish())

    @property
    def truncated(self) -> bool:
        return self.total_bytes > len(self._head) + len(self._tail_kept())

    @property
    def omitted_bytes(self) -> int:
        head, tail = self._cut()
        return self.total_bytes - len(head) - len(tail)

    @property
    def data(self) -> bytes:
        """Head and tail without a mark between them: everything, when nothing was left out."""
        head, tail = self._cut()
        return head + tail

    @property
    def text(self) -> str:
        """UTF-8, with U+FFFD for what is none, and where something was left out a line that says how much."""
        head, tail = self._cut()
        if not self.truncated:
            return (head + tail).decode("utf-8", "replace")
        mark = f"\n[… {self.omitted_bytes} bytes left out …]\n"
        return head.decode("utf-8", "replace") + mark + tail.decode("utf-8", "replace")

    def _keep(self, data: bytes) -> None:
        if not data:
            return
        self.total_bytes += len(data)
        if self._spill:
            self._spill(data)
        room = self._head_bytes - len(self._head)
        self._head += data[:room]
        self._tail += data[room:][-self._tail_bytes :] if self._tail_bytes else b""
        if len(self._tail) > 2 * self._tail_bytes:  # not at each byte: a stream may come in single ones
            del self._tail[: -self._tail_bytes]

    def _tail_kept(self) -> bytes:
        return bytes(self._tail[-self._tail_bytes :]) if self._tail_bytes else b""

    def _cut(self) -> tuple[bytes, bytes]:
        """The head without the beginning of its last character, the tail without the end of its first."""
        head, tail = bytes(self._head), self._tail_kept()
        return (_whole_end(head), _whole_start(tail)) if self.truncated else (head, tail)


def _whole_end(data: bytes) -> bytes:
    """Without a character at the end that is only begun. Bytes that are no UTF-8 anyway are left as they are."""
    for back in range(1, min(_LONGEST, len(data) + 1)):
        byte = data[-back]
        if byte not in _CONTINUATION:
            return data[:-back] if _length(byte) > back else data
    return data


def _whole_start(data: bytes) -> bytes:
    """Without the end of a character at the start."""
    for skip in range(min(_LONGEST, len(data) + 1)):
        if skip == len(data) or data[skip] not in _CONTINUATION:
            return data[skip:]
    return data


def _length(first: int) -> int:
    """How many bytes a character has that begins with this one."""
    return 1 + (first >= 0xC2) + (first >= 0xE0) + (0xF0 <= first <= 0xF4) if first <= 0xF4 else 1
