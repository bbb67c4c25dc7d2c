"""Reads front matter: strict YAML, then a narrow repair, then salvage line by line. `how` says which one was used.

`parse_front_matter(text)` takes the text between the fences. Scalars stay strings: there are no surprise booleans,
dates or floats. Nothing recurses and nothing is expanded, so deep nesting, aliases and merge keys do no harm: they are
refused while the C parser streams events.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Literal, NamedTuple

from prowess._internal.text import Spans
from prowess.core.findings import Note

MAX_DEPTH = 24
FIRST_LINE = 2  # the text starts on the line below the opening fence


class FrontMatter(NamedTuple):
    fields: dict[str, Any]
    lines: dict[str, int]  # top-level key -> line in the file
    how: Literal["strict", "repaired", "salvaged"]
    notes: tuple[Note, ...] = ()


class Unreadable(Exception):
    """Reason why a text is not a usable mapping. Becomes a finding."""

    def __init__(self, code: str, line: int | None, reason: str) -> None:
        super().__init__(reason)
        self.code, self.line, self.reason = code, line, reason


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
    if changed:
        try:
            fields, lines, notes = read_mapping(repaired)
        except Unreadable:
            return _salvage(text, first)
        named = [*changed[:10], *(["…"] if len(changed) > 10 else [])]
        why = Note("yaml-repaired", changed[0], {"lines": named, "reason": first.reason})
        return FrontMatter(fields, lines, "repaired", (why, *notes, *cut))
    return _salvage(text, first)


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


def _read_plain(text: str) -> FrontMatter | None:
    """Reads plain texts, as most are, without YAML: same result, at a fraction of the cost. Returns None for all
    others."""
    if not text.replace("\n", "").isprintable():
        return None
    fields: dict[str, Any] = {}
    lines: dict[str, int] = {}
    inner: dict[str, Any] | None = None  # the map that the last key without a value started
    depth = ""  # indentation of that map or list
    source = text.rstrip("\n").split("\n")
    at = 0
    while at < len(source):
        number, found = at + FIRST_LINE, _PLAIN_LINE.fullmatch(source[at])
        value: Any = None
        if found is not None:
            at += 1
            indent, key, words = found["indent"], found["key"], found["words"]
            if words:
                value = [word.strip(" ") for word in words.split(",")]
            elif found.end() > found.end("key") + 1:
                value = _plain_text(found)
                if value and found["text"] and not indent and at < len(source) and source[at].startswith(" "):
                    at, value = _join_lines(source, at, value)
                if value is None:
                    return None
            elif at < len(source) and (item := _PLAIN_ITEM.fullmatch(source[at])) and not indent:
                value, depth = [], item["indent"]
                while at < len(source) and (item := _PLAIN_ITEM.fullmatch(source[at])):
                    value.append(_plain_text(item))
                    at += 1
                    if value[-1] is None or item["indent"] != depth:
                        return None
        elif (found := _LONG_TEXT.fullmatch(source[at])) and (end := _end_of_long_text(source, at)):
            indent, key = "", found["key"]
            more = source[at + 1 : end]
            value = _join_quoted(found["quoted"], more) if found["quoted"] else _join_block(found["block"], more)
            if value is None:
                return None
            at = end
        else:
            return None
        if indent:
            if not inner:
                depth = indent
            if inner is None or indent != depth or key in inner or value is None:
                return None
            inner[key] = value
            continue
        if key in fields or inner == {}:
            return None
        inner = {} if value is None else None
        fields[key], lines[key] = inner if value is None else value, number
    return None if inner == {} else FrontMatter(fields, lines, "strict")


def _plain_text(found: re.Match[str]) -> str | None:
    """Text of a line. None where YAML sees a key or a comment in it."""
    text = found["text"]
    if text is None:
        quoted = found["double"]
        return found["single"] if quoted is None else _ESCAPED.sub(r"\1", quoted) if "\\" in quoted else quoted
    text = text.rstrip(" ")
    return None if ": " in text or " #" in text or text[-1] == ":" else text


def _join_lines(source: list[str], at: int, text: str) -> tuple[int, str | None]:
    """Adds the indented lines from `at` on to a plain text. None where YAML sees a key or a comment in one."""
    parts = [text]
    while at < len(source) and source[at].startswith(" "):
        line = source[at].strip(" ")
        if not line or ": " in line or " #" in line or line[-1] == ":" or line[0] == "#":
            return at, None
        parts.append(line)
        at += 1
    return at, " ".join(parts)


def _end_of_long_text(source: list[str], at: int) -> int:
    """Place of the first line that is neither blank nor indented. 0 where a line in between is not plain."""
    for place in range(at + 1, len(source)):
        if source[place] and not source[place].startswith(" "):
            return place
        if source[place] and not source[place].strip(" "):
            return 0
    return len(source)


def _join_quoted(first: str, more: list[str]) -> str | None:
    """Text in single quotes, whose closing quote ends the last line. A line break is a space, a blank line a break."""
    parts, glue = [first.rstrip(" ")], " "
    for line in more:
        if line:
            parts += [glue, line.strip(" ")]
            glue = " "
        else:
            glue = "\n" if glue == " " else f"{glue}\n"
    text = "".join(parts)
    inside = text[:-1].replace("''", "")
    return None if text[-1] != "'" or "'" in inside or glue != " " else text[:-1].replace("''", "'")


def _join_block(style: str, lines: list[str]) -> str | None:
    """Text of a block whose lines are all indented alike and end without a space."""
    depths = {len(line) - len(line.lstrip(" ")) for line in lines}
    if len(depths) != 1 or 0 in depths or any(line.endswith(" ") for line in lines):
        return None
    text = (" " if style[0] == ">" else "\n").join(line.lstrip(" ") for line in lines)
    return text if style.endswith("-") else f"{text}\n"


# --- strict ---------------------------------------------------------------------------------------------------------


def read_mapping(text: str, *, plain: bool = False) -> tuple[dict[str, Any], dict[str, int], list[Note]]:
    """Reads one YAML mapping of strings, lists and mappings. `plain` also refuses flow style, duplicate keys and tabs
    between tokens, like the reference library's parser."""
    import yaml

    next_event = _parser_type()(text).get_event
    notes: list[Note] = []
    lines: dict[str, int] = {}
    root: Any = None
    stack: list[Any] = []  # the open containers
    keys: list[str | None] = []  # for each container, the key that waits for its value
    watch_comments = " #" in text or "\t#" in text
    source = text.split("\n") if watch_comments else []
    quoted: list[tuple[int, int]] = []
    try:
        while (event := next_event()) is not None:
            kind = type(event)
            if kind is yaml.ScalarEvent:
                if event.anchor or event.tag:
                    raise Unreadable("yaml-alias", event.start_mark.line + FIRST_LINE, "anchors and tags are not read")
                value: Any = event.value
                if plain and event.style:
                    quoted.append((event.start_mark.index, event.end_mark.index))
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                line = event.start_mark.line + FIRST_LINE
                if event.anchor or event.tag:
                    raise Unreadable("yaml-alias", line, "anchors and tags are not read")
                if len(stack) >= MAX_DEPTH:
                    raise Unreadable("yaml-too-deep", line, f"nested more than {MAX_DEPTH} levels deep")
                if plain and event.flow_style:
                    raise Unreadable("yaml-flow-style", line, "flow style is not plain YAML")
                value = {} if kind is yaml.MappingStartEvent else []
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                stack.pop()
                keys.pop()
                continue
            elif kind is yaml.AliasEvent:
                raise Unreadable("yaml-alias", event.start_mark.line + FIRST_LINE, "aliases are not followed")
            elif kind is yaml.DocumentStartEvent:
                if root is not None:
                    raise Unreadable("yaml-invalid", event.start_mark.line + FIRST_LINE, "more than one YAML document")
                continue
            else:
                continue

            if not stack:
                root = value
            else:
                top, key = stack[-1], keys[-1]
                if type(top) is list:
                    top.append(value)
                elif key is None:  # a mapping that waits for a key
                    if type(value) is not str:
                        raise Unreadable("yaml-invalid", event.start_mark.line + FIRST_LINE, "a key must be plain text")
                    line = event.start_mark.line + FIRST_LINE
                    if value in top:
                        if plain:
                            raise Unreadable("duplicate-key", line, f"duplicate key {value!r}")
                        notes.append(Note("duplicate-key", line, {"key": value[:80]}))
                    if len(stack) == 1:
                        lines[value] = line
                    keys[-1] = value
                    continue
                else:
                    top[key] = value
                    keys[-1] = None
                    if watch_comments and type(value) is str and not event.style and _is_cut(source, event.end_mark):
                        notes.append(Note("yaml-comment-cut", event.end_mark.line + FIRST_LINE, {"key": key[:80]}))
            if type(value) is not str:
                stack.append(value)
                keys.append(None)
    except yaml.YAMLError as error:
        raise Unreadable("yaml-invalid", _error_line(error), _error_reason(error)) from None
    except ValueError as error:  # a lone surrogate or a code point beyond Unicode
        raise Unreadable("yaml-invalid", None, str(error)[:120]) from None
    if plain and "\t" in text:
        _check_tabs(text, quoted)
    if root is None or root == "":
        root = {}
    if type(root) is not dict:
        raise Unreadable("yaml-not-mapping", FIRST_LINE, "it is not a list of 'key: value' lines")
    return root, lines, notes


