"""Guesses the MIME type of a file by its name, then by its first bytes. The result is the same on every machine."""

from __future__ import annotations

import codecs
import re
from functools import cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    import mimetypes

SNIFF_BYTES = 512

_OUR_TYPES = {
    ".md": "text/markdown",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
    ".toml": "application/toml",
    ".jsonl": "application/jsonl",
    ".webp": "image/webp",
    ".parquet": "application/vnd.apache.parquet",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
}
_PACKED = {"gzip": "application/gzip", "bzip2": "application/x-bzip2", "xz": "application/x-xz"}
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"SQLite format 3\x00", "application/vnd.sqlite3"),
)


def guess_mime(name: str, start: bytes) -> str:
    """Returns the MIME type by the extension, else by the first bytes."""
    ending = re.search(r"\.[a-z0-9]+$", name.lower())
    if ending and ending[0] in _OUR_TYPES:
        return _OUR_TYPES[ending[0]]
    kind, packed = _types().guess_type(name.rpartition("/")[2])
    if packed:
        return _PACKED.get(packed, "application/octet-stream")
    if kind:
        return kind
    for magic, found in _MAGIC:
        if start.startswith(magic):
            return found
    return "text/plain" if is_text(start, whole=len(start) < SNIFF_BYTES) else "application/octet-stream"


@cache
def _types() -> mimetypes.MimeTypes:
    import mimetypes  # late: it imports urllib

    return mimetypes.MimeTypes(filenames=())  # no tables of this machine: a file has one type everywhere


def is_text(start: bytes, *, whole: bool = False) -> bool:
    """True for UTF-8 without a NUL. Without `whole`, the bytes may end in the middle of a character."""
    if b"\0" in start:
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start, final=whole)
    except UnicodeDecodeError:
        return False
    return True
