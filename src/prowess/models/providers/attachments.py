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
        path, _, _ = ref.partition("?")
        guessed, _ = mimetypes.guess_type(path)
        mime_type = part.mime_type or guessed or ""
        return Attachment(part.kind, mime_type, _name(part, mime_type), None, ref)
    match = _DATA.fullmatch(ref)
    if not match:
        return None
    mime_type = match["mime"] or part.mime_type or "application/octet-stream"
    mime_type = mime_type.lower()
    options = match["rest"].lower()
    try:
        data = _base64(match["data"], encoded=";base64" in options)
    except (binascii.Error, ValueError):
        return None
    if not data:
        return None
    return Attachment(part.kind, mime_type, _name(part, mime_type), data, None)


def find_text(attachment: Attachment) -> str | None:
    """Returns the content when it is text."""
    if attachment.data is None or not _TEXTS.fullmatch(attachment.mime_type):
        return None
    content = base64.b64decode(attachment.data)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def describe_missing(part: Part) -> str:
    """Text that the model reads in place of something that it cannot be shown."""
    ref = part.ref or ""
    what = "image" if part.kind == "image" else "file"
    if part.text:
        what += f" {part.text[:200]}"
    elif ref and not ref.startswith("data:"):
        what += f" {ref[:200]}"
    match = _DATA.match(ref)
    mime_type = part.mime_type or (match["mime"] if match else "")
    if mime_type:
        what += f", {mime_type}"
    return f"({what}: it cannot be shown to this model)"


def _name(part: Part, mime_type: str) -> str:
    named = (part.text or "").strip()
    if named:
        return named[:200]
    extension = mimetypes.guess_extension(mime_type) or ""
    return f"{part.kind}{extension}"


def _base64(data: str, *, encoded: bool) -> str:
    if not encoded:
        content = unquote_to_bytes(data)
        return base64.b64encode(content).decode("ascii")
    packed = "".join(data.split())
    base64.b64decode(packed, validate=True)
    return packed