def _check_tabs(text: str, quoted: list[tuple[int, int]]) -> None:
    """Refuses a tab outside quotes, block scalars (below the '|' or '>' line) and comments."""
    inside = Spans((text.find("\n", start) if text[start] in "|>" else start, end) for start, end in quoted)
    comment_until = 0
    for found in re.finditer(r"\t|(?:^|(?<=[ \t]))#", text, re.MULTILINE):
        at = found.start()
        if at in inside or at < comment_until:
            continue
        if found[0] == "\t":
            line = text.count("\n", 0, at) + FIRST_LINE
            raise Unreadable("yaml-invalid", line, "found character '\\t' that cannot start any token")
        end = text.find("\n", at)
        comment_until = len(text) if end < 0 else end


@cache
def _parser_type() -> Any:
    try:
        from yaml.cyaml import CParser  # type: ignore[attr-defined]
    except ImportError:  # PyYAML without libyaml: slower, same events
        from yaml import BaseLoader

        return BaseLoader
    return CParser


def _is_cut(source: list[str], mark: Any) -> bool:
    return mark.line < len(source) and source[mark.line][mark.column :].lstrip(" \t").startswith("#")


def _error_line(error: Any) -> int | None:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    return mark.line + FIRST_LINE if mark else None


def _error_reason(error: Any) -> str:
    return str(getattr(error, "problem", None) or getattr(error, "reason", None) or error).split("\n")[0][:120]


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
        found = _KEY_LINE.match(line)
        at += 1
        if not found:
            out.append(line)
            continue
        indent = len(found["indent"])
        deeper = at
        while deeper < len(lines) and (not lines[deeper].strip() or _indent(lines[deeper]) > indent):
            deeper += 1
        value, comment = _split_comment(found["value"].rstrip())
        more = [part.strip() for part in lines[at:deeper] if part.strip()]
        if _BLOCK.match(found["value"].rstrip()):  # a block scalar owns all deeper lines
            out += [line, *lines[at:deeper]]
            at = deeper
        elif not _needs_quotes(value, more):
            out.append(line)
        elif any(map(_RESTRICTION.match, more)):
            return text, [], []
        else:
            whole = " ".join([value, *more])
            if value[0] in "\"'" and not _RESTRICTION.match(line):  # a restriction is never guessed
                whole = _repair_quotes(whole)
            whole = whole.replace("\\", "\\\\").replace('"', '\\"')
            out.append(f'{found["indent"]}{found["key"]}: "{whole}"{comment}')
            out += [""] * (deeper - at)  # keeps the line numbers of the following lines
            changed.append(at - 1 + FIRST_LINE)
            if comment:
                cut.append(Note("yaml-comment-cut", at - 1 + FIRST_LINE, {"key": found["key"][:80]}))
            at = deeper
    return "\n".join(out), changed, cut


