"""Turns a run's events into spans of OpenTelemetry's GenAI conventions, live or from a record.

    invoke_agent              a run, and each child run
    ├─ chat MODEL             a request to the model, until its reply
    └─ execute_tool NAME      a call, from its plan to its outcome

Live and exported spans are made from the same events by the same code, so they agree. Attributes hold names, numbers
and digests, never content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Literal, Protocol

from prowess import __version__
from prowess._internal.tracing import find_tracer
from prowess.core.events import (
    ApprovalAnswered,
    CallActed,
    CallDecided,
    CallPlanned,
    Compacted,
    Envelope,
    EpochStarted,
    ErrorRaised,
    ModelReplied,
    ModelRequested,
    RunFinished,
    RunStarted,
    SkillLoaded,
    SkillUnloaded,
)
from prowess.core.values import ToolCall

Kind = Literal["internal", "client"]
Key = tuple[str, ...]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FINISH = {"stop": "stop", "calls": "tool_call", "length": "length", "filter": "content_filter"}


class Sink(Protocol):
    """Receiver of spans. Times are nanoseconds since 1970. An attribute that is None is left out."""

    def open(self, key: Key, name: str, kind: Kind, parent: Key | None, at: int, given: Mapping[str, Any]) -> None: ...

    def note(self, key: Key, name: str, at: int, given: Mapping[str, Any]) -> None: ...

    def close(self, key: Key, at: int, given: Mapping[str, Any], error: str | None) -> None: ...


def live_spans(tracer: Any = None) -> Callable[[Envelope], None] | None:
    """Returns an observer that makes spans during a run, below the current span. None without OpenTelemetry, and while
    the program has set no tracer provider. Use one for each session. `tracer` replaces the tracer of the process."""
    if tracer is None and has_provider():
        tracer = find_tracer()
    return None if tracer is None else SpanTeller(_LiveSink(tracer))


def has_provider() -> bool:
    """True if somebody receives spans: OpenTelemetry is installed, and the program has set a tracer provider."""
    try:
        from opentelemetry import trace
    except ImportError:
        return False
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


@dataclass(slots=True)
class _InUse:
    """Skill in use, with the tokens of the requests during this time."""

    loaded: SkillLoaded
    input: int = 0
    output: int = 0
    requests: int = 0


@dataclass(slots=True)
class _OpenRun:
    """Run that has not ended, with its open spans and its skills."""

    model: str = ""
    parent: Key | None = None
    chat: Key | None = None
    chats: int = 0
    calls: dict[str, ToolCall] = field(default_factory=dict)
    skills: dict[str, _InUse] = field(default_factory=dict)
    used: dict[str, _InUse] = field(default_factory=dict)


class SpanTeller:
    """Turns envelopes into spans."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._runs: dict[str, _OpenRun] = {}
        self._at = 0

    def __call__(self, envelope: Envelope) -> None:
        at = self._at = nanoseconds(envelope.at, self._at)
        event, run = envelope.event, envelope.run
        if isinstance(event, RunStarted):
            self._start(envelope, event, at)
            return
        opened = self._runs.get(run)
        if opened is None:
            return  # the run began before this observer
        if isinstance(event, ModelRequested | ModelReplied):
            self._chat(run, opened, event, at)
        elif isinstance(event, CallPlanned | CallDecided | ApprovalAnswered | CallActed):
            self._call(run, opened, event, at)
        elif isinstance(event, SkillLoaded | SkillUnloaded):
            self._skill(run, opened, event, at)
        elif isinstance(event, EpochStarted):
            self._sink.note(("run", run), "prowess.epoch", at, {"prowess.why": event.why})
        elif isinstance(event, Compacted):
            self._sink.note(("run", run), "prowess.compacted", at, {"prowess.why": event.why})
        elif isinstance(event, ErrorRaised):
            if opened.chat is not None:
                self._sink.close(opened.chat, at, {}, event.code)
                opened.chat = None
            self._sink.note(("run", run), "prowess.error", at, {"error.type": event.code})
        elif isinstance(event, RunFinished):
            self._finish(run, opened, event, at)

    def close(self) -> None:
        """Ends the spans that have no end in the record at its last event, as "unfinished"."""
        for run in list(self._runs):
            self._end(run, self._runs[run], self._at, {}, "unfinished")

    # --- runs -------------------------------------------------------------------------------------------------------

    def _start(self, envelope: Envelope, event: RunStarted, at: int) -> None:
        opened = self._runs[envelope.run] = _OpenRun(model=event.model, parent=self._parent(event.parent))
        provider, model = split_model(event.model)
        given = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": provider,
            "gen_ai.request.model": model,
            "gen_ai.agent.name": "prowess",
            "gen_ai.agent.version": event.versions.get("prowess"),
            "gen_ai.conversation.id": envelope.session,
            "prowess.run": envelope.run,
            "prowess.protocol": event.protocol,
            "prowess.attachments": len(event.attachments) or None,
        }
        self._sink.open(("run", envelope.run), "invoke_agent prowess", "internal", opened.parent, at, given)

    def _parent(self, run: str | None) -> Key | None:
        """Returns the parent's call that a child run belongs to: the one that loads a skill, else the last open one."""
        opened = self._runs.get(run or "")
        if run is None or opened is None:
            return None
        loads = [id for id, call in opened.calls.items() if call.tool == "skill_load"] or list(opened.calls)
        return ("call", run, loads[-1]) if loads else ("run", run)

    def _finish(self, run: str, opened: _OpenRun, event: RunFinished, at: int) -> None:
        usage = event.usage
        given = {
            "gen_ai.usage.input_tokens": usage.input,
            "gen_ai.usage.output_tokens": usage.output,
            "prowess.stop_reason": event.stop_reason,
            "prowess.cost": usage.cost,
        }
        self._end(run, opened, at, given, event.code or ("error" if event.stop_reason == "error" else None))

    def _end(self, run: str, opened: _OpenRun, at: int, given: Mapping[str, Any], error: str | None) -> None:
        if opened.chat is not None:
            self._sink.close(opened.chat, at, {}, "interrupted")
        for id in opened.calls:
            self._sink.close(("call", run, id), at, {}, "interrupted")
        for used in opened.used.values():
            tokens = {"skill.usage.input_tokens": used.input, "skill.usage.output_tokens": used.output}
            more = {**tokens, "skill.usage.requests": used.requests}
            self._sink.note(("run", run), "skill.used", at, {**_skill_attributes(used.loaded), **more})
        self._sink.close(("run", run), at, given, error)
        del self._runs[run]

    # --- requests and calls -----------------------------------------------------------------------------------------

    def _chat(self, run: str, opened: _OpenRun, event: ModelRequested | ModelReplied, at: int) -> None:
        if opened.chat is not None and isinstance(event, ModelRequested):  # a retry
            self._sink.close(opened.chat, at, {}, "retried")
        if opened.chat is None or isinstance(event, ModelRequested):
            opened.chats += 1
            opened.chat = ("chat", run, str(opened.chats))
            provider, model = split_model(opened.model)
            given = {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": provider,
                "gen_ai.request.model": model,
                "prowess.request.bytes": getattr(event, "bytes", None),
                "prowess.request.sha256": getattr(event, "sha256", None),
                "skill.names": [used.loaded.name or used.loaded.id for used in opened.skills.values()] or None,
            }
            self._sink.open(opened.chat, f"chat {model}", "client", ("run", run), at, given)
        if isinstance(event, ModelReplied):
            usage = event.usage
            for used in opened.skills.values():
                used.input, used.output, used.requests = (
                    used.input + usage.input,
                    used.output + usage.output,
                    used.requests + 1,
                )
            given = {
                "gen_ai.response.model": event.model,
                "gen_ai.response.id": event.request_id,
                "gen_ai.response.finish_reasons": [_FINISH[event.finish]],
                "gen_ai.usage.input_tokens": usage.input,
                "gen_ai.usage.output_tokens": usage.output,
                "gen_ai.usage.cache_read.input_tokens": usage.cached or None,
                "gen_ai.usage.cache_creation.input_tokens": usage.cache_written or None,
                "gen_ai.usage.reasoning.output_tokens": usage.reasoning or None,
            }
            self._sink.close(opened.chat, at, given, None)
            opened.chat = None

    def _call(
        self, run: str, opened: _OpenRun, event: CallPlanned | CallDecided | ApprovalAnswered | CallActed, at: int
    ) -> None:
        if isinstance(event, CallPlanned):
            call = event.call
            opened.calls[call.id] = call
            given = {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": call.tool,
                "gen_ai.tool.call.id": call.id,
                "gen_ai.tool.type": "function",
                "prowess.trigger": call.trigger,
            }
            self._sink.open(("call", run, call.id), f"execute_tool {call.tool}", "internal", ("run", run), at, given)
            return
        key = ("call", run, event.call_id)
        if event.call_id not in opened.calls:
            return
        if isinstance(event, CallDecided):
            decision = event.decision
            given = {"prowess.verdict": decision.verdict, "prowess.rule": decision.rule}
            self._sink.note(key, "prowess.decided", at, given)
        elif isinstance(event, ApprovalAnswered):
            self._sink.note(key, "prowess.answered", at, {"prowess.answer": event.answer, "prowess.by": event.by})
        else:
            call, outcome = opened.calls.pop(event.call_id), event.outcome
            exit_code = outcome.data.get("exit_code")
            given = {
                "prowess.status": outcome.status,
                "prowess.code": outcome.code,
                "prowess.exit_code": exit_code if isinstance(exit_code, int) else None,
                **self._skill_of(opened, call, outcome.data),
            }
            bad = outcome.status in ("failed", "denied", "interrupted")
            self._sink.close(key, at, given, (outcome.code or outcome.status) if bad else None)

    # --- skills -----------------------------------------------------------------------------------------------------

    def _skill(self, run: str, opened: _OpenRun, event: SkillLoaded | SkillUnloaded, at: int) -> None:
        if isinstance(event, SkillUnloaded):
            opened.skills.pop(event.id, None)
            self._sink.note(("run", run), "skill.unloaded", at, {"skill.name": event.id.rpartition(":")[2]})
            return
        known = opened.used.setdefault(event.id, _InUse(event))
        known.loaded = event
        opened.skills[event.id] = known
        self._sink.note(("run", run), "skill.loaded", at, _skill_attributes(event))

    def _skill_of(self, opened: _OpenRun, call: ToolCall, data: Mapping[str, Any]) -> dict[str, Any]:
        named = data.get("skill") or call.args.get("skill")
        for used in opened.used.values():
            if named in (used.loaded.id, used.loaded.name, used.loaded.id.rpartition(":")[2]):
                return _skill_attributes(used.loaded)
        return {"skill.name": named} if isinstance(named, str) else {}


