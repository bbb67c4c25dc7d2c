"""Command `prowess artifacts`: lists, reads, saves and removes the files that runs have saved."""

from __future__ import annotations

from typing import Any

import click

from prowess.cli.app import Call, actions, cli_command


def _whose(function: Any) -> Any:
    """Adds the options for tenant, app and user. The defaults are those of every run on this command line."""
    for name in ("tenant", "app", "user"):
        option = click.option(f"--{name}", default="default", show_default=True, help=f"Those of this {name}.")
        function = option(function)
    return function


@cli_command("list", example="prowess artifacts list\nprowess artifacts list --session s-1f2e --json")
@click.option("--session", metavar="ID", help="Only those of this session, and the user's own.")
@_whose
def artifacts_list(call: Call, session: str | None, **whose: str) -> int:
    """Show what was saved: by every session, and for the user.

    A name that begins with user: belongs to the user and is seen from all sessions.
    """
    from prowess.cli.handlers.artifacts import show_artifacts

    return show_artifacts(call, session, **whose)


@cli_command(
    "get", example="prowess artifacts get report.md\nprowess artifacts get artifact://chart.png@2 -o chart.png"
)
@click.argument("ref")
@click.option("-o", "--output", metavar="FILE", help="Write it there, whole or not at all; - is stdout.")
@click.option("--force", is_flag=True, help="Replace FILE if there is one.")
@click.option("--session", metavar="ID", help="That of this session; needed when several have one of that name.")
@_whose
def get(call: Call, ref: str, output: str | None, force: bool, session: str | None, **whose: str) -> int:
    """Print a saved file, or write it somewhere.

    REF is artifact://NAME@VERSION or just NAME; without a version it is the newest. Text is printed; anything else
    needs -o FILE or a pipe.
    """
    from prowess.cli.handlers.artifacts import get

    return get(call, ref, output, force, session, **whose)


@cli_command(
    "put",
    example="prowess artifacts put report.pdf\n"
    "prowess artifacts put chart.png --name charts/2024.png --session s-1f2e\n"
    "date | prowess artifacts put - --name user:when.txt",
)
@click.argument("file")
@click.option("--name", help="Save it as this.  [default: the name of FILE]")
@click.option("--mime", metavar="TYPE", help="What kind of content it is.  [default: by name and content]")
@click.option("--session", metavar="ID", default="default", show_default=True, help="For this session.")
@_whose
def put(call: Call, file: str, name: str | None, mime: str | None, session: str, **whose: str) -> int:
    """Save a file as a new version of an artifact, and print its reference.

    FILE can be - for stdin. What was saved before stays, under its own version.
    """
    from prowess.cli.handlers.artifacts import put

    return put(call, file, name, mime, session, **whose)


@cli_command("rm", example="prowess artifacts rm report.md@0\nprowess artifacts rm report.md chart.png --all-versions")
@click.argument("refs", nargs=-1, required=True, metavar="REF…")
@click.option("--all-versions", is_flag=True, help="Remove every version of each.")
@click.option("--session", metavar="ID", help="That of this session; needed when several have one of that name.")
@_whose
def rm(call: Call, refs: tuple[str, ...], all_versions: bool, session: str | None, **whose: str) -> int:
    """Remove a version of an artifact, or all of them.

    REF is artifact://NAME@VERSION or NAME@VERSION, with --all-versions just NAME. The number of a removed version is
    not given again. When one of several is not there, nothing is removed.
    """
    from prowess.cli.handlers.artifacts import remove

    return remove(call, refs, all_versions, session, **whose)


command = actions(
    "artifacts",
    {"list": artifacts_list, "get": get, "put": put, "rm": rm},
    help="Show, read, save and remove the files that runs have saved.\n\n"
    "Every version of a file is kept. Without an action, the list.",
    example="prowess artifacts list --json\nprowess artifacts get report.md@0 -o report.md",
)
