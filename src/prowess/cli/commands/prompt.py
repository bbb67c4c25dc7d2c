"""Command `prowess prompt`: prints the catalog as a model is shown it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from prowess.cli.app import Call, cli_command, roots_option
from prowess.cli.screen import Screen, count, printable
from prowess.core.catalog_values import CatalogPlan
from prowess.core.codec import to_json
from prowess.runtime.runtime import check_model
from prowess.skills.render import FORMATS, Format, render_catalog

if TYPE_CHECKING:
    from prowess.runtime.documents.skills import PromptDocument


@cli_command(
    "prompt",
    example="prowess prompt\nprowess prompt --format markdown --budget 2000\nprowess prompt --plan --model openai:o3",
)
@click.option("--format", "format", type=click.Choice(FORMATS), default="xml", show_default=True)
@click.option(
    "--budget", type=click.IntRange(0), metavar="N", help="Tokens the catalog may take.  [default: 2 % of the window]"
)
@click.option("--model", metavar="MODEL", help="For the window of this model.  [default: as configured]")
@click.option("--plan", "as_plan", is_flag=True, help="Show the plan instead: what is shown, searchable and hidden.")
@click.option("--location/--no-location", "locations", default=False, help="Add the path of each SKILL.md.")
@roots_option
def command(
    call: Call,
    format: Format,
    budget: int | None,
    model: str | None,
    as_plan: bool,
    locations: bool,
    roots: tuple[str, ...],
) -> int:
    """Print exactly what a model is shown of the library.

    Nothing is printed when there are no skills to show, because the model gets nothing then.
    """
    check_model(model)
    screen = call.screen
    flags = {"model.provider": model} if model else None
    with call.runtime(roots=roots, flags=flags) as runtime:
        tokens, why = runtime.budget() if budget is None else (budget, "--budget")
        if model and budget is None and "is not known" in why:
            screen.note(f"warning: nothing is known about the model '{printable(model)}': the budget is {why}.")
        plan = runtime.offer(runtime.plan(budget_tokens=tokens))
        if as_plan:
            _show_plan(screen, plan, tokens, why)
            return 0
        text = render_catalog(runtime.catalog, plan, format=format, locations=locations)
        if screen.is_json:
            shown: PromptDocument = {
                "schema": "prowess.prompt/1",
                "format": format,
                "text": text,
                "plan": to_json(plan),
                "budget_why": why,
            }
            screen.document(shown)
            return 0
        if text:
            screen.text(text)
        if plan.searchable:
            skills = count(len(plan.searchable), "skill is", "skills are")
            screen.note(f"{skills} over the budget of {tokens} tokens ({why}) and found by search only.")
    return 0


def _show_plan(screen: Screen, plan: CatalogPlan, tokens: int, why: str) -> None:
    if screen.is_json:
        document = {"schema": "prowess.plan/1", **to_json(plan), "budget_why": why}
        screen.document(document)
        return
    screen.text(f"{plan.tokens.used} of {tokens} tokens (estimated; {why})")
    for kind in ("shown", "name_only", "searchable", "hidden"):
        ids = getattr(plan, kind)
        label = kind.replace("_", " ")
        screen.text(f"{label}: {len(ids)}")
        for id in ids:
            screen.text(f"  {id}")
