"""Finds and ends every process below this one, even if it left its group, its session or its parent.

The caller is a subreaper: a process that loses its parent becomes the caller's child, so "no child left" means "nothing
left". Runs in the supervisor and its children, with only the standard library.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Container, Iterator

SWEEP_S = 5.0  # how long to wait for a process that survives SIGKILL and does nothing
TELL_S = 0.25
_AT_ONCE = 64  # processes to wait for together
Work = tuple[str, int]  # state of a process, and the processor time that it has used


def end_all(
    reap: Callable[[], bool],
    spare: Container[int] = (),
    *,
    tell: Callable[[], None] = lambda: None,
    patience_s: float = SWEEP_S,
) -> tuple[int, int]:
    """Kills everything below this process until `reap` finds nothing left. Returns (number killed, number left).

    Ending can take long: giving back 6 GB takes seconds. So a killed process is waited for while it works, and `tell`
    is called every TELL_S. Those that did nothing for `patience_s` are left.
    """
    killed: set[int] = set()
    marks: dict[int, Work | None] = {}
    told_at = time.monotonic()
    until = 0.0
    while reap():
        alive = list(below(os.getpid(), spare))
        for pid, parent in alive:
            if _signal(pid, parent, signal.SIGKILL):
                killed.add(pid)
        ending = {pid: _work(pid) for pid, _ in alive}
        now = time.monotonic()
        if now > until:
            if until and not any(_works(ending.get(pid), mark) for pid, mark in marks.items()):
                return len(killed), len(alive)
            # Only these are looked at next time: a fork bomb has new ones each time, and is not waited for.
            marks = {pid: work for pid, work in ending.items() if pid in killed}
            until = now + patience_s
        if now - told_at > TELL_S:
            tell()
            told_at = now
        busy = [pid for pid, work in ending.items() if work and work[0] != "Z"]
        _wait_for_one(busy, min(TELL_S, patience_s))
    return len(killed), 0


def _work(pid: int) -> Work | None:
    try:
        fields = _stat(pid)
    except OSError:
        return None
    ticks = int(fields[11]) + int(fields[12])
    state = fields[0].decode()
    return state, ticks


def _works(now: Work | None, before: Work | None) -> bool:
    if now is None:
        return False
    if now[0] == "R":
        return True
    return now != before


def _wait_for_one(pids: list[int], most_s: float) -> None:
    """Waits until one of these processes has ended, at most `most_s`; a moment when none can be waited for."""
    poll = select.poll()
    fds: list[int] = []
    for pid in pids[:_AT_ONCE]:
        try:
            fds.append(os.pidfd_open(pid))
        except OSError:  # it is gone, or the kernel does not have this
            continue
        poll.register(fds[-1], select.POLLIN)
    poll.poll(most_s * 1000 if fds else 0.5)
    for fd in fds:
        os.close(fd)


def ask_to_end(spare: int = 0) -> None:
    """Sends SIGTERM to everything below this process, and SIGCONT, because a stopped process does not handle SIGTERM.
    `spare` is a wrapper: it ends with its program, and would kill the program at once if it got the signal first."""
    for pid, parent in list(below(os.getpid())):
        if pid != spare:
            _signal(pid, parent, signal.SIGTERM)
            _signal(pid, parent, signal.SIGCONT)


def ended_children() -> Iterator[tuple[int, int]]:
    """Yields (pid, status) of every child that has ended, once each."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, status


def any_left() -> bool:
    """True when a child is left. Reaps nothing."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def below(root: int, spare: Container[int] = ()) -> Iterator[tuple[int, int]]:
    """Yields (pid, parent) of every process below `root`, without those in `spare` and below them."""
    waiting = [root]
    while waiting:
        parent = waiting.pop()
        for pid in children(parent):
            if pid not in spare:
                yield pid, parent
                waiting.append(pid)


def children(parent: int) -> list[int]:
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{parent}/task"):
            with open(f"/proc/{parent}/task/{task}/children", "rb") as file:
                found += map(int, file.read().split())
    except FileNotFoundError:
        if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
            return _children_by_scan(parent)
    except OSError:  # the process ended in the meantime
        pass
    return found


def _children_by_scan(parent: int) -> list[int]:
    """Finds children by scanning /proc, for kernels built without lists of children."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if _state_and_parent(int(name))[1] == parent:
                    found.append(int(name))
            except OSError:
                continue
    return found


def _signal(pid: int, parent: int, number: int) -> bool:
    """Signals a process that was seen below this one. A child of ours keeps its pid until it is reaped. Any other
    process may be gone and its pid reused, so it is first held by a descriptor and checked again."""
    try:
        if parent == os.getpid():
            os.kill(pid, number)
            return True
        held = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        state, current = _state_and_parent(pid)
        if state in "ZX" or current not in (parent, os.getpid()):
            return False
        signal.pidfd_send_signal(held, number)
        return True
    except OSError:
        return False
    finally:
        os.close(held)


def _state_and_parent(pid: int) -> tuple[str, int]:
    state, parent = _stat(pid)[:2]
    return state.decode(), int(parent)


def _stat(pid: int) -> list[bytes]:
    """Returns the fields of /proc/PID/stat from the state on. The name before it may contain anything."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        text = file.read()
    _, _, fields = text.rpartition(b")")
    return fields.split()
