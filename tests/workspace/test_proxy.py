"""A run reaches the hosts that are listed and nothing else; when it ends, nothing of its connections is left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from test_bwrap import House

from loopback import CERTIFICATE, Server, redirecting, serving
from prowess.errors import ConfigError, WorkspaceError, in_one_line
from prowess.workspace.isolation.bwrap import find_trusted
from prowess.workspace.network.proxy import CONTROL_FD, Proxy, ProxyLimits, RunProxy
from prowess.workspace.process.client import Processes
from prowess.workspace.process.command import Command, Ended
from wires import Echo, ask, get, hung_up, opened, recorded, said, status_of, told

PYTHON = "/usr/bin/python3"


def test_only_so_many_connections_at_once_and_the_others_have_their_turn() -> None:
    async def story() -> None:
        async with Echo() as echo:
            proxy = Proxy([f"127.0.0.1:{echo.port}"], limits=ProxyLimits(connections=8))

            async def one(port: int) -> bytes:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(f"CONNECT 127.0.0.1:{echo.port} HTTP/1.1\r\n\r\nhello".encode())
                await reader.readuntil(b"\r\n\r\nhello")
                writer.write_eof()
                said = await reader.read()
                await hung_up(writer)
                return said

            async with opened(proxy) as port:
                assert await asyncio.gather(*(one(port) for _ in range(200))) == [b"bye"] * 200
            assert 1 < echo.most <= 8 and echo.all == 200

    told(story)


def test_all_runs_together_leave_descriptors_for_the_rest_of_us() -> None:
    async def story() -> None:
        async with Echo() as echo:
            proxy = Proxy([f"127.0.0.1:{echo.port}"], limits=ProxyLimits(connections_in_all=4))
            async with opened(proxy) as first, opened(proxy) as second:
                held = []
                for _ in range(4):
                    held.append(await asyncio.open_connection("127.0.0.1", first))
                    held[-1][1].write(f"CONNECT 127.0.0.1:{echo.port} HTTP/1.1\r\n\r\n".encode())
                    await held[-1][0].readuntil(b"\r\n\r\n")
                waiting = asyncio.create_task(status_of(second, "CONNECT evil.example:443 HTTP/1.1\r\n\r\n"))
                done, _ = await asyncio.wait([waiting], timeout=0.3)
                assert not done
                await hung_up(held.pop()[1])
                assert await waiting == 403
                for _, writer in held:
                    await hung_up(writer)
            async with opened(proxy) as third:  # every place was given back
                codes = await asyncio.gather(*(status_of(third, "CONNECT evil:443 HTTP/1.1\r\n\r\n") for _ in range(9)))
                assert codes == [403] * 9

    told(story)


@pytest.mark.parametrize("how", ["leave", "raise", "cancel", "cancel twice"])
def test_the_end_of_the_session_is_the_end_of_every_connection(how: str) -> None:
    async def story() -> None:
        async with Echo() as echo:
            open_ones: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
            ready = asyncio.Event()

            async def session() -> None:
                async with opened(Proxy([f"127.0.0.1:{echo.port}"])) as port:
                    for request in (f"CONNECT 127.0.0.1:{echo.port} HTTP/1.1\r\n\r\n", "GET http://half", "") * 5:
                        open_ones.append(await asyncio.open_connection("127.0.0.1", port))
                        open_ones[-1][1].write(request.encode())
                        if request.startswith("CONNECT"):
                            await open_ones[-1][0].readuntil(b"\r\n\r\n")
                    ready.set()
                    if how == "raise":
                        raise ZeroDivisionError
                    if how.startswith("cancel"):
                        await asyncio.Event().wait()

            task = asyncio.create_task(session())
            await ready.wait()
            if how.startswith("cancel"):
                task.cancel()
            if how == "cancel twice":
                await asyncio.sleep(0)
                task.cancel()
            (result,) = await asyncio.gather(task, return_exceptions=True)
            assert type(result).__name__ == {"leave": "NoneType", "raise": "ZeroDivisionError"}.get(
                how, "CancelledError"
            )
            await echo.quiet.wait()
            for reader, writer in open_ones:
                with contextlib.suppress(ConnectionResetError):
                    assert await reader.read() == b""
                await hung_up(writer)

    told(story)


def test_a_host_is_recorded_once_and_so_many_at_most() -> None:
    events, on_event = recorded()

    async def story() -> None:
        async with opened(Proxy(["example.org"], on_event=on_event, limits=ProxyLimits(events=3))) as port:
            for number in (1, 1, 2, 3, 1, 4, 5, 6, 2):
                assert await status_of(port, f"CONNECT host{number}.example:443 HTTP/1.1\r\n\r\n") == 403

    told(story)
    assert [event[0] for event in events] == ["host1.example", "host2.example", "host3.example", ""]
    assert "the others are not recorded" in events[-1][3]


@pytest.mark.parametrize("error", [ZeroDivisionError, OSError, WorkspaceError])
def test_what_cannot_be_recorded_is_not_done(error: type[Exception]) -> None:
    async def story() -> None:
        def on_event(*_: object) -> None:
            raise error("the record is full")

        with Server(serving(b"hello")) as server:
            where = server.url("/").removeprefix("http://").rstrip("/")
            with pytest.raises(error, match="the record is full"):
                async with opened(Proxy([where], on_event=on_event)) as port:
                    for _ in range(3):
                        with contextlib.suppress(ConnectionResetError):
                            assert await ask(port, get(f"http://{where}/")) == b""
            assert server.requests == []

    told(story)


# --- whoever is in the box is not trusted with the listener either ---------------------------------------------------


@pytest.mark.parametrize("kind", ["nothing", "two", "file", "pipe", "datagram", "not listening", "unix", "six", "many"])
def test_only_a_listener_is_taken_for_one(kind: str, tmp_path: Path) -> None:
    async def story() -> None:
        with contextlib.ExitStack() as stack:

            def listener(family: int = socket.AF_INET, address: Any = ("127.0.0.1", 0)) -> int:
                made = stack.enter_context(socket.socket(family))
                made.bind(address)
                made.listen(1)
                return made.fileno()

            if kind == "nothing":
                fds = []
            elif kind in ("two", "many"):
                fds = [listener() for _ in range(2 if kind == "two" else 100)]
            elif kind == "file":
                fds = [os.open(tmp_path, os.O_RDONLY)]
                stack.callback(os.close, fds[0])
            elif kind == "pipe":
                fds = list(os.pipe())
                for fd in fds:
                    stack.callback(os.close, fd)
                fds.pop()
            elif kind == "datagram":
                fds = [stack.enter_context(socket.socket(type=socket.SOCK_DGRAM)).fileno()]
            elif kind == "not listening":
                fds = [stack.enter_context(socket.socket()).fileno()]
            elif kind == "six":
                fds = [listener(socket.AF_INET6, ("::1", 0))]
            else:
                fds = [listener(socket.AF_UNIX, str(tmp_path / "socket"))]
            with pytest.raises(WorkspaceError) as caught:
                async with Proxy(["example.org"]).session() as link:
                    link.wrap(["true"], PYTHON)
                    assert await said(link, b"listening", *fds) == b""  # hung up, and no word to go on
            assert caught.value.code == "proxy-failed"

    told(story)


def test_what_the_shim_says_is_in_the_error() -> None:
    async def story() -> None:
        with pytest.raises(WorkspaceError, match=r"did not start: .*:3128: Address already in use") as caught:
            async with Proxy(["example.org"]).session() as link:
                link.wrap(["true"], PYTHON)
                await said(link, b"127.0.0.1:3128: Address already in use\x1b]0;\n")
        assert caught.value.code == "proxy-failed" and PYTHON in (caught.value.hint or "")
        assert in_one_line(caught.value).isprintable()

    told(story)


def test_a_listener_that_others_have_a_hand_on_blocks_nobody() -> None:
    """They change its flags and take connections away before we can."""

    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            async with Proxy(["example.org"]).session() as link:
                assert await said(link, b"listening", listener.fileno()) == b"y"
                for _ in range(20):
                    listener.setblocking(False)
                    waiting = asyncio.create_task(
                        status_of(listener.getsockname()[1], "CONNECT evil.example:443 HTTP/1.1\r\n\r\n")
                    )
                    await asyncio.sleep(0)
                    with contextlib.suppress(BlockingIOError):
                        listener.accept()[0].close()
                    listener.setblocking(True)
                    (result,) = await asyncio.gather(waiting, return_exceptions=True)
                    assert result == 403 or isinstance(result, (OSError, IndexError))

    told(story)


def test_a_link_is_entered_first_and_a_list_is_read_at_once() -> None:
    link = Proxy(["example.org"]).session()
    with pytest.raises(ValueError, match="enter the session"):
        _ = link.fds
    with pytest.raises(ValueError, match="name of its program"):
        link.wrap([], PYTHON)
    with pytest.raises(ConfigError, match=r"workspace\.network_allow"):
        Proxy(["example.org", "http://example.org"])


def test_programs_are_told_in_every_spelling_and_the_loopback_of_the_box_stays_direct() -> None:
    env = Proxy(["example.org"]).session().env
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        assert env[name] == "http://127.0.0.1:3128"
    assert env["NO_PROXY"] == env["no_proxy"] == "localhost,127.0.0.1,::1"
    assert Proxy(["127.0.0.1:8080", "[::1]:80"]).session().env["NO_PROXY"] == "localhost"


def test_a_session_that_nobody_used_is_no_failure() -> None:
    async def story() -> None:
        async with Proxy(["example.org"]).session():
            pass
        async with Proxy(["example.org"]).session() as link:
            link.wrap(["true"], PYTHON)
            link.check(Ended(why="timeout"))  # there was no time to start it

    told(story)


# --- in a real box ---------------------------------------------------------------------------------------------------


class Street(House):
    """A house with a link to the world outside."""

    def joined(self, link: RunProxy, argv: Sequence[str], *, python: str = PYTHON, **more: Any) -> Command:
        box = self.box._replace(env={**self.box.env, **link.env})
        command = self.command(*link.wrap(argv, python), box=box, **more)
        return command._replace(fds={**command.fds, **link.fds})

    def through(self, proxy: Proxy, *argv: str, **more: Any) -> Ended:
        self.stdout.clear()
        self.stderr.clear()
        results: list[Ended] = []

        async def story() -> None:
            async with Processes() as processes, proxy.session() as link:
                command = self.joined(link, argv, **more)
                results.append(await processes.run(command, self.stdout.extend, self.stderr.extend))
                link.check(results[0])

        told(story)
        return results[0]


@pytest.fixture
def street(not_run: Callable[[str, str], None]) -> Iterator[Street | None]:
    """Not below pytest's own folder, which another pytest would close to the user in the box."""
    program = find_trusted("bwrap")
    if program is None:
        if "bwrap" in os.environ.get("REQUIRE_TIERS", "").split(","):
            pytest.fail("REQUIRE_TIERS names bwrap, and it is not installed")
        not_run("the proxy of a box", "bubblewrap is not installed on this machine")
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="prowess-") as folder:
        yield Street(program, Path(folder))


