"""A file that nobody has trusted may only make things stricter than they are without it.

So every field it may touch has one direction, and a value that does not go that way is left out; a field without a
direction is never taken from such a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_STRICTNESS = ("pin", "auto", "name-only", "manual", "off")

# The least that 2 % of a context window usually is: with no number to compare with, more might not be lower.
_USUAL_BUDGET_TOKENS = 4_000
_MOST_NAMED = 20  # a hostile file could hold a hundred thousand patterns


def tighten(below: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Of the wanted settings, those that are stricter than what is below; and the names of the others, in order."""
    kept: dict[str, Any] = {}
    ignored: list[str] = []
    for name, value in wanted.items():
        if name == "skills.modes":
            kept[name] = _stricter_modes(below[name], value)
            left_out = [f"{name}.{pattern}" for pattern in value if pattern not in kept[name]]
            ignored += left_out if len(left_out) <= _MOST_NAMED else [name]
            continue
        if rule := _RULES.get(name):
            fits = rule(below[name], value)
            if fits:
                kept[name] = tuple(dict.fromkeys((*below[name], *value))) if rule is _adds else value
        else:
            fits = value == below.get(name)
        if not fits:
            ignored.append(name)
    return kept, ignored


def _stricter_modes(below: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    """Patterns overlap, and the narrower one wins: so none may be milder than the strictest that is there already."""
    least = max(map(_STRICTNESS.index, ("name-only", *below.values())))
    return {pattern: mode for pattern, mode in wanted.items() if _STRICTNESS.index(mode) >= least}


def _lowers(below: float | None, wanted: float | None) -> bool:
    """None is no bound at all."""
    return below is None or (wanted is not None and wanted <= below)


def _lowers_budget(below: int | None, wanted: int | None) -> bool:
    return wanted == below or _lowers(_USUAL_BUDGET_TOKENS if below is None else below, wanted)


def _turns_on(below: bool, wanted: bool) -> bool:
    return wanted or not below


def _adds(below: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    """A list is added to, never replaced."""
    return True


_RULES: dict[str, Callable[[Any, Any], bool]] = {
    "execution.require_approval_for": _adds,
    "security.max_skill_body_lines": _lowers,
    "security.block_angle_brackets_in_frontmatter": _turns_on,
    "skills.max_loaded": _lowers,
    "skills.max_bodies_per_turn": _lowers,
    "skills.budget": _lowers_budget,
    "workspace.require_isolation": _turns_on,
    "workspace.require": _adds,
    "workspace.inline_bytes": _lowers,
    "workspace.commands_deny": _adds,
    "limits.turns": _lowers,
    "limits.calls": _lowers,
    "limits.scripts": _lowers,
    "limits.tokens": _lowers,
    "limits.seconds": _lowers,
    "limits.cost": _lowers,
}
