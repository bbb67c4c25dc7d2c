"""Reads front matter: strict YAML, then a narrow repair, then salvage line by line. `how` says which one was used.

`parse_front_matter(text)` takes the text between the fences. Scalars stay strings: there are no surprise booleans,
dates or floats. Plain texts are read without YAML, all others by `yaml_mapping`.
"""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple

from prowess.core.findings import Note
from prowess.skills.yaml_mapping import FIRST_LINE, Unreadable, read_mapping


class FrontMatter(NamedTuple):
    fields: dict[str, Any]
    lines: dict[str, int]  # top-level key -> line in the file
    how: Literal["strict", "repaired", "salvaged"]
    notes: tuple[Note, ...] = ()


def parse_front_matter(text: str) -> FrontMatter:
    """Parses front matter. Raises Unreadable only when not even a description can be salvaged."""
    plain = _read_plain(text)
    if plain is not None:
        return plain
    try:
        fields, lines, notes = read_mapping(text)
        return FrontMatter(fields, lines, "strict", tuple(notes))
    except Unreadable as failure:
        first = failure
    repaired, changed, cut = _repair(text)
    if not changed:
        return _salvage(text, first)
    try:
        fields, lines, notes = read_mapping(repaired)
    except Unreadable:
        return _salvage(text, first)
    named: list[int | str] = [*changed[:10]]
    if len(changed) > 10:
        named.append("…")
    why = Note("yaml-repaired", changed[0], {"lines": named, "reason": first.reason})
    return FrontMatter(fields, lines, "repaired", (why, *notes, *cut))


# --- plain ----------------------------------------------------------------------------------------------------------

# A line with a key and a text that means the same to every YAML parser. The text starts with a letter or a digit, or
# stands in quotes. Within double quotes only a quote and a backslash are escaped; within single quotes there is no
# quote. A list of words is accepted too, and an empty value where a map starts.
_START = r"[^\x00-/:-@\[-`{-\x7f]"  # an ASCII letter or digit, or any character beyond ASCII
_WORD = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
_KEY = r"(?P<key>[A-Za-z][A-Za-z0-9_-]{0,63}):"
_TEXT = rf"(?P<text>{_START}.*)|\"(?P<double>[^\"\\]*(?:\\[\"\\][^\"\\]*)*)\" *|'(?P<single>[^']+)' *"
_PLAIN_LINE = re.compile(rf"(?P<indent> *){_KEY}(?: +(?:{_TEXT}|\[(?P<words>{_WORD}(?:, *{_WORD})*)\] *))?")
_PLAIN_ITEM = re.compile(rf"(?P<indent> *)- +(?:{_TEXT})")
# A text over several lines: in single quotes, or as a block. Each further line is indented.
_LONG_TEXT = re.compile(rf"{_KEY} +(?:'(?P<quoted>[^ ].*)|(?P<block>[|>]-?) *)")


class _NotPlain(Exception):
    """Signal: a line does not mean the same to every YAML parser."""


def _read_plain(text: str) -> FrontMatter | None:
    """Reads plain texts, as most are, without YAML: same result, at a fraction of the cost. Returns None for all
    others."""
    if not text.replace("\n", "").isprintable():
        return None
    try:
        return _PlainReader(text).read()
    except _NotPlain:
        return None


