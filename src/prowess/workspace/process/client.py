"""Runs commands through a supervisor process. When `run` returns or is cancelled, no process of the command is left.

    processes = Processes()
    ended = await processes.run(Command(argv=["python3", "x.py"], cwd="/tmp", env={"PATH": "/usr/bin"}), print)
    await processes.aclose()

This process reads the command's pipes itself, so output never passes through the supervisor.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from prowess._internal.files import open_regular
from prowess.errors import WorkspaceError, WorkspaceUnavailable
from prowess.workspace.process.command import Command, Ended, NotStarted, render_spec
from prowess.workspace.process.streams import Reader, memory_file

if TYPE_CHECKING:
    from prowess.workspace.process.interactive import InteractiveProcess

STARTS_AT_ONCE = 32  # the kernel limits the number of descriptors in flight
BELT_S = 5.0  # longer than init ever needs; after that, init is not asked again


class Processes:
    """Client of one supervisor, which is started on first use and restarted if it dies. `on_restart` gets the
    reason."""

    linux = True

    def __init__(self, *, on_restart: Callable[[str], None] | None = None) -> None:
        self._on_restart = on_restart
        self._link: socket.socket | None = None
        self._popen: subprocess.Popen[bytes] | None = None
        self._stderr = -1
        self._numbers = itertools.count(1)
        self._gate: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = None
        self._closed = False

    async def run(
        self,
        command: Command,
        on_stdout: Callable[[bytes], None] | None = None,
        on_stderr: Callable[[bytes], None] | None = None,
        *,
        on_start: Callable[[StartedCommand], None] | None = None,
    ) -> Ended:
        """Runs a command to its end. The callbacks get every byte in order; if one raises, the command is ended and the
        error is raised here. Cancelling ends the command before CancelledError is raised again. `on_start` gets the
        started command, which can end it earlier."""
        with ExitStack() as stack:
            async with self._starts():  # waiting starts hold no descriptors
                readers = [stack.enter_context(closing(Reader(callback))) for callback in (on_stdout, on_stderr)]
                stdin = _open_stdin(command.stdin)
                writers = [reader.give_writer() for reader in readers]
                started = await self._start(command, [stdin, *writers])
            stack.callback(started.close)
            if on_start is not None:
                on_start(started)
            ended = await started.wait(readers)
            for reader in readers:
                reader.drain()
            return ended

    async def open_session(
        self, command: Command, *, buffer_bytes: int = 1 << 20, on_output: Callable[[bytes], None] | None = None
    ) -> InteractiveProcess:
        """Starts a command and leaves it running, with open stdin and both outputs in one stream."""
        from prowess.workspace.process.interactive import InteractiveProcess, Terminal

        session: InteractiveProcess | None = None
        async with self._starts():
            terminal = Terminal(command.tty, command.rows, command.columns, buffer_bytes, on_output)
            try:
                session = InteractiveProcess(await self._start(command, terminal.theirs()), terminal)
                return session
            finally:
                if session is None:
                    terminal.close()

    async def aclose(self) -> None:
        """Ends every remaining run, and the supervisor."""
        self._closed = True
        await self._end_supervisor()

    async def __aenter__(self) -> Processes:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    @property
    def supervisor_pid(self) -> int | None:
        if self._popen:
            return self._popen.pid
        return None

    async def _start(self, command: Command, streams: list[int]) -> StartedCommand:
        """Starts a command. Takes over `streams` and always closes them."""
        with ExitStack() as stack:

            def kept(fd: int) -> int:
                stack.callback(os.close, fd)
                return fd

            streams = [kept(fd) for fd in streams]
            spec = kept(memory_file(json.dumps(render_spec(command)).encode()))
            passed = [kept(memory_file(v) if isinstance(v, bytes) else os.dup(v)) for v in command.fds.values()]
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            stack.callback(theirs.close)
            ours.setblocking(False)
            number = next(self._numbers)
            run = StartedCommand(self, number, command, ours)
            message = {"op": "run", "run": number, "wrapped": command.wrapped}
            message |= {"timeout_s": command.timeout_s, "grace_s": command.grace_s}
            begun = False
            try:
                await self._send(message, [theirs.fileno(), spec, *streams, *passed])
                theirs.close()
                await run.begin()
                begun = True
            finally:
                if not begun:  # the command may have started before we were cancelled, and nobody else closes it
                    run.close()
            return run

    def _starts(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        if self._gate is None or self._gate[0] is not loop:
            self._gate = (loop, asyncio.Semaphore(STARTS_AT_ONCE))
        return self._gate[1]

    async def _send(self, message: dict[str, Any], fds: list[int]) -> None:
        data = json.dumps(message).encode()
        for _ in range(2):
            link = self._link or self._start_supervisor()
            until = time.monotonic() + BELT_S
            while True:
                try:
                    socket.send_fds(link, [data], fds)
                    return
                except BlockingIOError:
                    if time.monotonic() > until:
                        break  # the supervisor no longer reads
                    await asyncio.sleep(0.005)
                except (BrokenPipeError, ConnectionResetError):
                    break
            why = await self._end_supervisor()
            if why and self._on_restart is not None:  # when several runs notice it, only the first one reports it
                self._on_restart(why)
        raise WorkspaceUnavailable("The process that starts commands ended twice in a row.", op="start")

    def _start_supervisor(self) -> socket.socket:
        if self._closed:
            raise WorkspaceError("These processes were closed.", op="start")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        self._stderr = os.memfd_create("supervisor")
        with theirs:
            words = [theirs.fileno(), os.getpid()]
            self._popen = start_script("supervisor.py", words, fds=[theirs.fileno()], stderr=self._stderr)
        self._link = ours
        return ours

    async def _end_supervisor(self) -> str:
        """Ends the supervisor. Returns its exit code and the end of its stderr."""
        if self._popen is None or self._link is None:
            return ""
        popen = self._popen
        link = self._link
        stderr = self._stderr
        self._popen = None
        self._link = None
        self._stderr = -1
        link.close()
        if popen.poll() is None:
            await _exit_of(popen)
        code = popen.wait()
        words = os.pread(stderr, 4000, max(0, os.fstat(stderr).st_size - 4000)).decode("utf-8", "replace")
        os.close(stderr)
        return f"The supervisor ended with {code}. {words}".strip()

    def _kill_init(self, number: int) -> None:
        try:
            if self._link is not None:
                self._link.send(json.dumps({"op": "kill", "run": number}).encode())
        except OSError:
            pass


class StartedCommand:
    """A started command as the client sees it: messages from its init, and its output."""

    def __init__(self, processes: Processes, number: int, command: Command, control: socket.socket) -> None:
        self.pid: int = 0  # until it has started
        self.ended: Ended | None = None
        self._processes = processes
        self._number = number
        self._command = command
        self._control = control
        self._over = False  # no more messages will come
        self._belt: asyncio.Timeout | None = None

    @property
    def started(self) -> bool:
        return self.pid != 0 or self.ended is not None

    async def begin(self) -> None:
        """Waits until the command has started. Raises NotStarted if it could not."""
        await self._attend_with_belt((), until=lambda: self.started)

    async def wait(self, readers: Sequence[Reader] = ()) -> Ended:
        """Waits until no process of the command is left."""
        await self._attend_with_belt(readers, until=lambda: self.ended is not None)
        if self.ended is None:
            raise WorkspaceError("The end of the command could not be confirmed.", op="run", code="run-stuck")
        return self.ended

    async def _attend_with_belt(self, readers: Sequence[Reader], *, until: Callable[[], bool]) -> None:
        """Waits with an extra time-out. Init applies the command's own time-out; the extra one helps when the command
        has stopped its init. An init that still ends processes says so, and is waited for."""
        command = self._command
        belt = asyncio.timeout(None if command.timeout_s is None else command.timeout_s + command.grace_s + BELT_S)
        try:
            async with belt:
                self._belt = belt
                await self._attend(readers, until=until)
        except TimeoutError:
            if not belt.expired():
                raise
        finally:
            if not until() and not self._over:
                await self._finish()

    def kill(self) -> None:
        """Asks init to end the command; `wait` returns when that is done."""
        try:
            self._control.send(b"{}")
        except OSError:
            pass

    def close(self) -> None:
        """Closes the control socket, which also ends what is left of the command."""
        self._control.close()

    async def _attend(self, readers: Sequence[Reader], *, until: Callable[[], bool]) -> None:
        """Waits until `until` is true; the only place that waits. Callbacks run here, so their errors reach the waiting
        caller."""
        loop = asyncio.get_running_loop()
        news = asyncio.Event()
        watched = {self._control.fileno(), *(reader.fd for reader in readers if reader.fd >= 0)}
        for fd in watched:
            loop.add_reader(fd, news.set)
        try:
            while not until():
                await news.wait()
                news.clear()
                for reader in readers:
                    if reader.fd in watched and not reader.take():
                        loop.remove_reader(reader.fd)
                        watched.discard(reader.fd)
                self._hear()
        finally:
            for fd in watched:
                loop.remove_reader(fd)

    async def _finish(self) -> None:
        """Asks init to end the command. If that fails, the supervisor ends init and everything below it."""
        for ask, wait_s in ((self.kill, self._command.grace_s + 1.0), (self._kill_init, BELT_S)):
            ask()
            try:
                async with asyncio.timeout(wait_s) as self._belt:
                    await self._attend((), until=lambda: self.ended is not None)
                return
            except TimeoutError:
                continue
            except WorkspaceError:  # it had not started, or all its processes are gone: finished in both cases
                return

    def _kill_init(self) -> None:
        self._processes._kill_init(self._number)

    def _hear(self) -> None:
        try:
            data = self._control.recv(1 << 16)
        except BlockingIOError:
            return
        except ConnectionResetError:  # raised once if init left our last message unread; its own messages follow
            data = self._control.recv(1 << 16)
        if not data:
            self._lost()
        self._take(json.loads(data))

    def _lost(self) -> NoReturn:
        self._over = True
        raise WorkspaceError(
            "The processes that watched the command were killed.",
            op="run",
            code="run-lost",
            retryable=True,
        )

    def _take(self, message: dict[str, Any]) -> None:
        self._over = "started" not in message and "ending" not in message
        if "started" in message:
            self.pid = message["started"]
        elif "ending" in message:
            if self._belt is not None and self._belt.when() is not None:
                self._belt.reschedule(asyncio.get_running_loop().time() + BELT_S)
        elif "failed" in message:
            said = message["failed"]
            raise NotStarted(self._command, step=said["step"], number=said["errno"], text=said["text"])
        else:
            said = message["ended"]
            self.ended = Ended(survivors_killed=said.pop("survivors"), **said)


_NEEDED_TO_START = ("LD_LIBRARY_PATH",)  # some interpreters need it; commands do not inherit it


def start_script(
    name: str, words: Sequence[int], *, fds: Sequence[int], stderr: int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """Starts a program of this folder with these descriptors and no others."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
    return subprocess.Popen(  # noqa: S603
        [sys.executable, "-I", "-S", "-X", "utf8", path, *map(str, words)],
        cwd="/",
        env={name: os.environ[name] for name in _NEEDED_TO_START if name in os.environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        pass_fds=fds,
        start_new_session=True,  # Ctrl-C goes to our process only; we tell the script what to do
    )


def _open_stdin(stdin: bytes | str | os.PathLike[str] | None) -> int:
    if isinstance(stdin, bytes):
        return memory_file(stdin)  # needs no writer task, cannot deadlock, and is read-only
    if stdin is None:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    return open_regular(os.fspath(stdin), follow=True)


async def _exit_of(popen: subprocess.Popen[bytes]) -> None:
    """Waits until the process ends by itself; kills it if it does not."""
    loop = asyncio.get_running_loop()
    pidfd = os.pidfd_open(popen.pid)
    gone = loop.create_future()
    loop.add_reader(pidfd, lambda: gone.done() or gone.set_result(None))
    try:
        async with asyncio.timeout(2 * BELT_S):
            await gone
    except TimeoutError:
        popen.kill()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)
