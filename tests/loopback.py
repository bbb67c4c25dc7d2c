"""A real HTTP server on loopback that can misbehave: every test says, byte by byte, how its connection goes."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

# For 127.0.0.1 and localhost only, made for these tests, of no value to anyone.
CERTIFICATE = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgLqOVSqEN82+d+Rnr
ZbFEO06fxm6LRK4MnbGR8TBUJpahRANCAARkmRkSD3il/Li6xBH1xR0AFneUjw81
F1sQDMTPbJ9zH4g2myJoa4zVnfUO9tFzs3D1pY1EBIpJbCO+HW5unuKw
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBfDCCASOgAwIBAgIBATAKBggqhkjOPQQDAjAXMRUwEwYDVQQDDAxwcm93ZXNz
IHRlc3QwIBcNMjAwMTAxMDAwMDAwWhgPMjEyMDAxMDEwMDAwMDBaMBcxFTATBgNV
BAMMDHByb3dlc3MgdGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABGSZGRIP
eKX8uLrEEfXFHQAWd5SPDzUXWxAMxM9sn3MfiDabImhrjNWd9Q720XOzcPWljUQE
iklsI74dbm6e4rCjXjBcMBoGA1UdEQQTMBGHBH8AAAGCCWxvY2FsaG9zdDAPBgNV
HRMBAf8EBTADAQH/MA4GA1UdDwEB/wQEAwIChDAdBgNVHQ4EFgQUXMWf2YPBHw4R
wfZlDa+SdESGkCEwCgYIKoZIzj0EAwIDRwAwRAIgFi4opDmME7NSLYPfRg+IpgGW
aa6NnbG3LOZC23/n6zoCIAV96DiuPep62w8l3FIePhzyAGUWu3kVsVkaAUCOqFpp
-----END CERTIFICATE-----
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    path: str
    headers: dict[str, str]


@dataclass(slots=True)
class Exchange:
    """One request, and the means to answer it well or badly. The connection closes when the handler returns."""

    request: Request
    connection: socket.socket
    over: threading.Event  # set when the test is over

    def send(self, data: bytes) -> None:
        self.connection.sendall(data)

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        headers = {"content_length": str(len(body))} | headers
        head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        self.send(f"HTTP/1.1 {status} Answer\r\n{head}Connection: close\r\n\r\n".encode() + body)

    def stall(self) -> None:
        self.over.wait()

    def drip(self, data: bytes, every_s: float) -> None:
        """For ever, until the test is over or the client hangs up."""
        while not self.over.wait(every_s):
            self.send(data)


Handler = Callable[[Exchange], None]


@dataclass
class Server:
    handler: Handler
    certificate: Path | None = None
    requests: list[Request] = field(default_factory=list)

    def url(self, path: str = "/skills.zip", host: str = "127.0.0.1") -> str:
        return f"{'https' if self.certificate else 'http'}://{host}:{self._port}{path}"

    def __enter__(self) -> Server:
        self._over = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._port = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self._port)).close()  # wakes the accepting thread
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            if self._over.is_set():
                connection.close()
                return
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:  # the client may hang up at any moment
            stack.enter_context(connection)
            if self.certificate:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(self.certificate)
                connection = stack.enter_context(context.wrap_socket(connection, server_side=True))
            request = _read_request(connection)
            self.requests.append(request)
            self.handler(Exchange(request, connection, self._over))
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)  # not a reset, which could overtake the answer


def _read_request(connection: socket.socket) -> Request:
    data = b""
    while not data.endswith(b"\r\n\r\n"):
        received = connection.recv(65536)
        if not received:
            raise ConnectionError("no request came")
        data += received
    first, *lines = data.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines if line)}
    return Request(path=first.split(" ")[1], headers=headers)


def in_turn(*handlers: Handler) -> Handler:
    """The first request goes to the first handler, and so on; the last one takes all that follow."""
    left: Iterator[Handler] = iter(handlers[:-1])
    return lambda exchange: next(left, handlers[-1])(exchange)


def serving(content: bytes, **headers: str) -> Handler:
    """A good server: it knows ETags, answers 304, and resumes a range when If-Range still holds."""
    etag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'

    def handle(exchange: Exchange) -> None:
        asked = exchange.request.headers
        if asked.get("if-none-match") == etag:
            exchange.answer(304, etag=etag)
        elif "range" in asked and asked.get("if-range") == etag:
            start = int(asked["range"].removeprefix("bytes=").removesuffix("-"))
            spread = f"bytes {start}-{len(content) - 1}/{len(content)}"
            exchange.answer(206, content[start:], etag=etag, content_range=spread)
        else:
            exchange.answer(200, content, **({"etag": etag} | headers))

    return handle


def cutting(content: bytes, after: int, **headers: str) -> Handler:
    """Promises all of the content and hangs up in the middle."""
    etag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'

    def handle(exchange: Exchange) -> None:
        exchange.answer(200, content[:after], **({"etag": etag, "content_length": str(len(content))} | headers))

    return handle


def redirecting(to: str, status: int = 302) -> Handler:
    return lambda exchange: exchange.answer(status, location=to)
