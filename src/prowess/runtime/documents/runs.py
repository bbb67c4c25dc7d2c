"""Documents about runs, sessions and evals."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from prowess.core.catalog_values import Trigger
from prowess.core.values import ChainHead, SessionKey, Usage
from prowess.records.diff import Difference
from prowess.records.summary import LargeOutput
from prowess.runtime.documents.shared import ErrorRow, FindingRow, Open, Texts
from prowess.runtime.services.runs import RunRow


class AttachmentRow(TypedDict):
    name: str | None
    ref: str | None
    mime_type: str | None


class KeyOutput(TypedDict):
    name: str
    text: str


class RunSkill(TypedDict):
    id: str
    name: str
    digest: str
    trigger: Trigger
    rank: int | None
    reason: str | None


class RunResource(TypedDict):
    skill: str
    path: str


class RunTool(TypedDict):
    tool: str
    status: str
    code: str | None
    count: int


class CommandRow(TypedDict):
    call_id: str
    tool: str
    skill: str
    command: str
    status: str
    code: str | None
    exit_code: int | None
    duration_ms: int | None


class RunPrompts(TypedDict):
    asked: int
    answered: int
    by: dict[str, int]


class RunParts(TypedDict):
    """Summary of a run."""

    run: str
    key: SessionKey
    request: str
    normalised_request: str
    attachments: list[AttachmentRow]
    model: str
    versions: dict[str, str]
    resumes: str | None
    started_at: str
    finished_at: str | None
    stop_reason: str | None
    code: str | None
    text: str
    key_output: KeyOutput | None
    usage: Usage
    skills: list[RunSkill]
    resources: list[RunResource]
    tools: list[RunTool]
    commands: list[CommandRow]
    isolation: list[Open]
    prompts: RunPrompts
    outputs: list[LargeOutput]
    children: Texts
    events: int
    after: ChainHead
    head: ChainHead


class RunDocument(RunParts):
    """Content of run.json."""

    schema: Literal["prowess.run/1"]


class RunsDocument(TypedDict):
    schema: Literal["prowess.runs/1"]
    store: str
    runs: list[RunRow]
    more: bool
    damaged: Texts


class MomentRow(TypedDict):
    seq: int | None
    offset_ms: int | None
    run: str
    kind: str
    text: str
    more: str


class RunShownDocument(RunParts):
    schema: Literal["prowess.run-shown/1"]
    cut_off: bool
    resumed_by: str | None
    damage: str | None
    unreadable: int
    foreign: str | None
    timeline: list[MomentRow]


class CheckRow(TypedDict):
    valid: bool
    events: int
    first_bad: int | None
    anchored: bool
    why: str | None


class VerifiedRunRow(CheckRow):
    run: str
    session: str | None
    foreign: str | None
    copy: Literal["same", "differs"] | None
    findings: list[FindingRow]


class RunVerifiedDocument(VerifiedRunRow):
    schema: Literal["prowess.run-verified/1"]


class VerifiedSessionRow(CheckRow):
    session: str


class RunsVerifiedDocument(TypedDict):
    schema: Literal["prowess.runs-verified/1"]
    valid: bool
    sessions: list[VerifiedSessionRow]
    runs: list[VerifiedRunRow]


class DiffSide(TypedDict):
    run: str
    session: str
    model: str
    skills: Texts
    calls: Texts
    input_tokens: int
    output_tokens: int
    requests: int
    events: int
    stop_reason: str | None


class RunsDiffDocument(TypedDict):
    schema: Literal["prowess.runs-diff/1"]
    same: bool
    first: Difference | None
    a: DiffSide
    b: DiffSide


class RunReplayedDocument(TypedDict):
    schema: Literal["prowess.run-replayed/1"]
    run: str
    same: bool
    first: Difference | None
    events: int
    replayed: int
    error: ErrorRow | None
    notes: Texts


class RunExportedDocument(TypedDict):
    schema: Literal["prowess.run-exported/1"]
    run: str
    format: Literal["otel", "jsonl"]
    path: str
    size_bytes: int
    damage: str | None


class ExportedCopy(TypedDict):
    run: str
    path: str
    damage: str | None


class RunsExportedDocument(TypedDict):
    schema: Literal["prowess.runs-exported/1"]
    runs: list[ExportedCopy]


class PrunedCopy(TypedDict):
    run: str
    path: str
    size_bytes: int


class ProjectRow(TypedDict):
    id: str
    path: str | None
    status: Literal["here", "gone", "unreadable"]
    used_at: str | None
    size_bytes: int


class ProjectsDocument(TypedDict):
    schema: Literal["prowess.projects/1"]
    state_dir: str
    projects: list[ProjectRow]


class ProjectAdoptedDocument(TypedDict):
    schema: Literal["prowess.project-adopted/1"]
    project: ProjectRow


class ProjectsPrunedDocument(TypedDict):
    schema: Literal["prowess.projects-pruned/1"]
    dry_run: bool
    removed: list[ProjectRow]


class ImportedSessionRow(TypedDict):
    session: str
    tenant: str
    app: str
    user: str
    events: int
    status: Literal["imported", "already-there", "conflict", "damaged"]
    why: str | None


class RunsImportedDocument(TypedDict):
    schema: Literal["prowess.runs-imported/1"]
    file: str
    store: str
    sessions: list[ImportedSessionRow]


class RunsPrunedDocument(TypedDict):
    schema: Literal["prowess.runs-pruned/1"]
    dry_run: bool
    removed: list[PrunedCopy]
    sessions: Texts
    kept: Texts


class SessionParts(TypedDict):
    session: str
    tenant: str
    app: str
    user: str
    created_at: str
    updated_at: str
    expires_at: str | None
    events: int
    runs: int | None
    last_request: str | None
    stop_reason: str | None
    damage: str | None


class SessionsDocument(TypedDict):
    schema: Literal["prowess.sessions/1"]
    store: str
    sessions: list[SessionParts]
    more: int
    pruned: int
    findings: list[FindingRow]


class Said(TypedDict):
    kind: Literal["skill", "unload", "call", "text", "note", "error", "run"]
    text: str
    run: NotRequired[str]
    status: NotRequired[str | None]
    code: NotRequired[str | None]
    id: NotRequired[str]


class ConversationRun(RunParts):
    said: list[Said]


class SessionDocument(SessionParts):
    schema: Literal["prowess.session/1"]
    conversation: list[ConversationRun]


class SessionDeletedDocument(TypedDict):
    schema: Literal["prowess.session-deleted/1"]
    session: str
    events: int
    workspace: str | None
    artifacts: Texts


class BatchDocument(TypedDict):
    schema: Literal["prowess.batch/1"]
    output: str
    total: int
    failed: int
    resumed: int
    notes: Texts


class EvalRunRow(TypedDict):
    id: str
    started_at: str
    suite: str
    model: str
    arms: Texts


class EvalRunsDocument(TypedDict):
    schema: Literal["prowess.eval-runs/1"]
    runs: list[EvalRunRow]
    more: bool


class EvalsInitDocument(TypedDict):
    schema: Literal["prowess.evals-init/1"]
    file: str
