"""Command `prowess evals`: writes starter cases, and shows and compares eval runs."""

from __future__ import annotations

import click

from prowess.cli.app import Call, actions, cli_command


@cli_command("list", example="prowess evals list")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="At most so many.")
def _list(call: Call, limit: int) -> int:
    """Show the eval runs there are, the last one first."""
    from prowess.cli.handlers.evals import list_evals

    return list_evals(call, limit)


@cli_command("show", example="prowess evals show latest\nprowess evals show report.json")
@click.argument("run", metavar="RUN|FILE")
def _show(call: Call, run: str) -> int:
    """Show an eval run again, by its id, `latest`, or a report in JSON."""
    from prowess.cli.handlers.evals import show

    return show(call, run)


@cli_command("diff", example="prowess evals diff before.json latest")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
def _diff(call: Call, before: str, after: str) -> int:
    """Compare eval run B with A: better, worse, inconclusive or same. Exit code 1 if B is worse."""
    from prowess.cli.handlers.evals import diff

    return diff(call, before, after)


@cli_command("init", example="prowess evals init pdf-forms")
@click.argument("skill", metavar="SKILL|DIR")
def _init(call: Call, skill: str) -> int:
    """Write starter cases for a skill, into its folder evals/."""
    from prowess.cli.handlers.evals import init

    return init(call, skill)


COMMANDS = {
    "evals": actions(
        "evals",
        {"list": _list, "init": _init, "show": _show, "diff": _diff},
        help="Write starter cases; show and compare eval runs. Every action takes --json.",
        example="prowess evals init pdf-forms\nprowess evals show latest\nprowess evals diff before.json latest",
    )
}
