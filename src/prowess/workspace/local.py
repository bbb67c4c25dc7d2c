"""Scripts as plain processes of this machine: bounded time and output, a clean environment, and nothing left behind.

There is no isolation: a script reads and writes whatever its user can. That user is never root. Its skill is a private
copy, so that nothing but the copy can be changed, and that is made anew from what was published when it was.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from prowess._paths import is_inside
from prowess.ports import Program
from prowess.values import Isolation
from prowess.workspace.box.selftest import find_interpreter
from prowess.workspace.copies import Copies
from prowess.workspace.guards import leaving_cwd, missing_cwd, refuse_other_owner, refuse_unreachable
from prowess.workspace.layout import Layout
from prowess.workspace.limits import RunLimits
from prowess.workspace.opened import OpenedWorkspace, Ready
from prowess.workspace.place import Place
from prowess.workspace.process.command import Command, Limits, NotStarted
from prowess.workspace.process.processes import Processes
from prowess.workspace.staging import Tree
from prowess.workspace.tried import (
    Found,
    Once,
    cannot_drop,
    groups_for,
    held,
    refuse_root,
    rlimits,
    room_for,
    system_environment,
)


class LocalExecutor:
    """See ports.Executor. `uid` is whom scripts run as when we are root, and None otherwise."""

    def __init__(
        self, processes: Processes, *, uid: int | None = None, limits: RunLimits, notes: Sequence[str] = ()
    ) -> None:
        self.uid = uid
        self._processes, self._limits, self._notes = processes, limits, tuple(notes)
        self._found = Once(self._find)
        self._open: set[OpenedWorkspace] = set()

    def note(self, text: str) -> None:
        """Say this, too, of every workspace that is opened from now on."""
        self._notes += (text,)

    async def isolation(self) -> Isolation:
        found = (await self._found.get()).isolation
        return replace(found, notes=(*self._notes, *found.notes))

    async def open(self, place: Place) -> OpenedWorkspace:
        found = await self._found.get()
        refuse_other_owner(place, self.uid)
        refuse_unreachable(place.root, self.uid)
        enclosure = Bare(place, python=found.python, uid=self.uid, limits=found.limits)
        workspace = OpenedWorkspace(
            place,
            enclosure,
            processes=self._processes,
            isolation=await self.isolation(),
            groups=found.groups,
            forget=self._open.discard,
        )
        self._open.add(workspace)
        return workspace

    async def aclose(self) -> None:
        for workspace in list(self._open):
            await workspace.aclose()

    async def _find(self) -> Found:
        refuse_root(self.uid)
        python = await find_interpreter(self._processes, self.uid)
        if python is None:
            await self._try_to_start()
        groups, notes = await groups_for(self._limits, self._processes, self.uid)
        isolation = Isolation(
            executor="local",
            mechanism="none",
            uid=os.geteuid() if self.uid is None else self.uid,
            network="host",
            limits=held(self._limits, groups, disk="best-effort", processes="best-effort"),
            notes=notes,
        )
        limits = rlimits(self._limits, await asyncio.to_thread(room_for, self._limits, self.uid, groups))
        return Found(isolation=isolation, python=python or "", groups=groups, limits=limits)

    async def _try_to_start(self) -> None:
        """There may be no Python, but if there is no way to become that user, nothing will ever run."""
        try:
            await self._processes.run(Command(argv=["/bin/true"], cwd="/", env={}, uid=self.uid))
        except NotStarted as error:
            if error.step != "exec":
                raise cannot_drop(self.uid, error) from error


class Bare:
    """Nothing around a program but its limits; see opened.Enclosure."""

    own_tmp = True

    def __init__(self, place: Place, *, python: str, uid: int | None, limits: Limits) -> None:
        self.layout = Layout(place.root, place.root)
        self.python = python
        self.environment: Mapping[str, str] = system_environment(python, os.path.join(place.path, "tmp"))
        self._uid, self._limits = uid, limits
        self._copies = Copies(place)
        self._venvs: dict[str, str] = {}

    def stage(self, tree: Tree, name: str) -> None:
        self._copies.stage(tree, name)
        self._venvs[name] = self._copies.venv(tree, name)

    @asynccontextmanager
    async def enclosed(self, program: Program, tmp: str) -> AsyncIterator[Ready]:
        yield Ready(
            command=Command(
                argv=program.argv,
                cwd=resolved_cwd(self.layout, program, self._venvs[program.skill]),
                env=program.env,
                stdin=program.stdin,
                timeout_s=program.timeout_s,
                limits=self._limits,
                uid=self._uid,
                tty=program.tty,
            )
        )


def resolved_cwd(layout: Layout, program: Program, venv: str) -> str:
    """Where the program starts, on the host. It is looked at now: what a link leads to may have changed."""
    path = os.path.realpath(layout.host(program.cwd))
    if not is_inside(os.path.realpath(layout.root), path) and not is_inside(os.path.realpath(venv), path):
        raise leaving_cwd(program.cwd)
    if not os.path.isdir(path):
        raise missing_cwd(program.cwd)
    return path