URLLIB = """
import sys, urllib.request, urllib.error
for url in sys.argv[1:]:
    try:
        print(urllib.request.urlopen(url, timeout=300).read().decode())
    except urllib.error.HTTPError as error:
        print(error.code, error.read().decode())
    except OSError as error:
        print(error)
"""


def test_a_program_reaches_what_is_allowed_and_nothing_else(street: Street | None) -> None:
    if street is None:
        return
    events, on_event = recorded()
    with Server(serving(b"hello")) as good, Server(serving(b"secret")) as bad:
        allowed = good.url("").removeprefix("http://")
        proxy = Proxy([allowed], on_event=on_event)
        tunnel = bad.url("").replace("http:", "https:")
        ended = street.through(proxy, PYTHON, "-I", "-c", URLLIB, good.url(), bad.url(), "http://example.org/", tunnel)
        assert ended.exit_code == 0, street.stderr.decode()
        said = street.stdout.decode()
        assert said.startswith("hello\n403 Refused: 127.0.0.1 is allowed at port ")
        assert "403 Refused: example.org is not allowed." in said
        assert "Tunnel connection failed: 403 Refused by workspace.network_allow: 127.0.0.1 is allowed at port" in said
        direct = """
import socket, sys
for where in ("127.0.0.1", "10.0.0.1", "1.1.1.1", "::1"):
    try:
        socket.create_connection((where, int(sys.argv[1])), 5)
        print("through")
    except OSError as error:
        print(error.errno is not None)
"""
        street.through(proxy, PYTHON, "-I", "-c", direct, allowed.partition(":")[2])
        assert street.stdout.decode().split() == ["True"] * 4
        assert len(good.requests) == 1 and bad.requests == []
    assert [event[2] for event in events] == ["allowed", "refused", "refused"]


