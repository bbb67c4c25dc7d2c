"""Shared code of artifact stores: names on disk, chunks of content, and errors.

A name stays readable on disk if every file system can store it unchanged. Other names (capitals, other scripts, special
characters) get a hash, so that names that differ only in case or in the encoding of an accent never collide.

`Measure` computes size, digest and the first bytes while content passes through, without storing it.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import re
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from prowess._internal.mime import SNIFF_BYTES
from prowess.core.ports import Content
from prowess.errors import StoreError

PIECE_BYTES = 256 * 1024

_PLAIN = re.compile(r"[a-z0-9_](?:[a-z0-9._-]{0,58}[a-z0-9_-])?")
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?")  # a device name on Windows


def folder_name(part: str) -> str:
    """Returns one part of a key or a name as a name on disk. Different parts give different names."""
    if _PLAIN.fullmatch(part) and not _RESERVED.fullmatch(part):
        return part
    readable = re.sub(r"[^\w.-]+", "_", part)
    readable = readable.strip("._ ")[:16]  # 16 characters are at most 64 bytes
    digest = hashlib.sha256(part.encode()).hexdigest()
    return f"{readable}~{digest[:32]}"


def pieces(data: Content) -> Iterator[bytes]:
    """Yields chunks of bytes, of an open file, or of anything that yields bytes."""
    read = getattr(data, "read", None)
    if isinstance(data, (bytes, bytearray, memoryview)):
        view = memoryview(data)
        for at in range(0, len(view), PIECE_BYTES):
            yield bytes(view[at : at + PIECE_BYTES])
    elif read is not None:
        while piece := read(PIECE_BYTES):
            yield _checked(piece)
    elif isinstance(data, Iterable):
        yield from map(_checked, data)
    else:
        _checked(data)


async def large_pieces(data: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Joins small chunks, because a call into a thread only pays off for a large one."""
    async for part in in_parts(data, PIECE_BYTES):
        yield part


def _checked(piece: Any) -> bytes:
    if isinstance(piece, (bytes, bytearray, memoryview)):
        return bytes(piece)
    kind = type(piece).__name__
    raise StoreError(
        f"An artifact is made of bytes, not of {kind}.",
        code="artifact-not-bytes",
        hint="Encode text first, or open the file in binary mode.",
    )


def not_found(name: str, version: int | None, live: Sequence[int] = ()) -> StoreError:
    """Returns the error for a missing artifact or version. `live` has the versions that exist."""
    what = f"No artifact '{name}'."
    hint = "See: prowess artifacts list. Names are exact."
    if version is not None and live:
        what = f"No version {version} of '{name}'."
        newest = ", ".join(map(str, live[-10:]))
        hint = f"There is {newest}."
    return StoreError(what, code="artifact-not-found", hint=hint)


def too_large(name: str, max_bytes: int) -> StoreError:
    return StoreError(
        f"'{name}' is larger than {max_bytes} bytes; nothing was saved.",
        code="artifact-too-large",
        hint="Save less, or raise the limit of the store.",
    )


def corrupt(name: str, version: int) -> StoreError:
    return StoreError(
        f"Version {version} of '{name}' is not what was saved.",
        code="artifact-corrupt",
        hint="Restore it from a copy, or use another version.",
    )


def sync_folder(folder: str) -> None:
    """Flushes a folder to disk. A new name is durable only after this call. Windows has no such call and does not need
    it."""
    if os.name != "posix":
        return
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def trouble(path: str, missing: StoreError | None = None) -> Iterator[None]:
    """Turns an OSError about files into a StoreError with a hint."""
    try:
        yield
    except OSError as error:
        if missing is not None and isinstance(error, FileNotFoundError):
            raise missing from error
        code, hint = _TROUBLES.get(error.errno or 0, _OTHER)
        reason = error.strerror or error
        raise StoreError(f"{path} cannot be used: {reason}.", code=code, hint=hint) from error


_OTHER = ("store-error", "Look at the disk and at the message.")
_FULL = ("store-full", "Free some space, or raise the quota, and try again; nothing is lost.")
_DENIED = ("store-read-only", "Give yourself the right to write there.")
_TROUBLES = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: _FULL,
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
    errno.EROFS: _DENIED,
    errno.ENOTDIR: ("store-unavailable", "Name a folder; there is a file at this path."),
    errno.EEXIST: ("store-unavailable", "Name a folder; there is a file at this path."),
}


class Measure:
    """Computes size, sha256 and first bytes of content that passes through."""

    def __init__(self, name: str, max_bytes: int) -> None:
        self._name = name
        self._max_bytes = max_bytes
        self.digest = hashlib.sha256()
        self.size = 0
        self.start = b""

    async def through(self, data: Content) -> AsyncIterator[bytes]:
        """Yields the content in chunks, measured. Content that is not asynchronous is read in a thread."""
        if isinstance(data, AsyncIterable):
            async for piece in large_pieces(data):
                self.note(piece)
                yield piece
            return
        waiting = pieces(data)
        while (piece := await asyncio.to_thread(next, waiting, None)) is not None:
            self.note(piece)
            yield piece

    def note(self, piece: bytes) -> None:
        """Counts a chunk. StoreError if the content is larger than the store allows."""
        self.size += len(piece)
        if self.size > self._max_bytes:
            raise too_large(self._name, self._max_bytes)
        room = SNIFF_BYTES - len(self.start)
        if room > 0:
            self.start += piece[:room]
        self.digest.update(piece)


async def in_parts(data: AsyncIterable[bytes], part_bytes: int) -> AsyncIterator[bytes]:
    """Joins chunks to parts of at least `part_bytes`. Only the last part may be smaller."""
    waiting = bytearray()
    async for piece in data:
        waiting += _checked(piece)
        if len(waiting) >= part_bytes:
            yield bytes(waiting)
            waiting.clear()
    if waiting:
        yield bytes(waiting)


async def chain(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for part in rest:
        yield part
