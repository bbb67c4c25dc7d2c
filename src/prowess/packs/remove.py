"""Removes installed skills, and returns to the version before."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NoReturn, Unpack

from prowess._internal.folder_backups import remove_backups
from prowess._internal.folder_swap import STATE, FolderMove, hold, stage, swap_errors
from prowess.errors import PackError
from prowess.packs.disk import BACKUPS, find_digest, make_room, newest_backup, write
from prowess.packs.lock import PackPlace, WantedSkill, check_name, read_lock
from prowess.packs.plan import denied_content, not_installed
from prowess.packs.settings import PackOptions, load_settings
from prowess.packs.values import LockedSkill
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
    digest: str | None
    before: LockedSkill | None
    now: LockedSkill | None  # None: this version was not installed by Prowess
    files: tuple[FileDifference, ...]


def uninstall(*names: str, purge: bool = False, **options: Unpack[PackOptions]) -> list[Removed]:
    """Removes installed skills, all or none. Keeps a backup of each unless `purge`, which removes older ones, too."""
    settings = load_settings(**options)
    place, removed = settings.place, []
    _check_installed(place, names, read_lock(place))
    with swap_errors(place.root), stage(place.root) as staging, hold(place.root):
        lock, moves = read_lock(place), []
        for name in dict.fromkeys(name for name in names if name in lock):
            path = place.folder(name)
            old = f"{staging}/old/{name}" if purge else make_room(place, name, lock[name], staging)
            backup = os.path.join(place.root, STATE, old) if old.startswith(BACKUPS) else None
            moves.append(FolderMove(name, None, old))
            removed.append(Removed(name=name, path=path, digest=find_digest(path), backup=backup))
        left = {name: row for name, row in lock.items() if name not in names}
        write(place, moves, left, dict.fromkeys(names))
        for name in names if purge else ():
            remove_backups(place.root, name, keep=0)
    grant_skills(settings.places.state_dir, {each.path: "" for each in removed})
    return removed


def rollback(name: str, **options: Unpack[PackOptions]) -> RolledBack:
    """Returns a skill to the version before. The version of now becomes the newest backup, so that a second rollback
    returns to it."""
    settings = load_settings(**options)
    place, state_dir = settings.place, settings.places.state_dir
    check_name(name, "rollback")
    with swap_errors(place.root), stage(place.root) as staging, hold(place.root):
        lock = read_lock(place)
        source, restored = newest_backup(place, name) or _no_backup(name, lock)
        there, kept = (find_files(path) or [] for path in (place.folder(name), os.path.join(place.root, STATE, source)))
        digest = digest_of(file for file in kept if file.sha256) if kept else None  # as it will be loaded
        if policy := settings.denied.get(digest or ""):
            raise denied_content(name, policy)
        move = FolderMove(name, source, make_room(place, name, lock.get(name), staging))
        after = {other: row for other, row in lock.items() if other != name}
        after |= {} if restored is None else {name: restored}
        wanted = None if restored is None else WantedSkill(restored.source, restored.skill)
        write(place, [move], after, {name: wanted})
    path = place.folder(name)
    # A backup may have come with a repository: only what a person accepted here before is accepted again.
    if digest is not None and load_trust(state_dir).accepted_once(path, digest):
        grant_skills(state_dir, {path: digest})
    files = tuple(file_differences(there, kept))
    return RolledBack(name=name, path=path, digest=digest, before=lock.get(name), now=restored, files=files)


def _no_backup(name: str, lock: Collection[str]) -> NoReturn:
    if name not in lock:
        raise not_installed(name, lock)
    message = f"There is no version of '{name}' before this one."
    hint = "A backup is made when a skill is updated, replaced or uninstalled."
    raise PackError(message, code="no-backup", hint=hint)


def _check_installed(place: PackPlace, names: Collection[str], lock: Mapping[str, LockedSkill]) -> None:
    for name in names:
        check_name(name, "uninstall")
        if name not in lock and os.path.isdir(place.folder(name)):
            message = f"{place.folder(name)} was not installed by Prowess."
            hint = "Remove the folder yourself if nobody needs it."
            raise PackError(message, code="not-installed", hint=hint)
        if name not in lock:
            raise not_installed(name, lock)
