"""All events of a run, and their JSON form. Screen, log, server, scorers and recovery all read these events.

An event is a flat JSON line: `{"seq": 1, "at": …, "session": …, "run": …, "type": "call_planned", "call": {…}}`. An
unknown type is kept unchanged, so that a record written by a newer release still opens.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal

from prowess._internal.light_dataclass import dataclass
from prowess.core.codec import ADDED, from_json, to_json
from prowess.core.values import (
    CatalogPlan,
    Decision,
    Outcome,
    Part,
    Plan,
    ProtocolName,
    SessionKey,
    ToolCall,
    ToolSpec,
    Trigger,
    Usage,
)

SCHEMA = "prowess.events/1"
REQUEST_FORM = "2"  # in `versions` of runs since only a reply follows tool results; older records name none
EPHEMERAL = frozenset({"text_delta", "call_delta"})  # sent while it happens; never numbered, never stored
PLACE = ("seq", "at", "tenant", "app", "user", "session", "run", "type", "prev", "hash")  # not fields of events

_OWNERS = ("tenant", "app", "user")
_SOMETIMES = (*_OWNERS, "prev", "hash")  # parts of the place that a line may lack

Answer = Literal["once", "run", "always", "no"]
# Why the model stopped: it is done, it requests calls, it reached its length limit, or the provider filtered the reply.
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


class EventValue:
    """Base of all events: the JSON form of an event without its place."""

    __slots__ = ()
    type: ClassVar[Any]  # a literal text in each of them

    def to_dict(self) -> dict[str, Any]:
        """Returns its type and its fields, as plain JSON data. `Envelope.to_dict` adds session, run and number."""
        return {"type": self.type, **to_json(self)}

    def to_json(self) -> str:
        """Returns `to_dict` as one line."""
        return _render(self.to_dict())


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted(EventValue):
    """Opens a run, and states the schema of every line after it."""

    type: ClassVar[Literal["run_started"]] = "run_started"
    schema: str = SCHEMA
    model: str
    protocol: ProtocolName = "tools"
    versions: dict[str, str] = field(default_factory=dict)  # of programs, and of the form of requests
    request: str = ""
    attachments: tuple[Part, ...] = ()
    load_mode: Literal["turn", "once", "session"] = "turn"
    placement: Literal["tool_result", "system"] = "tool_result"
    limits: dict[str, float] = field(default_factory=dict)
    parent: str | None = None  # run that this one is a child of
    call: str | None = None  # call of the parent run that this run carries out
    resumes: str | None = None  # run that this one continues
    requested_skills: tuple[dict[str, Any], ...] = ()  # skills that the caller requested, as arguments of skill_load
    # Options of `prowess run` that a resume must repeat. None: a program made the run, and only it can resume it.
    resume_arguments: tuple[str, ...] | None = ()
    notes: tuple[str, ...] = ()  # facts for a person, such as that no language model is in use
    mark: str | None = None  # of releases before: HMAC of the home that wrote it; see records/marks


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputRequested(EventValue):
    """Form that the answer of the run must have. Only the program that began the run can check it."""

    type: ClassVar[Literal["output_requested"]] = "output_requested"
    json_schema: str  # JSON text: a model sees the fields in this order, and a log sorts the keys of objects
    native: bool = False  # the provider holds the model to the schema; otherwise the system text has it


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochStarted(EventValue):
    """Starts an epoch: the request no longer extends the one before it. `why` is the reason. System text, tools and the
    transcript together give the bytes of the request. A field that is None did not change."""

    type: ClassVar[Literal["epoch_started"]] = "epoch_started"
    why: str
    first_changed: int | None = None  # offset of the first changed byte in the neutral request before, if any
    system: str | None = None
    tools: tuple[ToolSpec, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogPlanned(EventValue):
    """Catalog that the model is shown from now on."""

    type: ClassVar[Literal["catalog_planned"]] = "catalog_planned"
    plan: CatalogPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequested(EventValue):
    """Size and hash of the neutral request. Its bytes can be rebuilt from the events before this one."""

    type: ClassVar[Literal["model_requested"]] = "model_requested"
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReplied(EventValue):
    """Reply of the model: text, calls and usage."""

    type: ClassVar[Literal["model_replied"]] = "model_replied"
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = field(default_factory=Usage)
    finish: Finish = "stop"
    request_id: str | None = None  # given by the provider
    model: str | None = None  # model that answered, by the provider's name
    code: str | None = None  # set when the text reports a failure; the run then ends as an error


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRetried(EventValue):
    """The request failed and is sent again, the same bytes. Text since the last `model_requested` is to be taken back.
    Recorded for each retry, before the wait, also if no text was shown."""

    type: ClassVar[Literal["model_retried"]] = "model_retried"
    attempt: int  # number of the try that failed, from 1
    tries: int  # most tries
    code: str
    message: str
    wait_s: float  # seconds until the next try


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta(EventValue):
    """Piece of the reply as it arrives. Ephemeral: `model_replied` holds the whole text."""

    type: ClassVar[Literal["text_delta"]] = "text_delta"
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDelta(EventValue):
    """Piece of a call as it arrives: first `tool`, then its arguments as JSON text. Ephemeral."""

    type: ClassVar[Literal["call_delta"]] = "call_delta"
    index: int  # index of the call in the reply
    tool: str = ""
    args: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChanged(EventValue):
    """Plan as the model changed it."""

    type: ClassVar[Literal["plan_changed"]] = "plan_changed"
    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPlanned(EventValue):
    """Call that the model requested. Nothing is decided yet."""

    type: ClassVar[Literal["call_planned"]] = "call_planned"
    call: ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDecided(EventValue):
    """Decision about a call, written before the call is executed. A call without `call_acted` after it was
    interrupted."""

    type: ClassVar[Literal["call_decided"]] = "call_decided"
    call_id: str
    decision: Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalAsked(EventValue):
    """Question to a person about a call or a capability."""

    type: ClassVar[Literal["approval_asked"]] = "approval_asked"
    call_id: str
    why: str
    capability: str = ""  # the tool, or another capability that the call needs
    mark: str | None = None  # of releases before: HMAC of the home that wrote it; see records/marks


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalAnswered(EventValue):
    """Answer of a person to a question about a call."""

    type: ClassVar[Literal["approval_answered"]] = "approval_answered"
    call_id: str
    answer: Answer
    why: str | None = None
    by: str | None = None
    capability: str = ""  # as in the question; empty means whatever the call waits for
    asked: bool = True  # False: answered in advance, as with --yes
    later: bool = False  # answered while no run was active; the call is made when the session is resumed
    mark: str | None = None  # of releases before: HMAC of the home that wrote it; see records/marks


@dataclass(frozen=True, slots=True, kw_only=True)
class CallActed(EventValue):
    """Result of a call. The outcome has the state that the tool wanted; `state_delta` has the state that the session
    accepted."""

    type: ClassVar[Literal["call_acted"]] = "call_acted"
    call_id: str
    outcome: Outcome
    state_delta: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillLoaded(EventValue):
    """Skill that was put to use, pinned by its digest."""

    type: ClassVar[Literal["skill_loaded"]] = "skill_loaded"
    id: str
    name: str = ""
    digest: str
    trigger: Trigger
    rank: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillUnloaded(EventValue):
    """Skill that is no longer in use."""

    type: ClassVar[Literal["skill_unloaded"]] = "skill_unloaded"
    id: str
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteAppended(EventValue):
    """Text that the runtime, not the model or the user, added to the request. It stays there."""

    type: ClassVar[Literal["note_appended"]] = "note_appended"
    text: str
    kind: str = "note"  # limit:…, skill, plan, hits, …
    # Call whose result has it; "" is the user message. None in older records, where a note went with its epoch.
    call_id: str | None = field(default=None, metadata=ADDED)


NO_SUMMARY = "No summary: "  # prefix of the error message when a model was asked for a summary and gave none


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted(EventValue):
    """Earlier part of the request that was shortened."""

    type: ClassVar[Literal["compacted"]] = "compacted"
    why: str
    before_tokens: int
    after_tokens: int
    replaced: dict[str, str] = field(default_factory=dict)  # call id -> reference to its full output
    dropped: int = 0  # number of messages of earlier runs, oldest first
    summary: str | None = None
    usage: Usage = field(default_factory=Usage)  # tokens for the summary


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRaised(EventValue):
    """Problem of a run: the error that ended it, or a failure that the run survived."""

    type: ClassVar[Literal["error"]] = "error"
    code: str
    message: str
    hint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished(EventValue):
    """Ends a run and says why it stopped."""

    type: ClassVar[Literal["run_finished"]] = "run_finished"
    stop_reason: StopReason
    text: str = ""
    usage: Usage = field(default_factory=Usage)
    code: str | None = None  # code of the error that ended it
    hint: str | None = None
    prompts: int = 0  # number of questions to a person


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionImported(EventValue):
    """Ends the events that were taken over from a record of somebody else. No question or answer before it counts."""

    type: ClassVar[Literal["session_imported"]] = "session_imported"
    source: str
    events: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownEvent:
    """Event of a newer release, kept unchanged. Its type is a name that no event of this release has. Type checkers are
    told a literal, so that `event.type == "text_delta"` narrows an event to TextDelta."""

    type: Literal["unknown"]
    data: dict[str, Any] = field(default_factory=dict)

    if typing.TYPE_CHECKING:

        def __init__(self, *, type: str, data: dict[str, Any] = ...) -> None: ...

    def to_dict(self) -> dict[str, Any]:
        return {"type": self.type, **to_json(self.data)}

    def to_json(self) -> str:
        return _render(self.to_dict())


Event = (
    RunStarted
    | OutputRequested
    | EpochStarted
    | CatalogPlanned
    | ModelRequested
    | ModelReplied
    | ModelRetried
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
    | SessionImported
)

EVENT_TYPES: dict[str, type[Any]] = {cls.type: cls for cls in typing.get_args(Event)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """Event with its place in a session. `seq` counts per session. `seq`, `prev` and `hash` (the links of the chain)
    are None until the log has stored the event, and `line` is set on what `EventLog.append` returns."""

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
    line: str = field(default="", repr=False, compare=False)  # the stored text, without its line feed

    @property
    def type(self) -> str:
        return self.event.type

    def to_dict(self) -> dict[str, Any]:
        """Returns the event with its place, as the flat JSON object that `--json` prints."""
        return render_event(self)

    def to_json(self) -> str:
        """Returns one line: the stored text of a durable event."""
        if self.line:
            return self.line
        data = self.to_dict()
        sealed = data.pop("hash", None)
        text = _render(data)
        return text if sealed is None else f'{text[:-1]},"hash":"{sealed}"}}'

    @property
    def key(self) -> SessionKey:
        return SessionKey(tenant=self.tenant, app=self.app, user=self.user, session=self.session)


def _render(data: Mapping[str, Any]) -> str:
    """Writes JSON as the log does: sorted keys, ASCII, no spaces."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"))


