"""network_request: to listed hosts alone, at an address that was judged, within time and size; each redirect anew."""

from __future__ import annotations

import asyncio
import gzip
import subprocess
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import loopback
from guard import GUARD_S
from loopback import Exchange, Handler, Server, in_turn, redirecting
from prowess.core.values import Outcome
from prowess.policy.secrets import Redactor
from prowess.tools.network_request import NetworkRequest
from works import call, within


def answering(body: bytes = b"hello", status: int = 200, **headers: str) -> Handler:
    return lambda exchange: exchange.answer(status, body, **{"content_type": "text/plain", **headers})


class Names:
    """Answers for a resolver: each name's addresses, in turn; and what was asked for."""

    def __init__(self, **names: Sequence[Sequence[str]]) -> None:
        self.names = {name.replace("_", "."): list(answers) for name, answers in names.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        answers = self.names.get(host)
        if answers is None:
            raise OSError("no such name")
        return answers.pop(0) if len(answers) > 1 else answers[0]


def ask(url: str, hosts: Sequence[str] = (), *, resolve: Any = None, given: Any = None, **args: Any) -> Outcome:
    limits = {"hosts": list(hosts), **(given or {})}
    tool = NetworkRequest(resolve=resolve) if resolve is not None else NetworkRequest()
    return asyncio.run(call(tool, {"url": url, **args}, within(limits)))


def at(server: Server, host: str = "127.0.0.1") -> str:
    return server.url("", host).removeprefix("http://").removeprefix("https://")


# --- what comes back --------------------------------------------------------------------------------------------------


def test_a_text_comes_back_with_what_is_known_about_it() -> None:
    with Server(answering(b"h\xc3\xa9llo", etag='"1"', set_cookie="a=b")) as server:
        outcome = ask(server.url("/a?b=c#d"), [at(server)])
        assert outcome.status == "ok" and outcome.content == "[HTTP 200 text/plain]\nhéllo"
        assert outcome.data == {
            "status": 200,
            "url": server.url("/a?b=c#d"),
            "headers": {"content-type": "text/plain", "etag": '"1"'},
            "mime_type": "text/plain",
            "size_bytes": 6,
            "truncated": False,
            "body": "héllo",
        }
        (request,) = server.requests
    assert request.path == "/a?b=c" and request.headers["host"] == at(server)
    assert request.headers["accept-encoding"] == "identity" and request.headers["user-agent"] == "prowess"


@pytest.mark.parametrize(
    ("body", "headers", "mime", "text"),
    [
        (b"\x89PNG\r\n\x1a\n\0", {"content_type": "image/png"}, "image/png", None),
        (b"\xff\xfe\0", {"content_type": "text/plain"}, "text/plain", None),
        (b"caf\xe9", {"content_type": "text/plain; charset=ISO-8859-1"}, "text/plain", "café"),
        (b"caf\xe9", {"content_type": "text/html; charset=nonsense"}, "text/html", "caf\ufffd"),
        (b"eJxLTEoGAAJNASc=", {"content_type": "text/x; charset=zlib"}, "text/x", "eJxLTEoGAAJNASc="),
        (b"\xe9\xe9", {"content_type": "application/x-thing"}, "application/x-thing", None),
        (b'{"a": 1}', {"content_type": "application/json"}, "application/json", '{"a": 1}'),
        (b"", {}, "text/plain", ""),
    ],
)
def test_only_text_has_a_body(body: bytes, headers: dict[str, str], mime: str, text: str | None) -> None:
    with Server(answering(body, **headers)) as server:
        data = ask(server.url(), [at(server)]).data
    assert (data["mime_type"], data["body"], data["size_bytes"]) == (mime, text, len(body))
    assert (text is None) == ("not text" in data.get("note", ""))


@pytest.mark.parametrize("status", [201, 204, 304, 404, 500])
def test_every_answer_is_an_answer(status: int) -> None:
    with Server(answering(b"" if status in (204, 304) else b"no", status)) as server:
        assert ask(server.url(), [at(server)]).data["status"] == status


def test_a_large_answer_is_cut_while_it_comes() -> None:
    def endless(exchange: Exchange) -> None:
        exchange.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        exchange.drip(b"x" * 10_000, every_s=0.0)

    with Server(endless) as server:
        data = ask(server.url(), [at(server)], given={"max_bytes": 50_000}).data
    assert data["truncated"] and data["size_bytes"] == 50_000 and "first 50000" in data["note"]


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_a_little_that_unpacks_to_a_lot_is_cut_too(encoding: str, pack: Callable[[bytes], bytes]) -> None:
    with Server(answering(pack(b"\0x" * 50_000_000), content_encoding=encoding)) as server:
        data = ask(server.url(), [at(server)], given={"max_bytes": 10_000}).data
    assert data["truncated"] and data["size_bytes"] == 10_000


@pytest.mark.parametrize(
    ("body", "encoding", "text", "note"),
    [
        (gzip.compress(b"hello", mtime=0), "gzip", "hello", None),
        (zlib.compress(b"hello"), "deflate", "hello", None),
        (zlib.compress(b"hello")[2:-4], "deflate", "hello", None),
        (b"no gzip", "gzip", "", "could not be read"),
        (b"\x1b\x02", "br", "", "(br)"),
    ],
)
def test_encodings_that_were_not_asked_for(body: bytes, encoding: str, text: str, note: str | None) -> None:
    with Server(answering(body, content_encoding=encoding)) as server:
        data = ask(server.url(), [at(server)]).data
    assert data["body"] == text and (note or "") in data.get("note", "")


def test_a_secret_does_not_come_back() -> None:
    with Server(answering(b"token=hunter2-hunter2")) as server:
        given = within({"hosts": [at(server)]}, redaction=Redactor({"TOKEN": "hunter2-hunter2"}))
        outcome = asyncio.run(call(NetworkRequest(), {"url": server.url()}, given))
    assert outcome.data["body"].startswith("token=") and "hunter2" not in str(outcome)


# --- what is sent -----------------------------------------------------------------------------------------------------


class Site:
    """A server that reads requests with a body, and answers the same to each."""

    def __init__(self, *answers: bytes) -> None:
        self.answers, self.seen = list(answers) or [b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"], []

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.seen.append((head[0].split(" ")[0], head[0].split(" ")[1], headers, body))
        writer.write(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])
        writer.close()

    def ask(self, make: Callable[[int], Mapping[str, Any]], hosts: Sequence[str] = (), resolve: Any = None) -> Outcome:
        async def run() -> Outcome:
            async with await asyncio.start_server(self.handle, "127.0.0.1", 0) as server:
                port = server.sockets[0].getsockname()[1]
                self.answers = [answer.replace(b"PORT", str(port).encode()) for answer in self.answers]
                allowed = within({"hosts": [f"127.0.0.1:{port}", *(f"{host}:{port}" for host in hosts)]})
                tool = NetworkRequest(resolve=resolve) if resolve else NetworkRequest()
                return await call(tool, make(port), allowed)

        return asyncio.run(run())


@pytest.mark.parametrize(
    ("args", "method", "kind", "body"),
    [
        ({"method": "post", "body": {"a": "ü"}}, "POST", "application/json", '{"a": "ü"}'.encode()),
        ({"method": "PUT", "body": "plain"}, "PUT", "text/plain; charset=utf-8", b"plain"),
        ({"method": "PATCH", "body": "a=1", "headers": {"content-type": "x/y"}}, "PATCH", "x/y", b"a=1"),
        ({"method": "DELETE"}, "DELETE", None, b""),
        ({"body": [1]}, "GET", "application/json", b"[1]"),
        ({"prompt": "what does it say?"}, "GET", None, b""),
    ],
)
def test_methods_and_bodies(args: dict[str, Any], method: str, kind: str | None, body: bytes) -> None:
    site = Site()
    assert site.ask(lambda port: {"url": f"http://127.0.0.1:{port}/", **args}).status == "ok"
    (seen,) = site.seen
    assert (seen[0], seen[2].get("content-type"), seen[3]) == (method, kind, body)


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "x"},
        {"content-length": "5"},
        {"Transfer-Encoding": "chunked"},
        {"Connection": "close"},
        {"Proxy-Authorization": "x"},
        {"proxy-anything": "x"},
        {"Accept-Encoding": "br"},
        {"Upgrade": "h2c"},
        {"X: y\r\nZ": "1"},
        {"": "1"},
        {"X": "a\r\nHost: b"},
        {"X": "ü"},
        {"X y": "1"},
    ],
)
def test_headers_that_are_not_the_models_to_set(headers: dict[str, str]) -> None:
    outcome = ask("http://127.0.0.1:1/", ["127.0.0.1:1"], headers=headers)
    assert outcome.code == "invalid-call" and "network_request" in outcome.content


