"""Tests once which limits and rights work on this machine. Executors report the result as their isolation."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from prowess._internal.light_dataclass import dataclass
from prowess.core.values import Isolation, LimitStatus, Located
from prowess.errors import WorkspaceUnavailable
from prowess.workspace.limits import NAMES, RunLimits
from prowess.workspace.process.client import Processes
from prowess.workspace.process.command import ProcessLimits
from prowess.workspace.system_programs import find_system_file

if TYPE_CHECKING:
    from prowess.workspace.process.cgroup import Groups

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
RUNS_AT_ONCE = 16  # the kernel counts all processes of a user: room for so many runs at their limit
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """Result of the tests on this machine."""

    isolation: Isolation
    python: str
    groups: Groups | None
    limits: ProcessLimits


def system_environment(python: str, home: str) -> dict[str, str]:
    """Returns the usual environment variables. `home` is the folder for temporary files of a run, or its parent."""
    path = SYSTEM_PATH
    if python and not python.startswith("/usr/"):
        path = f"{os.path.dirname(python)}:{path}"
    return {"PATH": path, "HOME": home, "TMPDIR": home, "LANG": "C.UTF-8"}


def host_programs(python: str) -> Callable[[str], Located]:
    """Returns a function that finds programs of this machine by name. See ports.Executor."""
    path = system_environment(python, "")["PATH"]
    return lambda name: Located(*find_system_file(name, path))


def rlimits(limits: RunLimits, processes: int | None = None) -> ProcessLimits:
    return ProcessLimits(
        cpu_s=limits.cpu, open_files=limits.open_files, file_bytes=limits.file_size, processes=processes
    )


def held(limits: RunLimits, groups: Groups | None, **known: LimitStatus) -> dict[str, LimitStatus]:
    """Returns the status of each limit. Limits of one process always hold, those of a group need control groups."""
    table: dict[str, LimitStatus] = {"cpu": "enforced", "open_files": "enforced", "file_size": "enforced", **known}
    if groups is not None:
        table["memory"] = "enforced"
        if groups.counts_processes:
            table["processes"] = "enforced"
    found: dict[str, LimitStatus] = dict.fromkeys(NAMES, "absent")
    for name in NAMES:
        if getattr(limits, name) is not None:
            found[name] = table.get(name, "absent")
    return found


async def groups_for(
    limits: RunLimits, processes: Processes, uid: int | None, *, wrappers: int = 0
) -> tuple[Groups | None, tuple[str, ...]]:
    """Returns (control groups if they are needed and work, notes for the user)."""
    if limits.memory is None or not processes.linux:
        return None, ()
    most = None if limits.processes is None else limits.processes + wrappers
    from prowess.workspace.process.cgroup import find_groups

    groups, problem = await find_groups(limits.memory, most, processes, uid)
    if problem:
        return groups, (f"The limit on memory does not hold: {problem}.",)
    return groups, ()


def room_for(limits: RunLimits, uid: int | None, groups: Groups | None) -> int | None:
    """Returns the number of processes that the user may have in all programs together. It is high enough that one run
    does not stop another, and still stops a fork bomb."""
    if limits.processes is None:
        return None
    if groups is not None and groups.counts_processes:
        return None
    tasks = _tasks_of(os.geteuid() if uid is None else uid)
    return RUNS_AT_ONCE * limits.processes + 2 * tasks


def _tasks_of(uid: int) -> int:
    count = 0
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == uid:
                count += len(os.listdir(f"/proc/{name}/task"))
        except OSError:  # gone while we looked
            continue
    return count


def check_root(uid: int | None) -> None:
    """Raises when scripts would run as root, or as another user when we are not root."""
    if os.geteuid() == 0 and not uid:
        raise WorkspaceUnavailable(
            "Scripts are never run as root.",
            op="isolation",
            code="run-as-root",
            hint="Set workspace.run_as to the number of an unprivileged user.",
        )
    if os.geteuid() != 0 and uid is not None:
        raise cannot_drop(uid, "only root can do that")


def cannot_drop(uid: int | None, why: object) -> WorkspaceUnavailable:
    message = f"Scripts cannot be run as user {uid}: {why}."
    hint = "See workspace.run_as; becoming another user needs the privileges of root."
    return WorkspaceUnavailable(message, op="isolation", code="privilege-drop-failed", hint=hint)


class Once(Generic[T]):
    """Runs `find` once and keeps its result, also when several tasks ask at the same time."""

    def __init__(self, find: Callable[[], Awaitable[T]]) -> None:
        self._find = find
        self._found: tuple[T] | None = None
        self._gate: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    async def get(self) -> T:
        loop = asyncio.get_running_loop()
        if self._gate is None or self._gate[0] is not loop:
            self._gate = (loop, asyncio.Lock())
        async with self._gate[1]:
            if self._found is None:
                self._found = (await self._find(),)
            return self._found[0]
