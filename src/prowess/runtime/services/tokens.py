"""Counts the tokens of skills, and of the guidance and tool schemas in every request."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from prowess._internal.tokens import TokenCounter
from prowess.errors import SkillError
from prowess.runtime.factories import fixed_prompt
from prowess.runtime.runtime import Runtime
from prowess.skills.render import cost_in_catalog, render_skill
from prowess.skills.skill import Entry
from prowess.tools.profiles import PROFILES, Profile


class SkillTokens(NamedTuple):
    id: str
    name: str
    catalog: int
    body: int | None  # None when the skill cannot be loaded; doctor says why


class FixedTokens(NamedTuple):
    guidance: int
    schemas: int
    tokens: int  # both


def count_skills(runtime: Runtime, entries: Iterable[Entry], counter: TokenCounter) -> list[SkillTokens]:
    return [_count_skill(runtime, entry, counter) for entry in entries]


def _count_skill(runtime: Runtime, entry: Entry, counter: TokenCounter) -> SkillTokens:
    try:
        skill = runtime.load_entry(entry)
    except SkillError:
        return SkillTokens(entry.id, entry.name, entry.catalog_tokens, None)
    return SkillTokens(entry.id, entry.name, cost_in_catalog(skill.entry, counter), counter(render_skill(skill)))


def count_fixed(runtime: Runtime, counter: TokenCounter) -> dict[Profile, FixedTokens]:
    """Returns, per profile, the tokens of guidance and tool schemas, which every request carries."""
    return {profile: _count_profile(runtime, profile, counter) for profile in PROFILES}


def _count_profile(runtime: Runtime, profile: Profile, counter: TokenCounter) -> FixedTokens:
    guidance, specs = fixed_prompt(runtime, profile)
    told = [{"name": spec.name, "description": spec.description, "parameters": spec.parameters} for spec in specs]
    schemas = sum(counter(json.dumps(each, ensure_ascii=False, separators=(",", ":"))) for each in told)
    of_guidance = counter(guidance)
    return FixedTokens(of_guidance, schemas, of_guidance + schemas)
