"""Command `prowess pack`: writes skills into one archive that others can install."""

from __future__ import annotations

import click

from prowess.cli.app import Call, cli_command


@cli_command(
    "pack",
    example="prowess pack ./pdf-forms -o pdf-forms.skill\nprowess pack ./skills ../more/csv-report -o skills.zip",
)
@click.argument("folders", nargs=-1, required=True, metavar="DIR…")
@click.option("-o", "--output", required=True, metavar="FILE", help="A .zip, or a .skill for one skill.")
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
def command(call: Call, folders: tuple[str, ...], output: str, force: bool) -> int:
    """Write skills into one archive with a manifest.

    DIR is a skill, or a folder of skills. The same skills give the same bytes on every machine. manifest.json has the
    sha256, size and mode of each file.
    """
    from prowess.cli.handlers.pack import pack

    return pack(call, folders, output, force)
