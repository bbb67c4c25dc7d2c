"""Proxy of a run: it listens inside the sandbox, is served by this process, and reaches only allowed hosts.

    proxy = Proxy(allow=["example.org", "*.example.com"])
    async with proxy.session() as link:  # one for each run
        box = dataclasses.replace(box, env={**box.env, **link.env})
        command = boxed(bwrap, box, link.wrap(argv, "/usr/bin/python3"))
        ended = await processes.run(dataclasses.replace(command, fds={**command.fds, **link.fds}))
        link.check(ended)  # raises WorkspaceError "proxy-failed" when the program was never started

Guarantees: the sandbox has no other route, so a program that ignores the proxy variables reaches nothing. A name is
resolved here, once per connection, after it was allowed. The connection goes to exactly the address that was checked.
When the session ends, every connection has ended.

Limits: names are checked, contents are not. TLS is not inspected, so an allowed host can receive all data and pass it
on to another host (domain fronting). Connections are made directly, not through a proxy that this machine may need.

All input from the sandbox is untrusted, including the listener.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import os
import socket
import stat
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

from prowess._internal.addresses import look_up
from prowess.errors import WorkspaceError
from prowess.workspace.network import listener as proxy_shim
from prowess.workspace.network.connection import Exchange, OnEvent, ProxyLimits, Resolve, Verdict
from prowess.workspace.network.host_rules import SETTING, parse_rules
from prowess.workspace.process.command import Ended

PORT = 3128  # inside a sandbox, where it is always free
CONTROL_FD = 10
LOOKUPS = 4
LOOPBACK = ("localhost", "127.0.0.1", "::1")
WAIT_S = 2.0


class Proxy:
    """Rules and limits for reaching hosts. Raises ConfigError when an entry of `allow` names no host. `on_event` gets
    each host once per run and verdict. If it raises, that connection ends, and the session raises the error at its
    end."""

    def __init__(
        self,
        allow: Sequence[str],
        *,
        resolve: Resolve | None = None,
        on_event: OnEvent | None = None,
        limits: ProxyLimits | None = None,
    ) -> None:
        self.rules = parse_rules(allow)
        self.resolve = resolve
        self.on_event = on_event
        self.limits = limits or ProxyLimits()
        self.places = threading.Semaphore(self.limits.connections_in_all)

    def session(self) -> RunProxy:
        return RunProxy(self)


class RunProxy:
    """Proxy of one run. Usable once, from inside one sandbox."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._places = threading.Semaphore(proxy.limits.connections)
        self._exchange = Exchange(
            rules=proxy.rules, limits=proxy.limits, resolve=proxy.resolve or self._resolve, tell=self._tell
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._told: set[tuple[str, int, Verdict]] = set()
        self._door: _Door | None = None
        self._control: tuple[socket.socket, socket.socket] | None = None
        self._lookups: ThreadPoolExecutor | None = None
        self._python = ""
        self._checked = False
        self._failure = "nothing in the box asked for it"
        self._broken: BaseException | None = None

    def wrap(self, argv: Sequence[str], python: str) -> list[str]:
        """Returns argv that starts the listener first and then this program. `python` is the path of an interpreter
        inside the sandbox."""
        if not argv:
            raise ValueError("a command needs at least the name of its program")
        self._python = python
        return [python, "-I", "-S", "-X", "utf8", "-c", _shim(), str(CONTROL_FD), str(PORT), *argv]

    @property
    def fds(self) -> Mapping[int, int]:
        if self._control is None:
            raise ValueError("enter the session before you use it; a session can be used only once")
        return {CONTROL_FD: self._control[1].fileno()}

    @property
    def env(self) -> Mapping[str, str]:
        """Proxy variables for programs. The sandbox's own loopback is reached directly, unless a rule names the host's
        loopback."""
        listed = {rule.host for rule in self._proxy.rules}
        direct = ",".join(host for host in LOOPBACK if host not in listed)
        url = f"http://127.0.0.1:{PORT}"
        values = {"http_proxy": url, "https_proxy": url, "all_proxy": url, "no_proxy": direct}
        values |= {name.upper(): value for name, value in values.items()}
        values["NODE_USE_ENV_PROXY"] = "1"
        return values

    def check(self, ended: Ended | None = None) -> None:
        """Checks that the program was started with its proxy. A run that was ended from outside is not checked: it may
        have had no time. Leaving the session without this call checks as for a run that ended by itself."""
        self._checked = True
        reached = self._door is not None
        self._hear()  # its last message
        ended_by_itself = ended is None or ended.why == "exit"
        if self._python and not reached and ended_by_itself:
            message = f"The program was not started, because the proxy of its run did not start: {self._failure}."
            hint = f"Does {self._python} run inside the box? Without hosts in {SETTING} no proxy is needed."
            raise WorkspaceError(message, op="network", code="proxy-failed", hint=hint)

    async def __aenter__(self) -> RunProxy:
        self._loop = asyncio.get_running_loop()
        self._control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control[0].setblocking(False)
        self._loop.add_reader(self._control[0].fileno(), self._hear)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None and not self._checked:
                self.check()
        finally:
            await self._close()
        if error is None and self._broken is not None:
            raise self._broken

    async def _close(self) -> None:
        self._hang_up()
        if self._door is not None:
            self._door.close()
        for task in self._tasks:
            task.cancel()
        if self._lookups is not None:
            self._lookups.shutdown(wait=False, cancel_futures=True)
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._door is not None:
            await self._door.closed()

    def _hear(self) -> None:
        """Reads the listener's message: its socket, or the reason for a failure. The control socket is closed after
        either."""
        if self._control is None:
            return
        ours = self._control[0]
        try:
            data, fds, _, _ = socket.recv_fds(ours, 256, 8, socket.MSG_CMSG_CLOEXEC)
            listener = _taken(fds)
            if listener is None:
                said = data.decode("utf-8", "replace")
                self._failure = "".join(c if c.isprintable() else "?" for c in said) or "the box sent no usable answer"
            else:
                door = _Door(listener, (self._places, self._proxy.places), self._begin)
                door.open()
                self._door = door
                ours.send(b"y")
        except BlockingIOError:
            return
        except (OSError, RuntimeError) as error:  # RuntimeError: no thread can be started
            self._failure = str(error)
        self._hang_up()

    def _hang_up(self) -> None:
        if self._control is not None:
            self._loop.remove_reader(self._control[0].fileno())
            for end in self._control:
                end.close()
            self._control = None

    def _begin(self, client: socket.socket) -> None:
        if self._broken is not None:  # a connection that cannot be recorded is not made
            client.close()
            self._give_back()
            return
        task = self._loop.create_task(self._exchange.serve(client))
        self._tasks.add(task)
        task.add_done_callback(functools.partial(self._end, client))

    def _end(self, client: socket.socket, task: asyncio.Task[None]) -> None:
        client.close()  # here, because a task that is cancelled before its first step runs no clean-up
        self._tasks.discard(task)
        self._give_back()
        if not task.cancelled():
            self._broken = self._broken or task.exception()

    def _give_back(self) -> None:
        self._places.release()
        self._proxy.places.release()

    def _tell(self, host: str, port: int, verdict: Verdict, why: str) -> None:
        told = len(self._told)
        most = self._proxy.limits.events
        if self._proxy.on_event is None or (host, port, verdict) in self._told or told > most:
            return
        self._told.add((host, port, verdict))
        if told == most:
            host = ""
            port = 0
            why = f"more than {most} hosts were asked for, and the others are not recorded"
        recorded = False
        try:
            self._proxy.on_event(host, port, verdict, why)
            recorded = True
        finally:
            if not recorded:
                self._broken = sys.exc_info()[1]

    async def _resolve(self, host: str) -> list[str]:
        """Resolves a name in threads of this run, because a thread that waits for an answer cannot be cancelled."""
        if self._lookups is None:
            self._lookups = ThreadPoolExecutor(LOOKUPS, thread_name_prefix="prowess-lookup")
        return await self._loop.run_in_executor(self._lookups, look_up, host)


class _Door:
    """Accepts connections from the listener in a thread. The sandbox may have changed the listener's flags, and a call
    that blocks must not block anything else."""

    def __init__(
        self,
        listener: socket.socket,
        places: Sequence[threading.Semaphore],
        begin: Callable[[socket.socket], None],
    ) -> None:
        self._listener = listener
        self._places = places
        self._begin = begin
        self._loop = asyncio.get_running_loop()
        self._over = threading.Event()
        self._ended = asyncio.Event()

    def open(self) -> None:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._listener)
            threading.Thread(target=self._run, name="prowess-proxy", daemon=True).start()
            stack.pop_all()

    def close(self) -> None:
        self._over.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RD)  # wakes the thread, which closes it

    async def closed(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WAIT_S):
                await self._ended.wait()

    def _run(self) -> None:
        with self._listener:
            while self._place(self._places[0]):
                client = self._accept()
                if client is None:
                    break
                if not self._place(self._places[1]):
                    client.close()
                    break
                self._post(self._enter, client)
        self._post(self._ended.set)

    def _place(self, places: threading.Semaphore) -> bool:
        while not self._over.is_set():
            if places.acquire(timeout=0.1):
                return True
        return False

    def _accept(self) -> socket.socket | None:
        while not self._over.is_set():
            try:
                return self._listener.accept()[0]
            except OSError as error:
                if error.errno in (errno.EINVAL, errno.EBADF):  # it no longer listens
                    return None
                self._over.wait(0.1)  # out of descriptors or memory, or the listener was set to non-blocking
        return None

    def _post(self, do: Callable[..., None], *args: socket.socket) -> None:
        try:
            self._loop.call_soon_threadsafe(do, *args)
        except RuntimeError:  # the loop was closed before us
            for client in args:
                client.close()

    def _enter(self, client: socket.socket) -> None:
        if self._over.is_set():
            client.close()
            self._places[1].release()
        else:
            self._begin(client)


def _taken(fds: list[int]) -> socket.socket | None:
    """Returns the listener if exactly one TCP listener came and nothing else, or None."""
    with contextlib.ExitStack() as stack:
        for fd in fds:
            stack.callback(os.close, fd)
        if len(fds) != 1 or not stat.S_ISSOCK(os.fstat(fds[0]).st_mode):
            return None
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, fileno=os.dup(fds[0]))
        stack.enter_context(listener)
        asked = (socket.SO_DOMAIN, socket.SO_TYPE, socket.SO_PROTOCOL, socket.SO_ACCEPTCONN)
        found = tuple(listener.getsockopt(socket.SOL_SOCKET, option) for option in asked)
        if found != (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, 1):
            return None
        listener.settimeout(None)
        return socket.socket(socket.AF_INET, socket.SOCK_STREAM, fileno=listener.detach())


@functools.cache
def _shim() -> str:
    with open(proxy_shim.__file__, encoding="utf-8") as file:
        return file.read()
