"""What an interactive program said and nobody has read yet: when it is too much, the oldest is dropped, and counted."""

from __future__ import annotations

import asyncio


class Unread:
    """`news` is set whenever something came, and at the end."""

    def __init__(self, most_bytes: int) -> None:
        self.dropped_bytes = 0
        self.ended = False
        self.news = asyncio.Event()
        self._most_bytes = most_bytes
        self._data = bytearray()

    def add(self, data: bytes) -> None:
        self._data += data
        if (over := len(self._data) - self._most_bytes) > 0:
            self.dropped_bytes += over
            del self._data[:over]
        self.news.set()

    def end(self) -> None:
        """Nothing more will come, and nobody has to wait for it."""
        self.ended = True
        self.news.set()

    async def read(self, limit_bytes: int, wait_s: float) -> bytes:
        """At most that much. When there is nothing, wait that long for something."""
        if not self._data and not self.ended and wait_s > 0:
            self.news.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self.news.wait()
            except TimeoutError:
                pass
        data = bytes(self._data[:limit_bytes])
        del self._data[:limit_bytes]
        return data
