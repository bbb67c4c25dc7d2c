"""Makes skills from text in code. They are parsed, checked, digested and named like skills on disk."""

from __future__ import annotations

from collections.abc import Mapping

from prowess._internal.digest import FileDigest, content_sha256, tree_digest
from prowess._internal.paths import check_safe_name
from prowess.core.catalog_values import Source
from prowess.core.findings import Note, make_finding
from prowess.errors import SkillInvalid
from prowess.skills.entry_reader import make_entry
from prowess.skills.parse import parse_body, parse_front, parse_head
from prowess.skills.skill import Entry, Skill, SkillFile


def skill_from_text(text: str, *, name: str | None, files: Mapping[str, bytes | str], source: Source) -> Skill:
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    entry = _make_entry(data, name, source)
    contents = {"SKILL.md": data}
    for path, content in files.items():
        check_safe_name(path)
        contents[path] = content.encode() if isinstance(content, str) else content
    listed = [_list_file(path, content) for path, content in sorted(contents.items())]
    digests = [FileDigest(file.path, file.executable, file.sha256) for file in listed]
    front = parse_front(data)
    body, line, notes = parse_body(data)
    return Skill(
        entry=entry,
        fields={} if isinstance(front, Note) else front.fields,
        body=body,
        body_line=line,
        digest=tree_digest(digests),
        files=tuple(listed),
        notes=notes,
        directory=None,
        contents=contents,
    )


def _make_entry(data: bytes, name: str | None, source: Source) -> Entry:
    """Parses the head of a SKILL.md. Without a name, the declared name replaces that of a folder."""
    head = parse_head(data, name or "")
    folder = name or head.name
    if folder and not name:
        head = parse_head(data, folder)
    rel = folder or "unnamed"
    entry = make_entry(head, source=source, root="memory:", rel=rel, file="SKILL.md", size_bytes=len(data))
    if not entry.valid:
        findings = [make_finding(note, "SKILL.md") for note in entry.notes]
        first = next(finding for finding in findings if finding.severity == "error")
        raise SkillInvalid(f"This text is not a skill: {first.message}", findings=findings, hint=first.hint)
    return entry


def _list_file(path: str, content: bytes) -> SkillFile:
    is_executable = content.startswith(b"#!")
    return SkillFile(path, len(content), is_executable, content_sha256(content))
