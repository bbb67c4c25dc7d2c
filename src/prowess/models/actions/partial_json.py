"""Reads a JSON document while it arrives, in pieces of any size. The result equals `json.loads` of the whole.

    stream = JsonStream(["action.type", "action.content"])
    stream.feed('{"action": {"type": "final_ans')   # [Grown(("action", "type"), "final_ans")]
    stream.feed('wer", "content": "Hel')            # [Grown(…, "wer"), Completed(…, "final_answer"), Grown(…, "Hel")]

A text under a watched path is delivered decoded as it grows. An escape or a surrogate pair that is cut in two waits for
its second half. Nothing recurses. Invalid JSON is a ValueError that names the place. NaN and Infinity are invalid.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

MAX_DEPTH = 200

Path = tuple[str, ...]


class Grown(NamedTuple):
    """New piece of a text under a watched path."""

    path: Path
    text: str


class Completed(NamedTuple):
    """Whole value under a watched path, of any type."""

    path: Path
    value: Any


class JsonStream:
    """Reader of one document: `feed` it, then call `value()`. Paths are keys, or numbers in a list, joined by dots."""

    def __init__(self, watch: Iterable[str] = ()) -> None:
        self._watched = frozenset(tuple(path.split(".")) for path in watch)
        self._deepest = max(map(len, self._watched), default=0)
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._state: _State = self._begin_value
        self._open: list[_OpenContainer] = []
        self._found: list[Grown | Completed] = []
        self._read = 0  # characters before this chunk
        self._token: list[str] = []  # pieces of a number or a literal
        self._text: list[str] = []
        self._news: list[str] = []  # pieces of a watched text that are not delivered yet
        self._escape = ""
        self._high = ""  # the first half of a surrogate pair
        self._is_key = False
        self._path: Path | None = None  # path of the current text, if it is watched
        self._value: Any = None
        self._rest: list[str] = []
        self.done = False

    def feed(self, chunk: str | bytes) -> list[Grown | Completed]:
        """Reads a chunk and returns the news about watched values. After an error the stream cannot be used again."""
        text = self._decoder.decode(chunk) if isinstance(chunk, bytes) else chunk
        self._found = []
        at = 0
        while at < len(text):
            at = self._state(text, at)
        self._read += len(text)
        self._deliver()
        return self._found

    @property
    def rest(self) -> str:
        """Text after the document."""
        return "".join(self._rest)

    def value(self) -> Any:
        """Returns the document. ValueError when it is not whole, or when something comes after it."""
        self._decoder.decode(b"", final=True)
        if not self.done and self._state == self._in_token and not self._open:
            self._end_token(0)  # a number is complete only at the end
        if not self.done:
            raise ValueError(f"the document ends too early, at character {self._read}")
        if self.rest.strip(_SPACES):
            raise ValueError(f"there is more after the document: {self.rest.strip()[:40]!r}")
        return self._value

    # --- values ------------------------------------------------------------------------------------------------------

    def _begin_value(self, text: str, at: int) -> int:
        at = _skip(text, at)
        if at == len(text):
            return at
        char = text[at]
        if char == '"':
            self._begin_text(is_key=False)
        elif char in "{[":
            if len(self._open) >= MAX_DEPTH:
                raise self._wrong(f"nested more than {MAX_DEPTH} levels deep", at)
            self._open.append(_OpenContainer({} if char == "{" else []))
            self._state = self._first_key if char == "{" else self._first_item
        elif char in "-0123456789tfn":
            self._token = []
            self._state = self._in_token
            return at
        else:
            raise self._wrong(f"{char!r} begins no value", at)
        return at + 1

    def _first_item(self, text: str, at: int) -> int:
        at = _skip(text, at)
        if at < len(text) and text[at] == "]":
            return self._close(at)
        self._state = self._begin_value if at < len(text) else self._first_item
        return at

    def _first_key(self, text: str, at: int) -> int:
        at = _skip(text, at)
        if at < len(text) and text[at] == "}":
            return self._close(at)
        return self._begin_key(text, at)

    def _begin_key(self, text: str, at: int) -> int:
        at = _skip(text, at)
        if at == len(text):
            return at
        if text[at] != '"':
            raise self._wrong(f"a key in double quotes is wanted, not {text[at]!r}", at)
        self._begin_text(is_key=True)
        return at + 1

    def _colon(self, text: str, at: int) -> int:
        at = _skip(text, at)
        if at == len(text):
            return at
        if text[at] != ":":
            raise self._wrong(f"':' is wanted after a key, not {text[at]!r}", at)
        self._state = self._begin_value
        return at + 1

    def _after_value(self, text: str, at: int) -> int:
        at = _skip(text, at)
        if at == len(text):
            return at
        is_list = isinstance(self._open[-1].value, list)
        if text[at] == ",":
            self._state = self._begin_value if is_list else self._begin_key
            return at + 1
        if text[at] == ("]" if is_list else "}"):
            return self._close(at)
        raise self._wrong(f"',' or {']' if is_list else '}'!r} is wanted, not {text[at]!r}", at)

    def _after_document(self, text: str, at: int) -> int:
        self._rest.append(text[at:])
        return len(text)

    def _close(self, at: int) -> int:
        self._complete(self._open.pop().value)
        return at + 1

    def _complete(self, value: Any) -> None:
        if self._watched and len(self._open) <= self._deepest and (path := self._here()) in self._watched:
            self._found.append(Completed(path, value))
        if not self._open:
            self._value, self.done, self._state = value, True, self._after_document
            return
        self._open[-1].add(value)
        self._state = self._after_value

    def _here(self) -> Path:
        """Returns the path of the value that is being read."""
        return tuple(str(len(o.value)) if isinstance(o.value, list) else o.key for o in self._open)

    # --- numbers and literals ----------------------------------------------------------------------------------------

    def _in_token(self, text: str, at: int) -> int:
        end = _match_end(_TOKEN, text, at)
        self._token.append(text[at:end])
        if end < len(text):
            self._end_token(end)
        return end

    def _end_token(self, at: int) -> None:
        token = "".join(self._token)
        number = _NUMBER.fullmatch(token)
        if token in _LITERALS:
            self._complete(_LITERALS[token])
        elif number is None:
            raise self._wrong(f"{token[:40]!r} is no value", at)
        elif number[1] or number[2]:
            self._complete(float(token))
        else:
            self._complete(int(token))

    # --- texts -------------------------------------------------------------------------------------------------------

    def _begin_text(self, *, is_key: bool) -> None:
        self._text, self._is_key, self._path = [], is_key, None
        if not is_key and len(self._open) <= self._deepest and (path := self._here()) in self._watched:
            self._path = path
        self._state = self._in_text

    def _in_text(self, text: str, at: int) -> int:
        end = _match_end(_PLAIN, text, at)
        if end > at:
            self._add(text[at:end])
        if end == len(text):
            return end
        if text[end] == '"':
            self._end_text()
        elif text[end] == "\\":
            self._escape, self._state = "", self._in_escape
        else:
            raise self._wrong(f"the control character {text[end]!r} must be escaped in a text", end)
        return end + 1

    def _in_escape(self, text: str, at: int) -> int:
        self._escape += text[at]
        if self._escape[0] != "u":
            if self._escape not in _ESCAPES:
                raise self._wrong(f"there is no escape \\{self._escape}", at)
            self._add(_ESCAPES[self._escape])
        elif len(self._escape) > 1 and text[at] not in _HEX:
            raise self._wrong(f"\\{self._escape} is no character", at)
        elif len(self._escape) < 5:
            return at + 1
        else:
            self._add_code(int(self._escape[1:], 16))
        self._state = self._in_text
        return at + 1

    def _add_code(self, code: int) -> None:
        if self._high and 0xDC00 <= code < 0xE000:
            high, self._high = ord(self._high), ""
            self._add(chr(0x10000 + ((high - 0xD800) << 10 | (code - 0xDC00))))
        elif 0xD800 <= code < 0xDC00:
            self._flush_half()
            self._high = chr(code)
        else:
            self._add(chr(code))

    def _add(self, text: str) -> None:
        self._flush_half()
        self._text.append(text)
        if self._path is not None:
            self._news.append(text)

    def _deliver(self) -> None:
        if self._news and self._path is not None:
            self._found.append(Grown(self._path, "".join(self._news)))
            self._news = []

    def _flush_half(self) -> None:
        if self._high:
            half, self._high = self._high, ""
            self._add(half)

    def _end_text(self) -> None:
        self._flush_half()
        self._deliver()
        text = "".join(self._text)
        if self._is_key:
            self._open[-1].key = text
            self._state = self._colon
        else:
            self._complete(text)

    def _wrong(self, why: str, at: int) -> ValueError:
        return ValueError(f"{why}, at character {self._read + at}")


_State = Callable[[str, int], int]


class _OpenContainer:
    """Object or list that is not closed yet, and the key that waits for its value."""

    __slots__ = ("key", "value")

    def __init__(self, value: dict[str, Any] | list[Any]) -> None:
        self.value, self.key = value, ""

    def add(self, value: Any) -> None:
        if isinstance(self.value, list):
            self.value.append(value)
        else:
            self.value[self.key] = value


_SPACES = " \t\n\r"
_HEX = frozenset("0123456789abcdefABCDEF")
_SPACE = re.compile(r"[ \t\n\r]*")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_TOKEN = re.compile(r"[-+.0-9A-Za-z]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_LITERALS = {"true": True, "false": False, "null": None}
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def _skip(text: str, at: int) -> int:
    return _match_end(_SPACE, text, at)


def _match_end(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Returns the end of the match. The patterns always match, if only the empty text."""
    found = pattern.match(text, at)
    return found.end() if found else at
