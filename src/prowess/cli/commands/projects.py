"""Command `prowess projects`: shows, adopts and removes what the state folder keeps of projects."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from prowess.cli.app import Call, actions, ask_person, cli_command, confirm_removal
from prowess.runtime.config import find_places

if TYPE_CHECKING:
    from prowess.runtime.config import ConfigPlaces
    from prowess.runtime.documents.runs import (
        ProjectAdoptedDocument,
        ProjectRow,
        ProjectsDocument,
        ProjectsPrunedDocument,
    )
    from prowess.runtime.services.projects import KnownProject


@cli_command("list", example="prowess projects list\nprowess projects list --json")
def projects_list(call: Call) -> int:
    """Show the projects whose record is kept in your state folder, and where each one is.

    A project whose folder has gone is marked: it was removed, or moved to another disk.
    """
    from prowess.cli.screen import count, size
    from prowess.cli.timeline import short_time
    from prowess.core.findings import visible
    from prowess.runtime.services.projects import known_projects

    places = _places(call)
    known = known_projects(places.state_dir)
    if call.screen.is_json:
        document: ProjectsDocument = {
            "schema": "prowess.projects/1",
            "state_dir": places.state_dir,
            "projects": [_row(each) for each in known],
        }
        call.screen.document(document)
        return 0
    rows: list[list[str]] = []
    for each in known:
        used = short_time(each.used_at) if each.used_at else ""
        rows.append([each.path or "", each.status, used, size(each.size_bytes), each.id])
    call.screen.table(["folder", "status", "used", "size", "id"], rows)
    total = size(sum(each.size_bytes for each in known))
    call.screen.note(f"{count(len(known), 'project')} · {total} · {visible(places.state_dir)}")
    return 0


@cli_command("adopt", example="prowess projects adopt /old/path/of/app\nprowess projects adopt app-1f2e --yes")
@click.argument("project")
@click.option("--yes", is_flag=True, help="Do not ask.")
def adopt(call: Call, project: str, yes: bool) -> int:
    """Give the record of a project that has gone to the project here: its sessions, artifacts and eval runs.

    PROJECT is its old path, its id, or the beginning of its id. For a folder that was replaced at the same path, name
    the folder itself: then its earlier answers count again.
    """
    from prowess.core.findings import visible
    from prowess.errors import ConfigError
    from prowess.runtime.services.projects import adopt_project

    places = _places(call)
    if not yes:
        if not sys.stdin.isatty():
            problem = f"The record of {project[:200]} would belong to {places.project}, and nobody is there to say yes."
            raise ConfigError(problem, code="needs-yes", hint="Add --yes.")
        ask_person(
            f"Does the record of {visible(project)} belong to {visible(places.project)}? Answers in it will count.",
            unless="Nothing was changed.",
        )
    adopted = adopt_project(places, project)
    if call.screen.is_json:
        document: ProjectAdoptedDocument = {"schema": "prowess.project-adopted/1", "project": _row(adopted)}
        call.screen.document(document)
    else:
        call.screen.text(f"adopted  {visible(adopted.id)}  for {visible(adopted.path or '')}")
    return 0


@cli_command("prune", example="prowess projects prune --dry-run\nprowess projects prune --yes")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def prune(call: Call, dry_run: bool, yes: bool) -> int:
    """Remove the records of projects whose folder has gone: sessions, artifacts and eval runs, for good.

    A disk or share that is not there now looks gone, too.
    """
    from prowess.cli.screen import count, size
    from prowess.core.findings import visible
    from prowess.runtime.services.projects import known_projects, prune_projects

    places = _places(call)
    gone = [each for each in known_projects(places.state_dir) if each.status == "gone"]
    if gone and not (dry_run or yes):
        freed = size(sum(each.size_bytes for each in gone))
        what = f"the records of {count(len(gone), 'project')} ({freed}), for good"
        confirm_removal(what, paths=[each.path or each.id for each in gone])
    if not dry_run:
        removed = prune_projects(places.state_dir, [each.id for each in gone])
        gone = [each for each in gone if each.id in removed]
    if call.screen.is_json:
        document: ProjectsPrunedDocument = {
            "schema": "prowess.projects-pruned/1",
            "dry_run": dry_run,
            "removed": [_row(each) for each in gone],
        }
        call.screen.document(document)
        return 0
    word = "would remove" if dry_run else "removed"
    for each in gone:
        call.screen.text(f"{word}  {visible(each.path or '')}  {size(each.size_bytes)}")
    call.screen.note(f"{word} {count(len(gone), 'record')}")
    return 0


def _places(call: Call) -> ConfigPlaces:
    return find_places(call.cwd, os.environ)


def _row(known: KnownProject) -> ProjectRow:
    return {
        "id": known.id,
        "path": known.path,
        "status": known.status,
        "used_at": known.used_at,
        "size_bytes": known.size_bytes,
    }


command = actions(
    "projects",
    {"list": projects_list, "adopt": adopt, "prune": prune},
    help="Show, adopt and remove the records that are kept of projects.\n\nWithout an action, the list.",
    example="prowess projects\nprowess projects list --json\nprowess projects adopt /old/path/of/app",
)
