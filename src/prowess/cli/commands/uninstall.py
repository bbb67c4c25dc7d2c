"""Commands `prowess uninstall` and `prowess rollback`: remove installed skills, or return to the version before."""

from __future__ import annotations

import click

from prowess.cli.app import Call, cli_command, to_option


@cli_command(
    "uninstall", example="prowess uninstall pdf-forms\nprowess uninstall pdf-forms --source user --purge --yes"
)
@click.argument("names", nargs=-1, required=True, metavar="NAME…")
@click.option("--source", type=click.Choice(["project", "user"]), help="Where it is installed; the same as --to.")
@click.option("--to", metavar="project|user|DIR", help="Where it is installed.  [default: project]")
@click.option("--purge", is_flag=True, help="Keep no backup, and remove older ones.")
@click.option("--yes", is_flag=True, help="Do not ask; needed where nobody can answer.")
def _uninstall(call: Call, names: tuple[str, ...], source: str | None, to: str | None, purge: bool, yes: bool) -> int:
    """Remove installed skills, all of them or none, and keep a backup.

    Only what `prowess install` has installed is removed. prowess rollback NAME brings it back.
    """
    from prowess.cli.handlers.uninstall import uninstall

    return uninstall(call, names, source, to, purge, yes)


@cli_command("rollback", example="prowess rollback pdf-forms\nprowess rollback pdf-forms --to user")
@click.argument("name")
@to_option
@click.option("--digest", metavar="DIGEST", help="Restore this content, also if it is not known to be yours.")
def _rollback(call: Call, name: str, to: str, digest: str | None) -> int:
    """Return an installed skill to the version before, or bring back one that was uninstalled.

    A second rollback returns to the version of now. Five versions are kept. A backup that may have come with the
    repository is restored only by its digest.
    """
    from prowess.cli.handlers.uninstall import rollback

    return rollback(call, name, to, digest)


COMMANDS = {"uninstall": _uninstall, "rollback": _rollback}
