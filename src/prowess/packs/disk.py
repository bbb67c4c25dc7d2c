"""Changes installed skills on disk: folders, lock and wanted file together, with backups of what was there."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from prowess._internal.folder_backups import find_backup, new_backup, remove_backups
from prowess._internal.folder_swap import FolderMove, swap
from prowess.packs.lock import PackPlace, edit_wanted, parse_locked, render_lock, render_locked
from prowess.packs.values import Lock, LockedSkill, WantedChanges
from prowess.skills.file_list import digest_of, find_files

BACKUPS = "backups/"


def find_digest(folder: str) -> str | None:
    """Returns the digest of an installed skill; None when there is no folder, or an empty one."""
    there = find_files(folder)
    return digest_of(there) if there else None


def make_room(place: PackPlace, name: str, locked: LockedSkill | None, staging: str) -> str:
    """Returns a place below `<root>/.prowess` for a skill that is replaced or removed: a new backup, if it is there."""
    if not os.path.lexists(place.folder(name)):
        return f"{staging}/none-{name}"
    document = None if locked is None else render_locked(locked)
    return new_backup(place.root, name, json.dumps(document, indent=1).encode())


def newest_backup(place: PackPlace, name: str) -> tuple[str, LockedSkill | None] | None:
    """Returns the place of the newest backup, and its entry of the lock if Prowess had installed it."""
    found = find_backup(place.root, name)
    if found is None:
        return None
    try:
        return found[0], parse_locked(json.loads(found[1]))
    except (ValueError, TypeError, RecursionError):
        return found[0], None


def write(place: PackPlace, moves: Sequence[FolderMove], lock: Lock, wanted: WantedChanges) -> None:
    """Swaps folders, lock and wanted file together, and removes old backups. The caller holds the root."""
    files: dict[str, bytes | None] = {place.lock: render_lock(lock)}
    edited = edit_wanted(place, wanted)
    if edited is not None:
        files[place.wanted] = edited
    swap(place.root, moves, files)
    for move in moves:
        if move.old.startswith(BACKUPS) or (move.new or "").startswith(BACKUPS):
            remove_backups(place.root, move.target)
