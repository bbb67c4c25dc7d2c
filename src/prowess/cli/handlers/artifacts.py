"""Handlers of `prowess artifacts`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from prowess._internal.named_paths import check_input
from prowess.cli.app import Call
from prowess.cli.call import note_findings
from prowess.cli.inputs import decode_text, find_target, open_source, print_text, render_size
from prowess.cli.screen import count
from prowess.core.codec import to_json
from prowess.core.findings import visible
from prowess.core.ports import ArtifactStore
from prowess.core.values import (
    Artifact,
    ArtifactRef,
    SessionKey,
    artifact_scope,
    parse_artifact_ref,
    render_artifact_ref,
)
from prowess.errors import ConfigError
from prowess.runtime.runtime import Runtime
from prowess.runtime.services.artifacts import (
    DEFAULT_SESSION,
    ArtifactRow,
    find_artifact,
    get_artifacts,
    list_artifacts,
    remove_artifacts,
    session_of,
)
from prowess.runtime.services.documents import finding_row
from prowess.runtime.services.files import open_target

if TYPE_CHECKING:
    from prowess.runtime.documents.work import (
        ArtifactGetDocument,
        ArtifactParts,
        ArtifactPutDocument,
        ArtifactsDocument,
        ArtifactsRemovedDocument,
        ArtifactVersions,
    )


@contextmanager
def _opened(call: Call) -> Iterator[tuple[Runtime, ArtifactStore]]:
    """Yields runtime and store."""
    with call.runtime() as runtime:
        note_findings(call, runtime)
        yield runtime, get_artifacts(runtime)


# --- list -------------------------------------------------------------------------------------------------------------


def show_artifacts(call: Call, session: str | None, **whose: str) -> int:
    key = SessionKey(session=session or DEFAULT_SESSION, **whose)
    with _opened(call) as (runtime, store):
        found = asyncio.run(list_artifacts(store, key, everywhere=session is None))
        place = str(getattr(store, "path", "memory:"))
        if call.screen.is_json:
            artifacts = [_versions_row(row) for row in found]
            findings = [finding_row(finding) for finding in runtime.setup_findings]
            document: ArtifactsDocument = {
                "schema": "prowess.artifacts/1",
                "store": place,
                "artifacts": artifacts,
                "findings": findings,
            }
            call.screen.document(document)
            return 0
        if found:
            columns = ["name", "versions", "size", "type", "saved", "session"]
            rows = [_cells(row) for row in found]
            call.screen.table(columns, rows)
        number = count(len(found), "artifact")
        call.screen.note(f"\n{number} · {visible(place)}")
    return 0


def _known(artifact: Artifact, session: str | None) -> ArtifactParts:
    return {
        "ref": render_artifact_ref(artifact.name, artifact.version),
        "name": artifact.name,
        "version": artifact.version,
        "sha256": artifact.sha256,
        "size_bytes": artifact.size_bytes,
        "mime_type": artifact.mime_type,
        "created_at": artifact.created_at,
        "session": session,
    }


def _versions_row(row: ArtifactRow) -> ArtifactVersions:
    newest = _known(row.newest, row.session)
    return {**newest, "versions": list(row.versions)}


def _cells(row: ArtifactRow) -> list[str]:
    newest = row.newest
    versions = _spread(row.versions)
    size = render_size(newest.size_bytes)
    saved = newest.created_at[:16].replace("T", " ")
    session = row.session or "-"
    return [newest.name, versions, size, newest.mime_type, saved, session]


def _spread(versions: Sequence[int]) -> str:
    """Renders version numbers as `0, 2–4`."""
    spans: list[list[int]] = []
    for version in versions:
        if spans and version == spans[-1][-1] + 1:
            spans[-1] = [spans[-1][0], version]
        else:
            spans.append([version])
    texts: list[str] = []
    for span in spans:
        ends = map(str, span)
        texts.append("–".join(ends))
    return ", ".join(texts)


# --- get --------------------------------------------------------------------------------------------------------------


def get(call: Call, ref: str, output: str | None, force: bool, session: str | None, **whose: str) -> int:
    wanted = _parse(ref)
    key = SessionKey(session=session or DEFAULT_SESSION, **whose)
    target = find_target(call.cwd, output, force)

    async def fetch(store: ArtifactStore) -> tuple[SessionKey, Artifact, str | None]:
        there = await find_artifact(store, key, wanted.name, everywhere=session is None)
        artifact = await store.get(there, wanted.name, version=wanted.version)
        content = store.stream(there, wanted.name, version=artifact.version)
        text = None
        if target is not None:
            with open_target(call.cwd, target, force) as file:
                await _copy(content, file)
        elif call.screen.is_json:
            pieces = [piece async for piece in content]
            text = decode_text(b"".join(pieces), wanted.name)
        elif sys.stdout.isatty():
            await print_text(content, wanted.name)
        else:
            await _copy(content, sys.stdout.buffer)
            sys.stdout.buffer.flush()
        return there, artifact, text

    with _opened(call) as (_, store):
        there, artifact, text = asyncio.run(fetch(store))
    if call.screen.is_json:
        known = _known(artifact, session_of(there, wanted.name))
        document: ArtifactGetDocument = {
            "schema": "prowess.artifact-get/1",
            **known,
            "path": target,
            "text": text,
        }
        call.screen.document(document)
    elif target is not None:
        size = render_size(artifact.size_bytes)
        call.screen.note(f"wrote {visible(target)}  {size}")
    return 0


async def _copy(content: AsyncIterator[bytes], file: IO[bytes]) -> None:
    async for piece in content:
        file.write(piece)


# --- put --------------------------------------------------------------------------------------------------------------


def put(call: Call, file: str, name: str | None, mime: str | None, session: str, **whose: str) -> int:
    source = None
    if file != "-":
        source = os.path.abspath(os.path.join(call.cwd, file))
        check_input(call.cwd, source)
    if name is None:
        if source is None:
            raise ConfigError("What comes from stdin has no name.", code="usage", hint="Give it one: --name NAME.")
        name = os.path.basename(source)
    artifact_scope(name)
    key = SessionKey(session=session, **whose)
    with _opened(call) as (_, store), open_source(source, name) as content:

        async def save() -> Artifact:
            return await store.save(key, name, content, mime_type=mime)

        saved = asyncio.run(save())
    known = _known(saved, session_of(key, name))
    if call.screen.is_json:
        document: ArtifactPutDocument = {"schema": "prowess.artifact-put/1", **known}
        call.screen.document(document)
    else:
        call.screen.text(visible(known["ref"]))
    return 0


# --- rm ---------------------------------------------------------------------------------------------------------------


def remove(call: Call, refs: tuple[str, ...], all_versions: bool, session: str | None, **whose: str) -> int:
    wanted = [_parse(ref) for ref in refs]
    key = SessionKey(session=session or DEFAULT_SESSION, **whose)
    for ref in wanted:
        if (ref.version is None) != all_versions:
            message = f"Which versions of '{ref.name}'?"
            either = f"Write {ref.name}@VERSION for one of them, or {ref.name} and --all-versions."
            raise ConfigError(message, code="needs-version", hint=either)
    with _opened(call) as (_, store):
        removed = asyncio.run(remove_artifacts(store, key, wanted, everywhere=session is None))
    if call.screen.is_json:
        document: ArtifactsRemovedDocument = {"schema": "prowess.artifacts-removed/1", "removed": removed}
        call.screen.document(to_json(document))
        return 0
    for each in removed:
        what = each.ref
        if each.session:
            what += f"  session {each.session}"
        call.screen.text(f"removed  {visible(what)}")
    return 0


def _parse(text: str) -> ArtifactRef:
    """Reads a reference. `artifact://` may be left out."""
    if "://" not in text:
        text = f"artifact://{text}"
    return parse_artifact_ref(text)
