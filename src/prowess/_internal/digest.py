"""Computes the tree digest, which names a skill's content: sha256 over sorted (path, executable bit, sha256 of
content).

Approvals, locks, audit and MCP refer to a skill by this digest. Two trees have the same digest exactly if a run cannot
tell them apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


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
