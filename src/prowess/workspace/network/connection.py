"""Serves one connection of a program: checks the name, resolves it, checks the address, connects, and copies the data.

Every wait has a time-out: for the request, the address, the server, and the next byte of either side.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from prowess._internal.addresses import Address, new_socket, why_not_outside
from prowess._internal.urls import HostTarget
from prowess.workspace.network.host_rules import SETTING, HostRule, denial_reason, find_rule, is_listed
from prowess.workspace.network.http import END, ProxyRequest, Refused, begins_well, parse_request, render_answer

Verdict = Literal["allowed", "refused", "failed"]  # `failed`: allowed, but not reached
OnEvent = Callable[[str, int, Verdict, str], None]
Resolve = Callable[[str], Awaitable[Sequence[str]]]  # name to addresses; OSError when there are none

CHUNK_BYTES = 1 << 16
MOST_ADDRESSES = 4
MOST_SHOWN = 20
LINGER_S, LINGER_BYTES = 2.0, 1 << 20
_NO_REQUEST = "this is an HTTP/1.1 proxy, and that was no request to one"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyLimits:
    """Limits of one run, except `connections_in_all`, which counts all runs and keeps descriptors free for the rest of
    this process. A connection above a limit waits until another one ends."""

    connections: int = 64
    connections_in_all: int = 256
    head_bytes: int = 32 * 1024
    head_s: float = 10.0
    connect_s: float = 15.0  # includes name resolution
    idle_s: float = 300.0
    events: int = 100


async def find_addresses(target: HostTarget, rules: Sequence[HostRule], resolve: Resolve) -> list[Address]:
    """Returns the addresses of a target that may be reached. Raises Refused: 502 when there are none, 403 when none of
    them is allowed."""
    names = [target.host]
    try:
        if target.address is None:
            names = await resolve(target.host)
        found = [ipaddress.ip_address(text) for text in dict.fromkeys(names)]
    except (OSError, ValueError) as error:
        raise Refused(502, f"the address of {target.host} was not found: {error}", target=target) from error
    if not found:
        raise Refused(502, f"{target.host} has no address", target=target)
    good = [address for address in found if is_listed(rules, address, target.port) or not why_not_outside(address)]
    if not good:
        problems = "; ".join(why_not_outside(address) or "" for address in found[:MOST_ADDRESSES])
        why = f"{target.host} leads to an address that has to be listed itself: {problems}"
        raise Refused(403, why, target=target)
    return good[:MOST_ADDRESSES]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """Values that all connections of a run share."""

    rules: Sequence[HostRule]
    limits: ProxyLimits
    resolve: Resolve
    tell: OnEvent

    async def serve(self, client: socket.socket) -> None:
        """Serves a connection until both sides are done. The caller closes the client."""
        try:
            client.setblocking(False)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._talk(client)
        except* OSError:  # one side closed, or was silent for too long
            pass

    async def _talk(self, client: socket.socket) -> None:
        head = b""
        try:
            head, rest = await self._head(client)
            request = parse_request(head)
            upstream = await self._reach(request.target)
        except Refused as refused:
            await self._refuse(client, refused, body=not head.startswith(b"HEAD "))
            return
        with upstream:
            await self._carry(client, upstream, request, rest)

    async def _head(self, client: socket.socket) -> tuple[bytes, bytes]:
        """Returns (everything before the empty line, bytes already received after it)."""
        loop = asyncio.get_running_loop()
        data = bytearray()
        try:
            async with asyncio.timeout(self.limits.head_s):
                looked_at = 0
                while (end := data.find(END, looked_at)) < 0:
                    looked_at = max(0, len(data) - len(END))
                    if len(data) >= self.limits.head_bytes:
                        raise Refused(431, f"a request has less than {self.limits.head_bytes} bytes before its body")
                    more = await loop.sock_recv(client, min(4096, self.limits.head_bytes - len(data)))
                    if not more:
                        raise ConnectionAbortedError("it left before it had asked")
                    data += more
                    if not begins_well(data):
                        raise Refused(400, _NO_REQUEST)
        except TimeoutError as error:
            raise Refused(408, f"the request took longer than {self.limits.head_s:g} s to arrive") from error
        return bytes(data[:end]), bytes(data[end + len(END) :])

    async def _reach(self, target: HostTarget) -> socket.socket:
        """Connects to a checked address, or raises Refused."""
        rule = find_rule(self.rules, target)
        if rule is None:
            raise Refused(403, denial_reason(self.rules, target), target=target)
        try:
            async with asyncio.timeout(self.limits.connect_s):
                good = await find_addresses(target, self.rules, self.resolve)
                self.tell(target.host, target.port, "allowed", f"by '{rule.text}'")
                return await self._connected(good, target)
        except TimeoutError as error:
            why = f"{target} did not answer in {self.limits.connect_s:g} s"
            raise Refused(504, why, target=target) from error

    async def _connected(self, addresses: list[Address], target: HostTarget) -> socket.socket:
        """Connects to the first address that answers; the time is split evenly between them."""
        why = ""
        for address in addresses:
            try:
                async with asyncio.timeout(self.limits.connect_s / len(addresses)):
                    return await _connect(address, target.port)
            except OSError as error:
                why = os.strerror(error.errno) if error.errno else "no answer"  # asyncio's own text is different
        raise Refused(502, f"{target} could not be reached: {why}", target=target)

    async def _refuse(self, client: socket.socket, refused: Refused, *, body: bool) -> None:
        loop = asyncio.get_running_loop()
        text = f"{refused.why}.\n"
        reason = ""
        verdict: Verdict = "failed"
        if refused.status == 403:
            verdict = "refused"
            reason = f"Refused by {SETTING}: {refused.why}"[:200]
            shown = ", ".join(rule.text for rule in self.rules[:MOST_SHOWN]) or "nothing"
            if len(self.rules) > MOST_SHOWN:
                shown += f" and {len(self.rules) - MOST_SHOWN} more"
            text = f"Refused: {refused.why}.\nAllowed: {shown}.\nThe list is the setting {SETTING}.\n"
        if refused.host:
            self.tell(refused.host, refused.port, verdict, refused.why)
        answer = render_answer(refused.status, text, reason=reason, body=body)
        async with asyncio.timeout(LINGER_S):
            await loop.sock_sendall(client, answer)
            client.shutdown(socket.SHUT_WR)
            await _discard(client, LINGER_BYTES)

    async def _carry(self, client: socket.socket, upstream: socket.socket, request: ProxyRequest, rest: bytes) -> None:
        loop = asyncio.get_running_loop()

        def alive() -> None:
            if not idle.expired():
                idle.reschedule(loop.time() + self.limits.idle_s)

        async with asyncio.timeout(self.limits.idle_s) as idle:
            if request.tunnel:
                await loop.sock_sendall(client, b"HTTP/1.1 200 Connection established\r\n\r\n")
                await loop.sock_sendall(upstream, rest)
                async with asyncio.TaskGroup() as both:
                    both.create_task(_pump(client, upstream, alive))
                    both.create_task(_pump(upstream, client, alive))
                return
            # One request and its answer. Data after the body could be a request to another host, so it is not sent.
            await loop.sock_sendall(upstream, request.head)
            async with asyncio.TaskGroup() as both:
                sending = both.create_task(_send_body(client, upstream, rest, request.body_bytes, alive))
                await _pump(upstream, client, alive)
                await asyncio.wait([sending], timeout=LINGER_S)
                sending.cancel()


async def _connect(address: Address, port: int) -> socket.socket:
    with contextlib.ExitStack() as stack:
        upstream = stack.enter_context(new_socket(address, socket.SOCK_STREAM))
        upstream.setblocking(False)
        upstream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(upstream, (str(address), port))
        stack.pop_all()
        return upstream


async def _pump(source: socket.socket, sink: socket.socket, alive: Callable[[], None]) -> None:
    """Copies everything from source to sink. At the end of source, closes the sink for writing; the sink may still
    answer."""
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(source, CHUNK_BYTES):
        alive()
        await loop.sock_sendall(sink, data)
        alive()
    sink.shutdown(socket.SHUT_WR)


async def _send_body(
    client: socket.socket, upstream: socket.socket, first: bytes, size: int, alive: Callable[[], None]
) -> None:
    """Sends the announced number of bytes, beginning with `first`. A server may answer and close before it has read
    them all; then its answer still counts."""
    loop = asyncio.get_running_loop()
    data = first[:size]
    left = size - len(data)
    try:
        await loop.sock_sendall(upstream, data)
        while left > 0:
            data = await loop.sock_recv(client, min(left, CHUNK_BYTES))
            if not data:
                upstream.shutdown(socket.SHUT_WR)
                return
            left -= len(data)
            await loop.sock_sendall(upstream, data)
            alive()
    except OSError:
        await _discard(client, left)


async def _discard(client: socket.socket, most: int) -> None:
    """Reads and drops data. Closing with unread data would reset the connection, and the last answer could be lost."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):
        while most > 0 and (data := await loop.sock_recv(client, min(most, CHUNK_BYTES))):
            most -= len(data)
