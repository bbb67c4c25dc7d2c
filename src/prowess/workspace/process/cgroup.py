"""Limits the memory of all processes of a run together, with a control group of the kernel.

Used only when a memory limit is set: with cgroup version 1, joining a group takes the kernel tens of milliseconds.
Version 2 needs a group that was delegated to us, with `memory` in its `cgroup.subtree_control`. A test run decides if
groups work here. The next runtime removes groups that a dead runtime left behind.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from prowess.errors import WorkspaceError, in_one_line
from prowess.workspace.isolation.bwrap import find_trusted
from prowess.workspace.process.client import Processes
from prowess.workspace.process.command import Command

PREFIX = "prowess"
REMOVE_S = 2.0
_numbers = itertools.count(1)
Setting = tuple[str, str, bool]  # file, value, may be missing


class Parent(NamedTuple):
    """Folder of a cgroup file system in which groups are made, with the settings of each."""

    path: str
    settings: tuple[Setting, ...]


class ControlGroup(NamedTuple):
    """Group of one run: in version 1 a folder for memory and one for processes, in version 2 a single folder."""

    paths: tuple[str, ...]

    @property
    def lists(self) -> tuple[str, ...]:
        return tuple(os.path.join(path, "cgroup.procs") for path in self.paths)

    def oom(self) -> bool:
        """True when the kernel ended a process of the group because memory ran out."""
        for path in self.paths:
            for name in ("memory.oom_control", "memory.events"):
                for line in _lines(os.path.join(path, name)):
                    words = line.split()
                    if words[0] == "oom_kill" and int(words[1]) > 0:
                        return True
        return False


class Groups:
    """Makes a group for each run."""

    def __init__(self, parents: Sequence[Parent]) -> None:
        self._parents = parents
        names = {name for parent in parents for name, _, _ in parent.settings}
        self.counts_processes = "pids.max" in names

    @asynccontextmanager
    async def made(self) -> AsyncIterator[ControlGroup]:
        """Makes a group and removes it at the end, when it must be empty."""
        pid = os.getpid()
        name = f"{PREFIX}-{pid}-{_started_at(pid)}-{next(_numbers)}"
        paths = tuple(os.path.join(parent.path, name) for parent in self._parents)
        group = ControlGroup(paths)
        try:
            await asyncio.to_thread(self._make, group)
            yield group
        finally:
            await _remove(group)

    def _make(self, group: ControlGroup) -> None:
        try:
            for parent, path in zip(self._parents, group.paths, strict=True):
                os.mkdir(path)
                for name, value, optional in parent.settings:
                    file = os.path.join(path, name)
                    if not optional or os.path.exists(file):
                        with open(file, "w", encoding="ascii") as setting:
                            setting.write(value)
        except OSError as error:
            message = f"The control group that limits memory could not be made: {error}."
            hint = "Without workspace.limits.memory no control group is needed."
            raise WorkspaceError(message, op="run", code="cgroup-failed", hint=hint) from error

    def sweep(self) -> None:
        """Removes the groups of runtimes that have ended."""
        for parent in self._parents:
            for name in os.listdir(parent.path):
                prefix, *numbers = name.split("-")
                if prefix != PREFIX or len(numbers) != 3:
                    continue
                pid, started, _ = numbers
                if _started_at(pid) != started:
                    _removed(os.path.join(parent.path, name))


async def find_groups(
    memory: int, most_processes: int | None, processes: Processes, uid: int | None
) -> tuple[Groups | None, str]:
    """Returns (groups, "") if groups work for this user, or (None, reason)."""
    parents = _parents(memory, most_processes)
    if not parents:
        return None, "no control group that can limit memory is available here"
    groups = Groups(parents)
    program = find_trusted("true")
    try:
        await asyncio.to_thread(groups.sweep)
        async with groups.made() as group:
            command = Command(argv=[program or "true"], cwd="/", env={}, uid=uid, cgroups=group.lists)
            await processes.run(command)
            if _limit_of(group) > memory:
                return None, "the control group did not apply the memory limit"
    except (WorkspaceError, OSError) as error:
        return None, f"a control group cannot be used: {in_one_line(error)}"
    return groups, ""


def _parents(memory: int, most_processes: int | None) -> list[Parent]:
    own = {}  # controller, or "" for version 2 -> our own group
    for line in _lines("/proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        own |= dict.fromkeys(controllers.split(","), path)
    pids = [] if most_processes is None else [("pids.max", str(most_processes), False)]
    limit = str(memory)
    memory_1 = [("memory.limit_in_bytes", limit, False), ("memory.memsw.limit_in_bytes", limit, True)]
    of_memory = _parents_1("memory", memory_1, own.get("memory", "/"))
    of_pids = _parents_1("pids", pids, own.get("pids", "/"))
    if of_memory:
        return of_memory + of_pids
    memory_2 = [("memory.max", limit, False), ("memory.swap.max", "0", True)]
    return _parents_2([*memory_2, *pids], own.get("", "/"))


def _parents_1(controller: str, settings: list[Setting], own: str) -> list[Parent]:
    """Returns the parent of our groups in version 1, where each controller has a file system of its own, or []."""
    for controllers, root, point in _mounts():
        if controller not in controllers:
            continue
        path = _joined(point, root, own)
        if settings and os.access(path, os.W_OK):
            return [Parent(path, tuple(settings))]
    return []


def _parents_2(settings: list[Setting], own: str) -> list[Parent]:
    """Returns the parent of our groups in version 2, with the settings of the controllers that it has, or []."""
    for kinds, root, point in _mounts():
        if "cgroup2" not in kinds:
            continue
        mine = _joined(point, root, own)
        # A group with processes cannot delegate controllers, so our groups usually go beside our own group.
        for path in (mine, os.path.dirname(mine)):
            given = " ".join(_lines(os.path.join(path, "cgroup.subtree_control"))).split()
            if not path.startswith(point) or "memory" not in given:
                continue
            if os.access(os.path.join(path, "cgroup.procs"), os.W_OK):
                kept = [each for each in settings if each[0].split(".")[0] in given]
                return [Parent(path, tuple(kept))]
    return []


def _mounts() -> Iterator[tuple[set[str], str, str]]:
    """Yields (controllers and type, root, mount point) of each cgroup file system."""
    for line in _lines("/proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            root, point = before.split(" ")[3:5]
            yield {kind, *options.split(",")}, root, point


def _joined(point: str, root: str, path: str) -> str:
    below = path.removeprefix(root.rstrip("/")).strip("/")
    if not below:
        return point
    joined = os.path.join(point, below)
    if os.path.isdir(joined):
        return joined
    return point


def _limit_of(group: ControlGroup) -> int:
    for path in group.paths:
        for name in ("memory.limit_in_bytes", "memory.max"):
            for line in _lines(os.path.join(path, name)):
                if line.isdigit():
                    return int(line)
                return 1 << 63
    return 1 << 63


async def _remove(group: ControlGroup) -> None:
    """Removes a group. The kernel may need a moment to notice that the last process is gone."""
    paths = [path for path in group.paths if not _removed(path)]
    loop = asyncio.get_running_loop()
    until = loop.time() + REMOVE_S
    while paths and loop.time() < until:
        await asyncio.sleep(0.005)
        paths = [path for path in paths if not _removed(path)]


def _removed(path: str) -> bool:
    try:
        os.rmdir(path)
    except FileNotFoundError:
        pass
    except OSError:  # busy; the next runtime removes it
        return False
    return True


def _started_at(pid: int | str) -> str:
    """Start time of a process, "" if there is none. It tells a process from a later one with the same pid."""
    for line in _lines(f"/proc/{pid}/stat"):
        return line.rpartition(")")[2].split()[19]
    return ""


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read().splitlines()
    except OSError:
        return []