@pytest.mark.parametrize(
    "args", [{"method": "CONNECT"}, {"method": "TRACE"}, {"headers": "x"}, {"url": ""}, {"follow": True}]
)
def test_arguments_that_are_asked_for_again(args: dict[str, Any]) -> None:
    assert ask(**{"url": "http://127.0.0.1:1/", "hosts": ["127.0.0.1:1"], **args}).code == "invalid-call"


# --- whom it may go to ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "hosts", "code"),
    [
        ("http://127.0.0.1:1/", [], "host-not-allowed"),
        ("https://example.org/", [], "host-not-allowed"),
        ("file:///etc/passwd", [], "host-not-allowed"),
        ("nonsense", [], "host-not-allowed"),
        ("https://example.org/", ["example.com", "*.example.org"], "host-not-allowed"),
        ("https://example.org:8443/", ["example.org"], "host-not-allowed"),
        ("https://evil.example.org.example.net/", ["example.org", "*.example.org"], "host-not-allowed"),
        ("http://127.0.0.1:1/", ["*.0.0.1"], "host-invalid"),
        ("ftp://example.org/", ["example.org"], "url-refused"),
        ("file:///etc/passwd", ["example.org"], "url-refused"),
        ("//example.org/", ["example.org"], "url-refused"),
        ("example.org", ["example.org"], "url-refused"),
        ("http://user:secret@example.org/", ["example.org"], "url-refused"),
        ("http://example.org\\@evil.example/", ["example.org"], "url-refused"),
        ("http://exämple.org/", ["example.org"], "url-refused"),
        ("http://example.org/ x", ["example.org"], "url-refused"),
        ("http://example.org/\n", ["example.org"], "url-refused"),
        ("http://[::1", ["example.org"], "url-refused"),
        ("http://2130706433/", ["example.org", "127.0.0.1"], "url-refused"),
        ("http://0x7f.1/", ["127.0.0.1"], "url-refused"),
        ("http://127.1/", ["127.0.0.1"], "url-refused"),
        ("http://[::ffff:127.0.0.1]/", ["127.0.0.1"], "host-not-allowed"),
        ("http://example.org:99999/", ["example.org"], "url-refused"),
        ("http:///x", ["example.org"], "url-refused"),
    ],
)
def test_who_is_refused(url: str, hosts: list[str], code: str) -> None:
    names = Names(example_org=[["127.0.0.1"]])
    outcome = ask(url, hosts, resolve=names)
    assert outcome.code == code and outcome.hint, outcome
    assert "secret" not in str(outcome) and not names.asked, "nobody was even asked for the address"


