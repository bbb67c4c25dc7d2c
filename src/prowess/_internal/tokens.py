"""Counts tokens: exactly, with the o200k_base vocabulary, or by an estimate. The counter names its method.

Error of the estimate on held-out text, p5 / p50 / p95: -8 / 0 / +7 % for 451 bodies of real skills in English, Chinese
and Japanese, -10 / 0 / +11 % for 866 catalog entries. `benchmarks/calibrate_tokens.py` measures it on your files.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from math import ceil
from typing import Any, NamedTuple

from prowess.errors import MissingExtra


class TokenCounter(NamedTuple):
    """Function from a text to its token count. `method` is shown together with the numbers."""

    exact: bool
    method: str
    counts: Callable[[str], int]

    def __call__(self, text: str) -> int:
        return self.counts(text)


def get_counter(exact: bool | None = None) -> TokenCounter:
    """Returns an estimating counter, or an exact one if `exact`. MissingExtra if the extra `tokens` is not
    installed."""
    if not exact:
        return TokenCounter(exact=False, method="estimate", counts=estimate)
    _vocabulary()
    return TokenCounter(exact=True, method="o200k_base (bpe-openai)", counts=_count_exactly)


def estimate(text: str) -> int:
    """Returns at least 1 for any text and 0 for an empty one. The estimate of two joined texts is at most the sum of
    both, plus 2."""
    if not text:
        return 0
    # Each character becomes one byte that names its kind, so that a feature of the text is one bytes.count. A megabyte
    # takes a few tens of milliseconds. The space in front makes the first word count like a word within a sentence.
    data = b" " + text.encode("utf-8", "surrogatepass")
    kinds = data.translate(_KINDS, _CONTINUATION).count
    words = data.translate(_IS_LETTER, _CONTINUATION).count
    tokens = (
        0.95 * words(b"-+")  # a word, with the space or the mark before it
        + 0.16 * words(b"++++")  # long words are more often two tokens
        + 2.5 * kinds(b"a" * 16)  # a very long "word" is encoded data
        + 1.44 * kinds(b"aA")  # camelCase is split, and so is most of base64
        + 0.37 * kinds(b"AA")
        + 0.47 * data.translate(_IS_MARK, _CONTINUATION).count(b"-+")  # a run of punctuation
        + 0.47 * kinds(b" .")
        + 0.11 * kinds(b".")
        + 0.63 * kinds(b"\n")
        + 0.3 * kinds(b"\n ")  # indentation
    )
    if kinds(b"0"):
        tokens += 1.54 * data.translate(_IS_DIGIT, _CONTINUATION).count(b"-+")  # a number
        tokens += 0.6 * kinds(b"000")  # and more for each three digits
    if not text.isascii():
        cjk_marks = data.count(b"\xe3\x80")
        tokens += (
            0.77 * kinds(b"H")
            + 0.74 * (kinds(b"K") - cjk_marks)
            + 0.67 * (kinds(b"F") + cjk_marks)
            + 0.79 * kinds(b"U")
            + 1.75 * kinds(b" C")
            + 0.08 * kinds(b"C")
            + 1.1 * kinds(b"l")
            + 0.1 * kinds(b"v")
            + 0.41 * kinds(b"O")
            + 0.63 * kinds(b"S")
            + 2.0 * kinds(b"E")
        )
    return max(1, ceil(tokens))


def estimate_bytes(size_bytes: int) -> int:
    """Estimates from a file's size alone, without reading it. Real skills have 3.3 to 4.7 bytes per token (p5 to
    p95)."""
    return (max(0, size_bytes) + 3) // 4


def _count_exactly(text: str) -> int:
    encode = _vocabulary().encode_ordinary
    total = 0
    for piece in _pieces(text):
        total += len(encode(piece))
    return total


@cache
def _vocabulary() -> Any:
    with warnings.catch_warnings():
        # On Python 3.11 the module uses a deprecated feature. A program that turns warnings into errors must still
        # work.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            import bpe_openai
        except ImportError:
            raise MissingExtra("tokens", wanted_for="Exact token counts") from None
        return bpe_openai.get_encoding("o200k_base")


# A word or number is never one token with the mark after it, except an apostrophe. A cut there changes no count.
_SEAM = re.compile(r"(?<=[^\W_])(?=[\s!-&(-/:-@\[-`{-~，。、])")
# bpe-openai refuses a text of 200,000 tokens, and one character can be four tokens.
_PIECE_CHARS = 50_000


def _pieces(text: str) -> Iterator[str]:
    """Splits a long text where a cut changes no count."""
    start = 0
    while len(text) - start > _PIECE_CHARS:
        limit = start + _PIECE_CHARS
        # Only a word of 2,000 letters has no seam here. A cut inside it can change the count by one.
        seams = [seam.start() for seam in _SEAM.finditer(text, limit - 2_000, limit)]
        end = max(seams, default=limit)
        yield text[start:end]
        start = end
    yield text[start:]


def _table(kinds: dict[int, bytes]) -> bytes:
    """Builds a bytes.translate table. Each key starts a range of bytes of this kind, up to the next key."""
    table = bytearray()
    kind = b"."
    for byte in range(256):
        kind = kinds.get(byte, kind)
        table += kind
    return bytes(table)


# The first UTF-8 byte decides the kind of a character. The bytes after it are dropped.
_CONTINUATION = bytes(range(0x80, 0xC0))
_KINDS = _table(
    {
        0x00: b".",
        0x09: b" ",
        0x0A: b"\n",
        0x0B: b".",
        0x0D: b"\n",
        0x0E: b".",
        0x20: b" ",
        0x21: b".",
        0x30: b"0",
        0x3A: b".",
        0x41: b"A",
        0x5B: b".",
        0x61: b"a",
        0x7B: b".",
        0xC2: b"S",  # Latin-1 signs
        0xC3: b"l",  # accented Latin
        0xCE: b"O",  # Greek
        0xD0: b"C",  # Cyrillic
        0xD4: b"O",  # Armenian, Hebrew, Arabic, Indic scripts, Thai
        0xE1: b"v",  # Vietnamese
        0xE2: b"S",  # typographic marks, arrows, boxes
        0xE3: b"K",  # kana, and Chinese and Japanese punctuation
        0xE4: b"H",  # Han
        0xEA: b"U",  # hangul
        0xEE: b"F",  # full-width forms
        0xF0: b"E",  # emoji
    }
)


def _is(kinds: bytes) -> bytes:
    return bytes(ord("+") if kind in kinds else ord("-") for kind in _KINDS)


_IS_LETTER = _is(b"aAlv")
_IS_DIGIT = _is(b"0")
_IS_MARK = _is(b".")
