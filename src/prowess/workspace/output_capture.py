"""Keeps the start and end of stdout and stderr in memory for the model, and the whole output in a file.

Each stream is redacted, then written to the file, then cut, so no secret is kept anywhere. Memory use does not grow
with the stream. A cut never splits a character.

The file is written where no script can reach it, and moved to runs/ only if the stream was cut. Its size is limited: a
program that prints for ever must not fill the disk.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import BinaryIO, Protocol

from prowess.core.ports import Redaction
from prowess.workspace.session_folder import Place

DEFAULT_BYTES = 16 * 1024
_CONTINUATION = range(0x80, 0xC0)
_LONGEST = 4  # bytes in a character


class Transform(Protocol):
    """Filter for a stream, such as a redactor, which holds back bytes that may be the start of a secret."""

    def feed(self, data: bytes) -> bytes: ...
    def flush(self) -> bytes: ...
    def finish(self) -> bytes: ...


class Capture:
    """Start and end of one stream. Call `feed`, then `finish`, then read `text`. Each gets half of `limit_bytes`."""

    def __init__(
        self,
        limit_bytes: int = DEFAULT_BYTES,
        *,
        spill: Callable[[bytes], object] | None = None,
        transform: Transform | None = None,
    ) -> None:
        self.seen_bytes: int = 0  # before the transform
        self.total_bytes: int = 0  # after the transform, as spilled
        self._spill = spill
        self._transform = transform
        self._head_bytes = limit_bytes - limit_bytes // 2
        self._tail_bytes = limit_bytes // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._finished = False

    def feed(self, data: bytes) -> None:
        self.seen_bytes += len(data)
        if self._transform:
            data = self._transform.feed(data)
        self._keep(data)

    def flush(self) -> None:
        """Takes the bytes that the transform holds back only until it sees more. A reader waits for them now."""
        if self._transform and not self._finished:
            self._keep(self._transform.flush())

    def finish(self) -> None:
        """Ends the stream and takes the bytes that the transform still holds back. Can be called more than once."""
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
        """Head and tail without a mark between them. Nothing cut: the whole stream."""
        head, tail = self._cut()
        return head + tail

    @property
    def text(self) -> str:
        """Head and tail as text, with a line between them that says how much was left out. Invalid UTF-8 is U+FFFD."""
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
        if len(self._tail) > 2 * self._tail_bytes:  # not on each call: a stream may come in single bytes
            del self._tail[: -self._tail_bytes]

    def _tail_kept(self) -> bytes:
        if self._tail_bytes:
            return bytes(self._tail[-self._tail_bytes :])
        return b""

    def _cut(self) -> tuple[bytes, bytes]:
        """Head and tail, without the parts of characters at the cut."""
        head = bytes(self._head)
        tail = self._tail_kept()
        if self.truncated:
            return (_whole_end(head), _whole_start(tail))
        return (head, tail)


def _whole_end(data: bytes) -> bytes:
    """Removes an incomplete character at the end. Leaves bytes alone that are not UTF-8."""
    for back in range(1, min(_LONGEST, len(data) + 1)):
        byte = data[-back]
        if byte not in _CONTINUATION:
            if _length(byte) > back:
                return data[:-back]
            return data
    return data


def _whole_start(data: bytes) -> bytes:
    """Removes the rest of a character at the start."""
    for skip in range(min(_LONGEST, len(data) + 1)):
        if skip == len(data) or data[skip] not in _CONTINUATION:
            return data[skip:]
    return data


def _length(first: int) -> int:
    """Length in bytes of a character, by its first byte."""
    if first <= 0xF4:
        return 1 + (first >= 0xC2) + (first >= 0xE0) + (0xF0 <= first <= 0xF4)
    return 1


STREAMS = ("stdout", "stderr")
SPILL_BYTES = 256 << 20


class Printed:
    """Captured stdout and stderr of one run."""

    def __init__(
        self,
        place: Place,
        run: str,
        redaction: Redaction,
        *,
        limit_bytes: int = DEFAULT_BYTES,
        on_output: Callable[[str, bytes], None] | None = None,
    ) -> None:
        self._on_output = on_output
        self.refs: dict[str, str] = {}
        self.warnings: list[str] = []
        self.untold: list[str] = []  # warnings that a model does not need: `refs` say as much, or only people can act
        self._spills = {stream: _Spill(place, run, stream, limit_bytes) for stream in STREAMS}
        self.stdout: Capture = self._capture("stdout", limit_bytes, redaction)
        self.stderr: Capture = self._capture("stderr", limit_bytes, redaction)

    def say(self, text: str) -> None:
        """Sets stderr to a message of ours when the program could not start."""
        self.stderr = Capture()
        self.stderr.feed(f"{text}\n".encode("utf-8", "replace"))

    def close(self) -> None:
        """Ends both streams. Keeps the file of a stream that was cut, and removes the other."""
        for stream, capture in (("stdout", self.stdout), ("stderr", self.stderr)):
            capture.finish()
            spill = self._spills[stream]
            if capture.truncated:
                ref = spill.keep()
                self.refs[stream] = ref
                kept = f"the first {SPILL_BYTES} bytes are" if spill.full else "all of it is"
                has = f"{stream} has {capture.total_bytes} bytes; a result holds its start and end"
                self._warn_people(f"{has}, {kept} in {ref}.")
                if spill.problem:
                    self.warnings.append(f"Not all of {stream} could be kept: {spill.problem}.")
            spill.close()

    def _capture(self, stream: str, limit_bytes: int, redaction: Redaction) -> Capture:
        spill = self._spills[stream]

        def take(data: bytes) -> None:
            spill.write(data)
            self._tell(stream, data)

        return Capture(limit_bytes, spill=take, transform=redaction.fresh())

    def _tell(self, stream: str, data: bytes) -> None:
        """Calls `on_output`. An error in it becomes a warning and does not stop the run."""
        if self._on_output is None:
            return
        try:
            self._on_output(stream, data)
        except Exception as error:  # noqa: BLE001 - a callback of the caller
            self._on_output = None
            self._warn_people(f"Whoever watched the output does not work: {type(error).__name__}: {error}")

    def _warn_people(self, warning: str) -> None:
        self.warnings.append(warning)
        self.untold.append(warning)


class _Spill:
    """File for output that does not fit in a result, created on demand. A full disk is a warning, not an error."""

    def __init__(self, place: Place, run: str, stream: str, after_bytes: int) -> None:
        self._target = f"runs/{run}.{stream}.txt"
        self._kept = os.path.join(place.root, self._target)
        self._path = os.path.join(place.path, f"{run}.{stream}")
        self._place = place
        self._after_bytes = after_bytes
        self._start = bytearray()
        self._file: BinaryIO | None = None
        self._size = 0
        self.full = False
        self.problem = ""

    def write(self, data: bytes) -> None:
        if self._file is None and not self.problem:
            self._start += data
            if len(self._start) <= self._after_bytes:
                return
            data = bytes(self._start)
            self._start.clear()
        room = SPILL_BYTES - self._size
        self.full = self.full or len(data) > room
        try:
            if self._file is None and not self.problem:
                fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
                self._file = open(fd, "wb")  # noqa: SIM115 - open as long as the stream
            if self._file is not None and room > 0 and not self.problem:
                self._file.write(data[:room])
                self._size += len(data[:room])
        except OSError as error:
            self.problem = (error.strerror or str(error)).lower()

    def keep(self) -> str:
        try:
            if self._file is not None:
                self._file.close()
                self._place.share(self._path, os.R_OK)
                os.rename(self._path, self._kept)
        except OSError as error:
            self.problem = (error.strerror or str(error)).lower()
        return f"workspace://{self._target}"

    def close(self) -> None:
        if self._file is not None:
            try:
                self._file.close()
            except OSError as error:
                self.problem = (error.strerror or str(error)).lower()
            self._file = None
        if os.path.lexists(self._path):
            os.unlink(self._path)