class _PlainReader:
    """Reads plain lines, one key after the other. Raises _NotPlain for all others."""

    def __init__(self, text: str) -> None:
        self._source = text.rstrip("\n").split("\n")
        self._end = len(self._source)
        self._source.append("")  # so that each line has a next one
        self._at = 0
        self._fields: dict[str, Any] = {}
        self._lines: dict[str, int] = {}
        self._inner: dict[str, Any] | None = None  # the map that the last key without a value started
        self._depth = ""  # indentation of that map

    def read(self) -> FrontMatter:
        while self._at < self._end:
            number = self._at + FIRST_LINE
            found = _PLAIN_LINE.fullmatch(self._source[self._at])
            if found is None:
                key, value = self._read_long_text()
                self._add(key, value, number)
                continue
            self._at += 1
            indent, key = found.group("indent", "key")
            value = self._read_value(found, indent)
            if indent:
                self._add_inner(indent, key, value)
            else:
                self._add(key, value, number)
        self._end_map()
        return FrontMatter(self._fields, self._lines, "strict")

    def _add(self, key: str, value: Any, number: int) -> None:
        if key in self._fields:
            raise _NotPlain
        if self._inner is not None:
            self._end_map()
        if value is None:
            value = self._inner = {}
        self._fields[key] = value
        self._lines[key] = number

    def _end_map(self) -> None:
        if self._inner == {}:
            raise _NotPlain
        self._inner = None

    def _add_inner(self, indent: str, key: str, value: Any) -> None:
        if not self._inner:
            self._depth = indent
        if self._inner is None or indent != self._depth or key in self._inner or value is None:
            raise _NotPlain
        self._inner[key] = value

    def _read_value(self, found: re.Match[str], indent: str) -> Any:
        """Returns the text or the list of a key, or None where a map starts."""
        kind = found.lastgroup  # the group after `key` that matched, if any did
        if kind == "text":
            text = _plain_text(found)
            if self._source[self._at].startswith(" ") and not indent:
                return self._join_lines(text)
            return text
        if kind == "words":
            return [word.strip(" ") for word in found["words"].split(",")]
        if kind != "key":
            return _quoted_text(found)
        if indent:
            return None
        return self._read_items() or None

    def _join_lines(self, text: str) -> str:
        """Adds the indented lines that follow to a plain text."""
        parts = [text]
        while self._source[self._at].startswith(" "):
            line = self._source[self._at].strip(" ")
            if not line or line[0] == "#":
                raise _NotPlain
            _check_plain(line)
            parts.append(line)
            self._at += 1
        return " ".join(parts)

    def _read_items(self) -> list[str]:
        items: list[str] = []
        depth = None
        while (item := _PLAIN_ITEM.fullmatch(self._source[self._at])) is not None:
            if depth is None:
                depth = item["indent"]
            if item["indent"] != depth:
                raise _NotPlain
            text = _plain_text(item) if item.lastgroup == "text" else _quoted_text(item)
            items.append(text)
            self._at += 1
        return items

    def _read_long_text(self) -> tuple[str, str]:
        found = _LONG_TEXT.fullmatch(self._source[self._at])
        if found is None:
            raise _NotPlain
        end = self._end_of_long_text()
        more = self._source[self._at + 1 : end]
        self._at = end
        if found["quoted"]:
            return found["key"], _join_quoted(found["quoted"], more)
        return found["key"], _join_block(found["block"], more)

    def _end_of_long_text(self) -> int:
        """Returns the place of the first line that is neither blank nor indented."""
        for place in range(self._at + 1, self._end):
            line = self._source[place]
            if line and not line.startswith(" "):
                return place
            if line and not line.strip(" "):
                raise _NotPlain
        return self._end


def _plain_text(found: re.Match[str]) -> str:
    text = found["text"].rstrip(" ")
    _check_plain(text)
    return text


def _quoted_text(found: re.Match[str]) -> str:
    quoted = found["double"]
    if quoted is None:
        return found["single"]
    if "\\" in quoted:
        return _ESCAPED.sub(r"\1", quoted)
    return quoted


def _check_plain(text: str) -> None:
    """Refuses a text in which YAML sees a key or a comment."""
    if ": " in text or " #" in text or text[-1] == ":":
        raise _NotPlain


def _join_quoted(first: str, more: list[str]) -> str:
    """Text in single quotes, whose closing quote ends the last line. A line break is a space, a blank line a break."""
    parts = [first.rstrip(" ")]
    glue = " "
    for line in more:
        if line:
            parts += [glue, line.strip(" ")]
            glue = " "
        elif glue == " ":
            glue = "\n"
        else:
            glue += "\n"
    text = "".join(parts)
    inside = text[:-1]
    if text[-1] != "'" or glue != " " or "'" in inside.replace("''", ""):
        raise _NotPlain
    return inside.replace("''", "'")


