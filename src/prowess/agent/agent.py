"""Defines `AgentSpec`: a model, limits and options of a run. Permissions and skills belong to the Toolkit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from prowess.core.ports import Model, ModelInfo, RecordedModel, SkillReader, describe_model
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
