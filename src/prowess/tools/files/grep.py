"""grep: finds lines of text files that match a pattern, in the workspace or a loaded skill.

The pattern comes from a model and may run for ever. So it is matched in a separate process with a time-out. Texts are
redacted before they are matched, so a pattern cannot guess secrets.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import stat
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from prowess.core.ports import CallGrant, Redaction
from prowess.core.values import Outcome, ToolSpec
from prowess.errors import PathEscape, ProwessError, ToolFailed, ToolRetry
from prowess.tools.arguments import GrepArguments
from prowess.tools.files import grep_worker as matcher
from prowess.tools.files.paths import (
    TOPS,
    FileRef,
    find_ref,
    is_foreign,
    match_glob,
    not_found,
    open_plain,
    shown,
    spelled,
)
from prowess.tools.schema import parse_arguments, render_schema
from prowess.tools.session_work import LoadedSkill, SessionWork, WorkTool
from prowess.workspace.dirfd import open_child, walk
from prowess.workspace.session_folder import Place

MAX_FILE_BYTES = 2 << 20
MAX_TEXT = 300  # characters shown of a line
MAX_PATHS = 50
TIMEOUT_S = 10.0
_BATCH_BYTES = 1 << 20
_BATCH_S = 0.2
_MOST_NAMED = 10


class GrepText(NamedTuple):
    name: str
    data: bytes


@dataclass(slots=True)
class GrepResult:
    """Matches of a search, and the files that it skipped."""

    lines: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    files: int = 0  # files that were searched
    binary: int = 0
    large: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    more: bool = False  # there are more matches
    gave_up_in: str | None = None


class Grep(WorkTool):
    spec = ToolSpec(
        name="grep",
        description="Find lines that match a regular expression in text files.",
        parameters=render_schema(GrepArguments),
        read_only=True,
    )

    def __init__(self, work: SessionWork, *, timeout_s: float = TIMEOUT_S) -> None:
        super().__init__(work)
        self._timeout_s = timeout_s

    def normalise(self, args: Mapping[str, Any]) -> dict[str, Any]:
        wanted = parse_arguments(GrepArguments, args, self.spec.name)
        path = spelled(wanted.path or ".", self._work)
        wanted = wanted.model_copy(update={"path": path})
        return wanted.normal()

    async def call(self, args: Mapping[str, Any], within: CallGrant) -> Outcome:
        wanted = parse_arguments(GrepArguments, args, self.spec.name)
        ref = await find_ref(wanted.path or ".", self._work)
        found = GrepResult()
        texts = _Texts(found, wanted.glob, within.redaction)
        if ref.loaded is not None:
            source = texts.of_skill(ref.loaded, ref.path)
        elif ref.path == "skills":
            source = texts.of_skills(list(self._work.loaded.values()))
        else:
            _, place = await self._work.workspace()
            source = texts.of_workspace(place, ref)
        await search(source, wanted, found, self._timeout_s)
        return _render(found, ref, self._timeout_s)


async def search(texts: Iterator[GrepText], wanted: GrepArguments, found: GrepResult, timeout_s: float) -> None:
    """Adds matching lines to `found` until the end or the time-out."""
    argv = (sys.executable, "-I", "-S", "-X", "utf8", "-c", _program())
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,  # so that signals of our terminal do not reach it
    )
    assert process.stdin is not None and process.stdout is not None
    names: list[str] = []
    feeding = asyncio.ensure_future(_feed(process.stdin, texts, names, wanted, timeout_s))
    try:
        async with asyncio.timeout(timeout_s):
            await _hear(process.stdout, names, found)
            if feeding.done():
                feeding.result()  # raises errors of reading the files
    except TimeoutError:
        if not found.gave_up_in:
            found.gave_up_in = names[-1] if names else ""
    finally:
        feeding.cancel()
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await asyncio.shield(_reaped(process, feeding))


async def _reaped(process: asyncio.subprocess.Process, feeding: asyncio.Future[None]) -> None:
    await asyncio.wait([feeding])
    if not feeding.cancelled():
        feeding.exception()  # raised already, or no longer relevant
    await process.wait()


async def _feed(
    stdin: asyncio.StreamWriter, texts: Iterator[GrepText], names: list[str], wanted: GrepArguments, timeout_s: float
) -> None:
    """Sends the pattern, then each text: its number and size, then its bytes. The number is its place in `names`."""
    order: dict[str, Any] = {"pattern": wanted.pattern, "ignore_case": wanted.ignore_case}
    order["most"] = wanted.max_results
    order["width"] = MAX_TEXT
    order["seconds"] = int(timeout_s) + 5
    try:
        stdin.write(_json_line(order))
        while batch := await asyncio.to_thread(_batch, texts):
            for name, data in batch:
                head = [len(names), len(data)]
                names.append(name)
                stdin.write(_json_line(head) + data)
            await stdin.drain()
    except (ConnectionError, BrokenPipeError):  # the worker found enough matches, or was killed
        pass
    finally:
        stdin.close()


def _json_line(value: object) -> bytes:
    text = json.dumps(value)
    return f"{text}\n".encode()


def _batch(texts: Iterator[GrepText]) -> list[GrepText]:
    """Reads some texts. Batches are small, so that a cancelled search does not wait for a thread that reads all."""
    batch: list[GrepText] = []
    ends = time.monotonic() + _BATCH_S
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text.data)
        if size >= _BATCH_BYTES or time.monotonic() > ends:
            break
    return batch


async def _hear(stdout: asyncio.StreamReader, names: list[str], found: GrepResult) -> None:
    """Reads the answers of the worker. `gave_up_in` is the file that it searches, in case that it never ends."""
    path = ""
    while line := await stdout.readline():
        said = json.loads(line)
        if "error" in said:
            why = said["error"]
            if said["at"] is not None:
                why += f" at position {said['at']}"
            raise ToolRetry(f"grep: the pattern is no regular expression: {why}.")
        if "file" in said:
            found.files += 1
            name = names[said["file"]]
            found.gave_up_in = name
            path = shown(name)
        elif "line" in said:
            text = _tabbed(said["text"])
            found.lines.append(f"{path}:{said['line']}: {text}")
            if path not in found.paths[-1:] and len(found.paths) < MAX_PATHS:
                found.paths.append(path)
        else:
            found.more = "more" in said
            found.gave_up_in = None
            return
    raise ToolFailed("grep: the search ended before its end, probably because the pattern needs too much memory.")


@dataclass(slots=True)
class _Texts:
    """Yields redacted text files one by one. Notes skipped files in `found`."""

    found: GrepResult
    glob: str | None
    redaction: Redaction

    def of_skills(self, loaded: Sequence[LoadedSkill]) -> Iterator[GrepText]:
        ordered = sorted(loaded, key=lambda each: each.folder)
        for each in ordered:
            yield from self.of_skill(each, "")

    def of_skill(self, loaded: LoadedSkill, path: str) -> Iterator[GrepText]:
        files = [file for file in loaded.skill.files if not path or f"{file.path}/".startswith(f"{path}/")]
        if path and not files:
            loaded.read(path)  # raises an error that lists the existing files
        for file in files:
            name = FileRef(file.path, loaded).name
            if not self._is_wanted(file.path, path):
                continue
            if file.size_bytes > MAX_FILE_BYTES:
                self.found.large.append(name)
                continue
            try:
                data = loaded.read(file.path)
            except ProwessError:
                self.found.unreadable.append(name)
                continue
            yield from self._text(name, data)

    def of_workspace(self, place: Place, ref: FileRef) -> Iterator[GrepText]:
        tops = TOPS if not ref.path else (ref.path,)
        try:
            if ref.path:
                with open_plain(place, ref.path) as fd:
                    yield from self._opened(fd, ref.path)
                return
        except PathEscape:  # not a plain file, or not readable for us
            pass
        except OSError:
            raise not_found(ref.path, place.root, folders=True) from None
        for top in tops:
            yield from self._below(place, top, ref.path)

    def _below(self, place: Place, top: str, base: str) -> Iterator[GrepText]:
        entries = walk(place.root, top)
        while True:
            try:
                rel, status, folder_fd, name = next(entries)
            except StopIteration:
                return
            except PathEscape as error:
                if error.code != "too-many-entries":
                    raise
                self.found.notes.append(f"{error.message} The rest was not searched.")
                return
            if not stat.S_ISREG(status.st_mode) or not self._is_wanted(rel, base):
                continue
            try:
                if is_foreign(status, place):
                    raise PermissionError(rel)
                fd = open_child(folder_fd, name, rel)
            except (OSError, PathEscape):
                self.found.unreadable.append(rel)
                continue
            try:
                yield from self._opened(fd, rel)
            finally:
                os.close(fd)

    def _opened(self, fd: int, rel: str) -> Iterator[GrepText]:
        status = os.fstat(fd)
        if status.st_size > MAX_FILE_BYTES:
            self.found.large.append(rel)
            return
        data = os.pread(fd, MAX_FILE_BYTES, 0)
        yield from self._text(rel, data)

    def _is_wanted(self, rel: str, base: str) -> bool:
        """True if the file matches the glob, from the searched folder or from the top."""
        if self.glob is None or match_glob(self.glob, rel):
            return True
        below = rel[len(base) :].lstrip("/")
        if not base or not below:
            return False
        return match_glob(self.glob, below)

    def _text(self, name: str, data: bytes) -> Iterator[GrepText]:
        if b"\0" in data:
            self.found.binary += 1
            return
        clean = self.redaction.redact_text(data.decode("utf-8", "replace"))
        yield GrepText(name, clean.encode("utf-8", "replace"))


def _render(found: GrepResult, ref: FileRef, timeout_s: float) -> Outcome:
    path = shown(ref.name)
    gave_up_in = found.gave_up_in
    skipped = [shown(name) for name in found.large[:MAX_PATHS]]
    data: dict[str, Any] = {"path": path, "matches": len(found.lines), "files": found.files}
    data["truncated"] = found.more or gave_up_in is not None
    data["skipped"] = skipped
    data["paths"] = found.paths
    lines = list(found.lines)
    if gave_up_in is None:
        if not lines:
            lines.append(f"Nothing matches in {found.files} files below {path}.")
        lines += _notes(found)
        return Outcome(status="ok", content="\n".join(lines), data=data)
    at = f" in {shown(gave_up_in)}" if gave_up_in else ""
    lines.append(f"Given up after {timeout_s:g} s{at}.")
    lines += _notes(found)
    hint = "Use a simpler pattern, without repeats inside repeats, or search fewer files."
    return Outcome(status="failed", code="grep-timeout", content="\n".join(lines), hint=hint, data=data)


def _notes(found: GrepResult) -> list[str]:
    notes = list(found.notes)
    if found.more:
        notes.append(f"There are more than these {len(found.lines)}: narrow the pattern, the path or the glob.")
    if found.large:
        notes.append(f"Skipped, larger than {MAX_FILE_BYTES} bytes: {_few(found.large)}.")
    if found.unreadable:
        notes.append(f"Could not be read: {_few(found.unreadable)}.")
    if found.binary:
        notes.append(f"Skipped because they are not text: {found.binary}.")
    return notes


def _tabbed(text: str) -> str:
    """Escapes a line like a name, but keeps its tabs."""
    parts = text.split("\t")
    return "\t".join(map(shown, parts))


def _few(names: Sequence[str]) -> str:
    first = names[:_MOST_NAMED]
    listed = ", ".join(map(shown, first))
    more = len(names) - len(first)
    if more:
        listed += f" and {more} more"
    return listed


@functools.cache
def _program() -> str:
    with open(matcher.__file__, encoding="utf-8") as file:
        return file.read()
