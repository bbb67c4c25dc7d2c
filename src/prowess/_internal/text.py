"""Removes invisible characters from text for a model, finds lines and code blocks in Markdown, and cuts text to a line.

A joiner stays where writing systems and emoji need it: one, between two letters or symbols outside ASCII. A variation
selector stays where it can change the look of a symbol: one, right after the symbol. All other invisible characters are
hidden text.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_ZERO_WIDTH = (
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
)
_TAGS = "\U000e0000-\U000e007f"
_PLANE_14 = "\U000e0080-\U000e0fff"  # more variation selectors, and characters that Unicode reserves for similar use
_CONTROL = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f"
_JOINERS = "\u200c\u200d"
_SELECTORS = "\ufe00-\ufe0f"
_SYMBOLS = frozenset("0123456789#*")  # of ASCII that a selector can turn into a symbol

# Latin letters, and the numbers of letters that look like them. All are small, as after `casefold`.
_LOOK_ALIKES = (
    "a 0430 03b1 0251 1d00 13aa; b 044c 13cf; c 0441 03f2 1d04 13df; d 0501 1d05 13a0; e 0435 1d07 13ac; "
    "g 0261 0581 0262 13c0; h 04bb 0570 029c 13bb; i 0456 0131 03b9 0269 026a 13a5; j 0458 0237 03f3 0575 1d0a 13ab; "
    "k 043a 03ba 1d0b 13e6; l 04cf 029f 13de; m 043c 1d0d 13b7; n 0578 03b7 0274; o 043e 03bf 0585 1d0f; "
    "p 0440 03c1 1d18 13e2; q 051b 0566; r 0433 0280 13a1; s 0455 a731 13da; t 0442 03c4 1d1b 13a2; "
    "u 057d 03c5 1d1c; v 0475 03bd 1d20 13d9; w 051d 0461 03c9 1d21 0561 13b3; x 0445 03c7; "
    "y 0443 04af 03b3 028f 13a9; z 1d22 13c3; - 2010 2012 2013 2014 2015 2043 2212 30fc a4fb"
)
_LOOKS_LIKE: dict[int, str] = {}
for _row in _LOOK_ALIKES.split("; "):
    _latin, *_others = _row.split()
    _LOOKS_LIKE |= {int(_other, 16): _latin for _other in _others}

_RUN = re.compile(f"[{_CONTROL}{_BIDI}{_ZERO_WIDTH}{_TAGS}{_PLANE_14}{_JOINERS}{_SELECTORS}]+")
_TAG_RUN = re.compile(f"[{_TAGS}]+")
_FENCE = re.compile(r"^[ \t]*(?P<fence>`{3,}|~{3,})(?P<info>[^\n]*)$", re.MULTILINE)


def strip_invisible(text: str) -> str:
    """Removes invisible, direction-changing and control characters. Tabs and line ends stay."""
    if _is_plain(text):
        return text
    return _RUN.sub(_visible_of, text)


def _visible_of(run: re.Match[str]) -> str:
    text = run.string
    return "".join(text[at] for at in _kept(run))


def find_invisible(text: str) -> list[tuple[int, str]]:
    """Returns (offset, 'U+202E RIGHT-TO-LEFT OVERRIDE') for each character that `strip_invisible` would remove."""
    found: list[tuple[int, str]] = []
    if _is_plain(text):
        return found
    for run in _RUN.finditer(text):
        kept = _kept(run)
        for at in range(*run.span()):
            if at not in kept:
                found.append((at, _describe(text[at])))
    return found


def find_tag_text(text: str) -> list[tuple[int, str]]:
    """Returns (offset, ASCII text) for each run of Unicode tag characters, which can spell hidden text."""
    found: list[tuple[int, str]] = []
    if _is_plain(text):
        return found
    for run in _TAG_RUN.finditer(text):
        hidden = "".join(chr(ord(tag) - 0xE0000) for tag in run[0])
        found.append((run.start(), hidden.strip("\x00\x01\x7f")))
    return found


def _kept(run: re.Match[str]) -> list[int]:
    """Returns the offsets of the one or two characters in a run of invisible ones that have a visible effect."""
    text = run.string
    start, end = run.span()
    before = text[start - 1 : start]
    after = text[end : end + 1]
    if before.isspace() or (before.isascii() and before not in _SYMBOLS):  # or at the start of the text
        return []
    kept: list[int] = []
    if "\ufe00" <= text[start] <= "\ufe0f":
        kept.append(start)
    if before.isascii() or after.isascii() or after.isspace():
        return kept
    for at in range(start, end):
        if text[at] in _JOINERS:
            kept.append(at)
            break
    return kept


def _is_plain(text: str) -> bool:
    # Most texts have line ends and no other control characters; that is found out ten times as fast.
    return text.isascii() and (text.replace("\n", "").isprintable() or not _RUN.search(text))


def _describe(character: str) -> str:
    """Returns the number and the name of a character."""
    return f"U+{ord(character):04X} {unicodedata.name(character, 'CONTROL')}"


# --- places in a text -----------------------------------------------------------------------------------------------


class LineNumbers:
    """Line numbers of offsets, starting at 1. Line ends are found once, because a hostile text can have 100,000
    matches."""

    def __init__(self, text: str) -> None:
        self._ends = [found.start() for found in re.finditer("\n", text)]

    def at(self, offset: int) -> int:
        """Returns the number of the line that has the offset."""
        return 1 + bisect_left(self._ends, offset)


class Spans:
    """Set of offsets, given as sorted spans that do not overlap."""

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        self._spans = list(spans)
        self._starts = [start for start, _ in self._spans]

    def __contains__(self, offset: int) -> bool:
        return self.start_around(offset) is not None

    def start_around(self, offset: int) -> int | None:
        """Returns the start of the span that contains the offset."""
        at = bisect_right(self._starts, offset) - 1
        if at < 0:
            return None
        start, end = self._spans[at]
        if offset >= end:
            return None
        return start


def fenced_code(text: str) -> Spans:
    """Returns the insides of fenced code blocks. A block that is never closed goes to the end, as in Markdown."""
    spans = []
    opened: re.Match[str] | None = None
    for found in _FENCE.finditer(text):
        if opened is None:
            if found["fence"][0] == "~" or "`" not in found["info"]:  # otherwise it is inline code
                opened = found
        elif found["fence"].startswith(opened["fence"]) and not found["info"].strip():
            spans.append((opened.end(), found.start()))
            opened = None
    if opened is not None:
        spans.append((opened.end(), len(text)))
    return Spans(spans)


# --- text for people ------------------------------------------------------------------------------------------------


def one_line(text: str, longest: int = 100) -> str:
    """Puts a text on one line, and cuts it to `longest` characters. Nothing is escaped."""
    words = text[: longest * 4].split()
    line = " ".join(words)
    if len(line) <= longest:
        return line
    return f"{line[: longest - 1]}…"


def render_seconds(number: float) -> str:
    if number < 0.9995:
        return f"{number * 1000:.0f} ms"
    if number < 60:
        return f"{number:.1f} s"
    minutes, seconds = divmod(number, 60)
    return f"{int(minutes)} min {int(seconds)} s"


def describe_letters(name: str) -> str | None:
    """Describes the letters of a name that are not ASCII and may look like it: `mixes Latin and Cyrillic letters:
    U+0430 CYRILLIC SMALL LETTER A`. None if all are ASCII."""
    if name.isascii():
        return None
    scripts: dict[str, None] = {}
    for letter in name:
        if letter.isalpha():
            script, *_ = unicodedata.name(letter, "other").split()
            scripts[script.capitalize()] = None
    what = "has letters beyond a-z"
    if len(scripts) > 1:
        what = f"mixes {' and '.join(scripts)} letters"
    others = [_describe(letter) for letter in dict.fromkeys(name) if not letter.isascii()]
    return f"{what}: {name_some(others, quote='')}"


def look_of(name: str) -> str:
    """Returns what all names share that look like this one: in another case, with invisible characters, or with letters
    of other scripts that look like Latin ones."""
    if name.isascii():
        return name.lower()
    plain = unicodedata.normalize("NFKC", strip_invisible(name)).casefold()
    return unicodedata.normalize("NFC", plain.translate(_LOOKS_LIKE))


def name_some(names: Sequence[str], most: int = 3, *, quote: str = "'") -> str:
    """Renders the first names and the number of the others: `'a', 'b', 'c' and 9 more`. Nothing is escaped."""
    some = ", ".join(f"{quote}{name}{quote}" for name in names[:most])
    others = len(names) - most
    if others <= 0:
        return some
    return f"{some} and {others} more"
