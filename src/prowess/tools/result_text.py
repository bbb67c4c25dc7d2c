"""Tells our own lines in a result from what a program, a file or a server says.

A line of ours stands in brackets and begins with one of a few words: `[exit code 1]`, `[stderr]`. In foreign text the
bracket before such a word is escaped, so no program can imitate a line of ours.
"""

from __future__ import annotations

import re

from prowess._internal.text import strip_invisible
from prowess.core.findings import visible

_WORDS = (
    r"exit code\b",
    r"stderr\]",
    r"file (?:out|work|runs)/",
    r"\d+ more files\]",
    r"all of std",
    r"saved: artifact:",
    r"session-[0-9a-f]{8}:",
    r"lines \d",
    r"HTTP \d",
    r"prowess:",
    r"… \d+ characters",
)
_OURS = re.compile(rf"\[(?=\s*+(?:{'|'.join(_WORDS)}))", re.IGNORECASE)


def our_line(text: str) -> str:
    """Renders a line of ours. `text` begins with one of our words; a name in it may be foreign."""
    return f"[{visible(text)}]"


def foreign_text(text: str) -> str:
    """Returns text of a program or file without invisible characters, in which no line looks like ours."""
    return _OURS.sub("&#91;", strip_invisible(text))
