"""Removes what sessions have left: old runs, whole sessions, and files on disk. What is in use is never removed."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from prowess.core.ports import ArtifactStore, EventLog
from prowess.core.values import SessionKey, artifact_scope
from prowess.errors import ProwessError, WorkspaceError, in_one_line
from prowess.runtime.runtime import Runtime
from prowess.runtime.services.find_run import opened
from prowess.runtime.services.runs import RunRow, list_runs
from prowess.runtime.services.sessions import opened_session, session_place
from prowess.runtime.services.verify_run import find_copy
from prowess.runtime.storage import find_copies, workspace_dir
from prowess.stores.run_folders import remove_copy
from prowess.workspace.cleanup import (
    Leftovers,
    OldTrees,
    clean,
    clean_trees,
    find_old_trees,
    list_leftovers,
    trees_of,
)
from prowess.workspace.session_folder import hold_session, remove_place

# --- old runs ---------------------------------------------------------------------------------------------------------


class RunCopy(NamedTuple):
    """Copy of a run of the log, in the folder `path`."""

    path: str
    run: str
    started_at: str
    size_bytes: int


class OldRecords(NamedTuple):
    """Copies of old runs, and old sessions of the log."""

    copies: Sequence[RunCopy]
    sessions: Sequence[SessionKey]


class PrunedRecords(NamedTuple):
    """Records that were removed, and a line for each thing that was kept although it is old."""

    removed: OldRecords
    kept: list[str]


async def find_old_records(
    runtime: Runtime, *, before: float, keep: int = 0, with_sessions: bool = False
) -> OldRecords:
    """Finds copies of runs that ended before this time, except those of the last `keep` runs; old sessions on
    request."""
    rows = (await list_runs(runtime, limit=sys.maxsize)).runs
    rows.sort(key=_ended_at, reverse=True)
    place = find_copies(runtime)
    copies: list[RunCopy] = []
    for row in rows[keep:]:
        path = find_copy(place, row.run, row.started_at)
        if path is not None and _ended_at(row) <= before:
            copies.append(RunCopy(path, row.run, row.started_at, size_of(path)))
    spared = {row.session for row in rows[:keep]}
    sessions = await _find_old_sessions(runtime, before, spared) if with_sessions else []
    return OldRecords(copies, sessions)


async def _find_old_sessions(runtime: Runtime, before: float, spared: set[str]) -> list[SessionKey]:
    """Finds sessions of the log that were last used before this time, except `spared`."""
    async with opened(runtime) as (log, _):
        infos = await log.sessions() if log is not None else ()
    now = time.time()
    old = [info.key for info in infos if _moment(info.updated_at, now) <= before]
    return [key for key in old if key.session not in spared]


async def remove_records(runtime: Runtime, old: OldRecords, *, dry_run: bool = False) -> PrunedRecords:
    """Removes old records. A session in use is kept."""
    kept: list[str] = []
    if not dry_run:
        sessions = await _remove_sessions(runtime, old.sessions, kept)
        old = OldRecords(_remove_copies(runtime, old.copies, kept), sessions)
    return PrunedRecords(old, kept)


async def _remove_sessions(runtime: Runtime, keys: Sequence[SessionKey], kept: list[str]) -> list[SessionKey]:
    removed: list[SessionKey] = []
    if not keys:
        return removed
    place = session_place(runtime)
    async with opened(runtime) as (log, _):
        for key in keys:
            try:
                with hold_session(*place, key):
                    if log is not None:
                        await log.delete(key)  # with its copies
                removed.append(key)
            except WorkspaceError as error:
                kept.append(f"session {key.session}: {error.message}")
    return removed


def _remove_copies(runtime: Runtime, found: Sequence[RunCopy], kept: list[str]) -> list[RunCopy]:
    removed: list[RunCopy] = []
    place = find_copies(runtime)
    for each in found:
        try:
            left = remove_copy(place, each.run, each.started_at) if place else []
        except OSError as error:
            kept.append(f"{each.path}: {error}")
            continue
        if left:
            kept.append(f"{each.path}: {', '.join(left)}")
        else:
            removed.append(each)
    return removed


def _ended_at(row: RunRow) -> float:
    return _moment(row.finished_at or row.started_at, 0.0)


def _moment(at: str, instead: float) -> float:
    """Parses a time. Returns `instead` when it is none."""
    try:
        return datetime.fromisoformat(at).timestamp()
    except (ValueError, OverflowError):
        return instead


def size_of(path: str) -> int:
    """Returns the size of the files in a folder."""
    total = 0
    for top, _, names in os.walk(path):
        for name in names:
            file = os.path.join(top, name)
            try:
                total += os.lstat(file).st_size
            except OSError:
                continue
    return total


# --- one session ------------------------------------------------------------------------------------------------------


class SessionContent(NamedTuple):
    """Content of a session: the number of its events, and the artifacts that are its own, as (name, version)."""

    events: int
    artifacts: list[tuple[str, int]]


async def look_at_session(runtime: Runtime, key: SessionKey) -> SessionContent:
    """Returns what `delete_session` would remove. Raises StoreError when there is no such session."""
    async with opened_session(runtime, key) as (info, _):
        events = info.head.seq
    store = runtime.open_artifacts()
    artifacts = await _own_artifacts(store, key)
    return SessionContent(events, artifacts)


async def _own_artifacts(store: ArtifactStore | None, key: SessionKey) -> list[tuple[str, int]]:
    """Returns the artifacts that belong to the session, not to the user, as (name, version)."""
    found: list[tuple[str, int]] = []
    if store is None:
        return found
    for name in await store.names(key):
        of_user, _ = artifact_scope(name)
        if of_user:
            continue
        versions = await store.versions(key, name)
        found += [(name, version) for version in versions]
    return found


async def delete_session(runtime: Runtime, key: SessionKey, artifacts: Sequence[tuple[str, int]] | None) -> str | None:
    """Removes a session; with `artifacts`, these and its workspace, too. Returns the path of the removed workspace.

    The record comes last: while it is there, a failed removal can be repeated.
    """
    place = session_place(runtime)
    workspace = None
    with hold_session(*place, key):
        if artifacts is not None:
            workspace = remove_place(*place, key)
            store = runtime.open_artifacts()
            if store is not None:
                for name, version in artifacts:
                    await store.delete(key, name, version=version)
        async with opened_session(runtime, key) as (_, log):
            await log.delete(key)
    return workspace


# --- files on disk ----------------------------------------------------------------------------------------------------


class WorkspaceList(NamedTuple):
    """Files that sessions have left below `dir`. `trees` is the folder of the published skills."""

    dir: str
    trees: str
    left: Leftovers


class CleanedWorkspaces(NamedTuple):
    """Files that were removed, and those that are old, but in use."""

    dir: str
    removed: Leftovers
    in_use: Leftovers
    needed: int = 0  # published skills that sessions may go on from
    others: Sequence[str] = ()  # stores of other projects that may need some of them
    problem: str | None = None  # why no published skill was removed


def list_workspaces(runtime: Runtime) -> WorkspaceList:
    """Lists the files that sessions have left on disk."""
    dir = workspace_dir(runtime.config, runtime.places)
    left = list_leftovers(dir)
    return WorkspaceList(dir, trees_of(dir), left)


def clean_workspaces(
    runtime: Runtime, *, older_than_s: float | None = None, keep_bytes: int | None = None, dry_run: bool = False
) -> CleanedWorkspaces:
    """Cleans by age and size; published skills by age only, because their source may be gone. Without both, cleans
    everything that is not in use. Blocks: async code calls it in a thread."""
    dir = workspace_dir(runtime.config, runtime.places)
    removed, in_use = clean(dir, older_than_s=older_than_s, keep_bytes=keep_bytes, dry_run=dry_run)
    cleaned = CleanedWorkspaces(dir, removed, in_use)
    if older_than_s is None and keep_bytes is not None:
        return cleaned
    try:
        store, old, named = asyncio.run(_find_old_trees(runtime, dir, older_than_s or 0.0))
    except (ProwessError, OSError, ValueError, RecursionError) as error:  # unknown which of them are needed
        return cleaned._replace(problem=in_one_line(error))
    trees, used = clean_trees(dir, store, old, named, dry_run=dry_run)
    needed_by_us = [info for info in (*old.free, *old.of_others) if info.digest in named]
    needed_by_others = [info for info in old.of_others if info.digest not in named]
    others = old.others if needed_by_others else ()
    return cleaned._replace(
        removed=removed._replace(trees=trees),
        in_use=in_use._replace(trees=used),
        needed=len(needed_by_us) + len(needed_by_others),
        others=others,
    )


async def _find_old_trees(runtime: Runtime, dir: str, older_than_s: float) -> tuple[str, OldTrees, set[str]]:
    """Returns (our store, trees that are old enough, digests that sessions of our store have loaded)."""
    named: set[str] = set()
    async with opened(runtime) as (log, store):
        old = find_old_trees(dir, store, older_than_s=older_than_s)
        if log is None or not (old.free or old.of_others):
            return store, old, named
        for tenant in old.tenants:
            named |= await _loaded_digests(log, tenant)
    return store, old, named


async def _loaded_digests(log: EventLog, tenant: str) -> set[str]:
    """Returns the digests that the tenant's sessions have loaded. Parses only lines that can name one."""
    found: set[str] = set()
    for info in await log.sessions(tenant):
        async for line in log.lines(info.key):
            if '"type":"skill_loaded"' in line:
                event = json.loads(line)
                found.add(str(event.get("digest")))
    return found
