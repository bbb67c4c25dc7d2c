"""Patterns for skills: `pdf`, `pdf-*`, `acme/*` or `project:pdf`. Modes, filters and packages are set by them."""

from __future__ import annotations

from collections.abc import Iterable

from prowess._internal.globs import Glob
from prowess.skills.skill import Entry


def matches_pattern(pattern: str, entry: Entry) -> bool:
    """True when a pattern fits a skill: `pdf`, `pdf-*`, `acme/*` or `project:pdf`."""
    if pattern in (entry.name, entry.qualified) or pattern == entry.id:
        return True
    if not is_wild(pattern):
        return False
    glob = Glob(pattern, sets=True, folders=False)
    if ":" in pattern:
        return glob.fullmatch(entry.id)
    return glob.fullmatch(entry.name) or glob.fullmatch(entry.qualified)


def matches_any(pattern: str, entries: Iterable[Entry]) -> bool:
    return any(matches_pattern(pattern, entry) for entry in entries)


def width(pattern: str) -> tuple[bool, int, int, str]:
    """Sort key of patterns, narrow before wide: ids, qualified names, names, then wildcards, longer ones first."""
    kind = 2
    if ":" in pattern:
        kind = 0
    elif "/" in pattern:
        kind = 1
    return is_wild(pattern), kind, -len(pattern), pattern


def is_wild(pattern: str) -> bool:
    return "*" in pattern or "?" in pattern or "[" in pattern
