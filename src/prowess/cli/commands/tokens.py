"""Command `prowess tokens`: counts the tokens of skills, catalog and tool schemas."""

from __future__ import annotations

import json
from typing import Any

import click

from prowess._internal.tokens import TokenCounter, get_counter
from prowess.cli.app import Call, roots_option, verb
from prowess.errors import SkillError
from prowess.runtime.factories import fixed_prompt
from prowess.runtime.runtime import Runtime
from prowess.runtime.services.documents import rough_tokens
from prowess.runtime.services.skill_tokens import skill_tokens
from prowess.skills.load import load_entry
from prowess.skills.skill import Entry
from prowess.tools.profiles import PROFILES, Profile


@verb("tokens", example="prowess tokens\nprowess tokens csv-report --exact")
@click.argument("names", nargs=-1, metavar="[NAME…]")
@click.option("--exact", is_flag=True, help="Count with a real vocabulary (o200k); needs prowess[tokens].")
@roots_option
def command(call: Call, names: tuple[str, ...], exact: bool, roots: tuple[str, ...]) -> int:
    """Count what skills cost in tokens.

    For each skill: its entry in the catalog, which every request carries, and its body, which a load adds.
    """
    counter = get_counter(exact)
    with call.runtime(roots=roots) as runtime:
        catalog = runtime.catalog
        plan = runtime.plan(counter=counter)
        chosen = [catalog.get(name) for name in names] or [e for e in catalog if catalog.visibility(e).model_visible]
        with call.screen.working("Counting"):
            rows = [_row(runtime, entry, counter) for entry in chosen]
            shown = plan.tokens.used
            fixed = {profile: _fixed(runtime, profile, counter) for profile in PROFILES}
        document = {
            "schema": "prowess.tokens/1",
            "method": counter.method,
            "exact": counter.exact,
            "catalog": {"tokens": shown, "budget": plan.tokens.budget, "shown": len(plan.shown)},
            "fixed": fixed,
            "skills": rows,
        }
        if call.screen.is_json:
            call.screen.document(document)
            return 0
        if rows:
            call.screen.table(
                ["catalog", "body", "name"],
                [[str(row["catalog"]), "-" if row["body"] is None else str(row["body"]), row["name"]] for row in rows],
            )
        call.screen.note(
            f"\nThe catalog takes {shown} of {plan.tokens.budget} tokens for {len(plan.shown)} skills "
            f"({counter.method}{'' if counter.exact else '; --exact counts with a real vocabulary'})."
        )
        profile = runtime.config.tools.profile
        others = ", ".join(f"{name} {cost['tokens']}" for name, cost in fixed.items() if name != profile)
        call.screen.note(
            f"Guidance and tool schemas take another {fixed[profile]['tokens']} tokens of every request "
            f"(profile {profile}; {others})."
        )
    return 0


def _fixed(runtime: Runtime, profile: Profile, counter: TokenCounter) -> dict[str, int]:
    """Returns the tokens of guidance and tool schemas, which every request carries."""
    guidance, specs = fixed_prompt(runtime, profile)
    told = [{"name": s.name, "description": s.description, "parameters": s.parameters} for s in specs]
    schemas = sum(counter(json.dumps(each, ensure_ascii=False, separators=(",", ":"))) for each in told)
    return {"guidance": counter(guidance), "schemas": schemas, "tokens": counter(guidance) + schemas}


def _row(runtime: Runtime, entry: Entry, counter: TokenCounter) -> dict[str, Any]:
    try:
        skill = runtime.catalog.memory_skill(entry) or load_entry(entry)
    except SkillError:  # shown as '-'; doctor says why
        return {"id": entry.id, "name": entry.name, "catalog": rough_tokens(entry)["catalog"], "body": None}
    tokens = skill_tokens(skill, counter)
    return {"id": entry.id, "name": entry.name, "catalog": tokens["catalog"], "body": tokens["body"]}
