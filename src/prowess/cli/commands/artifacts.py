"""Command `prowess artifacts`: lists, reads, saves and removes the files that runs have saved."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import click

from prowess.cli.app import Call, actions, verb
from prowess.cli.inputs import decode_text, find_target, open_source, print_text, render_size
from prowess.cli.screen import count
from prowess.core.findings import visible
from prowess.core.ports import ArtifactStore
from prowess.core.values import (
    Artifact,
    ArtifactRef,
    SessionKey,
    artifact_scope,
    parse_artifact_ref,
    render_artifact_ref,
    to_json,
)
from prowess.errors import ConfigError, StoreError
from prowess.runtime.runtime import Runtime
from prowess.runtime.services.documents import finding_row
from prowess.runtime.services.files import open_target

_DEFAULT = "default"


def _whose(function: Any) -> Any:
    """Adds the options for tenant, app and user. The defaults are those of every run on this command line."""
    for name in ("tenant", "app", "user"):
        option = click.option(f"--{name}", default=_DEFAULT, show_default=True, help=f"Those of this {name}.")
        function = option(function)
    return function


@contextmanager
def _opened(call: Call) -> Iterator[tuple[Runtime, ArtifactStore]]:
    """Yields runtime and store. Shows ignored settings first: one may be the setting that says where artifacts are."""
    with call.runtime() as runtime:
        for finding in runtime.setup_findings:
            if finding.severity != "info" and not call.screen.is_json:
                call.screen.note(f"{finding.severity}: {visible(finding.message)} [{finding.code}]")
        store = runtime.open_artifacts()
        if store is None:
            raise ConfigError(
                "Artifacts are switched off: the setting artifacts is none.",
                code="no-artifacts",
                hint="Name a path or a bucket, or remove the setting. See: prowess config show --origin",
            )
        yield runtime, store


# --- list -------------------------------------------------------------------------------------------------------------


@verb("list", example="prowess artifacts list\nprowess artifacts list --session s-1f2e --json")
@click.option("--session", metavar="ID", help="Only those of this session, and the user's own.")
@_whose
def list_artifacts(call: Call, session: str | None, **whose: str) -> int:
    """Show what was saved: by every session, and for the user.

    A name that begins with user: belongs to the user and is seen from all sessions.
    """
    key = SessionKey(session=session or _DEFAULT, **whose)
    with _opened(call) as (runtime, store):
        rows = asyncio.run(_rows(store, key, session))
        place = str(getattr(store, "path", "memory:"))
        if call.screen.is_json:
            findings = [finding_row(finding) for finding in runtime.setup_findings]
            document = {"schema": "prowess.artifacts/1", "store": place, "artifacts": rows, "findings": findings}
            call.screen.document(document)
            return 0
        if rows:
            columns = ["name", "versions", "size", "type", "saved", "session"]
            call.screen.table(columns, [_cells(row) for row in rows])
        call.screen.note(f"\n{count(len(rows), 'artifact')} · {visible(place)}")
    return 0


async def _rows(store: ArtifactStore, key: SessionKey, session: str | None) -> list[dict[str, Any]]:
    """Returns a row for each name. The user's own are the same in every session, so they come once."""
    rows: list[dict[str, Any]] = []
    for number, each in enumerate(await _sessions(store, key, session)):
        there = replace(key, session=each)
        names = [name for name in await store.names(there) if not artifact_scope(name)[0] or number == 0]
        rows += filter(None, await asyncio.gather(*(_row(store, there, name) for name in names)))
    return sorted(rows, key=lambda row: (row["session"] is not None, row["session"] or "", row["name"]))


async def _sessions(store: ArtifactStore, key: SessionKey, session: str | None) -> Sequence[str]:
    """Returns the session asked for, or all that the store knows. Never empty, so that the user's own are found."""
    tell: Callable[[SessionKey], Awaitable[Sequence[str]]] | None = getattr(store, "sessions", None)
    if session is not None or tell is None:
        return [session or _DEFAULT]
    return await tell(key) or [_DEFAULT]


