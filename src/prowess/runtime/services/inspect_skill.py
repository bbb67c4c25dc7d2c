"""Describes one skill, explains why a model sees it or not, and counts the tokens of skills and requests."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from prowess._internal.tokens import TokenCounter
from prowess.core.catalog_values import CatalogPlan, Finding
from prowess.core.tool_table import Profile
from prowess.errors import ConfigError, SkillError
from prowess.runtime.check import check_loaded
from prowess.runtime.kit_preview import fixed_prompt
from prowess.runtime.kit_session import render_schemas
from prowess.runtime.runtime import Runtime
from prowess.runtime.services.documents import finding_row, skill_row
from prowess.skills.render import skill_tokens
from prowess.skills.requirements import missing_requirements
from prowess.skills.skill import Entry, Skill, SkillFile
from prowess.tools.builtin import PROFILES

if TYPE_CHECKING:
    from prowess.runtime.documents.skills import FileRow, InPrompt, InspectDocument, WhyRow

_IN_PROMPT: tuple[InPrompt, ...] = ("shown", "name_only", "searchable", "hidden")


def inspect_skill(runtime: Runtime, entry: Entry) -> InspectDocument:
    """Returns the document of `prowess inspect`."""
    catalog = runtime.catalog
    skill, trouble = _try_to_load(runtime, entry)
    findings = [*catalog.findings_of(entry), *trouble]
    row = skill_row(catalog, entry)
    if skill:
        row["digest"] = skill.digest
        row["tokens"] = skill_tokens(skill)
        findings += check_loaded(skill)
    controls = entry.controls
    rows = [finding_row(finding) for finding in findings]
    return {
        "schema": "prowess.inspect/1",
        "skill": {
            **row,
            "qualified_name": entry.qualified,
            "declared_name": entry.declared or entry.name,
            "location": entry.location,
            "user_invocable": controls.user_invocable,
            "argument_hint": controls.argument_hint,
            "paths": list(controls.paths),
            "requires": {kind: list(items) for kind, items in controls.requires},
            "missing": missing_requirements(controls, runtime.environ, catalog.__contains__),
            "keywords": list(entry.keywords),
            "fields": dict(skill.fields) if skill else {},
            "files": [_file_row(file) for file in skill.files] if skill else [],
            "docs": list(skill.docs) if skill else [],
        },
        "why": _explain(runtime, entry),
        "findings": rows,
    }


def _file_row(file: SkillFile) -> FileRow:
    return {"path": file.path, "size_bytes": file.size_bytes, "executable": file.executable}


def _try_to_load(runtime: Runtime, entry: Entry) -> tuple[Skill | None, list[Finding]]:
    """Returns the skill, or the findings that say why it cannot be loaded."""
    seen = runtime.catalog.visibility(entry)
    if seen.status == "invalid":
        return None, []
    try:
        skill = runtime.load_entry(entry)
    except SkillError as error:
        findings = getattr(error, "findings", ())
        return None, list(findings)
    return skill, []


def _explain(runtime: Runtime, entry: Entry) -> WhyRow:
    """Explains whether a model sees the skill, and which rule or budget decided."""
    seen = runtime.catalog.visibility(entry)
    plan = runtime.plan()
    budget = plan.tokens.budget
    place: InPrompt = next(kind for kind in _IN_PROMPT if entry.id in getattr(plan, kind))
    reasons = list(seen.reasons)
    if place == "searchable":
        reasons.append(
            f"the catalog's budget of {budget} tokens has no room left for its description, after "
            f"{len(plan.shown)} skills that come first; the model finds it with skill_search"
        )
    refused = _refused(runtime, entry, plan)
    if refused:
        place = "hidden"
        reasons.append(refused)
    if not reasons:
        reasons.append("nothing restricts it, and the catalog's budget has room for it")
    return {
        "status": seen.status,
        "model_visible": seen.model_visible and not refused,
        "user_visible": seen.user_visible,
        "mode": seen.mode,
        "in_prompt": place,
        "reasons": reasons,
        "budget": {"budget": budget, "used": plan.tokens.used},
    }


def _refused(runtime: Runtime, entry: Entry, plan: CatalogPlan) -> str:
    """Returns why policy hides the skill from models; empty when it does not."""
    try:
        offered = runtime.offer(plan)
    except ConfigError as error:
        return f"no model is told anything while the policy is broken: {error.message}"
    if entry.id in offered.hidden and entry.id not in plan.hidden:
        return f"a rule denies it; which one: prowess policy check skill_load {entry.id}"
    return ""


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
    """Counts skills, each in the catalog and loaded."""
    return [_count_skill(runtime, entry, counter) for entry in entries]


def _count_skill(runtime: Runtime, entry: Entry, counter: TokenCounter) -> SkillTokens:
    """Counts a skill. One that cannot be loaded has only its estimated entry in the catalog."""
    try:
        skill = runtime.load_entry(entry)
    except SkillError:
        return SkillTokens(entry.id, entry.name, entry.catalog_tokens, None)
    tokens = skill_tokens(skill, counter)
    return SkillTokens(entry.id, entry.name, tokens["catalog"], tokens["body"])


def count_fixed(runtime: Runtime, counter: TokenCounter) -> dict[Profile, FixedTokens]:
    """Returns, per profile, the tokens of guidance and tool schemas, which every request carries."""
    return {profile: _count_profile(runtime, profile, counter) for profile in PROFILES}


def _count_profile(runtime: Runtime, profile: Profile, counter: TokenCounter) -> FixedTokens:
    """Counts the guidance and the tools of one profile, as Chat Completions takes them."""
    guidance, specs = fixed_prompt(runtime, profile)
    tools = render_schemas(specs, "openai")
    schemas = counter(json.dumps(tools, ensure_ascii=False, separators=(",", ":"))) if tools else 0
    of_guidance = counter(guidance)
    return FixedTokens(of_guidance, schemas, of_guidance + schemas)
