"""What an agent is, before it does anything: a model, its limits, and how it goes about its work. What it may do, and
what it is told about skills, belongs to its kit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from prowess.core.ports import Model
from prowess.errors import ConfigError

LoadMode = Literal["turn", "once", "session"]
Placement = Literal["tool_result", "system"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one run may use; None is no bound."""

    turns: int | None = 12
    calls: int | None = 30
    scripts: int | None = 6
    tokens: int | None = None
    seconds: float | None = None
    cost: float | None = None

    def __post_init__(self) -> None:
        """What is wrong is said before anything is written down."""
        for name in self.__slots__:
            value, least = getattr(self, name), 1 if name == "turns" else 0
            whole = name in ("turns", "calls", "scripts", "tokens")
            fits = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
            if value is not None and not (fits and value >= least):
                raise ConfigError(
                    f"limits.{name} is {value!r}, and must be a {'whole ' if whole else ''}number from {least} on.",
                    code="limit-invalid",
                    hint="None is no bound.",
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    model: Model
    limits: Limits = field(default_factory=Limits)
    load_mode: LoadMode = "turn"
    placement: Placement = "tool_result"
    prices: Mapping[str, float] = field(default_factory=dict)  # of a million tokens: input, cached, output
    code_blocks: bool = False  # run fenced code of an answer, as calls like any other
    summarise: bool = False  # when compaction by rule is not enough, one call for a summary, which counts
    depth: int = 2  # how deep child runs may be nested

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
