"""Command `prowess tokens`: counts the tokens of skills, catalog and tool schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from prowess._internal.tokens import get_counter
from prowess.cli.app import Call, cli_command, roots_option
from prowess.core.codec import to_json
from prowess.runtime.services.inspect_skill import count_fixed, count_skills

if TYPE_CHECKING:
    from prowess.runtime.documents.skills import TokensDocument


@cli_command("tokens", example="prowess tokens\nprowess tokens csv-report --exact")
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
            rows = count_skills(runtime, chosen, counter)
            fixed = count_fixed(runtime, counter)
        shown = plan.tokens.used
        document: TokensDocument = {
            "schema": "prowess.tokens/1",
            "method": counter.method,
            "exact": counter.exact,
            "catalog": {"tokens": shown, "budget": plan.tokens.budget, "shown": len(plan.shown)},
            "fixed": to_json(fixed),
            "skills": to_json(rows),
        }
        if call.screen.is_json:
            call.screen.document(document)
            return 0
        if rows:
            call.screen.table(
                ["catalog", "body", "name"],
                [[str(row.catalog), "-" if row.body is None else str(row.body), row.name] for row in rows],
            )
        call.screen.note(
            f"\nThe catalog takes {shown} of {plan.tokens.budget} tokens for {len(plan.shown)} skills "
            f"({counter.method}{'' if counter.exact else '; --exact counts with a real vocabulary'})."
        )
        profile = runtime.config.tools.profile
        others = ", ".join(f"{name} {cost.tokens}" for name, cost in fixed.items() if name != profile)
        call.screen.note(
            f"Guidance and tool schemas take another {fixed[profile].tokens} tokens of every request "
            f"(profile {profile}; {others})."
        )
    return 0
