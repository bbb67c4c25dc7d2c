"""Plays back a recorded run: its replies come again in order, and the first request that differs is known.

The loop passes the hash of each request to `expect` before it asks. The first hash that differs from the recording is
kept as `divergence`; with `strict` it is an error. Child runs have their own replies: when several runs wait, the
request decides which one is asked. The run is shortened where the recorded run was shortened, and in the same way,
because the window size of the recorded model is not known here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from prowess._internal.files import open_regular
from prowess.core.events import (
    NO_SUMMARY,
    CallDelta,
    CatalogPlanned,
    Compacted,
    Envelope,
    ErrorRaised,
    ModelReplied,
    ModelRequested,
    NoteAppended,
    OutputRequested,
    ProtocolName,
    RunStarted,
    TextDelta,
    parse_event,
)
from prowess.core.ports import Shortened
from prowess.core.values import Message, ToolSpec
from prowess.errors import ConfigError, ModelError

MAX_LINE_BYTES = 64 << 20
_Place = tuple[str | None, int]  # run, and the number of its requests before


class Divergence(NamedTuple):
    """First request that differs from the recorded one."""

    request: int  # counted from 1
    recorded: ModelRequested
    actual: ModelRequested


class _Exchange(NamedTuple):
    """Request of a recorded run, and its reply."""

    run: str
    requested: ModelRequested | None
    replied: ModelReplied | None  # None: the request did not fit into the model's window


class ReplayModel:
    """Model that plays back a recording. `started` has the request, protocol and limits of the recorded run."""

    def __init__(self, events: Iterable[Envelope], *, name: str = "replay", strict: bool = False) -> None:
        self.name = name
        self.context_tokens: int | None = None
        self.divergence: Divergence | None = None
        self.started: RunStarted | None = None
        self.protocol: ProtocolName = "tools"
        self.output: OutputRequested | None = None  # form of the answer
        self.schemas: bool = False
        self.catalog_tokens: int | None = None
        self.request_form: str | None = None
        self._requests: dict[str, str] = {}  # recorded run -> its request
        recorded = list(events)
        for envelope in recorded:
            event = envelope.event
            if isinstance(event, RunStarted):
                self._requests[envelope.run] = event.request
                if self.started is None:
                    self.started = event
                    self.protocol = event.protocol
                    self.request_form = event.versions.get("requests")
            elif isinstance(event, OutputRequested) and self.output is None:
                self.output = event
                self.schemas = event.native
            elif isinstance(event, CatalogPlanned) and self.catalog_tokens is None:
                self.catalog_tokens = event.plan.tokens.budget
        self._notes: dict[_Place, list[NoteAppended]] = {}
        self._left, self._shortened = _pair(recorded, self._notes)
        self.events: Sequence[Envelope] = recorded
        self._runs: dict[str, str | None] = {}  # id of a run that asks now -> id of the recorded run
        self._played: dict[str, int] = {}  # recorded run -> number of its requests played so far
        self._strict = strict
        self._asked = 0
        self._next: _Exchange | None = None

    @property
    def unused(self) -> int:
        """Number of recorded replies that were not asked for."""
        return sum(each.replied is not None for each in self._left)

    def expect(self, sha256: str, bytes: int) -> None:
        """Sets the next request, as `model_requested` describes it."""
        self._next = self._choose(sha256)
        if self._next is None:
            return
        recorded = self._next.requested
        if recorded is None or recorded.sha256 == sha256:
            return
        number = self._asked + 1
        if self.divergence is None:
            actual = ModelRequested(bytes=bytes, sha256=sha256)
            self.divergence = Divergence(number, recorded, actual)
        if self._strict:
            raise ModelError(
                f"Request {number} is not the one that was recorded.{self._diverged()}",
                code="replay-diverged",
                hint="Skills, prompts or tools have changed since. Compare the runs, or record it again.",
            )

    def shortened(self, run: str, task: str, *, take: bool = False) -> Shortened | None:
        """Returns how the recorded run was shortened before the next request of `run`; with `take`, only once."""
        place = self._place(run, task)
        found = self._shortened.get(place)
        if take:
            self._shortened.pop(place, None)
        return found

    def recorded_notes(self, run: str, task: str) -> Sequence[NoteAppended]:
        """Returns the recorded notes of the next request of `run`."""
        place = self._place(run, task)
        return self._notes.get(place, ())

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        on_delta: Callable[[TextDelta | CallDelta], None] | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> ModelReplied:
        answered = self._asked
        self._asked += 1
        if not self._left:
            what = f"The recording ({self.name}) has {answered} replies and was asked for number {self._asked}."
            raise ModelError(
                what + self._diverged(),
                code="replay-exhausted",
                hint="The run went another way than the recorded one. Record it again.",
            )
        chosen = self._next or self._left[0]
        self._next = None
        self._left.remove(chosen)
        played = self._played.get(chosen.run, 0)
        self._played[chosen.run] = played + 1
        reply = chosen.replied
        if reply is None:
            raise ModelError(
                f"Request {self._asked} was too long for the model when it was recorded.",
                code="context-overflow",
                hint="It is shortened as it was then.",
            )
        if on_delta is not None and reply.text:
            on_delta(TextDelta(text=reply.text))
        return reply

    async def aclose(self) -> None:
        """Does nothing: there is nothing to close."""

    def _choose(self, sha256: str) -> _Exchange | None:
        """Returns the recording of this exact request among the waiting runs, or else the next one."""
        seen: set[str] = set()
        for exchange in self._left:
            if exchange.run in seen:
                continue
            seen.add(exchange.run)
            requested = exchange.requested
            if requested is not None and requested.sha256 == sha256:
                return exchange
        return self._left[0] if self._left else None

    def _place(self, run: str, task: str) -> _Place:
        """Returns the recorded run that this one repeats, and the number of its requests so far."""
        if run not in self._runs:
            self._runs[run] = self._find_run(task)
        recorded = self._runs[run]
        if recorded is None:
            return None, 0
        return recorded, self._played.get(recorded, 0)

    def _find_run(self, task: str) -> str | None:
        """Finds the recorded run for a run that asks now. The first that asks is the main run; a child is the next with
        the same task."""
        taken = self._runs.values()
        free = [each for each in self._requests if each not in taken]
        if self._runs:
            for run in free:
                if self._requests[run] == task:
                    return run
        return free[0] if free else None

    def _diverged(self) -> str:
        if self.divergence is None:
            return ""
        number, recorded, actual = self.divergence
        then = f"{recorded.bytes} bytes ({recorded.sha256[:12]})"
        now = f"{actual.bytes} ({actual.sha256[:12]})"
        return f" Request {number} had {then} when it was recorded, and has {now} now."


def _pair(
    events: Sequence[Envelope], notes: dict[_Place, list[NoteAppended]]
) -> tuple[list[_Exchange], dict[_Place, Shortened]]:
    """Pairs each reply with its request, and finds where the run was shortened. Adds the notes of requests to `notes`.

    A request that was tried again counts once. Notes and a shortening are found by run and by the number of requests
    before them.
    """
    found: list[_Exchange] = []
    shortened: dict[_Place, Shortened] = {}
    asked: dict[str, ModelRequested] = {}
    failed: dict[str, ErrorRaised] = {}
    for envelope in events:
        event = envelope.event
        run = envelope.run
        failure = failed.pop(run, None)
        if isinstance(event, ModelRequested):
            asked[run] = event
        elif isinstance(event, ModelReplied):
            request = asked.pop(run, None)
            found.append(_Exchange(run, request, event))
        elif isinstance(event, Compacted):
            if run in asked:
                request = asked.pop(run)
                found.append(_Exchange(run, request, None))
            number = sum(each.run == run for each in found)
            shortened[run, number] = Shortened(event, failure)
        elif isinstance(event, NoteAppended):
            number = sum(each.run == run for each in found)
            notes.setdefault((run, number), []).append(event)
        elif isinstance(event, ErrorRaised) and event.message.startswith(NO_SUMMARY):
            failed[run] = event
    return found, shortened


def load_recording(path: str | os.PathLike[str], *, name: str | None = None, strict: bool = False) -> ReplayModel:
    """Loads a recording from an events.jsonl, or from the folder that holds it."""
    file = os.fspath(path)
    if os.path.isdir(file):
        file = os.path.join(file, "events.jsonl")
    events = load_events(file)
    model = ReplayModel(events, name=name or f"replay:{file}", strict=strict)
    if not model.unused:
        raise ConfigError(
            f"The recording {file} has no replies of a model.",
            code="recording-invalid",
            hint="A recording is the events.jsonl of a run, as it was written.",
        )
    return model


def load_events(file: str) -> list[Envelope]:
    """Loads the events of a recording. ConfigError `recording-invalid` names the file and the line."""
    events: list[Envelope] = []
    try:
        with open(open_regular(file, follow=True), "rb") as lines:
            while line := lines.readline(MAX_LINE_BYTES):
                if line.strip():
                    data = json.loads(line)
                    events.append(parse_event(data))
    except (OSError, ValueError, RecursionError) as error:
        place = file
        if not isinstance(error, OSError):
            place += f":{len(events) + 1}"
        reason = getattr(error, "strerror", None) or error
        what = f"The recording {place} cannot be read: {reason}."
        hint = "A recording is the events.jsonl of a run, as it was written."
        raise ConfigError(what[:500], code="recording-invalid", hint=hint) from error
    return events
