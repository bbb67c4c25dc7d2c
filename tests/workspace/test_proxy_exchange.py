"""What a program asks a proxy for is answered, judged and carried exactly once, however it was written."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import select
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopback import Server, serving
from prowess._internal.addresses import is_own
from prowess.workspace.network.http import Refused, parse_request
from prowess.workspace.network.proxy import Proxy, ProxyLimits
from wires import Echo, answers, ask, get, hung_up, opened, recorded, status_of, told


def test_a_plain_request_goes_on_with_the_host_that_was_decided_on() -> None:
    events, on_event = recorded()

    async def story() -> None:
        with Server(serving(b"hello")) as server:
            here = server.url("/a?b=c").removeprefix("http://")
            async with opened(Proxy([here.split("/")[0]], on_event=on_event)) as port:
                headers = ["Host: other.example", "Proxy-Connection: keep-alive", "Proxy-Authorization: x", "X-Mine: 1"]
                headers += ["Connection: keep-alive, X-Hop", "X-Hop: 1", "TE: trailers", "Upgrade: h2c"]
                answer = await ask(port, get(f"HTTP://{here}", *headers))
            assert answer.startswith(b"HTTP/1.1 200") and answer.endswith(b"\r\n\r\nhello")
            (request,) = server.requests
            assert request.path == "/a?b=c"
            assert request.headers == {"host": here.split("/")[0], "connection": "close", "x-mine": "1"}
            (event,) = events
            assert event[2:] == ("allowed", f"by '{here.split('/')[0]}'")

    told(story)


def test_a_tunnel_carries_everything_and_the_end_of_one_side_is_not_the_end_of_the_other() -> None:
    async def story() -> None:
        big = os.urandom(3_000_000)
        async with Echo() as echo, opened(Proxy([f"127.0.0.1:{echo.port}"])) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"CONNECT 127.0.0.1:{echo.port} HTTP/1.1\r\nHost: ignored\r\n\r\nearly".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
            writer.write(big)
            writer.write_eof()
            assert await reader.read() == b"early" + big + b"bye"
            await hung_up(writer)

    told(story)


def test_who_is_refused_is_told_what_and_by_which_setting() -> None:
    events, on_event = recorded()

    async def story() -> None:
        allow = ["example.org", "*.example.com", *(f"host{n}.example" for n in range(30))]
        resolve, asked = answers(["127.0.0.1"])
        async with opened(Proxy(allow, resolve=resolve, on_event=on_event)) as port:
            tunnel = await ask(port, "CONNECT evil.example:443 HTTP/1.1\r\n\r\n")
            plain = await ask(port, get("http://evil.example/x"))
            head = await ask(port, "HEAD http://evil.example/x HTTP/1.1\r\n\r\n")
            again = await ask(port, "CONNECT example.org:22 HTTP/1.1\r\n\r\n")
            posted = await ask(
                port, b"POST http://evil.example/ HTTP/1.1\r\nContent-Length: 300000\r\n\r\n" + b"x" * 300000
            )
        for answer in (tunnel, plain, posted):
            first = answer.split(b"\r\n")[0]
            assert first == b"HTTP/1.1 403 Refused by workspace.network_allow: evil.example is not allowed"
            text = answer.split(b"\r\n\r\n", 1)[1].decode()
            assert text.startswith("Refused: evil.example is not allowed.\nAllowed: example.org, *.example.com, host0")
            assert text.endswith(" and 12 more.\nThe list is the setting workspace.network_allow.\n")
        assert head.endswith(b"\r\n\r\n") and b"Content-Length: 0" not in head
        assert b"example.org is allowed at port 80 and 443, not at 22" in again
        assert asked == []  # a name that is not allowed is not even looked up
        assert events == [
            ("evil.example", 443, "refused", "evil.example is not allowed"),
            ("evil.example", 80, "refused", "evil.example is not allowed"),
            ("example.org", 22, "refused", "example.org is allowed at port 80 and 443, not at 22"),
        ]

    told(story)


SPELLINGS = """
    127.0.0.1 localhost 127.1 2130706433 0x7f000001 0177.0.0.1 0.0.0.0 [::1] [::] ::1 [::ffff:127.0.0.1] [::ffff:7f00:1]
    [::127.0.0.1] 127.0.0.1. 127.0.0.2 169.254.169.254 [fe80::1%25lo] [fd00:ec2::254] [64:ff9b::7f00:1]
    example.org@127.0.0.1 127.0.0.1@example.org 127.0.0.1%00.example.org 127.0.0.1#.example.org
    example.org. EXAMPLE.ORG a.example.org
