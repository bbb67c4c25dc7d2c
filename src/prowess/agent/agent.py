"""Defines the input of a run, `AgentSpec` (a model, limits and options) and `Task`, and its outcome, `Result`.

Permissions and skills belong to the Toolkit.
"""

from __future__ import annotations

import platform
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

from prowess import __version__
from prowess.core.events import RunStarted, StopReason
from prowess.core.ports import Model, ModelInfo, RecordedModel, SkillReader, describe_model
from prowess.core.values import Part, Plan, ToolCall, Trigger, Usage
from prowess.errors import ConfigError

LoadMode = Literal["turn", "once", "session"]
Placement = Literal["tool_result", "system"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one run. None means no limit."""

    turns: int | None = 12
    calls: int | None = 30
    scripts: int | None = 6
    tokens: int | None = None
    seconds: float | None = None
    cost: float | None = None

    def tightened(self, **others: float | None) -> Limits:
        """Returns the stricter ones of these and the other limits."""
        stricter: dict[str, Any] = {}
        for name, value in others.items():
            now = getattr(self, name)
            stricter[name] = now if value is None else value if now is None else min(now, value)
        return replace(self, **stricter)

    def __post_init__(self) -> None:
        """Checks the limits before anything is recorded."""
        for name in self.__slots__:
            value, least = getattr(self, name), 1 if name == "turns" else 0
            whole = name in ("turns", "calls", "scripts", "tokens")
            fits = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
            if value is not None and not (fits and value >= least):
                raise ConfigError(
                    f"limits.{name} is {value!r}; it must be a {'whole ' if whole else ''}number of at least {least}.",
                    code="limit-invalid",
                    hint="None means no limit.",
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    model: Model
    limits: Limits = field(default_factory=Limits)
    load_mode: LoadMode = "turn"
    placement: Placement = "tool_result"
    prices: Mapping[str, float] = field(default_factory=dict)  # per million tokens: input, cached, output
    code_blocks: bool = False  # run fenced code of an answer, as normal calls
    summarise: bool = False  # let the model summarise dropped messages; counts as usage
    depth: int = 2  # maximum nesting of child runs
    info: ModelInfo = field(init=False)
    recording: RecordedModel | None = field(init=False)  # the model, if it plays back a recording
    reader: SkillReader | None = field(init=False)  # the model, if it takes skills as values

    def __post_init__(self) -> None:
        for name, kind in (("load_mode", LoadMode), ("placement", Placement)):
            if (value := getattr(self, name)) not in get_args(kind):
                raise ConfigError(
                    f"{name} is {value!r}.", code="option-invalid", hint=f"There are: {', '.join(get_args(kind))}."
                )
        if not callable(getattr(self.model, "reply", None)):
            raise ConfigError(
                f"{self.model!r} is not a model."[:200],
                code="model-unknown",
                hint="Give a name such as 'openai:gpt-5' or 'offline', or an object with name and reply.",
            )
        model = self.model
        object.__setattr__(self, "info", describe_model(model))
        object.__setattr__(self, "recording", model if isinstance(model, RecordedModel) else None)
        object.__setattr__(self, "reader", model if isinstance(model, SkillReader) else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillRequest:
    """Request to activate a skill, and its origin."""

    ref: str
    source: str | None = None
    trigger: Trigger = "caller"
    arguments: str = ""
    docs: tuple[str, ...] = ()
    firm: bool = True  # the run fails without it


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