INSIDE = ["127.0.0.1", "::1", "10.1.2.3", "192.168.1.1", "172.16.0.1", "100.64.0.1", "fd00::1"]
NEVER = [
    "169.254.169.254",
    "fe80::1",
    "224.0.0.1",
    "0.0.0.0",
    "::ffff:127.0.0.1",
    "255.255.255.255",
    "fd00:ec2::254",
    "ff02::1",
]


@pytest.mark.parametrize("address", [*INSIDE, *NEVER])
def test_a_wildcard_leads_to_no_address_that_is_not_public(address: str) -> None:
    outcome = ask("http://a.example.org/", ["*.example.org"], resolve=Names(a_example_org=[[address]]))
    assert outcome.code == "address-not-allowed" and outcome.hint, outcome


@pytest.mark.parametrize("address", [*INSIDE, *NEVER, "100.100.100.200"])
def test_a_name_leads_to_no_neighbour_and_no_cloud_service(address: str) -> None:
    outcome = ask("http://a.example.org/", ["a.example.org"], resolve=Names(a_example_org=[[address]]))
    assert outcome.code == "address-not-allowed"


def test_a_name_leads_inside_where_the_address_is_listed_as_well() -> None:
    with Server(answering()) as server:
        for host in ("localhost", "intranet.corp"):
            names = Names(intranet_corp=[["127.0.0.1"]], localhost=[["127.0.0.1"]])
            alone = ask(server.url("/", host), [at(server, host)], resolve=names)
            assert alone.code == "address-not-allowed"
            outcome = ask(server.url("/", host), [at(server, host), at(server)], resolve=names)
            assert outcome.status == "ok" and server.requests[-1].headers["host"] == at(server, host), outcome


