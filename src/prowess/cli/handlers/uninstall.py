"""Handlers of `prowess uninstall` and `prowess rollback`."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from prowess.cli.app import Call, confirm_removal
from prowess.cli.pack_calls import other_place_hint, pack_options
from prowess.cli.pack_plan import file_changes, rollback_commands, shown_path, version_change
from prowess.cli.screen import count
from prowess.core.codec import to_json
from prowess.core.findings import visible
from prowess.errors import ConfigError
from prowess.packs import api
from prowess.packs.lock import find_place, read_lock
from prowess.packs.remove import Removed, RolledBack
from prowess.runtime.config import find_places

if TYPE_CHECKING:
    from prowess.runtime.documents.packs import RolledBackDocument, UninstalledDocument


def uninstall(call: Call, names: tuple[str, ...], source: str | None, to: str | None, purge: bool, yes: bool) -> int:
    if to == "" or (source and to and source != to):
        raise ConfigError("--source and --to name two places.", code="usage", hint="Use one of them.")
    where = to or source or "project"
    call.options["to"] = where
    if not yes:
        _confirm(call, names, where, purge=purge)
    with other_place_hint(call, names, where):
        options = pack_options(call, where)
        removed = api.uninstall(*names, purge=purge, **options)
    if not call.screen.is_json:
        _show_removed(call, removed)
        return 0
    document: UninstalledDocument = {
        "schema": "prowess.uninstalled/1",
        "purged": purge,
        "removed": to_json(removed),
    }
    call.screen.document(document)
    return 0


def _confirm(call: Call, names: tuple[str, ...], where: str, *, purge: bool) -> None:
    """Asks before skills are removed. Names that are not installed are refused later, with a reason."""
    places = find_places(call.cwd, os.environ)
    place = find_place(where, places)
    lock = read_lock(place)
    if not all(name in lock for name in names):
        return
    folders = [shown_path(call, place.folder(name)) for name in names]
    what = _named(names)
    if purge:
        what += ", with all backups"
    confirm_removal(what, hint="Add --yes.", paths=folders)


def _show_removed(call: Call, removed: list[Removed]) -> None:
    screen = call.screen
    for each in removed:
        path = visible(shown_path(call, each.path))
        screen.text(f"removed  {path}")
    kept = [each.name for each in removed if each.backup is not None]
    if not kept:
        screen.note("No backup was kept.")
        return
    undo = " && ".join(rollback_commands(call, kept))
    screen.note(f"Undo: {undo}")


def rollback(call: Call, name: str, to: str, digest: str | None) -> int:
    with other_place_hint(call, [name], to):
        options = pack_options(call, to)
        done = api.rollback(name, digest=digest, **options)
    if call.screen.is_json:
        call.screen.document(_rolled_back(done))
    else:
        _show_rolled_back(call, done)
    return 0


def _rolled_back(done: RolledBack) -> RolledBackDocument:
    document: RolledBackDocument = {
        "schema": "prowess.rolled-back/1",
        "name": done.name,
        "path": done.path,
        "digest": done.digest,
        "digest_before": None,
        "version": None,
        "version_before": None,
        "source": None,
        "changes": to_json(done.files),
    }
    if done.before:
        document["digest_before"] = done.before.digest
        document["version_before"] = done.before.version
    if done.now:
        document["version"] = done.now.version
        document["source"] = done.now.source
    return document


def _show_rolled_back(call: Call, done: RolledBack) -> None:
    screen = call.screen
    name = visible(done.name)
    versions = version_change(done.before, done.now)
    path = visible(shown_path(call, done.path))
    screen.text(f"rolled back  {name}{versions}  {path}")
    changed = file_changes(done.files) or "nothing changes"
    screen.text(f"  {changed}")
    if done.now is None:
        screen.note("This version was not installed by Prowess, so the lock has no entry for it.")
    was_there = done.before is not None or any(file.kind != "added" for file in done.files)
    if was_there:
        undo = call.follow_up("prowess rollback")
    elif done.now is not None:
        undo = call.follow_up("prowess uninstall")
    else:
        return
    screen.note(f"Undo: {undo} {shlex.quote(done.name)}")


def _named(names: tuple[str, ...]) -> str:
    if len(names) == 1:
        return f"the skill '{names[0]}'"
    return count(len(names), "skill")
