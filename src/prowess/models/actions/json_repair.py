"""Repairs small faults in the JSON of a language model. Content is never invented.

Removed: text and code fences around an object, a comma before a closing bracket. Rewritten: True, False and None,
typographic quotes around a key or a plain text, a bare line break inside a text. Added: missing characters at the end,
as far as `close` allows. Every other fault stays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Literal

from prowess._internal.json_values import load_json
from prowess.models.actions.partial_json import MAX_DEPTH

# Characters that may be added at the end: none, the brackets of objects, or also those of lists and the quote of a
# text. With "all", a list or a text can become shorter than the model meant.
Close = Literal["nothing", "objects", "all"]


def repair(text: str, *, close: Close = "all") -> str | None:
    """Returns the first object in a text, as JSON; None when there is none or it cannot be repaired."""
    return next(find_objects(text, close=close), None)


def find_objects(text: str, *, close: Close = "all") -> Iterator[str]:
    """Yields every repaired object of a text. Ends at the first that cannot be repaired."""
    end = 0
    while begun := _BEGINNING.search(text, end):
        start = begun.start()
        fenced = "```" in text[max(0, start - 20) : start]
        repairer = _JsonRepairer(_without_fence(text) if fenced else text, start, close)
        try:
            repaired = repairer.repair()
            load_json(repaired)
        except ValueError:
            return
        yield repaired
        end = repairer.at


_SMART = r'[“”„]([^“”„"\\\x00-\x1f]*)[“”]'
_BEGINNING = re.compile(rf'\{{\s*(?:"[^"\\]*(?:\\.[^"\\]*)*"|{_SMART})\s*:', re.DOTALL)  # not a bracket in a sentence
_TOKEN = re.compile(rf'\s*(?:"((?:[^"\\]+|\\.)*)("?)|{_SMART}|([-+.\w]+)|([][{{}},:]))', re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f]")
_LITERALS = {"true": "true", "false": "false", "null": "null", "True": "true", "False": "false", "None": "null"}
_CLOSING = {"{": "}", "[": "]"}


def _without_fence(text: str) -> str:
    """Removes a closing fence, which would become part of a text that is not closed."""
    kept = text.rstrip()
    if not kept.endswith("```"):
        return text
    return kept[:-3].rstrip()


def _escape(control: re.Match[str]) -> str:
    quoted = json.dumps(control[0])
    return quoted[1:-1]


class _JsonRepairer:
    """Copies one object from its opening bracket. `at` is the position of its end. The parser refuses what stays."""

    def __init__(self, text: str, at: int, close: Close) -> None:
        self.text = text
        self.at = at
        self.close = close
        self.out: list[str] = []
        self.open: list[str] = []

    def repair(self) -> str:
        while token := _TOKEN.match(self.text, self.at):
            self.at = token.end()
            string, quote, smart, word, mark = token.groups()
            if string is not None:
                self._copy_string(string, is_closed=bool(quote))
            elif smart is not None:
                self.out.append(json.dumps(smart, ensure_ascii=False))
            elif word:
                self._copy_word(word)
            else:
                self._copy_mark(mark)
            if not self.open:
                return "".join(self.out)
        self._close_all()
        return "".join(self.out)

    def _copy_string(self, string: str, *, is_closed: bool) -> None:
        """Copies a text with its line breaks escaped."""
        if not is_closed:
            self._check(self.close == "all")
            self.at = len(self.text)  # half of an escape is left out
        escaped = _CONTROL.sub(_escape, string)
        self.out.append(f'"{escaped}"')

    def _copy_word(self, word: str) -> None:
        """Copies a number or a literal."""
        before = self.out[-1]
        self._check(before in (": ", ", ", "["))  # two words would become one
        literal = _LITERALS.get(word)
        if literal is None:
            self._check(self.at < len(self.text))  # the rest of a number would change its value
        self.out.append(literal or word)

    def _copy_mark(self, mark: str) -> None:
        if mark in _CLOSING:
            self._check(len(self.open) < MAX_DEPTH)
            self.open.append(mark)
            self.out.append(mark)
        elif mark in (",", ":"):
            self.out.append(f"{mark} ")
        else:
            self._close(mark)

    def _close(self, bracket: str) -> None:
        """Closes the last open bracket. A comma before it is dropped."""
        if self.out[-1] == ", " and self.out[-2] not in _CLOSING:
            self.out.pop()
        self.open.pop()
        self.out.append(bracket)

    def _close_all(self) -> None:
        """Closes what is open at the end of the text, if that is allowed."""
        rest = self.text[self.at :]
        self._check(not rest.strip())
        self._check(self.close != "nothing")
        if "[" in self.open:
            self._check(self.close == "all")
        while self.open:
            self._close(_CLOSING[self.open[-1]])

    def _check(self, can_be_repaired: bool) -> None:
        if not can_be_repaired:
            raise ValueError("not JSON")
