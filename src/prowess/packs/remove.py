"""Removes an installed skill, and returns to the version before."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from prowess._internal.folder_swap import STATE, FolderMove, hold, stage
from prowess.errors import PackError
from prowess.packs.backups import backup_of, list_backups, note_backup, read_note, remove_old
from prowess.packs.lock import PackPlace, WantedSkill, check_name, read_lock
from prowess.packs.plan import as_pack_error, denied_content, not_installed, write
from prowess.packs.values import LockedSkill
from prowess.skills.file_list import FileDifference, digest_of, file_differences, find_files


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """Skill that was removed. `backup` is the folder of its files, or None when it was purged."""

    name: str
    path: str
    digest: str | None
    backup: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RolledBack:
    """Skill that is back in its version before."""

    name: str
    path: str
    digest: str | None
    before: LockedSkill | None
    now: LockedSkill | None  # None: this version was not installed by Prowess
    files: tuple[FileDifference, ...]


def uninstall(place: PackPlace, names: Sequence[str], *, purge: bool = False) -> list[Removed]:
    """Removes installed skills, all or none. Keeps a backup of each unless `purge`, which removes older ones, too."""
    lock = read_lock(place)
    for name in names:
        check_name(name, "uninstall")
        if name not in lock:
            raise _not_ours(place, name, lock)
    with as_pack_error(place.root), stage(place.root) as staging, hold(place.root):
        lock = read_lock(place)
        moves, removed = [], []
        for name in dict.fromkeys(name for name in names if name in lock):
            there = find_files(place.folder(name))
            backup = backup_of(place, name) if not purge and os.path.lexists(place.folder(name)) else None
            if backup is not None:
                note_backup(place, backup, lock[name])
            moves.append(FolderMove(name, None, f"{backup}/tree" if backup else f"{staging}/old/{name}"))
            kept = backup and os.path.join(place.root, STATE, backup, "tree")
            removed.append(
                Removed(name=name, path=place.folder(name), digest=digest_of(there) if there else None, backup=kept)
            )
        left = {name: row for name, row in lock.items() if name not in names}
        write(place, moves, left, dict.fromkeys(names))
        for name in names:
            remove_old(place, name, **({"keep": 0} if purge else {}))
    return removed


def rollback(place: PackPlace, name: str, *, denied: Collection[str] = ()) -> RolledBack:
    """Returns a skill to the version before. The version of now becomes the newest backup, so that a second rollback
    returns to it."""
    check_name(name, "rollback")
    with as_pack_error(place.root), stage(place.root) as staging, hold(place.root):
        lock = read_lock(place)
        source = _newest_backup(place, name, lock)
        restored, there = read_note(place, source), find_files(place.folder(name))
        kept = find_files(os.path.join(place.root, STATE, source, "tree"))
        digest = digest_of(kept) if kept else None
        if digest in denied:
            raise denied_content(name, str(digest))
        old = backup_of(place, name) if os.path.lexists(place.folder(name)) else None
        if old is not None:
            note_backup(place, old, lock.get(name))
        after = {other: row for other, row in lock.items() if other != name}
        if restored is not None:
            after[name] = restored
        wanted = None if restored is None else WantedSkill(restored.source, restored.skill)
        move = FolderMove(name, f"{source}/tree", f"{old}/tree" if old else f"{staging}/none")
        write(place, [move], after, {name: wanted})
        remove_old(place, name)
    files = tuple(file_differences(there or (), kept or ()))
    return RolledBack(
        name=name, path=place.folder(name), digest=digest, before=lock.get(name), now=restored, files=files
    )


def _newest_backup(place: PackPlace, name: str, lock: dict[str, LockedSkill]) -> str:
    if backups := list_backups(place, name):
        return f"backups/{name}/{backups[-1]:04}"
    if name not in lock:
        raise not_installed(name, lock)
    message = f"There is no version of '{name}' before this one."
    hint = "A backup is made when a skill is updated, replaced or uninstalled."
    raise PackError(message, code="no-backup", hint=hint)


def _not_ours(place: PackPlace, name: str, lock: dict[str, LockedSkill]) -> PackError:
    if os.path.isdir(place.folder(name)):
        message = f"{place.folder(name)} was not installed by Prowess."
        hint = "Remove the folder yourself if nobody needs it."
        return PackError(message, code="not-installed", hint=hint)
    return not_installed(name, lock)
