"""What a skill costs in tokens, once it is loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prowess._tokens import estimate
from prowess.skills.entry import Skill
from prowess.skills.prompt import cost_in_catalog, render_skill


def skill_tokens(skill: Skill, counter: Callable[[str], int] = estimate) -> dict[str, Any]:
    """Tokens of its entry in the catalog, and of what a load adds."""
    return {"catalog": cost_in_catalog(skill.entry, counter), "body": counter(render_skill(skill)), "exact": False}