def render_at(moment: datetime) -> str:
    """Returns the `at` of an envelope: UTC with microseconds. All have the same length, so that they sort by time."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def render_event(envelope: Envelope) -> dict[str, Any]:
    """Returns the flat JSON object. Empty `seq`, `prev` and `hash` are left out, and so are default tenant, app and
    user."""
    event = envelope.event
    line: dict[str, Any] = {} if envelope.seq is None else {"seq": envelope.seq}
    line["at"] = envelope.at
    for name in _OWNERS:
        owner = getattr(envelope, name)
        if owner != "default":
            line[name] = owner
    line["session"], line["run"], line["type"] = envelope.session, envelope.run, event.type
    line |= to_json(event.data if isinstance(event, UnknownEvent) else event)
    if envelope.prev is not None:
        line["prev"] = envelope.prev
    if envelope.hash is not None:
        line["hash"] = envelope.hash
    return line


def parse_event(data: Any) -> Envelope:
    """Parses the output of `render_event`. ValueError names the field that is wrong."""
    if not isinstance(data, Mapping):
        raise ValueError(f"an event must be an object, not {data!r}"[:300])
    seq = data.get("seq")
    if seq is not None and (not isinstance(seq, int) or isinstance(seq, bool)):
        raise ValueError(f"event.seq must be int, not {seq!r}"[:300])
    place = {name: _text(data, name) for name in ("at", "session", "run")}
    for name in _SOMETIMES:
        if name in data:
            place[name] = _text(data, name)
    kind = _text(data, "type")
    known = EVENT_TYPES.get(kind)
    if known:
        event = from_json(known, _with_new_names(kind, data))
    else:
        rest = {name: value for name, value in data.items() if name not in PLACE}
        event = UnknownEvent(type=kind, data=rest)
    return Envelope(seq=seq, event=event, **place)


# Old names in records that were written before 0.1.0.
_RENAMED_FIELDS = {"wishes": "requested_skills", "again": "resume_arguments"}  # of run_started
_RENAMED_CODES = {
    "cannot-drop": "privilege-drop-failed",
    "carry-failed": "container-sync-failed",
    "look-failed": "probe-failed",
    "observer-behind": "observer-overflow",
    "policy-never-fits": "rule-unreachable",
}


def _with_new_names(kind: str, data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the fields of an event with the names of today."""
    if kind == "run_started":
        renamed = {new: data[old] for old, new in _RENAMED_FIELDS.items() if old in data}
        return {**renamed, **data} if renamed else data
    if kind == "error":
        return _with_new_code(data)
    if kind == "call_acted":
        outcome = data.get("outcome")
        if isinstance(outcome, dict):
            return {**data, "outcome": _with_new_code(outcome)}
    return data


def _with_new_code(said: Mapping[str, Any]) -> Mapping[str, Any]:
    new = _RENAMED_CODES.get(str(said.get("code")))
    if new is None:
        return said
    return {**said, "code": new}


def _text(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name)
    if not isinstance(value, str):
        raise ValueError(f"event.{name} must be str, not {value!r}"[:300])
    return value
