"""Reads one YAML mapping strictly: strings, lists and mappings, from the events of the C parser.

Scalars stay strings. Nothing recurses and nothing is expanded, so deep nesting, aliases and merge keys do no harm: they
are refused while the parser streams events.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from prowess._internal.text import Spans
from prowess.core.findings import Note

MAX_DEPTH = 24
FIRST_LINE = 2  # the text starts on the line below the opening fence


class Unreadable(Exception):
    """Reason why a text is not a usable mapping. Becomes a finding."""

    def __init__(self, code: str, line: int | None, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.line = line
        self.reason = reason


def read_mapping(text: str, *, plain: bool = False) -> tuple[dict[str, Any], dict[str, int], list[Note]]:
    """Reads one YAML mapping of strings, lists and mappings. `plain` also refuses flow style, duplicate keys and tabs
    between tokens, like the reference library's parser."""
    import yaml

    builder = _MappingBuilder(text, plain)
    try:
        builder.read()
    except yaml.YAMLError as error:
        raise Unreadable("yaml-invalid", _error_line(error), _error_reason(error)) from None
    except ValueError as error:  # a lone surrogate or a code point beyond Unicode
        raise Unreadable("yaml-invalid", None, str(error)[:120]) from None
    if plain and "\t" in text:
        _check_tabs(text, builder.quoted)
    root = builder.root
    if root is None or root == "":
        root = {}
    if type(root) is not dict:
        raise Unreadable("yaml-not-mapping", FIRST_LINE, "it is not a list of 'key: value' lines")
    return root, builder.lines, builder.notes


class _MappingBuilder:
    """Value that the events made so far, with the containers that are still open."""

    def __init__(self, text: str, plain: bool) -> None:
        self.root: Any = None
        self.lines: dict[str, int] = {}
        self.notes: list[Note] = []
        self.quoted: list[tuple[int, int]] = []
        self._text = text
        self._plain = plain
        self._stack: list[Any] = []  # the open containers
        self._keys: list[str | None] = []  # for each container, the key that waits for its value
        may_have_comments = " #" in text or "\t#" in text
        self._source = text.split("\n") if may_have_comments else []

    def read(self) -> None:
        import yaml

        next_event = _parser_type()(self._text).get_event
        while (event := next_event()) is not None:
            kind = type(event)
            if kind is yaml.ScalarEvent:
                if event.anchor or event.tag:
                    raise _tagged(event)
                if self._plain and event.style:
                    self.quoted.append((event.start_mark.index, event.end_mark.index))
                self._add(event.value, event)
            elif kind is yaml.MappingStartEvent:
                self._open({}, event)
            elif kind is yaml.SequenceStartEvent:
                self._open([], event)
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                self._stack.pop()
                self._keys.pop()
            elif kind is yaml.AliasEvent:
                raise Unreadable("yaml-alias", _line_of(event), "aliases are not followed")
            elif kind is yaml.DocumentStartEvent and self.root is not None:
                raise Unreadable("yaml-invalid", _line_of(event), "more than one YAML document")

    def _open(self, container: Any, event: Any) -> None:
        """Adds a list or a mapping, and opens it for the values that follow."""
        if event.anchor or event.tag:
            raise _tagged(event)
        if len(self._stack) >= MAX_DEPTH:
            raise Unreadable("yaml-too-deep", _line_of(event), f"nested more than {MAX_DEPTH} levels deep")
        if self._plain and event.flow_style:
            raise Unreadable("yaml-flow-style", _line_of(event), "flow style is not plain YAML")
        self._add(container, event)
        self._stack.append(container)
        self._keys.append(None)

    def _add(self, value: Any, event: Any) -> None:
        """Adds a value to the innermost open container."""
        if not self._stack:
            self.root = value
            return
        top = self._stack[-1]
        if type(top) is list:
            top.append(value)
            return
        key = self._keys[-1]
        if key is None:
            self._add_key(value, event)
            return
        top[key] = value
        self._keys[-1] = None
        if self._source and type(value) is str and not event.style:
            self._note_comment(key, event.end_mark)

    def _add_key(self, key: Any, event: Any) -> None:
        line = _line_of(event)
        if type(key) is not str:
            raise Unreadable("yaml-invalid", line, "a key must be plain text")
        if key in self._stack[-1]:
            if self._plain:
                raise Unreadable("duplicate-key", line, f"duplicate key {key!r}")
            self.notes.append(Note("duplicate-key", line, {"key": key[:80]}))
        if len(self._stack) == 1:
            self.lines[key] = line
        self._keys[-1] = key

    def _note_comment(self, key: str, end: Any) -> None:
        """Notes that a plain value ends before a comment, which its author may have meant as text."""
        if end.line >= len(self._source):
            return
        rest = self._source[end.line][end.column :]
        if rest.lstrip(" \t").startswith("#"):
            self.notes.append(Note("yaml-comment-cut", end.line + FIRST_LINE, {"key": key[:80]}))


def _tagged(event: Any) -> Unreadable:
    return Unreadable("yaml-alias", _line_of(event), "anchors and tags are not read")


def _line_of(event: Any) -> int:
    return event.start_mark.line + FIRST_LINE


def _check_tabs(text: str, quoted: list[tuple[int, int]]) -> None:
    """Refuses a tab outside quotes, block scalars (below the '|' or '>' line) and comments."""
    spans: list[tuple[int, int]] = []
    for start, end in quoted:
        if text[start] in "|>":
            start = text.find("\n", start)
        spans.append((start, end))
    inside = Spans(spans)
    comment_until = 0
    for found in re.finditer(r"\t|(?:^|(?<=[ \t]))#", text, re.MULTILINE):
        at = found.start()
        if at in inside or at < comment_until:
            continue
        if found[0] == "\t":
            line = text.count("\n", 0, at) + FIRST_LINE
            raise Unreadable("yaml-invalid", line, "found character '\\t' that cannot start any token")
        comment_until = text.find("\n", at)
        if comment_until < 0:
            return


@cache
def _parser_type() -> Any:
    try:
        from yaml.cyaml import CParser  # type: ignore[attr-defined]
    except ImportError:  # PyYAML without libyaml: slower, same events
        from yaml import BaseLoader

        return BaseLoader
    return CParser


def _error_line(error: Any) -> int | None:
    for name in ("problem_mark", "context_mark"):
        mark = getattr(error, name, None)
        if mark:
            return mark.line + FIRST_LINE
    return None


def _error_reason(error: Any) -> str:
    """Returns the reason of a parser's error, in one line."""
    problem = getattr(error, "problem", None)
    reason = problem or getattr(error, "reason", None)
    first_line = str(reason or error).split("\n")[0]
    return first_line[:120]
