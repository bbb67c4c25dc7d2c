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
        raise ConfigError(
            "Artifacts are switched off: the setting artifacts is none.",
            code="no-artifacts",
            hint="Name a path or a bucket, or remove the setting. See: prowess config show --origin",
        )
    return store


def session_of(key: SessionKey, name: str) -> str | None:
    """Returns the session that owns the name, or None if the user does."""
    return None if artifact_scope(name)[0] else key.session


async def list_artifacts(store: ArtifactStore, key: SessionKey, *, everywhere: bool = False) -> list[ArtifactRow]:
    """Returns a row for each name: of the key's session, or of all. The user's own are the same in every session, so
    they come once."""
    rows: list[ArtifactRow] = []
    for number, there in enumerate(await _keys(store, key, everywhere)):
        names = [name for name in await store.names(there) if not artifact_scope(name)[0] or number == 0]
        rows += filter(None, await asyncio.gather(*(_row(store, there, name) for name in names)))
    return sorted(rows, key=lambda row: (row.session is not None, row.session or "", row.newest.name))


async def _keys(store: ArtifactStore, key: SessionKey, everywhere: bool) -> list[SessionKey]:
    """Returns the key, or one for each session of the store. Never empty, so that the user's own are found."""
    tell: Callable[[SessionKey], Awaitable[Sequence[str]]] | None = getattr(store, "sessions", None)
    if not everywhere or tell is None:
        return [key]
    return [replace(key, session=session) for session in await tell(key)] or [key]


async def _row(store: ArtifactStore, key: SessionKey, name: str) -> ArtifactRow | None:
    versions = await store.versions(key, name)
    if not versions:
        return None  # deleted after it was listed
    return ArtifactRow(session_of(key, name), await store.get(key, name, version=versions[-1]), versions)


async def find_artifact(store: ArtifactStore, key: SessionKey, name: str, *, everywhere: bool = False) -> SessionKey:
    """Returns the key that has such a name: the one given, or the only one of all sessions. Nobody remembers the name
    of a session."""
    keys = await _keys(store, key, everywhere)
    if artifact_scope(name)[0]:
        keys = keys[:1]
    found = [each for each in keys if await store.versions(each, name)]
    if not found:
        names = sorted({each for there in keys for each in await store.names(there)})
        near = difflib.get_close_matches(name, names, n=3)
        meant = f"Did you mean {' or '.join(near)}? " if near else ""
        raise StoreError(
            f"No artifact '{name}'{'' if everywhere else f' in session {key.session}'}.",
            code="artifact-not-found",
            hint=f"{meant}See: prowess artifacts list",
        )
    if len(found) > 1:
        raise ConfigError(
            f"{len(found)} sessions have an artifact '{name}'.",
            code="artifact-ambiguous",
            hint=f"Say which: --session {' | '.join(each.session for each in found[:10])}",
        )
    return found[0]


async def remove_artifacts(
    store: ArtifactStore, key: SessionKey, refs: Sequence[ArtifactRef], *, everywhere: bool = False
) -> list[RemovedArtifact]:
    """Removes these versions; all versions of a reference without one. When one is not there, nothing is removed."""
    wanted: dict[tuple[SessionKey, str, int], None] = {}
    for ref in refs:
        there = await find_artifact(store, key, ref.name, everywhere=everywhere)
        if ref.version is not None:
            await store.get(there, ref.name, version=ref.version)
        versions = [ref.version] if ref.version is not None else await store.versions(there, ref.name)
        wanted |= dict.fromkeys((there, ref.name, version) for version in versions)
    removed = []
    for there, name, version in wanted:
        await store.delete(there, name, version=version)
        removed.append(RemovedArtifact(session_of(there, name), render_artifact_ref(name, version), name, version))
    return removed