"""


@pytest.mark.parametrize("host", SPELLINGS.split())
def test_no_spelling_leads_to_this_machine(host: str) -> None:
    """Names that are allowed resolve to loopback here; everything else is refused for what it is."""

    async def story() -> None:
        resolve, asked = answers(["127.0.0.1", "::1", "::ffff:127.0.0.1"])
        events, on_event = recorded()
        with Server(serving(b"secret")) as server:
            where = f"{host}:{server.url().split(':')[2].split('/')[0]}"
            allow = [f"example.org:{where.rpartition(':')[2]}", f"*.example.org:{where.rpartition(':')[2]}"]
            async with opened(Proxy(allow, resolve=resolve, on_event=on_event)) as port:
                assert await status_of(port, f"CONNECT {where} HTTP/1.1\r\n\r\n") in (400, 403)
                assert await status_of(port, get(f"http://{where}/")) in (400, 403)
            assert server.requests == []
            assert {event[2] for event in events} <= {"refused"}
            assert set(asked) <= {"example.org", "a.example.org"}

    told(story)


def test_an_answer_that_changes_is_judged_each_time_and_the_judged_address_is_the_one_used() -> None:
    events, on_event = recorded()

    async def story() -> None:
        with Server(serving(b"hello")) as server:
            number = int(server.url("").rpartition(":")[2])
            with socket.create_server(("127.0.0.2", number)) as trap:
                resolve, asked = answers(
                    ["127.0.0.1"], ["127.0.0.2"], ["127.0.0.2", "127.0.0.1"], ["169.254.169.254"], ["fe80::1%lo", "::1"]
                )
                proxy = Proxy([f"site.example:{number}", f"127.0.0.1:{number}"], resolve=resolve, on_event=on_event)
                async with opened(proxy) as port:
                    codes = [await status_of(port, get(f"http://site.example:{number}/")) for _ in range(5)]
                assert codes == [200, 403, 200, 403, 403]
                assert (
                    asked == ["site.example"] * 5
                )  # once for each connection, and never between judging and connecting
                assert [request.headers["host"] for request in server.requests] == [f"site.example:{number}"] * 2
                trap.setblocking(False)
                with pytest.raises(BlockingIOError):
                    trap.accept()
                why = "site.example leads to an address that has to be listed itself: 127.0.0.2 is a loopback address"
                assert events == [
                    ("site.example", number, "allowed", f"by 'site.example:{number}'"),
                    ("site.example", number, "refused", why),
                ]

    told(story)


def test_the_next_address_is_tried_and_one_that_cannot_be_reached_is_said() -> None:
    async def story() -> None:
        with Server(serving(b"hello")) as server, socket.socket() as closed:
            number = int(server.url("").rpartition(":")[2])
            closed.bind(("127.0.0.2", 0))  # bound and not listening: nobody can be there
            resolve, _ = answers(["127.0.0.3", "127.0.0.1"], OSError("no such name"), [], ["nonsense"])
            gone = closed.getsockname()[1]
            allow = [f"site.example:{number}", f"127.0.0.3:{number}", f"127.0.0.1:{number}", f"127.0.0.2:{gone}"]
            events, on_event = recorded()
            async with opened(Proxy(allow, resolve=resolve, on_event=on_event)) as port:
                site = get(f"http://site.example:{number}/")
                assert await status_of(port, site) == 200
                assert b"was not found: no such name" in await ask(port, site)
                assert b"has no address" in await ask(port, site)
                assert await status_of(port, site) == 502
                answer = await ask(port, f"CONNECT 127.0.0.2:{gone} HTTP/1.1\r\n\r\n")
                assert answer.startswith(b"HTTP/1.1 502") and b"could not be reached: Connection refused" in answer
            assert [event[2] for event in events] == ["allowed", "failed", "allowed", "failed"]

    told(story)


def test_an_address_of_this_machine_is_known_as_such() -> None:
    """Wherever it is on the internet, a connection to it would not leave the machine."""
    assert is_own(ipaddress.ip_address("127.0.0.1"))
    assert not is_own(ipaddress.ip_address("93.184.216.34"))
    assert not is_own(ipaddress.ip_address("2606:4700::1111"))
    with socket.socket(type=socket.SOCK_DGRAM) as asked:
        try:
            asked.connect(("93.184.216.34", 9))
        except OSError:  # a machine without a network
            return
        assert is_own(ipaddress.ip_address(asked.getsockname()[0]))


def test_a_name_that_nobody_answers_for_is_not_waited_for() -> None:
    async def story() -> None:
        async def resolve(_: str) -> list[str]:
            await asyncio.Event().wait()
            return []

        async with opened(Proxy(["slow.example"], resolve=resolve, limits=ProxyLimits(connect_s=0.1))) as port:
            assert await status_of(port, "CONNECT slow.example:443 HTTP/1.1\r\n\r\n") == 504

    told(story)


def test_names_are_looked_up_as_this_machine_does_and_localhost_is_no_way_in() -> None:
    async def story() -> None:
        async with opened(Proxy(["localhost"])) as port:
            answer = await ask(port, get("http://localhost/"))
            assert answer.startswith(b"HTTP/1.1 403") and b"is a loopback address" in answer

    told(story)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00", 400),  # TLS, to whoever takes the proxy for a server
        (b"\x05\x01\x00", 400),  # SOCKS
        (b"\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n", 400),
        (b"GET https://example.org/ HTTP/1.1\r\n\r\n", 400),
        (b"GET ftp://example.org/ HTTP/1.1\r\n\r\n", 400),
        (b"GET http:///x HTTP/1.1\r\n\r\n", 403),
        (b"GET http://example.org:443:80/ HTTP/1.1\r\n\r\n", 403),
        (b"GET http://example.org/ HTTP/2\r\n\r\n", 400),
        (b"GET http://example.org/ HTTP/1.1 \r\n\r\n", 400),
        (b"GET  http://example.org/ HTTP/1.1\r\n\r\n", 400),
        (b"GET http://example.org/\x00 HTTP/1.1\r\n\r\n", 400),
        (b"GET http://ex\xc3\xa4mple.org/ HTTP/1.1\r\n\r\n", 400),
        (b"GET http://example.org/#x HTTP/1.1\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"CONNECT example.org HTTP/1.1\r\n\r\n", 403),
        (b"CONNECT http://example.org/ HTTP/1.1\r\n\r\n", 403),
        (b"CONNECT / HTTP/1.1\r\n\r\n", 403),
        (b"GET http://example.org/ HTTP/1.1\r\nA: b\r\n c\r\n\r\n", 400),
        (b"GET http://example.org/ HTTP/1.1\r\nA : b\r\n\r\n", 400),
        (b"GET http://example.org/ HTTP/1.1\r\nA: b\rGET http://evil/ HTTP/1.1\r\n\r\n", 400),
        (b"GET http://example.org/ HTTP/1.1\r\nA: b\nHost: evil\r\n\r\n", 400),
        (b"GET http://example.org/ HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"POST http://example.org/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"POST http://example.org/ HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: x\r\n\r\n", 411),
        (b"POST http://example.org/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"POST http://example.org/ HTTP/1.1\r\nContent-Length: +1\r\n\r\n", 400),
        (b"POST http://example.org/ HTTP/1.1\r\nContent-Length: 1, 1\r\n\r\n", 400),
        (b"POST http://example.org/ HTTP/1.1\r\nContent-Length: " + b"9" * 99 + b"\r\n\r\n", 400),
        (b"GET http://example.org/" + b"a" * 40_000 + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET http://example.org/ HTTP/1.1\r\n" + b"A: b\r\n" * 10_000 + b"\r\n", 431),
        (b"A" * 100_000, 431),
    ],
)
def test_what_is_not_clearly_a_request_is_answered_and_goes_nowhere(request_: bytes, status: int) -> None:
    async def story() -> None:
        resolve, asked = answers(["93.184.216.34"])
        async with opened(Proxy(["example.org"], resolve=resolve)) as port:
            assert await status_of(port, request_) == status
        assert asked == []

    told(story)


@given(
    st.binary(max_size=200),
    st.sampled_from([b"", b"GET http://example.org/ HTTP/1.1\r\n", b"CONNECT a:1 HTTP/1.1\r\n"]),
)
def test_any_bytes_are_a_request_or_refused(data: bytes, before: bytes) -> None:
    try:
        request = parse_request(before + data)
    except Refused as refused:
        assert 400 <= refused.status < 500
    else:
        assert request.tunnel or request.head.count(b"\r\nHost: ") == 1
        assert request.head.count(b"\r\n\r\n") == (0 if request.tunnel else 1)


def test_a_body_is_carried_and_what_follows_it_is_not() -> None:
    async def story() -> None:
        body = os.urandom(200_000)
        heard = bytearray()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            heard.extend(await reader.readexactly(len(body)))
            writer.write(b"HTTP/1.1 200 OK\r\n\r\ntaken")
            writer.write_eof()
            heard.extend(await reader.read())  # whatever else comes before the proxy hangs up
            await hung_up(writer)

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            where = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            async with opened(Proxy([where])) as port:
                head = f"POST http://{where}/ HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n"
                second = get(f"http://{where}/second", "Host: evil.example")
                answer = await ask(port, head.encode() + body + second.encode())
                assert answer == b"HTTP/1.1 200 OK\r\n\r\ntaken"
        assert heard == body

    told(story)


def test_what_comes_together_with_a_request_is_cut_at_its_end() -> None:
    async def story() -> None:
        async with Echo() as echo:
            where = f"127.0.0.1:{echo.port}"
            async with opened(Proxy([where], limits=ProxyLimits(idle_s=0.5))) as port:
                heard = await ask(
                    port, f"POST http://{where}/ HTTP/1.0\r\nContent-Length: 4\r\n\r\nbodyGET /evil HTTP/1.1"
                )
                assert heard.startswith(b"POST / HTTP/1.0\r\nHost: ") and heard.endswith(b"\r\n\r\nbody")

    told(story)


def test_a_refusal_reaches_a_client_that_is_still_sending() -> None:
    async def story() -> None:
        def post(port: int) -> bytes:
            with socket.create_connection(("127.0.0.1", port), 20) as client:
                client.sendall(b"POST http://evil.example/ HTTP/1.1\r\nContent-Length: 900000\r\n\r\n")
                select.select([client], [], [])  # the answer is there
                for _ in range(9):
                    client.sendall(b"x" * 100_000)
                return client.recv(12)

        async with opened(Proxy(["example.org"])) as port:
            assert await asyncio.to_thread(post, port) == b"HTTP/1.1 403"

    told(story)


def test_an_answer_that_comes_before_the_body_was_read_arrives_whole() -> None:
    async def story() -> None:
        answer = b"HTTP/1.1 413 Too Much\r\n\r\n" + b"x" * 200_000
        hung = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"first")
            writer.write(answer)
            await writer.drain()
            await hung_up(writer)
            hung.set()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            where = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            async with opened(Proxy([where])) as port:
                with socket.socket() as client:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # so that most of it waits
                    client.setblocking(False)
                    loop = asyncio.get_running_loop()
                    await loop.sock_connect(client, ("127.0.0.1", port))
                    head = f"POST http://{where}/ HTTP/1.1\r\nContent-Length: 5000000\r\n\r\nfirst"
                    await loop.sock_sendall(client, head.encode())
                    await hung.wait()
                    for _ in range(20):  # to nobody
                        await loop.sock_sendall(client, b"more")
                        await asyncio.sleep(0.01)
                    heard = b""
                    while data := await loop.sock_recv(client, 65536):
                        heard += data
                    assert heard == answer

    told(story)


def test_a_slow_request_keeps_nobody_else_waiting_and_is_ended() -> None:
    async def story() -> None:
        async def drip(port: int) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            answer = asyncio.create_task(reader.read(12))
            while not answer.done():
                writer.write(b"G")
                await asyncio.wait([answer], timeout=0.05)
            await hung_up(writer)
            return answer.result()

        with Server(serving(b"hello")) as server:
            where = server.url("").removeprefix("http://")
            async with opened(Proxy([where], limits=ProxyLimits(connections=3, head_s=0.5))) as port:
                dripping = [asyncio.create_task(drip(port)) for _ in range(8)]
                await asyncio.sleep(0.1)
                assert await status_of(port, get(f"http://{where}/")) == 200  # all places were taken by then
                assert await asyncio.gather(*dripping) == [b"HTTP/1.1 408"] * 8

    told(story)


def test_silence_ends_a_tunnel_and_talk_does_not() -> None:
    async def story() -> None:
        limits = ProxyLimits(idle_s=2.0)
        async with Echo() as echo, opened(Proxy([f"127.0.0.1:{echo.port}"], limits=limits)) as port:
            silent = asyncio.create_task(ask(port, f"CONNECT 127.0.0.1:{echo.port} HTTP/1.1\r\n\r\n"))
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"CONNECT 127.0.0.1:{echo.port} HTTP/1.1\r\n\r\n".encode())
            await reader.readuntil(b"\r\n\r\n")
            while not silent.done():  # which is as long as the silence that is allowed
                await asyncio.sleep(0.02)
                writer.write(b"ping")
                assert await reader.readexactly(4) == b"ping"
            assert await reader.read() == b""  # not by us: the proxy ends it
            assert (await silent).endswith(b"established\r\n\r\n")
            await hung_up(writer)

    told(story)
