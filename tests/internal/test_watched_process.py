"""run_watched: whatever ends us ends the program, too."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

import pytest

from prowess._internal.watched_process import run_watched


class Terminated(BaseException):
    """What a handler raises."""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_at_the_moment_of_the_start_ends_the_program(tmp_path: Path, number: int) -> None:
    started: list[int] = []

    def end(number: int, _: object) -> NoReturn:
        raise Terminated

    def at_the_start(frame: FrameType, event: str, _: object) -> None:
        if event == "return" and frame.f_code.co_name == "_execute_child":  # it runs, and run_watched has no number yet
            sys.setprofile(None)
            started.append(frame.f_locals["self"].pid)
            signal.raise_signal(number)

    before = signal.signal(number, end)
    try:
        sys.setprofile(at_the_start)
        with pytest.raises(Terminated):
            run_watched(["/bin/sleep", "300"], str(tmp_path), env={}, watch=lambda: None)
        assert signal.getsignal(number) is end
        with pytest.raises(ProcessLookupError):
            os.kill(started[0], signal.SIGKILL)
    finally:
        sys.setprofile(None)
        signal.signal(number, before)


def test_a_program_reads_writes_and_ends_as_itself(tmp_path: Path) -> None:
    program = "import sys; print(sys.stdin.read()); sys.exit(7)"
    ended = run_watched([sys.executable, "-c", program], str(tmp_path), env={}, given=b"a\nb", watch=lambda: None)
    assert ended == 7
    assert (tmp_path / "output").read_text() == "a\nb\n"
    assert (tmp_path / "errors").read_text() == ""
