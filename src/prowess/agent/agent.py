"""Defines the input of a run, `AgentSpec` (a model, limits and options) and `Task`, and its outcome, `Result`.

Permissions and skills belong to the Toolkit.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, cast, get_args

from typing_extensions import TypeVar

from prowess import __version__
from prowess._internal.text import one_line
from prowess.agent.output import OutputForm, render_schema
from prowess.agent.run_error import make_run_error
from prowess.core.events import REQUEST_FORM, OutputRequested, RunStarted, StopReason
from prowess.core.ports import Model, RecordedModel, SkillReader
from prowess.core.values import ModelInfo, Part, Plan, Question, ToolCall, Trigger, Usage, describe_model
from prowess.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from prowess.workspace.run_file import RunFile

LoadMode = Literal["turn", "once", "session"]
Placement = Literal["tool_result", "system"]
OutputT = TypeVar("OutputT", default=str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one run. None means no limit."""

    turns: int | None = 25
    calls: int | None = 60
    scripts: int | None = 30
    tokens: int | None = None
    seconds: float | None = None
    cost: float | None = None

    def tightened(self, **others: float | None) -> Limits:
        """Returns the stricter ones of these and the other limits."""
        stricter: dict[str, Any] = {}
        for name, value in others.items():
            if value is None:
                continue
            now = getattr(self, name)
            stricter[name] = value if now is None else min(now, value)
        return replace(self, **stricter)

    def __post_init__(self) -> None:
        """Checks the limits before anything is recorded."""
        for name in self.__slots__:
            value = getattr(self, name)
            if value is None:
                continue
            is_whole = name not in ("seconds", "cost")
            least = 1 if name == "turns" else 0
            fits = _is_number(value, is_whole=is_whole) and value >= least
            if not fits:
                kind = "whole number" if is_whole else "number"
                raise ConfigError(
                    f"limits.{name} is {value!r}; it must be a {kind} of at least {least}.",
                    code="limit-invalid",
                    hint="None means no limit.",
                )


def _is_number(value: object, *, is_whole: bool) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float) and not is_whole)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    """Model, limits and settings of an agent."""

    model: Model
    limits: Limits = field(default_factory=Limits)
    load_mode: LoadMode = "turn"
    placement: Placement = "tool_result"
    prices: Mapping[str, float] = field(default_factory=dict)  # per million tokens: input, cached, output
    code_blocks: bool = False  # run fenced code of an answer, as normal calls
    summarise: bool = False  # let the model summarise dropped messages; counts as usage
    depth: int = 2  # maximum nesting of child runs
    output: OutputForm | None = None  # form of the answer; None: any text
    info: ModelInfo = field(init=False)
    recording: RecordedModel | None = field(init=False)  # the model, if it plays back a recording
    reader: SkillReader | None = field(init=False)  # the model, if it takes skills as values

    def __post_init__(self) -> None:
        """Checks the options, and finds out what the model can do."""
        _check_option("load_mode", self.load_mode, get_args(LoadMode))
        _check_option("placement", self.placement, get_args(Placement))
        model = self.model
        if not callable(getattr(model, "reply", None)):
            message = f"{model!r} is not a model."
            raise ConfigError(
                message[:200],
                code="model-unknown",
                hint="Give a name such as 'openai:gpt-5' or 'offline', or an object with name and reply.",
            )
        recording = model if isinstance(model, RecordedModel) else None
        reader = model if isinstance(model, SkillReader) else None
        object.__setattr__(self, "info", describe_model(model))
        object.__setattr__(self, "recording", recording)
        object.__setattr__(self, "reader", reader)
        if self.output is not None and reader is not None:
            raise ModelError(
                f"The model '{model.name}' cannot answer in the form of output_type.",
                code="model-no-schema",
                hint="Choose a language model, such as 'openai:gpt-5', or leave output_type out.",
            )

    @property
    def is_old_recording(self) -> bool:
        """True if the model plays back a run of a release with another form of requests."""
        return self.recording is not None and self.recording.request_form != REQUEST_FORM

    @property
    def native_schema(self) -> Mapping[str, Any] | None:
        """Schema for the provider. None if there is none, or if the model reads it in the system prompt."""
        output = self.output
        if output is None or not self.info.schemas or not output.is_closed:
            return None
        return output.schema


