"""Values of a run: messages, calls, outcomes, decisions, plans; and of stores: session keys, leases, chain heads,
artifact names. They are frozen; `core/codec.py` converts them to JSON and back.

A key or a name that cannot be stored safely cannot be created, so that no store has to check it again.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import asdict, field, fields
from typing import Any, Literal, NamedTuple

from prowess._internal.light_dataclass import dataclass
from prowess._internal.paths import check_safe_name
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
from prowess.errors import PathEscape, StoreError

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
    "ModelInfo",
    "OrphanedEvents",
    "Outcome",
    "Part",
    "Plan",
    "ProtocolName",
    "Question",
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
    "describe_model",
    "parse_artifact_ref",
    "render_artifact_ref",
]

Verdict = Literal["allow", "ask", "deny"]
IsolationKind = Literal["none", "process", "sandbox", "container"]
LimitStatus = Literal["enforced", "best-effort", "absent"]
StepStatus = Literal["pending", "in_progress", "completed"]
Role = Literal["system", "user", "assistant", "tool"]
ProtocolName = Literal["tools", "actions"]  # how a model requests tool calls


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
    """Call of a tool, with its arguments."""

    id: str
    tool: str
    args: dict[str, Any] = field(default_factory=dict)
    trigger: Trigger = "model"  # source of the call


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Message of a request: its parts, and the calls of an `assistant` message."""

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
    requires_approval: bool = field(default=False, compare=False)  # not compared, so not recorded: no model is told it


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of one call. Denials and failures are outcomes too, so that the model always learns what happened."""

    status: Literal["ok", "failed", "denied", "interrupted", "waiting"]
    content: str = ""
    code: str | None = None
    hint: str | None = None
    data: dict[str, Any] = field(default_factory=dict)
    state_delta: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def question(self) -> Question | None:
        """Question that a person has to answer before the call can be made, if a kit made the call."""
        asked = self.data.get("question")
        if self.status != "waiting" or asked is None:
            return None
        return Question(**asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Question about a call that waits for a person."""

    call_id: str
    tool: str
    args: dict[str, Any]
    why: str
    about: dict[str, Any] = field(default_factory=dict)  # facts for the person: capability, risk, skill, isolation …
    token: str = ""  # of the tool, the arguments and the place in the record: binds an answer to what was shown

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


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
    """System file that a program's name leads to in a run. If `path` is "", `reason` says why: the program does not
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
    """Step of a plan."""

    id: str
    title: str
    status: StepStatus = "pending"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Plan of a task, as the model last changed it."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """Facts about a model. A model has each of them as a member of this name, or has none."""

    protocol: ProtocolName = "tools"
    context_tokens: int | None = None  # size of the context window
    catalog_tokens: int | None = None  # budget of the catalog in the recorded run
    notes: tuple[str, ...] = ()  # facts for a person
    schemas: bool = False  # the provider can hold an answer to a JSON Schema, also while tools are offered


def describe_model(model: object) -> ModelInfo:
    """Returns the facts that a model has about itself."""
    found: dict[str, Any] = {}
    for each in fields(ModelInfo):
        if hasattr(model, each.name):
            found[each.name] = getattr(model, each.name)
    found["notes"] = tuple(found.get("notes", ()))
    return ModelInfo(**found)


# --- stores -----------------------------------------------------------------------------------------------------------

# Text on one line. Halves of surrogate pairs are refused, because no file or database takes them. Marks that change the
# writing direction are refused, because they make a name look like another one in a list.
_ONE_LINE = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+")
_VERSIONED = re.compile(r"(?s)(.*)@([0-9]{1,9})")
_SCHEME = "artifact://"
USER_SCOPE = "user:"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SessionKey:
    """Owner and name of a session. Every stored thing carries all four parts."""

    tenant: str = "default"
    app: str = "default"
    user: str = "default"
    session: str

    def __post_init__(self) -> None:
        for name in ("tenant", "app", "user", "session"):
            text = getattr(self, name)
            fits = isinstance(text, str) and len(text) <= 200 and _ONE_LINE.fullmatch(text)
            if not fits or text.startswith(("/", "\\")) or text != text.strip():
                problem = f"SessionKey.{name} cannot be {text!r}."
                hint = "Use 1 to 200 characters on one line, without a slash at the start or spaces at either end."
                raise StoreError(problem[:300], code="session-key-invalid", hint=hint)

    @property
    def id(self) -> str:
        """Name of the session."""
        return self.session

    @property
    def owner(self) -> dict[str, str]:
        """Parts of the owner that are not the default."""
        return {part: getattr(self, part) for part in ("user", "tenant", "app") if getattr(self, part) != "default"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainHead:
    """End of a session's hash chain: the number of events and the hash of the last one."""

    seq: int = 0
    hash: str = "0" * 64  # the value for a session without events


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Right to append to one session until somebody takes the next lease. `token` is larger than in all leases
    before."""

    key: SessionKey
    token: int
    owner: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """Session of a store, with the head of its chain."""

    key: SessionKey
    head: ChainHead
    created_at: str
    updated_at: str
    expires_at: str | None = None  # from this time on the session counts as deleted


class OrphanedEvents(NamedTuple):
    """Events that cannot be reached by reading a session: the session's row is missing (`orphaned`), or they are
    outside the range that the row counts. Also reports an expiry in the row that no API call set, and a row whose key
    is not text (`unnamed`). Names are as stored and may not be a valid key."""

    tenant: str
    session: str
    events: int = 0
    first: int | None = None
    orphaned: bool = False
    expiry: str | None = None
    app: str = "default"
    user: str = "default"
    unnamed: bool = False

    def is_of(self, key: SessionKey) -> bool:
        """True if they are stored under this key."""
        stored = (self.tenant, self.app, self.user, self.session)
        return stored == (key.tenant, key.app, key.user, key.session) and not self.unnamed


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """Saved version of a file."""

    name: str
    version: int
    sha256: str
    size_bytes: int
    mime_type: str
    created_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactRef:
    """Reference `artifact://name[@version]`. Without a version it means the newest."""

    name: str
    version: int | None = None


def parse_artifact_ref(text: str) -> ArtifactRef:
    """Parses a reference. The last `@` starts the version if only digits follow; any other `@` belongs to the name."""
    if not text.startswith(_SCHEME):
        raise StoreError(
            f"{text!r} is not a reference to an artifact."[:300],
            code="artifact-ref-invalid",
            hint="Write artifact://name or artifact://name@version.",
        )
    name = text[len(_SCHEME) :]
    versioned = _VERSIONED.fullmatch(name)
    if versioned:
        name = versioned[1]
    artifact_scope(name)
    return ArtifactRef(name=name, version=int(versioned[2]) if versioned else None)


def render_artifact_ref(name: str, version: int | None = None) -> str:
    artifact_scope(name)
    if version is not None:
        return f"{_SCHEME}{name}@{version}"
    if _VERSIONED.fullmatch(name):
        problem = f"'artifact://{name}' would be read as a version of another artifact."
        hint = f"Name the version as well, such as artifact://{name}@0."
        raise StoreError(problem[:300], code="artifact-ref-invalid", hint=hint[:300])
    return f"{_SCHEME}{name}"


def artifact_scope(name: str) -> tuple[bool, tuple[str, ...]]:
    """Returns (belongs to the user, parts of the name). StoreError if the name is invalid.

    A name may contain slashes; they are only part of the name.
    """
    of_user = name.startswith(USER_SCOPE)
    path = name.removeprefix(USER_SCOPE)
    parts = tuple(path.split("/"))
    if not _ONE_LINE.fullmatch(path) or "\\" in path:
        raise _bad_name(name)
    if len(parts) > 32 or len(path.encode()) > 1024:
        raise _bad_name(name)
    for part in parts:
        if part in ("", ".", "..") or len(part.encode()) > 255:
            raise _bad_name(name)
    try:
        check_safe_name(path)
    except PathEscape as error:
        raise _bad_name(name) from error
    return of_user, parts


def _bad_name(name: str) -> StoreError:
    problem = f"{name!r} cannot be the name of an artifact."
    hint = "Use a relative name such as report.pdf, charts/sales.png or user:profile.json."
    return StoreError(problem[:300], code="artifact-name-invalid", hint=hint)