def test_curl_reaches_what_is_allowed_also_through_tls(
    street: Street | None, tmp_path: Path, not_run: Callable[[str, str], None]
) -> None:
    if street is None:
        return
    curl = find_trusted("curl")
    if curl is None:
        not_run("curl through the proxy of a box", "there is no curl here")
        return
    certificate = tmp_path / "server.pem"
    certificate.write_text(CERTIFICATE, encoding="ascii")
    inside = street.folder / "ws" / "server.pem"
    inside.write_text(CERTIFICATE[CERTIFICATE.index("-----BEGIN CERT") :], encoding="ascii")
    inside.chmod(0o644)
    with (
        Server(serving(b"hello")) as good,
        Server(serving(b"secret")) as bad,
        Server(serving(b"over tls"), certificate=certificate) as tls,
    ):
        proxy = Proxy([server.url("").split("//")[1] for server in (good, tls)])
        script = f"""
        {curl} -sS {good.url()}; echo
        {curl} -sS {bad.url()} | head -1
        {curl} -sS -p {bad.url()} 2>&1
        {curl} -sS --cacert /workspace/server.pem {tls.url()}; echo
        {curl} -sS --noproxy '*' {good.url()} 2>&1 | cut -c1-9
        {curl} -sS --data-binary @/usr/bin/env -H 'Expect: 100-continue' -o /dev/null -w '%{{http_code}}' {bad.url()}
        """
        ended = street.through(proxy, "bash", "-c", script)
        lines = street.stdout.decode().splitlines()
        assert lines[0] == "hello", (ended, street.stderr)
        assert lines[1].startswith("Refused: 127.0.0.1 is allowed at port")
        assert "403" in lines[2]
        assert lines[3] == "over tls"
        assert lines[4] == "curl: (7)"
        assert lines[5] == "403"
        assert bad.requests == [] and len(good.requests) == 1


