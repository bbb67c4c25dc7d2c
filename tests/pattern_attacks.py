"""Texts on which a regular expression takes longest, made from its own parse tree; and a measure of how its time grows.

A text is a beginning that the pattern accepts, one piece of it repeated, and an end that it does not accept.
"""

from __future__ import annotations

import re
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

SIZES = (1_000, 4_000, 16_000)  # characters; each four times the one before
FLOOR_S = 0.002  # below it, the clock and the machine count for more than the text
GROWTH = 9.0  # four times the text: 4 when linear, 16 when quadratic
LINEAR = 5.0  # what grows less is not looked at any longer
GIVE_UP_S = 60  # of the processor, for one text: what takes that long would take for ever
COMMON = " \t\n\ra0A_-./:\\\"'`<([{*=,$#@%"
ENDS = ("", "\0", "\n")
_REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT)


Attack = tuple[str, str, str]  # beginning, piece to repeat, end


class Endless(Exception):
    """The text did not end."""


def attacks(pattern: re.Pattern[Any]) -> Iterator[Attack]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
        tree = parser.parse(
            source, pattern.flags & ~re.UNICODE if isinstance(pattern.pattern, bytes) else pattern.flags
        )
    places = list(dict.fromkeys(_places(tree, "")))
    letters = dict.fromkeys(COMMON)
    letters |= dict.fromkeys(letter for letter in _literals(tree))
    begins = dict.fromkeys(["", *(before for before, _ in places)])
    pieces = dict.fromkeys([*(piece for _, piece in places if piece), *list(letters)[:60]])
    pieces |= dict.fromkeys(before + piece for before, piece in places)
    pieces |= dict.fromkeys(before for before in begins if before)
    for begin in begins:
        for piece in pieces:
            for end in ENDS:
                yield begin, piece, end


def _places(tree: Any, before: str) -> Iterator[tuple[str, str]]:
    """What comes before each repetition, and what it repeats."""
    for code, value in tree:
        if code in _REPEATS:
            least, most, body = value
            if most == op.MAXREPEAT or most > 300:
                for sample in _samples(body):
                    yield before, sample
            yield from _places(body, before)
            before += _sample(body) * max(1, min(least, 8))
        elif code is op.SUBPATTERN:
            yield from _places(value[3], before)
            before += _sample(value[3])
        elif code is op.BRANCH:
            for branch in value[1]:
                yield from _places(branch, before)
            before += _sample(value[1][0])
        elif code is op.ATOMIC_GROUP:
            yield from _places(value, before)
            before += _sample(value)
        elif code in (op.ASSERT, op.ASSERT_NOT):
            yield from _places(value[1], before)
        else:
            before += _sample([(code, value)])


def _samples(tree: Any) -> list[str]:
    """Texts for the whole, short and with everything repeated, and one for each branch in it."""
    found = [_sample(tree), _sample(tree, times=3)]
    for code, value in tree:
        if code is op.SUBPATTERN:
            found += _samples(value[3])
        elif code is op.BRANCH:
            found += [_sample(branch) for branch in value[1]]
        elif code in _REPEATS:
            found += _samples(value[2])
    return list(dict.fromkeys(filter(None, found)))


def _sample(tree: Any, *, times: int = 0) -> str:
    """A text that fits. What may be repeated is, so many `times` at least, or as often as it may be."""
    text = ""
    for code, value in tree:
        if code is op.LITERAL:
            text += chr(value)
        elif code in (op.IN, op.NOT_LITERAL, op.ANY, op.RANGE, op.CATEGORY):
            text += _letter(code, value)
        elif code in _REPEATS:
            text += _sample(value[2], times=times) * max(min(value[0], 8), min(int(value[1]), times))
        elif code is op.SUBPATTERN:
            text += _sample(value[3], times=times)
        elif code is op.BRANCH:
            text += _sample(value[1][0], times=times)
        elif code is op.ATOMIC_GROUP:
            text += _sample(value, times=times)
    return text


def _letter(code: Any, value: Any) -> str:
    if code is op.ANY:
        return "a"
    if code is op.NOT_LITERAL:
        return "a" if value != ord("a") else "b"
    if value[0][0] is op.NEGATE:
        return next((letter for letter in "a 0-\n\0" if not _is_in(value[1:], letter)), "a")
    kind, what = value[0]
    if kind is op.LITERAL:
        return chr(what)
    if kind is op.RANGE:
        return chr(what[0])
    return next((letter for letter in "a0 -\n" if _is_in(value, letter)), "a")


def _is_in(members: Any, letter: str) -> bool:
    for kind, what in members:
        if kind is op.LITERAL and what == ord(letter):
            return True
        if kind is op.RANGE and what[0] <= ord(letter) <= what[1]:
            return True
        if kind is op.CATEGORY and re.match(_CATEGORIES.get(str(what), r"[\s\S]"), letter):
            return True
    return False


_CATEGORIES = {
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_NOT_DIGIT": r"\D",
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w",
    "CATEGORY_NOT_WORD": r"\W",
}


def _literals(tree: Any) -> Iterator[str]:
    for code, value in tree:
        if code in (op.LITERAL, op.NOT_LITERAL):
            yield chr(value)
        elif code is op.IN:
            yield from _literals(value)
        elif code is op.RANGE:
            yield chr(value[0])
        elif code in _REPEATS:
            yield from _literals(value[2])
        elif code is op.SUBPATTERN:
            yield from _literals(value[3])
        elif code is op.BRANCH:
            for branch in value[1]:
                yield from _literals(branch)
        elif code is op.ATOMIC_GROUP:
            yield from _literals(value)
        elif code in (op.ASSERT, op.ASSERT_NOT):
            yield from _literals(value[1])


def grows(meet: Callable[[str], object], attack: Attack, longest: int | None = None) -> str:
    """Why the time for this text grows faster than the text; empty if it does not. With `longest`, the text ends there,
    and its time may grow with its square."""
    begin, piece, end = attack
    sizes = SIZES if longest is None else (longest // 16, longest // 4, longest)
    most = GROWTH if longest is None else GROWTH * 4
    texts = {size: begin + piece * (size // len(piece)) + end for size in sizes}
    try:
        first, second = cpu_s(meet, texts[sizes[0]]), cpu_s(meet, texts[sizes[1]])
        if second < FLOOR_S / 8 or second < first * LINEAR:
            return ""  # most are, and quickly
        before = max(FLOOR_S, first)
        for size in sizes[1:]:
            took = min(cpu_s(meet, texts[size]) for _ in range(2))
            if took > before * most:
                return f"{size} characters took {took / before:.0f} times as long as {size // 4}"
            before = max(FLOOR_S, took)
    except Endless:
        return "it did not end"
    return ""


def is_quick_for_both(match: Callable[[str, str], object], pattern: str, text: str) -> bool:
    """Whether it takes less than counting an eighth of all pairs of their characters."""
    pairs = len(pattern) * len(text) // 8
    return cpu_s(lambda _: match(pattern, text), "") < cpu_s(lambda _: sum(1 for _ in range(pairs)), "")


def cpu_s(meet: Callable[[str], object], text: str) -> float:
    """Seconds of the processor; Endless after very many. The clock of the process would only tick beside a timer."""

    def give_up(*_: object) -> None:
        raise Endless

    former = signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, GIVE_UP_S)
    started = time.thread_time()
    try:
        meet(text)
        return time.thread_time() - started
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, former)
