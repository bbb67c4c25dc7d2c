"""Downloads a URL into a file, within limits of time, size and redirects. On an error the target file is untouched.

Each redirect is checked like the first address, and it may not lead further inside (see `redirects`).

A request over https is never redirected to http, except with a sha256 pin, which makes the transport irrelevant. The
user, password and query string of a URL never appear in a message.

The total time-out holds for the whole request. httpx only limits each single read, so a server could send its headers
byte by byte for ever. At the deadline the socket is shut down.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import socket
import tempfile
import threading
import time
import urllib.parse
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import IO, TYPE_CHECKING, Any, Literal

from prowess._internal.addresses import PUBLIC, Address, look_up
from prowess._internal.files import open_regular
from prowess._internal.redirects import Hop, Resolve, next_hop
from prowess._internal.urls import insecure, refused_scheme, shown_url
from prowess.errors import FetchError

if TYPE_CHECKING:
    import httpx


class Deadline:
    def __init__(self, seconds: float) -> None:
        self._ends = time.monotonic() + seconds
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True
        self._socket: socket.socket | None = None

    def __enter__(self) -> Deadline:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._socket = None

    def left_s(self) -> float:
        """Returns the seconds that are left, at least 0."""
        return max(0.0, self._ends - time.monotonic())

    def watch(self, event: str, info: dict[str, Any]) -> None:
        """Receives httpx's `trace` events and remembers the socket of each new connection."""
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            self._socket = info["return_value"].get_extra_info("socket")
            if not self.left_s():
                self._cut()

    def _cut(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):  # already closed
                # Not SSLSocket.shutdown: it drops the TLS state that the reading thread still uses.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


