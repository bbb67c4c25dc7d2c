"""Which files a pattern means. It takes as long as pattern and path are, however many stars there are: patterns come
from a model, and names from scripts."""

from __future__ import annotations

import re

_PIECE = re.compile(r"\*\*/|\*\*|\*|\?|\[[^\]][^\]]*\]|\[|[^*?\[]+", re.DOTALL)


class Glob:
    """`*` and `?` stay within a folder, `**` crosses folders, `[…]` is a set. A trailing `/` or a bare folder means all
    that is in it."""

    def __init__(self, pattern: str) -> None:
        if pattern.endswith("/") or not pattern:
            pattern += "**"
        self.pattern = pattern
        self._pieces = [_read(piece) for piece in _PIECE.findall(pattern)]

    def fullmatch(self, path: str) -> bool:
        """All the places in the path that the pattern so far can end at, piece by piece."""
        ends = [True] + [False] * len(path)
        for piece in self._pieces:
            ends = _after(piece, ends, path)
        return ends[-1]


def _read(piece: str) -> str | re.Pattern[str]:
    if len(piece) < 3 or piece[0] != "[":
        return piece
    body = piece[1:-1].replace("\\", "\\\\").replace("[", "\\[")
    try:
        return re.compile(f"(?!/)[{'^' + body[1:] if body[0] in '!^' else body}]", re.DOTALL)
    except re.error:  # no set after all
        return piece


def _after(piece: str | re.Pattern[str], ends: list[bool], path: str) -> list[bool]:
    after = [False] * len(ends)
    if piece == "**/":
        return _over_folders(ends, path)
    if piece in ("*", "**"):
        going = False
        for at, is_end in enumerate(ends):
            going = is_end or (going and (piece == "**" or path[at - 1] != "/"))
            after[at] = going
        return after
    for at, is_end in enumerate(ends):
        if not is_end:
            continue
        if isinstance(piece, re.Pattern):
            if at < len(path) and piece.match(path[at]):
                after[at + 1] = True
        elif piece == "?":
            if at < len(path) and path[at] != "/":
                after[at + 1] = True
        elif path.startswith(piece, at):
            after[at + len(piece)] = True
    return after


def _over_folders(ends: list[bool], path: str) -> list[bool]:
    """No folder, or any number of whole ones."""
    after = list(ends)
    inside = False  # of a name that began at a place where the pattern could go on
    for at in range(1, len(ends)):
        if path[at - 1] == "/":
            after[at] = after[at] or inside
            inside = False
        else:
            inside = inside or after[at - 1]
    return after
