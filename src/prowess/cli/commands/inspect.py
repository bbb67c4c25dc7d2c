"""Command `prowess inspect`: shows one skill, and why a model sees it or not."""

from __future__ import annotations

import click

from prowess.cli.app import Call, cli_command, roots_option, source_option


@cli_command("inspect", example="prowess inspect csv-report\nprowess inspect csv-report --why")
@click.argument("name")
@click.option("--why", is_flag=True, help="Only: is it visible to the model, and which rule or budget decided.")
@source_option
@roots_option
def command(call: Call, name: str, why: bool, source: str | None, roots: tuple[str, ...]) -> int:
    """Show everything about one skill, and why it is or is not visible.

    NAME is a name or an id such as project:csv-report.
    """
    from prowess.cli.handlers.inspect import inspect

    return inspect(call, name, why, source, roots)
