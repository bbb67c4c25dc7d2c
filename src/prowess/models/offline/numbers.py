"""Numbers in words: "the first ten", "twenty-five words", "two hundred", "前十个". One is no number, it is a word."""

from __future__ import annotations

import re
from collections.abc import Iterator

_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
    " eighteen nineteen"
).split()
_TENS = {name: 20 + 10 * at for at, name in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split())}
_SMALL = {name: at for at, name in enumerate(_UNITS)}
_BIG = {"hundred": 100, "thousand": 1000, "million": 1_000_000}
_WORD = "|".join([*_UNITS, *_TENS, *_BIG, "dozen"])
# Two files are two files, whatever else is asked about them.
_THINGS = r"(?:files?|versions?|lists?|tables?|texts?|columns?|documents?|of)\b"
_ENGLISH = re.compile(
    rf"\b(?:(?:a|an)\s+)?(?:{_WORD})(?:(?:[\s-]+(?:and\s+)?)(?:{_WORD}))*\b(?!\s+{_THINGS})", re.IGNORECASE
)
_DIGITS = {digit: at for at, digit in enumerate("零一二三四五六七八九")} | {"两": 2, "〇": 0}
_POWERS = {"十": 10, "百": 100, "千": 1000}
_NUMERAL = "[零〇一二两三四五六七八九十百千万]"
_CHINESE = re.compile(rf"(?<!{_NUMERAL})({_NUMERAL}++)(?=个|行|条|项|次|天|年|字|词|位|份|名|倍|秒|分)")


def find_number_words(text: str) -> Iterator[tuple[int, int, str]]:
    """(start, end, digits) of each, in order."""
    found = [(each.span(), _english(each[0])) for each in _ENGLISH.finditer(text)]
    found += [(each.span(1), _chinese(each[1])) for each in _CHINESE.finditer(text)]
    return ((start, end, str(value)) for (start, end), value in sorted(found) if value > 1)


def _english(text: str) -> int:
    total = current = 0
    for word in re.findall("[a-z]+", text.lower()):
        if word in _BIG:
            current = max(1, current) * _BIG[word]
            if word != "hundred":
                total, current = total + current, 0
        elif word == "dozen":
            current = max(1, current) * 12
        else:
            current += _TENS.get(word, 0) + _SMALL.get(word, 0)
    return total + current


def _chinese(text: str) -> int:
    total = section = digit = 0
    for character in text:
        if character == "万":
            total, section, digit = (total + section + digit) * 10_000, 0, 0
        elif character in _POWERS:
            section, digit = section + max(1, digit) * _POWERS[character], 0
        else:
            digit = _DIGITS[character]
    return total + section + digit