def _needs_quotes(value: str, more: list[str]) -> bool:
    if value[0] in "\"'":
        return _WHOLE_QUOTED.match(" ".join([value, *more])) is None
    if value[0] in "[{":
        return _WHOLE_FLOW.match(value) is None and not (more and value[-1] in "[{,")
    if value[0] in "@`%&*!|>]},?" or value.startswith("- "):
        return True
    return any(": " in part or part.endswith(":") for part in [value, *more])


def _repair_quotes(value: str) -> str:
    """Returns the text of a value with broken quotes, without the first quote and its partner. A quoted word before
    other words (`"Foo" and bar`) keeps its quotes."""
    quote, text = value[0], value[1:]
    marks = [found.start() for found in _QUOTES[quote].finditer(text)]
    if marks:
        first, at_end = marks[0], marks[-1] == len(text) - 1
        closes = first > 0 and not text[first - 1].isspace() and not text[first + 1 : first + 2].isalnum()
        if closes and len(marks) % 2:
            if first != len(text) - 1 and not _SENTENCE.search(text, 0, first):
                return value
            text = text[:first] + text[first + 1 :]  # "Does x." Use when asked.
        elif at_end:  # "Does "x" and y."
            text = text[:-1]
    text = text.replace("''", "'") if quote == "'" else _ESCAPED.sub(r"\1", text)
    return text.strip()


def _split_comment(value: str) -> tuple[str, str]:
    if value[0] in "\"'":
        return value, ""
    found = _COMMENT.search(value)
    return (value[: found.start()], value[found.start() :]) if found and found.start() else (value, "")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


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
        if found and found["key"] in _SALVAGED and found["key"] not in fields:
            value = found["value"].rstrip()
            if found["key"] == "description":
                head = "" if _BLOCK.match(value) else value
                value = " ".join(part for part in [head, *_deeper_lines(source, number + 1)] if part)
            fields[found["key"]] = _unquote(_printable(value))
            lines[found["key"]] = number + FIRST_LINE
    if not fields.get("description"):
        raise failure
    mentions = [found["key"] for found in _RESTRICTION.finditer(text)].count("disable-model-invocation")
    if mentions != ("disable-model-invocation" in fields):
        fields["disable-model-invocation"] = "not readable"
    fields["allowed-tools"] = []
    note = Note("yaml-salvaged", failure.line, {"reason": failure.reason, "fields": sorted(lines)})
    return FrontMatter(fields, lines, "salvaged", (note,))


def _deeper_lines(source: list[str], start: int) -> list[str]:
    found = []
    for line in source[start:]:
        if line.strip() and not line.startswith((" ", "\t")):
            break
        found.append(line.strip())
    return found


def _unquote(value: str) -> str:
    return _repair_quotes(value) if value[:1] in ("'", '"') else value


def _printable(value: str) -> str:
    return "".join(c for c in value if c >= " " and c != "\x7f")
