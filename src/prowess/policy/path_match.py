"""A rule about paths is also about what a call comes to below its path: `grep` and `list_dir` look into folders.

A rule that asks or denies `work/inputs/**` fits a search in `work/inputs`, in `work` and in the whole workspace; one
that allows it fits only a search that stays in there. Without a slash a pattern is about the name, at any depth, where
it asks or denies (`*.sh`), and about the top of the workspace where it allows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prowess.policy.allowed_tools import PATH_ARGUMENTS
from prowess.policy.globs import is_plain_path, match_below, match_path, plain_pattern

_DESCENDING = frozenset(("grep", "list_dir"))
WRITING = frozenset(("write_file", "delete_file"))  # only ever below a folder


def fits_path(patterns: Sequence[str], tool: str, args: Mapping[str, Any], *, strict: bool) -> bool:
    """Whether one of the patterns fits; `strict` for a rule that allows."""
    name = PATH_ARGUMENTS.get(tool)
    if name is None:
        return False
    path = args.get(name)
    path = "." if path is None else path
    if not isinstance(path, str) or not is_plain_path(path):
        return not strict
    if strict:
        return any(_fits_certainly(pattern, path, descends=tool in _DESCENDING) for pattern in patterns)
    return any(_may_fit(pattern, path, descends=tool in _DESCENDING) for pattern in patterns)


def is_about_top(pattern: str) -> bool:
    """Whether a pattern of a rule that allows fits nothing below a folder."""
    pattern = plain_pattern(pattern)
    return "/" not in pattern and "**" not in pattern


def _fits_certainly(pattern: str, path: str, *, descends: bool) -> bool:
    if not descends:
        return match_path(pattern, path)
    if plain_pattern(path) == ".":  # which `*` would fit by its letters
        return plain_pattern(pattern) in (".", "**")
    return match_path(pattern, path) or match_path(plain_pattern(pattern).removesuffix("/**"), path)


def _may_fit(pattern: str, path: str, *, descends: bool) -> bool:
    if path.startswith("skill://"):  # the same files by another name
        path = "skills/" + path.removeprefix("skill://")
    plain = plain_pattern(pattern)
    each = [plain, f"**/{plain}"] if "/" not in plain and plain != "." else [plain]
    if any(match_path(one, path) for one in each):
        return True
    if not descends:
        return False
    # From a sandbox the workspace itself has an absolute path, and only the tool knows it.
    return (path.startswith("/") and not plain.startswith("/")) or any(match_below(one, path) for one in each)
