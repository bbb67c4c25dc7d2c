"""Lists, finds and removes the files that runs have saved, when their session is not known."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from prowess.core.ports import ArtifactStore
from prowess.core.values import Artifact, ArtifactRef, SessionKey, artifact_scope, render_artifact_ref
from prowess.errors import ConfigError, StoreError
from prowess.runtime.runtime import Runtime

DEFAULT_SESSION = "default"


class ArtifactRow(NamedTuple):
    """Name in a list, with its newest version. `session` is None for an artifact of the user."""

    session: str | None
    newest: Artifact
    versions: Sequence[int]


class RemovedArtifact(NamedTuple):
    session: str | None
    ref: str
    name: str
    version: int


def get_artifacts(runtime: Runtime) -> ArtifactStore:
    store = runtime.open_artifacts()
    if store is None:
        problem = "Artifacts are switched off: the setting artifacts is none."
        hint = "Name a path or a bucket, or remove the setting. See: prowess config show --origin"
        raise ConfigError(problem, code="no-artifacts", hint=hint)
    return store


def session_of(key: SessionKey, name: str) -> str | None:
    """Returns the session that owns the name, or None if the user does."""
    if _is_users(name):
        return None
    return key.session


def _is_users(name: str) -> bool:
    """True for a name that belongs to the user, not to a session."""
    of_user, _ = artifact_scope(name)
    return of_user


async def list_artifacts(store: ArtifactStore, key: SessionKey, *, everywhere: bool = False) -> list[ArtifactRow]:
    """Returns a row for each name: of the key's session, or of all. The user's own are the same in every session, so
    they come once."""
    found: list[ArtifactRow | None] = []
    keys = await _keys(store, key, everywhere)
    for there in keys:
        names = await store.names(there)
        if there is not keys[0]:
            names = [name for name in names if not _is_users(name)]
        found += await asyncio.gather(*(_row(store, there, name) for name in names))
    rows = [row for row in found if row is not None]
    rows.sort(key=_place_in_list)
    return rows


def _place_in_list(row: ArtifactRow) -> tuple[bool, str, str]:
    """Returns the sort key: the user's own first, then by session and name."""
    is_of_session = row.session is not None
    return is_of_session, row.session or "", row.newest.name


async def _keys(store: ArtifactStore, key: SessionKey, everywhere: bool) -> list[SessionKey]:
    """Returns the key, or one for each session of the store. Never empty, so that the user's own are found."""
    tell: Callable[[SessionKey], Awaitable[Sequence[str]]] | None = getattr(store, "sessions", None)
    if not everywhere or tell is None:
        return [key]
    sessions = await tell(key)
    keys = [replace(key, session=session) for session in sessions]
    return keys or [key]


async def _row(store: ArtifactStore, key: SessionKey, name: str) -> ArtifactRow | None:
    """Returns the row of a name. None when it was deleted after it was listed."""
    versions = await store.versions(key, name)
    if not versions:
        return None
    newest = await store.get(key, name, version=versions[-1])
    session = session_of(key, name)
    return ArtifactRow(session, newest, versions)


async def find_artifact(store: ArtifactStore, key: SessionKey, name: str, *, everywhere: bool = False) -> SessionKey:
    """Returns the key that has such a name: the one given, or the only one of all sessions. Nobody remembers the name
    of a session."""
    keys = await _keys(store, key, everywhere)
    if _is_users(name):
        keys = keys[:1]
    found = [each for each in keys if await store.versions(each, name)]
    if not found:
        known: set[str] = set()
        for there in keys:
            known |= set(await store.names(there))
        where = "" if everywhere else f" in session {key.session}"
        raise _unknown_artifact(name, where, known)
    if len(found) > 1:
        problem = f"{len(found)} sessions have an artifact '{name}'."
        sessions = " | ".join(each.session for each in found[:10])
        raise ConfigError(problem, code="artifact-ambiguous", hint=f"Say which: --session {sessions}")
    return found[0]


def _unknown_artifact(name: str, where: str, known: set[str]) -> StoreError:
    """Makes the error about a name that no session has. Names similar ones."""
    hint = "See: prowess artifacts list"
    near = difflib.get_close_matches(name, sorted(known), n=3)
    if near:
        meant = " or ".join(near)
        hint = f"Did you mean {meant}? {hint}"
    return StoreError(f"No artifact '{name}'{where}.", code="artifact-not-found", hint=hint)


async def remove_artifacts(
    store: ArtifactStore, key: SessionKey, refs: Sequence[ArtifactRef], *, everywhere: bool = False
) -> list[RemovedArtifact]:
    """Removes these versions; all versions of a reference without one. When one is not there, nothing is removed."""
    wanted: dict[tuple[SessionKey, str, int], None] = {}
    for ref in refs:
        there = await find_artifact(store, key, ref.name, everywhere=everywhere)
        if ref.version is None:
            versions = await store.versions(there, ref.name)
        else:
            await store.get(there, ref.name, version=ref.version)
            versions = [ref.version]
        for version in versions:
            wanted[there, ref.name, version] = None
    removed: list[RemovedArtifact] = []
    for there, name, version in wanted:
        await store.delete(there, name, version=version)
        session = session_of(there, name)
        rendered = render_artifact_ref(name, version)
        removed.append(RemovedArtifact(session, rendered, name, version))
    return removed
