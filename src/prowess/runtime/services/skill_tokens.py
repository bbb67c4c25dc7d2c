"""Counts the tokens that a loaded skill costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prowess._internal.tokens import estimate
from prowess.skills.render import cost_in_catalog, render_skill
from prowess.skills.skill import Skill


def skill_tokens(skill: Skill, counter: Callable[[str], int] = estimate) -> dict[str, Any]:
    """Returns the tokens of its entry in the catalog, and of the text that a load adds."""
    return {"catalog": cost_in_catalog(skill.entry, counter), "body": counter(render_skill(skill)), "exact": False}