async def _row(store: ArtifactStore, key: SessionKey, name: str) -> dict[str, Any] | None:
    versions = await store.versions(key, name)
    if not versions:
        return None  # deleted after it was listed
    newest = await store.get(key, name, version=versions[-1])
    return {"session": _session_of(key, name), **_known(newest), "versions": list(versions)}


def _session_of(key: SessionKey, name: str) -> str | None:
    return None if artifact_scope(name)[0] else key.session


def _known(artifact: Artifact) -> dict[str, Any]:
    return {"ref": render_artifact_ref(artifact.name, artifact.version), **to_json(artifact)}


def _cells(row: dict[str, Any]) -> list[str]:
    saved = row["created_at"][:16].replace("T", " ")
    size = render_size(row["size_bytes"])
    return [row["name"], _spread(row["versions"]), size, row["mime_type"], saved, row["session"] or "-"]


def _spread(versions: Sequence[int]) -> str:
    """Renders version numbers as `0, 2–4`."""
    spans: list[list[int]] = []
    for version in versions:
        if spans and version == spans[-1][-1] + 1:
            spans[-1] = [spans[-1][0], version]
        else:
            spans.append([version])
    return ", ".join("–".join(map(str, span)) for span in spans)


# --- get --------------------------------------------------------------------------------------------------------------


@verb("get", example="prowess artifacts get report.md\nprowess artifacts get artifact://chart.png@2 -o chart.png")
@click.argument("ref")
@click.option("-o", "--output", metavar="FILE", help="Write it there, whole or not at all; - is stdout.")
@click.option("--force", is_flag=True, help="Replace FILE if there is one.")
@click.option("--session", metavar="ID", help="That of this session; needed when several have one of that name.")
@_whose
def get(call: Call, ref: str, output: str | None, force: bool, session: str | None, **whose: str) -> int:
    """Print a saved file, or write it somewhere.

    REF is artifact://NAME@VERSION or just NAME; without a version it is the newest. Text is printed; anything else
    needs -o FILE or a pipe.
    """
    wanted, key = _parse(ref), SessionKey(session=session or _DEFAULT, **whose)
    target = find_target(call.cwd, output, force)

    async def fetch(store: ArtifactStore) -> tuple[SessionKey, Artifact, str | None]:
        there = await _find(store, key, session, wanted.name)
        artifact = await store.get(there, wanted.name, version=wanted.version)
        content = store.stream(there, wanted.name, version=artifact.version)
        text = None
        if target is not None:
            with open_target(call.cwd, target, force) as file:
                async for piece in content:
                    file.write(piece)
        elif call.screen.is_json:
            text = decode_text(b"".join([piece async for piece in content]), wanted.name)
        elif sys.stdout.isatty():
            await print_text(content, wanted.name)
        else:
            async for piece in content:
                sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
        return there, artifact, text

    with _opened(call) as (_, store):
        there, artifact, text = asyncio.run(fetch(store))
    if call.screen.is_json:
        more = {"session": _session_of(there, wanted.name), "path": target, "text": text}
        call.screen.document({"schema": "prowess.artifact-get/1", **_known(artifact), **more})
    elif target is not None:
        call.screen.note(f"wrote {visible(target)}  {render_size(artifact.size_bytes)}")
    return 0


# --- put --------------------------------------------------------------------------------------------------------------


@verb(
    "put",
    example="prowess artifacts put report.pdf\n"
    "prowess artifacts put chart.png --name charts/2024.png --session s-1f2e\n"
    "date | prowess artifacts put - --name user:when.txt",
)
@click.argument("file")
@click.option("--name", help="Save it as this.  [default: the name of FILE]")
@click.option("--mime", metavar="TYPE", help="What kind of content it is.  [default: by name and content]")
@click.option("--session", metavar="ID", default=_DEFAULT, show_default=True, help="For this session.")
@_whose
def put(call: Call, file: str, name: str | None, mime: str | None, session: str, **whose: str) -> int:
    """Save a file as a new version of an artifact, and print its reference.

    FILE can be - for stdin. What was saved before stays, under its own version.
    """
    source = None if file == "-" else os.path.abspath(os.path.join(call.cwd, file))
    if name is None:
        if source is None:
            raise ConfigError("What comes from stdin has no name.", code="usage", hint="Give it one: --name NAME.")
        name = os.path.basename(source)
    artifact_scope(name)
    key = SessionKey(session=session, **whose)
    with _opened(call) as (_, store), open_source(source, name) as content:

        async def save() -> Artifact:
            return await store.save(key, name, content, mime_type=mime)

        known = _known(asyncio.run(save()))
    if call.screen.is_json:
        call.screen.document({"schema": "prowess.artifact-put/1", **known, "session": _session_of(key, name)})
    else:
        call.screen.text(visible(known["ref"]))
    return 0


