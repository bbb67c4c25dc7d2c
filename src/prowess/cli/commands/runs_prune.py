"""Action `prowess runs prune`: removes the folders of old runs, and old sessions on request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import click

from prowess.cli.app import Call, cli_command, confirm_removal
from prowess.cli.call import note_findings
from prowess.cli.commands.workspaces import parse_age
from prowess.cli.screen import Screen, count, size
from prowess.core.findings import visible
from prowess.errors import ConfigError
from prowess.runtime.services.cleanup import OldRecords, find_old_records, remove_records


@cli_command(
    "prune", example="prowess runs prune --older-than 30d\nprowess runs prune --older-than 90d --sessions --yes"
)
@click.option("--older-than", metavar="AGE", help="Of runs that ended so long ago: 12h, 30d, 4w.")
@click.option("--keep", type=click.IntRange(0), metavar="N", help="But not the last N runs.")
@click.option("--sessions", is_flag=True, help="Whole sessions from the log as well, if their last run is that old.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def prune(call: Call, older_than: str | None, keep: int | None, sessions: bool, dry_run: bool, yes: bool) -> int:
    """Remove the folders of old runs; those of runs that are going on are kept.

    The log keeps what was in them. With --sessions, sessions that are that old are removed from the log, too, for good.
    Workspaces and artifacts stay; see: prowess workspaces clean, prowess sessions delete --files.
    """
    age = parse_age(older_than)
    if age is None and keep is None:
        raise ConfigError("Say which runs are old.", code="usage", hint="--older-than 30d, or --keep 100.")
    with call.runtime() as runtime:
        note_findings(call, runtime)
        before = time.time() - (age or 0.0)
        old = asyncio.run(find_old_records(runtime, before=before, keep=keep or 0, with_sessions=sessions))
        if not dry_run and not yes and (old.copies or old.sessions):
            confirm_removal(_what(old), paths=[each.path for each in old.copies])
        removed, kept = asyncio.run(remove_records(runtime, old, dry_run=dry_run))
    if call.screen.is_json:
        document = {
            "dry_run": dry_run,
            "removed": [{"run": each.run, "path": each.path, "size_bytes": each.size_bytes} for each in removed.copies],
            "sessions": [key.session for key in removed.sessions],
            "kept": kept,
        }
        call.screen.document({"schema": "prowess.runs-pruned/1", **document})
    else:
        _show(call.screen, removed, kept, dry_run)
    return 0 if not kept else 1


def _what(old: OldRecords) -> str:
    freed = size(sum(each.size_bytes for each in old.copies))
    parts = [f"{count(len(old.copies), 'folder')} of runs ({freed})"]
    if old.sessions:
        parts.append(f"{count(len(old.sessions), 'session')} of the log, for good")
    return " and ".join(parts)


def _show(screen: Screen, removed: OldRecords, kept: Sequence[str], dry_run: bool) -> None:
    word = "would remove" if dry_run else "removed"
    for each in removed.copies:
        screen.text(f"{word}  {visible(each.run)}  {size(each.size_bytes)}  {visible(each.path)}")
    for key in removed.sessions:
        screen.text(f"{word}  session {visible(key.session)}")
    for each in kept:
        screen.text(f"kept  {visible(each)}")
    screen.note(f"{_what(removed)}{' (nothing was removed)' if dry_run else ''}")
