"""Shapes of what evals write: a check, the record of one run of a case, and a task for an engine."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict

from prowess._internal.text import one_line
from prowess.core.findings import visible
from prowess.core.values import Usage
from prowess.evals.case import Case
from prowess.records.trajectory import TimelineEntry

Status = Literal["passed", "failed", "error", "skipped"]  # error: the run itself failed, so nothing is known
CheckKind = Literal["skills", "steps", "output", "files", "constraints", "judge"]
# One line that a terminal can print.
ShortText = Annotated[str, AfterValidator(lambda text: one_line(visible(one_line(text, 400)), 400))]


class EvalRecord(BaseModel):
    """Base of all records. A record of a newer version is refused, not misread."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class CheckResult(EvalRecord):
    """Outcome of one check. `passed` is None when it could not be decided, for example by a judge that failed."""

    kind: CheckKind
    name: ShortText  # the check in words: "loads csv-report", "never web_fetch"
    passed: bool | None
    evidence: ShortText = ""  # what was found, for a person
    vacuous: bool = False  # nothing happened that the check could judge; it counts as passed, not as applicable


class RunFault(EvalRecord):
    """Failure of a run, as ProwessError has it."""

    code: str
    message: str
    hint: str | None = None
    retryable: bool = False


class RunKey(EvalRecord):
    """Identity of a run. Two runs with one key are the same measurement, so a finished one is not run again."""

    suite: str  # sha256 of the cases, fixtures and options that decide about a result
    case: str
    arm: str
    repeat: int  # from 1
    model: str
    skills: str  # digest of the skills that the model could choose from


class FileMade(EvalRecord):
    """File that a run made."""

    name: str
    mime_type: str | None = None
    size_bytes: int | None = None


class RunRecord(EvalRecord):
    """Record of one run of a case."""

    key: RunKey
    status: Status
    checks: tuple[CheckResult, ...] = ()
    error: RunFault | None = None
    expected_skills: tuple[str, ...] = ()  # to load
    forbidden_skills: tuple[str, ...] = ()  # not to load
    is_trigger_case: bool = False  # skills were expected or forbidden
    loaded_skills: tuple[str, ...] = ()  # names, in order, each once
    calls: int = 0
    calls_by_tool: dict[str, int] = {}
    turns: int = 0
    questions: int = 0
    usage: Usage = Usage()
    seconds: float = 0.0
    stop_reason: str | None = None
    text: str = ""
    timeline: tuple[TimelineEntry, ...] = ()
    files: tuple[FileMade, ...] = ()
    gate: Literal["hard", "soft"] = "hard"
    canary: bool = False
    attempts: int = 1
    replayed: bool = False


class SkillPlace(EvalRecord):
    """Root of skills, as the driver found it. Its trust is decided there, not where a task runs."""

    source: Literal["explicit", "project", "user", "url", "mcp", "builtin"]
    path: str
    trusted: bool
    url: str | None = None


class EvalTask(EvalRecord):
    """Run of a case, with everything that it needs. It is pure: JSON in, a RunRecord out, on any machine."""

    key: RunKey
    case: Case
    base: str  # folder that the task's paths are relative to
    cwd: str
    places: tuple[SkillPlace, ...] = ()  # roots of all skills
    trusted: bool | None = None  # the project and its policy
    settings: dict[str, Any] = {}  # all that differ from the defaults, such as {"workspace.executor": "local"}
    off: tuple[str, ...] = ()  # skills that this arm does not have
    approved: tuple[str, ...] = ()  # tools that need no question
    model: str | None = None  # as in --model; None: as configured
    judge: str | None = None
    record_to: str | None = None  # file for the recording
    replay_from: str | None = None  # file of a recording
    retries: int = 2
    checked: bool = True  # False for a request of a batch: an answer is enough
    load: tuple[str, ...] = ()  # skills that are loaded at once
    keep_files: bool = False  # return the content of the files that the run made
