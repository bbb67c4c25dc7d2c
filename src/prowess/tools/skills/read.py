"""skill_read: reads a file of a loaded skill: the whole file, one section, or some lines.

The file is as it was when the skill was loaded. A section goes from its heading to the next heading of the same or a
higher level. Lines in code fences and in the front matter are no headings. The text is redacted before it is cut, and
wrapped in a frame that marks it as text of a skill.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from prowess._internal.mime import SNIFF_BYTES, guess_mime, is_text
from prowess.core.ports import CallGrant, Redaction
from prowess.core.values import Outcome, ToolSpec
from prowess.errors import ResourceNotFound
from prowess.skills.render import neutralise, render_doc
from prowess.skills.skill import Skill
from prowess.tools.arguments import SkillReadArguments, advertise
from prowess.tools.schema import parse_arguments
from prowess.tools.session_work import LoadedSkill
from prowess.tools.skills.loaded import ShelfTool, describe, shown_name, shown_names

MAX_TEXT = 63 << 10  # bytes per result; with its frame this fits into an outcome
_WITH_HEADINGS = (".md", ".markdown", ".txt")


class SkillRead(ShelfTool):
    kind = SkillReadArguments
    spec = ToolSpec(
        name="skill_read",
        description="Read a file of a loaded skill, or a section or lines of it.",
        parameters=advertise(SkillReadArguments, "skill", "path", "section", "start_line", "num_lines"),
        read_only=True,
    )

    async def call(self, args: Mapping[str, Any], within: CallGrant) -> Outcome:
        wanted = parse_arguments(SkillReadArguments, args, self.spec.name)
        loaded = self._shelf.work.get(wanted.skill)
        path = wanted.path.removeprefix("./")
        found = {**describe(loaded.skill), "path": path, "ref": f"skill://{loaded.skill.name}/{path}"}
        data = await _read(loaded, path)
        if data is None or not is_text(data, whole=True):
            return Outcome(status="ok", **_not_text(loaded.skill, found, data or b""))
        # In a thread, because a hostile text can take long.
        excerpt = await asyncio.to_thread(_excerpt, data, wanted, path, within.redaction)
        content = "\n".join([render_doc(loaded.skill, path, excerpt.text.encode()), *excerpt.notes])
        return Outcome(status="ok", content=content, data={**found, **excerpt.place, "framed": True})


class _Excerpt(NamedTuple):
    text: str
    place: Mapping[str, Any]
    notes: Sequence[str]


def _excerpt(data: bytes, wanted: SkillReadArguments, path: str, redaction: Redaction) -> _Excerpt:
    text = neutralise(redaction.redact_text(data.decode()))  # before the text is cut
    lines = _LINE.findall(text.replace("\r\n", "\n").replace("\r", "\n"))
    span = _find_span(lines, wanted, path)
    shown, more = _cut("".join(lines[span.start : span.end]), span.start)
    place = {
        "start_line": span.start + 1,
        "num_lines": len(_LINE.findall(shown)),
        "total_lines": len(lines),
        "size_bytes": len(data),
        "truncated": bool(more),
    }
    return _Excerpt(shown, place, [*span.notes, *([more] if more else [])])


_LINE = re.compile(r"[^\n]*\n|[^\n]+")  # lines as editors count them; str.splitlines knows more line ends


async def _read(loaded: LoadedSkill, path: str) -> bytes | None:
    """Reads the file. None if it is too large and its name is not that of a text file."""
    try:
        return await asyncio.to_thread(loaded.read, path)
    except ResourceNotFound as error:
        if error.code == "resource-too-large" and not guess_mime(path, b"").startswith("text/"):
            return None
        below = [file.path for file in loaded.skill.files if file.path.startswith(path.rstrip("/") + "/")]
        if error.code == "resource-not-found" and below:
            raise ResourceNotFound(
                f"'{shown_name(path[:200])}' is a folder of the skill '{shown_name(loaded.skill.name)}'.",
                code="resource-not-found",
                hint=f"Read one of its files: {shown_names(below)}",
            ) from None
        raise


def _not_text(skill: Skill, found: Mapping[str, Any], data: bytes) -> dict[str, Any]:
    path = found["path"]
    size = next((file.size_bytes for file in skill.files if file.path == path), len(data))
    mime = guess_mime(path, data[:SNIFF_BYTES])
    content = f"{shown_name(path)} is not text: {mime}, {size} bytes. A script can have it: {shown_name(found['ref'])}"
    return {"content": content, "data": {**found, "mime_type": mime, "size_bytes": size}}


class _Span(NamedTuple):
    """Range of lines, counted from 0, without the end line; and notes about it."""

    start: int
    end: int
    notes: tuple[str, ...] = ()


def _find_span(lines: Sequence[str], wanted: SkillReadArguments, path: str) -> _Span:
    section, hint = (wanted.section or "").strip(), (wanted.section_hint or "").strip()
    total = len(lines)
    span = _Span(0, total)
    if section or (hint and not wanted.start_line):
        headings = find_headings(lines) if path.lower().endswith(_WITH_HEADINGS) else []
        matching = match_headings(headings, section or hint, loosely=not section)
        if matching:
            notes = (f"There are {len(matching)} such sections; this is the first.",) if len(matching) > 1 else ()
            span = _Span(*section_range(headings, matching[0], total), notes)
        elif section:
            real = shown_names([heading.text for heading in headings])
            raise ResourceNotFound(
                f"{shown_name(path)} has no section '{shown_name(section[:100])}'.",
                code="section-not-found",
                hint=f"Its headings: {real}" if real else "It has no headings: read all of it, or some lines.",
            )
        else:
            span = _Span(0, total, (f"There is no section '{shown_name(hint[:100])}': this is all of it.",))
    start = max(span.start, (wanted.start_line or 1) - 1)
    if start and start >= total:
        raise ResourceNotFound(
            f"{shown_name(path)} has {total} lines, and none from {start + 1} on.",
            code="no-such-lines",
            hint="Ask for lines that are there.",
        )
    end = min(span.end, start + wanted.num_lines) if wanted.num_lines else span.end
    return _Span(start, end, span.notes)


def _cut(text: str, start: int) -> tuple[str, str]:
    """Cuts the text to MAX_TEXT, at a line end if possible. Returns it with a note on how to read on."""
    data = text.encode()
    if len(data) <= MAX_TEXT:
        return text, ""
    shown = data[:MAX_TEXT].decode("utf-8", "ignore")
    whole = shown.rfind("\n") + 1
    if not whole:
        return shown, f"Line {start + 1} is too long and was cut: look at it with a script."
    shown = shown[:whole]
    return shown, f"It was cut here. Go on with start_line {start + shown.count(chr(10)) + 1}."


# --- sections ---------------------------------------------------------------------------------------------------------

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_HASHES = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*))?$")
_UNDERLINE = re.compile(r" {0,3}(=+|-{2,})[ \t]*$")
_NO_PARAGRAPH = re.compile(r"\s*$|\s*[|>*+#-]|\s*\d+[.)]\s| {4}|\t")
_MARKS = re.compile(r"[`*_]")


class Heading(NamedTuple):
    line: int  # counted from 0
    level: int
    text: str


def find_headings(lines: Sequence[str]) -> list[Heading]:
    return list(_headings(lines))


def _headings(lines: Sequence[str]) -> Iterator[Heading]:
    fence = before = ""
    start = _after_front_matter(lines)
    for number, line in enumerate(lines[start:], start):
        line = line.rstrip("\n")
        mark = _FENCE.match(line)
        last, before = before, ""
        if fence:
            if mark and mark[1].startswith(fence) and not mark[2].strip():
                fence = ""
        elif mark and not (mark[1][0] == "`" and "`" in mark[2]):
            fence = mark[1]
        elif heading := _HASHES.match(line):
            yield Heading(number, len(heading[1]), _without_closing(heading[2] or ""))
        elif last and (under := _UNDERLINE.match(line)):
            yield Heading(number - 1, 1 if under[1][0] == "=" else 2, last.strip())
        elif not _NO_PARAGRAPH.match(line):
            before = line


def _without_closing(text: str) -> str:
    """Removes closing hashes: those of `Setup ##`, but not that of `C#`."""
    text = text.strip()
    bare = text.rstrip("#")
    return bare.rstrip() if not bare or bare[-1] in " \t" else text


def _after_front_matter(lines: Sequence[str]) -> int:
    if not lines or lines[0].rstrip() != "---":
        return 0
    return next((number + 1 for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), 0)


def match_headings(headings: Sequence[Heading], wanted: str, *, loosely: bool = False) -> list[Heading]:
    """Finds headings by text, without case and marks. Leading `#`s prefer that level. `loosely` also accepts headings
    that contain the text."""
    level = len(wanted) - len(wanted.lstrip("#"))
    text = _folded(_without_closing(wanted.lstrip("#")) or wanted)
    same = [heading for heading in headings if _folded(heading.text) == text]
    if loosely and not same:
        same = [heading for heading in headings if text and text in _folded(heading.text)]
    return [heading for heading in same if heading.level == level] or same


def section_range(headings: Sequence[Heading], heading: Heading, total: int) -> tuple[int, int]:
    after = (each.line for each in headings if each.line > heading.line and each.level <= heading.level)
    return heading.line, next(after, total)


def _folded(text: str) -> str:
    return " ".join(_MARKS.sub("", text).casefold().split()).removesuffix(":")
