"""Command `prowess new`: writes a skill from a template."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from prowess.cli.app import Call, cli_command
from prowess.core.findings import visible
from prowess.runtime.config import find_places
from prowess.runtime.services.scaffold import write_skill

if TYPE_CHECKING:
    from prowess.runtime.documents.skills import NewDocument


@cli_command(
    "new", example='prowess new csv-report\nprowess new csv-report --to ./skills -d "Charts from CSV. Use when …"'
)
@click.argument("name")
@click.option(
    "--to", "to", metavar="DIR", help="The folder that holds skills.  [default: .agent/skills of the project]"
)
@click.option("-d", "--description", help="What it does and when to use it.")
def command(call: Call, name: str, to: str | None, description: str | None) -> int:
    """Write a new skill from a template.

    The template has the six parts that make a skill easy to follow and to test: Goal, Inputs and outputs, Steps,
    Failure modes, Checklist, Resources.
    """
    places = find_places(call.cwd, os.environ)
    base = places.project
    folder = os.path.join(base, ".agent", "skills")
    if to:
        base = call.cwd
        folder = os.path.join(base, to)
    made = write_skill(name, folder, description, base=base)
    if call.screen.is_json:
        document: NewDocument = {
            "schema": "prowess.new/1",
            "name": made.name,
            "path": made.folder,
            "file": made.file,
        }
        call.screen.document(document)
    else:
        call.screen.text(visible(made.file))
        call.screen.note(f"Write its description and steps, then run: prowess validate {visible(made.folder)}")
    return 0
