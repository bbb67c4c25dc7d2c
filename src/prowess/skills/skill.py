"""Values of a skill before and after loading, and of the roots that were searched.

All are named tuples, because a library may have 20,000 skills. `catalog` decides who may use which skill.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from prowess.core.catalog_values import Finding, Mode, Severity, SkillRef, Source, Status
from prowess.core.findings import RULES, Note, make_finding
from prowess.skills.head import Controls

PRIORITY: tuple[Source, ...] = ("explicit", "project", "user", "url", "mcp", "builtin")
# Names inside a skill that lead to the workspace during a run.
WORKSPACE_NAMES = ("out", "work", "inputs", ".venv")
MODES: tuple[Mode, ...] = ("pin", "auto", "name-only", "manual", "off")
# Codes of notes that make a skill unusable.
FATAL = frozenset(
    code
    for code, rule in RULES.items()
    if code == "digest-denied" or (rule.stage in ("head", "file") and rule.severity == "error")
)


class Entry(NamedTuple):
    """Skill as discovery sees it: the head of its SKILL.md and its location. A tuple, because there may be 20,000."""

    source: Source
    root: str
    rel: str  # the skill's folder below the root, with forward slashes; "" when the root itself is the skill
    file: str  # SKILL.md, or the name in another case under which it was found
    name: str
    declared: str | None  # the name in the front matter, when it differs from the folder's
    description: str
    version: str | None
    keywords: tuple[str, ...]
    controls: Controls
    size_bytes: int
    notes: tuple[Note, ...]
    trusted: bool
    linked: str | None = None  # the real folder, when a link leads to it
    suffix: str = ""  # distinguishes two skills that would have the same id
    catalog_tokens: int = 0  # estimated tokens of its catalog entry; 0: not counted

    @property
    def id(self) -> str:
        """Name that is unique in a catalog: `project:acme/pdf`."""
        return f"{self.source}:{self.qualified}{self.suffix}"

    @property
    def qualified(self) -> str:
        """Name with the folders above it: `acme/pdf` for <root>/acme/pdf/."""
        above, _, _ = self.rel.rpartition("/")
        if not above:
            return self.name
        return f"{above}/{self.name}"

    @property
    def path(self) -> str:
        if not self.rel:
            return self.root
        root = self.root.rstrip(os.sep)
        rel = self.rel.replace("/", os.sep)
        return f"{root}{os.sep}{rel}"

    @property
    def real_path(self) -> str:
        return self.linked or self.path

    @property
    def location(self) -> str:
        return f"{self.path.rstrip(os.sep)}{os.sep}{self.file}"

    @property
    def valid(self) -> bool:
        return not any(note.code in FATAL for note in self.notes)

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(map(self.finding_of, self.notes))

    def finding_of(self, note: Note, severity: Severity | None = None) -> Finding:
        return make_finding(note, self.location_of(note), severity=severity)

    def location_of(self, note: Note) -> str:
        """Path of this skill's SKILL.md, or of the file below the skill that the note names."""
        if note.code != "skill-nested":
            return self.location
        parts = note.details["file"].split("/")
        return os.path.join(self.path, *parts)

    def find_note(self, code: str) -> Note | None:
        for note in self.notes:
            if note.code == code:
                return note
        return None

    def told_apart(self, name: str, taken: set[str]) -> Entry:
        """Adds a suffix to the id. It is a hash of the path, so it stays the same while the skill is not moved."""
        from zlib import crc32

        path = self.path.encode("utf-8", "surrogateescape")
        base = f"@{crc32(path) & 0xFFFFFF:06x}"
        suffix = base
        number = 1
        while name + suffix in taken:
            number += 1
            suffix = f"{base}-{number}"
        return self._replace(suffix=suffix)

    @property
    def ref(self) -> SkillRef:
        return SkillRef(id=self.id, name=self.name, source=self.source)


class SkillFile(NamedTuple):
    path: str  # relative to the skill, with forward slashes
    size_bytes: int
    executable: bool
    sha256: str


_EVAL_FOLDERS = ("evals/", "evaluations/")  # tests of a skill, which a model that uses it does not need


class Skill(NamedTuple):
    """Loaded skill: its body and the list of its files, pinned by the digest of the whole tree."""

    entry: Entry
    fields: Mapping[str, Any]  # the whole front matter, including unknown fields
    body: str
    body_line: int
    digest: str
    files: tuple[SkillFile, ...]  # sorted by path
    notes: tuple[Note, ...]
    directory: str | None  # folder with its files; None for a skill in memory
    contents: Mapping[str, bytes] | None = None  # files of a skill in memory

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def description(self) -> str:
        return self.entry.description

    @property
    def resources(self) -> tuple[str, ...]:
        """Files that a model is told about, sorted: all but SKILL.md, and evals only if the body names them."""
        unnamed = tuple(folder for folder in _EVAL_FOLDERS if folder not in self.body)
        found: list[str] = []
        for file in self.files:
            if file.path != self.entry.file and not file.path.startswith(unnamed):
                found.append(file.path)
        return tuple(found)

    @property
    def docs(self) -> tuple[str, ...]:
        """Every .md and .txt file among the resources."""
        return tuple(path for path in self.resources if path.lower().endswith((".md", ".txt")))

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Findings of its entry, then of its content."""
        notes = (*self.entry.notes, *self.notes)
        return tuple(map(self.entry.finding_of, notes))

    @staticmethod
    def from_text(
        text: str,
        *,
        name: str | None = None,
        files: Mapping[str, bytes | str] | None = None,
        source: Source = "explicit",
    ) -> Skill:
        """Makes a skill from text in code. Parsing, findings and digest are the same as for a skill on disk."""
        from prowess.skills.in_memory import skill_from_text

        return skill_from_text(text, name=name, files=files or {}, source=source)


class Visibility(NamedTuple):
    """Decision about who may use a skill, with the reasons."""

    status: Status
    reasons: tuple[str, ...]
    model_visible: bool
    user_visible: bool
    mode: Mode


class CatalogPart(NamedTuple):
    """Entry of a catalog that becomes part of another one, with everything that was decided about it."""

    entry: Entry
    skill: Skill | None  # when it was made in code
    mode: tuple[Mode, str] | None  # mode and reason, when a pattern of the first catalog sets it


class Root(NamedTuple):
    """Place where skills are looked for."""

    source: Source
    path: str
    trusted: bool = True
    url: str | None = None
    expected: bool = True  # somebody named it, so a finding reports it when it is missing
    origin: str = "given"  # who named it: flag, environment, configuration, default


class RootReport(NamedTuple):
    source: Source
    path: str
    skills: int
    trusted: bool
    exists: bool
    url: str | None = None  # safe to show: without user and password
    origin: str = "given"

    @property
    def shown(self) -> str:
        return self.url or self.path


class Changes(NamedTuple):
    """Ids of the skills that a reload added, changed or removed."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """True when anything changed."""
        return bool(self.added or self.changed or self.removed)


def shipped_folders(skill: Skill) -> list[str]:
    """Returns names that the skill ships but that lead to the workspace during a run."""
    tops: set[str] = set()
    for listed in skill.files:
        top, _, _ = listed.path.partition("/")
        tops.add(top)
    return [name for name in WORKSPACE_NAMES if name in tops]
