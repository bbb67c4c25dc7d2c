"""A request is over when its time is. httpx times each read alone, so a server that drips its headers byte by byte
could keep a client for ever; at the deadline its socket is cut."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Any


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
        return max(0.0, self._ends - time.monotonic())

    def watch(self, event: str, info: dict[str, Any]) -> None:
        """The `trace` extension of a request: it is told of each connection that is made."""
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            self._socket = info["return_value"].get_extra_info("socket")
            if not self.left_s():
                self._cut()

    def _cut(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):  # it was closed meanwhile
                # Not the method of an SSLSocket: that one drops the TLS state which the reading thread is using.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