def _join_block(style: str, lines: list[str]) -> str:
    """Text of a block whose lines are all indented alike and end without a space."""
    depths = {_indent(line) for line in lines}
    if len(depths) != 1 or 0 in depths or any(line.endswith(" ") for line in lines):
        raise _NotPlain
    glue = " " if style[0] == ">" else "\n"
    text = glue.join(line.lstrip(" ") for line in lines)
    if style.endswith("-"):
        return text
    return f"{text}\n"


# --- repair ---------------------------------------------------------------------------------------------------------

_KEY_LINE = re.compile(r"^(?P<indent> *(?:- )?)(?P<key>[A-Za-z_][\w.-]*)[ \t]*:[ \t]+(?P<value>\S.*)$")
_BLOCK = re.compile(r"^[|>][+-]?[1-9]?[+-]?(?:[ \t]+#.*)?$")
_WHOLE_QUOTED = re.compile(r"""^(?:"(?:[^"\\]|\\.)*"|'(?:[^']|'')*')(?:[ \t]+#.*)?$""")
_WHOLE_FLOW = re.compile(r"^(?:\[[^\[\]]*\]|\{[^{}]*\})(?:[ \t]+#.*)?$")
_COMMENT = re.compile(r"[ \t]#")
_QUOTES = {'"': re.compile(r'(?<!\\)"'), "'": re.compile(r"(?<!\w)'|'(?!\w)")}  # an apostrophe in a word is no quote
_SENTENCE = re.compile(r"[.!?:]\Z|: ")
_ESCAPED = re.compile(r'\\(["\\])')


# A key that restricts a skill, at the start of a line. Indentation and quotes do not matter.
_RESTRICTION = re.compile(
    r"""^[ \t]*["']?(?P<key>allowed-tools|allowed_tools|allowedTools|disable-model-invocation)["']?[ \t]*:""",
    re.MULTILINE,
)


def _repair(text: str) -> tuple[str, list[int], list[Note]]:
    """Quotes plain values that YAML cannot read as plain, and mends values with broken quotes.

    A plain value needs quotes when it contains ': ' or starts with a reserved character. Block scalars, complete quoted
    values and complete flow values stay as they are. Comments stay too, with a note. When a repair would make a
    restriction part of another value, nothing is changed.
    """
    lines = text.split("\n")
    out: list[str] = []
    changed: list[int] = []
    cut: list[Note] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        number = at + FIRST_LINE
        at += 1
        found = _KEY_LINE.match(line)
        if not found:
            out.append(line)
            continue
        end = _end_of_deeper(lines, at, len(found["indent"]))
        written = found["value"].rstrip()
        if _BLOCK.match(written):  # a block scalar owns all deeper lines
            out += [line, *lines[at:end]]
            at = end
            continue
        value, comment = _split_comment(written)
        more = [part.strip() for part in lines[at:end] if part.strip()]
        if not _needs_quotes(value, more):
            out.append(line)
            continue
        if any(map(_RESTRICTION.match, more)):
            return text, [], []
        whole = " ".join([value, *more])
        if value[0] in "\"'" and not _RESTRICTION.match(line):  # a restriction is never guessed
            whole = _repair_quotes(whole)
        whole = whole.replace("\\", "\\\\").replace('"', '\\"')
        out.append(f'{found["indent"]}{found["key"]}: "{whole}"{comment}')
        out += [""] * (end - at)  # keeps the line numbers of the following lines
        at = end
        changed.append(number)
        if comment:
            cut.append(Note("yaml-comment-cut", number, {"key": found["key"][:80]}))
    return "\n".join(out), changed, cut


def _end_of_deeper(lines: list[str], start: int, indent: int) -> int:
    """Returns the place of the first line from `start` on that is neither blank nor deeper than `indent`."""
    for place in range(start, len(lines)):
        line = lines[place]
        if line.strip() and _indent(line) <= indent:
            return place
    return len(lines)


