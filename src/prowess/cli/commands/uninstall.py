"""Commands `prowess uninstall` and `prowess rollback`: remove installed skills, or return to the version before."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

import click

from prowess.cli.app import Call, cli_command, confirm_removal
from prowess.cli.pack_calls import other_place_hint, pack_options, to_option
from prowess.cli.pack_plan import file_changes, rollback_commands, shown_path, version_change
from prowess.cli.screen import count
from prowess.core.codec import to_json
from prowess.core.findings import visible
from prowess.errors import ConfigError
from prowess.packs import api
from prowess.packs.lock import find_place, read_lock
from prowess.packs.remove import Removed
from prowess.runtime.config import find_places

if TYPE_CHECKING:
    from prowess.runtime.documents.packs import RolledBackDocument, UninstalledDocument


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
    if to == "" or (source and to and source != to):
        raise ConfigError("--source and --to name two places.", code="usage", hint="Use one of them.")
    where = call.options["to"] = to or source or "project"
    place = find_place(where, find_places(call.cwd, os.environ))
    lock = read_lock(place)
    if not yes and all(name in lock for name in names):  # the others are refused below, with a reason
        folders = [shown_path(call, place.folder(name)) for name in names]
        lost = ", with all backups" if purge else ""
        confirm_removal(f"{_named(names)}{lost}", hint="Add --yes.", paths=folders)
    with other_place_hint(call, names, where):
        removed = api.uninstall(*names, purge=purge, **pack_options(call, where))
    if call.screen.is_json:
        document: UninstalledDocument = {
            "schema": "prowess.uninstalled/1",
            "purged": purge,
            "removed": to_json(removed),
        }
        call.screen.document(document)
    else:
        _show_removed(call, removed)
    return 0


def _show_removed(call: Call, removed: list[Removed]) -> None:
    for each in removed:
        call.screen.text(f"removed  {visible(shown_path(call, each.path))}")
    kept = [each.name for each in removed if each.backup is not None]
    if kept:
        call.screen.note(f"Undo: {' && '.join(rollback_commands(call, kept))}")
    else:
        call.screen.note("No backup was kept.")


@cli_command("rollback", example="prowess rollback pdf-forms\nprowess rollback pdf-forms --to user")
@click.argument("name")
@to_option
def _rollback(call: Call, name: str, to: str) -> int:
    """Return an installed skill to the version before, or bring back one that was uninstalled.

    A second rollback returns to the version of now. Five versions are kept.
    """
    with other_place_hint(call, [name], to):
        done = api.rollback(name, **pack_options(call, to))
    if call.screen.is_json:
        document: RolledBackDocument = {
            "schema": "prowess.rolled-back/1",
            "name": done.name,
            "path": done.path,
            "digest": done.digest,
            "digest_before": done.before.digest if done.before else None,
            "version": done.now.version if done.now else None,
            "version_before": done.before.version if done.before else None,
            "source": done.now.source if done.now else None,
            "changes": to_json(done.files),
        }
        call.screen.document(document)
        return 0
    versions = version_change(done.before, done.now)
    changed = file_changes(done.files) or "nothing changes"
    call.screen.text(f"rolled back  {visible(done.name)}{versions}  {visible(shown_path(call, done.path))}")
    call.screen.text(f"  {changed}")
    if done.now is None:
        call.screen.note("This version was not installed by Prowess, so the lock has no entry for it.")
    was_there = done.before is not None or any(file.kind != "added" for file in done.files)
    if was_there or done.now is not None:
        undo = call.follow_up("prowess rollback" if was_there else "prowess uninstall")
        call.screen.note(f"Undo: {undo} {shlex.quote(done.name)}")
    return 0


COMMANDS = {"uninstall": _uninstall, "rollback": _rollback}


def _named(names: tuple[str, ...]) -> str:
    return f"the skill '{names[0]}'" if len(names) == 1 else count(len(names), "skill")
