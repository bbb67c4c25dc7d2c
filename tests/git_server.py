"""A git server on loopback: `git http-backend` behind TLS. It redirects and asks for a password as a test says."""

from __future__ import annotations

import os
import ssl
import subprocess
import threading
from base64 import b64encode
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SIGNED_IN = "Basic " + b64encode(b"ada:secret").decode()


@dataclass
class GitServer:
    """Repositories of a folder. `redirects` has, by the beginning of a path, what takes its place."""

    folder: Path
    certificate: Path
    redirects: dict[str, str] = field(default_factory=dict)
    is_private: bool = False
    strangers_to: str = ""  # page that those without a password are redirected to
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)  # agent, path, credentials

    bodies: list[bytes] = field(default_factory=list)

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"https://{host}:{self.port}{path}"

    def paths(self, agent: str) -> list[str]:
        """Paths without their query that a client asked for, in order."""
        return [path.partition("?")[0] for name, path, _ in self.requests if name == agent]

    def __enter__(self) -> GitServer:
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner.answer(self)

            do_POST = do_GET

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate)
        # The handshake is made by the thread of the connection: a client that does not trust us stops nobody else.
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, exchange: BaseHTTPRequestHandler) -> None:
        credentials = exchange.headers.get("Authorization")
        agent = exchange.headers.get("User-Agent", "").partition("/")[0]
        self.requests.append((agent, exchange.path, credentials))
        body = exchange.rfile.read(int(exchange.headers.get("Content-Length", 0)))
        self.bodies.append(body)
        if self.is_private and credentials != SIGNED_IN:
            self._answer(exchange, 401, {"WWW-Authenticate": 'Basic realm="git"'})
            return
        if self.strangers_to and credentials != SIGNED_IN:
            self._answer(exchange, 302, {"Location": self.strangers_to})
            return
        for beginning, other in self.redirects.items():
            if exchange.path.startswith(beginning):
                self._answer(exchange, 302, {"Location": other + exchange.path.removeprefix(beginning)})
                return
        head, _, content = self._run_backend(exchange, body).partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self._answer(exchange, int(headers.pop("Status", "200").split()[0]), headers, content)

    def _answer(
        self, exchange: BaseHTTPRequestHandler, status: int, headers: dict[str, str], content: bytes = b""
    ) -> None:
        exchange.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(content))}).items():
            exchange.send_header(name, value)
        exchange.end_headers()
        exchange.wfile.write(content)

    def _run_backend(self, exchange: BaseHTTPRequestHandler, body: bytes) -> bytes:
        path, _, query = exchange.path.partition("?")
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "GIT_PROJECT_ROOT": str(self.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
            "GIT_PROTOCOL": exchange.headers.get("Git-Protocol", ""),
            "HTTP_CONTENT_ENCODING": exchange.headers.get("Content-Encoding", ""),
            "CONTENT_TYPE": exchange.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "REMOTE_ADDR": "127.0.0.1",
            "REQUEST_METHOD": exchange.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
        }
        done = subprocess.run(["git", "http-backend"], input=body, env=environ, capture_output=True, check=True)
        return done.stdout
