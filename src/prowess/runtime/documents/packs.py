"""Documents about installing, checking and packing skills."""

from __future__ import annotations

from typing import Literal, TypedDict

from prowess.core.catalog_values import Status
from prowess.runtime.documents.shared import ErrorRow, FindingRow, Texts


class FileChange(TypedDict):
    kind: Literal["added", "changed", "removed", "mode"]
    path: str


class InstalledSkill(TypedDict):
    """Skill of an installation. `changes` is what it changes, `edits` is what people changed."""

    name: str
    action: Literal["install", "update", "restore", "accept", "record", "keep"]
    path: str
    source: str
    kind: Literal["folder", "archive", "url", "git", "site", "package"]
    ref: str | None
    commit: str | None
    sha256: str | None
    version: str | None
    version_before: str | None
    digest: str
    digest_before: str | None
    files: int
    size_bytes: int
    changes: list[FileChange]
    edits: list[FileChange]
    capabilities: Texts
    capabilities_before: Texts | None
    findings: list[FindingRow]
    status: Status | None


class FailedSkill(ErrorRow):
    name: str


class InstalledDocument(TypedDict):
    schema: Literal["prowess.installed/1"]
    dry_run: bool
    changed: bool
    folder: str
    wanted: str
    lock: str
    skills: list[InstalledSkill]
    notes: Texts
    failed: list[FailedSkill]


class UninstalledSkill(TypedDict):
    name: str
    path: str
    digest: str | None
    backup: str | None


class UninstalledDocument(TypedDict):
    schema: Literal["prowess.uninstalled/1"]
    purged: bool
    removed: list[UninstalledSkill]


class RolledBackDocument(TypedDict):
    schema: Literal["prowess.rolled-back/1"]
    name: str
    path: str
    digest: str | None
    digest_before: str | None
    version: str | None
    version_before: str | None
    source: str | None
    changes: list[FileChange]


class ComparedSkill(TypedDict):
    path: str
    same: bool
    digest: str | None
    expected_digest: str | None
    differences: list[FileChange]
    notes: Texts


class NamedComparison(ComparedSkill):
    name: str


class ComparedPack(TypedDict):
    path: str
    same: bool
    sha256: str | None
    has_manifest: bool
    skills: list[ComparedSkill]
    others: Texts


class VerifiedDocument(TypedDict):
    schema: Literal["prowess.verified/1"]
    same: bool
    folder: str | None
    lock: str | None
    skills: list[NamedComparison]
    unknown: Texts
    packs: list[ComparedPack]


class PackedRow(TypedDict):
    name: str
    version: str | None
    digest: str
    files: int
    findings: list[FindingRow]


class PackedDocument(TypedDict):
    schema: Literal["prowess.packed/1"]
    path: str
    sha256: str
    size_bytes: int
    skills: list[PackedRow]
    left_out: Texts
