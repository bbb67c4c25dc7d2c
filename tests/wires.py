"""A proxy whose listener is in our own network, handed over the way the shim does it, and somebody to talk to."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any

from guard import GUARD_S
from prowess.workspace.network.proxy import CONTROL_FD, Proxy, RunProxy


def told(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run the story, which has to leave nothing behind: no task, no thread, no descriptor."""

    async def whole() -> None:
        async with asyncio.timeout(GUARD_S):
            await story()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    before = descriptors() | threads()
    asyncio.run(whole())
    until = time.monotonic() + GUARD_S  # a thread that is on its last line, and servers of the test itself that hang up
    while (left := (descriptors() | threads()) - before) and time.monotonic() < until:
        time.sleep(0.01)
    assert not left


def threads() -> set[str]:
    return {f"{thread.name} {thread.ident}" for thread in threading.enumerate() if thread.name.startswith("prowess-")}


def descriptors() -> set[str]:
    """What is open here, by what it is; pipes and sockets have a number of their own."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            found.add(os.readlink(f"/proc/self/fd/{name}"))
    return {what for what in found if not what.startswith("/proc/")}


@contextlib.asynccontextmanager
async def opened(proxy: Proxy) -> AsyncIterator[int]:
    """The port of a listener that the proxy serves."""
    async with proxy.session() as link:
        yield await handed_over(link)


async def handed_over(link: RunProxy) -> int:
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        await said(link, b"listening", listener.fileno())
        return listener.getsockname()[1]


async def said(link: RunProxy, text: bytes, *fds: int) -> bytes:
    """What the link answers to somebody who says this in the place of the shim."""
    with socket.socket(fileno=os.dup(link.fds[CONTROL_FD])) as control:
        control.setblocking(False)
        socket.send_fds(control, [text], fds)
        return await asyncio.get_running_loop().sock_recv(control, 16)


async def ask(port: int, request: bytes | str) -> bytes:
    """Everything that comes back, until the other side ends it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request if isinstance(request, bytes) else request.encode())
        return await reader.read()
    finally:
        await hung_up(writer)


async def hung_up(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def get(url: str, *headers: str) -> str:
    return "\r\n".join([f"GET {url} HTTP/1.1", *headers, "", ""])


async def status_of(port: int, request: bytes | str) -> int:
    return int((await ask(port, request)).split(b" ", 2)[1])


class Echo:
    """A server that says what it hears until it hears no more, then says bye; and counts."""

    def __init__(self) -> None:
        self.open = self.most = self.all = 0
        self.quiet = asyncio.Event()

    async def __aenter__(self) -> Echo:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=256)
        self.port: int = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()
        await self.server.wait_closed()
        if self.open:
            await self.quiet.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        self.all += 1
        self.most = max(self.most, self.open)
        self.quiet.clear()
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
            writer.write(b"bye")
        await hung_up(writer)
        self.open -= 1
        if not self.open:
            self.quiet.set()


def answers(*answers: Sequence[str] | Exception) -> tuple[Callable[[str], Awaitable[Sequence[str]]], list[str]]:
    """A resolver that answers one after the other, the last one for ever, and the names it was asked for."""
    asked: list[str] = []

    async def resolve(host: str) -> Sequence[str]:
        asked.append(host)
        answer = answers[min(len(asked), len(answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return resolve, asked


Events = list[tuple[str, int, str, str]]


def recorded() -> tuple[Events, Callable[[str, int, str, str], None]]:
    events: Events = []
    return events, lambda *event: events.append(event)
