"""Lists and removes files that ended sessions left on disk. Nothing that is in use is removed.

Workspaces and environments are removed by age, or oldest first until the rest is small enough: a workspace can be
opened again, and an environment can be installed again. A published skill cannot be made again after its source was
edited. So it is removed by age only, and only when no session can resume with it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Sequence
from typing import NamedTuple

from prowess.workspace.scripts.environment_store import EnvironmentInfo, list_environments, remove_environment
from prowess.workspace.session_folder import PlaceInfo, list_places, remove_listed, sweep_places
from prowess.workspace.skill_trees_in_use import (
    TreeInfo,
    drop_user,
    find_users,
    list_trees,
    remove_published,
    sweep_trees,
)


class Leftovers(NamedTuple):
    """Files on disk by kind. In each list, the least recently used comes first."""

    places: Sequence[PlaceInfo] = ()
    environments: Sequence[EnvironmentInfo] = ()
    trees: Sequence[TreeInfo] = ()

    @property
    def size_bytes(self) -> int:
        return sum(info.size_bytes for kind in self for info in kind)


def trees_of(dir: str) -> str:
    return os.path.join(os.path.abspath(dir), "trees")


def environments_of(dir: str) -> str:
    return os.path.join(os.path.abspath(dir), "environments")


def list_leftovers(dir: str) -> Leftovers:
    places = list_places(dir)
    environments = list_environments(environments_of(dir))
    return Leftovers(places, environments, list_trees(trees_of(dir)))


def clean(
    dir: str, *, older_than_s: float | None = None, keep_bytes: int | None = None, dry_run: bool = False
) -> tuple[Leftovers, Leftovers]:
    """Removes workspaces and environments. Returns (removed, kept because in use).

    Removes those unused for `older_than_s`, then the oldest until at most `keep_bytes` are left. Without both
    arguments, removes all.
    """
    places = list_places(dir)
    environments = list_environments(environments_of(dir))
    found = sorted([*places, *environments], key=lambda info: info.used_at)
    if not dry_run:
        sweep_places(dir)
    total = sum(info.size_bytes for info in found)
    removed: list[PlaceInfo | EnvironmentInfo] = []
    kept: list[PlaceInfo | EnvironmentInfo] = []
    everything = older_than_s is None and keep_bytes is None
    now = time.time()
    for info in found:
        too_old = older_than_s is not None and now - info.used_at > older_than_s
        too_much = keep_bytes is not None and total > keep_bytes
        if not (everything or too_old or too_much):
            continue
        if info.in_use or not (dry_run or _remove(dir, info)):
            kept.append(info)
            continue
        total -= info.size_bytes
        removed.append(info)
    return _sorted_out(removed), _sorted_out(kept)


class OldTrees(NamedTuple):
    """Published skills that are old enough to remove, sorted by who may still use them.

    A tree in `free` may be removed when no session of our store names it in any of `tenants`.
    """

    free: Sequence[TreeInfo]
    in_use: Sequence[TreeInfo]
    of_others: Sequence[TreeInfo]
    others: Sequence[str]  # the other stores
    tenants: Sequence[str]


def find_old_trees(dir: str, store: str, *, older_than_s: float = 0.0) -> OldTrees:
    before = time.time() - older_than_s
    free: list[TreeInfo] = []
    in_use: list[TreeInfo] = []
    of_others: list[TreeInfo] = []
    others: set[str] = set()
    tenants: set[str] = {"default"}
    for info in list_trees(trees_of(dir)):
        if older_than_s and info.used_at > before:
            continue
        users = find_users(trees_of(dir), info.digest)
        tenants |= {user.tenant for user in users if user.store == store}
        elsewhere = {user.store for user in users if user.store != store and user.is_there}
        others |= elsewhere
        if info.in_use:
            in_use.append(info)
        elif elsewhere:
            of_others.append(info)
        else:
            free.append(info)
    return OldTrees(free, in_use, of_others, sorted(others), sorted(tenants))


def clean_trees(
    dir: str, store: str, old: OldTrees, named: Collection[str], *, dry_run: bool = False
) -> tuple[list[TreeInfo], list[TreeInfo]]:
    """Removes old trees whose digest no session of our store names. Returns (removed, kept because in use)."""
    top = trees_of(dir)
    removed: list[TreeInfo] = []
    kept = [info for info in old.in_use if info.digest not in named]
    for info in old.free:
        if info.digest not in named:
            if dry_run or remove_published(top, info):
                removed.append(info)
            else:
                kept.append(info)
    if not dry_run:
        sweep_trees(top)
        for info in old.of_others:
            if info.digest not in named:
                drop_user(top, info, store)
    return removed, kept


def _remove(dir: str, info: PlaceInfo | EnvironmentInfo) -> bool:
    if isinstance(info, PlaceInfo):
        return remove_listed(info)
    return remove_environment(environments_of(dir), info.key)


def _sorted_out(found: Sequence[PlaceInfo | EnvironmentInfo]) -> Leftovers:
    places = [info for info in found if isinstance(info, PlaceInfo)]
    environments = [info for info in found if isinstance(info, EnvironmentInfo)]
    return Leftovers(places, environments)
