"""Workspace of a session whose programs run in containers: one for each skill, made on first use and kept.

The mounts of a container cannot change, so another digest of the skill, or another readable folder, needs another
container; programs in the old one keep it until they end. Other skills and their programs are not in the container, so
they cannot be inspected.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

from prowess.core.ports import Program
from prowess.core.values import Isolation
from prowess.errors import WorkspaceError
from prowess.workspace.container.container import Container, ContainerProcess, ContainerSession
from prowess.workspace.container.engine import SESSION_LABEL, Engine
from prowess.workspace.container.init import SCRATCH
from prowess.workspace.container.spec import INSIDE, ContainerSpec, check_private, find_folders, identity_below
from prowess.workspace.container.sync import MOST_BYTES, Carrier, fill
from prowess.workspace.executors.isolation_report import rlimits
from prowess.workspace.executors.preconditions import (
    check_names,
    check_open,
    check_program,
    leaving_cwd,
    making_folders,
    missing_cwd,
    with_own_home,
)
from prowess.workspace.layout import Layout
from prowess.workspace.limits import RunLimits
from prowess.workspace.process.command import Command, Ended, NotStarted
from prowess.workspace.session_folder import Place
from prowess.workspace.skill_trees import Tree

MOST_CELLS = 4  # per session; above it, the least recently used idle one is closed


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Values that all workspaces of an executor share."""

    engine: Engine
    image: str  # name for people
    image_id: str
    path: str  # PATH of the image
    covered: tuple[str, ...]  # volumes of the image, which would be writable
    uid: int
    gid: int
    limits: RunLimits
    mounted: bool  # the engine can mount our folders


class Key(NamedTuple):
    skill: str
    digest: str
    readable: tuple[str, ...]


class SharedContainer:
    """A container and the number of its users."""

    def __init__(self, key: Key, container: Container, carrier: Carrier | None) -> None:
        self.key = key
        self.container = container
        self.carrier = carrier
        self.users = 0

    @property
    def usable(self) -> bool:
        return self.container.gone is None and not self.container.worn


