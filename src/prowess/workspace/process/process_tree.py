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

SWEEP_S = 5.0  # how long to wait for a process that survives SIGKILL


def end_all(reap: Callable[[], bool], spare: Container[int] = ()) -> tuple[int, int]:
    """Kills everything below this process until `reap` finds nothing left. Returns (number killed, number left)."""
    killed: set[int] = set()
    until = time.monotonic() + SWEEP_S
    while reap():
        for pid, parent in below(os.getpid(), spare):
            if _signal(pid, parent, signal.SIGKILL):
                killed.add(pid)
        if time.monotonic() > until:
            return len(killed), sum(1 for _ in below(os.getpid(), spare))
        select.select([], [], [], 0.0005)  # killed processes need a moment, and there may be only one processor
    return len(killed), 0


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
    with open(f"/proc/{pid}/stat", "rb") as file:
        state, parent = file.read().rpartition(b")")[2].split()[:2]  # the name before it may contain anything
    return state.decode(), int(parent)
