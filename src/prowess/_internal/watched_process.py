"""Runs a program that is watched while it runs: in its own process group, with its input and output in files."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType

_STREAMS = ("input", "output", "errors")
_POLL_S = 0.1
# Runs "$@" and a reader of a pipe that only we can write to. When we are gone, by whatever signal, the pipe ends, and
# the reader kills the process group, which is also its own.
_LIFELINE = """
exec 3<&0
{ read -r _ <&3; kill -KILL 0; } &
"$@" <input 3<&-
ended=$?
{ kill -KILL $!; wait $!; } 2>/dev/null
exit $ended
"""


def run_watched(
    argv: Sequence[str], folder: str, *, env: Mapping[str, str], given: bytes = b"", watch: Callable[[], None]
) -> int:
    """Returns the exit code of a program that ran in `folder`. The files `input`, `output` and `errors` there are its
    streams, so that nothing waits for a reader. The whole process group is killed by an error that `watch` or a
    signal's handler raises, and when this process is killed. A handler is called between two looks at the program."""
    import subprocess

    with contextlib.ExitStack() as stack:
        paths = [os.path.join(folder, name) for name in _STREAMS]
        stdin, stdout, stderr = (stack.enter_context(open(path, "wb")) for path in paths)
        stdin.write(given)
        stdin.flush()
        # An exception of a handler inside Popen would leave a program that nobody knows, inside `wait` a lock that is
        # never free, and inside `__del__` it would be lost.
        call_handlers = stack.enter_context(hold_signals())
        process = subprocess.Popen(  # noqa: S603 - the caller has checked the arguments
            ["/bin/sh", "-c", _LIFELINE, "sh", *argv],
            cwd=folder,
            env=env,
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        try:
            while process.returncode is None:
                call_handlers()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_S)
                watch()
            return process.returncode
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            if process.stdin is not None:
                process.stdin.close()
            del process  # while signals are held, also after an error, whose traceback has this frame


@contextlib.contextmanager
def hold_signals() -> Iterator[Callable[[], None]]:
    """Holds back signals that have a handler of ours until the block is left, or until the function that it yields is
    called. Only the main thread gets signals."""
    came: list[int] = []
    is_held = True
    ours: dict[int, Callable[[int, FrameType | None], object]] = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        handler = signal.getsignal(number)
        if callable(handler):
            ours[number] = handler
    if threading.current_thread() is not threading.main_thread():
        ours = {}

    def take(number: int, frame: FrameType | None) -> None:
        if is_held:
            came.append(number)
        else:  # another handler raised while they were put back
            ours[number](number, frame)

    def call_handlers() -> None:
        while came:
            number = came.pop(0)
            ours[number](number, None)

    try:
        for number in ours:
            signal.signal(number, take)
        yield call_handlers
    finally:
        is_held = False
        try:
            for number, handler in ours.items():
                if signal.getsignal(number) is take:  # else a handler chose another one
                    signal.signal(number, handler)
        finally:
            call_handlers()


def size_of_files(folder: str) -> int:
    """Returns the size of the files in a folder, without those in folders below."""
    size = 0
    with contextlib.suppress(FileNotFoundError):  # the program renamed one in between, or there is no folder yet
        for entry in os.scandir(folder):
            size += entry.stat(follow_symlinks=False).st_size
    return size
