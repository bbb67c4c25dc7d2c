from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

import loopback
from loopback import Exchange, Server, cutting, in_turn, redirecting, serving
from prowess._internal.addresses import OWN, PRIVATE, PUBLIC
from prowess._internal.fetch import Fetched, FetchLimits, fetch
from prowess._internal.redirects import Hop, next_hop
from prowess._internal.urls import shown_url
from prowess.errors import FetchError

CONTENT = bytes(range(256)) * 400
SHA256 = hashlib.sha256(CONTENT).hexdigest()
QUICK = FetchLimits(backoff_s=0)
ONCE = FetchLimits(backoff_s=0, attempts=1)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "download"


def refused(url: str, target: Path, limits: FetchLimits = QUICK, **given: str) -> FetchError:
    """The error of a fetch that fails, and leaves nothing behind."""
    before = sorted(os.listdir(target.parent))
    with pytest.raises(FetchError) as caught:
        fetch(url, target, limits=limits, **given)
    assert sorted(os.listdir(target.parent)) == before
    assert caught.value.hint
    return caught.value


# --- the good way -----------------------------------------------------------------------------------------------------


def test_a_file_arrives_whole(target: Path):
    handler = serving(CONTENT, last_modified="Thu, 01 Jan 2026 00:00:00 GMT", content_type="application/zip")
    with Server(handler) as server:
        got = fetch(server.url("/a/b.zip?q=1"), target, limits=QUICK)
        assert got == Fetched(
            status="new",
            url=server.url("/a/b.zip?q=1"),
            etag=got.etag,
            last_modified="Thu, 01 Jan 2026 00:00:00 GMT",
            sha256=SHA256,
            size_bytes=len(CONTENT),
            content_type="application/zip",
        )
    assert target.read_bytes() == CONTENT
    assert os.listdir(target.parent) == ["download"]
    assert server.requests[0].path == "/a/b.zip?q=1"
    assert server.requests[0].headers["accept-encoding"] == "identity"


