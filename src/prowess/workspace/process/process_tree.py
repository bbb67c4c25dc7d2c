"""Every process below this one is found and ended, however it left its group, its session or its parent.

The caller is a subreaper, so a process that loses its parent becomes its child: "no child is left" means "nothing is
left". Runs in the supervisor and its children: the standard library alone.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Container, Iterator

SWEEP_S = 5.0  # how long a process that cannot even be killed is waited for


def end_all(reap: Callable[[], bool], spare: Container[int] = ()) -> tuple[int, int]:
    """Kill what is below us until `reap` finds nothing left: (how many were killed, how many cannot be)."""
    killed: set[int] = set()
    until = time.monotonic() + SWEEP_S
    while reap():
        for pid, parent in below(os.getpid(), spare):
            if _signal(pid, parent, signal.SIGKILL):
                killed.add(pid)
        if time.monotonic() > until:
            return len(killed), sum(1 for _ in below(os.getpid(), spare))
        select.select([], [], [], 0.0005)  # the killed need a moment to go, and ours may be the only processor
    return len(killed), 0


def ask_to_end(spare: int = 0) -> None:
    """TERM to all below us, and CONT, because who is stopped does not hear it. `spare` is a wrapper: it ends with what
    it wraps, and would take that along without a word if it were told first."""
    for pid, parent in list(below(os.getpid())):
        if pid != spare:
            _signal(pid, parent, signal.SIGTERM)
            _signal(pid, parent, signal.SIGCONT)


def ended_children() -> Iterator[tuple[int, int]]:
    """(pid, status) of every child that has ended, each of them once."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, status


def any_left() -> bool:
    """Looks, and reaps nothing."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def below(root: int, spare: Container[int] = ()) -> Iterator[tuple[int, int]]:
    """(pid, parent) of everything below `root`, but for what is in `spare` and below that."""
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
    except OSError:  # gone while we looked
        pass
    return found


def _children_by_scan(parent: int) -> list[int]:
    """For kernels that were built without lists of children."""
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
    """Signal a process that was seen below us. A child of ours keeps its number until we reap it; any other could be
    gone and its number given to a stranger, so it is held by a descriptor first and looked at again."""
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
        state, parent = file.read().rpartition(b")")[2].split()[:2]  # the name before it may hold anything
    return state.decode(), int(parent)
