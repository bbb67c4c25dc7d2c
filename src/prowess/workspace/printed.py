"""What a program prints, kept as head and tail for a model and whole in a file, both without secrets.

The file is written where no script can reach it, and is put under runs/ only if something was left out of the head and
tail. It is bounded, too: a program that prints for ever must not fill the disk.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import BinaryIO

from prowess.core.ports import Redaction
from prowess.workspace.output_capture import DEFAULT_BYTES, Capture
from prowess.workspace.session_folder import Place

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
