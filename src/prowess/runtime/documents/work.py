"""Documents about scripts, workspaces and artifacts."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from prowess.core.isolation import IsolationRecord
from prowess.runtime.documents.shared import ErrorRow, FindingRow, OnDisk, Texts
from prowess.runtime.services.artifacts import RemovedArtifact


class OutputFileRow(TypedDict):
    name: str
    ref: str
    mime_type: str
    size_bytes: int
    truncated: bool
    content: NotRequired[str]


class SavedFile(TypedDict):
    name: str
    version: int


StagedInput = TypedDict("StagedInput", {"from": str, "name": str, "ref": str, "size_bytes": int, "files": int})


class MissingDependency(TypedDict):
    kind: str
    name: str
    hint: str


class ExecDocument(TypedDict):
    """Result of skill_run. `error` is there when nothing was run."""

    schema: Literal["prowess.exec/1"]
    status: Literal["ok", "failed", "timeout", "denied", "unavailable"]
    stdout: str
    stderr: str
    exit_code: int | None
    timed_out: bool
    duration_ms: int
    truncated: bool
    primary_output: OutputFileRow | None
    output_files: list[OutputFileRow]
    artifact_files: list[SavedFile]
    staged_inputs: list[StagedInput]
    warnings: Texts
    isolation: IsolationRecord | None
    session: str | None
    run: NotRequired[str]
    signal: NotRequired[int]
    stdout_ref: NotRequired[str]
    stderr_ref: NotRequired[str]
    missing_dependency: NotRequired[MissingDependency]
    dependencies: NotRequired[Texts]
    left_out: NotRequired[Texts]
    copied: NotRequired[Texts]
    error: NotRequired[ErrorRow]


class WorkspaceRow(OnDisk):
    id: str
    session: str
    store: str | None
    files: int


class EnvironmentRow(OnDisk):
    key: str
    dependencies: Texts
    resolved: Texts
    made_for: str
    whole: bool


class TreeRow(OnDisk):
    digest: str


class PublishedSkills(TypedDict):
    path: str
    skills: int
    size_bytes: int


class WorkspacesDocument(TypedDict):
    schema: Literal["prowess.workspaces/1"]
    dir: str
    workspaces: list[WorkspaceRow]
    environments: list[EnvironmentRow]
    published: PublishedSkills


class CleanedEnvironments(TypedDict):
    removed: list[EnvironmentRow]
    in_use: list[EnvironmentRow]


class CleanedTrees(TypedDict):
    removed: list[TreeRow]
    in_use: list[TreeRow]
    needed: int
    needed_by_others: Texts
    problem: str | None


class WorkspacesCleanedDocument(TypedDict):
    schema: Literal["prowess.workspaces-cleaned/1"]
    dir: str
    dry_run: bool
    removed: list[WorkspaceRow]
    in_use: list[WorkspaceRow]
    environments: CleanedEnvironments
    published: CleanedTrees


class ImageDocument(TypedDict):
    schema: Literal["prowess.image/1"]
    tag: str
    id: str
    size_bytes: int
    python: str
    built_from: Literal["image", "dockerfile", "packages"]
    packages: list[str]


class ArtifactParts(TypedDict):
    ref: str
    name: str
    version: int
    sha256: str
    size_bytes: int
    mime_type: str
    created_at: str
    session: str | None


class ArtifactVersions(ArtifactParts):
    versions: list[int]


class ArtifactsDocument(TypedDict):
    schema: Literal["prowess.artifacts/1"]
    store: str
    artifacts: list[ArtifactVersions]
    findings: list[FindingRow]


class ArtifactGetDocument(ArtifactParts):
    schema: Literal["prowess.artifact-get/1"]
    path: str | None
    text: str | None


class ArtifactPutDocument(ArtifactParts):
    schema: Literal["prowess.artifact-put/1"]


class ArtifactsRemovedDocument(TypedDict):
    schema: Literal["prowess.artifacts-removed/1"]
    removed: list[RemovedArtifact]
