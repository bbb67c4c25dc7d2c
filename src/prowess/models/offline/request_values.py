"""Finds the values in a request by their form: files, numbers, quoted texts, dates and addresses.

Nothing is understood. Each character belongs to one value only: the digits of a date are no number, and a quoted text
is not searched further.

Numbers in words: "the first ten", "twenty-five words", "two hundred", "前十个". "One" does not count as a number.

Phrases that name a value: "called tide-table", "by region", "the price column", "descending".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import NamedTuple

_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
    " eighteen nineteen"
).split()
_TENS = {name: 20 + 10 * at for at, name in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split())}
_SMALL = {name: at for at, name in enumerate(_UNITS)}
_BIG = {"hundred": 100, "thousand": 1000, "million": 1_000_000}
_WORD = "|".join([*_UNITS, *_TENS, *_BIG, "dozen"])
# "two files" counts the files; it is no value for a command.
_THINGS = r"(?:files?|versions?|lists?|tables?|texts?|columns?|documents?|of)\b"
_ENGLISH = re.compile(
    rf"\b(?:(?:a|an)\s+)?(?:{_WORD})(?:(?:[\s-]+(?:and\s+)?)(?:{_WORD}))*\b(?!\s+{_THINGS})", re.IGNORECASE
)
_DIGITS = {digit: at for at, digit in enumerate("零一二三四五六七八九")} | {"两": 2, "〇": 0}
_POWERS = {"十": 10, "百": 100, "千": 1000}
_NUMERAL = "[零〇一二两三四五六七八九十百千万]"
_CHINESE = re.compile(rf"(?<!{_NUMERAL})({_NUMERAL}++)(?=个|行|条|项|次|天|年|字|词|位|份|名|倍|秒|分)")


def find_number_words(text: str) -> Iterator[tuple[int, int, str]]:
    """Yields (start, end, digits) of each number, in order."""
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


LOOKED_AT = 20_000  # characters of a request; the part after them is only used as the rest of a text


class Number(NamedTuple):
    value: str
    before: str  # the word before it, in lower case
    after: str  # the words behind it


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestValues:
    text: str
    arguments: str = ""  # the text after `/skill-name`
    given: tuple[str, ...] = ()  # files of the workspace, `inputs/a.csv`
    files: tuple[str, ...] = ()  # as named in the request, in its order
    made: tuple[str, ...] = ()  # the files that are named as a result: `… as totals.csv`
    folders: tuple[str, ...] = ()
    numbers: tuple[Number, ...] = ()
    quoted: tuple[str, ...] = ()
    after_colon: str = ""
    urls: tuple[str, ...] = ()
    emails: tuple[str, ...] = ()
    dates: tuple[str, ...] = ()
    times: tuple[str, ...] = ()
    plain: str = ""  # the text with everything above replaced by blanks, same length


def parse_request(text: str, given: Sequence[str] = ()) -> RequestValues:
    text = text.replace("\0", " ").encode("utf-8", "replace").decode("utf-8")
    slash = re.match(r"\s*[/$][^\W_][\w/:-]*(?:\s+|$)", text)
    reader = _Reader(text)
    given = tuple(dict.fromkeys(given))
    names = {
        spelled: path for path in reversed(given) for spelled in (base_name(path), path.removeprefix("inputs/"), path)
    }
    reader.take_quoted(names)
    for spelled in sorted(names, key=lambda name: (-len(name), name)):
        reader.take("file", _GIVEN.format(re.escape(spelled)), lambda _, path=names[spelled]: path)
    reader.take("url", _URL, lambda found: found[0].rstrip(".,;:!?)]}'"))
    reader.take("email", _EMAIL, lambda found: found[0])
    reader.take("date", _DATE, _iso)
    reader.take("time", r"(?<![\d:])(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d)?(?![\d:])", lambda found: found[0])
    reader.take("file", _FILE, _file)
    reader.take("file", _OTHER_FILE, _file)
    reader.take("folder", r"(?<![\w./~-])@?((?:[\w.~-]++/)+[\w.-]*)", lambda found: found[1].rstrip("/") or None)
    colon = re.search(r":(?=\s|[^\x00-\x7f])|：", reader.masked)
    reader.take("number", _NUMBER, lambda found: found[0].strip().replace(",", "").lstrip("+"))
    for start, end, value in find_number_words(reader.masked):
        reader.put("number", start, end, value)
    quoted = [content for _, _, content in reader.found("quoted")]
    files = [(start, name) for start, _, name in reader.found("file")]
    return RequestValues(
        text=text,
        arguments=text[slash.end() :].strip() if slash else "",
        given=given,
        files=tuple(dict.fromkeys(name for _, name in files)),
        made=tuple(name for start, name in files if name not in given and _MADE.search(text[:start])),
        folders=reader.values("folder"),
        numbers=tuple(_number(text, *found) for found in reader.found("number")),
        quoted=tuple(quoted),
        after_colon=text[colon.end() :].strip() if colon else "",
        urls=(*reader.values("url"), *(text for text in quoted if re.fullmatch(_URL, text))),
        emails=(*reader.values("email"), *(text for text in quoted if re.fullmatch(_EMAIL, text))),
        dates=tuple(filter(None, reader.values("date"))),
        times=reader.values("time"),
        plain=reader.masked,
    )


class _Reader:
    """Text from which values are taken. A taken place becomes blanks, so that it is not read twice."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.masked = text[:LOOKED_AT].translate(_WIDE)  # one character for one, so that offsets stay valid
        self._found: dict[str, list[tuple[int, int, str]]] = {}

    def take(self, kind: str, pattern: str, value: Callable[[re.Match[str]], str | None]) -> None:
        for found in list(re.finditer(pattern, self.masked)):
            content = value(found)
            if content is not None:
                self.put(kind, *found.span(), content)

    def take_quoted(self, names: Mapping[str, str]) -> None:
        """Takes quoted texts. A quoted file name counts as a file."""
        for found in list(re.finditer(_QUOTED, self.text[:LOOKED_AT])):
            content = next(filter(None, found.groups()), "")
            if content in names or _is_file(content):
                self.put("file", *found.span(), names.get(content, content))
            elif content.strip():
                self.put("quoted", *found.span(), content)

    def put(self, kind: str, start: int, end: int, content: str) -> None:
        self._found.setdefault(kind, []).append((start, end, content))
        self.masked = self.masked[:start] + " " * (end - start) + self.masked[end:]

    def found(self, kind: str) -> list[tuple[int, int, str]]:
        return sorted(self._found.get(kind, ()))

    def values(self, kind: str) -> tuple[str, ...]:
        return tuple(content for _, _, content in self.found(kind))


