"""Records events: each event is in the log before the next step happens. If it cannot be written, the run stops.

Observers are told afterwards. Events are recorded without the values of secrets and without text that the configured
patterns match.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from prowess._internal.own_line import describe_error, describe_raised
from prowess.agent.context import Conversation
from prowess.agent.observers import Observer, Shielded, open_feed
from prowess.core.events import (
    EPHEMERAL,
    ApprovalAnswered,
    ApprovalAsked,
    CallActed,
    CallDecided,
    CallDelta,
    CallPlanned,
    CatalogPlanned,
    Compacted,
    Envelope,
    EpochStarted,
    ErrorRaised,
    Event,
    ModelReplied,
    ModelRequested,
    ModelRetried,
    NoteAppended,
    OutputRequested,
    PlanChanged,
    RunFinished,
    RunStarted,
    SkillLoaded,
    SkillUnloaded,
    TextDelta,
    UnknownEvent,
    render_at,
)
from prowess.core.ports import EventLog, SecretProvider
from prowess.core.values import Lease, Plan, SessionKey, Step, ToolCall
from prowess.errors import StoreError
from prowess.policy.secrets import Redactor
from prowess.records.sessions import answers_since

if TYPE_CHECKING:
    from prowess.records.pending import PendingSession


def new_run() -> str:
    return f"r-{os.urandom(6).hex()}"


class Recorder:
    """Writes the events of one run to the log. Use `async with`, or close it, so that observers see the end.

    An observer that is a plain function runs in its own thread, an `async def` in its own task, so both may be slow.
    """

    def __init__(
        self,
        log: EventLog,
        key: SessionKey,
        lease: Lease,
        run_id: str,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        *,
        seq: int | None = None,
        on_event: Sequence[Observer] = (),
        report: Callable[[str], object] = lambda line: sys.stderr.write(f"{line}\n"),
    ) -> None:
        """Takes `seq`, the number of the last event that the caller knows. Without it, the log's last number is used,
        which only the holder of the lease can change. `report` is called once for each failing observer."""
        self.key = key
        self.run_id: str = run_id
        self.broken: bool = False
        self.observer_errors: list[Exception] = []
        self.problems: list[str] = []  # of this run: what the caller gave and does not work
        self._log = log
        self._lease = lease
        self._clock = clock
        self._seq = seq
        self._report = report
        self._immediate = bool(vars(type(log)).get("immediate"))  # not inherited: a subclass may wait
        self._turn = asyncio.Lock()
        self._under_way: set[asyncio.Future[Any]] = set()
        self._feeds = [open_feed(observer, self.observer_failed) for observer in on_event]

    @property
    def seq(self) -> int | None:
        """Number of the last event. None before the first append if it was not given."""
        return self._seq

    def start_run(self, run_id: str) -> None:
        """Begins another run of the session: later events belong to it."""
        self.run_id = run_id
        self.problems = []

    async def append(self, *events: Event | UnknownEvent, run: str | None = None) -> Sequence[Envelope]:
        """Writes the durable events to the log, in this order; then tells the observers all events. `run` is the child
        run that they belong to, if any.

        Cancelling the caller does not cancel a write that has begun, because it may be in the log already.
        """
        work = self._append(events, run or self.run_id)
        if self._immediate:  # a log that does not wait cannot be cancelled half-way
            return await work
        task = asyncio.ensure_future(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)

    def show(self, *events: Event, run: str | None = None) -> None:
        """Shows ephemeral events to the observers only, without waiting."""
        for event in events:
            if event.type not in EPHEMERAL:
                raise StoreError(
                    f"An event of type '{event.type}' must be stored before it is shown.",
                    code="event-durable",
                    hint="This is a mistake in the program that shows it: append it instead.",
                )
            if self._feeds:
                self._tell(self._envelope(event, run or self.run_id))

    def read(self) -> AsyncIterator[Envelope]:
        """Reads the events of this session from the log."""
        return self._log.read(self.key)

    async def find_pending(self) -> PendingSession:
        """Reads the questions of this session that wait for a person's answer from the log."""
        from prowess.records.pending import read_waiting

        return await read_waiting(self._log, self.key)

    def vouches(self, envelope: Envelope) -> bool:
        """True if an approval question or answer in the log counts: the log is ours, and it was given for this
        place."""
        since = answers_since(self._log)
        return since is not None and envelope.at >= since

    def part(self, run_id: str) -> RecorderPart:
        """Returns a recorder for a child run, with the same log."""
        return RecorderPart(self, run_id)

    @asynccontextmanager
    async def watched_by(self, observers: Sequence[Observer], *, timeout_s: float = 5.0) -> AsyncIterator[None]:
        """Tells these observers, too, until the end. Waits up to `timeout_s` until they have seen all events."""
        feeds = [open_feed(observer, self.observer_failed) for observer in observers]
        self._feeds += feeds
        try:
            yield
        finally:
            self._feeds = [feed for feed in self._feeds if feed not in feeds]
            await asyncio.gather(*(feed.close(timeout_s) for feed in feeds))

    async def close(self, *, timeout_s: float = 5.0) -> None:
        """Finishes pending writes, and waits up to `timeout_s` for the observers."""
        if self._under_way:
            await asyncio.wait(self._under_way)
        feeds = self._feeds
        self._feeds = []
        closing = [feed.close(timeout_s) for feed in feeds]
        await asyncio.gather(*closing)

    async def __aenter__(self) -> Recorder:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def _append(self, events: Sequence[Event | UnknownEvent], run: str) -> list[Envelope]:
        async with self._turn:
            if self.broken:
                raise StoreError(
                    f"The record of run '{self.run_id}' could not be written before; nothing more is done in this run.",
                    code="record-broken",
                    hint="Resume the session: it goes on from what was written.",
                )
            envelopes = [self._envelope(event, run) for event in events]
            durable = [envelope for envelope in envelopes if envelope.event.type not in EPHEMERAL]
            stored = await self._store(durable) if durable else []
            if self._feeds:
                self._tell_all(envelopes, stored)
            return stored

    def _tell_all(self, envelopes: Sequence[Envelope], stored: Sequence[Envelope]) -> None:
        """Tells the observers events in their order: the durable ones as they are in the log."""
        numbered = iter(stored)
        for envelope in envelopes:
            if envelope.event.type in EPHEMERAL:
                self._tell(envelope)
            else:
                self._tell(next(numbered))

    async def _store(self, envelopes: Sequence[Envelope]) -> list[Envelope]:
        written = False
        try:
            seq = await self._find_seq()
            stored = list(await self._log.append(self.key, seq, self._lease, envelopes))
            self._seq = seq + len(stored)
            written = True
        finally:
            self.broken = not written  # for every kind of failure
        return stored

    async def _find_seq(self) -> int:
        """Returns the number of the last event. Asks the log once."""
        if self._seq is None:
            head = await self._log.head(self.key)
            self._seq = head.seq
        return self._seq

    def _envelope(self, event: Event | UnknownEvent, run: str) -> Envelope:
        key = self.key
        at = render_at(self._clock())
        return Envelope(at=at, tenant=key.tenant, app=key.app, user=key.user, session=key.session, run=run, event=event)

    def _tell(self, envelope: Envelope) -> None:
        for feed in self._feeds:
            feed.put(envelope)

    def observer_failed(self, name: str, error: Exception) -> None:
        why = describe_error(error)
        self.observer_errors.append(error)
        self.problems.append(describe_raised("on_event", error))
        with Shielded(lambda _: None):  # a failing `report` must not stop the run
            self._report(f"error: observer {name} does not work, the run goes on: {why}")


