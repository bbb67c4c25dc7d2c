"""run_watched: whatever ends us ends the program, too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

import pytest

from guard import GUARD_S
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


# At every line of ours and of the parts that it uses, until the first look. A loop has three rounds, and the
# one that waits has one.
EVERY_MOMENT = """
import collections, os, signal, sys
from prowess._internal.watched_process import run_watched

class Terminated(BaseException):
    pass

def end(number, _):
    raise Terminated

def over():
    raise TimeoutError

def trace(frame, event, _):
    global left
    if not frame.f_code.co_filename.endswith(("subprocess.py", "watched_process.py", "contextlib.py")):
        return None
    if event == "line":
        place = (frame.f_code, frame.f_lineno)
        seen[place] += 1
        left -= seen[place] <= (1 if place[0].co_name == "_wait" else 3)
        if left == 0:
            sys.settrace(None)
            signal.raise_signal(signal.SIGTERM)
    return trace

signal.alarm(int(sys.argv[2]))
numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
for each in numbers:
    signal.signal(each, end)
moment, ended = 0, Terminated
while ended is Terminated:
    moment += 1
    left, seen = moment, collections.Counter()
    try:
        sys.settrace(trace)
        run_watched(["/bin/sleep", "300"], sys.argv[1], env={}, watch=over)
    except (Terminated, TimeoutError) as error:
        ended = type(error)
    sys.settrace(None)
    try:
        os.waitpid(-1, os.WNOHANG)
        sys.exit(f"{moment}: the program runs on")
    except ChildProcessError:
        pass
    for each in numbers:
        try:
            signal.raise_signal(each)
            sys.exit(f"{moment}: {signal.Signals(each).name} is lost from now on")
        except Terminated:
            pass
print(moment)
"""


def test_a_signal_at_any_moment_ends_the_program_and_none_is_lost(tmp_path: Path) -> None:
    command = [sys.executable, "-c", EVERY_MOMENT, str(tmp_path), str(GUARD_S)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 100
