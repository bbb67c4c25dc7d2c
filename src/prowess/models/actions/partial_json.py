"""Reads a JSON document while it arrives, with the parser of pydantic.

    parse_partial('{"action": {"type": "final_answer", "content": "Hel')   # without a text that is not whole yet
    tail = TextTail()
    tail.feed('Hel')   # "Hel", the new part of the decoded text
    tail.feed('lo\\\\u00')   # "lo": an escape or a surrogate pair that is cut in two waits for its second half

NaN, Infinity and half a surrogate pair are a ValueError. `TextTail` decodes each character once.
"""

from __future__ import annotations

import re
from typing import Any

from pydantic_core import from_json

MAX_DEPTH = 200


def parse_partial(text: str, *, cut_texts: bool = False) -> Any:
    """Returns the values of a document that are whole so far; with `cut_texts`, also the text that is arriving."""
    return from_json(text.encode(), allow_inf_nan=False, allow_partial="trailing-strings" if cut_texts else True)


class TextTail:
    """Rest of a text behind its opening quote."""

    def __init__(self) -> None:
        self._held = ""
        self.done = False

    def feed(self, chunk: str) -> str:
        """Returns the new part of the text. Everything behind its closing quote is ignored."""
        if self.done:
            return ""
        raw = self._held + chunk
        found = _WHOLE.match(raw)
        end = found.end() if found else 0
        whole = raw[:end]
        self._held = raw[end:]
        self.done = self._held.startswith('"')
        if len(self._held) >= _LONGEST_ESCAPE and not self.done:
            raise ValueError("there is no such escape")
        return from_json(f'"{whole}"'.encode())


_LONGEST_ESCAPE = 12  # a surrogate pair
_WHOLE = re.compile(r'(?:[^"\\]++|\\[^u]|\\u(?![dD][89abAB])\w{4}|\\u[dD][89abAB]\w{2}\\u\w{4})*')