class RecorderPart:
    """Recorder for the events of one child run."""

    def __init__(self, whole: Recorder, run_id: str) -> None:
        self._whole = whole
        self.run_id: str = run_id
        self.key: SessionKey = whole.key

    def watched_by(self, observers: Sequence[Observer]) -> AbstractAsyncContextManager[None]:
        """Tells these observers the events of the whole session."""
        return self._whole.watched_by(observers)

    @property
    def broken(self) -> bool:
        return self._whole.broken

    @property
    def problems(self) -> list[str]:
        return self._whole.problems

    async def append(self, *events: Event | UnknownEvent) -> Sequence[Envelope]:
        return await self._whole.append(*events, run=self.run_id)

    def observer_failed(self, name: str, error: Exception) -> None:
        self._whole.observer_failed(name, error)

    def show(self, *events: Event) -> None:
        self._whole.show(*events, run=self.run_id)

    def read(self) -> AsyncIterator[Envelope]:
        return self._whole.read()

    async def find_pending(self) -> PendingSession:
        return await self._whole.find_pending()

    def vouches(self, envelope: Envelope) -> bool:
        return self._whole.vouches(envelope)

    def part(self, run_id: str) -> RecorderPart:
        return RecorderPart(self._whole, run_id)

    def start_run(self, run_id: str) -> None:
        """Begins another run: later events belong to it."""
        self.run_id = run_id

    async def close(self) -> None:
        """Does nothing: the whole recorder is closed by its owner."""