# --- rm ---------------------------------------------------------------------------------------------------------------


@verb("rm", example="prowess artifacts rm report.md@0\nprowess artifacts rm report.md chart.png --all-versions")
@click.argument("refs", nargs=-1, required=True, metavar="REF…")
@click.option("--all-versions", is_flag=True, help="Remove every version of each.")
@click.option("--session", metavar="ID", help="That of this session; needed when several have one of that name.")
@_whose
def rm(call: Call, refs: tuple[str, ...], all_versions: bool, session: str | None, **whose: str) -> int:
    """Remove a version of an artifact, or all of them.

    REF is artifact://NAME@VERSION or NAME@VERSION, with --all-versions just NAME. The number of a removed version is
    not given again. When one of several is not there, nothing is removed.
    """
    wanted, key = [_parse(ref) for ref in refs], SessionKey(session=session or _DEFAULT, **whose)
    for ref in wanted:
        if (ref.version is None) != all_versions:
            either = f"Write {ref.name}@VERSION for one of them, or {ref.name} and --all-versions."
            raise ConfigError(f"Which versions of '{ref.name}'?", code="needs-version", hint=either)
    with _opened(call) as (_, store):
        removed = asyncio.run(_remove(store, key, session, wanted))
    if call.screen.is_json:
        call.screen.document({"schema": "prowess.artifacts-removed/1", "removed": removed})
        return 0
    for each in removed:
        of = f"  session {each['session']}" if each["session"] else ""
        call.screen.text(f"removed  {visible(each['ref'] + of)}")
    return 0


async def _remove(
    store: ArtifactStore, key: SessionKey, session: str | None, refs: Sequence[ArtifactRef]
) -> list[dict[str, Any]]:
    wanted: dict[tuple[SessionKey, str, int], None] = {}
    for ref in refs:
        there = await _find(store, key, session, ref.name)
        if ref.version is not None:
            await store.get(there, ref.name, version=ref.version)
        versions = [ref.version] if ref.version is not None else await store.versions(there, ref.name)
        wanted |= dict.fromkeys((there, ref.name, version) for version in versions)
    removed = []
    for there, name, version in wanted:
        await store.delete(there, name, version=version)
        known = {"ref": render_artifact_ref(name, version), "name": name, "version": version}
        removed.append({"session": _session_of(there, name), **known})
    return removed


# --- find the artifact -----------------------------------------------------------------------------------------------


def _parse(text: str) -> ArtifactRef:
    return parse_artifact_ref(text if "://" in text else f"artifact://{text}")


async def _find(store: ArtifactStore, key: SessionKey, session: str | None, name: str) -> SessionKey:
    """Returns the key that has such a name. The session may be left out, because nobody remembers its name."""
    keys = [replace(key, session=each) for each in await _sessions(store, key, session)]
    if artifact_scope(name)[0]:
        keys = keys[:1]
    found = [each for each in keys if await store.versions(each, name)]
    if not found:
        import difflib

        names = sorted({each for there in keys for each in await store.names(there)})
        near = difflib.get_close_matches(name, names, n=3)
        meant = f"Did you mean {' or '.join(near)}? " if near else ""
        raise StoreError(
            f"No artifact '{name}'{f' in session {session}' if session else ''}.",
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


command = actions(
    "artifacts",
    {"list": list_artifacts, "get": get, "put": put, "rm": rm},
    help="Show, read, save and remove the files that runs have saved.\n\n"
    "Every version of a file is kept. Without an action, the list.",
    example="prowess artifacts list --json\nprowess artifacts get report.md@0 -o report.md",
)
