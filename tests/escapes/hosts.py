"""Servers on this machine, which remember who asked: one that a run may reach, and others that it may not. Case 30."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Site(ThreadingHTTPServer):
    def __init__(self, address: str) -> None:
        self.asked: list[str] = []
        self.elsewhere = ""
        super().__init__((address, 0), _Answer)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def url(self, path: str, host: str | None = None) -> str:
        return f"http://{host or self.server_address[0]}:{self.server_port}/{path}"


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Site)
        self.server.asked.append(self.path.strip("/"))
        if self.path == "/proxy-redirect" and self.server.elsewhere:
            self.send_response(302)
            self.send_header("Location", self.server.elsewhere)
            self.end_headers()
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"welcome")

    def log_message(self, format: str, *args: object) -> None: ...


@contextmanager
def sites() -> Iterator[tuple[Site, Site, Site]]:
    """One that is allowed, one on another port, one at another address."""
    opened = Site("127.0.0.1"), Site("127.0.0.1"), Site("127.0.0.2")
    opened[0].elsewhere = opened[1].url("proxy-redirect")
    try:
        yield opened
    finally:
        for site in opened:
            site.shutdown()
            site.server_close()
