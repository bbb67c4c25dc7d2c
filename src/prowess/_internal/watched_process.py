"""Runs a program that is watched while it runs: in its own process group, with its input and output in files."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

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
    signal's handler raises, and when this process is killed."""
    import subprocess

    process = None
    try:
        with contextlib.ExitStack() as stack:
            paths = [os.path.join(folder, name) for name in _STREAMS]
            stdin, stdout, stderr = (stack.enter_context(open(path, "wb")) for path in paths)
            stdin.write(given)
            stdin.flush()
            stack.enter_context(hold_signals())  # else one could come when the program runs and nobody knows of it
            process = subprocess.Popen(  # noqa: S603 - the caller has checked the arguments
                ["/bin/sh", "-c", _LIFELINE, "sh", *argv],
                cwd=folder,
                env=env,
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        ended = None
        while ended is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                ended = process.wait(_POLL_S)
            watch()
        return ended
    finally:
        if process is not None and process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process is not None and process.stdin is not None:
            process.stdin.close()


@contextlib.contextmanager
def hold_signals() -> Iterator[None]:
    """Holds back signals that have a handler of ours until the block is left. Only the main thread gets signals."""
    came: list[int] = []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    ours = {number: handler for number, handler in handlers.items() if callable(handler)}
    if threading.current_thread() is not threading.main_thread():
        ours = {}
    try:
        for number in ours:
            signal.signal(number, lambda number, _: came.append(number))
        yield
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)
        for number in came:
            signal.raise_signal(number)


def size_of_files(folder: str) -> int:
    """Returns the size of the files in a folder, without those in folders below."""
    size = 0
    with contextlib.suppress(FileNotFoundError):  # the program renamed one in between, or there is no folder yet
        for entry in os.scandir(folder):
            size += entry.stat(follow_symlinks=False).st_size
    return size
