"""Matches `*`, `**` and `?` in bounded time.

Patterns come from skills and models, and names come from scripts, so both can be hostile. The time is at most pattern
length times text length, however many stars there are; some thousand characters take milliseconds.

All places in the text at which the pattern so far can end are the bits of one integer. Each piece of the pattern is
then a few operations on this integer.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import NamedTuple

_PIECE = re.compile(r"\*++|[?\[]|[^*?\[]++")
_PIECE_OF_PATH = re.compile(rf"(?:\*\*++/)+|{_PIECE.pattern}")


class _Piece(NamedTuple):
    kind: str  # `text`, `set`, `any`, or the wildcard itself: `*`, `**`, `**/`, `?`
    text: str = ""
    letters: re.Pattern[str] | None = None


class Glob:
    """Compiled pattern. `*` and `?` stay within a folder, `**` crosses folders, and `**/` is any number of folders.
    With `sets`, `[…]` matches one character of a set. Without `folders`, a slash is an ordinary character."""

    def __init__(self, pattern: str, *, sets: bool = False, folders: bool = True) -> None:
        self.pattern = pattern
        self._pieces = _read(pattern, sets, folders)

    def fullmatch(self, text: str | IndexedText) -> bool:
        if isinstance(text, str):
            text = IndexedText(text)
        return self._match(text, begins=False)

    def may_begin(self, text: str) -> bool:
        """True if some text that starts with this one could match."""
        return self._match(IndexedText(text), begins=True)

    def _match(self, where: IndexedText, *, begins: bool) -> bool:
        text, ends = where.text, 1
        for piece in self._pieces:
            if piece.kind == "**":
                ends = where.from_first(ends)
            elif piece.kind == "**/":
                ends |= where.from_first(ends) & (where.letter("/") << 1)
            elif piece.kind == "*":
                inside = where.all ^ where.letter("/")
                ends |= ((ends & inside) + inside) ^ inside  # the carry runs on to the next slash
            elif piece.kind == "?":
                ends = (ends & (where.all ^ where.letter("/"))) << 1
            elif piece.kind == "any":
                ends = (ends & where.all) << 1
            elif piece.letters is not None:
                ends = (ends & where.letters(piece.letters)) << 1
            elif ends & (ends - 1):
                for letter in piece.text:
                    ends = (ends & where.letter(letter)) << 1
                    if not ends or (begins and ends > where.all):
                        break
            else:  # a single place, as at the start of most patterns
                at = ends.bit_length() - 1
                if begins and len(text) - at <= len(piece.text) and piece.text.startswith(text[at:]):
                    return True
                ends = ends << len(piece.text) if text.startswith(piece.text, at) else 0
            if not ends or (begins and ends > where.all):
                break
        return ends > where.all


class IndexedText:
    """Text with the places of each character as the bits of an integer. They are computed once and serve many
    patterns."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.all = (1 << len(text)) - 1
        self._reversed = text[::-1]
        self._letters: dict[str, int] = {}

    def letter(self, letter: str) -> int:
        """Returns the places of a letter."""
        if letter not in self._letters:
            self._letters[letter] = _bits(self._reversed.split(letter))
        return self._letters[letter]

    def letters(self, letters: re.Pattern[str]) -> int:
        if letters.pattern not in self._letters:
            self._letters[letters.pattern] = _bits(letters.split(self._reversed))
        return self._letters[letters.pattern]

    def from_first(self, ends: int) -> int:
        return (self.all << 1 | 1) ^ ((ends & -ends) - 1)


def _bits(between: list[str]) -> int:
    return int("1".join("0" * len(part) for part in between) or "0", 2)


@functools.lru_cache(maxsize=256)
def _read(pattern: str, sets: bool, folders: bool) -> tuple[_Piece, ...]:
    return tuple(_pieces(pattern, sets, folders))


def _pieces(pattern: str, sets: bool, folders: bool) -> Iterator[_Piece]:
    piece = _PIECE_OF_PATH if folders else _PIECE
    at = 0
    while found := piece.match(pattern, at):
        at = found.end()
        text = found[0]
        if text == "[" and sets:
            end = pattern.find("]", at + 1)
            sets = end > 0  # no later bracket is closed either
            letters = _letters(pattern[at:end], folders) if sets else None
            if letters:
                yield _Piece("set", letters=letters)
                at = end + 1
                continue
        yield _Piece(*_name_piece(text, folders))


def _name_piece(text: str, folders: bool) -> tuple[str, str]:
    """Returns the kind of a piece that is no set, and its text."""
    if text == "?":
        return ("?" if folders else "any"), ""
    if text[0] != "*":
        return "text", text
    if text[-1] == "/":
        return "**/", ""
    if text == "*" and folders:
        return "*", ""
    return "**", ""


def _letters(body: str, folders: bool) -> re.Pattern[str] | None:
    """Compiles a set. Returns None if the brackets hold no valid set; then they are ordinary characters."""
    negated = body[0] in "!^"
    inside = ""
    for first, last, one in re.findall(r"(?s)(.)-(.)|(.)", body[negated:]):
        if first > last:
            return None
        inside += re.escape(one) or f"{re.escape(first)}-{re.escape(last)}"
    if not inside:
        return None
    sign = "^" if negated else ""
    within_folder = "(?!/)" if folders else ""
    return re.compile(f"{within_folder}[{sign}{inside}]")
