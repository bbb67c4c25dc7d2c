"""read_file: a text of the workspace, an artifact or a loaded skill, whole or by lines; of other files, their kind."""

from __future__ import annotations

import asyncio
import difflib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from prowess._load import read_resource
from prowess._mime import guess_mime, is_text
from prowess._paths import refuse_unsafe_name
from prowess.errors import ProwessError, WorkspaceError
from prowess.ports import Need, Within
from prowess.tools.arguments import ReadArguments
from prowess.tools.schema import parse_arguments, render_schema
from prowess.tools.work import Work
from prowess.values import Outcome, ToolSpec, parse_artifact_ref
from prowess.workspace.beneath import open_file, walk
from prowess.workspace.layout import resolve_pattern

MAX_BYTES = 2 << 20  # of a file that is looked at
MAX_TEXT = 64 << 10  # of what is given at once


class ReadFile:
    def __init__(self, work: Work) -> None:
        self._work = work
        self.spec = ToolSpec(
            name="read_file",
            description="Read a text file by path or ref, all of it or some lines.",
            parameters=render_schema(ReadArguments),
            read_only=True,
        )

    def normalise(self, args: Mapping[str, Any]) -> dict[str, Any]:
        return parse_arguments(ReadArguments, args, self.spec.name).normal()

    async def needs(self, args: Mapping[str, Any]) -> Sequence[Need]:
        return ()

    async def call(self, args: Mapping[str, Any], within: Within) -> Outcome:
        wanted = parse_arguments(ReadArguments, args, self.spec.name)
        ref, data, size = await self._read(wanted.file_name)
        if not is_text(data):
            found = {"ref": ref, "mime_type": guess_mime(ref, data[:512]), "size_bytes": size, "content": None}
            text = f"{ref} is not text: {found['mime_type']}, {size} bytes."
            return Outcome(status="ok", content=text, data=found)
        text = within.redaction.redact_text(data.decode("utf-8", "replace"))  # before it is cut
        found = _some_lines(text, wanted, ref, size)
        return Outcome(status="ok", content=json.dumps(found, ensure_ascii=False), data=found)

    async def _read(self, name: str) -> tuple[str, bytes, int]:
        """(ref, content as far as it is looked at, size)."""
        scheme, mark, rest = name.partition("://")
        if mark and scheme == "artifact":
            return await self._artifact(name)
        if mark and scheme == "skill":
            skill, _, path = rest.partition("/")
            data = await asyncio.to_thread(read_resource, self._work.get(skill).skill, path)
            return name, data, len(data)
        if mark and scheme != "workspace":
            raise WorkspaceError(
                f"'{name[:200]}' has the unknown scheme '{scheme[:40]}'.",
                op="read",
                code="read-refused",
                hint="Use workspace://, artifact:// or skill://, or a path in the workspace.",
            )
        return await self._workspace(rest if mark else name)

    async def _artifact(self, ref: str) -> tuple[str, bytes, int]:
        store = self._work.artifacts
        if store is None:
            raise WorkspaceError(
                "There is no artifact store.", op="read", code="no-artifacts", hint="Configure one: artifacts."
            )
        wanted = parse_artifact_ref(ref)
        found = await store.get(self._work.key, wanted.name, version=wanted.version)
        data = bytearray()
        async for piece in store.stream(self._work.key, wanted.name, version=found.version):
            data += piece
            if len(data) > MAX_BYTES:
                break
        return ref, bytes(data[:MAX_BYTES]), found.size_bytes

    async def _workspace(self, path: str) -> tuple[str, bytes, int]:
        workspace, place = await self._work.workspace()
        inside = workspace.layout.inside
        rel = path[len(inside) :].lstrip("/") if path.startswith(f"{inside}/") else resolve_pattern(path)
        if rel.split("/")[0] == "inputs":
            rel = f"work/{rel}"  # as a script sees it from its skill's folder
        refuse_unsafe_name(rel)
        top, _, below = rel.partition("/")
        if top == "skills":
            folder, _, resource = below.partition("/")
            data = await asyncio.to_thread(read_resource, self._work.get(folder).skill, resource)
            return f"workspace://{rel}", data, len(data)
        try:
            data, size = await asyncio.to_thread(_read_beneath, place.root, rel)
        except OSError:
            names = await asyncio.to_thread(_names, place.root)
            near = difflib.get_close_matches(rel, names, n=5, cutoff=0.4) or names[:10]
            raise WorkspaceError(
                f"There is no file '{rel[:200]}' in the workspace.",
                op="read",
                code="file-not-found",
                hint=f"There are: {', '.join(near)}" if near else "It is empty so far.",
            ) from None
        return f"workspace://{rel}", data, size


def _some_lines(text: str, wanted: ReadArguments, ref: str, size: int) -> dict[str, Any]:
    lines = text.splitlines(keepends=True)
    start = (wanted.start_line or 1) - 1
    if start and start >= len(lines):
        raise WorkspaceError(
            f"{ref} has {len(lines)} lines, and none from {start + 1} on.",
            op="read",
            code="no-such-lines",
            hint="Ask for lines that are there.",
        )
    chosen = lines[start : start + wanted.num_lines] if wanted.num_lines else lines[start:]
    content = "".join(chosen)
    cut = len(content.encode()) > MAX_TEXT
    if cut:
        content = content.encode()[:MAX_TEXT].decode("utf-8", "ignore")
    shown = content.count("\n") + (0 if content.endswith("\n") or not content else 1)
    found: dict[str, Any] = {
        "ref": ref,
        "content": content,
        "start_line": start + 1,
        "num_lines": shown,
        "total_lines": len(lines),
        "size_bytes": size,
        "truncated": cut or size > MAX_BYTES,
    }
    if found["truncated"]:
        following = start + shown + content.endswith("\n")
        more = following > start + 1
        found["hint"] = (
            f"Go on with start_line {following}." if more else "The line is too long: look at it with a script."
        )
    return found


def _read_beneath(root: str, rel: str) -> tuple[bytes, int]:
    with open_file(root, rel) as fd:
        return os.pread(fd, MAX_BYTES, 0), os.fstat(fd).st_size


def _names(root: str) -> list[str]:
    found: list[str] = []
    try:
        for top in ("out", "work", "runs"):
            found += [rel for rel, *_ in walk(root, top, max_entries=2000)]
    except (ProwessError, OSError):
        pass
    return found
