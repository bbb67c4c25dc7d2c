"""Action `prowess runs prune`: removes the folders of old runs, and old sessions on request."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import click

from prowess.cli.app import Call, verb
from prowess.cli.call import note_findings
from prowess.cli.commands.workspaces import parse_age
from prowess.cli.screen import Screen, count, size
from prowess.core.findings import visible
from prowess.core.ports import EventLog
from prowess.core.values import SessionInfo, SessionKey
from prowess.errors import ConfigError, SkillDenied, StoreError, WorkspaceError
from prowess.runtime.factories import runs_folder, store_name, workspace_dir
from prowess.runtime.runtime import Runtime
from prowess.runtime.services.find_run import copies, find_key, load_summary, opened
from prowess.stores.run_folders import EVENTS, remove_copy
from prowess.workspace.session_folder import hold_session, is_held


class Copy(NamedTuple):
    """Folder of a run. `used_at` is when the run ended or was last written to. `key` is None when nothing in the folder
    names its session."""

    path: str
    run: str
    key: SessionKey | None
    has_ended: bool
    used_at: float
    size_bytes: int


class Old(NamedTuple):
    """Copies and sessions to remove; `going_on` are runs that are old enough, but have not ended."""

    copies: Sequence[Copy]
    sessions: Sequence[SessionKey]
    going_on: Sequence[Copy] = ()


@verb("prune", example="prowess runs prune --older-than 30d\nprowess runs prune --older-than 90d --sessions --yes")
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
        old = asyncio.run(_find(runtime, time.time() - (age or 0.0), keep or 0, sessions))
        if not dry_run and not yes:
            _confirm(call.screen, old)
        removed, kept = (old, []) if dry_run else asyncio.run(_remove(runtime, old))
        kept += [_is_going_on(each) for each in old.going_on]
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


async def _find(runtime: Runtime, before: float, keep: int, with_sessions: bool) -> Old:
    found = sorted(_copies(runs_folder(runtime.places)), key=lambda each: each.used_at, reverse=True)
    spared = {each.key.session if each.key else None for each in found[:keep]}
    place = workspace_dir(runtime.config, runtime.places), store_name(runtime.config, runtime.places)
    old = [each for each in found[keep:] if each.used_at <= before]
    going_on = [each for each in old if _goes_on(place, each)]
    old = [each for each in old if each not in going_on]
    if not with_sessions:
        return Old(old, (), going_on)
    async with opened(runtime) as (log, _):
        infos = await log.sessions() if log is not None else []
        spared |= await _last(log, infos, keep) if log is not None else set()
    gone = [
        info.key for info in infos if info.key.session not in spared and _moment(info.updated_at, time.time()) <= before
    ]
    return Old(old, gone, going_on)


def _goes_on(place: tuple[str, str], copy: Copy) -> bool:
    return not copy.has_ended and copy.key is not None and is_held(*place, copy.key)


def _is_going_on(copy: Copy) -> str:
    return f"{copy.path}: the run is going on"


async def _last(log: EventLog, infos: Sequence[SessionInfo], keep: int) -> set[str | None]:
    """Returns the sessions of the last runs: a log can have runs whose folder is gone."""
    found: set[str | None] = set()
    runs = 0
    for info in sorted(infos, key=lambda each: each.updated_at, reverse=True):
        if runs >= keep:
            break
        found.add(info.key.session)
        try:
            runs += len([line async for line in log.lines(info.key) if '"type":"run_started"' in line])
        except StoreError:  # damaged: its runs are not counted, so that no fewer are kept
            continue
    return found


def _copies(folder: str) -> list[Copy]:
    found = []
    for name, path in copies(folder):
        told = load_summary(path)
        try:
            used_at = os.stat(os.path.join(path, EVENTS)).st_mtime
        except OSError:
            used_at = os.lstat(path).st_mtime
        if told is not None:  # more exact than the time of a file, which may have been copied
            used_at = _moment(told.get("finished_at"), used_at)
        run, key = name.partition("-")[2], find_key(path, told)
        has_ended = told is not None and told.get("finished_at") is not None
        found.append(Copy(path, run, key, has_ended, used_at, _size(path)))
    return found


def _moment(at: Any, instead: float) -> float:
    try:
        return datetime.fromisoformat(at).timestamp() if isinstance(at, str) else instead
    except (ValueError, OverflowError):
        return instead


def _size(path: str) -> int:
    total = 0
    for top, _, names in os.walk(path):
        for name in names:
            try:
                total += os.lstat(os.path.join(top, name)).st_size
            except OSError:
                continue
    return total


async def _remove(runtime: Runtime, old: Old) -> tuple[Old, list[str]]:
    """Removes what is old. Returns what was removed, and a line for each thing that could not be."""
    removed: list[Copy] = []
    kept: list[str] = []
    gone: list[SessionKey] = []
    place = workspace_dir(runtime.config, runtime.places), store_name(runtime.config, runtime.places)
    if old.sessions:
        async with opened(runtime) as (log, _):
            for key in old.sessions:
                try:
                    with hold_session(*place, key):
                        if log is not None:
                            await log.delete(key)  # with its copies
                    gone.append(key)
                except WorkspaceError as error:
                    kept.append(f"session {key.session}: {error.message}")
    for each in old.copies:
        if _goes_on(place, each):  # it went on after we asked
            kept.append(_is_going_on(each))
            continue
        try:
            remove_copy(each.path)
            removed.append(each)
        except OSError as error:
            kept.append(f"{each.path}: {(error.strerror or str(error)).lower()}")
    return Old(removed, gone), kept


def _confirm(screen: Screen, old: Old) -> None:
    if not old.copies and not old.sessions:
        return
    what = _what(old)
    if not sys.stdin.isatty():
        raise ConfigError(
            f"{what} would be removed, and nobody is there to say yes.",
            code="needs-yes",
            hint="Look with --dry-run, then add --yes.",
        )
    for each in old.copies:
        screen.note(f"  {visible(each.path)}")
    if not click.confirm(f"Remove {what}?", err=True):
        raise SkillDenied("Nothing was removed.", code="not-confirmed", hint="")


def _what(old: Old) -> str:
    freed = size(sum(each.size_bytes for each in old.copies))
    parts = [f"{count(len(old.copies), 'folder')} of runs ({freed})"]
    if old.sessions:
        parts.append(f"{count(len(old.sessions), 'session')} of the log, for good")
    return " and ".join(parts)


def _show(screen: Screen, removed: Old, kept: Sequence[str], dry_run: bool) -> None:
    word = "would remove" if dry_run else "removed"
    for each in removed.copies:
        screen.text(f"{word}  {visible(each.run)}  {size(each.size_bytes)}  {visible(each.path)}")
    for key in removed.sessions:
        screen.text(f"{word}  session {visible(key.session)}")
    for each in kept:
        screen.text(f"kept  {visible(each)}")
    screen.note(f"{_what(removed)}{' (nothing was removed)' if dry_run else ''}")
