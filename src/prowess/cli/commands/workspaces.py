"""Command `prowess workspaces`: lists and cleans workspaces, packages and published skills; builds the image."""

from __future__ import annotations

from typing import Any

import click

from prowess.cli.app import Call, cli_command


@cli_command(
    "workspaces",
    example="prowess workspaces list\nprowess workspaces clean --older-than 7d\nprowess workspaces clean --keep 2G\n"
    "prowess workspaces build-image",
)
@click.argument("action", type=click.Choice(["list", "clean", "build-image"]), default="list")
@click.option("--older-than", metavar="AGE", help="Clean what was not used for so long: 12h, 7d, 4w.")
@click.option("--keep", metavar="SIZE", help="Clean the oldest until what is left has no more than this: 500M, 2G.")
@click.option("--all", "everything", is_flag=True, help="Clean all that are not in use.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--from", "base", metavar="IMAGE", help="For build-image: use this image as it is.")
@click.option("--offline", is_flag=True, help="For build-image: download nothing, use the packages of this machine.")
@click.option("--tag", metavar="NAME", default="prowess-box", show_default=True, help="For build-image: its name.")
def command(call: Call, action: str, **given: Any) -> int:
    """Show and clean what sessions have left on disk; build the image for containers.

    These are workspaces, packages that were installed for scripts, and published skills. What is in use is never
    cleaned, nor is a published skill that a session may go on from. Artifacts and records are kept elsewhere and stay.
    """
    from prowess.cli.handlers.workspaces import workspaces

    return workspaces(call, action, **given)
