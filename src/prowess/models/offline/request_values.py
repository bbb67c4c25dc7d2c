"""Finds the values in a request by their form: files, numbers, quoted texts, dates and addresses.

Nothing is understood. Each character belongs to one value only: the digits of a date are no number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

LOOKED_AT = 20_000  # characters of a request; the part after them is only used as the rest of a text


class RequestValues(NamedTuple):
    text: str
    plain: str  # the text with every value replaced by blanks, same length
    found: Mapping[str, Sequence[str]]  # by kind, in the order of the request
    given: Sequence[str]  # files of the workspace, `inputs/a.csv`
    arguments: str  # the text after `/skill-name`
    after_colon: str

    def all(self, kind: str) -> Sequence[str]:
        return self.found.get(kind, ())


def parse_request(text: str, given: Sequence[str] = ()) -> RequestValues:
    text = text.replace("\0", " ").encode("utf-8", "replace").decode("utf-8")
    slash = re.match(r"\s*[/$][^\W_][\w/:-]*(?:\s+|$)", text)
    found, plain = _find_values(text[:LOOKED_AT], given)
    colon = re.search(r":(?=\s|[^\x00-\x7f])|：", plain)
    arguments = text[slash.end() :].strip() if slash else ""
    rest = text[colon.end() :].strip() if colon else ""
    files = list(dict.fromkeys(given))
    return RequestValues(text, plain, found, files, arguments, rest)


def _find_values(text: str, given: Sequence[str]) -> tuple[dict[str, list[str]], str]:
    """Returns the values by kind, and the text with blanks in their places."""
    names: dict[str, str] = {}
    for path in reversed(given):
        names |= dict.fromkeys((base_name(path), path.removeprefix("inputs/"), path), path)
    spelled = [re.escape(name) for name in sorted(names, key=lambda name: (-len(name), name))]
    patterns = [("quoted", _QUOTED), *(("file", _GIVEN.format(name)) for name in spelled), *_PATTERNS]
    places: list[tuple[int, str, str]] = []
    for kind, pattern in patterns:
        for match in list(re.finditer(pattern, text)):
            value = next((group for group in match.groups() if group), match[0])
            if kind == "number":
                value = value.replace(",", "")
            known = value in names
            is_file = kind == "file" or (kind == "quoted" and (known or _IS_FILE.fullmatch(value) is not None))
            if value.strip() and not (kind == "file" and not known and _HOSTS.search(value)):
                is_result = is_file and not known and _RESULT.search(text[: match.start()][-20:])
                sort = "result" if is_result else "file" if is_file else kind
                places.append((match.start(), sort, names.get(value, value)))
                text = text[: match.start()] + " " * len(match[0]) + text[match.end() :]
    found: dict[str, list[str]] = {}
    for _, kind, value in sorted(places):
        found.setdefault(kind, []).append(value)
    return found, text


def base_name(path: str) -> str:
    return re.split(r"[/\\]", path)[-1]


_CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3\uff00-\uffef\u3000-\u303f"
_END = r"\.[A-Za-z][A-Za-z0-9]{0,7}"
_GIVEN = r"(?<![A-Za-z0-9_./~-])@?(?:[A-Za-z0-9_.~-]*+/)*({})(?![A-Za-z0-9_/])"
_QUOTED = r"\"([^\"]*)\"|“([^“”]*)”|「([^「」]*)」|`([^`]+)`|(?<!\w)'([^'\n]+)'(?!\w)"
_FORMS = {
    "url": r"(?:https?|ftp)://[^\s<>\"'`，。；！？）」』”]+(?<![.,;:!?)\]}])",
    "email": r"(?<![A-Za-z0-9_.+-])[A-Za-z0-9_.+-]++@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+",
    "date": r"(?<![\d-])\d{4}-(?!02-3|(?:0[469]|11)-31)(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])(?![\d-])",
    "time": r"(?<![\d:])(?:[01]?\d|2[0-3]):[0-5]\d(?![\d:])",
    "file": rf"(?:(?<![\w./~+%\\-])|(?<=[{_CJK}]))@?([A-Za-z0-9_~./\\][A-Za-z0-9_.~/\\+%-]*(?<=[A-Za-z0-9_+%~-]){_END})"
    r"(?![A-Za-z0-9_])",
    "number": r"(?<![A-Za-z0-9_.,])(?<![A-Za-z]-)(?:(?<![\w)-])-)?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?"
    r"(?![0-9])(?!\.[0-9])(?=[A-Za-z]{0,3}(?![A-Za-z0-9_]))",
}
_PATTERNS = tuple(_FORMS.items())
_IS_FILE = re.compile(rf"@?(?!\w*://)[^\s\"'<>|\[\]{{}}*?$;&]+{_END}")
_HOSTS = re.compile(r"^[^/]*\.(?:com|org|net|io|dev|edu|gov|ai)$|^(?:e\.g|i\.e|a\.m|p\.m)$", re.IGNORECASE)
_RESULT = re.compile(r"(?:\b(?:as|to|into|called|named)|保存为|成)\s*@?$", re.IGNORECASE)
_WORD = (
    r"(?<![\w-])(?!(?:the|a|an|in|of|for|to|and|or|by|with|from|on|at|is|each|every|all|its|my|your|this|that)\b)"
    r"([^\W\d_][\w-]*+)"
)
_PHRASES = {
    "name": re.compile(rf"\b(?:named|called|name\s+is)\s+{_WORD}|\bfor\s+((?:[A-Z][\w'-]*)(?:\s+[A-Z][\w'-]*)*)"),
    "group": re.compile(rf"(?i:\b(?:by|per|for\s+each))\s+{_WORD}"),
    "column": re.compile(rf"(?i:\b(?:column|field|key)s?(?:\s+(?:called|named))?)\s+{_WORD}"),
    "before": re.compile(rf"{_WORD}\s+(?i:column|field|key|by|per)\b"),
}


def find_phrase(kind: str, words: Sequence[str], text: str) -> str:
    """Returns the name in "called X", or the column in "by X", "column X" and "X column"."""
    is_group = not {"group", "by", "per", "category"}.isdisjoint(words)
    names = [kind] if kind == "name" else ["group"] if is_group else ["column", "before"]
    searches = (_PHRASES[name].search(text) for name in names)
    found = next(filter(None, searches), None)
    return found[found.lastindex or 0] if found else ""
