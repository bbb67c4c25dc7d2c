"""Turns of phrase that say what is meant: "called tide-table", "by region", "the price column", "descending"."""

from __future__ import annotations

import re
from collections.abc import Sequence


def find_choice(choice: str, text: str) -> int | None:
    """Where a text in lower case names the choice; `desc` is also named by "descending"."""
    spelled = re.sub(r"(?:\\-|_|\\ | )+", r"[\\s_-]+", re.escape(choice.lower()))
    for ending in ("", "(?:s|es|ed|d|ing|er|ending)"):
        edge = ("(?<![a-z0-9])", "(?![a-z0-9])") if choice.isascii() else ("", "")
        if choice and (found := re.search(f"{edge[0]}{spelled}{ending}{edge[1]}", text)):
            return found.start()
    return None


_NOT_A_NAME = r"(?!(?:the|a|an|in|of|for|to|and|or|by|with|from|on|at|is|each|every|all|its|my|your|this|that)\b)"
_WORD = rf"(?<![\w-]){_NOT_A_NAME}([^\W\d_][\w-]*+)"


_LABEL = "column|field|key"
_NAMES = (
    re.compile(rf"\b(?:named|called|name\s+is)\s+{_WORD}"),
    re.compile(r"(?:名为|名叫|叫做|叫)\s*([^\s，。,.]+)"),
    re.compile(r"\bfor\s+((?:[A-Z][\w'-]*)(?:\s+[A-Z][\w'-]*)*)"),
)
_GROUPS = (
    re.compile(rf"(?i:\b(?:by|per|for\s+each))\s+{_WORD}"),
    re.compile(r"按(?:照)?\s*([^\s，。]{1,20}?)(?:列|分组|汇总|统计|排序|$)"),
)
_COLUMNS = (
    re.compile(rf"(?i:\b(?:{_LABEL})s?(?:\s+(?:called|named))?)\s+{_WORD}"),
    re.compile(rf"{_WORD}\s+(?i:{_LABEL})\b"),
    re.compile(rf"{_WORD}\s+(?i:by|per)\b"),
    re.compile(r"([^\s，。的对把]{1,20}?)(?:列|字段)"),
)


def find_name(text: str) -> str:
    """Whom or what it is called, or for."""
    return _first(_NAMES, text)


def find_column(text: str, words: Sequence[str]) -> str:
    """A column, for a placeholder with these words in its name."""
    return _first(_GROUPS if set(words) & {"group", "by", "per", "category"} else _COLUMNS, text)


def _first(patterns: Sequence[re.Pattern[str]], text: str) -> str:
    return next((found[1] for pattern in patterns if (found := pattern.search(text))), "")
