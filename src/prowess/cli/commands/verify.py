"""Command `prowess verify`: compares installed skills with the lock, and packs with their manifest."""

from __future__ import annotations

import click

from prowess.cli.app import Call, cli_command, to_option


@cli_command("verify", example="prowess verify --all\nprowess verify pdf-forms\nprowess verify ./skills.zip")
@click.argument("targets", nargs=-1, metavar="[NAME|FILE|DIR…]")
@click.option("--all", "everything", is_flag=True, help="All installed skills. The default without NAME, FILE or DIR.")
@to_option
def command(call: Call, targets: tuple[str, ...], everything: bool, to: str) -> int:
    """Compare installed skills with the lock, or an archive or a folder with its manifest.

    Prints the digest of each. Every file is read and hashed. Exit code 1 when anything differs.
    """
    from prowess.cli.handlers.verify import verify

    return verify(call, targets, everything, to)
