"""Values of a run: messages, calls, outcomes, decisions, plans. They are frozen and convert to JSON and back.

`to_json(value)` and `from_json(Type, data)` are the only conversions. `from_json` ignores unknown fields, so that a
record written by a newer release still opens.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, Literal, NamedTuple, TypeVar

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
from prowess.errors import ProwessError

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
    "from_json",
    "parse_artifact_ref",
    "render_artifact_ref",
    "to_json",
]

Verdict = Literal["allow", "ask", "deny"]
IsolationKind = Literal["none", "process", "sandbox", "container"]
LimitStatus = Literal["enforced", "best-effort", "absent"]
StepStatus = Literal["pending", "in_progress", "completed"]
Role = Literal["system", "user", "assistant", "tool"]

T = TypeVar("T")


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
    cost = None if one.cost is None and other.cost is None else (one.cost or 0.0) + sign * (other.cost or 0.0)
    return Usage(**{name: getattr(one, name) + sign * getattr(other, name) for name in USAGE_COUNTS}, cost=cost)


_MILLION = 1_000_000


def find_cost(usage: Usage, prices: Mapping[str, float]) -> float | None:
    """Returns the cost in the currency of the prices, or None when the price of input or output is not known.

    Prices are for a million tokens: `input`, `output` and, where they differ from `input`, `cached` and
    `cache_written`.
    """
    if "input" not in prices or "output" not in prices:
        return None
    fresh = max(0, usage.input - usage.cached - usage.cache_written)
    total = fresh * prices["input"] + usage.output * prices["output"]
    total += usage.cached * prices.get("cached", prices["input"])
    total += usage.cache_written * prices.get("cache_written", prices["input"])
    return total / _MILLION


def to_json(value: Any) -> Any:
    """Converts to plain JSON data. Tuples become lists. A field that is None stays, because readers rely on it."""
    kind = type(value)
    if kind is str or value is None or kind is int or kind is bool or kind is float:
        return value
    if kind is dict:
        return {str(key): to_json(item) for key, item in value.items()}
    if names := _dataclass_fields(kind):
        return {name: to_json(getattr(value, name)) for name in names}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):  # a named tuple
        return {name: to_json(item) for name, item in value._asdict().items()}  # type: ignore[attr-defined]
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    return value  # a subclass of str, int or float


@cache
def _dataclass_fields(cls: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(cls)) if is_dataclass(cls) else ()


def from_json(cls: type[T], data: Any) -> T:
    """Builds the value from the output of `to_json`. ValueError names the field that is wrong."""
    return _build(cls, data, cls.__name__)


@cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _build(kind: Any, data: Any, where: str) -> Any:
    origin = typing.get_origin(kind)
    if kind is Any:
        return data
    if is_dataclass(kind) or hasattr(kind, "_fields"):
        return _build_fields(kind, data, where)
    if origin is Literal:
        return _checked(
            data in typing.get_args(kind), data, where, f"one of {', '.join(map(str, typing.get_args(kind)))}"
        )
    if origin in (typing.Union, types.UnionType):
        return _build_union(typing.get_args(kind), data, where)
    if origin is tuple:
        _checked(isinstance(data, (list, tuple)), data, where, "a list")
        return tuple(_build(typing.get_args(kind)[0], item, f"{where}[{i}]") for i, item in enumerate(data))
    if origin is dict:
        _checked(isinstance(data, Mapping), data, where, "an object")
        return {key: _build(typing.get_args(kind)[1], item, f"{where}.{key}") for key, item in data.items()}
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    fits = isinstance(data, kind) and not (kind in (int, float) and isinstance(data, bool))
    return _checked(fits, data, where, kind.__name__)


def _build_fields(cls: Any, data: Any, where: str) -> Any:
    """Builds a dataclass or a named tuple from a JSON object."""
    _checked(isinstance(data, Mapping), data, where, "an object")
    given: dict[str, Any] = {}
    for name in _field_names(cls):
        if name in data:
            given[name] = _build(_hints(cls)[name], data[name], f"{where}.{name}")
        elif name in _required(cls):
            raise ValueError(f"{where}.{name} is missing")
    try:
        return cls(**given)
    except ProwessError as error:  # every type is right, but the class refuses the values
        raise ValueError(f"{where}: {error.message}") from error


def _field_names(cls: Any) -> tuple[str, ...]:
    return cls._fields if hasattr(cls, "_fields") else tuple(f.name for f in fields(cls))


@cache
def _required(cls: Any) -> frozenset[str]:
    if hasattr(cls, "_fields"):
        return frozenset(cls._fields) - cls._field_defaults.keys()
    return frozenset(f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING)


def _build_union(options: tuple[Any, ...], data: Any, where: str) -> Any:
    if data is None and type(None) in options:
        return None
    kinds = [option for option in options if option is not type(None)]
    for kind in kinds[:-1]:
        try:
            return _build(kind, data, where)
        except ValueError:
            continue
    return _build(kinds[-1], data, where)


def _checked(fits: bool, data: Any, where: str, wanted: str) -> Any:
    if not fits:
        raise ValueError(f"{where} must be {wanted}, not {data!r}"[:300])
    return data
