"""What a model sees has no characters that a person cannot see.

Zero-width joiners stay where writing systems and emoji need them: between two letters or symbols beyond ASCII.
"""

from __future__ import annotations

import re
import unicodedata

_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_ZERO_WIDTH = (
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb"
)
_TAGS = "\U000e0000-\U000e007f"
_SELECTORS = "\U000e0100-\U000e01ef"
_CONTROL = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f"
# A joiner next to ASCII (or an edge) joins nothing that can be seen.
_JOINER = "(?:(?<![^\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f]))"

_INVISIBLE = re.compile(f"[{_CONTROL}{_BIDI}{_ZERO_WIDTH}{_TAGS}{_SELECTORS}]|{_JOINER}")
_TAG_RUN = re.compile(f"[{_TAGS}]+")


def strip_invisible(text: str) -> str:
    """The text without invisible, direction-changing and control characters. Tabs and line ends stay."""
    return text if _is_plain(text) else _INVISIBLE.sub("", text)


def find_invisible(text: str) -> list[tuple[int, str]]:
    """(offset, 'U+202E RIGHT-TO-LEFT OVERRIDE') of each character that `strip_invisible` would remove."""
    if _is_plain(text):
        return []
    return [(found.start(), _describe(found[0])) for found in _INVISIBLE.finditer(text)]


def find_tag_text(text: str) -> list[tuple[int, str]]:
    """(offset, the ASCII text that a run of Unicode tag characters spells)."""
    if _is_plain(text):
        return []
    return [
        (found.start(), "".join(chr(ord(c) - 0xE0000) for c in found[0]).strip("\x00\x01\x7f"))
        for found in _TAG_RUN.finditer(text)
    ]


def _is_plain(text: str) -> bool:
    return text.isascii() and (text.isprintable() or not _INVISIBLE.search(text))


def _describe(character: str) -> str:
    return f"U+{ord(character):04X} {unicodedata.name(character, 'CONTROL')}"
