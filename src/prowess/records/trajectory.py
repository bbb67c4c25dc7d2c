"""Reads the events of a case's runs into one trajectory: calls, loaded skills, usage, answer and times.

Child runs are part of it. Only their turns are not counted, as in the limits of a run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from prowess._internal.text import one_line
from prowess.core.events import (
    ApprovalAnswered,
    ApprovalAsked,
    CallActed,
    CallDecided,
    CallPlanned,
    Compacted,
    Envelope,
    ModelReplied,
    ModelRequested,
    RunFinished,
    RunStarted,
    SkillLoaded,
)
from prowess.core.findings import visible
from prowess.core.tool_table import UNCOUNTED_TOOLS
from prowess.core.values import ToolCall, Trigger, Usage, add_usage

_MOST_ENTRIES = 1_000  # of a timeline
EntryKind = Literal["model", "call", "skill", "question"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStep:
    """Call of a run, in the order of the plans. A call that was denied, failed or cut off is a step too."""

    index: int
    tool: str
    skill: str = ""  # name of the skill that the call names
    args: dict[str, Any] = field(default_factory=dict)
    status: str = "interrupted"  # as in Outcome; without an outcome, interrupted
    trigger: Trigger = "model"
    why: str = ""  # the call was not made, or failed: what the model was told

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    def __str__(self) -> str:
        name = f"call {self.index + 1}: {self.tool} {self.skill}".rstrip()
        result = self.status
        if self.why:
            result += f": {self.why}"
        return f"{name} ({result})"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEntry:
    """Something that happened in a run, for a chart."""

    start_ms: float
    ms: float
    kind: EntryKind
    label: str
    ok: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """Everything that happened in the runs of a case."""

    steps: tuple[CallStep, ...] = ()
    loaded: tuple[str, ...] = ()  # names of skills in order, each once
    usage: Usage = field(default_factory=Usage)
    turns: int = 0
    questions: int = 0  # that a person had to answer: approvals, and calls of ask_user
    requests: tuple[str, ...] = ()
    text: str = ""  # of the last run
    stop_reasons: tuple[str, ...] = ()  # of each run
    seconds: float = 0.0
    timeline: tuple[TimelineEntry, ...] = ()

    @property
    def stop_reason(self) -> str | None:
        """Reason why the last run stopped."""
        if not self.stop_reasons:
            return None
        return self.stop_reasons[-1]

    @property
    def calls(self) -> int:
        """Number of calls, counted as `limits.calls` does: those of models, tried or done; not update_plan."""
        number = 0
        for step in self.steps:
            if step.trigger != "model" or step.status == "waiting":
                continue
            if step.tool not in UNCOUNTED_TOOLS:
                number += 1
        return number

    @property
    def calls_by_tool(self) -> dict[str, int]:
        tools = Counter(step.tool for step in self.steps)
        return dict(tools)


def read_trajectory(events: Iterable[Envelope]) -> Trajectory:
    """Reads the events of one session, in their order."""
    reader = _TrajectoryReader()
    for envelope in events:
        reader.add(envelope)
    return reader.finish()


class _TrajectoryReader:
    def __init__(self) -> None:
        self.first: float | None = None
        self.now = 0.0  # of the last event, in ms since the first
        self.children: set[str] = set()
        self.turns = 0
        self.since: dict[tuple[str, str], float] = {}  # run, and call or question -> start
        self.calls: dict[tuple[str, str], ToolCall] = {}
        self.steps: dict[tuple[str, str], CallStep] = {}
        self.loaded: list[str] = []
        self.usage = Usage()
        self.questions = 0
        self.requests: list[str] = []
        self.text = ""
        self.stops: list[str] = []
        self.timeline: list[TimelineEntry] = []

    def add(self, envelope: Envelope) -> None:
        moment = datetime.fromisoformat(envelope.at)
        at = moment.timestamp() * 1000
        if self.first is None:
            self.first = at
        self.now = max(self.now, at - self.first)
        event = envelope.event
        run = envelope.run
        if isinstance(event, RunStarted):
            self._start(event, run)
        elif isinstance(event, ModelRequested):
            self.since[run, ""] = self.now
        elif isinstance(event, ModelReplied):
            self._reply(event, run)
        elif isinstance(event, Compacted):
            self.usage = add_usage(self.usage, event.usage)
        elif isinstance(event, CallPlanned):
            self._plan(event.call, run)
        elif isinstance(event, CallDecided):
            self.since[run, event.call_id] = self.now
        elif isinstance(event, CallActed):
            self._act(event, run)
        elif isinstance(event, SkillLoaded):
            name = _last(event.name or event.id)
            self.loaded.append(name)
            self._note("skill", name, self.now)
        elif isinstance(event, ApprovalAsked):
            self.since[run, _question(event)] = self.now
            self.questions += 1
        elif isinstance(event, ApprovalAnswered):
            self._answer(event, run)
        elif isinstance(event, RunFinished) and run not in self.children:
            self.text = well_formed(event.text)
            self.stops.append(event.stop_reason)

    def _start(self, event: RunStarted, run: str) -> None:
        if event.parent is not None:
            self.children.add(run)
        elif event.resumes is None:
            request = well_formed(event.request)
            self.requests.append(request)
            self.text = ""

    def _reply(self, event: ModelReplied, run: str) -> None:
        self.usage = add_usage(self.usage, event.usage)
        for call in event.calls:
            self.calls[run, call.id] = call
        if run not in self.children:
            self.turns += 1
            self.text = well_formed(event.text)
        start = self.since.get((run, ""), self.now)
        self._note("model", event.model or "model", start)

    def _answer(self, event: ApprovalAnswered, run: str) -> None:
        start = self.since.pop((run, _question(event)), None)
        if start is None:
            return
        if not event.asked:
            self.questions -= 1  # answered in advance
            return
        label = event.capability or "approval"
        self._note("question", label, start, ok=event.answer != "no")

    def _plan(self, call: ToolCall, run: str) -> None:
        key = (run, call.id)
        self.since[key] = self.now
        index = len(self.steps)
        before = self.steps.get(key)
        if before is not None:
            index = before.index
        args = call.args
        if not args:  # an invalid call is planned without its arguments
            args = self.calls.get(key, call).args
        tool = well_formed(call.tool)
        skill = _last(args.get("skill"))
        self.steps[key] = CallStep(index=index, tool=tool, skill=skill, args=args, trigger=call.trigger)

    def _act(self, event: CallActed, run: str) -> None:
        """Notes what became of a call."""
        key = (run, event.call_id)
        outcome = event.outcome
        if key not in self.steps:  # it was not begun, because of a limit
            unknown = ToolCall(id=event.call_id, tool="?")
            self._plan(self.calls.get(key, unknown), run)
        planned = self.steps[key]
        skill = _last(outcome.data.get("skill"))
        if not skill:
            skill = planned.skill
        why = ""
        if outcome.status != "ok":
            why = visible(one_line(outcome.content, 160))
        step = replace(planned, status=outcome.status, skill=skill, why=why)
        self.steps[key] = step
        kind: EntryKind = "call"
        if step.tool == "ask_user" and step.status in ("ok", "failed"):
            kind = "question"
            self.questions += 1
        label = f"{step.tool} {skill}".rstrip()
        self._note(kind, label, self.since[key], ok=step.ok)

    def _note(self, kind: EntryKind, label: str, start: float, *, ok: bool = True) -> None:
        label = visible(one_line(label, 60))
        start_ms = round(start, 3)
        ms = round(self.now - start, 3)
        entry = TimelineEntry(start_ms=start_ms, ms=ms, kind=kind, label=label, ok=ok)
        self.timeline.append(entry)

    def finish(self) -> Trajectory:
        loaded = dict.fromkeys(self.loaded)
        timeline = self.timeline[:_MOST_ENTRIES]
        timeline.sort(key=lambda entry: entry.start_ms)
        return Trajectory(
            steps=tuple(self.steps.values()),
            loaded=tuple(loaded),
            usage=self.usage,
            turns=self.turns,
            questions=self.questions,
            requests=tuple(self.requests),
            text=self.text,
            stop_reasons=tuple(self.stops),
            seconds=self.now / 1000,
            timeline=tuple(timeline),
        )


def _question(event: ApprovalAsked | ApprovalAnswered) -> str:
    return f"{event.call_id} {event.capability}"


def _last(skill: object) -> str:
    """Returns the name in `source:name`."""
    if not isinstance(skill, str):
        return ""
    name = skill.rpartition(":")[2]
    return well_formed(name)


def well_formed(text: str) -> str:
    """Replaces halves of surrogate pairs, which no file and no JSON document in UTF-8 can have."""
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode()
