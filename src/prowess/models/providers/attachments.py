"""Converts pictures and files of a message into a form that a provider takes. What it cannot take becomes text."""

from __future__ import annotations

import base64
import binascii
import mimetypes
import re
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from prowess.core.values import Part

PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
PDF = "application/pdf"
OFFICE = frozenset(
    f"application/vnd.openxmlformats-officedocument.{kind}"
    for kind in ("wordprocessingml.document", "spreadsheetml.sheet", "presentationml.presentation")
)
_DATA = re.compile(r"data:(?P<mime>[^;,]*)(?P<rest>(?:;[^;,]*)*),(?P<data>.*)", re.DOTALL)
_TEXTS = re.compile(r"text/.+|application/(json|xml|yaml|x-yaml|toml|x-ndjson|javascript|x-sh|sql)|.+\+(json|xml)")


class Attachment(NamedTuple):
    kind: str  # "image" or "file"
    mime_type: str
    name: str
    data: str | None  # base64
    url: str | None  # https

    @property
    def data_url(self) -> str:
        return f"data:{self.mime_type};base64,{self.data}"


def find_attachment(part: Part) -> Attachment | None:
    """Returns None when the part is no data: or https: reference, or when its data is invalid."""
    ref = part.ref or ""
    if ref.startswith("https://"):
        mime_type = part.mime_type or mimetypes.guess_type(ref.partition("?")[0])[0] or ""
        return Attachment(part.kind, mime_type, _name(part, mime_type), None, ref)
    match = _DATA.fullmatch(ref)
    if not match:
        return None
    mime_type = (match["mime"] or part.mime_type or "application/octet-stream").lower()
    try:
        data = _base64(match["data"], encoded=";base64" in match["rest"].lower())
    except (binascii.Error, ValueError):
        return None
    return Attachment(part.kind, mime_type, _name(part, mime_type), data, None) if data else None


def find_text(attachment: Attachment) -> str | None:
    """Returns the content when it is text."""
    if attachment.data is None or not _TEXTS.fullmatch(attachment.mime_type):
        return None
    try:
        return base64.b64decode(attachment.data).decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def describe_missing(part: Part) -> str:
    """Text that the model reads in place of something that it cannot be shown."""
    ref = part.ref or ""
    where = "" if not ref or ref.startswith("data:") else f" {ref[:200]}"
    what = "image" if part.kind == "image" else "file"
    mime_type = part.mime_type or (m["mime"] if (m := _DATA.match(ref)) else "")
    named = f" {part.text[:200]}" if part.text else where
    return f"({what}{named}{f', {mime_type}' if mime_type else ''}: it cannot be shown to this model)"


def _name(part: Part, mime_type: str) -> str:
    return (part.text or "").strip()[:200] or f"{part.kind}{mimetypes.guess_extension(mime_type) or ''}"


def _base64(data: str, *, encoded: bool) -> str:
    if not encoded:
        return base64.b64encode(unquote_to_bytes(data)).decode("ascii")
    packed = "".join(data.split())
    base64.b64decode(packed, validate=True)
    return packed
