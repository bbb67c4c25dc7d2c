"""Open workspace: creates the folders of each run, starts it, and after it leaves nothing but its files.

Executors differ only in their `Enclosure`, the sandbox around a program. The steps before and after a run are the same
for all executors, and are here.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import field, replace
from typing import TYPE_CHECKING, Protocol

from prowess._internal.light_dataclass import dataclass
from prowess.core.ports import Program
from prowess.core.values import Isolation
from prowess.workspace.executors.preconditions import (
    check_names,
    check_open,
    check_program,
    making_folders,
    with_own_home,
)
from prowess.workspace.layout import Layout
from prowess.workspace.process.client import Processes, StartedCommand
from prowess.workspace.process.command import Command, Ended
from prowess.workspace.session_folder import Place
from prowess.workspace.skill_trees import Tree, remove_tree

if TYPE_CHECKING:
    from prowess.workspace.process.cgroup import ControlGroup, Groups
    from prowess.workspace.process.interactive import InteractiveProcess

KEPT_BYTES = 4096  # of stderr, for the error when a sandbox could not be made


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """Command that can be started. `check` gets its end and the start of its stderr, and raises when the sandbox failed
    and not the program."""

    command: Command
    check: Callable[[Ended, bytes], None] | None = None
    problems: list[str | None] = field(default_factory=list)  # complete after the enclosure has ended


class Enclosure(Protocol):
    """Sandbox, or nothing, that an executor puts around the programs of one workspace."""

    layout: Layout
    environment: Mapping[str, str]
    python: str
    own_tmp: bool  # True when a run needs a host folder for its temporary files

    async def stage(self, tree: Tree, name: str) -> None:
        """Makes the tree visible to programs of that skill."""
        ...

    def enclosed(self, program: Program, tmp: str) -> AbstractAsyncContextManager[Ready]:
        """Prepares the command and keeps its resources until the end. Raises WorkspaceError when it cannot start."""
        ...


class OpenedWorkspace:
    """Workspace of all executors whose programs are processes of this machine. See ports.Workspace."""

    def __init__(
        self,
        place: Place,
        enclosure: Enclosure,
        *,
        processes: Processes,
        isolation: Isolation,
        groups: Groups | None = None,
        forget: Callable[[OpenedWorkspace], None] = lambda workspace: None,
    ) -> None:
        self.layout = enclosure.layout
        self.isolation = isolation
        self.environment = enclosure.environment
        self.python = enclosure.python
        self._place = place
        self._enclosure = enclosure
        self._processes = processes
        self._groups = groups
        self._staged: set[str] = set()
        self._forget = forget  # tells the executor that this workspace is closed
        self._going: set[_Going] = set()
        self._sessions: set[LiveSession] = set()
        self._closed = False

    async def stage(self, tree: Tree, name: str) -> None:
        check_names(name)
        await self._enclosure.stage(tree, name)
        self._staged.add(name)

    async def run(
        self,
        program: Program,
        on_stdout: Callable[[bytes], None] | None = None,
        on_stderr: Callable[[bytes], None] | None = None,
    ) -> Ended:
        async with self._begun(program) as going:
            if going.ready.check is not None:
                on_stderr = going.kept(on_stderr)
            command = going.ready.command
            ended = await self._processes.run(command, on_stdout, on_stderr, on_start=going.started)
            ended = going.judged(ended)
        return going.told(ended)

    async def open_session(self, program: Program, on_output: Callable[[bytes], None] | None = None) -> LiveSession:
        async with AsyncExitStack() as stack:
            going = await stack.enter_async_context(self._begun(program))
            if going.ready.check is not None:
                on_output = going.kept(on_output)
            session = await self._processes.open_session(going.ready.command, on_output=on_output)
            live = LiveSession(session, going, stack.pop_all(), self._sessions.discard)
            self._sessions.add(live)
            if self._closed:
                await live.aclose()
                check_open(self._closed)
            return live

    async def aclose(self) -> None:
        """Kills the runs that are still going on. Their callers get the result of a killed run."""
        self._closed = True
        for going in self._going:
            going.end()
        await asyncio.gather(*(session.aclose() for session in list(self._sessions)))
        while going := next(iter(self._going), None):
            going.end()
            await going.over.wait()
        self._forget(self)

    @asynccontextmanager
    async def _begun(self, program: Program) -> AsyncIterator[_Going]:
        """Creates the folders, control group and enclosure of a run, and removes the temporary ones after it."""
        check_open(self._closed)
        check_program(program, staged=self._staged, place=self._place)
        going = _Going()
        self._going.add(going)
        tmp = ""
        try:
            tmp = self._make_folders(program.run)
            async with AsyncExitStack() as stack:
                if self._groups is not None:
                    going.group = await stack.enter_async_context(self._groups.made())
                own = replace(program, env=with_own_home(program.env, self.environment, tmp))
                ready = await stack.enter_async_context(self._enclosure.enclosed(own, tmp))
                if going.group is not None:
                    ready = replace(ready, command=ready.command._replace(cgroups=going.group.lists))
                going.ready = ready
                yield going
        finally:
            await _remove(tmp)
            self._going.discard(going)
            going.over.set()

    def _make_folders(self, run: str) -> str:
        """Creates runs/<run> and, if needed, the folder for temporary files. Returns that folder or ""."""
        with making_folders(run):
            self._place.make_run(run)
            if self._enclosure.own_tmp:
                return self._place.make_tmp(run)
            return ""


class OpenWorkspaces:
    """Workspaces that an executor has opened and that are not closed yet."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._open: set[OpenedWorkspace] = set()

    def open(
        self, place: Place, enclosure: Enclosure, *, isolation: Isolation, groups: Groups | None
    ) -> OpenedWorkspace:
        workspace = OpenedWorkspace(
            place,
            enclosure,
            processes=self._processes,
            isolation=isolation,
            groups=groups,
            forget=self._open.discard,
        )
        self._open.add(workspace)
        return workspace

    async def aclose(self) -> None:
        for workspace in list(self._open):
            await workspace.aclose()


