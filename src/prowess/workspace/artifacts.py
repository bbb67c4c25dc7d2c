"""Loads artifacts as inputs of a run, pinned to a version if asked, and saves output files as artifacts.

Both directions stream. Files are saved whole.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import IO

from prowess.core.ports import ArtifactStore
from prowess.core.values import Artifact, SessionKey, parse_artifact_ref
from prowess.errors import ProwessError, WorkspaceError, in_one_line
from prowess.workspace.dirfd import open_file
from prowess.workspace.inputs import Input, input_target
from prowess.workspace.layout import Layout
from prowess.workspace.outputs import OutputFile
from prowess.workspace.session_folder import Place, read_meta, write_meta

_PIECE = 1 << 20


class Contents:
    """Artifacts fetched for the inputs of one run, in temporary files of the runtime."""

    def __init__(self) -> None:
        self._files: dict[str, IO[bytes]] = {}
        self._stack = ExitStack()

    async def add(self, ref: str, pieces: AsyncIterator[bytes]) -> None:
        file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the others
        self._stack.callback(file.close)
        async for piece in pieces:
            file.write(piece)
        self._files[ref] = file

    def get(self, ref: str) -> Iterable[bytes]:
        file = self._files[ref]
        file.seek(0)
        return iter(lambda: file.read(_PIECE), b"")

    def __enter__(self) -> Contents:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


async def stage_artifact_sources(
    inputs: Sequence[Input], store: ArtifactStore | None, key: SessionKey, place: Place
) -> Contents:
    """Fetches the artifacts that the inputs name. A pinned input without a version gets the version that its target
    had first."""
    contents = Contents()
    try:
        for wanted in inputs:
            if not wanted.source.startswith("artifact://"):
                continue
            if store is None:
                raise WorkspaceError(
                    f"The input '{wanted.source}' names an artifact, and there is no artifact store.",
                    op="inputs",
                    code="no-artifacts",
                    hint="Configure one: artifacts.",
                )
            ref = parse_artifact_ref(wanted.source)
            version = ref.version
            if version is None and wanted.pin:
                version = await _pinned(ref.name, input_target(wanted), store, key, place)
            await contents.add(wanted.source.removeprefix("artifact://"), store.stream(key, ref.name, version=version))
    except BaseException:
        contents.__exit__(None, None, None)
        raise
    return contents


async def save_outputs(
    store: ArtifactStore | None, key: SessionKey, layout: Layout, files: Sequence[OutputFile], prefix: str
) -> tuple[list[Artifact], list[str]]:
    """Saves each file under prefix + name. Returns (saved, problems). A failure does not stop the other files."""
    if store is None:
        return [], ["Nothing was saved as an artifact: there is no artifact store. The files are in the workspace."]
    saved = []
    problems = []
    for file in files:
        try:
            with open_file(layout.root, file.name) as fd:
                data = _pieces(fd)
                saved.append(await store.save(key, f"{prefix}{file.name}", data, mime_type=file.mime_type))
        except (ProwessError, OSError) as error:
            problems.append(f"'{file.name}' was not saved as an artifact: {in_one_line(error)}")
    return saved, problems


async def _pinned(name: str, target: str, store: ArtifactStore, key: SessionKey, place: Place) -> int:
    meta = read_meta(place.path)
    pins = meta.get("pins")
    pins = pins if isinstance(pins, dict) else {}
    pin = f"{target}\n{name}"
    known = pins.get(pin)
    if isinstance(known, int):
        return known
    artifact = await store.get(key, name)
    write_meta(place.path, {**meta, "pins": {**pins, pin: artifact.version}})
    return artifact.version


def _pieces(fd: int) -> Iterator[bytes]:
    at = 0
    while piece := os.pread(fd, _PIECE, at):
        at += len(piece)
        yield piece
