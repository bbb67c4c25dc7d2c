"""Runs programs in one container, one after the other or side by side, through our own process 1 in it.

The container has no network, no capabilities, no new privileges, a read-only root file system, and a user other than
root. Each mounted folder is compared with the folder we opened, by device and inode, before any program starts; so a
link that a script placed cannot redirect a mount. When the connection to process 1 closes, process 1 ends and the
engine removes the container: nothing in it can outlive us.

ContainerSession keeps a program open: write to it, and read its output in bounded pieces.
"""

from __future__ import annotations

import asyncio
import collections
import itertools
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from prowess.errors import WorkspaceError, WorkspaceUnavailable
from prowess.workspace.container import init as inside
from prowess.workspace.container.engine import Engine, remove_container
from prowess.workspace.container.image import image_unfit
from prowess.workspace.container.init_protocol import InitConnection
from prowess.workspace.container.spec import (
    ContainerSpec,
    Folder,
    create_container,
    image_missing,
    not_started,
    payload,
    refused,
)
from prowess.workspace.process.command import Command, Ended, NotStarted, render_spec
from prowess.workspace.process.interactive import Unread

START_S = 30.0  # until process 1 has reported its facts
BEGIN_S = 20.0  # until a program has started or failed to start
BELT_S = 5.0  # longer than ending a program ever takes; after that, the container is ended
PIECE_BYTES = 1 << 16
_SLOWEST_BYTES_PER_S = 1 << 20  # slower than this, the connection counts as broken
Take = Callable[[bytes], None]


class NotTheSame(WorkspaceError):
    """Error: the engine mounted another folder than ours, or one with another owner. `target` names it."""

    code = "mount-differs"

    def __init__(self, target: str) -> None:
        super().__init__(
            f"The container sees a wrong folder at {target}, or one with a wrong owner.",
            op="mount",
            hint='The engine may be on another machine: then use files = "tar".',
        )
        self.target = target


class Container:
    """A container, made by `open`. The owner closes it."""

    def __init__(self, engine: Engine, id: str, plan: ContainerSpec) -> None:
        self.engine = engine
        self.id = id
        self.plan = plan
        self.facts: dict[str, Any] = {}  # reported by process 1
        self.worn = False  # a program left something behind that the next one must not find
        self.gone: str | None = None  # the reason, once it is gone
        self._line: InitConnection | None = None
        self._ready = asyncio.Event()
        self._runs: dict[int, ContainerProcess] = {}
        self._numbers = itertools.count(1)

    @staticmethod
    async def open(engine: Engine, plan: ContainerSpec) -> Container:
        import docker.errors

        try:
            made = await engine.call("create", create_container, engine, plan)
        except docker.errors.ImageNotFound as error:
            raise image_missing(plan.image, engine) from error
        except docker.errors.APIError as error:
            raise refused("make a container", error) from error
        container = Container(engine, made, plan)
        started = False
        try:
            await container._start()
            started = True
        finally:
            if not started:
                await container.aclose()
        return container

    async def _start(self) -> None:
        import docker.errors

        api = self.engine.client.api
        try:
            params = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1, "detachKeys": ""}
            stream = await self.engine.call("attach", api.attach_socket, self.id, params=params)
            self._line = InitConnection(stream, self._heard, self._over)
            await self.engine.call("start", api.start, self.id)
        except docker.errors.APIError as error:
            raise not_started(self.plan.image, error) from error
        self._line.send_raw(payload([folder.target for folder in self.plan.folders]))
        try:
            async with asyncio.timeout(START_S):
                await self._ready.wait()
        except TimeoutError:
            self.gone = f"it did not begin within {START_S:g} seconds"
        if self.gone is not None:
            said = self._line.last_words.decode("utf-8", "replace").strip()
            raise image_unfit(self.plan.image, f"cannot run programs: {said or self.gone}.")
        for folder in self.plan.folders:
            self._check_same(folder)

    def _check_same(self, folder: Folder) -> None:
        """Checks that the engine mounted the folder that we opened."""
        seen = self.facts["seen"].get(folder.target) or ()
        told = 3 if folder.write else 2  # the owner matters only for writable folders
        if tuple(seen[:told]) != folder.identity[:told]:
            raise NotTheSame(folder.target)

    @property
    def idle(self) -> bool:
        return not self._runs

    def begin(
        self,
        command: Command,
        *,
        within: str = "/",
        tmp: str = "",
        interactive: bool = False,
        listen: tuple[bool, bool] = (True, True),
    ) -> ContainerProcess:
        """Starts a program. Its cwd must be below `within`, after links are resolved. `tmp` exists while the program
        runs. `listen` says which outputs the caller wants."""
        if self._line is None or self.gone is not None:
            raise run_lost(self.gone or "it has not begun")
        stdin = b""
        if isinstance(command.stdin, bytes) and not interactive:
            stdin = command.stdin
        task: dict[str, Any] = {"spec": render_spec(command)}
        task["timeout_s"] = command.timeout_s
        task["grace_s"] = command.grace_s
        task["within"] = within
        task["tmp"] = tmp
        task["interactive"] = interactive
        task["size"] = [command.rows, command.columns]
        task["streams"] = listen
        task["stdin_bytes"] = len(stdin)
        running = ContainerProcess(self, next(self._numbers), command)
        self._runs[running.number] = running
        self.send(inside.RUN, running, json.dumps(task).encode())
        for at in range(0, len(stdin), PIECE_BYTES):
            piece = stdin[at : at + PIECE_BYTES]
            self.send(inside.INPUT, running, piece)
        return running

    def send(self, kind: bytes, running: ContainerProcess, content: bytes = b"") -> None:
        if self._line is not None:
            self._line.send(kind, running.number, content)

    async def aclose(self) -> None:
        """Ends everything in the container, and removes it."""
        import docker.errors

        self._end("it was closed", Ended(why="closed"))
        # If the engine fails here, the closed connection still ends process 1, and `sweep` removes the container later.
        with suppress(docker.errors.APIError, WorkspaceUnavailable):
            await self.engine.call("remove", remove_container, self.engine.client, self.id)

    def _heard(self, kind: bytes, number: int, content: bytes) -> None:
        try:
            if kind == inside.READY:
                self.facts = json.loads(content)
                self._ready.set()
                return
            running = self._runs.get(number)
            if running is not None:
                running.heard(kind, content)
                if running.over.is_set():
                    del self._runs[number]
        except (ValueError, KeyError, TypeError) as error:
            self._over(f"it sent an invalid message ({error!r})")

    def _over(self, why: str) -> None:
        if self._line is not None:
            said = self._line.last_words.decode("utf-8", "replace").strip()
            why = f"{why} {said}"
        self._end(why.strip(), None)

    def _end(self, why: str, ended: Ended | None) -> None:
        self.gone = self.gone or why
        self._ready.set()
        if self._line is not None:
            self._line.close()
        for running in list(self._runs.values()):
            running.lost(why, ended)
        self._runs.clear()


