"""Command `prowess pack`: writes skills into one archive that others can install."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from prowess.cli.app import Call, cli_command
from prowess.cli.pack_plan import shown_path
from prowess.cli.screen import count, size
from prowess.core.findings import visible
from prowess.packs import api
from prowess.packs.bundle import WrittenPack
from prowess.runtime.services.documents import finding_row

if TYPE_CHECKING:
    from prowess.runtime.documents.packs import PackedDocument


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
    with call.screen.working("Packing"):
        made = api.pack(*folders, output=output, force=force, cwd=call.cwd)
    if call.screen.is_json:
        document: PackedDocument = {
            "schema": "prowess.packed/1",
            "path": made.path,
            "sha256": made.sha256,
            "size_bytes": made.size_bytes,
            "skills": [
                {
                    "name": skill.name,
                    "version": skill.version,
                    "digest": skill.digest,
                    "files": len(skill.files),
                    "findings": [finding_row(finding) for finding in skill.findings],
                }
                for skill in made.skills
            ],
            "left_out": list(made.left_out),
        }
        call.screen.document(document)
    else:
        _show(call, made)
    return 0


def _show(call: Call, made: WrittenPack) -> None:
    screen, path = call.screen, shown_path(call, made.path)
    rows = [[skill.name, skill.version or "-", str(len(skill.files)), skill.digest] for skill in made.skills]
    screen.table(["skill", "version", "files", "digest"], rows)
    screen.text(f"\n{visible(path)}  {size(made.size_bytes)}\nsha256  {made.sha256}")
    for name in made.left_out:
        screen.note(f"left out: {visible(name)}")
    for skill in made.skills:
        problems = [finding for finding in skill.findings if finding.severity != "info"]
        if problems:
            screen.note(f"{visible(skill.name)}: {count(len(problems), 'finding')}")
            screen.findings(problems)
    screen.note(f"Install it with: {shlex.join(['prowess', 'install', *call.where(), path])}")