def test_a_redirect_comes_back_to_the_proxy(street: Street | None) -> None:
    if street is None:
        return
    events, on_event = recorded()
    with Server(serving(b"secret")) as bad, Server(redirecting(bad.url())) as good:
        street.through(Proxy([good.url("").split("//")[1]], on_event=on_event), PYTHON, "-I", "-c", URLLIB, good.url())
        assert street.stdout.decode().startswith("403 Refused: 127.0.0.1 is allowed at port")
        assert len(good.requests) == 1 and bad.requests == []
    assert [event[2] for event in events] == ["allowed", "refused"]


def test_the_program_has_no_trace_of_the_shim(street: Street | None) -> None:
    if street is None:
        return
    script = """
    env | cut -d= -f1 | sort | tr '\\n' ' '; echo
    ls /proc/self/fd | tr '\\n' ' '; echo
    grep -E 'SigBlk|SigIgn|SigCgt|^Seccomp:|NoNewPrivs' /proc/self/status | tr -s '\\t\\n' '  '; echo
    tr '\\0' ' ' < /proc/$$/cmdline
    """
    street.run("bash", "-c", script)
    without = street.stdout.decode().splitlines()
    odd = os.fsdecode(b"\xff a\nb")
    street.through(Proxy(["example.org"]), "bash", "-c", script)
    within = street.stdout.decode().splitlines()
    more = sorted({*Proxy(["example.org"]).session().env, *without[0].split()})
    assert sorted(within[0].split()) == more
    assert within[1:] == without[1:]
    street.through(Proxy(["example.org"]), "bash", "-c", 'printf %s "$1"; exit 7', "bash", odd)
    assert bytes(street.stdout) == b"\xff a\nb"


def test_a_server_inside_the_box_is_reached_without_the_proxy(street: Street | None) -> None:
    if street is None:
        return
    script = """
import http.server, threading, urllib.request
server = http.server.HTTPServer(("127.0.0.1", 8000), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(urllib.request.urlopen("http://127.0.0.1:8000/", timeout=300).status)
"""
    street.through(Proxy(["example.org"]), PYTHON, "-I", "-c", script)
    assert street.stdout.decode().split() == ["200"], street.stderr.decode()


@pytest.mark.parametrize(("program", "code"), [("no-such-program", 127), ("/workspace", 126), ("/workspace/x/y", 127)])
def test_a_program_that_is_not_there_is_the_programs_own_failure(
    street: Street | None, program: str, code: int
) -> None:
    if street is None:
        return
    ended = street.through(Proxy(["example.org"]), program)
    assert ended.exit_code == code
    assert street.stderr.decode().startswith(f"prowess: {program}: ")


@pytest.mark.parametrize("python", ["/usr/bin/no-such-python", "/usr/bin/false", "/usr/bin/true"])
def test_a_shim_that_cannot_run_is_our_failure_and_said_so(street: Street | None, python: str) -> None:
    if street is None:
        return
    with pytest.raises(WorkspaceError) as caught:
        street.through(Proxy(["example.org"]), "echo", "never", python=python)
    assert caught.value.code == "proxy-failed" and python in str(caught.value)
    assert not street.stdout


