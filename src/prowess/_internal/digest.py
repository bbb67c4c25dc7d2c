"""Computes the tree digest, which names a skill's content: sha256 over sorted (path, executable bit, sha256 of
content).

Approvals, locks, audit and MCP refer to a skill by this digest. Two trees have the same digest exactly if a run cannot
tell them apart.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

_CHUNK_BYTES = 256 * 1024


class FileDigest(NamedTuple):
    path: str  # relative, with forward slashes
    executable: bool
    sha256: str


def tree_digest(files: Iterable[FileDigest]) -> str:
    import hashlib  # imported late, because it slows the start

    whole = hashlib.sha256()
    for path, executable, sha256 in sorted(files):
        # NUL cannot occur in a path, so two different lists never give the same bytes.
        whole.update(f"{path}\0{'x' if executable else '-'}\0{sha256}\n".encode("utf-8", "surrogateescape"))
    return f"sha256:{whole.hexdigest()}"


def content_sha256(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


def file_sha256(fd: int, size_bytes: int) -> str:
    """Hashes an open file in chunks. A small file that has the expected size takes one read."""
    import hashlib

    chunk = os.read(fd, min(size_bytes + 1, _CHUNK_BYTES))
    whole, done = hashlib.sha256(chunk), len(chunk)
    while chunk and done != size_bytes:
        chunk = os.read(fd, _CHUNK_BYTES)
        whole.update(chunk)
        done += len(chunk)
    return whole.hexdigest()