def _needs_quotes(value: str, more: list[str]) -> bool:
    first = value[0]
    parts = [value, *more]
    if first in "\"'":
        return not _WHOLE_QUOTED.match(" ".join(parts))
    if first in "[{":
        goes_on = more and value[-1] in "[{,"
        return not goes_on and not _WHOLE_FLOW.match(value)
    if first in "@`%&*!|>]},?" or value.startswith("- "):
        return True
    return any(": " in part or part.endswith(":") for part in parts)


def _repair_quotes(value: str) -> str:
    """Returns the text of a value with broken quotes, without the first quote and its partner. A quoted word before
    other words (`"Foo" and bar`) keeps its quotes."""
    quote = value[0]
    text = value[1:]
    marks = [found.start() for found in _QUOTES[quote].finditer(text)]
    if marks:
        last = len(text) - 1
        first = marks[0]
        if len(marks) % 2 and _closes(text, first):
            if first != last and not _SENTENCE.search(text, 0, first):
                return value
            text = text[:first] + text[first + 1 :]  # "Does x." Use when asked.
        elif marks[-1] == last:  # "Does "x" and y."
            text = text[:-1]
    if quote == "'":
        text = text.replace("''", "'")
    else:
        text = _ESCAPED.sub(r"\1", text)
    return text.strip()


def _closes(text: str, at: int) -> bool:
    """True when the quote at this place ends a word, and no word follows at once."""
    if at == 0 or text[at - 1].isspace():
        return False
    following = text[at + 1 : at + 2]
    return not following.isalnum()


def _split_comment(value: str) -> tuple[str, str]:
    """Splits a value from the comment after it. A quoted value has none."""
    if value[0] in "\"'":
        return value, ""
    found = _COMMENT.search(value)
    if not found or not found.start():
        return value, ""
    at = found.start()
    return value[:at], value[at:]


def _indent(line: str) -> int:
    text = line.lstrip(" ")
    return len(line) - len(text)


# --- salvage --------------------------------------------------------------------------------------------------------

_SALVAGED = ("name", "description", "disable-model-invocation", "user-invocable")
_TOP_KEY = re.compile(r"^(?P<key>[A-Za-z_][\w-]*)[ \t]*:[ \t]*(?P<value>.*)$")


def _salvage(text: str, failure: Unreadable) -> FrontMatter:
    """Reads only the fields that identify a skill, line by line. Fails closed: the tool list counts as declared and
    empty."""
    fields: dict[str, Any] = {}
    lines: dict[str, int] = {}
    source = text.split("\n")
    for number, line in enumerate(source):
        found = _TOP_KEY.match(line)
        if not found:
            continue
        key = found["key"]
        if key not in _SALVAGED or key in fields:
            continue
        value = found["value"].rstrip()
        if key == "description":
            value = _whole_description(value, source, number)
        fields[key] = _unquote(_printable(value))
        lines[key] = number + FIRST_LINE
    if not fields.get("description"):
        raise failure
    restrictions = [found["key"] for found in _RESTRICTION.finditer(text)]
    mentions = restrictions.count("disable-model-invocation")
    if mentions != ("disable-model-invocation" in fields):
        fields["disable-model-invocation"] = "not readable"
    fields["allowed-tools"] = []
    note = Note("yaml-salvaged", failure.line, {"reason": failure.reason, "fields": sorted(lines)})
    return FrontMatter(fields, lines, "salvaged", (note,))


def _whole_description(value: str, source: list[str], number: int) -> str:
    """Joins the first line of a description and the indented lines below it."""
    parts = [] if _BLOCK.match(value) else [value]
    parts += _deeper_lines(source, number + 1)
    return " ".join(filter(None, parts))


def _deeper_lines(source: list[str], start: int) -> list[str]:
    found = []
    for line in source[start:]:
        if line.strip() and not line.startswith((" ", "\t")):
            break
        found.append(line.strip())
    return found


def _unquote(value: str) -> str:
    if not value.startswith(("'", '"')):
        return value
    return _repair_quotes(value)


def _printable(value: str) -> str:
    """Removes control characters."""
    kept = [c for c in value if c >= " " and c != "\x7f"]
    return "".join(kept)
