"""Executor that runs scripts as plain processes: limited time and output, clean environment, no process left behind.

There is no isolation: a script can read and write all that its user can. That user is never root. The script works with
a private copy of its skill. A copy that was changed is replaced from the published tree.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from prowess.core.ports import Program
from prowess.core.values import Isolation, Located
from prowess.workspace.executors.isolation_report import (
    Once,
    ProbeResult,
    cannot_drop,
    check_root,
    groups_for,
    held,
    host_programs,
    rlimits,
    room_for,
)
from prowess.workspace.executors.preconditions import check_owner, check_reachable
from prowess.workspace.executors.setup import OwnExecutorSetup
from prowess.workspace.executors.workspace import OpenedWorkspace, OpenWorkspaces
from prowess.workspace.isolation.selftest import find_interpreter
from prowess.workspace.limits import RunLimits
from prowess.workspace.process.client import Processes
from prowess.workspace.process.command import Command, NotStarted, ProcessLimits
from prowess.workspace.process.posix_client import NOTE
from prowess.workspace.scripts.configured_python import try_python
from prowess.workspace.session_folder import Place

if TYPE_CHECKING:
    from prowess.workspace.executors.private_copies import Here

OPEN_NETWORK = "A script has all of this machine's network: workspace.network_allow cannot be kept here."


class LocalExecutor:
    """Executor without isolation. See ports.Executor.

    `uid` is the user that scripts run as when we are root, else None. `python` is the interpreter or venv to use; None
    means the one of the system.
    """

    def __init__(
        self,
        processes: Processes,
        *,
        uid: int | None = None,
        limits: RunLimits,
        notes: Sequence[str] = (),
        python: str | None = None,
    ) -> None:
        self.uid = uid
        self._python = python
        self._processes = processes
        self._limits = limits
        self._notes = tuple(notes)
        self._found = Once(self._find)
        self._open = OpenWorkspaces(processes)

    def note(self, text: str) -> None:
        """Adds a note to the isolation of every workspace that is opened from now on."""
        self._notes += (text,)

    async def isolation(self) -> Isolation:
        found = await self._found.get()
        notes = (*self._notes, *found.isolation.notes)
        return replace(found.isolation, notes=notes)

    async def programs(self) -> Callable[[str], Located]:
        found = await self._found.get()
        return host_programs(found.python)

    async def open(self, place: Place) -> OpenedWorkspace:
        found = await self._found.get()
        check_owner(place, self.uid)
        check_reachable(place.root, self.uid, place.gid)
        enclose = partial(_bare, uid=self.uid, gid=place.gid, limits=found.limits)
        from prowess.workspace.executors.private_copies import Unbound

        enclosure = Unbound(place, python=found.python, enclose=enclose)
        return self._open.open(place, enclosure, isolation=await self.isolation(), groups=found.groups)

    async def aclose(self) -> None:
        await self._open.aclose()

    async def _find(self) -> ProbeResult:
        check_root(self.uid)
        if self._python is not None:
            python, _ = await try_python(self._python, self._processes, self.uid)
        else:
            python = await find_interpreter(self._processes, self.uid)
        if python is None:
            await self._try_to_start()
        groups, notes = await groups_for(self._limits, self._processes, self.uid)
        linux = self._processes.linux
        processes = "best-effort" if linux else "absent"
        isolation = Isolation(
            executor="local",
            mechanism="none",
            uid=os.geteuid() if self.uid is None else self.uid,
            network="host",
            limits=held(self._limits, groups, disk="best-effort", processes=processes),
            notes=notes if linux else (NOTE,),
            kind="process",
        )
        room = None
        if linux:
            room = await asyncio.to_thread(room_for, self._limits, self.uid, groups)
        limits = rlimits(self._limits, room)
        return ProbeResult(isolation=isolation, python=python or "", groups=groups, limits=limits)

    async def _try_to_start(self) -> None:
        """Raises when no program can run as that user. Called when no Python was found, which alone is no error."""
        try:
            await self._processes.run(Command(argv=["/bin/true"], cwd="/", env={}, uid=self.uid))
        except NotStarted as error:
            if error.step != "exec":
                raise cannot_drop(self.uid, error) from error


def _bare(program: Program, here: Here, *, uid: int | None, gid: int | None, limits: ProcessLimits) -> Command:
    """Returns the command without a sandbox, with its limits only."""
    return Command(
        argv=program.argv,
        cwd=here.cwd,
        env=program.env,
        stdin=program.stdin,
        timeout_s=program.timeout_s,
        limits=limits,
        uid=uid,
        gid=gid,
        tty=program.tty,
    )


def make_local(setup: OwnExecutorSetup) -> LocalExecutor:
    return LocalExecutor(
        setup.processes,
        uid=setup.uid,
        limits=setup.run_limits,
        notes=[OPEN_NETWORK] if setup.network_allow else [],
        python=setup.python,
    )