def test_missing_folders_are_made(tmp_path: Path):
    with Server(serving(b"x")) as server:
        fetch(server.url(), tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").read_bytes() == b"x"


def test_an_empty_file_is_a_file(target: Path):
    with Server(serving(b"")) as server:
        assert fetch(server.url(), target).size_bytes == 0
    assert target.read_bytes() == b""


def test_unchanged_by_etag_leaves_the_target_alone(target: Path):
    with Server(serving(CONTENT)) as server:
        first = fetch(server.url(), target)
        target.write_bytes(b"mine")
        again = fetch(server.url(), target, etag=first.etag)
    assert again == Fetched(status="unchanged", url=server.url(), etag=first.etag)
    assert target.read_bytes() == b"mine"
    assert os.listdir(target.parent) == ["download"]


def test_unchanged_by_date(target: Path):
    date = "Thu, 01 Jan 2026 00:00:00 GMT"
    with Server(lambda exchange: exchange.answer(304)) as server:
        assert fetch(server.url(), target, last_modified=date).status == "unchanged"
    assert server.requests[0].headers["if-modified-since"] == date


def test_a_304_that_nobody_asked_for_is_an_error(target: Path):
    with Server(lambda exchange: exchange.answer(304)) as server:
        assert refused(server.url(), target).code == "fetch-status"


def test_a_validator_that_cannot_be_sent_is_not(target: Path):
    with Server(serving(CONTENT)) as server:
        assert fetch(server.url(), target, etag='"é\r\nX: y"', last_modified="\0").status == "new"
    assert not server.requests[0].headers.keys() & {"if-none-match", "if-modified-since"}


def test_without_a_length_the_end_is_the_end(target: Path):
    def handle(exchange: Exchange) -> None:
        exchange.send(b"HTTP/1.1 200 OK\r\n\r\n" + CONTENT)

    with Server(handle) as server:
        assert fetch(server.url(), target).sha256 == SHA256


def test_user_and_password_are_sent_and_never_shown(target: Path):
    with Server(lambda exchange: exchange.answer(403)) as server:
        url = server.url("/x?token=hidden").replace("//", "//me:secret@")
        error = refused(url, target)
    assert server.requests[0].headers["authorization"].startswith("Basic ")
    assert error.code == "fetch-status"
    assert error.message == f"{server.url('/x')} answered with status 403."
    assert "secret" not in str(error) and "hidden" not in str(error)


# --- size -------------------------------------------------------------------------------------------------------------


def test_a_file_of_exactly_the_limit_is_allowed(target: Path):
    with Server(serving(CONTENT)) as server:
        assert fetch(server.url(), target, limits=FetchLimits(max_bytes=len(CONTENT))).size_bytes == len(CONTENT)


def test_too_large_by_its_own_word_is_not_even_read(target: Path):
    def handle(exchange: Exchange) -> None:
        exchange.answer(200, b"", content_length=str(10**12))
        exchange.stall()

    with Server(handle) as server:
        assert refused(server.url(), target).code == "fetch-too-large"
    assert len(server.requests) == 1


def test_too_large_without_a_word(target: Path):
    def handle(exchange: Exchange) -> None:
        exchange.send(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            exchange.send(bytes(65536))

    with Server(handle) as server:
        assert refused(server.url(), target, FetchLimits(max_bytes=200_000)).code == "fetch-too-large"


def test_too_large_in_sum_over_resumed_parts(target: Path):
    with Server(in_turn(cutting(CONTENT[:900], 600), serving(CONTENT))) as server:
        error = refused(server.url(), target, FetchLimits(max_bytes=1000, backoff_s=0))
    assert error.code == "fetch-too-large"


# --- cut off ----------------------------------------------------------------------------------------------------------


def test_a_cut_off_body_is_resumed(target: Path):
    with Server(in_turn(cutting(CONTENT, 1000), serving(CONTENT))) as server:
        got = fetch(server.url(), target, etag='"old"', limits=QUICK)
    assert (got.sha256, got.size_bytes) == (SHA256, len(CONTENT))
    assert server.requests[1].headers["range"] == "bytes=1000-"
    assert server.requests[1].headers["if-range"] == got.etag
    assert "if-none-match" in server.requests[0].headers and "if-none-match" not in server.requests[1].headers


def test_a_cut_off_body_of_new_content_starts_again(target: Path):
    with Server(in_turn(cutting(b"old" * 1000, 1000), serving(CONTENT))) as server:
        assert fetch(server.url(), target, limits=QUICK).sha256 == SHA256
    assert "range" in server.requests[1].headers


def test_a_resumed_part_of_other_content_is_not_glued_on(target: Path):
    def ignores_if_range(exchange: Exchange) -> None:
        exchange.answer(206, b"new" * 100, etag='"other"', content_range="bytes 1000-1299/1300")

    with Server(in_turn(cutting(CONTENT, 1000), ignores_if_range, serving(CONTENT))) as server:
        assert fetch(server.url(), target, limits=QUICK).sha256 == SHA256
    assert "range" not in server.requests[2].headers


@pytest.mark.parametrize("confused", [206, 416])
def test_a_range_that_is_misunderstood_starts_again(target: Path, confused: int):
    def handle(exchange: Exchange) -> None:
        exchange.answer(confused, b"???", content_range="bytes 5-7/8")

    with Server(in_turn(cutting(CONTENT, 1000), handle, serving(CONTENT))) as server:
        assert fetch(server.url(), target, limits=QUICK).sha256 == SHA256


def test_progress_survives_a_bad_answer_in_between(target: Path):
    broken = in_turn(cutting(CONTENT, 1000), lambda exchange: exchange.answer(503), serving(CONTENT))
    with Server(broken) as server:
        assert fetch(server.url(), target, limits=QUICK).sha256 == SHA256
    assert server.requests[2].headers["range"] == "bytes=1000-"


@pytest.mark.parametrize("headers", [{"etag": 'W/"weak"'}, {"etag": ""}])
def test_without_a_strong_etag_a_cut_off_body_starts_again(target: Path, headers: dict[str, str]):
    with Server(in_turn(cutting(CONTENT, 1000, **headers), serving(CONTENT))) as server:
        assert fetch(server.url(), target, limits=QUICK).sha256 == SHA256
    assert "range" not in server.requests[1].headers


@pytest.mark.parametrize("content", [CONTENT, b""], ids=["some", "none"])
def test_a_body_shorter_than_promised_is_never_accepted(target: Path, content: bytes):
    def handle(exchange: Exchange) -> None:
        exchange.answer(200, content, content_length=str(len(content) + 1))

    target.write_bytes(b"mine")
    with Server(handle) as server:
        error = refused(server.url(), target)
    assert (error.code, error.retryable) == ("fetch-truncated", True)
    assert len(server.requests) == 3
    assert target.read_bytes() == b"mine"


def test_a_chunked_body_without_its_end_is_never_accepted(target: Path):
    def handle(exchange: Exchange) -> None:
        exchange.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")

    with Server(handle) as server:
        assert refused(server.url(), target).code == "fetch-truncated"


# --- retries ----------------------------------------------------------------------------------------------------------


def test_500_then_200(target: Path):
    with Server(in_turn(lambda exchange: exchange.answer(500), serving(CONTENT))) as server:
        assert fetch(server.url(), target, limits=QUICK).sha256 == SHA256
    assert len(server.requests) == 2


def test_500_for_ever_says_so(target: Path):
    with Server(lambda exchange: exchange.answer(500)) as server:
        error = refused(server.url(), target)
    assert (error.code, error.retryable, len(server.requests)) == ("fetch-status", True, 3)
    assert "500" in error.message


def test_404_is_not_tried_again(target: Path):
    with Server(lambda exchange: exchange.answer(404)) as server:
        error = refused(server.url(), target)
    assert (error.code, error.retryable, len(server.requests)) == ("fetch-status", False, 1)


def test_nobody_there(target: Path):
    with Server(serving(CONTENT)) as server:
        url = server.url()
    error = refused(url, target)
    assert (error.code, error.retryable) == ("fetch-unreachable", True)


@pytest.mark.parametrize("greeting", [b"", b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"])
def test_a_server_that_does_not_speak_http(target: Path, greeting: bytes):
    with Server(lambda exchange: exchange.send(greeting)) as server:
        assert refused(server.url(), target, ONCE).code == "fetch-unreachable"


# --- time -------------------------------------------------------------------------------------------------------------


def test_a_server_that_never_answers(target: Path):
    with Server(Exchange.stall) as server:
        error = refused(server.url(), target, FetchLimits(read_timeout_s=0.05, attempts=2, backoff_s=0))
    assert (error.code, error.retryable, len(server.requests)) == ("fetch-timeout", True, 2)


def test_a_stalled_body_is_resumed(target: Path):
    def handle(exchange: Exchange) -> None:
        cutting(CONTENT, 1000)(exchange)
        exchange.stall()

    with Server(in_turn(handle, serving(CONTENT))) as server:
        got = fetch(server.url(), target, limits=FetchLimits(read_timeout_s=0.4, backoff_s=0))
    assert got.sha256 == SHA256
    assert server.requests[1].headers["range"] == "bytes=1000-"


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"])
def test_a_dripping_server_ends_with_the_deadline(target: Path, start: bytes):
    """Each byte comes in time, in the first line, in the headers or in the body, and yet it never ends."""

    def handle(exchange: Exchange) -> None:
        exchange.send(start or b"HTTP/1.1 200 ")
        exchange.drip(b"x", every_s=0.01)

    with Server(handle) as server:
        error = refused(server.url(), target, FetchLimits(total_timeout_s=0.2, backoff_s=0))
    assert error.code == "fetch-timeout"
    assert len(server.requests) <= 1


def test_waiting_for_the_next_attempt_ends_with_the_deadline(target: Path):
    with Server(lambda exchange: exchange.answer(503)) as server:
        error = refused(server.url(), target, FetchLimits(total_timeout_s=0.1, backoff_s=1000))
    assert error.code == "fetch-timeout"


# --- where to ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_followed(target: Path, status: int):
    with Server(in_turn(redirecting("/there?x=1", status), serving(CONTENT))) as server:
        got = fetch(server.url("/here"), target)
    assert got.url == server.url("/there?x=1")
    assert [request.path for request in server.requests] == ["/here", "/there?x=1"]


@pytest.mark.parametrize("limit", [0, 3])
def test_redirects_end(target: Path, limit: int):
    with Server(redirecting("/round?token=hidden")) as server:
        error = refused(server.url("/round"), target, FetchLimits(max_redirects=limit))
    assert (error.code, len(server.requests)) == ("fetch-redirects", limit + 1)


def test_a_redirect_to_nowhere_is_a_bad_status(target: Path):
    with Server(lambda exchange: exchange.answer(302)) as server:
        assert refused(server.url(), target).code == "fetch-status"


@pytest.mark.parametrize(
    ("location", "code"),
    [
        ("file:///etc/passwd", "fetch-refused-scheme"),
        ("ftp://127.0.0.1/x", "fetch-refused-scheme"),
        ("http://example.invalid/x", "fetch-insecure"),
        ("//example.invalid/x", "fetch-insecure"),
        ("http://127.0.0.1:port/x", "fetch-unreachable"),
    ],
)
def test_each_redirect_is_judged(target: Path, location: str, code: str):
    with Server(redirecting(location)) as server:
        assert refused(server.url(), target).code == code


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://example.invalid/x", "fetch-insecure"),
        ("http://128.0.0.1/x", "fetch-insecure"),
        ("http://127.0.0.1.example.invalid/x", "fetch-insecure"),
        ("http://me@127.0.0.1@example.invalid/x", "fetch-insecure"),
        ("ftp://example.invalid/x", "fetch-refused-scheme"),
        ("/etc/passwd", "fetch-refused-scheme"),
        ("https:///x", "fetch-refused-scheme"),
        ("", "fetch-refused-scheme"),
        ("https://exa mple:x/", "fetch-invalid-url"),
        ("https://\0/", "fetch-invalid-url"),
    ],
)
def test_refused_addresses(target: Path, url: str, code: str):
    assert refused(url, target).code == code


def test_localhost_is_loopback(target: Path):
    with Server(serving(CONTENT)) as server:
        assert fetch(server.url(host="localhost"), target).sha256 == SHA256


def test_loopback_never_goes_through_a_proxy(target: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with Server(serving(CONTENT)) as server:
        assert fetch(server.url(), target).sha256 == SHA256


def test_settings_that_cannot_work_are_named(target: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(target / "missing.pem"))
    assert refused("https://127.0.0.1:9/", target).code == "fetch-settings"


# --- whom it may go to ------------------------------------------------------------------------------------------------


OUTSIDE = "http://93.184.216.34/skills.zip"  # public; a proxy of the environment answers for it


@pytest.fixture
def through(monkeypatch: pytest.MonkeyPatch) -> Callable[[Server], None]:
    """Public addresses are reached through a proxy on loopback, as where that is the only way out."""

    def use(server: Server) -> None:
        monkeypatch.setenv("HTTP_PROXY", server.url(""))
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)

    return use


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::ffff:7f00:1]", "0.0.0.0"])
def test_a_public_address_redirects_to_no_inner_one(target: Path, through: Callable[[Server], None], host: str):
    with Server(serving(CONTENT)) as inner, Server(redirecting(inner.url("/blind", host))) as outer:
        through(outer)
        error = refused(OUTSIDE, target, ONCE, sha256=SHA256)
        assert error.code == "fetch-refused-address", error
        assert not inner.requests and [request.path for request in outer.requests] == [OUTSIDE]
        assert fetch(inner.url("/meant"), target).sha256 == SHA256, "whoever writes it may"


NEVER = [
    "169.254.169.254",
    "2852039166",
    "[::ffff:169.254.169.254]",
    "[64:ff9b::169.254.169.254]",
    "[2002:a9fe:a9fe::1]",
    "[fe80::1%25lo]",
    "[fd00:ec2::254]",
    "168.63.129.16",
    "100.100.100.200",
    "192.0.0.192",
    "224.0.0.1",
]


@pytest.mark.parametrize("host", NEVER)
def test_link_local_addresses_and_cloud_services_are_never_asked(target: Path, host: str):
    assert refused(f"https://{host}/latest/meta-data/", target, ONCE).code == "fetch-refused-address"
    with Server(redirecting(f"http://{host}/")) as server:
        assert refused(server.url(), target, ONCE, sha256=SHA256).code == "fetch-refused-address"
        assert len(server.requests) == 1


def test_a_redirect_leads_out_but_never_further_in(target: Path):
    """From this machine to anywhere, from a private network not to this machine, from outside not inside."""
    url = httpx.URL("https://a.example/")
    told = {"https://out.example/": "93.184.216.34", "https://lan.example/": "10.1.2.3", "https://own.example/": "::1"}
    for inside, fine in ((PUBLIC, 1), (PRIVATE, 2), (OWN, 3)):
        for at, (to, address) in enumerate(told.items()):
            previous = Hop(url, (), None, inside)
            try:
                next_hop(to, previous, pinned=False, resolve=lambda _, found=address: [found], wait_s=9)
                assert at < fine
            except FetchError as error:
                assert at >= fine and error.code == "fetch-refused-address" and address in error.message


def test_a_name_is_looked_up_once_and_never_again(target: Path):
    """Rebinding: the second answer would be another one."""
    answers = iter([["169.254.169.254", "127.0.0.1"], ["10.0.0.1"]])
    with Server(serving(CONTENT)) as server:
        url = server.url("/a", "skills.example")
        got = fetch(url, target, limits=ONCE, sha256=SHA256, resolve=lambda _: next(answers))
        assert got.url == url and server.requests[0].headers["host"] == url.split("/")[2]
    assert next(answers) == ["10.0.0.1"], "asked for once"


def test_localhost_that_is_somewhere_else_is_not_plain_http(target: Path):
    with Server(serving(CONTENT)) as server:
        with pytest.raises(FetchError) as caught:
            fetch(server.url(host="localhost"), target, limits=ONCE, resolve=lambda _: ["10.0.0.1"])
        assert caught.value.code == "fetch-refused-address"


@pytest.mark.parametrize(("found", "code"), [([], "fetch-unreachable"), (["nonsense"], "fetch-unreachable")])
def test_names_that_lead_nowhere(target: Path, found: list[str], code: str):
    with pytest.raises(FetchError) as caught:
        fetch("https://a.example/", target, limits=ONCE, resolve=lambda _: found)
    assert caught.value.code == code and caught.value.retryable


def test_a_proxy_looks_up_what_nobody_here_knows(target: Path, through: Callable[[Server], None]):
    with Server(in_turn(redirecting("http://there.invalid/"), serving(CONTENT))) as outer:
        through(outer)
        got = fetch("http://here.invalid/", target, limits=ONCE, sha256=SHA256)
        assert got.url == "http://there.invalid/" and len(outer.requests) == 2
        inward = fetch("http://here.invalid/", target, limits=ONCE, sha256=SHA256, resolve=lambda _: ["10.0.0.1"])
        assert inward.size_bytes == len(CONTENT), "written by a person"


# --- https ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def certificate(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path_factory.mktemp("tls") / "certificate.pem"
    path.write_text(loopback.CERTIFICATE)
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    return path


def test_https(target: Path, certificate: Path):
    with Server(in_turn(cutting(CONTENT, 1000), serving(CONTENT)), certificate) as server:
        assert fetch(server.url(), target, limits=QUICK).sha256 == SHA256


def test_https_dripping_ends_with_the_deadline(target: Path, certificate: Path):
    def handle(exchange: Exchange) -> None:
        exchange.send(b"HTTP/1.1 200 OK\r\nX: ")
        exchange.drip(b"x", every_s=0.01)

    with Server(handle, certificate) as server:
        assert refused(server.url(), target, FetchLimits(total_timeout_s=0.3)).code == "fetch-timeout"


def test_a_certificate_nobody_vouches_for(target: Path, certificate: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("SSL_CERT_FILE")
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    with Server(serving(CONTENT), certificate) as server:
        error = refused(server.url(), target)
    assert (error.code, error.retryable) == ("fetch-insecure", False)


def test_https_never_becomes_http_unless_pinned(target: Path, certificate: Path):
    with Server(serving(CONTENT)) as plain, Server(redirecting(plain.url()), certificate) as server:
        assert refused(server.url(), target).code == "fetch-insecure"
        assert plain.requests == []
        assert fetch(server.url(), target, sha256=SHA256).url == plain.url()


# --- pins -------------------------------------------------------------------------------------------------------------


def test_a_pin_that_holds(target: Path):
    with Server(serving(CONTENT)) as server:
        assert fetch(server.url(), target, sha256=SHA256.upper()).sha256 == SHA256


def test_a_pin_that_does_not_hold(target: Path):
    with Server(serving(CONTENT)) as server:
        error = refused(server.url(), target, sha256="0" * 64)
    assert (error.code, error.retryable, len(server.requests)) == ("fetch-mismatch", False, 1)


def test_a_pin_allows_plain_http_to_anywhere(target: Path):
    with Server(serving(CONTENT)) as server:
        url = server.url(host="0.0.0.0")  # not a loopback address, and yet it leads here
        assert refused(url, target).code == "fetch-insecure"
        assert fetch(url, target, sha256=SHA256).sha256 == SHA256


# --- encodings --------------------------------------------------------------------------------------------------------


def gzipped(content: bytes) -> bytes:
    packer = zlib.compressobj(wbits=31)
    return packer.compress(content) + packer.flush()


def test_a_server_that_encodes_although_asked_not_to(target: Path):
    with Server(serving(gzipped(CONTENT), content_encoding="gzip")) as server:
        assert fetch(server.url(), target).sha256 == SHA256
    assert target.read_bytes() == CONTENT


def test_an_encoded_body_is_never_resumed(target: Path):
    packed = gzipped(os.urandom(5000))
    with Server(in_turn(cutting(packed, 1000, content_encoding="gzip"), serving(CONTENT))) as server:
        assert fetch(server.url(), target, limits=QUICK).sha256 == SHA256
    assert "range" not in server.requests[1].headers


def test_a_gz_file_is_kept_as_it_is(target: Path):
    with Server(serving(gzipped(CONTENT), content_encoding="x-gzip")) as server:
        fetch(server.url("/skills.tar.gz"), target)
    assert target.read_bytes() == gzipped(CONTENT)


def test_a_bomb_in_an_encoding_is_bounded(target: Path):
    with Server(serving(gzipped(bytes(30_000_000)), content_encoding="gzip")) as server:
        assert refused(server.url(), target, FetchLimits(max_bytes=100_000)).code == "fetch-too-large"


@pytest.mark.parametrize(
    ("encoding", "body"),
    [("br", b"x" * 100), ("gzip", b"not gzip"), ("gzip", gzipped(CONTENT)[:-9]), ("gzip", gzipped(CONTENT) + b"more")],
)
def test_an_encoding_that_cannot_be_read(target: Path, encoding: str, body: bytes):
    with Server(serving(body, content_encoding=encoding)) as server:
        assert refused(server.url(), target).code == "fetch-encoding"


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_file_url(tmp_path: Path, target: Path):
    source = tmp_path / "a b é.zip"
    source.write_bytes(CONTENT)
    got = fetch(source.as_uri(), target)
    assert (got.status, got.sha256, got.size_bytes) == ("new", SHA256, len(CONTENT))
    assert target.read_bytes() == CONTENT
    assert fetch(source.as_uri().replace("file://", "file://localhost"), target, etag=got.etag).status == "unchanged"
    source.write_bytes(CONTENT + b"more")
    assert fetch(source.as_uri(), target, etag=got.etag).status == "new"


def test_file_urls_that_are_refused(tmp_path: Path, target: Path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "big").write_bytes(CONTENT)
    os.mkfifo(tmp_path / "fifo")
    base = tmp_path.as_uri()
    assert refused("file://elsewhere/etc/passwd", target).code == "fetch-refused-scheme"
    assert refused(f"{base}/missing", target).code == "fetch-unreachable"
    assert refused(f"{base}/folder", target).code == "fetch-unreachable"
    assert refused(f"{base}/fifo", target).code == "fetch-unreachable"
    assert refused(f"{base}/a%00b", target).code == "fetch-unreachable"
    assert refused("file://[broken", target).code == "fetch-unreachable"
    assert refused(f"{base}/big", target, FetchLimits(max_bytes=100)).code == "fetch-too-large"
    assert refused(f"{base}/big", target, sha256="0" * 64).code == "fetch-mismatch"


def test_a_target_that_cannot_be_written(tmp_path: Path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"")
    with Server(serving(CONTENT)) as server:
        assert refused(server.url(), tmp_path / "folder").code == "fetch-write"
        with pytest.raises(FetchError) as caught:
            fetch(server.url(), tmp_path / "file" / "below")
    assert caught.value.code == "fetch-write"


# --- what is shown ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://example.org/a/b.zip", "https://example.org/a/b.zip"),
        ("https://example.org:8443/a@b/c.zip?token=s#f", "https://example.org:8443/a@b/c.zip"),
        ("https://me:s@example.org/", "https://example.org/"),
        ("https://me:s@s@[::1]:80/", "https://[::1]:80/"),
        ("https://me:s/s@example.org/", "https://…"),
        ("https://me:s?s@example.org/", "https://…"),
        ("https://me:s#s@example.org/", "https://…"),
        ("me:s@example.org", "(unreadable URL)"),
        ("file:///a/b?c", "file:///a/b"),
        ("nonsense?s", "nonsense"),
    ],
)
def test_shown_url(url: str, shown: str):
    assert shown_url(url) == shown


def test_importing_it_does_not_import_httpx():
    code = "import prowess._internal.fetch, prowess.skills.url_root, sys; sys.exit('httpx' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
