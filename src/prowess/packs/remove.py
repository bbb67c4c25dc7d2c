"""Removes installed skills, and returns to the version before."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from typing import Unpack

from prowess._internal.folder_backups import remove_backups
from prowess._internal.folder_swap import STATE, FolderMove, hold, stage, swap_errors
from prowess.core.findings import visible
from prowess.errors import PackError
from prowess.packs.disk import BACKUPS, find_digest, is_own_backup, make_room, newest_backup, write
from prowess.packs.lock import PackPlace, check_name, not_installed, read_lock
from prowess.packs.plan import denied_content
from prowess.packs.settings import PackOptions, load_settings
from prowess.packs.values import Lock, LockedSkill
from prowess.policy.trust import grant_skills, load_trust
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
    digest: str
    before: LockedSkill | None
    now: LockedSkill | None  # None: this version was not installed by Prowess
    files: tuple[FileDifference, ...]


def uninstall(*names: str, purge: bool = False, **options: Unpack[PackOptions]) -> list[Removed]:
    """Removes installed skills, all or none. Keeps a backup of each unless `purge`, which removes older ones, too."""
    settings = load_settings(**options)
    place = settings.place
    removed: list[Removed] = []
    moves: list[FolderMove] = []
    _check_installed(place, names, read_lock(place))
    with swap_errors(place.root), stage(place.root) as staging, hold(place.root):
        lock = read_lock(place)
        for name in names:
            row = lock.pop(name, None)
            if row is None:  # it was named twice, or removed meanwhile
                continue
            path = place.folder(name)
            old = f"{staging}/old/{name}" if purge else make_room(place, name, row, staging)
            backup = os.path.join(place.root, STATE, old) if old.startswith(BACKUPS) else None
            moves.append(FolderMove(name, None, old))
            removed.append(Removed(name=name, path=path, digest=find_digest(path), backup=backup))
        write(place, moves, lock, dict.fromkeys(names))
        if purge:
            for name in names:
                remove_backups(place.root, name, keep=0)
    grant_skills(settings.places.state_dir, {each.path: "" for each in removed})
    return removed


def rollback(name: str, *, digest: str | None = None, **options: Unpack[PackOptions]) -> RolledBack:
    """Returns a skill to the version before. The version of now becomes the newest backup, for a second rollback.

    A repository may bring backups, so only content counts that this person replaced, removed or accepted here, or names
    by its `digest`.
    """
    settings = load_settings(**options)
    place = settings.place
    check_name(name, "rollback")
    path = place.folder(name)
    with swap_errors(place.root), stage(place.root) as staging, hold(place.root):
        lock = read_lock(place)
        before = lock.pop(name, None)
        backup = newest_backup(place, name)
        if backup is None and before is None:
            raise not_installed(name, lock)
        if backup is None:
            hint = "A backup is made when a skill is updated, replaced or uninstalled."
            raise PackError(f"There is no version of '{name}' before this one.", code="no-backup", hint=hint)
        source, restored = backup
        there = find_files(path) or []
        kept = find_files(os.path.join(place.root, STATE, source)) or []
        found = digest_of(file for file in kept if file.sha256) if kept else ""  # as it will be loaded
        trust = load_trust(place.state_dir)
        if digest != found and not is_own_backup(place, name, found) and not trust.accepted_once(path, found):
            raise _unknown_backup(name, os.path.join(place.root, STATE, source), found)
        if policy := settings.denied.get(found):
            raise denied_content(name, policy)
        old = make_room(place, name, before, staging)
        if restored is not None:
            lock[name] = restored
        write(place, [FolderMove(name, source, old)], lock, {name: restored and restored.wanted})
    if trust.accepted_once(path, found):
        grant_skills(place.state_dir, {path: found})
    files = tuple(file_differences(there, kept))
    return RolledBack(name=name, path=path, digest=found, before=before, now=restored, files=files)


def _unknown_backup(name: str, folder: str, digest: str) -> PackError:
    message = f"The newest backup of '{name}' is content that you never had here: {digest or 'no files'}."
    then = "and remove it."
    if digest:
        then = f"then: prowess rollback {name} --digest {digest}"
    shown = visible(folder)
    hint = f"It may have come with the repository. Look at {shown}, {then}"
    return PackError(message, code="backup-unknown", hint=hint)


def _check_installed(place: PackPlace, names: Collection[str], lock: Lock) -> None:
    for name in names:
        check_name(name, "uninstall")
        if name in lock:
            continue
        folder = place.folder(name)
        if os.path.isdir(folder):
            hint = "Remove the folder yourself if nobody needs it."
            raise PackError(f"{folder} was not installed by Prowess.", code="not-installed", hint=hint)
        raise not_installed(name, lock)
