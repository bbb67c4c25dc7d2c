"""Keeps a command open: write to its stdin, read its output in bounded pieces, and end it with its runtime.

Unread output is kept up to a limit. Beyond it, the oldest bytes are dropped and counted.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import struct
import termios
from collections.abc import Callable
from typing import Protocol

from prowess.workspace.process.command import Ended
from prowess.workspace.process.streams import CHUNK_BYTES, close_all


class Unread:
    """Buffer of output that nobody has read yet. `news` is set when data arrives and at the end."""

    def __init__(self, most_bytes: int) -> None:
        self.dropped_bytes = 0
        self.ended = False
        self.news = asyncio.Event()
        self._most_bytes = most_bytes
        self._data = bytearray()

    def add(self, data: bytes) -> None:
        self._data += data
        if (over := len(self._data) - self._most_bytes) > 0:
            self.dropped_bytes += over
            del self._data[:over]
        self.news.set()

    def end(self) -> None:
        """Marks the end of output and wakes waiting readers."""
        self.ended = True
        self.news.set()

    async def read(self, limit_bytes: int, wait_s: float) -> bytes:
        """Returns at most `limit_bytes`. Waits up to `wait_s` when the buffer is empty."""
        if not self._data and not self.ended and wait_s > 0:
            self.news.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self.news.wait()
            except TimeoutError:
                pass
        data = bytes(self._data[:limit_bytes])
        del self._data[:limit_bytes]
        return data


class RunningProcess(Protocol):
    """Protocol of the command behind a session."""

    pid: int
    ended: Ended | None

    async def wait(self) -> Ended: ...
    def kill(self) -> None: ...
    def close(self) -> None: ...


class InteractiveProcess:
    """A command that runs until it ends, is killed, or its runtime closes."""

    def __init__(self, run: RunningProcess, terminal: Terminal) -> None:
        self._run = run
        self._terminal = terminal
        self._waiter = asyncio.ensure_future(self._watch())
        self.pid = run.pid

    async def write(self, data: bytes) -> None:
        """Writes to stdin. Returns when everything was accepted or the command has ended."""
        await self._terminal.write(data)

    def close_stdin(self) -> None:
        """Ends the input; in a terminal, sends the end-of-file character."""
        self._terminal.end_input()

    async def read(self, limit_bytes: int = 1 << 16, *, wait_s: float = 0.0) -> bytes:
        """Returns output since the last read, at most `limit_bytes`. Waits up to `wait_s` when there is none."""
        return await self._terminal.unread.read(limit_bytes, wait_s)

    @property
    def dropped_bytes(self) -> int:
        """Number of bytes that came faster than they were read and were dropped, oldest first."""
        return self._terminal.unread.dropped_bytes

    @property
    def ended(self) -> Ended | None:
        return self._run.ended

    def resize(self, rows: int, columns: int) -> None:
        self._terminal.resize(rows, columns)

    async def kill(self) -> Ended:
        self._run.kill()
        return await self.wait()

    async def wait(self) -> Ended:
        """Waits for the end. Cancelling this call does not end the session."""
        return await asyncio.shield(self._waiter)

    async def aclose(self) -> None:
        """Kills the command if it still runs, and closes its terminal."""
        if self.ended is None:
            self._run.kill()
        await asyncio.wait([self._waiter])
        self._terminal.close()

    async def _watch(self) -> Ended:
        try:
            return await self._run.wait()
        finally:
            self._run.close()
            self._terminal.finish()


class Terminal:
    """Both directions of a session, as a pseudo-terminal or as two pipes. Output that is not read in time is
    dropped."""

    def __init__(
        self, tty: bool, rows: int, columns: int, buffer_bytes: int, on_output: Callable[[bytes], None] | None
    ) -> None:
        self.tty = tty
        self.unread = Unread(buffer_bytes)
        self._on_output = on_output
        self._loop = asyncio.get_running_loop()
        if tty:
            self._out, slave = pty.openpty()
            self._in = self._out
            self._theirs = [slave, os.dup(slave), os.dup(slave)]
            self.resize(rows, columns)
        else:
            their_in, self._in = os.pipe()
            self._out, their_out = os.pipe()
            self._theirs = [their_in, their_out, os.dup(their_out)]
        os.set_blocking(self._out, False)
        os.set_blocking(self._in, False)
        self._loop.add_reader(self._out, self._ready)

    def theirs(self) -> list[int]:
        """Returns stdin, stdout and stderr of the command; the caller must close them."""
        theirs, self._theirs = self._theirs, []
        return theirs

    async def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view and self._in >= 0 and not self.unread.ended:
            try:
                view = view[os.write(self._in, view) :]
            except BlockingIOError:
                await self._writable()
            except OSError:  # the command no longer reads
                return

    def end_input(self) -> None:
        if self.tty:
            try:
                os.write(self._in, b"\x04")
            except OSError:
                pass
        elif self._in >= 0:
            os.close(self._in)
            self._in = -1

    def resize(self, rows: int, columns: int) -> None:
        if self.tty and self._out >= 0:
            fcntl.ioctl(self._out, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def finish(self) -> None:
        """Reads the remaining output of an ended command without waiting for more."""
        for _ in range(256):
            if self.unread.ended or not self._ready():
                break
        self._end()

    def close(self) -> None:
        self._end()
        close_all(self._theirs)
        close_all({fd for fd in (self._in, self._out) if fd >= 0})
        self._in = self._out = -1
        self._theirs = []

    def _ready(self) -> bool:
        try:
            data = os.read(self._out, CHUNK_BYTES)
        except BlockingIOError:
            return False
        except OSError:  # EIO: no process has the other side of the terminal open
            data = b""
        if not data:
            self._end()
            return False
        if self._on_output is not None:
            self._on_output(data)
        self.unread.add(data)
        return True

    def _end(self) -> None:
        if not self.unread.ended:
            self._loop.remove_reader(self._out)
            self.unread.end()

    async def _writable(self) -> None:
        """Waits until there is room to write, or the command has ended."""
        room = self._loop.create_future()
        self._loop.add_writer(self._in, lambda: room.done() or room.set_result(None))
        news = asyncio.ensure_future(self._ended())
        try:
            await asyncio.wait([room, news], return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()
            self._loop.remove_writer(self._in)

    async def _ended(self) -> None:
        while not self.unread.ended:
            self.unread.news.clear()
            await self.unread.news.wait()
