"""Command `prowess tokens`: counts the tokens of skills, catalog and tool schemas."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from prowess.cli.app import Call, cli_command, roots_option
from prowess.cli.screen import Screen, count
from prowess.skills.catalog import Catalog
from prowess.skills.skill import Entry

if TYPE_CHECKING:
    from prowess.core.tool_table import Profile
    from prowess.runtime.documents.skills import TokensDocument
    from prowess.runtime.services.inspect_skill import FixedTokens, SkillTokens


@cli_command("tokens", example="prowess tokens\nprowess tokens csv-report --exact\nprowess tokens ./my-skill")
@click.argument("names", nargs=-1, metavar="[NAME|PATH…]")
@click.option("--exact", is_flag=True, help="Count with a real vocabulary (o200k); needs prowess[tokens].")
@roots_option
def command(call: Call, names: tuple[str, ...], exact: bool, roots: tuple[str, ...]) -> int:
    """Count what skills cost in tokens.

    For each skill: its entry in the catalog, which every request carries, and its body, which a load adds.
    """
    from prowess._internal.tokens import get_counter
    from prowess.core.codec import to_json
    from prowess.runtime.services.inspect_skill import count_fixed, count_skills

    counter = get_counter(exact)
    paths = _find_folders(call.cwd, names)
    if paths:
        roots = (*(roots or ("default",)), *paths.values())
    with call.runtime(roots=roots) as runtime:
        plan = runtime.plan(counter=counter)
        chosen = _chosen(runtime.catalog, names, paths)
        with call.screen.working("Counting"):
            rows = count_skills(runtime, chosen, counter)
            fixed = count_fixed(runtime, counter)
        profile = runtime.config.tools.profile
    budget = plan.tokens.budget
    used = plan.tokens.used
    shown = len(plan.shown)
    skills = count(shown, "skill")
    if call.screen.is_json:
        document: TokensDocument = {
            "schema": "prowess.tokens/1",
            "method": counter.method,
            "exact": counter.exact,
            "catalog": {"tokens": used, "budget": budget, "shown": shown},
            "fixed": to_json(fixed),
            "skills": to_json(rows),
        }
        call.screen.document(document)
        return 0
    _show_rows(call.screen, rows)
    method = counter.method
    if not counter.exact:
        method += "; --exact counts with a real vocabulary"
    call.screen.note(f"\nThe catalog takes {used} of {budget} tokens for {skills} ({method}).")
    _show_fixed(call.screen, fixed, profile)
    return 0


def _find_folders(cwd: str, names: Sequence[str]) -> dict[str, str]:
    """Returns the folder of each name that is the path of a skill. A name with a slash can also be `org/skill-name`."""
    found: dict[str, str] = {}
    for name in names:
        path = os.path.realpath(os.path.join(cwd, name))
        file = os.path.join(path, "SKILL.md")
        if os.sep in name and os.path.isfile(file):
            found[name] = path
    return found


def _chosen(catalog: Catalog, names: Sequence[str], paths: Mapping[str, str]) -> list[Entry]:
    """Returns the skills with these names, or in the folders of these names. Without names, those that models see."""
    if names:
        at = {os.path.realpath(entry.path): entry for entry in catalog}
        return [at.get(paths.get(name, "")) or catalog.get(name) for name in names]
    return [skill for skill in catalog if catalog.visibility(skill).model_visible]


def _show_rows(screen: Screen, rows: Sequence[SkillTokens]) -> None:
    cells: list[list[str]] = []
    for row in rows:
        body = "-" if row.body is None else str(row.body)
        cells.append([str(row.catalog), body, row.name])
    if cells:
        screen.table(["catalog", "body", "name"], cells)


def _show_fixed(screen: Screen, fixed: Mapping[Profile, FixedTokens], profile: Profile) -> None:
    """Shows the tokens that every request takes, in this profile and in the others."""
    others = [f"{name} {cost.tokens}" for name, cost in fixed.items() if name != profile]
    listed = ", ".join(others)
    schemas, guidance, tokens = fixed[profile].schemas, fixed[profile].guidance, fixed[profile].tokens
    told = f"tools {schemas} + guidance {guidance} = {tokens} tokens"
    screen.note(f"Every request also carries {told} (profile {profile}; {listed}).")