_WIDE = {0xFF10 + digit: ord("0") + digit for digit in range(10)}
_GIVEN = r"(?<![A-Za-z0-9_./~-])@?(?:[A-Za-z0-9_.~-]*+/)*{}(?![A-Za-z0-9_/])"
_URL = r"(?:https?|ftp)://[^\s<>\"'`，。；！？）」』”]+"
_EMAIL = r"(?<![A-Za-z0-9_.+-])[A-Za-z0-9_.+-]++@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+"
_QUOTED = (
    r"\"(?P<a>[^\"]*)\"|“(?P<b>[^“”]*)”|「(?P<c>[^「」]*)」|『(?P<d>[^『』]*)』|«(?P<e>[^«»]*)»|《(?P<f>[^《》]*)》"
    r"|`(?P<g>[^`]+)`|(?<!\w)'(?P<h>[^'\n]+)'(?!\w)|(?<!\w)‘(?P<i>[^‘’\n]+)’(?!\w)"
)
_END = r"\.[A-Za-z][A-Za-z0-9]{0,7}(?![A-Za-z0-9_])"
_CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3\uff00-\uffef\u3000-\u303f"
_FILE = rf"(?:(?<![\w./~+%\\-])|(?<=[{_CJK}]))@?[A-Za-z0-9_~./\\][A-Za-z0-9_.~/\\+%-]*(?<=[A-Za-z0-9_+%~-]){_END}"
_OTHER_FILE = rf"(?<![\w./~+%-])@?[\w.~/+%-]*\w{_END}"
_IS_FILE = re.compile(r"@?[^\s\"'<>|\[\]{}*?$;&]+" + _END.removesuffix("(?![A-Za-z0-9_])"))
_HOSTS = re.compile(r"\.(?:com|org|net|io|dev|edu|gov|ai)$|^(?:e\.g|i\.e|a\.m|p\.m)$", re.IGNORECASE)
_MONTHS = "january february march april may june july august september october november december".split()
_MONTH = (
    r"(?P<{0}>(?i:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?))\.?"
)
_DATE = (
    r"(?<![\d-])(?P<y1>\d{4})(?:(?P<sep>[-/.])(?P<m1>\d{1,2})(?P=sep)(?P<d1>\d{1,2})(?![\d-])"
    r"|\s*年\s*(?P<m2>\d{1,2})\s*月\s*(?P<d2>\d{1,2})\s*[日号]?)"
    r"|(?<![\w.])(?P<d3>\d{1,2})(?:st|nd|rd|th)?\s+(?:of\s+)?" + _MONTH.format("m3") + r",?\s+(?P<y3>\d{4})(?!\d)"
    r"|(?<!\w)" + _MONTH.format("m4") + r"\s+(?P<d4>\d{1,2})(?:st|nd|rd|th)?,?\s+(?P<y4>\d{4})(?!\d)"
    r"|(?<![\w.])(?P<d5>\d{1,2})\.(?P<m5>\d{1,2})\.(?P<y5>\d{4})(?!\d)"
)
_NUMBER = (
    r"(?<![A-Za-z0-9_.,])(?<![A-Za-z]-)(?:(?<![\w)-])[-+])?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?"
    r"(?![0-9])(?!\.[0-9])(?=[A-Za-z]{0,3}(?![A-Za-z0-9_]))"
)
_MADE = re.compile(r"(?:\b(?:as|to|into|called|named)|保存为|存为|转成|转为|到|成)\s*[\"'`“]?$", re.IGNORECASE)


