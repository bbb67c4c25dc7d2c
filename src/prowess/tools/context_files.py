"""Files of a session for a function that is a tool. The workspace belongs to one event loop; calls from other threads
and loops are carried out there."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from prowess._internal.mime import guess_mime
from prowess.core.ports import CallGrant
from prowess.errors import ConfigError, WorkspaceError
from prowess.tools.files.paths import WRITABLE, brief, find_target, not_found, open_plain, plain_path
from prowess.tools.files.replace import write_at
from prowess.tools.session_work import SessionWork
from prowess.workspace.dirfd import walk
from prowess.workspace.session_folder import Place

T = TypeVar("T")


class SessionFiles:
    """Implements core.tool_context.ToolFiles."""

    def __init__(
        self, work: SessionWork, within: CallGrant, loop: asyncio.AbstractEventLoop, is_over: Callable[[], bool]
    ) -> None:
        """Takes the event loop of the session, and `is_over`, which says if the run of the call has ended."""
        self._work = work
        self._within = within
        self._is_over = is_over
        self._loop = loop

    async def names(self) -> Sequence[str]:
        return await self._there(self._names)

    async def read_bytes(self, name: str) -> bytes:
        return await self._there(lambda: self._read(name))

    async def write_bytes(self, name: str, data: bytes) -> None:
        await self._there(lambda: self._write(name, data))

    def names_sync(self) -> Sequence[str]:
        return self._wait(self._names, "names")

    def read_bytes_sync(self, name: str) -> bytes:
        return self._wait(lambda: self._read(name), "read_bytes")

    def write_bytes_sync(self, name: str, data: bytes) -> None:
        self._wait(lambda: self._write(name, data), "write_bytes")

    # --- in the loop of the session ---------------------------------------------------------------------------------

    async def _there(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        self._check_open()
        if asyncio.get_running_loop() is self._loop:
            return await work()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), self._loop))

    def _wait(self, work: Callable[[], Coroutine[Any, Any, T]], name: str) -> T:
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:  # a thread, as it should be
            running = None
        if running is self._loop:
            message = f"files.{name}_sync was called in the event loop, which would wait for itself."
            raise ConfigError(message, code="would-block", hint=f"Write: await context.files.{name}(…)")
        self._check_open()
        return asyncio.run_coroutine_threadsafe(work(), self._loop).result()

    def _check_open(self) -> None:
        if self._is_over() or self._loop.is_closed():
            message = "The run of this ToolContext has ended, and its files with it."
            hint = "Use them before the tool returns. Afterwards there is result.files."
            raise WorkspaceError(message, op="open", code="run-ended", hint=hint)

    async def _names(self) -> Sequence[str]:
        _, place = await self._work.workspace()
        return await asyncio.to_thread(_list, place)

    async def _read(self, name: str) -> bytes:
        _, place = await self._work.workspace()
        path = plain_path(_checked(name).removeprefix("workspace://"))
        return await asyncio.to_thread(_read, place, path)

    async def _write(self, name: str, data: bytes) -> None:
        if not isinstance(data, bytes | bytearray | memoryview):
            kind = type(data).__name__
            raise WorkspaceError(f"'{brief(name)}' was given {kind}, not bytes.", op="write", hint="Encode the text.")
        target = await find_target(_checked(name), self._work, self._within)
        await asyncio.to_thread(write_at, target, bytes(data))
        if target.name.startswith("out/"):
            self._within.made[target.name] = {
                "name": target.name,
                "ref": f"workspace://{target.name}",
                "mime_type": guess_mime(target.name, bytes(data[:4096])),
                "size_bytes": len(data),
            }


def _checked(name: str) -> str:
    """Refuses what only the model may name: a path on this machine, `~` and other schemes."""
    path = name.removeprefix("workspace://")
    if path.startswith(("/", "~")) or "://" in path:
        hint = "Use a path below work/ or out/, such as out/report.md."
        raise WorkspaceError(f"'{brief(name)}' is no file of the workspace.", op="open", code="path-escape", hint=hint)
    return path


def _list(place: Place) -> list[str]:
    found: list[str] = []
    for top in sorted(WRITABLE):
        for each in walk(place.root, top):
            if stat.S_ISREG(each.status.st_mode):
                found.append(each.rel)
    return found


def _read(place: Place, path: str) -> bytes:
    try:
        with open_plain(place, path) as fd, open(os.dup(fd), "rb") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        raise not_found(path, place.root) from None
