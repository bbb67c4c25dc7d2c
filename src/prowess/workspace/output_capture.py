"""A stream of any length is kept as its first and its last bytes, in memory that does not grow with it.

What passes through here is redacted first, then spilled whole, then cut: the redactor saw everything that is kept
anywhere. Cuts never split a character.

What a program prints, kept as head and tail for a model and whole in a file, both without secrets.

The file is written where no script can reach it, and is put under runs/ only if something was left out of the head and
tail. It is bounded, too: a program that prints for ever must not fill the disk.
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


STREAMS = ("stdout", "stderr")
SPILL_BYTES = 256 << 20


class Printed:
    """Both outputs of one run."""

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
        self._spills = {stream: _Spill(place, run, stream, limit_bytes) for stream in STREAMS}
        self.stdout = self._capture("stdout", limit_bytes, redaction)
        self.stderr = self._capture("stderr", limit_bytes, redaction)

    def say(self, text: str) -> None:
        """A word of ours where the program could not say one."""
        self.stderr = Capture()
        self.stderr.feed(f"{text}\n".encode("utf-8", "replace"))

    def close(self) -> None:
        """The streams have ended: keep what does not fit the result, and forget the rest."""
        for stream, capture in (("stdout", self.stdout), ("stderr", self.stderr)):
            capture.finish()
            spill = self._spills[stream]
            if capture.truncated:
                self.refs[stream] = spill.keep()
                self.warnings.append(
                    f"{stream} has {capture.total_bytes} bytes; a result holds its start and end, "
                    f"{'the first ' + str(SPILL_BYTES) + ' bytes are' if spill.full else 'all of it is'} "
                    f"in {self.refs[stream]}."
                )
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
        """Whoever watches can neither stop nor break a run."""
        if self._on_output is None:
            return
        try:
            self._on_output(stream, data)
        except Exception as error:  # noqa: BLE001 - it is anybody's code
            self._on_output = None
            self.warnings.append(f"Whoever watched the output does not work: {type(error).__name__}: {error}")


class _Spill:
    """A file that is made when there is more than a result can hold. A full disk is said, and ends nothing."""

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
                self._file = open(fd, "wb")  # noqa: SIM115 - it is open as long as the stream
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
