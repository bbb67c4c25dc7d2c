"""Content on its way into a store: what there is to know of it is learnt as it passes, and none of it is kept."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterable, AsyncIterator

from prowess._internal.mime import SNIFF_BYTES
from prowess.core.ports import Content
from prowess.stores.artifact_content import large_pieces, pieces, too_large


class Measure:
    """What is learnt of content while it passes through."""

    def __init__(self, name: str, max_bytes: int) -> None:
        self._name, self._max_bytes = name, max_bytes
        self.digest = hashlib.sha256()
        self.size = 0
        self.start = b""

    async def through(self, data: Content) -> AsyncIterator[bytes]:
        if isinstance(data, AsyncIterable):
            async for piece in large_pieces(data):
                yield self._noted(piece)
        else:
            waiting = pieces(data)
            while (piece := await asyncio.to_thread(next, waiting, None)) is not None:
                yield self._noted(piece)

    def _noted(self, piece: bytes) -> bytes:
        self.size += len(piece)
        if self.size > self._max_bytes:
            raise too_large(self._name, self._max_bytes)
        if len(self.start) < SNIFF_BYTES:
            self.start += piece[: SNIFF_BYTES - len(self.start)]
        self.digest.update(piece)
        return piece


async def in_parts(data: AsyncIterator[bytes], part_bytes: int) -> AsyncIterator[bytes]:
    """Only the last one is smaller than a part must be."""
    waiting = bytearray()
    async for piece in data:
        waiting += piece
        if len(waiting) >= part_bytes:
            yield bytes(waiting)
            waiting.clear()
    if waiting:
        yield bytes(waiting)


async def chain(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for part in rest:
        yield part