def _skill_attributes(event: SkillLoaded) -> dict[str, Any]:
    name = event.name or event.id.rpartition(":")[2]
    return {
        "skill.name": name,
        "skill.id": event.id,
        "skill.digest": event.digest,
        "skill.trigger": event.trigger,
        "skill.rank": event.rank,
    }


def split_model(name: str) -> tuple[str, str]:
    """Returns (provider, model) for the conventions: `openai:gpt-5` is ("openai", "gpt-5"), `offline` is ("offline",
    "offline")."""
    provider, mark, model = name.partition(":")
    return (provider, model) if mark and model else (name, name)


def nanoseconds(at: str, instead: int) -> int:
    try:
        moment = datetime.fromisoformat(at)
        return (moment - _EPOCH) // timedelta(microseconds=1) * 1000 if moment.tzinfo else instead
    except (ValueError, OverflowError):
        return instead


# --- to a file --------------------------------------------------------------------------------------------------------


def render_spans(envelopes: Iterable[Envelope]) -> dict[str, Any]:
    """Returns a run as OTLP JSON, which every collector accepts. The same record gives the same ids."""
    sink = _FileSink()
    teller = SpanTeller(sink)
    for envelope in envelopes:
        teller(envelope)
    teller.close()
    resource = {"attributes": _attributes({"service.name": "prowess", "service.version": __version__})}
    scope = {"name": "prowess", "version": __version__}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": scope, "spans": sink.spans}]}]}


