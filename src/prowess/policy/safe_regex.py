"""Compiles regular expressions from config files, if no text can make them run forever.

Python's matcher backtracks, so a pattern that can split the same text in many ways takes exponential time. Such
patterns are refused by their form: a repeat within a repeat, alternatives within a repeat, backreferences, and more
than one repeat that can end in several places. The others take at most quadratic time in a bounded window.
"""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from prowess.errors import ConfigError

# Private, but unchanged since Python 3.11, and the only way to see a pattern as the matcher does.
_parser: Any = importlib.import_module("re._parser")
_WIDE = 16  # repeats up to this count are harmless
_LONGEST = 1_000
# A set of characters is an int: one bit for each of the first 256 characters, and one for each kind of the others.
_KINDS = ("\u0660", "\u4e00", "\u2003", "\u2603")  # a digit, a letter, a space, a sign
_CHARACTERS = (*map(chr, range(256)), *_KINDS)
_ALL = (1 << len(_CHARACTERS)) - 1
_BEYOND = (_ALL >> 256) << 256
_CATEGORIES = {
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_NOT_DIGIT": r"\D",
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w",
    "CATEGORY_NOT_WORD": r"\W",
}


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compiles a pattern. Raises ConfigError with the problem."""
    try:
        if len(pattern) > _LONGEST:
            raise ValueError(f"it is longer than {_LONGEST} characters")
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Python may read such a pattern differently in a later version
            compiled = re.compile(pattern)
            parsed = _parser.parse(pattern)
        if problem := _find_problem(parsed):
            raise ValueError(problem)
        if parsed.getwidth()[0] == 0:
            raise ValueError("it can match an empty text, so it would match everywhere")
    except (re.error, ValueError, OverflowError, RecursionError, Warning) as error:
        raise ConfigError(
            f"The pattern {_shown(pattern)} in redact cannot be used: {error}.",
            code="redact-pattern-invalid",
            hint="Use a plain regular expression, such as: key-[A-Za-z0-9]{20,}",
        ) from error
    return compiled


def _find_problem(parsed: Any) -> str | None:
    if parsed.state.flags & re.VERBOSE:
        return "it uses the flag x"
    loose = 0
    for name, value, follows in _walk(parsed):
        if name.startswith("GROUPREF"):
            return "it refers back to a group"
        if not _is_repeat(name):
            continue
        problem = _find_problem_inside(value)
        if problem:
            return problem
        if _is_loose(value, follows):
            loose += 1
    if loose > 1:
        return "it has more than one repeat that can end in several places"
    return None


def _find_problem_inside(repeat: Any) -> str | None:
    """Returns what makes the body of a repeat ambiguous."""
    _, most, body = repeat
    if most <= 1:
        return None
    is_wide = int(most) > _WIDE
    has_branch = False
    for name, value, _ in _walk(body):
        # (?:\d{1,3}\.){3} is fine: it is always short.
        if _is_repeat(name) and value[0] != value[1] and (is_wide or int(value[1]) > _WIDE):
            return "it has a repeat within a repeat"
        has_branch = has_branch or name == "BRANCH"
    if is_wide and has_branch:
        return "it has alternatives within a repeat"
    return None


def _walk(parsed: Any, after: Sequence[Any] = ()) -> Iterator[tuple[str, Any, list[Any]]]:
    """Yields (operation, its argument, the parts after it) for each part, including inner ones."""
    items = list(parsed)
    for number, (operation, value) in enumerate(items):
        follows = [*items[number + 1 :], *after]
        yield str(operation), value, follows
        for inner in _inner(value):
            yield from _walk(inner, follows)


def _inner(value: Any) -> Iterator[Any]:
    if isinstance(value, _parser.SubPattern):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _inner(part)


def _is_repeat(name: str) -> bool:
    return name.endswith("_REPEAT")


def _is_loose(value: Any, follows: list[Any]) -> bool:
    """True when the part after a wide repeat could also match inside the repeat."""
    least, most, body = value
    if least == most or most <= _WIDE:
        return False
    if len(body) != 1:
        return True
    after = _first(follows)
    if after is None:
        return True
    inside = _characters(*body[0])
    return bool(_folded(inside) & _folded(after))


def _first(items: list[Any]) -> int | None:
    """Returns the characters that can come next: 0 when nothing follows, None when unknown."""
    found = 0
    for operation, value in items:
        name = str(operation)
        if name == "AT":
            continue
        if name == "SUBPATTERN":
            inside = _first(list(value[-1]))
            if not inside:
                return None
            return found | inside
        if _is_repeat(name):
            least, _, body = value
            if len(body) != 1:
                return None
            found |= _characters(*body[0])
            if least == 0:
                continue
            return found
        return found | _characters(operation, value)
    return found


def _characters(operation: Any, value: Any) -> int:
    """Returns the characters that a part of one character can match. An unknown part can match all."""
    return _may_and_must(operation, value)[0]


def _may_and_must(operation: Any, value: Any) -> tuple[int, int]:
    """Returns (kinds with some match, kinds that match completely). They differ only beyond the first 256
    characters."""
    name = str(operation)
    if name == "LITERAL":
        return _of_literal(value)
    if name == "NOT_LITERAL":
        must_not = _of_literal(value)[1]
        return _ALL & ~must_not, 0
    if name == "RANGE":
        first, last = value
        must = sum(1 << code for code in range(first, min(last, 255) + 1))
        may = must | _BEYOND if last > 255 else must
        return may, must
    if name == "CATEGORY":
        category = re.compile(_CATEGORIES.get(str(value), r"[\s\S]"))
        bits = sum(1 << number for number, character in enumerate(_CHARACTERS) if category.match(character))
        return bits, bits
    if name == "IN":
        return _of_set(value)
    return _ALL, 0


def _of_literal(code: int) -> tuple[int, int]:
    if code < 256:
        return 1 << code, 1 << code
    return 1 << (256 + _kind(chr(code))), 0


def _of_set(items: Sequence[Any]) -> tuple[int, int]:
    may = 0
    must = 0
    is_negated = False
    for operation, value in items:
        if str(operation) == "NEGATE":
            is_negated = True
            continue
        some, every = _may_and_must(operation, value)
        may |= some
        must |= every
    if is_negated:
        return _ALL & ~must, 0
    return may, must


def _kind(character: str) -> int:
    """Returns the number of the first kind that a character beyond the first 256 belongs to."""
    for number, kind in enumerate((r"\d", r"\w", r"\s")):
        if re.match(kind, character):
            return number
    return 3


def _folded(characters: int) -> int:
    """Adds the other case of each letter, because a flag may ignore case."""
    letters = ((1 << 26) - 1) << 65
    return characters | (characters & letters) << 32 | (characters >> 32) & letters


def _shown(pattern: str) -> str:
    text = ascii(pattern)
    if len(text) <= 100:
        return text
    return text[:97] + "…'"