class ContainerProcess:
    """A program in a container, seen from here. `over` is set when it has ended in any way."""

    def __init__(self, container: Container, number: int, command: Command) -> None:
        self.container = container
        self.number = number
        self.ended: Ended | None = None
        self.pid = 0  # pid in the container
        self.begun = asyncio.Event()
        self.over = asyncio.Event()
        self.taken = asyncio.Event()
        self._news = asyncio.Event()
        self._command = command
        self._pieces: collections.deque[tuple[bytes, bytes]] = collections.deque()
        self._problem: WorkspaceError | None = None
        self._belt = asyncio.timeout(None)

    async def begin(self) -> None:
        """Waits until the program has started. Raises NotStarted if it could not. Cancelling ends the program."""
        stdin = self._command.stdin
        size = len(stdin) if isinstance(stdin, bytes) else 0
        try:
            async with asyncio.timeout(BEGIN_S + size / _SLOWEST_BYTES_PER_S):
                await self.begun.wait()
        except TimeoutError:
            pass
        finally:
            if not self.begun.is_set():
                await self.finish()
        if self._problem is not None:
            raise self._problem

    async def wait(self, on_stdout: Take | None = None, on_stderr: Take | None = None) -> Ended:
        """Waits until no process of the program is left. Callbacks run here, so their errors reach the waiting caller.
        The container applies the program's time-out; a second one here helps if that fails."""
        outputs = {inside.OUT: on_stdout, inside.ERR: on_stderr}
        timeout_s = self._command.timeout_s
        grace_s = self._command.grace_s
        belt = asyncio.timeout(None if timeout_s is None else timeout_s + grace_s + BELT_S)
        try:
            async with belt:
                self._belt = belt
                while not self.over.is_set() or self._pieces:
                    await self._news.wait()
                    self._news.clear()
                    while self._pieces:
                        kind, content = self._pieces.popleft()
                        callback = outputs[kind]
                        if callback is not None:
                            callback(content)
        except TimeoutError:
            if not belt.expired():
                raise
        finally:
            if not self.over.is_set():
                await self.finish()
        if self._problem is not None:
            raise self._problem
        assert self.ended is not None
        return self.ended

    def kill(self) -> None:
        """Asks the container to end the program; `wait` returns when that is done."""
        self.container.send(inside.KILL, self)

    async def finish(self) -> None:
        """Ends the program now; if asking does not help, ends the whole container."""
        self.kill()
        try:
            async with asyncio.timeout(self._command.grace_s + BELT_S) as self._belt:
                await self.over.wait()
        except TimeoutError:
            await self.container.aclose()

    def heard(self, kind: bytes, content: bytes) -> None:
        if kind in (inside.OUT, inside.ERR):
            self._pieces.append((kind, content))
            self._news.set()
        elif kind == inside.TAKEN:
            self.taken.set()
        elif kind == inside.ENDING:
            if self._belt.when() is not None:
                with suppress(RuntimeError):  # nobody waits for it any more
                    self._belt.reschedule(asyncio.get_running_loop().time() + BELT_S)
        elif kind == inside.STARTED:
            self.pid = json.loads(content)["started"]
            self.begun.set()
        else:
            message = json.loads(content)
            self.container.worn |= not message["clean"]
            if kind == inside.FAILED:
                said = message["failed"]
                self._problem = NotStarted(self._command, step=said["step"], number=said["errno"], text=said["text"])
            else:
                said = message["ended"]
                survivors = said.pop("survivors")
                self.ended = Ended(survivors_killed=survivors, oom=message["oom"], **said)
                if self.ended.why == "lost":
                    self.container.worn = True  # it killed its watcher, so its other effects are unknown
            self._set_over()

    def lost(self, why: str, ended: Ended | None) -> None:
        """Ends the program here, because no more messages will come."""
        if not self.over.is_set():
            self.ended = ended or Ended(why="lost")
            self._problem = run_lost(why)
            self._set_over()

    def _set_over(self) -> None:
        for event in (self.begun, self.taken, self.over, self._news):
            event.set()