class _FileSink:
    def __init__(self) -> None:
        self.spans: list[dict[str, Any]] = []
        self._open: dict[Key, dict[str, Any]] = {}
        self._trace = ""

    def open(self, key: Key, name: str, kind: Kind, parent: Key | None, at: int, given: Mapping[str, Any]) -> None:
        above = self._open.get(parent) if parent else None
        if above is None:
            self._trace = _hex("trace", *key)[:32]
        span = {
            "traceId": self._trace if above is None else above["traceId"],
            "spanId": _hex("span", *key)[:16],
            "parentSpanId": above["spanId"] if above else "",
            "name": name,
            "kind": 3 if kind == "client" else 1,
            "startTimeUnixNano": str(at),
            "endTimeUnixNano": str(at),
            "attributes": _attributes(given),
            "events": [],
            "status": {},
        }
        self._open[key] = span
        self.spans.append(span)

    def note(self, key: Key, name: str, at: int, given: Mapping[str, Any]) -> None:
        if (span := self._open.get(key)) is not None:
            span["events"].append({"timeUnixNano": str(at), "name": name, "attributes": _attributes(given)})

    def close(self, key: Key, at: int, given: Mapping[str, Any], error: str | None) -> None:
        if (span := self._open.pop(key, None)) is not None:
            more = {**given, "error.type": error} if error else given
            span["attributes"] += _attributes(more)
            span["endTimeUnixNano"] = str(max(at, int(span["startTimeUnixNano"])))
            span["status"] = {"code": 2, "message": error} if error else {}


def _hex(*parts: str) -> str:
    return sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _attributes(given: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in given.items() if value is not None]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(item) for item in value]}}
    return {"stringValue": str(value)}


# --- live -------------------------------------------------------------------------------------------------------------


class _LiveSink:
    """Sends spans to OpenTelemetry's API. It runs in another thread, so parents are given explicitly."""

    def __init__(self, tracer: Any) -> None:
        from opentelemetry import context, trace

        self._tracer, self._trace = tracer, trace
        self._above = context.get_current()
        self._open: dict[Key, Any] = {}

    def open(self, key: Key, name: str, kind: Kind, parent: Key | None, at: int, given: Mapping[str, Any]) -> None:
        above = self._open.get(parent) if parent else None
        within = self._above if above is None else self._trace.set_span_in_context(above)
        kinds = self._trace.SpanKind
        self._open[key] = self._tracer.start_span(
            name,
            context=within,
            kind=kinds.CLIENT if kind == "client" else kinds.INTERNAL,
            attributes=_present(given),
            start_time=at,
        )

    def note(self, key: Key, name: str, at: int, given: Mapping[str, Any]) -> None:
        if (span := self._open.get(key)) is not None:
            span.add_event(name, _present(given), timestamp=at)

    def close(self, key: Key, at: int, given: Mapping[str, Any], error: str | None) -> None:
        if (span := self._open.pop(key, None)) is not None:
            span.set_attributes(_present({**given, "error.type": error}))
            if error:
                span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, error))
            span.end(end_time=at)


def _present(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}