def test_a_shim_without_its_socket_does_not_start_the_program(street: Street | None) -> None:
    if street is None:
        return

    async def story() -> None:
        async with Processes() as processes:
            with pytest.raises(WorkspaceError) as caught:
                async with Proxy(["example.org"]).session() as link:
                    command = street.joined(link, ["echo", "never"])
                    fds = {number: fd for number, fd in command.fds.items() if number != CONTROL_FD}
                    command = command._replace(fds=fds)
                    await processes.run(command, street.stdout.extend, street.stderr.extend)
            assert caught.value.code == "proxy-failed"
        assert not street.stdout and "the proxy of this run did not start" in street.stderr.decode()

    told(story)


def test_a_shim_whose_listener_nobody_takes_does_not_start_the_program(street: Street | None) -> None:
    if street is None:
        return

    async def story() -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        async with Processes() as processes, Proxy(["example.org"]).session() as link:
            command = street.joined(link, ["echo", "never"])
            command = command._replace(fds={**command.fds, CONTROL_FD: theirs.fileno()})
            run = asyncio.create_task(processes.run(command, street.stdout.extend, street.stderr.extend))
            assert await asyncio.get_running_loop().sock_recv(ours, 100) == b"listening"
            ours.close()
            theirs.close()
            ended = await run
            assert ended.exit_code == 126 and not street.stdout
            assert street.stderr.decode().endswith("the proxy of this run did not start: nobody serves it\n")
            with pytest.raises(WorkspaceError, match="nothing in the box asked for it"):
                link.check(ended)

    told(story)


def test_a_port_that_is_taken_is_said(street: Street | None) -> None:
    """Two links in one box: the second shim finds the port in use, and nobody runs without a proxy."""
    if street is None:
        return

    async def story() -> None:
        proxy = Proxy(["example.org"])
        async with Processes() as processes, proxy.session() as first:
            with pytest.raises(WorkspaceError, match=r"127\.0\.0\.1:3128: Address already in use"):
                async with proxy.session() as second:
                    inner = second.wrap(["echo", "never"], PYTHON)
                    inner[inner.index(str(CONTROL_FD))] = "11"
                    command = street.joined(first, inner)
                    fds = {**command.fds, 11: second.fds[CONTROL_FD]}
                    command = command._replace(fds=fds)
                    await processes.run(command, street.stdout.extend, street.stderr.extend)
            assert not street.stdout

    told(story)


def test_a_run_whose_time_is_up_before_its_proxy_was_there_has_timed_out(street: Street | None) -> None:
    if street is None:
        return
    slow = street.folder / "ws" / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 1000\n", encoding="ascii")
    slow.chmod(0o755)
    ended = street.through(Proxy(["example.org"]), "echo", "never", python="/workspace/slow", timeout_s=0.5)
    assert ended.timed_out


def test_a_run_that_is_cancelled_with_a_tunnel_open_leaves_nothing(street: Street | None) -> None:
    if street is None:
        return
    script = """
import socket, sys
tunnels = []
for _ in range(5):
    tunnel = socket.create_connection(("127.0.0.1", 3128))
    tunnel.sendall(b"CONNECT 127.0.0.1:%d HTTP/1.1\\r\\n\\r\\nhello" % int(sys.argv[1]))
    answer = b""
    while not answer.endswith(b"hello"):
        answer += tunnel.recv(1000)
    tunnels.append(tunnel)
print("open", flush=True)
tunnels[0].recv(1)
"""

    async def story() -> None:
        async with Echo() as echo, Processes() as processes:
            running = asyncio.Event()

            async def run() -> None:
                async with Proxy([f"127.0.0.1:{echo.port}"]).session() as link:
                    command = street.joined(link, [PYTHON, "-I", "-c", script, str(echo.port)])
                    await processes.run(command, lambda _: running.set(), street.stderr.extend)

            task = asyncio.create_task(run())
            await running.wait()
            assert echo.open == 5
            task.cancel()
            (result,) = await asyncio.gather(task, return_exceptions=True)
            assert isinstance(result, asyncio.CancelledError), street.stderr
            await echo.quiet.wait()

    told(story)


def test_many_runs_at_once_have_a_proxy_each(street: Street | None) -> None:
    if street is None:
        return

    async def story() -> None:
        with Server(serving(b"hello")) as server:
            proxy = Proxy([server.url("").split("//")[1]])
            async with Processes() as processes:

                async def one() -> bytes:
                    out = bytearray()
                    async with proxy.session() as link:
                        argv = [PYTHON, "-I", "-c", URLLIB, server.url()]
                        await processes.run(street.joined(link, argv), out.extend, street.stderr.extend)
                    return bytes(out)

                assert await asyncio.gather(*(one() for _ in range(12))) == [b"hello\n"] * 12, street.stderr

    told(story)
