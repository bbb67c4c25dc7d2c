"""Patterns in policy: `*` is anything but a slash, `**` is anything, `?` is one character. Nothing else is special.

A path that would lead somewhere else than it reads (`..`, a backslash, a control character) matches nothing, so that a
pattern that allows never allows it. Whoever denies asks `is_plain_path` first.
"""

from __future__ import annotations

from prowess._internal.globs import Glob


def match_word(pattern: str, word: str) -> bool:
    """Whether a word fits; `..` as a part of it fits no pattern, only itself."""
    if pattern == word:
        return True
    return ("*" in pattern or "?" in pattern) and ".." not in word.split("/") and Glob(pattern).fullmatch(word)


def match_path(pattern: str, path: str) -> bool:
    """Whether a path inside the workspace (or, for an absolute pattern, an absolute one) fits. `docs/` is all below."""
    path = path.removeprefix("workspace://")
    return is_plain_path(path) and Glob(plain_pattern(pattern)).fullmatch(_without_dots(path))


def match_below(pattern: str, folder: str) -> bool:
    """Whether something at or below a folder could fit."""
    pattern, folder = plain_pattern(pattern), _without_dots(folder.removeprefix("workspace://"))
    if folder == ".":
        return not pattern.startswith("/")
    glob = Glob(pattern)
    return glob.fullmatch(folder) or glob.may_begin(folder.rstrip("/") + "/")


def plain_pattern(pattern: str) -> str:
    """The one way to write a pattern for paths."""
    pattern = pattern.removeprefix("workspace://")
    return _without_dots(f"{pattern}**" if pattern.endswith("/") else pattern)


def is_plain_path(path: str) -> bool:
    """Whether a path leads where it reads."""
    return bool(path) and path.isprintable() and "\\" not in path and ".." not in path.split("/")


def match_anything(pattern: str, text: str) -> bool:
    """Whether a text fits, where a slash is no different from other characters."""
    return Glob(pattern, folders=False).fullmatch(text)


def _without_dots(path: str) -> str:
    """`./a//b/./c` -> `a/b/c`; the workspace itself is `.`."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return ("/" if path.startswith("/") else "") + "/".join(parts) or "."
