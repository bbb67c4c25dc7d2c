"""Servers that keep objects, on loopback: one that is right in every respect, and one that is told how to be wrong."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

# moto answers in several threads and looks before it writes: of two who create the same thing both could be told yes.
MOTO = """
import threading
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple

app, turn = DomainDispatcherApplication(create_backend_app), threading.Lock()

def in_turn(environ, start_response):
    with turn:
        return app(environ, start_response)

run_simple("127.0.0.1", 0, in_turn, threaded=True, request_handler=MotoRequestHandler)
"""
SIGNED = {"Authorization": "AWS4-HMAC-SHA256 Credential=key/20240101/us-east-1/s3/aws4_request"}


class S3:
    """A whole S3, as far as we are concerned."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.environ = {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
        }
        self._made = 0

    def make_bucket(self) -> str:
        self._made += 1
        self._ask("PUT", f"b-{self._made}")
        return f"b-{self._made}"

    def keys(self, bucket: str) -> dict[str, int]:
        """Every object and its size."""
        text = self._ask("GET", f"{bucket}?list-type=2&max-keys=1000").decode()
        found = re.findall(r"<Key>(.*?)</Key>.*?<Size>(\d+)</Size>", text, re.DOTALL)
        return {key: int(size) for key, size in found}

    def half_uploaded(self, bucket: str) -> list[str]:
        return re.findall(r"<Key>(.*?)</Key>", self._ask("GET", f"{bucket}?uploads").decode())

    def put(self, bucket: str, key: str, data: bytes) -> None:
        self._ask("PUT", f"{bucket}/{key}", data)

    def get(self, bucket: str, key: str) -> bytes:
        return self._ask("GET", f"{bucket}/{key}")

    def remove(self, bucket: str, key: str) -> None:
        self._ask("DELETE", f"{bucket}/{key}")

    def _ask(self, method: str, path: str, data: bytes = b"") -> bytes:
        with contextlib.closing(http.client.HTTPConnection(urlsplit(self.endpoint).netloc)) as connection:
            connection.request(method, f"/{path}", body=data, headers=SIGNED)
            answer = connection.getresponse()
            body = answer.read()
            assert answer.status < 300, body
            return body


@contextlib.contextmanager
def open_s3(log: Path) -> Iterator[S3]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    with log.open("w+b") as file:
        process = subprocess.Popen(
            [sys.executable, "-u", "-c", MOTO],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.PIPE,
            env=environ,
        )
        assert process.stderr
        try:
            for line in process.stderr:
                if found := re.search(rb"Running on (http://127\.0\.0\.1:\d+)", line):
                    break
            else:
                raise AssertionError("moto did not start")
            drain = threading.Thread(target=process.stderr.read)  # or it would wait for somebody to read its log
            drain.start()
            yield S3(found[1].decode())
        finally:
            process.terminate()
            process.wait()
            drain.join()
            process.stderr.close()


class Asked(BaseHTTPRequestHandler):
    """One request, and the means to answer it."""

    protocol_version = "HTTP/1.1"
    body = b""

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in ({"etag": '"x"', "content_length": str(len(body))} | headers).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, status: int, code: str) -> None:
        self.answer(status, f"<?xml version='1.0'?><Error><Code>{code}</Code></Error>".encode())

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


@contextlib.contextmanager
def open_wrong(handle: Callable[[Asked], None]) -> Iterator[str]:
    """The endpoint of a server that does whatever `handle` does."""

    class Handler(Asked):
        def do_PUT(self) -> None:
            self.body = self.rfile.read(int(self.headers.get("content-length") or 0))
            with contextlib.suppress(OSError):  # the client may hang up at any moment
                handle(self)

        do_GET = do_HEAD = do_POST = do_DELETE = do_PUT

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


DAYS = {20: "Tue, 20", 22: "Thu, 22"}


class Kept:
    """A server that keeps objects, and knows as much of Google's and of Azure's ways as a store of artifacts needs."""

    endpoint = ""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.old: set[str] = set()  # written two days before all others
        self._turn = threading.Lock()

    def handle(self, asked: Asked) -> None:
        url = urlsplit(asked.path)
        _, _, *rest = unquote(url.path).split("/", 2)
        with self._turn:
            if asked.command == "POST":  # Azure deletes in batches
                path = re.search(rb"DELETE /\w+/(\S+) HTTP", asked.body)
                assert path
                self.objects.pop(unquote(path[1].decode()), None)
                done = b"--b\r\nContent-Type: application/http\r\nContent-ID: 0\r\n\r\n"
                done += b"HTTP/1.1 202 Accepted\r\n\r\n--b--\r\n"
                asked.answer(202, done, content_type="multipart/mixed; boundary=b")
            elif rest:
                self._handle_object(asked, rest[0])
            else:
                query = parse_qs(url.query)
                asked.answer(200, self._listed(query["prefix"][0], azure="comp" in query))

    def _handle_object(self, asked: Asked, key: str) -> None:
        if asked.command == "PUT":
            if "if-none-match" in asked.headers and key in self.objects:
                asked.refuse(409, "BlobAlreadyExists")
            elif "x-goog-if-generation-match" in asked.headers and key in self.objects:
                asked.refuse(412, "PreconditionFailed")
            else:
                self.objects[key] = asked.body
                asked.answer(201, x_goog_generation="1")
        elif asked.command == "DELETE":
            asked.answer(204 if self.objects.pop(key, None) is not None else 404)
        elif key not in self.objects:
            asked.refuse(404, "BlobNotFound")
        else:
            data = self.objects[key]
            part = asked.headers.get("range")
            start, end = map(int, part.removeprefix("bytes=").split("-")) if part else (0, len(data) - 1)
            spread = {"content_range": f"bytes {start}-{end}/{len(data)}"} if part else {}
            when = {"last_modified": "Thu, 22 Oct 2015 07:28:00 GMT"}
            asked.answer(206 if part else 200, data[start : end + 1], **when, **spread)

    def _listed(self, prefix: str, *, azure: bool) -> bytes:
        found = [(key, len(data), 20 if key in self.old else 22) for key, data in sorted(self.objects.items())]
        found = [each for each in found if each[0].startswith(prefix)]
        if azure:
            blobs = "".join(
                f"<Blob><Name>{key}</Name><Properties><Last-Modified>{DAYS[day]} Oct 2015 07:28:00 GMT</Last-Modified>"
                f"<Content-Length>{size}</Content-Length><Content-Type>text/plain</Content-Type><Etag>x</Etag>"
                "</Properties></Blob>"
                for key, size, day in found
            )
            return f"<EnumerationResults><Blobs>{blobs}</Blobs><NextMarker/></EnumerationResults>".encode()
        contents = "".join(
            f"<Contents><Key>{key}</Key><Size>{size}</Size><LastModified>2015-10-{day}T07:28:00Z</LastModified></Contents>"
            for key, size, day in found
        )
        return f"<ListBucketResult>{contents}</ListBucketResult>".encode()


@contextlib.contextmanager
def open_kept() -> Iterator[Kept]:
    kept = Kept()
    with open_wrong(kept.handle) as endpoint:
        kept.endpoint = endpoint
        yield kept
