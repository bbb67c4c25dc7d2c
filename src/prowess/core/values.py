"""Values of a run: messages, calls, outcomes, decisions, plans. They are frozen; `core/codec.py` converts them to JSON
and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from prowess.core.catalog_values import (
    CatalogPlan,
    Finding,
    Mode,
    Severity,
    SkillRef,
    Source,
    Status,
    TokenUse,
    Trigger,
)
from prowess.core.storage_values import (
    Artifact,
    ArtifactRef,
    ChainHead,
    Lease,
    OrphanedEvents,
    SessionInfo,
    SessionKey,
    artifact_scope,
    parse_artifact_ref,
    render_artifact_ref,
)

__all__ = [
    "Artifact",
    "ArtifactRef",
    "CatalogPlan",
    "ChainHead",
    "Decision",
    "Finding",
    "Isolation",
    "IsolationKind",
    "Lease",
    "LimitStatus",
    "Message",
    "Mode",
    "OrphanedEvents",
    "Outcome",
    "Part",
    "Plan",
    "Role",
    "SessionInfo",
    "SessionKey",
    "Severity",
    "SkillRef",
    "Source",
    "Spawn",
    "Status",
    "Step",
    "StepStatus",
    "TokenUse",
    "ToolCall",
    "ToolSpec",
    "Trigger",
    "Usage",
    "Verdict",
    "artifact_scope",
    "parse_artifact_ref",
    "render_artifact_ref",
]

Verdict = Literal["allow", "ask", "deny"]
IsolationKind = Literal["none", "process", "sandbox", "container"]
LimitStatus = Literal["enforced", "best-effort", "absent"]
StepStatus = Literal["pending", "in_progress", "completed"]
Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Piece of a message: text, or a reference to a picture or file. For text, `ref` names its source:
    `skill://<id>@<digest>` is a loaded body, `skill://<id>@<digest>/<path>` a doc, `note:<kind>` the runtime itself."""

    kind: Literal["text", "image", "file"] = "text"
    text: str | None = None
    ref: str | None = None
    mime_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    id: str
    tool: str
    args: dict[str, Any] = field(default_factory=dict)
    trigger: Trigger = "model"  # source of the call


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    role: Role
    parts: tuple[Part, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None  # id of the call that a `tool` message answers


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """Tool as the model sees it, and the facts that policy needs."""

    name: str
    description: str
    parameters: dict[str, Any] = field(default_factory=dict)
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of one call. Denials and failures are outcomes too, so that the model always learns what happened."""

    status: Literal["ok", "failed", "denied", "interrupted", "waiting"]
    content: str = ""
    code: str | None = None
    hint: str | None = None
    data: dict[str, Any] = field(default_factory=dict)
    state_delta: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawn:
    """Request of a tool for a child run: do `request` with this skill, and answer the call with its result."""

    skill: str  # id of the skill
    request: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Policy's answer about one call, with the limits that the tool enforces while it runs."""

    verdict: Verdict
    rule: str
    why: str
    limits: dict[str, Any] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)  # facts for a person who is asked


class Located(NamedTuple):
    """System file that a program's name leads to in a run. If `path` is "", `why_not` says why: the program does not
    exist, or a user other than root could have placed it."""

    path: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """Limits that were really in force around a run. A limit that was only requested does not count."""

    executor: str
    mechanism: str
    uid: int | None = None
    network: str = "host"  # "none", "proxy" (an allow-list), "host"
    limits: dict[str, LimitStatus] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # facts for a person, such as why there is no stronger isolation
    kind: IsolationKind = "none"  # set by the executor, after its self-test

    @property
    def is_isolated(self) -> bool:
        """True when a working sandbox or container separates the run from the machine, without the host's network."""
        is_separate = self.kind in ("sandbox", "container") and self.mechanism not in ("", "none")
        return is_separate and self.network not in ("", "host")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    id: str
    title: str
    status: StepStatus = "pending"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    goal: str
    steps: tuple[Step, ...] = ()
    assumptions: tuple[str, ...] = ()
    constraints: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens as the provider counted them. `cached` is part of `input`, `reasoning` is part of `output`."""

    input: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0
    cache_written: int = 0  # tokens that the provider wrote into its cache and charges for
    requests: int = 0
    cost: float | None = None


USAGE_COUNTS = ("input", "cached", "output", "reasoning", "cache_written", "requests")


def add_usage(one: Usage, other: Usage, *, sign: int = 1) -> Usage:
    """Adds the other usage; with `sign=-1`, subtracts it. The cost is None when neither has one."""
    counts: dict[str, int] = {}
    for name in USAGE_COUNTS:
        counts[name] = getattr(one, name) + sign * getattr(other, name)
    cost = None
    if one.cost is not None or other.cost is not None:
        cost = (one.cost or 0.0) + sign * (other.cost or 0.0)
    return Usage(**counts, cost=cost)


_MILLION = 1_000_000


def find_cost(usage: Usage, prices: Mapping[str, float]) -> float | None:
    """Returns the cost in the currency of the prices, or None when the price of input or output is not known.

    Prices are for a million tokens: `input`, `output` and, where they differ from `input`, `cached` and
    `cache_written`.
    """
    if "input" not in prices or "output" not in prices:
        return None
    price = prices["input"]
    fresh = max(0, usage.input - usage.cached - usage.cache_written)
    total = fresh * price + usage.output * prices["output"]
    total += usage.cached * prices.get("cached", price)
    total += usage.cache_written * prices.get("cache_written", price)
    return total / _MILLION