class _Going:
    """State of one run, from the creation of its folders to their removal."""

    ready: Ready

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self.group: ControlGroup | None = None
        self._run: StartedCommand | None = None
        self._to_end = False
        self._said = bytearray()

    def started(self, run: StartedCommand) -> None:
        self._run = run
        if self._to_end:
            run.kill()

    def end(self) -> None:
        self._to_end = True
        if self._run is not None:
            self._run.kill()

    def kept(self, callback: Callable[[bytes], None] | None) -> Callable[[bytes], None]:
        """Wraps a callback and keeps the first KEPT_BYTES of the output."""

        def take(data: bytes) -> None:
            if len(self._said) < KEPT_BYTES:
                self._said += data[: KEPT_BYTES - len(self._said)]
            if callback is not None:
                callback(data)

        return take

    def judged(self, ended: Ended) -> Ended:
        if self.ready.check is not None:
            self.ready.check(ended, bytes(self._said))
        if self.group is not None and self.group.oom():
            return replace(ended, oom=True)
        return ended

    def told(self, ended: Ended) -> Ended:
        problems = tuple(each for each in self.ready.problems if each)
        return replace(ended, notes=problems)


class LiveSession:
    """Interactive program in a workspace. See ports.Interactive.

    When the program ends, its temporary folders are removed. Its output can still be read.
    """

    def __init__(
        self, session: InteractiveProcess, going: _Going, stack: AsyncExitStack, forget: Callable[[LiveSession], None]
    ) -> None:
        self._session = session
        self._going = going
        self._stack = stack
        self._forget = forget
        self._over: Ended | None = None
        self._ending = asyncio.ensure_future(self._end())
        # `wait` raises the error. Reading it here stops asyncio from logging it when nobody waits.
        self._ending.add_done_callback(lambda task: task.cancelled() or task.exception())

    @property
    def ended(self) -> Ended | None:
        return self._over

    @property
    def dropped_bytes(self) -> int:
        return self._session.dropped_bytes

    async def write(self, data: bytes) -> None:
        await self._session.write(data)

    def close_stdin(self) -> None:
        self._session.close_stdin()

    async def read(self, limit_bytes: int = 1 << 16, *, wait_s: float = 0.0) -> bytes:
        return await self._session.read(limit_bytes, wait_s=wait_s)

    async def kill(self) -> Ended:
        await self._session.kill()
        return await self.wait()

    async def wait(self) -> Ended:
        """Waits for the end. A cancelled wait does not end the session."""
        return await asyncio.shield(self._ending)

    async def aclose(self) -> None:
        """Kills the program if it still runs, and drops unread output."""
        await self._session.aclose()
        await asyncio.wait([self._ending])
        self._forget(self)

    async def _end(self) -> Ended:
        over = Ended(why="lost")
        try:
            over = await self._session.wait()
            over = self._going.judged(over)
        finally:
            try:
                await self._stack.aclose()
            finally:
                self._over = over = self._going.told(over)
        return over


async def _remove(path: str) -> None:
    """Removes the temporary files of a run. Files that cannot be removed stay until the workspace is removed."""
    if path:
        try:
            os.rmdir(path)  # empty after most runs
        except OSError:
            await asyncio.to_thread(_remove_all, path)


def _remove_all(path: str) -> None:
    try:
        remove_tree(path)
    except OSError:
        pass
