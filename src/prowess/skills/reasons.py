"""Reasons why somebody may not use a skill, for people to read."""

from __future__ import annotations

from prowess.core.catalog_values import Mode
from prowess.skills.skill import Entry, Visibility


def why_first(winner: Entry, loser: Entry) -> str:
    if winner.trusted and not loser.trusted:
        return "an untrusted skill never stands before a trusted one"
    if winner.source != loser.source:
        return f"{winner.source} before {loser.source}"
    if winner.root != loser.root:
        return f"found first, in {winner.root}"
    return f"found first, at {winner.path}"


def unusable(entry: Entry, fatal: list[str], mode: Mode) -> Visibility:
    """Returns the visibility of a skill with notes of these codes, which make it unusable."""
    denied = entry.find_note("digest-denied")
    if denied is not None:
        return Visibility("denied", (f"{denied.details['policy']} denies its content",), False, True, mode)
    why = f"its SKILL.md cannot be used: {', '.join(fatal)}"
    return Visibility("invalid", (why,), False, True, mode)


def why_untrusted(entry: Entry) -> str:
    if entry.find_note("accepted-changed"):
        return "it changed since you accepted it"
    if entry.source == "url":
        return "its content has not been accepted"
    if entry.source == "mcp":
        return "its server's skills have not been accepted"
    return "its folder is not trusted"