def base_name(path: str) -> str:
    return re.split(r"[/\\]", path)[-1]


def _is_file(content: str) -> bool:
    return _IS_FILE.fullmatch(content) is not None and not _HOSTS.search(content) and "://" not in content


def _file(found: re.Match[str]) -> str | None:
    name = found[0].removeprefix("@")
    return None if _HOSTS.search(name) and "/" not in name else name


def _iso(found: re.Match[str]) -> str:
    """Returns "" for a date that does not exist, so that its digits are not read as numbers."""
    groups = {key[0]: value for key, value in found.groupdict().items() if value is not None and key != "sep"}
    month = groups["m"]
    number = int(month) if month.isdecimal() else 1 + [name[:3] for name in _MONTHS].index(month[:3].lower())
    try:
        return date(int(groups["y"]), number, int(groups["d"])).isoformat()
    except ValueError:
        return ""


def _number(text: str, start: int, end: int, value: str) -> Number:
    before = re.search(
        r"([^\W\d_]+)(?:[ =:：]+(?:of|is|to|the|at|be))?[ =:：]*$", text[max(0, start - 40) : start].lower()
    )
    after = re.match(r"[ -]*((?:[^\W\d_]+[ -]?){1,4})", text[end : end + 60].lower())
    return Number(value, before[1] if before else "", after[1].strip() if after else "")


def find_choice(choice: str, text: str) -> int | None:
    """Returns the position where a lower-case text names the choice; `desc` is also named by "descending"."""
    spelled = re.sub(r"(?:\\-|_|\\ | )+", r"[\\s_-]+", re.escape(choice.lower()))
    for ending in ("", "(?:s|es|ed|d|ing|er|ending)"):
        edge = ("(?<![a-z0-9])", "(?![a-z0-9])") if choice.isascii() else ("", "")
        if choice and (found := re.search(f"{edge[0]}{spelled}{ending}{edge[1]}", text)):
            return found.start()
    return None


_NOT_A_NAME = r"(?!(?:the|a|an|in|of|for|to|and|or|by|with|from|on|at|is|each|every|all|its|my|your|this|that)\b)"
_PHRASE_WORD = rf"(?<![\w-]){_NOT_A_NAME}([^\W\d_][\w-]*+)"


_LABEL = "column|field|key"
_NAMES = (
    re.compile(rf"\b(?:named|called|name\s+is)\s+{_PHRASE_WORD}"),
    re.compile(r"(?:名为|名叫|叫做|叫)\s*([^\s，。,.]+)"),
    re.compile(r"\bfor\s+((?:[A-Z][\w'-]*)(?:\s+[A-Z][\w'-]*)*)"),
)
_GROUPS = (
    re.compile(rf"(?i:\b(?:by|per|for\s+each))\s+{_PHRASE_WORD}"),
    re.compile(r"按(?:照)?\s*([^\s，。]{1,20}?)(?:列|分组|汇总|统计|排序|$)"),
)
_COLUMNS = (
    re.compile(rf"(?i:\b(?:{_LABEL})s?(?:\s+(?:called|named))?)\s+{_PHRASE_WORD}"),
    re.compile(rf"{_PHRASE_WORD}\s+(?i:{_LABEL})\b"),
    re.compile(rf"{_PHRASE_WORD}\s+(?i:by|per)\b"),
    re.compile(r"([^\s，。的对把]{1,20}?)(?:列|字段)"),
)


def find_name(text: str) -> str:
    """Returns the name in phrases such as "called X" and "for X"."""
    return _first(_NAMES, text)


def find_column(text: str, words: Sequence[str]) -> str:
    """Returns a column, for a placeholder with these words in its name."""
    return _first(_GROUPS if set(words) & {"group", "by", "per", "category"} else _COLUMNS, text)


def _first(patterns: Sequence[re.Pattern[str]], text: str) -> str:
    return next((found[1] for pattern in patterns if (found := pattern.search(text))), "")
