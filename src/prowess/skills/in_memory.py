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
from prowess.skills.skill import Skill, SkillFile


def skill_from_text(text: str, *, name: str | None, files: Mapping[str, bytes | str], source: Source) -> Skill:
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    head = parse_head(data, name or "")
    folder = name or head.name
    if folder and not name:  # no folder was given: the declared name replaces it
        head = parse_head(data, folder)
    entry = make_entry(
        head, source=source, root="memory:", rel=folder or "unnamed", file="SKILL.md", size_bytes=len(data)
    )
    if not entry.valid:
        findings = [make_finding(note, "SKILL.md") for note in entry.notes]
        first = next(finding for finding in findings if finding.severity == "error")
        raise SkillInvalid(f"This text is not a skill: {first.message}", findings=findings, hint=first.hint)
    contents = {"SKILL.md": data}
    for path, content in files.items():
        check_safe_name(path)
        contents[path] = content.encode() if isinstance(content, str) else content
    listed = tuple(
        SkillFile(path, len(content), _looks_executable(content), content_sha256(content))
        for path, content in sorted(contents.items())
    )
    front = parse_front(data)
    body, line, notes = parse_body(data)
    return Skill(
        entry=entry,
        fields={} if isinstance(front, Note) else front.fields,
        body=body,
        body_line=line,
        digest=tree_digest(FileDigest(file.path, file.executable, file.sha256) for file in listed),
        files=listed,
        notes=notes,
        directory=None,
        contents=contents,
    )


def _looks_executable(content: bytes) -> bool:
    return content.startswith(b"#!")
