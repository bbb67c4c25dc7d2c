"""read_file: reads a text file of the workspace, an artifact or a loaded skill: the whole file or some lines.

For a file that is not text it returns the type and size. Reading a SKILL.md loads the skill, where loading is possible,
in the same way as every other activation.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from prowess._internal.mime import guess_mime, is_text
from prowess.core.ports import CallGrant
from prowess.core.values import Outcome, Spawn, ToolSpec, parse_artifact_ref
from prowess.errors import ProwessError, SkillError, WorkspaceError
from prowess.tools.arguments import ReadArguments
from prowess.tools.files.paths import FileRef, find_ref, not_found, open_plain, plain_path, skill_ref, spelled
from prowess.tools.result_text import foreign_text, our_line
from prowess.tools.schema import parse_arguments, render_schema
from prowess.tools.session_work import SessionWork, WorkTool
from prowess.workspace.session_folder import Place

MAX_BYTES = 2 << 20  # bytes read of a file
MAX_TEXT = 64 << 10  # bytes per result
Activate = Callable[[str, CallGrant], Awaitable[Outcome]]


class FileText(NamedTuple):
    ref: str
    name: str  # plain path
    data: bytes  # at most MAX_BYTES
    size: int


class ReadFile(WorkTool):
    """The read_file tool. `skill_at` finds the id of the skill whose SKILL.md is at an absolute path."""

    spec = ToolSpec(
        name="read_file",
        description="Read a text file by path or ref, all of it or some lines.",
        parameters=render_schema(ReadArguments),
        read_only=True,
    )

    def __init__(
        self,
        work: SessionWork,
        *,
        activate: Activate | None = None,
        skill_at: Callable[[str], str | None] | None = None,
    ) -> None:
        super().__init__(work)
        self._activate = activate
        self._skill_at = skill_at

    def normalise(self, args: Mapping[str, Any]) -> dict[str, Any]:
        wanted = parse_arguments(ReadArguments, args, self.spec.name)
        name = spelled(wanted.file_name, self._work)
        wanted = wanted.model_copy(update={"file_name": name})
        return wanted.normal()

    async def call(self, args: Mapping[str, Any], within: CallGrant) -> Outcome | Spawn:
        wanted = parse_arguments(ReadArguments, args, self.spec.name)
        if self._activate is not None:
            skill = self.find_skill(wanted.file_name)
            if skill is not None:
                return await self._activate(skill, within)
        ref, name, data, size = await self._read(wanted.file_name)
        if not is_text(data):
            mime = guess_mime(ref, data[:512])
            found = {"ref": ref, "mime_type": mime, "size_bytes": size, "content": None, "paths": [name]}
            return Outcome(status="ok", content=f"{ref} is not text: {mime}, {size} bytes.", data=found)
        text = data.decode("utf-8", "replace")
        text = within.redaction.redact_text(text)  # before the text is cut
        found = _some_lines(text, wanted, ref, size)
        return Outcome(status="ok", content=_render(found), data={**found, "paths": [name]})

    def find_skill(self, text: str) -> str | None:
        """Finds the skill whose SKILL.md this path is. Returns the id of a skill in use, else the name in the path."""
        _, _, file = text.rpartition("/")
        if file.lower() != "skill.md":
            return None
        known = self._find_known(text)
        if known is not None:
            return known
        scheme, mark, rest = spelled(text, self._work).rpartition("://")
        try:
            rest = plain_path(rest)
        except ProwessError:
            return None
        if not mark and rest.startswith("skills/"):
            rest = rest.removeprefix("skills/")
        elif scheme != "skill":
            return None
        called = rest.rpartition("/")[0] or None
        try:
            path, loaded = skill_ref(rest, self._work)
        except SkillError:
            return called
        if loaded is not None and path.lower() == "skill.md":
            return loaded.skill.entry.id
        if loaded is not None and any(file.path == path for file in loaded.skill.files):
            return None  # a resource of the skill
        return called

    def _find_known(self, text: str) -> str | None:
        """Finds the skill that the catalog knows at an absolute path."""
        path = os.path.expanduser(text) if text.startswith("~") else text
        if self._skill_at is None or not path.startswith("/"):
            return None
        path = os.path.normpath(path)
        return self._skill_at(path)

    async def _read(self, text: str) -> FileText:
        if text.startswith("artifact://"):
            return await self._artifact(text)
        ref = await find_ref(text, self._work)
        if ref.loaded is not None:
            data = await asyncio.to_thread(ref.loaded.read, ref.path)
            name = ref.name
            full = text if "://" in text else f"workspace://{name}"
            return FileText(full, name, data, len(data))
        _, place = await self._work.workspace()
        rel, data, size = await asyncio.to_thread(_read_plain, place, ref)
        return FileText(f"workspace://{rel}", rel, data, size)

    async def _artifact(self, ref: str) -> FileText:
        store = self._work.backend.artifacts
        if store is None:
            hint = "Configure one: artifacts."
            raise WorkspaceError("There is no artifact store.", op="read", code="no-artifacts", hint=hint)
        key = self._work.key
        wanted = parse_artifact_ref(ref)
        found = await store.get(key, wanted.name, version=wanted.version)
        data = bytearray()
        async for piece in store.stream(key, wanted.name, version=found.version):
            data += piece
            if len(data) > MAX_BYTES:
                break
        return FileText(ref, wanted.name, bytes(data[:MAX_BYTES]), found.size_bytes)


def _read_plain(place: Place, ref: FileRef) -> tuple[str, bytes, int]:
    """Reads a workspace file. If there is no `inputs/<path>`, it reads `<path>`."""
    without_inputs = ref.path.removeprefix("work/inputs/")
    for rel in (ref.path, without_inputs):
        try:
            with open_plain(place, rel) as fd:
                size = os.fstat(fd).st_size
                return rel, os.pread(fd, MAX_BYTES, 0), size
        except OSError:
            continue
    raise not_found(ref.path, place.root)


def _render(found: Mapping[str, Any]) -> str:
    """Renders the lines for the model. A line of ours follows if they are not all lines of the file."""
    content = foreign_text(found["content"]).rstrip("\n")
    last = found["start_line"] + found["num_lines"] - 1
    total = found["total_lines"]
    if total == 0:
        return "(empty)"
    if found["num_lines"] == total and not found["truncated"]:
        return content
    where = f"lines {found['start_line']}-{last} of {total}"
    hint = found.get("hint")
    if hint:
        where = f"{where}, cut. {hint}"
    return f"{content}\n{our_line(where)}"


def _some_lines(text: str, wanted: ReadArguments, ref: str, size: int) -> dict[str, Any]:
    lines = text.splitlines(keepends=True)
    first = wanted.start_line or 1
    if first > 1 and first > len(lines):
        message = f"{ref} has {len(lines)} lines, and none from {first} on."
        raise WorkspaceError(message, op="read", code="no-such-lines", hint="Ask for lines that are there.")
    chosen = lines[first - 1 :]
    if wanted.num_lines:
        chosen = chosen[: wanted.num_lines]
    content = "".join(chosen)
    data = content.encode()
    cut = len(data) > MAX_TEXT
    if cut:
        content = data[:MAX_TEXT].decode("utf-8", "ignore")
    whole = content.count("\n")
    is_unfinished = content != "" and not content.endswith("\n")
    truncated = cut or size > MAX_BYTES
    found: dict[str, Any] = {"ref": ref, "content": content, "start_line": first}
    found["num_lines"] = whole + is_unfinished
    found["total_lines"] = len(lines)
    found["size_bytes"] = size
    found["truncated"] = truncated
    if truncated and whole:
        found["hint"] = f"Go on with start_line {first + whole}."
    elif truncated:
        found["hint"] = "The line is too long."
    return found
