"""The tree digest names a skill's content: sha256 over its sorted (path, executable bit, sha256 of content).

It is what approvals, locks, the audit and MCP refer to. Two trees have one digest exactly when a run could not tell
them apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class FileDigest(NamedTuple):
    path: str  # relative, with forward slashes
    executable: bool
    sha256: str


def tree_digest(files: Iterable[FileDigest]) -> str:
    import hashlib  # only those who digest pay for it

    whole = hashlib.sha256()
    for path, executable, sha256 in sorted(files):
        # NUL cannot occur in a path, so no two different lists can produce the same bytes.
        whole.update(f"{path}\0{'x' if executable else '-'}\0{sha256}\n".encode("utf-8", "surrogateescape"))
    return f"sha256:{whole.hexdigest()}"


def content_sha256(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()
