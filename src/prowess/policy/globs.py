"""Patterns in policy: `*` is anything but a slash, `**` is anything, `?` is one character. Nothing else is special.

A path that may lead elsewhere (`..`, a backslash, a control character) matches nothing, so a pattern never allows it.
Code that denies checks `is_plain_path` first.
"""

from __future__ import annotations

from collections.abc import Iterable

from prowess._internal.globs import Glob


def match_word(pattern: str, word: str) -> bool:
    """True when a word matches. A word with a `..` part matches only an equal pattern."""
    if pattern == word:
        return True
    if "*" not in pattern and "?" not in pattern:
        return False
    if ".." in word.split("/"):
        return False
    return Glob(pattern).fullmatch(word)


def match_some_word(patterns: Iterable[str], word: str) -> bool:
    """True when a word matches at least one pattern."""
    return any(match_word(pattern, word) for pattern in patterns)


def match_path(pattern: str, path: str) -> bool:
    """True when a path matches: relative to the workspace, or absolute if the pattern is. `docs/` matches everything
    below."""
    path = path.removeprefix("workspace://")
    return is_plain_path(path) and Glob(plain_pattern(pattern)).fullmatch(_without_dots(path))


def match_below(pattern: str, folder: str) -> bool:
    """True when something at or below a folder could match."""
    pattern = plain_pattern(pattern)
    folder = _without_dots(folder.removeprefix("workspace://"))
    if folder == ".":
        return not pattern.startswith("/")
    glob = Glob(pattern)
    return glob.fullmatch(folder) or glob.may_begin(folder.rstrip("/") + "/")


def plain_pattern(pattern: str) -> str:
    """Returns the normal form of a path pattern."""
    pattern = pattern.removeprefix("workspace://")
    return _without_dots(f"{pattern}**" if pattern.endswith("/") else pattern)


def is_plain_path(path: str) -> bool:
    """True when a path contains nothing that could lead elsewhere."""
    return bool(path) and path.isprintable() and "\\" not in path and ".." not in path.split("/")


def match_anything(pattern: str, text: str) -> bool:
    """True when a text matches; here `*` also matches a slash."""
    return Glob(pattern, folders=False).fullmatch(text)


def _without_dots(path: str) -> str:
    """Normalises a path: `./a//b/./c` -> `a/b/c`. The workspace itself is `.`."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    joined = "/".join(parts)
    if path.startswith("/"):
        return f"/{joined}"
    return joined or "."
