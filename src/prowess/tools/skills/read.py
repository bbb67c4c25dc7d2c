"""skill_read: reads a file of a loaded skill: the whole file, one section, or some lines.

The file is as it was when the skill was loaded. A name that only one file of the skill has stands for its path; that is
settled before policy sees the call. A section goes from its heading to the next heading of the same or a higher level.
Of a short file without that section, everything is read. Lines in code fences and in the front matter are no headings.
The text is redacted before it is cut, and wrapped in a frame that marks it as text of a skill.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from prowess._internal.mime import SNIFF_BYTES, guess_mime, is_text
from prowess.core.ports import CallGrant, Redaction
from prowess.core.values import Outcome, ToolSpec
from prowess.errors import ResourceNotFound, SkillError
from prowess.skills.render import neutralise, render_doc
from prowess.skills.skill import Skill
from prowess.tools.arguments import SkillReadArguments, advertise
from prowess.tools.schema import parse_arguments
from prowess.tools.session_work import LoadedSkill
from prowess.tools.skills.loaded import ShelfTool, describe, find_path, shown_name, shown_names

MAX_TEXT = 63 << 10  # bytes per result; with its frame this fits into an outcome
_WITH_HEADINGS = (".md", ".markdown", ".txt")
_SHORT = 4000  # characters of a file that is shown whole if it has no such section


class SkillRead(ShelfTool):
    kind = SkillReadArguments
    spec = ToolSpec(
        name="skill_read",
        description="Read a file of a skill, or a section or lines of it.",
        parameters=advertise(SkillReadArguments, "skill", "path", "section", "start_line", "num_lines"),
        read_only=True,
    )

    def normalise(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Normal form of the arguments, with the path of the file that is meant."""
        wanted = parse_arguments(SkillReadArguments, args, self.spec.name)
        path = wanted.path
        try:
            skill = self._shelf.work.get(wanted.skill).skill
            path = find_path([file.path for file in skill.files], path)
        except SkillError:  # the call itself says that the skill is not loaded
            pass
        return wanted.model_copy(update={"path": path}).normal()

    async def call(self, args: Mapping[str, Any], within: CallGrant) -> Outcome:
        wanted = parse_arguments(SkillReadArguments, args, self.spec.name)
        loaded = self._shelf.work.get(wanted.skill)
        skill = loaded.skill
        path = wanted.path.removeprefix("./")
        found = describe(skill)
        found["path"] = path
        found["ref"] = f"skill://{skill.name}/{path}"
        data = await _read(loaded, path)
        if data is None or not is_text(data, whole=True):
            return _not_text(skill, found, data or b"")
        # In a thread, because a hostile text can take long.
        excerpt = await asyncio.to_thread(_excerpt, data, wanted, path, within.redaction)
        framed = render_doc(skill, path, excerpt.text.encode())
        content = "\n".join([framed, *excerpt.notes])
        found |= excerpt.place
        found["framed"] = True
        return Outcome(status="ok", content=content, data=found)


class _Excerpt(NamedTuple):
    text: str
    place: Mapping[str, Any]
    notes: Sequence[str]


def _excerpt(data: bytes, wanted: SkillReadArguments, path: str, redaction: Redaction) -> _Excerpt:
    text = redaction.redact_text(data.decode())  # before the text is cut
    text = neutralise(text)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = _LINE.findall(text)
    start, end, about = _find_span(lines, wanted, path)
    chosen = "".join(lines[start:end])
    shown, more = _cut(chosen, start)
    place: dict[str, Any] = {"start_line": start + 1}
    place["num_lines"] = len(_LINE.findall(shown))
    place["total_lines"] = len(lines)
    place["size_bytes"] = len(data)
    place["truncated"] = bool(more)
    notes = list(about)
    if more:
        notes.append(more)
    return _Excerpt(shown, place, notes)


_LINE = re.compile(r"[^\n]*\n|[^\n]+")  # lines as editors count them; str.splitlines knows more line ends


async def _read(loaded: LoadedSkill, path: str) -> bytes | None:
    """Reads the file. None if it is too large and its name is not that of a text file."""
    try:
        return await asyncio.to_thread(loaded.read, path)
    except ResourceNotFound as error:
        if error.code == "resource-too-large" and not guess_mime(path, b"").startswith("text/"):
            return None
        if error.code == "resource-not-found":
            _check_no_folder(loaded.skill, path)
        raise


def _check_no_folder(skill: Skill, path: str) -> None:
    folder = path.rstrip("/") + "/"
    below = [file.path for file in skill.files if file.path.startswith(folder)]
    if not below:
        return
    message = f"'{shown_name(path[:200])}' is a folder of the skill '{shown_name(skill.name)}'."
    hint = f"Read one of its files: {shown_names(below)}"
    raise ResourceNotFound(message, code="resource-not-found", hint=hint) from None


def _not_text(skill: Skill, found: dict[str, Any], data: bytes) -> Outcome:
    path = found["path"]
    size = len(data)
    for file in skill.files:
        if file.path == path:
            size = file.size_bytes
    mime = guess_mime(path, data[:SNIFF_BYTES])
    content = f"{shown_name(path)} is not text: {mime}, {size} bytes."
    found["mime_type"] = mime
    found["size_bytes"] = size
    return Outcome(status="ok", content=content, data=found)


class _Span(NamedTuple):
    """Range of lines, counted from 0, without the end line; and notes about it."""

    start: int
    end: int
    notes: tuple[str, ...] = ()


