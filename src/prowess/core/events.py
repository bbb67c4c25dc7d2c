"""A run is the list of its events: the screen, the log, the server, the scorers and recovery all read this one union.

On a line an event is flat: `{"seq": 1, "at": …, "session": …, "run": …, "type": "call_planned", "call": {…}}`. A type
that this version does not know is kept as it came, so that a record written by a newer release still opens.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal

from prowess.core.values import (
    CatalogPlan,
    Decision,
    Outcome,
    Part,
    Plan,
    SessionKey,
    ToolCall,
    ToolSpec,
    Trigger,
    Usage,
    from_json,
    to_json,
)

SCHEMA = "prowess.events/1"
EPHEMERAL = frozenset({"text_delta", "call_delta"})  # shown while it happens, never numbered, never stored
PLACE = ("seq", "at", "tenant", "app", "user", "session", "run", "type", "prev", "hash")  # no event has such a field

ProtocolName = Literal["tools", "actions"]  # how a model says what it wants
Answer = Literal["once", "run", "always", "no"]
# Why the model stopped: it was done, it wants calls made, its length was used up, the provider refused or filtered it.
Finish = Literal["stop", "calls", "length", "filter"]
StopReason = Literal[
    "answer",
    "limit:turns",
    "limit:calls",
    "limit:scripts",
    "limit:tokens",
    "limit:seconds",
    "limit:cost",
    "waiting",
    "denied",
    "cancelled",
    "error",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """Opens a run, and states the schema of every line after it."""

    type: ClassVar[str] = "run_started"
    schema: str = SCHEMA
    model: str
    protocol: ProtocolName = "tools"
    versions: dict[str, str] = field(default_factory=dict)
    request: str = ""
    attachments: tuple[Part, ...] = ()
    load_mode: Literal["turn", "once", "session"] = "turn"
    placement: Literal["tool_result", "system"] = "tool_result"
    limits: dict[str, float] = field(default_factory=dict)
    parent: str | None = None  # the run that this one is a part of
    call: str | None = None  # the call of that run which this one carries out
    resumes: str | None = None  # the run that this one goes on with
    wishes: tuple[dict[str, Any], ...] = ()  # skills that the caller wants in use, as arguments of skill_load
    again: tuple[str, ...] = ()  # what `prowess run` has to be told again when this run is resumed
    notes: tuple[str, ...] = ()  # what a person should know, such as that no language model is at work
    mark: str | None = None  # of the home that wrote it; see policy/marks


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochStarted:
    """The request no longer extends the one before it, for this reason. With the transcript, system text and tools
    give its bytes; what is None is as it was in the epoch before."""

    type: ClassVar[str] = "epoch_started"
    why: str
    first_changed: int | None = None  # byte of the neutral request before; None: there was none
    system: str | None = None
    tools: tuple[ToolSpec, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogPlanned:
    type: ClassVar[str] = "catalog_planned"
    plan: CatalogPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequested:
    """The size and hash of the neutral request; the bytes themselves follow from the events before this one."""

    type: ClassVar[str] = "model_requested"
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReplied:
    type: ClassVar[str] = "model_replied"
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = field(default_factory=Usage)
    finish: Finish = "stop"
    request_id: str | None = None  # of the provider
    model: str | None = None  # that answered, as the provider names it
    code: str | None = None  # the text reports a failure of this code, and the run ends as an error


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """A piece of the reply as it arrives. Ephemeral: `model_replied` holds the whole."""

    type: ClassVar[str] = "text_delta"
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDelta:
    """A piece of a call as it arrives: `tool` once, when it is known, then its arguments as JSON text. Ephemeral."""

    type: ClassVar[str] = "call_delta"
    index: int  # which call of the reply
    tool: str = ""
    args: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChanged:
    type: ClassVar[str] = "plan_changed"
    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPlanned:
    """The model asked for this. Nothing has been decided yet."""

    type: ClassVar[str] = "call_planned"
    call: ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDecided:
    """Written before the call is executed; a call without `call_acted` after it was interrupted."""

    type: ClassVar[str] = "call_decided"
    call_id: str
    decision: Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalAsked:
    type: ClassVar[str] = "approval_asked"
    call_id: str
    why: str
    capability: str = ""  # the tool, or what else the call needs
    mark: str | None = None  # of the home that wrote it; see policy/marks


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalAnswered:
    type: ClassVar[str] = "approval_answered"
    call_id: str
    answer: Answer
    why: str | None = None
    by: str | None = None
    capability: str = ""  # as it was asked about; empty: whatever the call was waiting for
    asked: bool = True  # False: it was answered before anybody had to be asked, as with --yes
    later: bool = False  # while nobody ran; the call is made when the session is resumed
    mark: str | None = None  # of the home that wrote it; see policy/marks


@dataclass(frozen=True, slots=True, kw_only=True)
class CallActed:
    """What came of the call. The outcome has the state that the tool wanted, `state_delta` what the session took."""

    type: ClassVar[str] = "call_acted"
    call_id: str
    outcome: Outcome
    state_delta: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillLoaded:
    type: ClassVar[str] = "skill_loaded"
    id: str
    name: str = ""
    digest: str
    trigger: Trigger
    rank: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillUnloaded:
    type: ClassVar[str] = "skill_unloaded"
    id: str
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteAppended:
    """Text that the runtime, not the model or the user, put at the tail of the request."""

    type: ClassVar[str] = "note_appended"
    text: str
    kind: str = "note"  # budget, skill, …


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    type: ClassVar[str] = "compacted"
    why: str
    before_tokens: int
    after_tokens: int
    replaced: dict[str, str] = field(default_factory=dict)  # call id -> where its full output can be read
    dropped: int = 0  # messages of earlier runs, from the oldest on
    summary: str | None = None
    usage: Usage = field(default_factory=Usage)  # of the summary


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRaised:
    type: ClassVar[str] = "error"
    code: str
    message: str
    hint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished:
    """A run always says why it stopped."""

    type: ClassVar[str] = "run_finished"
    stop_reason: StopReason
    text: str = ""
    usage: Usage = field(default_factory=Usage)
    code: str | None = None  # of the error that ended it
    hint: str | None = None
    prompts: int = 0  # how often a person was asked


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownEvent:
    """An event of a newer release: not understood, not lost."""

    type: str
    data: dict[str, Any] = field(default_factory=dict)


Event = (
    RunStarted
    | EpochStarted
    | CatalogPlanned
    | ModelRequested
    | ModelReplied
    | TextDelta
    | CallDelta
    | PlanChanged
    | CallPlanned
    | CallDecided
    | ApprovalAsked
    | ApprovalAnswered
    | CallActed
    | SkillLoaded
    | SkillUnloaded
    | NoteAppended
    | Compacted
    | ErrorRaised
    | RunFinished
)

EVENT_TYPES: dict[str, type[Any]] = {cls.type: cls for cls in typing.get_args(Event)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """An event with its place: `seq` counts per session. It is None until the log has numbered the event, and so are
    `prev` and `hash`, its link to the event before it."""

    seq: int | None = None
    at: str  # UTC, ISO 8601
    tenant: str = "default"
    app: str = "default"
    user: str = "default"
    session: str
    run: str
    event: Event | UnknownEvent
    prev: str | None = None
    hash: str | None = None

    @property
    def key(self) -> SessionKey:
        return SessionKey(tenant=self.tenant, app=self.app, user=self.user, session=self.session)


def render_event(envelope: Envelope) -> dict[str, Any]:
    """The flat line. What is not there yet is not in it, nor is a tenant, app or user that is the default one."""
    event = envelope.event
    line: dict[str, Any] = {} if envelope.seq is None else {"seq": envelope.seq}
    line["at"] = envelope.at
    line |= {name: value for name in _OWNERS if (value := getattr(envelope, name)) != "default"}
    line |= {"session": envelope.session, "run": envelope.run, "type": event.type}
    line |= to_json(event.data if isinstance(event, UnknownEvent) else event)
    line |= {name: value for name in _LINKS if (value := getattr(envelope, name)) is not None}
    return line


def render_at(moment: datetime) -> str:
    """The `at` of an envelope: UTC with microseconds, all of one length, so that they sort as they happened."""
    return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def parse_event(data: Any) -> Envelope:
    """The envelope that `render_event` came from. ValueError names the field that does not fit."""
    if not isinstance(data, Mapping):
        raise ValueError(f"an event must be an object, not {data!r}"[:300])
    seq = data.get("seq")
    if seq is not None and (not isinstance(seq, int) or isinstance(seq, bool)):
        raise ValueError(f"event.seq must be int, not {seq!r}"[:300])
    place = {name: _text(data, name) for name in ("at", "session", "run")}
    place |= {name: _text(data, name) for name in (*_OWNERS, *_LINKS) if name in data}
    kind = _text(data, "type")
    rest = {name: value for name, value in data.items() if name not in PLACE}
    known = EVENT_TYPES.get(kind)
    event = from_json(known, rest) if known else UnknownEvent(type=kind, data=rest)
    return Envelope(seq=seq, event=event, **place)


_OWNERS = ("tenant", "app", "user")
_LINKS = ("prev", "hash")


def _text(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name)
    if not isinstance(value, str):
        raise ValueError(f"event.{name} must be str, not {value!r}"[:300])
    return value
