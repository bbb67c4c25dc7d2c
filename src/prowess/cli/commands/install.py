"""Commands `prowess install` and `prowess update`: bring skills onto this machine, after a person saw what they are."""

from __future__ import annotations

from typing import Any

import click

from prowess.cli.app import Call, cli_command, to_option

_dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would be done. Nothing is written.")
_yes_option = click.option("--yes", is_flag=True, help="Do not ask; needed where nobody can answer.")


@cli_command(
    "install",
    example="""
prowess install ./my-skills --dry-run
prowess install acme/skills@v1.2 --skill pdf-forms
prowess install https://example.com/skills.zip --to user
prowess install --frozen --yes""",
)
@click.argument("sources", nargs=-1, metavar="[SOURCE…]")
@to_option
@click.option("--skill", "skills", multiple=True, metavar="NAME", help="Only this skill of the source. Repeatable.")
@click.option("--as", "name", metavar="NAME", help="Install the only skill by another name.")
@click.option("--frozen", is_flag=True, help="Restore exactly what the lock says, or fail. For CI.")
@_dry_run_option
@click.option("--force", is_flag=True, help="Replace skills that were edited here. A backup is kept.")
@_yes_option
def _install(call: Call, sources: tuple[str, ...], to: str, **given: Any) -> int:
    """Install skills, after showing what they are, what they can do and what the checks found.

    SOURCE is a folder, an archive (.zip, .skill, .tar, .tar.gz, .tgz), the address of one, a git repository
    (owner/repo, https://….git, git@host:…, with @ref and #path), a site that publishes skills, or python:NAME. Without
    SOURCE, skills.lock is restored. A yes accepts exactly this content: models may use it.
    """
    from prowess.cli.handlers.install import install

    return install(call, sources, to, **given)


@cli_command("update", example="prowess update --dry-run\nprowess update pdf-forms\nprowess update --to user --yes")
@click.argument("names", nargs=-1, metavar="[NAME…]")
@to_option
@_dry_run_option
@click.option("--force", is_flag=True, help="Also update skills that were edited here. A backup is kept.")
@_yes_option
def _update(call: Call, names: tuple[str, ...], to: str, dry_run: bool, force: bool, yes: bool) -> int:
    """Bring installed skills to the newest content of their sources.

    Shows first which files and capabilities change. Without NAME, all skills. The version before is kept:
    prowess rollback NAME returns to it.
    """
    from prowess.cli.handlers.install import update

    return update(call, names, to, dry_run, force, yes)


COMMANDS = {"install": _install, "update": _update}