def _find_span(lines: Sequence[str], wanted: SkillReadArguments, path: str) -> _Span:
    """Lines of the wanted section, or of all of it, without those outside of the wanted line numbers."""
    total = len(lines)
    start, end, notes = _find_section(lines, wanted, path)
    if wanted.start_line:
        start = max(start, wanted.start_line - 1)
    if start and start >= total:
        message = f"{shown_name(path)} has {total} lines, and none from {start + 1} on."
        raise ResourceNotFound(message, code="no-such-lines", hint="Ask for lines that are there.")
    if wanted.num_lines:
        end = min(end, start + wanted.num_lines)
    return _Span(start, end, notes)


def _find_section(lines: Sequence[str], wanted: SkillReadArguments, path: str) -> _Span:
    """Lines of the section that is named; all lines if none is named, or if a mere hint matches nothing."""
    section = (wanted.section or "").strip()
    hint = (wanted.section_hint or "").strip()
    total = len(lines)
    if not section and (not hint or wanted.start_line):
        return _Span(0, total)
    headings: list[Heading] = []
    if path.lower().endswith(_WITH_HEADINGS):
        headings = find_headings(lines)
    matching = match_headings(headings, section or hint)
    if matching:
        start, end = section_range(headings, matching[0], total)
        if len(matching) == 1:
            return _Span(start, end)
        return _Span(start, end, (f"There are {len(matching)} such sections; this is the first.",))
    if section and sum(map(len, lines)) > _SHORT:
        raise _no_section(path, section, headings)
    note = f"There is no section '{shown_name((section or hint)[:100])}': this is all of it."
    return _Span(0, total, (note,))


def _no_section(path: str, section: str, headings: Sequence[Heading]) -> ResourceNotFound:
    message = f"{shown_name(path)} has no section '{shown_name(section[:100])}'."
    hint = "It has no headings: read all of it, or some lines."
    real = shown_names([heading.text for heading in headings])
    if real:
        hint = f"Its headings: {real}"
    return ResourceNotFound(message, code="section-not-found", hint=hint)


def _cut(text: str, start: int) -> tuple[str, str]:
    """Cuts the text to MAX_TEXT, at a line end if possible. Returns it with a note on how to read on."""
    data = text.encode()
    if len(data) <= MAX_TEXT:
        return text, ""
    shown = data[:MAX_TEXT].decode("utf-8", "ignore")
    whole = shown.rfind("\n") + 1
    if not whole:
        return shown, f"Line {start + 1} is too long and was cut."
    shown = shown[:whole]
    following = start + shown.count("\n") + 1
    return shown, f"It was cut here. Go on with start_line {following}."


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
    fence = ""
    before = ""  # the last line, if it can be a heading that the next line underlines
    start = _after_front_matter(lines)
    for number, line in enumerate(lines[start:], start):
        line = line.rstrip("\n")
        mark = _FENCE.match(line)
        last = before
        before = ""
        if fence:
            if mark and mark[1].startswith(fence) and not mark[2].strip():
                fence = ""
        elif mark and not (mark[1][0] == "`" and "`" in mark[2]):
            fence = mark[1]
        elif heading := _HASHES.match(line):
            hashes, text = heading.groups("")
            yield Heading(number, len(hashes), _without_closing(text))
        elif last and (under := _UNDERLINE.match(line)):
            level = 1 if under[1][0] == "=" else 2
            yield Heading(number - 1, level, last.strip())
        elif not _NO_PARAGRAPH.match(line):
            before = line


def _without_closing(text: str) -> str:
    """Removes closing hashes: those of `Setup ##`, but not that of `C#`."""
    text = text.strip()
    bare = text.rstrip("#")
    if bare and bare[-1] not in " \t":
        return text
    return bare.rstrip()


def _after_front_matter(lines: Sequence[str]) -> int:
    """First line after the front matter; 0 if there is none, or if it has no end."""
    if not lines or lines[0].rstrip() != "---":
        return 0
    for number, line in enumerate(lines[1:], 2):
        if line.rstrip() == "---":
            return number
    return 0


def match_headings(headings: Sequence[Heading], wanted: str) -> list[Heading]:
    """Finds headings by text, without case and marks; else without punctuation and a leading number; else those that
    contain the text. Leading `#`s prefer that level."""
    title = wanted.lstrip("#")
    level = len(wanted) - len(title)
    text = _folded(_without_closing(title) or wanted)
    words = _words(text)
    same = [heading for heading in headings if _folded(heading.text) == text]
    if not same and words:
        same = [heading for heading in headings if _words(heading.text) == words]
    if not same and words:
        part = words if len(words) > 3 else f" {words} "
        same = [heading for heading in headings if part in f" {_words(heading.text)} "]
    preferred = [heading for heading in same if heading.level == level]
    return preferred or same


def section_range(headings: Sequence[Heading], heading: Heading, total: int) -> tuple[int, int]:
    """Lines from the heading to the next one of the same or a higher level."""
    for each in headings:
        if each.line > heading.line and each.level <= heading.level:
            return heading.line, each.line
    return heading.line, total


def _words(text: str) -> str:
    """Words of a heading without its number: `2.1 Fill-in forms!` is `fill in forms`."""
    words = _NO_WORD.sub(" ", text.casefold()).split()
    while len(words) > 1 and words[0].isdigit():
        del words[0]
    return " ".join(words)


_NO_WORD = re.compile(r"[\W_]+")


def _folded(text: str) -> str:
    """Text without marks, case and a final colon, for comparing."""
    text = _MARKS.sub("", text)
    words = text.casefold().split()
    return " ".join(words).removesuffix(":")
