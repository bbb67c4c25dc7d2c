"""Runs commands on systems other than Linux, such as macOS, with one watcher process for each command.

Same as on Linux: a clean environment, no inherited descriptors, limits for each process, a time-out, and the end of the
command's process group, even when this process is killed. NOTE lists the differences; every result contains it.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack

from prowess.errors import WorkspaceError, WorkspaceUnavailable
from prowess.workspace.process.client import BELT_S, Processes, StartedCommand, start_script
from prowess.workspace.process.command import Command, render_spec
from prowess.workspace.process.posix_watcher import signal_group
from prowess.workspace.process.streams import memory_file

LINUX = sys.platform.startswith("linux")  # tests set it to False to run the code for other systems
NOTE = (
    "Without Linux, this does not hold: a process that leaves its process group, or stops its watcher, goes on after "
    "the run; programs that change the user (set-user-ID) work; memory and the number of processes are not limited."
)


def open_processes() -> Processes:
    """Returns the implementation for this system."""
    return Processes() if LINUX else PosixProcesses()


class PosixProcesses(Processes):
    linux = False

    def __init__(self) -> None:
        super().__init__()
        self.watchers: list[subprocess.Popen[bytes]] = []

    async def aclose(self) -> None:
        """Ends all watchers. A watcher ends its command and itself on SIGTERM, or when its socket closes."""
        self._closed = True
        for watcher in self.watchers:
            watcher.terminate()
        until = time.monotonic() + 2 * BELT_S
        while self._running():
            if time.monotonic() > until:
                for watcher in self.watchers:
                    watcher.kill()
            await asyncio.sleep(0.002)

    async def _start(self, command: Command, streams: list[int]) -> StartedCommand:
        with ExitStack() as stack:

            def kept(fd: int) -> int:
                stack.callback(os.close, fd)
                return fd

            streams = [kept(fd) for fd in streams]
            if self._closed:
                raise WorkspaceError("These processes were closed.", op="start")
            if command.landlock is not None or command.seccomp is not None or command.cgroups:
                raise WorkspaceUnavailable("Only Linux can isolate a process in this way.", op="start")
            spec = render_spec(command) | {"timeout_s": command.timeout_s, "grace_s": command.grace_s}
            document = kept(memory_file(json.dumps(spec).encode()))
            passed = [kept(memory_file(v) if isinstance(v, bytes) else os.dup(v)) for v in command.fds.values()]
            ours, theirs = socket.socketpair()
            stack.callback(theirs.close)
            ours.setblocking(False)
            run = _WatchedRun(self, next(self._numbers), command, ours)
            begun = False
            try:
                fds = [theirs.fileno(), document, *streams, *passed]
                run.watcher = start_script("posix_watcher.py", fds, fds=fds)
                self._running()
                self.watchers.append(run.watcher)
                theirs.close()
                await run.begin()
                begun = True
            finally:
                if not begun:
                    run.close()
            return run

    def _running(self) -> bool:
        """Reaps ended watchers. True while any watcher is left."""
        self.watchers = [watcher for watcher in self.watchers if watcher.poll() is None]
        return bool(self.watchers)


class _WatchedRun(StartedCommand):
    watcher: subprocess.Popen[bytes] | None = None
    _heard = b""

    def _hear(self) -> None:
        """Reads messages as lines, because not every system has packet sockets."""
        try:
            data = self._control.recv(1 << 16)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""
        *lines, self._heard = (self._heard + data).split(b"\n")
        for line in lines:
            self._take(json.loads(line))
        if not data and self.ended is None:  # the watcher was killed, perhaps by its command
            self._end_group()
            self._lost()

    def _kill_init(self) -> None:
        self._end_group()
        if self.watcher is not None:
            self.watcher.kill()

    def _end_group(self) -> None:
        if self.pid:
            signal_group(self.pid, 9)
