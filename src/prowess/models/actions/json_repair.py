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
    end, tries = 0, 0
    while tries < _TRIES and (start := text.find("{", end)) >= 0:
        fenced = "```" in text[max(0, start - 20) : start]
        repairer = _JsonRepairer(_without_fence(text) if fenced else text, start, close)
        try:
            repaired = repairer.repair()
            found = load_json(repaired)
        except (_Prose, RecursionError):
            end, tries = start + 1, tries + 1
            continue
        except ValueError:
            return
        end = repairer.at
        if found:  # `{}` in a sentence is no document
            yield repaired


_TRIES = 100
_SPACE = re.compile(r"\s*")
_STRING = re.compile(r'"((?:[^"\\]+|\\.)*)("?)', re.DOTALL)
_SMART = re.compile(r'[“”„]([^“”„"\\\x00-\x1f]*)[“”]')
_TOKEN = re.compile(r"[-+.\w]+")
_CONTROL = re.compile(r"[\x00-\x1f]")
_LITERALS = {"true": "true", "false": "false", "null": "null", "True": "true", "False": "false", "None": "null"}
_CLOSING = {"{": "}", "[": "]"}


def _without_fence(text: str) -> str:
    kept = text.rstrip()
    return kept[:-3].rstrip() if kept.endswith("```") else text


class _Prose(Exception):
    """Bracket that belongs to a sentence, not to an object."""


class _JsonRepairer:
    """Walks over one object from its opening bracket. `at` is the position of its end."""

    def __init__(self, text: str, at: int, close: Close) -> None:
        self.text, self.at, self.close = text, at, close
        self.out: list[str] = []
        self.open: list[str] = []

    def repair(self) -> str:
        wanted, comma = "value", False
        while True:
            self.at = _end(_SPACE, self.text, self.at)
            if self.at == len(self.text):
                return self._close_all(wanted)
            char = self.text[self.at]
            if wanted == "separator" and char == ",":
                wanted, comma = "item", True
                self.at += 1
            elif wanted in ("separator", "item") and char == _CLOSING[self.open[-1]]:
                self.out.append(char)  # a comma before it is dropped
                self.open.pop()
                self.at += 1
                wanted, comma = "separator", False
                if not self.open:
                    return "".join(self.out)
            elif wanted == "colon" and char == ":":
                self.out.append(": ")
                self.at += 1
                wanted = "value"
            elif wanted in ("value", "item"):
                if comma:
                    self.out.append(", ")
                    comma = False
                is_key = wanted == "item" and self.open[-1] == "{"
                opened = self._value(char, is_key=is_key)
                wanted = "colon" if is_key else "item" if opened else "separator"
            else:
                raise self._wrong()

    def _value(self, char: str, *, is_key: bool) -> bool:
        """Copies one value, or opens a container and returns True."""
        if char == '"':
            self._string()
        elif smart := _SMART.match(self.text, self.at):
            self.out.append(json.dumps(smart[1], ensure_ascii=False))
            self.at = smart.end()
        elif is_key:
            raise self._wrong()
        elif char in _CLOSING:
            if len(self.open) >= MAX_DEPTH:
                raise self._wrong()
            self.out.append(char)
            self.open.append(char)
            self.at += 1
            return True
        elif token := _TOKEN.match(self.text, self.at):
            self.out.append(_LITERALS.get(token[0], token[0]))
            self.at = token.end()
            if self.at == len(self.text) and token[0] not in _LITERALS:
                raise self._wrong()  # the rest of a number would change its value
        else:
            raise self._wrong()
        return False

    def _string(self) -> None:
        found = _STRING.match(self.text, self.at)
        assert found is not None
        if not found[2]:
            self._allow_all()
        self.out.append('"' + _CONTROL.sub(lambda c: json.dumps(c[0])[1:-1], found[1]) + '"')
        self.at = found.end() if found[2] else len(self.text)

    def _close_all(self, wanted: str) -> str:
        if wanted in ("colon", "value"):
            raise self._wrong()  # the rest would have to be invented
        if self.close == "nothing":
            raise self._wrong()
        if "[" in self.open:
            self._allow_all()
        return "".join([*self.out, *(_CLOSING[bracket] for bracket in reversed(self.open))])

    def _allow_all(self) -> None:
        if self.close != "all":
            raise self._wrong()

    def _wrong(self) -> Exception:
        """Returns the error. Before the first complete key, the bracket may belong to a sentence."""
        return ValueError("not JSON") if ": " in self.out else _Prose()


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at
