"""What somebody wants done, and what came of it."""

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
    """What somebody wants done."""

    text: str = ""
    attachments: tuple[Part, ...] = ()
    skills: tuple[SkillRequest, ...] = ()  # to be in use from the start
    named: tuple[str, ...] = ()  # files that came with it, also those in folders
    resume: bool = False
    parent: str | None = None  # the run that this is a part of,
    call: str | None = None  # and its call which this carries out
    again: tuple[str, ...] = ()  # what `prowess run` has to be told again to go on with this


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of it. `text` is the answer, or what was done and what was not."""

    text: str
    stop_reason: StopReason
    usage: Usage
    session: str
    run: str
    plan: Plan | None = None
    files: tuple[dict[str, Any], ...] = ()  # made by scripts: name, ref, mime_type, size_bytes
    left_out: tuple[str, ...] = ()  # hidden files that no pattern named
    waiting: tuple[ToolCall, ...] = ()  # calls that a person has to approve
    failed: int = 0  # calls that came to nothing: they failed, were denied or interrupted
    state: dict[str, Any] | None = None
    code: str | None = None  # of the failure that the text reports

    @property
    def ok(self) -> bool:
        return self.stop_reason == "answer"


def new_run() -> str:
    return f"r-{secrets.token_hex(6)}"


def make_started(agent: AgentSpec, task: Task, resumed: str | None) -> RunStarted:
    model = agent.model
    limits = {name: value for name in Limits.__slots__ if (value := getattr(agent.limits, name)) is not None}
    return RunStarted(
        model=model.name,
        protocol=getattr(model, "protocol", "tools"),
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
        wishes=tuple(map(asdict, task.skills)),
        again=task.again,
        notes=tuple(getattr(model, "notes", ())),
    )


def wishes_of(started: RunStarted) -> tuple[SkillRequest, ...]:
    """What the caller of a run wanted in use, as that run wrote it down."""
    known = SkillRequest.__slots__
    given = [{name: value for name, value in wish.items() if name in known} for wish in started.wishes]
    return tuple(SkillRequest(**{**wish, "docs": tuple(wish.get("docs") or ())}) for wish in given if wish.get("ref"))