class ContainerWorkspace:
    """Workspace in containers; see ports.Workspace."""

    def __init__(
        self,
        place: Place,
        setup: Setup,
        *,
        isolation: Isolation,
        python: str,
        check: Callable[[Container], None] | None = None,
    ) -> None:
        self.layout = Layout(place.root, INSIDE)
        self.isolation = isolation
        self.python = python
        home = SCRATCH[0]
        self.environment: Mapping[str, str] = {"PATH": setup.path, "HOME": home, "TMPDIR": home, "LANG": "C.UTF-8"}
        self._place = place
        self._setup = setup
        self._check = check
        self._staged: dict[str, Tree] = {}
        self._cells: dict[Key, asyncio.Future[SharedContainer]] = {}  # least recently used first
        self._opening: set[asyncio.Future[SharedContainer]] = set()
        self._retired: set[SharedContainer] = set()
        self._running: set[ContainerProcess] = set()
        self._going: set[asyncio.Event] = set()  # each is set when its run is completely done
        self._carrying = asyncio.Lock()
        self.closed = False

    async def stage(self, tree: Tree, name: str) -> None:
        check_names(name)
        self._staged[name] = tree
        outdated = [key for key in self._cells if key.skill == name and key.digest != tree.digest]
        for key in outdated:
            self._retire(key)
        await self._tidy()

    async def run(
        self,
        program: Program,
        on_stdout: Callable[[bytes], None] | None = None,
        on_stderr: Callable[[bytes], None] | None = None,
    ) -> Ended:
        async with self._lent(program) as kept:
            listen = (on_stdout is not None, on_stderr is not None)
            running = self._begin(kept, program, listen=listen)
            try:
                await self._begun(running, program)
                return await running.wait(on_stdout, on_stderr)
            finally:
                self._running.discard(running)
                await self._pull(kept)

    async def open_session(
        self, program: Program, on_output: Callable[[bytes], None] | None = None
    ) -> ContainerSession:
        async with AsyncExitStack() as stack:
            kept = await stack.enter_async_context(self._lent(program))
            running = self._begin(kept, program, interactive=True)
            stack.callback(self._running.discard, running)
            await self._begun(running, program)
            stack.push_async_callback(self._pull, kept)
            return ContainerSession(running, on_output=on_output, on_end=stack.pop_all().aclose)

    async def aclose(self) -> None:
        """Closes the containers. Runs in progress end as killed."""
        self.closed = True
        await asyncio.gather(*(running.finish() for running in self._running))
        for over in list(self._going):
            await over.wait()
        if self._opening:
            await asyncio.wait(self._opening)
        for key in list(self._cells):
            self._retire(key)
        await asyncio.gather(*(kept.container.aclose() for kept in self._retired))
        self._retired.clear()

    # --- containers -------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _lent(self, program: Program) -> AsyncIterator[SharedContainer]:
        """Gives a container for this program, with the current files of the session."""
        self._refuse(program)
        over = asyncio.Event()
        self._going.add(over)
        try:
            with making_folders(program.run):
                self._place.make_run(program.run)
            kept = await self._usable(program)
            try:
                if kept.carrier is not None:
                    async with self._carrying:
                        await kept.carrier.push(program.run)
                yield kept
            finally:
                kept.users -= 1
                await self._tidy()
        finally:
            self._going.discard(over)
            over.set()

    async def _usable(self, program: Program) -> SharedContainer:
        """Returns a container and counts the caller as a user. Concurrent callers share one container; cancelling one
        caller does not cancel its creation."""
        key = Key(program.skill, self._staged[program.skill].digest, tuple(dict.fromkeys(program.readable)))
        while True:
            if key not in self._cells:
                self._cells[key] = task = asyncio.ensure_future(self._open(key))
                self._opening.add(task)
                task.add_done_callback(self._opening.discard)
                task.add_done_callback(_failed)  # avoids a warning; callers that still wait get the error
            opening = self._cells[key]
            try:
                kept = await asyncio.shield(opening)
            finally:
                if _failed(opening) and self._cells.get(key) is opening:
                    del self._cells[key]
            check_open(self.closed)
            if self._cells.get(key) is not opening:
                continue
            if kept.usable and await self._still_the_same(kept):
                if self._cells.get(key) is opening:
                    self._cells[key] = self._cells.pop(key)
                    kept.users += 1
                    return kept
            else:
                self._retire(key)
                await self._tidy()

    async def _open(self, key: Key) -> SharedContainer:
        setup = self._setup
        tree = self._staged[key.skill]
        limits = setup.limits
        for folder in key.readable:
            check_private(folder, setup.engine.socket)
        plan = ContainerSpec(
            image=setup.image,
            image_id=setup.image_id,
            uid=setup.uid,
            gid=(setup.mounted and self._place.gid) or setup.gid,
            memory=limits.memory,
            processes=limits.processes,
            open_files=limits.open_files,
            tmp=limits.tmp,
            covered=setup.covered,
            labels={SESSION_LABEL: os.path.basename(self._place.path)},
        )
        if setup.mounted:
            folders = await asyncio.to_thread(find_folders, self._place, tree, *key)
            plan = replace(plan, folders=folders)
        else:
            size = limits.disk or MOST_BYTES
            plan = replace(plan, in_memory=dict.fromkeys((INSIDE, *key.readable), size))
        container = await Container.open(setup.engine, plan)
        carrier = None
        done = False
        try:
            if not setup.mounted:
                await fill(container, tree, key.skill, key.readable)
                venv = self._place.make_venv(key.skill, key.digest)
                carrier = Carrier(container, self._place, venv, limits.disk)
            if self._check is not None:
                self._check(container)
            done = True
        finally:
            if not done:
                await container.aclose()
        return SharedContainer(key, container, carrier)

    async def _still_the_same(self, kept: SharedContainer) -> bool:
        """False when a script replaced work/inputs, which is mounted a second time inside its skill."""
        if not self._setup.mounted:
            return True
        mounted = {folder.source: folder.identity for folder in kept.container.plan.folders}
        inputs = await asyncio.to_thread(identity_below, self._place, "work/inputs")
        return mounted.get(f"{self._place.root}/work/inputs") == inputs

    def _retire(self, key: Key) -> None:
        """Stops giving this container to new programs; `_tidy` closes it when its last user is done."""
        task = self._cells.pop(key)
        if task.done():
            self._retire_opened(task)
        else:
            task.add_done_callback(self._retire_opened)

    def _retire_opened(self, task: asyncio.Future[SharedContainer]) -> None:
        if not _failed(task):
            self._retired.add(task.result())

    async def _tidy(self) -> None:
        """Closes containers that nobody uses: retired ones, and the least recently used if there are too many."""
        unused: list[Key] = []
        for key, task in self._cells.items():
            if task.done() and not _failed(task) and not task.result().users:
                unused.append(key)
        too_many = max(0, len(self._cells) - MOST_CELLS)
        for key in unused[:too_many]:
            self._retire(key)
        idle = [kept for kept in self._retired if kept.users == 0]
        self._retired.difference_update(idle)
        await asyncio.gather(*(kept.container.aclose() for kept in idle))

    async def _pull(self, kept: SharedContainer) -> None:
        if kept.carrier is not None and kept.container.gone is None:
            async with self._carrying:
                await kept.carrier.pull()

    # --- programs ---------------------------------------------------------------------------------------------------

    def _begin(
        self,
        kept: SharedContainer,
        program: Program,
        *,
        interactive: bool = False,
        listen: tuple[bool, bool] = (True, True),
    ) -> ContainerProcess:
        check_open(self.closed)
        tmp = f"{SCRATCH[0]}/{program.run}"
        cwd = self.layout.seen(program.cwd)
        env = with_own_home(program.env, self.environment, tmp)
        limits = rlimits(self._setup.limits)
        command = Command(
            argv=program.argv,
            cwd=cwd,
            env=env,
            stdin=program.stdin,
            timeout_s=program.timeout_s,
            limits=limits,
            tty=program.tty,
        )
        running = kept.container.begin(command, within=INSIDE, tmp=tmp, interactive=interactive, listen=listen)
        self._running.add(running)
        return running

    async def _begun(self, running: ContainerProcess, program: Program) -> None:
        try:
            await running.begin()
        except NotStarted as error:
            if error.step != "cwd":
                raise
            if error.errno == errno.EXDEV:
                raise leaving_cwd(program.cwd) from error
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
                raise missing_cwd(program.cwd) from error
            raise

    def _refuse(self, program: Program) -> None:
        check_open(self.closed)
        check_program(program, staged=self._staged, place=self._place)
        memory = self._setup.limits.memory
        size = len(program.stdin or b"")
        if memory is not None and size > memory // 4:  # it is kept in memory there
            message = f"{size} bytes of input are too many for a container with {memory} bytes of memory."
            raise WorkspaceError(message, op="run", code="stdin-too-large", hint="Give it as a file: inputs.")


def _failed(task: asyncio.Future[SharedContainer]) -> bool:
    if not task.done():
        return False
    return task.cancelled() or task.exception() is not None
