"""Matches the paths of a call against a rule, including everything below: `grep` and `list_dir` read whole folders.

A rule that asks or denies `work/inputs/**` matches a search in `work/inputs`, in `work` and in the whole workspace. A
rule that allows it matches only a search that stays inside. A pattern without a slash (`*.sh`) means the name at any
depth in a rule that asks or denies, and only the top of the workspace in a rule that allows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prowess.core.tool_table import TOOLS
from prowess.policy.globs import is_plain_path, match_below, match_path, plain_pattern


def fits_path(patterns: Sequence[str], tool: str, args: Mapping[str, Any], *, strict: bool) -> bool:
    """True when one of the patterns matches. `strict` is for a rule that allows."""
    traits = TOOLS.get(tool)
    if traits is None or traits.path_argument is None:
        return False
    path = args.get(traits.path_argument)
    if path is None:
        path = "."
    if not isinstance(path, str) or not is_plain_path(path):
        return not strict
    fits = _fits_certainly if strict else _may_fit
    return any(fits(pattern, path, descends=traits.searches_below) for pattern in patterns)


def is_about_top(pattern: str) -> bool:
    """True when the pattern, in a rule that allows, matches nothing below a folder."""
    pattern = plain_pattern(pattern)
    return "/" not in pattern and "**" not in pattern


def _fits_certainly(pattern: str, path: str, *, descends: bool) -> bool:
    if not descends:
        return match_path(pattern, path)
    plain = plain_pattern(pattern)
    if plain_pattern(path) == ".":  # `*` would match the text "."
        return plain in (".", "**")
    return match_path(pattern, path) or match_path(plain.removesuffix("/**"), path)


def _may_fit(pattern: str, path: str, *, descends: bool) -> bool:
    if path.startswith("skill://"):  # another name for the same files
        path = "skills/" + path.removeprefix("skill://")
    plain = plain_pattern(pattern)
    meant = [plain]
    if "/" not in plain and plain != ".":
        meant.append(f"**/{plain}")
    if any(match_path(each, path) for each in meant):
        return True
    if not descends:
        return False
    # In a sandbox the workspace has an absolute path that only the tool knows.
    if path.startswith("/") and not plain.startswith("/"):
        return True
    return any(match_below(each, path) for each in meant)
