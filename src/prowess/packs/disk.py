"""Changes installed skills on disk: folders, lock and wanted file together, with backups of what was there."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from typing import Any

from prowess._internal.files import UserFile
from prowess._internal.folder_backups import KEPT, find_backup, new_backup, remove_backups
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


def is_own_backup(place: PackPlace, name: str, digest: str) -> bool:
    """True if this person replaced or removed this content of the skill here. Other backups came with a repository."""
    store = _own_backups(place)
    folders = _read_own(store)
    path = _key(place, name)
    known = folders.get(path, ())
    return digest in known


def _remember(place: PackPlace, names: Sequence[str]) -> None:
    """Writes down the content that a backup is made of."""
    store = _own_backups(place)
    # Without it a rollback asks for the digest.
    with contextlib.suppress(OSError), store.locked():
        folders = _read_own(store)
        for name in names:
            path = _key(place, name)
            digest = find_digest(place.folder(name))
            others = [other for other in folders.get(path, ()) if other != digest]
            if digest:
                folders[path] = [*others[-KEPT:], digest]
        store.write({"folders": folders})


def _own_backups(place: PackPlace) -> UserFile:
    return UserFile(place.state_dir, "backups", "prowess.backups/1")


def _key(place: PackPlace, name: str) -> str:
    root = os.path.realpath(place.root)
    return os.path.join(root, name)


def _read_own(store: UserFile) -> dict[str, list[str]]:
    """Returns the digests by folder. A file that cannot be read has none."""
    folders: Any = {}
    with contextlib.suppress(OSError, ValueError, RecursionError):
        folders = store.read().get("folders")
    if not isinstance(folders, dict):
        return {}
    found: dict[str, list[str]] = {}
    for path, digests in folders.items():
        if isinstance(digests, list):
            found[path] = digests
    return found


def write(place: PackPlace, moves: Sequence[FolderMove], lock: Lock, wanted: WantedChanges) -> None:
    """Swaps folders, lock and wanted file together, and removes old backups. The caller holds the root."""
    files: dict[str, bytes | None] = {place.lock: render_lock(lock)}
    edited = edit_wanted(place, wanted)
    if edited is not None:
        files[place.wanted] = edited
    replaced = [move.target for move in moves if move.old.startswith(BACKUPS)]
    if replaced:
        _remember(place, replaced)
    swap(place.root, moves, files)
    for move in moves:
        if move.old.startswith(BACKUPS) or (move.new or "").startswith(BACKUPS):
            remove_backups(place.root, move.target)
