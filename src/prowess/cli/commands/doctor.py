"""Command `prowess doctor`: reports on roots, findings, the installation and isolation."""

from __future__ import annotations

import click

from prowess.cli.app import Call, cli_command, roots_option


@cli_command("doctor", example="prowess doctor\nprowess doctor --workspace\nprowess doctor --root ./skills --json")
@click.option("--workspace", is_flag=True, help="Also try, for real, every way to run a script here.")
@roots_option
def command(call: Call, workspace: bool, roots: tuple[str, ...]) -> int:
    """Explain what was found, repaired, shadowed, skipped and missing.

    Shows what became of the skills of each root; then every finding, also those of the bodies; then this installation
    and the isolation that a script gets here. With --workspace, every kind of isolation is tried again. Exit code 1
    when there is a finding of level error, or, with --workspace, when nothing can run as configured.
    """
    from prowess.cli.handlers.doctor import doctor

    return doctor(call, workspace, roots)
