"""Reads a tar as a stream, in constant memory and up to its end mark. A truncated tar is always noticed.

The standard library parses each 512-byte header. The loop around it is our own, because tarfile reads long names and
sparse maps of any size into memory. It also stops silently if an archive is cut off between two members.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from typing import IO, Literal, NamedTuple

from prowess.errors import PackUnsafe

BLOCK_BYTES = 512
CHUNK_BYTES = 64 * 1024
_MAX_HEADER_BYTES = 1024 * 1024  # of one extended header or long name
_MAX_HEADERS = 8  # extended ones in a row; honest archives have up to four before a member
_USED = ("path", "size", "linkpath", "GNU.sparse")  # keys of extended headers; the last one is for all that begin so
_EXTENDED = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)

MemberKind = Literal["file", "folder", "link", "special"]


class Member(NamedTuple):
    """Member of a zip or tar, not checked yet. Its chunks can be read once, before the next member."""

    name: str
    kind: MemberKind
    executable: bool
    chunks: Iterator[bytes]


def tar_members(file: IO[bytes], count: Callable[[int], None]) -> Iterator[Member]:
    """Yields the members. `count` gets the number of bytes read and may raise. EOFError, ValueError or TarError if the
    tar is damaged or truncated."""
    stream = _Stream(file, count)
    said: dict[str, str] = {}  # values of extended headers for the next member
    headers = 0  # extended ones since the last member
    while any(block := stream.take(BLOCK_BYTES)):
        info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        if info.type in _EXTENDED:
            headers += 1
            if headers > _MAX_HEADERS:
                raise _too_large("A member of this archive has too many headers.")
            said |= _extended(info, stream.take_header(info.size))
            continue
        headers = 0
        name, size = said.get("path", info.name), int(said.get("size", info.size))
        kind, said = _kind_of(info, said), {}
        content = stream.chunks(size if kind == "file" else 0)
        yield Member(name, kind, bool(info.mode & 0o111), content)
        for _ in content:  # skip chunks that the caller did not read
            pass
        stream.take(-size % BLOCK_BYTES if kind == "file" else 0)
    stream.drain()  # a truncated gzip stream shows only at its end


def is_tar(head: bytes) -> bool:
    return head[257:262] == b"ustar"


def _kind_of(info: tarfile.TarInfo, said: dict[str, str]) -> MemberKind:
    if info.issym() or info.islnk():
        return "link"
    if info.type not in (*_PLAIN, tarfile.DIRTYPE) or "GNU.sparse" in said:
        return "special"
    return "folder" if info.isdir() else "file"


def _extended(info: tarfile.TarInfo, data: bytes) -> dict[str, str]:
    """Returns the values of an extended header for the next member."""
    if info.type == tarfile.GNUTYPE_LONGLINK:
        return {}
    if info.type == tarfile.GNUTYPE_LONGNAME:
        name, _, _ = data.partition(b"\0")
        return {"path": name.decode("utf-8", "surrogateescape")}
    records = {key: value for key, value in _pax_records(data) if key in _USED}
    if info.type != tarfile.XGLTYPE:
        return records
    # git writes a comment here. No honest archive renames or resizes all members.
    if not records.keys().isdisjoint(("path", "size", "linkpath")):
        message = "A header in this archive renames or resizes all of its members."
        raise PackUnsafe(message, code="pack-unsafe-special", hint="Pack it again with plain tar.")
    return {}


def _pax_records(data: bytes) -> Iterator[tuple[str, str]]:
    """Parses pax records: the record's length in digits, a space, key=value and a newline."""
    at = 0
    while at < len(data):
        space = data.index(b" ", at, at + 10)
        end = at + int(data[at:space])
        key, equals, value = data[space + 1 : end - 1].partition(b"=")
        if not space < end <= len(data) or data[end - 1] != ord("\n") or not equals:
            raise tarfile.ReadError("a record of an extended header is broken")
        name = key.decode("utf-8", "surrogateescape")
        if name.startswith("GNU.sparse"):
            name = "GNU.sparse"
        yield name, value.decode("utf-8", "surrogateescape")
        at = end


def _too_large(message: str) -> PackUnsafe:
    hint = "Do not use it unless you know who made it and why."
    return PackUnsafe(message, code="pack-too-large", hint=hint)


class _Stream:
    def __init__(self, file: IO[bytes], count: Callable[[int], None]) -> None:
        self._file = file
        self._count = count

    def chunks(self, size: int) -> Iterator[bytes]:
        if size < 0:
            raise tarfile.ReadError("a member has a negative size")
        while size:
            chunk = self._file.read(min(size, CHUNK_BYTES))
            if not chunk:
                raise EOFError("it ends in the middle")
            self._count(len(chunk))
            size -= len(chunk)
            yield chunk

    def take(self, size: int) -> bytes:
        return b"".join(self.chunks(size))

    def take_header(self, size: int) -> bytes:
        if size > _MAX_HEADER_BYTES:
            raise _too_large("A header in this archive is too large.")
        data = self.take(size)
        self.take(-size % BLOCK_BYTES)
        return data

    def drain(self) -> None:
        while chunk := self._file.read(CHUNK_BYTES):
            self._count(len(chunk))
