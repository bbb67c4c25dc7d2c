"""Defines `Task`, the input of a run, and `Result`, its outcome."""

from __future__ import annotations

import platform
import secrets
from dataclasses import asdict, dataclass
from typing import Any

from prowess import __version__
from prowess.agent.activation import SkillRequest
from prowess.agent.agent import AgentSpec, Limits
from prowess.core.events import RunStarted, StopReason
from prowess.core.values import Part, Plan, ToolCall, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Input of a run: a request, files and skills."""

    text: str = ""
    attachments: tuple[Part, ...] = ()
    skills: tuple[SkillRequest, ...] = ()  # skills to load at the start
    named: tuple[str, ...] = ()  # given files, including those in folders
    resume: bool = False
    parent: str | None = None  # parent run
    call: str | None = None  # call of the parent run that this run carries out
    resume_arguments: tuple[str, ...] = ()  # options that `prowess run` needs again to continue this run


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Result of a run. `text` is the answer, or a report of what was done and what was not."""

    text: str
    stop_reason: StopReason
    usage: Usage
    session: str
    run: str
    plan: Plan | None = None
    files: tuple[dict[str, Any], ...] = ()  # files from scripts: name, ref, mime_type, size_bytes
    left_out: tuple[str, ...] = ()  # hidden files that no output pattern named
    waiting: tuple[ToolCall, ...] = ()  # calls that a person has to approve
    failed: int = 0  # number of calls that failed, were denied or interrupted
    state: dict[str, Any] | None = None
    code: str | None = None  # code of the failure that the text reports

    @property
    def ok(self) -> bool:
        return self.stop_reason == "answer"


def new_run() -> str:
    return f"r-{secrets.token_hex(6)}"


def make_started(agent: AgentSpec, task: Task, resumed: str | None) -> RunStarted:
    model, info = agent.model, agent.info
    limits = {name: value for name in Limits.__slots__ if (value := getattr(agent.limits, name)) is not None}
    return RunStarted(
        model=model.name,
        protocol=info.protocol,
        versions={
            "prowess": __version__,
            "python": platform.python_version(),
            "platform": platform.platform(terse=True),
        },
        request=task.text,
        attachments=task.attachments,
        load_mode=agent.load_mode,
        placement=agent.placement,
        limits=limits,
        parent=task.parent,
        call=task.call,
        resumes=resumed,
        requested_skills=tuple(map(asdict, task.skills)),
        resume_arguments=task.resume_arguments,
        notes=info.notes,
    )


def skill_requests_of(started: RunStarted) -> tuple[SkillRequest, ...]:
    """Skill requests of a run's caller, from the event that recorded them."""
    known = SkillRequest.__slots__
    given = [
        {name: value for name, value in requested.items() if name in known} for requested in started.requested_skills
    ]
    return tuple(
        SkillRequest(**{**requested, "docs": tuple(requested.get("docs") or ())})
        for requested in given
        if requested.get("ref")
    )
