"""A command in a terminal of its own: what a person would see, and what they could type."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from guard import GUARD_S

_ESCAPES = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07|\x1b[=>78]")


class Terminal:
    """`prowess WORDS` with stdin and stderr on a terminal, and stdout too unless it is to be read by itself. `program`:
    another one for Python to run."""

    def __init__(
        self,
        *words: str,
        cwd: Path,
        program: Sequence[str] = ("-m", "prowess"),
        environ: Mapping[str, str] | None = None,
        stdout: bool = True,
        columns: int = 100,
    ) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
        self.shown = b""
        self.modes = self.modes_left = termios.tcgetattr(theirs)  # as it was given, and as it was left
        self.process = subprocess.Popen(
            [sys.executable, *program, *words],
            cwd=cwd,
            env={**os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", **(environ or {})},
            stdin=theirs,
            stdout=theirs if stdout else subprocess.PIPE,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(theirs)

    def wait_for(self, text: str, *, after: int = 0) -> int:
        """Until it is shown, escape codes aside; the place behind it, for `after`."""
        place = self.find(text, after=after, wait_s=GUARD_S)
        assert place is not None, f"never shown: {text!r}\n{self.plain}"
        return place

    def find(self, text: str, *, after: int, wait_s: float) -> int | None:
        """The same; None when it was not shown in that time."""
        wanted, end = text.encode(), time.monotonic() + wait_s
        while True:
            place = _ESCAPES.sub(b"", self.shown).find(wanted, after)
            if place >= 0:
                return place + len(wanted)
            left = end - time.monotonic()
            if left <= 0 or not self._read(left):
                return None

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def finish(self) -> int:
        """Everything until it has ended, and its exit code."""
        while self._read():
            pass
        code = self.process.wait(GUARD_S)
        self.modes_left = termios.tcgetattr(self._ours)
        os.close(self._ours)
        return code

    @property
    def plain(self) -> str:
        return _ESCAPES.sub(b"", self.shown).decode(errors="replace")

    def _read(self, wait_s: float = GUARD_S) -> bool:
        ready, _, _ = select.select([self._ours], [], [], wait_s)
        try:
            piece = os.read(self._ours, 65536) if ready else b""
        except OSError:  # the other side is closed
            piece = b""
        self.shown += piece
        return bool(piece)


def _take_terminal() -> None:
    """So that Ctrl-C reaches it."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
