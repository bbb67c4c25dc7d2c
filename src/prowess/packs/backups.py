"""Keeps what was replaced or removed, and brings it back: `<root>/.prowess/backups/NAME/NUMBER/`."""

from __future__ import annotations

import contextlib
import json
import os
import re

from prowess._internal.files import read_regular, write_whole
from prowess._internal.folder_swap import STATE, remove_tree
from prowess.errors import PackError, PathEscape
from prowess.packs.lock import PackPlace, parse_locked, render_locked
from prowess.packs.values import LockedSkill

KEPT = 5  # backups of a skill; older ones are removed
_MAX_BYTES = 16 << 20
_NUMBER = re.compile(r"[0-9]{4}|[1-9][0-9]{4,8}")


def backup_of(place: PackPlace, name: str) -> str:
    """Returns a new folder for a backup, relative to `<root>/.prowess`."""
    taken = [int(found) for found in _names(place, name)]
    return f"backups/{name}/{max(taken, default=0) + 1:04}"


def list_backups(place: PackPlace, name: str) -> list[int]:
    """Returns the numbers of the whole backups, oldest first. A backup that was cut off does not count."""
    folder = _folder(place, name)
    return sorted(
        int(n) for n in _names(place, name) if _is_folder(f"{folder}/{n}") and _is_folder(f"{folder}/{n}/tree")
    )


def _names(place: PackPlace, name: str) -> list[str]:
    with contextlib.suppress(FileNotFoundError):
        return [found for found in os.listdir(_folder(place, name)) if _NUMBER.fullmatch(found)]
    return []


def _folder(place: PackPlace, name: str) -> str:
    """Returns the folder of a skill's backups. A repository may have put a link there, to be written through."""
    folder = os.path.join(os.path.realpath(place.root), STATE, "backups", name)
    if os.path.realpath(folder) != folder:
        raise PackError(
            f"{folder} is a link, or in one.", code="target-unsafe", hint="Look where it leads, and remove it."
        )
    return folder


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def note_backup(place: PackPlace, path: str, locked: LockedSkill | None) -> None:
    """Stores the lock's entry beside a backup."""
    document = None if locked is None else render_locked(locked)
    write_whole(os.path.join(place.root, STATE, path, "locked.json"), json.dumps(document, indent=1).encode())


def read_note(place: PackPlace, path: str) -> LockedSkill | None:
    """Returns the lock's entry of a backup; None for a skill that was not installed by Prowess."""
    try:
        data = read_regular(os.path.join(place.root, STATE, path, "locked.json"), _MAX_BYTES)
        document = json.loads(data)
        return None if document is None else parse_locked(document)
    except (OSError, ValueError, TypeError, RecursionError, PathEscape):
        return None


def remove_old(place: PackPlace, name: str, *, keep: int = KEPT) -> None:
    """Removes old backups and those that were cut off, for a caller that holds the root."""
    folder = _folder(place, name)
    kept = [f"{number:04}" for number in list_backups(place, name)[-keep:]] if keep else []
    for found in _names(place, name):
        if found not in kept:
            remove_tree(os.path.join(folder, found))
    if not kept:
        remove_tree(folder)
