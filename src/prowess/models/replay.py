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
    RunStarted,
    TextDelta,
    parse_event,
)
from prowess.core.ports import Shortened
from prowess.core.values import Message, ToolSpec
from prowess.errors import ConfigError, ModelError

MAX_LINE_BYTES = 64 << 20


class Divergence(NamedTuple):
    """First request that differs from the recorded one."""

    request: int  # counted from 1
    recorded: ModelRequested
    actual: ModelRequested


class _Recorded(NamedTuple):
    run: str
    requested: ModelRequested | None
    replied: ModelReplied | None  # None: the request did not fit into the model's window


class ReplayModel:
    """Model that plays back a recording. `started` has the request, protocol and limits of the recorded run."""

    def __init__(self, events: Iterable[Envelope], *, name: str = "replay", strict: bool = False) -> None:
        self.name = name
        self.context_tokens: int | None = None
        self.divergence: Divergence | None = None
        recorded = list(events)
        opened = [envelope.event for envelope in recorded if isinstance(envelope.event, RunStarted)]
        self.started = opened[0] if opened else None
        self.protocol = self.started.protocol if self.started else "tools"
        planned = [envelope.event for envelope in recorded if isinstance(envelope.event, CatalogPlanned)]
        self.catalog_tokens = planned[0].plan.tokens.budget if planned else None
        self._left, self._shortened = _pair(recorded)
        self._requests = {each.run: each.event.request for each in recorded if isinstance(each.event, RunStarted)}
        self._runs: dict[str, str | None] = {}  # id of a run that asks now -> id of the recorded run
        self._played: dict[str, int] = {}  # recorded run -> number of its requests played so far
        self._strict = strict
        self._asked = 0
        self._next: _Recorded | None = None

    @property
    def unused(self) -> int:
        """Number of recorded replies that were not asked for."""
        return sum(each.replied is not None for each in self._left)

    def expect(self, sha256: str, bytes: int) -> None:
        """Sets the next request, as `model_requested` describes it."""
        actual = ModelRequested(bytes=bytes, sha256=sha256)
        self._next = self._choose(actual)
        recorded = self._next.requested if self._next else None
        if recorded is None or recorded.sha256 == sha256:
            return
        if self.divergence is None:
            self.divergence = Divergence(self._asked + 1, recorded, actual)
        if self._strict:
            raise ModelError(
                f"Request {self._asked + 1} is not the one that was recorded.{self._diverged()}",
                code="replay-diverged",
                hint="Skills, prompts or tools have changed since. Compare the runs, or record it again.",
            )

    def shortened(self, run: str, task: str, *, take: bool = False) -> Shortened | None:
        """Returns how the recorded run was shortened before the next request of `run`; with `take`, only once."""
        place = self._place(run, task)
        return self._shortened.pop(place, None) if take else self._shortened.get(place)

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        on_delta: Callable[[TextDelta | CallDelta], None] | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> ModelReplied:
        self._asked += 1
        if not self._left:
            raise ModelError(
                f"The recording ({self.name}) has {self._asked - 1} replies and was asked for number {self._asked}."
                + self._diverged(),
                code="replay-exhausted",
                hint="The run went another way than the recorded one. Record it again.",
            )
        chosen, self._next = self._next or self._left[0], None
        self._left.remove(chosen)
        self._played[chosen.run] = self._played.get(chosen.run, 0) + 1
        if chosen.replied is None:
            raise ModelError(
                f"Request {self._asked} was too long for the model when it was recorded.",
                code="context-overflow",
                hint="It is shortened as it was then.",
            )
        if on_delta is not None and chosen.replied.text:
            on_delta(TextDelta(text=chosen.replied.text))
        return chosen.replied

    async def aclose(self) -> None:
        """Does nothing: there is nothing to close."""

    def _choose(self, actual: ModelRequested) -> _Recorded | None:
        """Returns the recording of this exact request among the waiting runs, or else the next one."""
        waiting: dict[str, _Recorded] = {}
        for recorded in self._left:
            waiting.setdefault(recorded.run, recorded)
        asked = (r for r in waiting.values() if r.requested and r.requested.sha256 == actual.sha256)
        return next(asked, None) or next(iter(waiting.values()), None)

    def _place(self, run: str, task: str) -> tuple[str | None, int]:
        """Maps a run to a recorded one. The first that asks is the main run; a child is the next with the same task."""
        if run not in self._runs:
            taken = set(self._runs.values())
            free = [each for each in self._requests if each not in taken]
            same = [each for each in free if self._runs and self._requests[each] == task]
            self._runs[run] = next(iter(same or free), None)
        recorded = self._runs[run]
        return recorded, self._played.get(recorded or "", 0)

    def _diverged(self) -> str:
        if self.divergence is None:
            return ""
        number, recorded, actual = self.divergence
        return (
            f" Request {number} had {recorded.bytes} bytes ({recorded.sha256[:12]}) when it was recorded, "
            f"and has {actual.bytes} ({actual.sha256[:12]}) now."
        )


def _pair(events: Sequence[Envelope]) -> tuple[list[_Recorded], dict[tuple[str | None, int], Shortened]]:
    """Pairs each reply with its request, and finds where the run was shortened.

    A request that was tried again counts once. A shortening is found by run and by the number of requests before it.
    """
    found: list[_Recorded] = []
    shortened: dict[tuple[str | None, int], Shortened] = {}
    asked: dict[str, ModelRequested] = {}
    failed: dict[str, ErrorRaised] = {}
    for envelope in events:
        event, run = envelope.event, envelope.run
        if isinstance(event, ModelRequested):
            asked[run] = event
        elif isinstance(event, ModelReplied):
            found.append(_Recorded(run, asked.pop(run, None), event))
        elif isinstance(event, Compacted):
            if run in asked:
                found.append(_Recorded(run, asked.pop(run), None))
            shortened[run, sum(each.run == run for each in found)] = Shortened(event, failed.get(run))
        failed.pop(run, None)
        if isinstance(event, ErrorRaised) and event.message.startswith(NO_SUMMARY):
            failed[run] = event
    return found, shortened


def load_recording(path: str | os.PathLike[str], *, name: str | None = None, strict: bool = False) -> ReplayModel:
    """Loads a recording from an events.jsonl, or from the folder that holds it."""
    file = os.fspath(path)
    if os.path.isdir(file):
        file = os.path.join(file, "events.jsonl")
    model = ReplayModel(load_events(file), name=name or f"replay:{file}", strict=strict)
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
                    events.append(parse_event(json.loads(line)))
    except (OSError, ValueError, RecursionError) as error:
        place = file if isinstance(error, OSError) else f"{file}:{len(events) + 1}"
        raise ConfigError(
            f"The recording {place} cannot be read: {getattr(error, 'strerror', None) or error}."[:500],
            code="recording-invalid",
            hint="A recording is the events.jsonl of a run, as it was written.",
        ) from error
    return events
