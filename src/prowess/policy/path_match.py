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
    path, descends = args.get(traits.path_argument), traits.searches_below
    path = "." if path is None else path
    if not isinstance(path, str) or not is_plain_path(path):
        return not strict
    if strict:
        return any(_fits_certainly(pattern, path, descends=descends) for pattern in patterns)
    return any(_may_fit(pattern, path, descends=descends) for pattern in patterns)


def is_about_top(pattern: str) -> bool:
    """True when the pattern, in a rule that allows, matches nothing below a folder."""
    pattern = plain_pattern(pattern)
    return "/" not in pattern and "**" not in pattern


def _fits_certainly(pattern: str, path: str, *, descends: bool) -> bool:
    if not descends:
        return match_path(pattern, path)
    if plain_pattern(path) == ".":  # `*` would match the text "."
        return plain_pattern(pattern) in (".", "**")
    return match_path(pattern, path) or match_path(plain_pattern(pattern).removesuffix("/**"), path)


def _may_fit(pattern: str, path: str, *, descends: bool) -> bool:
    if path.startswith("skill://"):  # another name for the same files
        path = "skills/" + path.removeprefix("skill://")
    plain = plain_pattern(pattern)
    each = [plain, f"**/{plain}"] if "/" not in plain and plain != "." else [plain]
    if any(match_path(one, path) for one in each):
        return True
    if not descends:
        return False
    # In a sandbox the workspace has an absolute path that only the tool knows.
    return (path.startswith("/") and not plain.startswith("/")) or any(match_below(one, path) for one in each)