def test_a_name_is_looked_up_once_and_never_again() -> None:
    """Rebinding: the second answer would be another one."""
    with Server(answering()) as server:
        names = Names(a_example_org=[["127.0.0.1"], ["169.254.169.254"]])
        hosts = [
            at(server),
            at(server, "*.example.org"),
        ]  # the address itself is listed, so the wildcard may lead to it
        outcome = ask(server.url("/", "a.example.org"), hosts, resolve=names)
        assert outcome.status == "ok" and names.asked == ["a.example.org"]
        assert server.requests[0].headers["host"] == at(server, "a.example.org")


def test_only_the_good_addresses_of_a_name_are_used() -> None:
    with Server(answering()) as server:
        names = Names(a_example_org=[["169.254.169.254", "127.0.0.1"]])
        assert (
            ask(server.url("/", "a.example.org"), [at(server), at(server, "*.example.org")], resolve=names).status
            == "ok"
        )


@pytest.mark.parametrize("answers", [[[]], [["not an address"]]])
def test_names_that_lead_nowhere(answers: Any) -> None:
    assert (
        ask("http://a.example.org/", ["a.example.org"], resolve=Names(a_example_org=answers)).code == "request-failed"
    )
    assert ask("http://b.example.org/", ["b.example.org"], resolve=Names()).code == "request-failed"


# --- redirects --------------------------------------------------------------------------------------------------------


def test_redirects_are_followed_and_each_is_judged() -> None:
    with Server(in_turn(redirecting("/b"), answering(b"there"))) as server:
        data = ask(server.url("/a"), [at(server)]).data
        assert data["body"] == "there" and data["url"] == server.url("/b")
    for to in ("http://169.254.169.254/latest", "http://example.org/", "http://127.0.0.1:1/"):
        with Server(redirecting(to)) as server:
            assert ask(server.url("/a"), [at(server)]).code == "host-not-allowed"
    for to in ("file:///etc/passwd", "http://u:p@127.0.0.1/", "ftp://127.0.0.1/"):
        with Server(redirecting(to)) as server:
            assert ask(server.url("/a"), [at(server)]).code == "url-refused"


def test_a_redirect_to_a_name_is_looked_up_and_judged() -> None:
    with Server(redirecting("http://a.example.org/")) as server:
        names = Names(a_example_org=[["10.0.0.1"]])
        outcome = ask(server.url("/a"), [at(server), "*.example.org"], resolve=names)
    assert outcome.code == "address-not-allowed"


def test_redirects_end() -> None:
    with Server(redirecting("/again")) as server:
        assert ask(server.url("/a"), [at(server)]).code == "too-many-redirects"
        assert len(server.requests) == 6


def test_what_is_sent_again_is_what_browsers_send_and_no_secret_to_others() -> None:
    moved = b"HTTP/1.1 %d Moved\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n"
    done = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    asked = {"method": "POST", "body": "x", "headers": {"Authorization": "Bearer x", "Cookie": "a", "X-Mine": "1"}}
    seen = {}
    for status in (302, 303, 307):
        site = Site(moved % (status, b"http://other.example:PORT/"), done)
        names = Names(other_example=[["127.0.0.1"]])
        outcome = site.ask(lambda port: {"url": f"http://127.0.0.1:{port}/", **asked}, ["other.example"], resolve=names)
        assert outcome.status == "ok", outcome
        seen[status] = site.seen
    assert [seen[302][1][0], seen[303][1][0], seen[307][1][0]] == ["GET", "GET", "POST"]
    assert seen[307][1][3] == b"x" and seen[302][1][3] == b""
    for first, second in seen.values():
        assert "authorization" in first[2] and not {"authorization", "cookie"} & second[2].keys()
        assert second[2]["x-mine"] == "1" and second[2]["host"].startswith("other.example")
    site = Site(moved % (307, b"/there"), done)
    site.ask(lambda port: {"url": f"http://127.0.0.1:{port}/", **asked})
    assert site.seen[1][2]["authorization"] == "Bearer x", "the same host may know it"