def run_lost(why: str) -> WorkspaceError:
    message = f"The container that the command ran in is gone: {why.rstrip('.')}."
    return WorkspaceError(message, op="run", code="run-lost", retryable=True)


BUFFER_BYTES = 1 << 20


class ContainerSession:
    """Interactive program; see ports.Interactive. `on_end` is awaited after the program has ended, before `wait`
    returns."""

    def __init__(
        self,
        running: ContainerProcess,
        *,
        on_output: Callable[[bytes], None] | None = None,
        on_end: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._running = running
        self._on_output = on_output
        self._on_end = on_end
        self._unread = Unread(BUFFER_BYTES)
        self._turn = asyncio.Lock()
        self._over: Ended | None = None
        self._watching = asyncio.ensure_future(self._watch())
        self._watching.add_done_callback(lambda task: task.cancelled() or task.exception())  # `wait` raises the error

    @property
    def ended(self) -> Ended | None:
        return self._over

    @property
    def dropped_bytes(self) -> int:
        """Number of bytes that came faster than they were read and were dropped, oldest first."""
        return self._unread.dropped_bytes

    async def write(self, data: bytes) -> None:
        """Writes to stdin. Returns when everything was accepted or the program has ended."""
        async with self._turn:
            for at in range(0, len(data), PIECE_BYTES):
                if self._running.over.is_set():
                    return
                self._running.taken.clear()
                self._running.container.send(inside.INPUT, self._running, data[at : at + PIECE_BYTES])
                await self._running.taken.wait()

    def close_stdin(self) -> None:
        """Ends the input; in a terminal, sends the end-of-file character."""
        self._running.container.send(inside.END_INPUT, self._running)

    def resize(self, rows: int, columns: int) -> None:
        size = json.dumps([rows, columns]).encode()
        self._running.container.send(inside.RESIZE, self._running, size)

    async def read(self, limit_bytes: int = 1 << 16, *, wait_s: float = 0.0) -> bytes:
        """Returns output since the last read, at most `limit_bytes`. Waits up to `wait_s` when there is none."""
        return await self._unread.read(limit_bytes, wait_s)

    async def kill(self) -> Ended:
        self._running.kill()
        return await self.wait()

    async def wait(self) -> Ended:
        """Waits for the end. Cancelling this call does not end the session."""
        return await asyncio.shield(self._watching)

    async def aclose(self) -> None:
        """Kills the program if it still runs."""
        if not self._running.over.is_set():
            await self._running.finish()
        await asyncio.wait([self._watching])

    async def _watch(self) -> Ended:
        over = Ended(why="lost")
        try:
            try:
                over = await self._running.wait(self._take)
            except WorkspaceError as error:  # it ended with its container, which is a normal end for a session
                if error.code != "run-lost":
                    raise
                over = self._running.ended or over
            return over
        finally:
            try:
                if self._on_end is not None:
                    await self._on_end()
            finally:
                self._over = over
                self._unread.end()

    def _take(self, data: bytes) -> None:
        self._unread.add(data)
        if self._on_output is not None:
            self._on_output(data)
