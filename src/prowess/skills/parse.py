"""Splits the bytes of a SKILL.md into head and body. Pure: opens no file and never raises.

The front matter is fenced by `---` on line 1 and `---` on a line of its own. `find_fence` works on bytes, so discovery
can stop reading as soon as it finds the closing fence. All readers use `find_fence`, so they agree on where the front
matter ends.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, overload

from prowess.core.findings import Note
from prowess.skills.front_matter import FrontMatter, parse_front_matter
from prowess.skills.head import SkillHead
from prowess.skills.metadata import read_fields
from prowess.skills.yaml_mapping import Unreadable

MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 4 * 1024 * 1024  # of the whole file: a body is read whole or not at all
_BOM = b"\xef\xbb\xbf"
# Blanks after a fence are bounded, so a reader can decide after a bounded number of bytes.
_OPENING = re.compile(rb"---[ \t]{0,200}(?:\r\n|\n|\r|\Z)")
_MAYBE_OPENING = re.compile(rb"-{0,2}|---[ \t]{0,200}")
_CLOSING = re.compile(rb"---[ \t]{0,200}(?:\r\n|\n|\r|\Z)")
_LONGEST_FENCE_BYTES = 256
_LINE_END = re.compile(rb"\r\n|\n|\r")


class Fence(NamedTuple):
    """Byte offsets of the front matter (start, end) and of the body."""

    start: int
    end: int
    body: int


def parse_head(data: bytes, folder: str) -> SkillHead:
    """Parses the head. `data` is the beginning of the file and includes the closing fence, unless that comes after
    MAX_HEAD_BYTES."""
    front = parse_front(data)
    if isinstance(front, Note):
        return SkillHead(None, None, notes=(front,))
    return read_fields(front, folder)


def parse_front(data: bytes) -> FrontMatter | Note:
    """Returns the front matter, or a note that says why there is none."""
    fence = find_fence(data)
    if isinstance(fence, Note):
        return fence
    try:
        text = data[fence.start : fence.end].decode("utf-8")
    except UnicodeDecodeError as error:
        line = 2 + _count_lines(data[fence.start : fence.start + error.start])
        return Note("head-not-utf8", line, {"reason": f"byte 0x{data[fence.start + error.start]:02x}"})
    try:
        return parse_front_matter(unify_lines(text))
    except Unreadable as failure:
        return Note(failure.code, failure.line, {"reason": failure.reason})


@overload
def find_fence(data: bytes, *, whole: Literal[True] = True) -> Fence | Note: ...
@overload
def find_fence(data: bytes, *, whole: bool) -> Fence | Note | None: ...
def find_fence(data: bytes, *, whole: bool = True) -> Fence | Note | None:
    """Returns the fence, or a note that says why there is none. With whole=False (more bytes will follow), None means
    "not decided yet, read on"."""
    begin = 3 if data.startswith(_BOM) else 0
    if not whole and (_MAYBE_OPENING.fullmatch(data, begin) or _BOM.startswith(data)):
        return None
    opening = _OPENING.match(data, begin)
    if not opening:
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            return Note("head-not-utf8", 1, {"reason": "it is UTF-16"})
        return Note("no-front-matter", 1)
    closing = _find_closing(data, opening.end())
    if closing and (whole or closing.end() < len(data)):
        if closing.start() > MAX_HEAD_BYTES:
            return Note("head-too-large", 1, {"limit_bytes": MAX_HEAD_BYTES})
        return Fence(opening.end(), closing.start(), closing.end())
    if len(data) > MAX_HEAD_BYTES + (0 if whole else _LONGEST_FENCE_BYTES):
        return Note("head-too-large", 1, {"limit_bytes": MAX_HEAD_BYTES})
    return Note("front-matter-unclosed", 1) if whole else None


def _find_closing(data: bytes, start: int) -> re.Match[bytes] | None:
    """Finds the first fence line at or after `start`. Plain finds are many times faster than one regexp search."""
    at = start
    while (at := data.find(b"---", at)) >= 0:
        if data[at - 1 : at] in (b"\n", b"\r") and (found := _CLOSING.match(data, at)):
            return found
        at += 3
    return None


def parse_body(data: bytes) -> tuple[str, int, tuple[Note, ...]]:
    """Returns the whole body, the number of its first line in the file, and notes about invalid bytes."""
    fence = find_fence(data)
    start = fence.body if isinstance(fence, Fence) else 0
    raw = data[start:]
    first_line = 1 + _count_lines(data[:start])
    notes: tuple[Note, ...] = ()
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = first_line + _count_lines(raw[: error.start])
        notes = (Note("body-not-utf8", line),)
        text = raw.decode("utf-8", "replace")
    return unify_lines(text), first_line, notes


def _count_lines(data: bytes) -> int:
    """Counts line ends: of Unix, Windows or old Macs."""
    return len(_LINE_END.findall(data))


def unify_lines(text: str) -> str:
    """Returns the text with `\\n` at the end of each line."""
    if "\r" not in text:
        return text
    return text.replace("\r\n", "\n").replace("\r", "\n")