# --- when it goes wrong -----------------------------------------------------------------------------------------------


def dripping(exchange: Exchange) -> None:
    exchange.send(b"HTTP/1.1 200 OK\r\nX: ")
    exchange.drip(b"x", every_s=0.01)


@pytest.mark.parametrize("handler", [dripping, lambda exchange: exchange.stall()], ids=["drips", "stalls"])
def test_its_time_is_over_at_some_point(handler: Handler) -> None:
    with Server(handler) as server:
        outcome = ask(server.url(), [at(server)], given={"timeout_s": 0.3})
    assert outcome.code == "request-timeout" and "0.3 s" in outcome.content


def test_a_lookup_that_hangs_is_over_as_well() -> None:
    async def never(host: str) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    outcome = ask("http://a.example.org/", ["a.example.org"], resolve=never, given={"timeout_s": 0.2})
    assert outcome.code == "request-timeout"


@pytest.mark.parametrize(
    "handler",
    [
        lambda exchange: exchange.send(b"SSH-2.0-x\r\n\r\n"),
        lambda exchange: None,
        loopback.cutting(b"x" * 1000, 10),
        lambda exchange: exchange.send(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000),
    ],
    ids=["no http", "hangs up", "cut off", "endless head"],
)
def test_servers_that_misbehave(handler: Handler) -> None:
    with Server(handler) as server:
        outcome = ask(server.url("/secret?key=hunter2"), [at(server)])
    assert outcome.code == "request-failed" and "hunter2" not in str(outcome), outcome


def test_nobody_is_there() -> None:
    with Server(answering()) as server:
        url, host = server.url(), at(server)
    assert ask(url, [host]).code == "request-failed"


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with Server(answering()) as server:
        assert ask(server.url(), [at(server)]).data["body"] == "hello"


# --- TLS --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "certificate.pem"
    path.write_text(loopback.CERTIFICATE, encoding="utf-8")
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    return path


def test_tls_is_checked_against_the_name_and_not_the_address(certificate: Path) -> None:
    with Server(answering(), certificate) as server:
        named = Names(localhost=[["127.0.0.1"]], a_example_org=[["127.0.0.1"]])
        assert ask(server.url("/", "localhost"), [at(server, "localhost"), at(server)], resolve=named).status == "ok"
        assert ask(server.url("/"), [at(server)]).status == "ok", "the certificate has the address as well"
        other = ask(server.url("/", "a.example.org"), [at(server, "a.example.org"), at(server)], resolve=named)
        assert other.code == "request-failed" and "certificate" in other.content.lower(), other


def test_no_way_from_https_to_http(certificate: Path) -> None:
    with Server(answering()) as plain, Server(redirecting(plain.url()), certificate) as server:
        outcome = ask(server.url(), [at(server), at(plain)])
        assert outcome.code == "url-refused" and "encryption" in outcome.content and not plain.requests


UNANSWERED = """
import asyncio, socket, threading
from prowess.tools.network_request import look_up_apart
asked = threading.Event()
def never(*given, **options):
    asked.set()
    threading.Event().wait()
socket.getaddrinfo = never
async def work():
    lookup = asyncio.ensure_future(look_up_apart("name.example"))
    while not asked.is_set():
        await asyncio.sleep(0)
    lookup.cancel()
    await asyncio.wait([lookup])
    print(lookup.cancelled())
asyncio.run(work())
"""


def test_a_name_server_that_never_answers_does_not_keep_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", UNANSWERED], capture_output=True, text=True, timeout=GUARD_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
