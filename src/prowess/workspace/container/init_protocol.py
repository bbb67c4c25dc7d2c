"""Connection to process 1 of a container: frames in both directions over the engine's stream.

Two threads do the blocking calls, because the stream may be a socket, a TLS connection or an SSH channel. Data is read
only as fast as the loop handles it, so memory stays constant and the program waits.
"""

from __future__ import annotations

import asyncio
import queue
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from prowess.workspace.container.init import FRAME

_RECEIVED_BYTES = 1 << 16
_AHEAD = 16  # pieces that the loop has not handled yet
_ENGINE_FRAME = struct.Struct(">BxxxI")  # header before each piece: stream number and size
_STDOUT = 1
_LAST_WORDS_BYTES = 8000
_LARGEST_BYTES = 64 << 20  # our frames are much smaller; a larger length means invalid data


class InitConnection:
    """Connection that calls `on_frame(kind, run, content)` and `on_end(why)` in the loop, in order, and never after
    `close`."""

    def __init__(
        self, stream: Any, on_frame: Callable[[bytes, int, bytes], None], on_end: Callable[[str], None]
    ) -> None:
        self._stream = stream
        self._socket = getattr(stream, "_sock", stream)
        self._on_frame, self._on_end = on_frame, on_end
        self._loop = asyncio.get_running_loop()
        self._to_send: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._room = threading.Semaphore(_AHEAD)
        self._raw, self._frames = bytearray(), bytearray()
        self._piece: tuple[int, int] | None = None  # (stream, bytes to come)
        self.closed = False
        self.last_words = bytearray()  # stderr of process 1 itself
        self._socket.settimeout(None)
        for work in (self._receive, self._send):
            threading.Thread(target=work, name="prowess-container", daemon=True).start()

    def send(self, kind: bytes, run: int, content: bytes = b"") -> None:
        self._to_send.put(FRAME.pack(kind, run, len(content)) + content)

    def send_raw(self, data: bytes) -> None:
        self._to_send.put(data)

    def close(self) -> None:
        """Closes the connection, which ends process 1 and so the container, if it still runs."""
        if self.closed:
            return
        self.closed = True
        self._to_send.put(None)
        self._room.release()
        with suppress(OSError):
            self._socket.shutdown(2)
        close_stream(self._stream)

    def _send(self) -> None:
        while (data := self._to_send.get()) is not None:
            try:
                self._socket.sendall(data)
            except (OSError, EOFError):  # the reading thread notices it
                return

    def _receive(self) -> None:
        why = "the engine closed the connection"
        while True:
            self._room.acquire()
            if self.closed:
                return
            try:
                data = self._socket.recv(_RECEIVED_BYTES)
            except (OSError, EOFError, ValueError) as error:
                data, why = b"", str(error)
            try:
                if not data:
                    self._loop.call_soon_threadsafe(self._over, why)
                    return
                self._loop.call_soon_threadsafe(self._take, data)
            except RuntimeError:  # the loop ended without closing us
                return

    def _over(self, why: str) -> None:
        if not self.closed:
            self._on_end(why)

    def _take(self, data: bytes) -> None:
        self._room.release()
        if self.closed:
            return
        self._raw += data
        while True:
            if self._piece is None:
                if len(self._raw) < _ENGINE_FRAME.size:
                    break
                self._piece = _ENGINE_FRAME.unpack_from(self._raw)
                del self._raw[: _ENGINE_FRAME.size]
            stream, size = self._piece
            part = self._raw[:size]
            del self._raw[:size]
            if stream == _STDOUT:
                self._frames += part
            else:
                self.last_words += part
                del self.last_words[:-_LAST_WORDS_BYTES]
            self._piece = (stream, size - len(part)) if len(part) < size else None
            if self._piece is not None:
                break
        self._hand_over()

    def _hand_over(self) -> None:
        while len(self._frames) >= FRAME.size and not self.closed:
            kind, run, size = FRAME.unpack_from(self._frames)
            if size > _LARGEST_BYTES:
                self._on_end("process 1 of the container sent invalid data")
                return
            if len(self._frames) < FRAME.size + size:
                return
            content = bytes(memoryview(self._frames)[FRAME.size : FRAME.size + size])
            del self._frames[: FRAME.size + size]
            self._on_frame(kind, run, content)


def close_stream(stream: Any) -> None:
    """Closes the SDK's socket object, and the response that the SDK keeps alive for it."""
    for each in (getattr(stream, "_response", None), stream, getattr(stream, "_sock", None)):
        if each is not None:
            with suppress(OSError, ValueError):  # closing one may close another
                each.close()