def _check_option(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        hint = f"There are: {', '.join(known)}."
        raise ConfigError(f"{name} is {value!r}.", code="option-invalid", hint=hint)


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
    resume_arguments: tuple[str, ...] | None = ()  # options that `prowess run` needs again; None: a program runs it


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Result(Generic[OutputT]):
    """Result of a run. `text` is what the model said: the answer if `ok`, else its last words, which may be none.
    `stop_reason` says why it stopped."""

    text: str
    stop_reason: StopReason
    usage: Usage
    session: str
    run: str
    plan: Plan | None = None
    files: tuple[RunFile, ...] = ()  # made by scripts, or written by the model into out/
    left_out: tuple[str, ...] = ()  # hidden files that no output pattern named
    waiting: tuple[ToolCall, ...] = ()  # calls that a person has to approve
    questions: tuple[Question, ...] = ()  # about them, each with the token that an answer names
    failed: int = 0  # number of calls that failed, were denied or interrupted
    state: dict[str, Any] | None = None
    to_go_on: str = ""  # call that goes on with the run
    to_answer: str = ""  # command that approves the first of them; empty if the store cannot be opened elsewhere
    code: str | None = None  # code of the failure that the text reports
    warnings: tuple[str, ...] = ()  # files that could not be copied to output_dir
    value: OutputT | None = None  # of `output`; None without an answer
    report: str = ""  # the answer, or for a run without one what was done and what was not
    problems: tuple[str, ...] = ()  # what does not work: functions, tools and policies that raised, short secrets

    def __repr__(self) -> str:
        shown = f"{self.stop_reason!r}, text={one_line(self.text, 60)!r}, files={len(self.files)}"
        return f"Result({shown}, session={self.session!r}, run={self.run!r})"

    @property
    def ok(self) -> bool:
        return self.stop_reason == "answer"

    @property
    def output(self) -> OutputT:
        """Answer as a value of `output_type`; without one, its text. Raises RunError if there is no answer."""
        self.raise_for_status()
        return cast(OutputT, self.value)

    def raise_for_status(self) -> Self:
        """Returns this result if it is an answer. Otherwise raises RunError, which says what to do."""
        if self.ok:
            return self
        raise make_run_error(
            self.stop_reason,
            to_go_on=self.to_go_on or f'run(session="{self.session}", resume=True)',
            waiting=self.waiting,
            report=self.report,
            code=self.code,
            to_answer=self.to_answer,
        )


def make_requested(agent: AgentSpec) -> list[OutputRequested]:
    """Event that says the form of the answer, if there is one."""
    if agent.output is None:
        return []
    schema = render_schema(agent.output.schema)
    is_native = agent.native_schema is not None
    return [OutputRequested(json_schema=schema, native=is_native)]


def make_started(agent: AgentSpec, task: Task, resumed: str | None) -> RunStarted:
    versions = {
        "prowess": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(terse=True),
        "requests": REQUEST_FORM,
    }
    if agent.is_old_recording:
        del versions["requests"]
    limits: dict[str, float] = {}
    for name in Limits.__slots__:
        limit = getattr(agent.limits, name)
        if limit is not None:
            limits[name] = limit
    requested = map(asdict, task.skills)
    return RunStarted(
        model=agent.model.name,
        protocol=agent.info.protocol,
        versions=versions,
        request=task.text,
        attachments=task.attachments,
        load_mode=agent.load_mode,
        placement=agent.placement,
        limits=limits,
        parent=task.parent,
        call=task.call,
        resumes=resumed,
        requested_skills=tuple(requested),
        resume_arguments=task.resume_arguments,
        notes=agent.info.notes,
    )


def skill_requests_of(started: RunStarted) -> tuple[SkillRequest, ...]:
    """Skill requests of a run's caller, from the event that recorded them."""
    found: list[SkillRequest] = []
    for requested in started.requested_skills:
        if not requested.get("ref"):
            continue
        given = {name: value for name, value in requested.items() if name in SkillRequest.__slots__}
        given["docs"] = tuple(requested.get("docs") or ())
        found.append(SkillRequest(**given))
    return tuple(found)