Report = Callable[[int, int | None], None]  # bytes so far, all bytes or None
_CHUNK_BYTES = 64 * 1024
_REDIRECTS = (301, 302, 303, 307, 308)
_RETRYABLE_STATUS = (408, 425, 429, 500, 502, 503, 504)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    max_bytes: int = 64 * 1024 * 1024
    connect_timeout_s: float = 5
    read_timeout_s: float = 15
    total_timeout_s: float = 120
    max_redirects: int = 5
    attempts: int = 3
    backoff_s: float = 0.2  # doubled after each attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """Result of a download. `url` is the last one after redirects. An unchanged file has no sha256 and no size, because
    its content was not sent."""

    status: Literal["new", "unchanged"]
    url: str
    etag: str | None = None
    last_modified: str | None = None
    sha256: str | None = None
    size_bytes: int | None = None
    content_type: str | None = None
    inside: int = field(default=PUBLIC, compare=False)  # where it came from: PUBLIC, PRIVATE or OWN


DEFAULT_LIMITS = FetchLimits()


def fetch(
    url: str,
    to: str | os.PathLike[str],
    *,
    etag: str | None = None,
    last_modified: str | None = None,
    limits: FetchLimits = DEFAULT_LIMITS,
    sha256: str | None = None,
    resolve: Resolve = look_up,
    linked_from: Fetched | None = None,
    report: Report | None = None,
) -> Fetched:
    """Downloads `url` to the file `to`, unless it still has the given etag or date. FetchError says why it failed.

    `linked_from` is the document that named the URL, if no person did: the URL may not lead further inside than that
    document, as after a redirect. Its name is not looked up again, because the answer may be another by now. `report`
    gets the bytes received so far, and all bytes if the server told them.
    """
    target = os.fspath(to)
    with _part_beside(target) as part:
        if url[:5].lower() == "file:" and linked_from is None:
            answer = _copy(url, part, etag, limits)
        else:
            validators: dict[str, str] = {}
            if etag and _is_sendable(etag):
                validators["If-None-Match"] = etag
            if last_modified and _is_sendable(last_modified):
                validators["If-Modified-Since"] = last_modified
            download = _Download(url, part, limits, validators, resolve, pinned=sha256 is not None)
            download.linked_from = linked_from
            download.report = report
            answer = download.run()
        if answer.status == "new":
            answer = _settle(part, target, answer, sha256, shown_url(url))
        return answer


def follow(url: str, *, limits: FetchLimits = DEFAULT_LIMITS, resolve: Resolve = look_up) -> list[Hop]:
    """Returns the request for `url` and those of its redirects, each checked before it is made. No body is read and no
    credential is sent. The list ends early at a server that does not answer us: a program with other settings may reach
    it."""
    download = _Download(url, io.BytesIO(), limits, {}, resolve, pinned=False)
    with Deadline(limits.total_timeout_s) as deadline:
        return download.follow(deadline)


@contextlib.contextmanager
def _part_beside(target: str) -> Iterator[IO[bytes]]:
    """Opens a new file beside the target, and removes it unless it was renamed to the target."""
    folder, name = os.path.split(target)
    folder = folder or "."
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=f".{name}.", suffix=".part", delete=False) as part:
            try:
                yield part
            finally:
                with contextlib.suppress(FileNotFoundError):  # it was renamed to the target
                    os.unlink(part.name)
    except OSError as error:
        message = f"Cannot write {target}: {error.strerror or error}."
        hint = "Check that the folder can be written to and that the disk has room."
        raise FetchError(message, code="fetch-write", hint=hint) from error


def _settle(part: IO[bytes], target: str, answer: Fetched, sha256: str | None, shown: str) -> Fetched:
    part.flush()
    os.fsync(part.fileno())
    size = part.tell()
    whole = hashlib.sha256()
    part.seek(0)
    while chunk := part.read(_CHUNK_BYTES):
        whole.update(chunk)
    found = whole.hexdigest()
    if sha256 is not None and found != sha256.lower():
        message = f"{shown} has sha256 {found}, but {sha256.lower()} is pinned."
        hint = "Its content has changed. Read it, and change the pin if you accept the new content."
        raise FetchError(message, code="fetch-mismatch", hint=hint)
    os.replace(part.name, target)
    return replace(answer, sha256=found, size_bytes=size)


def _copy(url: str, part: IO[bytes], etag: str | None, limits: FetchLimits) -> Fetched:
    shown = shown_url(url)
    try:
        parsed = urllib.parse.urlsplit(url)
        if parsed.netloc.lower() not in ("", "localhost"):
            raise refused_scheme(shown, "names a file on another machine", "Use file:///path for a file on this one.")
        path = urllib.parse.unquote(parsed.path)
        source = os.fdopen(open_regular(path, follow=True), "rb")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise FetchError(f"Cannot read {shown}: {why}.", code="fetch-unreachable", hint="Check the path.") from error
    with source:
        state = os.fstat(source.fileno())
        now = f'"{state.st_mtime_ns:x}-{state.st_size:x}-{state.st_ino:x}"'
        if now == etag:
            return Fetched(status="unchanged", url=url, etag=etag)
        while chunk := source.read(_CHUNK_BYTES):
            part.write(chunk)
            _check_size(part.tell(), shown, limits)
    return Fetched(status="new", url=url, etag=now)


class _Download:
    """Attempts to download one URL. They share the part file, so that a retry resumes after the last received byte."""

    def __init__(
        self,
        url: str,
        part: IO[bytes],
        limits: FetchLimits,
        validators: dict[str, str],
        resolve: Resolve,
        *,
        pinned: bool,
    ) -> None:
        self._url = url
        self._part = part
        self._limits = limits
        self._validators = validators
        self._resolve = resolve
        self._pinned = pinned
        self._resume_etag: str | None = None  # strong etag of the content in the part file
        self._in_body = False
        self.linked_from: Fetched | None = None
        self.report: Report | None = None

    def run(self) -> Fetched:
        attempt = 0
        with Deadline(self._limits.total_timeout_s) as deadline:
            while True:
                try:
                    return self._attempt(deadline)
                except FetchError as error:
                    if not error.retryable or attempt + 1 >= self._limits.attempts or not deadline.left_s():
                        raise
                    backoff_s = self._limits.backoff_s * 2**attempt
                    time.sleep(min(backoff_s, deadline.left_s()))
                    attempt += 1

    def _attempt(self, deadline: Deadline) -> Fetched:
        import httpx

        before = None
        link = self.linked_from
        if link is not None:
            before = Hop(httpx.URL(link.url), (), None, link.inside)
        hop = self._next(self._url, before, deadline)
        most = self._limits.max_redirects
        for _ in range(most + 1):
            with self._response(hop, deadline) as response:
                location = _location(response)
                if location is None:
                    answer = self._receive(response, hop.url)
                    return replace(answer, inside=hop.inside)
            hop = self._next(location, hop, deadline)
        raise self._too_many()

    def follow(self, deadline: Deadline) -> list[Hop]:
        """Returns the requests that the URL leads to."""
        hops = [self._next(self._url, None, deadline)]
        while len(hops) <= self._limits.max_redirects + 1:
            try:
                with self._response(hops[-1], deadline) as response:
                    location = _location(response)
            except FetchError:
                location = None
            if location is None:
                return hops
            hops.append(self._next(location, hops[-1], deadline))
        raise self._too_many()

    def _too_many(self) -> FetchError:
        shown = shown_url(self._url)
        most = self._limits.max_redirects
        message = f"{shown} redirects more than {most} times."
        hint = "Use the address that it finally leads to."
        return FetchError(message, code="fetch-redirects", hint=hint)

    def _next(self, url: str, previous: Hop | None, deadline: Deadline) -> Hop:
        wait_s = min(self._limits.connect_timeout_s, deadline.left_s())
        return next_hop(url, previous, pinned=self._pinned, resolve=self._resolve, wait_s=wait_s)

    @contextlib.contextmanager
    def _response(self, hop: Hop, deadline: Deadline) -> Iterator[httpx.Response]:
        """Sends a request, and explains errors of HTTP."""
        import httpx

        self._in_body = False
        try:
            with contextlib.ExitStack() as stack:
                yield self._send(hop, deadline, stack)
        except httpx.HTTPError as error:
            raise self._explained(error, shown_url(str(hop.url)), deadline) from error

    def _send(self, hop: Hop, deadline: Deadline, stack: contextlib.ExitStack) -> httpx.Response:
        """Returns the response of the first address that accepts a connection."""
        import httpx

        addresses = (None,) if hop.proxy else hop.addresses
        for address in addresses:
            client = stack.enter_context(_client(hop, self._limits, deadline.left_s()))
            request = _request(client, hop, address, self._request_headers(), deadline)
            try:
                response = client.send(request, stream=True)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                if address == addresses[-1] or "CERTIFICATE_VERIFY_FAILED" in str(error):
                    raise
            else:
                stack.callback(response.close)
                return response
        raise AssertionError("a hop has an address or a proxy")

    def _request_headers(self) -> dict[str, str]:
        headers = {"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": "prowess"}
        received = self._part.tell()
        if self._resume_etag and received:
            headers["Range"] = f"bytes={received}-"
            headers["If-Range"] = self._resume_etag
            return headers
        return headers | self._validators

    def _receive(self, response: httpx.Response, url: httpx.URL) -> Fetched:
        shown = shown_url(str(url))
        status = response.status_code
        headers = response.headers
        is_range = "range" in response.request.headers
        answer = Fetched(
            status="new",
            url=str(url),
            etag=headers.get("etag"),
            last_modified=headers.get("last-modified"),
            content_type=headers.get("content-type"),
        )
        if status == 304 and self._validators and not is_range:
            return replace(answer, status="unchanged")
        resumed = is_range and self._is_continued(response)
        if status in (200, 206, 416) and not resumed:
            self._part.seek(0)
            self._part.truncate()
            self._resume_etag = None
        if status != 200 and not resumed:
            raise _status_error(shown, status, retryable=status in _RETRYABLE_STATUS or is_range)
        encoding = headers.get("content-encoding", "identity").strip().lower()
        if encoding == "identity" and _is_strong(answer.etag):
            self._resume_etag = answer.etag
        expected = None
        length = headers.get("content-length", "")
        if length.isdigit():
            expected = self._part.tell() + int(length)
            _check_size(expected, shown, self._limits)
        self._in_body = True
        if encoding != "identity":
            expected = None  # the size is that of the encoded content
        for chunk in _decoded(response.iter_raw(), encoding, url.path, shown):
            self._part.write(chunk)
            received = self._part.tell()
            _check_size(received, shown, self._limits)
            if self.report is not None:
                self.report(received, expected)
        return answer

    def _is_continued(self, response: httpx.Response) -> bool:
        """True when the response has the rest of the content in the part file."""
        if response.status_code != 206:
            return False
        headers = response.headers
        if headers.get("etag") not in (None, self._resume_etag):
            return False
        content_range = headers.get("content-range", "")
        return content_range.startswith(f"bytes {self._part.tell()}-")

    def _explained(self, error: httpx.HTTPError, shown: str, deadline: Deadline) -> FetchError:
        import httpx

        if isinstance(error, httpx.TimeoutException) or not deadline.left_s():
            return _timeout(shown)
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return insecure(shown, "has a certificate that cannot be trusted")
        message = f"Cannot reach {shown}: {error}."
        code = "fetch-unreachable"
        if self._in_body:
            message = f"{shown} was cut off before its end."
            code = "fetch-truncated"
        return FetchError(message, code=code, retryable=True, hint="Check the address and the network, or try later.")


def _location(response: httpx.Response) -> str | None:
    """Returns where a response redirects to."""
    if response.status_code not in _REDIRECTS:
        return None
    return response.headers.get("location")


def _client(hop: Hop, limits: FetchLimits, left_s: float) -> httpx.Client:
    import ssl

    import httpx

    shown = shown_url(str(hop.url))
    if not left_s:
        raise _timeout(shown)
    read_s = min(limits.read_timeout_s, left_s)
    connect_s = min(limits.connect_timeout_s, left_s)
    timeout = httpx.Timeout(read_s, connect=connect_s)
    try:
        if hop.url.scheme == "https":
            verify = httpx.create_ssl_context()
        else:  # plain http needs no certificates, and loading them is slow
            verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return httpx.Client(timeout=timeout, trust_env=False, proxy=hop.proxy, verify=verify)
    except (ImportError, OSError, ValueError) as error:
        message = f"Cannot prepare to fetch {shown}: {error}."
        hint = "Check the proxy and certificate settings in the environment (HTTPS_PROXY, SSL_CERT_FILE)."
        raise FetchError(message, code="fetch-settings", hint=hint) from error


def _request(
    client: httpx.Client, hop: Hop, address: Address | None, headers: dict[str, str], deadline: Deadline
) -> httpx.Request:
    """Builds a request to the checked address, so that the name is not looked up again. TLS and the Host header still
    use the name."""
    url = hop.url
    extensions: dict[str, Any] = {"trace": deadline.watch}
    if address is not None and url.host != str(address):
        headers = headers | {"Host": url.netloc.decode("ascii")}
        extensions["sni_hostname"] = url.raw_host.decode("ascii")
        url = url.copy_with(host=str(address))
    return client.build_request("GET", url, headers=headers, extensions=extensions)


def _decoded(chunks: Iterable[bytes], encoding: str, path: str, shown: str) -> Iterator[bytes]:
    """Decodes a compressed response: some servers compress although the request forbids it. A .gz file stays
    compressed, as in every HTTP client."""
    if encoding in ("", "identity") or (encoding in ("gzip", "x-gzip") and path.endswith((".gz", ".tgz"))):
        yield from chunks
        return
    unpack = zlib.decompressobj(wbits=47)
    try:
        for chunk in chunks:
            piece = unpack.decompress(chunk, _CHUNK_BYTES)
            yield piece
            while not unpack.eof and (unpack.unconsumed_tail or len(piece) == _CHUNK_BYTES):
                piece = unpack.decompress(unpack.unconsumed_tail, _CHUNK_BYTES)
                yield piece
            if unpack.unused_data:
                raise zlib.error("more data after the end")
        if not unpack.eof:
            raise zlib.error("no end")
    except zlib.error as error:
        message = f"{shown} has a content encoding ({encoding}) that cannot be decoded: {error}."
        raise FetchError(message, code="fetch-encoding", hint="Make the server send it without an encoding.") from error


def _is_sendable(value: str) -> bool:
    """True if an etag or date may be sent in a header. It comes from a server or from a cache on disk and may be
    invalid."""
    return value.isascii() and value.isprintable()


def _is_strong(etag: str | None) -> bool:
    """True for an etag that names exactly these bytes, so that a download can be resumed."""
    if not etag or etag.startswith("W/"):
        return False
    return _is_sendable(etag)


def _check_size(size_bytes: int, shown: str, limits: FetchLimits) -> None:
    """Refuses a download that is too large."""
    if size_bytes > limits.max_bytes:
        message = f"{shown} is larger than {limits.max_bytes} bytes."
        raise FetchError(message, code="fetch-too-large", hint="Leave big files out, or split it.")


def _status_error(shown: str, status: int, *, retryable: bool) -> FetchError:
    hint = "Try again later." if retryable else "Check the address, and that you may read it."
    return FetchError(f"{shown} answered with status {status}.", code="fetch-status", retryable=retryable, hint=hint)


def _timeout(shown: str) -> FetchError:
    hint = "Try again later, or use a nearer server."
    return FetchError(f"{shown} took too long to answer.", code="fetch-timeout", retryable=True, hint=hint)
