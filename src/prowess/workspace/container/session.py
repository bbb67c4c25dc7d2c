"""A program in a container that goes on while nobody looks: written to, read from in bounded pieces."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

from prowess.errors import WorkspaceError
from prowess.workspace.container import init as inside
from prowess.workspace.container.container import PIECE_BYTES, Running
from prowess.workspace.process.command import Ended
from prowess.workspace.process.unread import Unread

BUFFER_BYTES = 1 << 20


class ContainerSession:
    """See ports.Interactive. `on_end` is awaited once the program has ended, before anybody is told that it has."""

    def __init__(
        self,
        running: Running,
        *,
        on_output: Callable[[bytes], None] | None = None,
        on_end: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._running, self._on_output, self._on_end = running, on_output, on_end
        self._unread = Unread(BUFFER_BYTES)
        self._turn = asyncio.Lock()
        self._over: Ended | None = None
        self._watching = asyncio.ensure_future(self._watch())
        self._watching.add_done_callback(lambda task: task.cancelled() or task.exception())  # for whoever waits

    @property
    def ended(self) -> Ended | None:
        return self._over

    @property
    def dropped_bytes(self) -> int:
        """What came faster than it was read, and was left out: always the oldest."""
        return self._unread.dropped_bytes

    async def write(self, data: bytes) -> None:
        """To its stdin. Returns when all was taken, or the program has ended."""
        async with self._turn:
            for at in range(0, len(data), PIECE_BYTES):
                if self._running.over.is_set():
                    return
                self._running.taken.clear()
                self._running.cell.send(inside.INPUT, self._running, data[at : at + PIECE_BYTES])
                await self._running.taken.wait()

    def close_stdin(self) -> None:
        """End of input; in a terminal, the character for it."""
        self._running.cell.send(inside.END_INPUT, self._running)

    def resize(self, rows: int, columns: int) -> None:
        self._running.cell.send(inside.RESIZE, self._running, json.dumps([rows, columns]).encode())

    async def read(self, limit_bytes: int = 1 << 16, *, wait_s: float = 0.0) -> bytes:
        """What has come since the last read, at most that much. When there is nothing, wait that long for something."""
        return await self._unread.read(limit_bytes, wait_s)

    async def kill(self) -> Ended:
        self._running.kill()
        return await self.wait()

    async def wait(self) -> Ended:
        """Being cancelled here does not end the session."""
        return await asyncio.shield(self._watching)

    async def aclose(self) -> None:
        """Kill it if it still runs."""
        if not self._running.over.is_set():
            await self._running.finish()
        await asyncio.wait([self._watching])

    async def _watch(self) -> Ended:
        over = Ended(why="lost")
        try:
            try:
                over = await self._running.wait(self._take)
            except WorkspaceError as error:  # gone with its container: that is how it ended, and nobody may be waiting
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
