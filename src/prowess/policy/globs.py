"""Patterns in policy: `*` is anything but a slash, `**` is anything, `?` is one character. Nothing else is special.

A path that would lead somewhere else than it reads (`..`, a backslash, a control character) matches nothing, so that a
pattern that allows never allows it. Whoever denies asks `is_plain_path` first.
"""

from __future__ import annotations

import re


def match_word(pattern: str, word: str) -> bool:
    """Whether a word fits; `..` as a part of it fits no pattern, only itself."""
    if pattern == word:
        return True
    return bool(re.search(r"[*?]", pattern)) and ".." not in word.split("/") and _fits(pattern, word)


def match_path(pattern: str, path: str) -> bool:
    """Whether a path inside the workspace (or, for an absolute pattern, an absolute one) fits. `docs/` is all below."""
    path = path.removeprefix("workspace://")
    return is_plain_path(path) and _fits(plain_pattern(pattern), _without_dots(path))


def match_below(pattern: str, folder: str) -> bool:
    """Whether something at or below a folder could fit."""
    pattern, folder = plain_pattern(pattern), _without_dots(folder.removeprefix("workspace://"))
    if folder == ".":
        return not pattern.startswith("/")
    return _fits(pattern, folder) or _fits(pattern, folder.rstrip("/") + "/", begins=True)


def plain_pattern(pattern: str) -> str:
    """The one way to write a pattern for paths."""
    pattern = pattern.removeprefix("workspace://")
    return _without_dots(f"{pattern}**" if pattern.endswith("/") else pattern)


def is_plain_path(path: str) -> bool:
    """Whether a path leads where it reads."""
    return bool(path) and path.isprintable() and "\\" not in path and ".." not in path.split("/")


def match_anything(pattern: str, text: str) -> bool:
    """Whether a text fits, where a slash is no different from other characters."""
    return _fits(pattern.replace("/", "\0"), text.replace("/", "\0"))


def _without_dots(path: str) -> str:
    """`./a//b/./c` -> `a/b/c`; the workspace itself is `.`."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return ("/" if path.startswith("/") else "") + "/".join(parts) or "."


def _fits(pattern: str, text: str, *, begins: bool = False) -> bool:
    """All ends that the pattern so far can have, piece by piece: patterns come from skills, and a regular expression
    with many stars could take for ever. With `begins`: whether a text that begins so can fit."""
    ends = [True] + [False] * len(text)
    for piece in re.findall(r"\*\*+/?|\*|\?|[^*?]+", pattern):
        after = [False] * len(ends)
        reached = False
        for at, is_end in enumerate(ends):
            if piece.startswith("**"):
                reached = reached or is_end
                after[at] = is_end or (reached and (not piece.endswith("/") or text[at - 1] == "/"))
            elif piece == "*":
                reached = is_end or (reached and text[at - 1] != "/")
                after[at] = reached
            elif is_end and piece == "?" and at < len(text):
                after[at + 1] = text[at] != "/"
            elif is_end and piece != "?" and text.startswith(piece, at):
                after[at + len(piece)] = True
            elif begins and is_end and piece != "?" and piece.startswith(text[at:]):
                return True
        ends = after
        if begins and ends[-1]:
            return True
        if True not in ends:
            return False
    return ends[-1]