def redact_event(event: Event | UnknownEvent, redactor: Redactor) -> Event | UnknownEvent:
    """Redacts texts of people and models; names and ids stay. `act` redacts calls, decisions and outcomes."""
    if not redactor.is_needed or isinstance(event, _KEPT_AS_THEY_ARE):
        return event
    names = _TEXTS.get(type(event))
    if names is None:  # an event that is not listed yet: all of its texts
        names = [each.name for each in fields(event)]
    clean = _redact_values(event, redactor)
    for name in names:
        value = getattr(event, name)
        if isinstance(value, str):
            clean[name] = redactor.redact_text(value)
    return replace(event, **clean)


def _redact_values(event: Event | UnknownEvent, redactor: Redactor) -> dict[str, Any]:
    """Redacts the fields that have texts inside of other values."""
    if isinstance(event, RunStarted):
        requests = map(redactor.redact_json, event.requested_skills)
        arguments = event.resume_arguments
        if arguments is not None:
            arguments = tuple(map(redactor.redact_text, arguments))
        return {"requested_skills": tuple(requests), "resume_arguments": arguments}
    if isinstance(event, ModelReplied):
        calls: list[ToolCall] = []
        for call in event.calls:
            args = redactor.redact_json(call.args)
            calls.append(replace(call, args=args))
        return {"calls": tuple(calls)}
    if isinstance(event, PlanChanged):
        return {"plan": _redact_plan(event.plan, redactor)}
    return {}


_TEXTS: dict[type, Sequence[str]] = {
    RunStarted: ("request",),
    EpochStarted: ("system",),
    ModelReplied: ("text",),
    PlanChanged: (),
    NoteAppended: ("text",),
    ErrorRaised: ("message", "hint"),
    ModelRetried: ("message",),
    SkillLoaded: ("reason",),
    ApprovalAnswered: ("why",),
    Compacted: ("summary",),
    RunFinished: ("text", "hint"),
}


# They have no text of people or models, or `act` has redacted it.
_KEPT_AS_THEY_ARE = (
    *(CatalogPlanned, ModelRequested, TextDelta, CallDelta, CallPlanned, CallDecided, CallActed),
    *(ApprovalAsked, SkillUnloaded, OutputRequested, UnknownEvent),
)


def _redact_plan(plan: Plan, redactor: Redactor) -> Plan:
    goal = redactor.redact_text(plan.goal)
    assumptions = map(redactor.redact_text, plan.assumptions)
    steps: list[Step] = []
    for step in plan.steps:
        title = redactor.redact_text(step.title)
        steps.append(replace(step, title=title))
    return replace(plan, goal=goal, steps=tuple(steps), assumptions=tuple(assumptions))


class SessionSecrets:
    """Secrets that the skills of a session declared. A child run shares them with its parent."""

    def __init__(self, provider: SecretProvider | None = None, patterns: Sequence[str] = ()) -> None:
        self.values: Mapping[str, str] = {}  # a run gets those that its skill declares
        self.redactor: Redactor = Redactor({}, patterns)
        self._provider = provider
        self._patterns = patterns
        self._hidden: dict[str, str] = {}
        self._learning = asyncio.Lock()

    @property
    def unredacted(self) -> tuple[str, ...]:
        """Names of secrets that are too short to be redacted."""
        names = [name for name in self.redactor.unusable if name in self.values]
        return tuple(names)

    async def learn(self, names: Sequence[str]) -> None:
        """Reads the secrets that a skill declares, for its runs and for redaction."""
        if self._provider is None or not names:
            return
        async with self._learning:
            values = dict(self.values)
            for name in names:
                value = await self._provider.find(name)
                if value is not None:
                    values[name] = value
            self.values = values
            self.hide(values)

    def hide(self, values: Mapping[str, str]) -> None:
        """Redacts these values from everything from now on."""
        self._hidden |= values
        self.redactor = Redactor(self._hidden, self._patterns)

    def redact_text(self, text: str) -> str:
        return self.redactor.redact_text(text)


class EventWriter:
    def __init__(self, recorder: Recorder | RecorderPart, conversation: Conversation, secrets: SessionSecrets) -> None:
        self._recorder = recorder
        self._conversation = conversation
        self._secrets = secrets

    @property
    def broken(self) -> bool:
        """True if the record can no longer be written."""
        return self._recorder.broken

    def note_problem(self, text: str) -> None:
        """Notes what the caller gave and does not work, once, for the result of the run."""
        problems = self._recorder.problems
        clean = self._secrets.redact_text(text)
        if clean not in problems:
            problems.append(clean)

    def redact(self, events: Sequence[Event]) -> list[Event | UnknownEvent]:
        """Redacts events without recording them."""
        redactor = self._secrets.redactor
        return [redact_event(event, redactor) for event in events]

    async def append(self, *events: Event) -> None:
        """Redacts and records events, then applies them to the conversation."""
        clean = self.redact(events)
        await self._recorder.append(*clean)
        for event in clean:
            self._conversation.apply(event)
