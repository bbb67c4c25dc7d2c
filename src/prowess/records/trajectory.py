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
from prowess.core import events as happened
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
        return f"{name} ({self.status}{': ' * bool(self.why)}{self.why})"


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
        return self.stop_reasons[-1] if self.stop_reasons else None

    @property
    def calls(self) -> int:
        """Number of calls, counted as `limits.calls` does: those of models, tried or done; not update_plan."""
        counted = [step for step in self.steps if step.trigger == "model" and step.status != "waiting"]
        return sum(step.tool not in UNCOUNTED_TOOLS for step in counted)

    @property
    def calls_by_tool(self) -> dict[str, int]:
        return dict(Counter(step.tool for step in self.steps))


def read_trajectory(events: Iterable[happened.Envelope]) -> Trajectory:
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

    def add(self, envelope: happened.Envelope) -> None:
        at = datetime.fromisoformat(envelope.at).timestamp() * 1000
        self.first = at if self.first is None else self.first
        self.now = max(self.now, at - self.first)
        run, is_child = envelope.run, envelope.run in self.children
        match envelope.event:
            case happened.RunStarted(parent=str()):
                self.children.add(run)
            case happened.RunStarted(resumes=None, request=request):
                self.requests.append(well_formed(request))
                self.text = ""
            case happened.ModelRequested():
                self.since[run, ""] = self.now
            case happened.ModelReplied() as reply:
                self.usage = add_usage(self.usage, reply.usage)
                self.turns += not is_child
                self.calls |= {(run, call.id): call for call in reply.calls}
                self.text = self.text if is_child else well_formed(reply.text)
                self._note("model", reply.model or "model", self.since.get((run, ""), self.now))
            case happened.Compacted(usage=usage):
                self.usage = add_usage(self.usage, usage)
            case happened.CallPlanned(call=call):
                self._plan(call, run)
            case happened.CallDecided(call_id=id):
                self.since[run, id] = self.now
            case happened.CallActed() as acted:
                self._act(acted, run)
            case happened.SkillLoaded(id=id, name=name):
                self.loaded.append(_last(name or id))
                self._note("skill", self.loaded[-1], self.now)
            case happened.ApprovalAsked(call_id=id, capability=capability):
                self.since[run, f"{id} {capability}"] = self.now
                self.questions += 1
            case happened.ApprovalAnswered(call_id=id, capability=capability, asked=asked, answer=answer):
                start = self.since.pop((run, f"{id} {capability}"), None)
                if start is not None and asked:
                    self._note("question", capability or "approval", start, ok=answer != "no")
                elif start is not None:  # answered in advance
                    self.questions -= 1
            case happened.RunFinished(text=text, stop_reason=reason) if not is_child:
                self.text = well_formed(text)
                self.stops.append(reason)
            case _:
                pass

    def _plan(self, call: ToolCall, run: str) -> None:
        key = run, call.id
        before, self.since[key] = self.steps.get(key), self.now
        args = call.args or self.calls.get(key, call).args  # an invalid call is planned without its arguments
        self.steps[key] = CallStep(
            index=len(self.steps) if before is None else before.index,
            tool=well_formed(call.tool),
            skill=_last(args.get("skill")),
            args=args,
            trigger=call.trigger,
        )

    def _act(self, event: happened.CallActed, run: str) -> None:
        key, outcome = (run, event.call_id), event.outcome
        if key not in self.steps:  # it was not begun, because of a limit
            self._plan(self.calls.get(key) or ToolCall(id=event.call_id, tool="?"), run)
        planned = self.steps[key]
        skill = _last(outcome.data.get("skill")) or planned.skill
        why = "" if outcome.status == "ok" else visible(one_line(outcome.content, 160))
        step = self.steps[key] = replace(planned, status=outcome.status, skill=skill, why=why)
        is_question = step.tool == "ask_user" and step.status in ("ok", "failed")
        self.questions += is_question
        kind = "question" if is_question else "call"
        self._note(kind, f"{step.tool} {skill}".rstrip(), self.since[key], ok=step.ok)

    def _note(self, kind: EntryKind, label: str, start: float, *, ok: bool = True) -> None:
        told, ms = visible(one_line(label, 60)), round(self.now - start, 3)
        self.timeline.append(TimelineEntry(start_ms=round(start, 3), ms=ms, kind=kind, label=told, ok=ok))

    def finish(self) -> Trajectory:
        return Trajectory(
            steps=tuple(self.steps.values()),
            loaded=tuple(dict.fromkeys(self.loaded)),
            usage=self.usage,
            turns=self.turns,
            questions=self.questions,
            requests=tuple(self.requests),
            text=self.text,
            stop_reasons=tuple(self.stops),
            seconds=self.now / 1000,
            timeline=tuple(sorted(self.timeline[:_MOST_ENTRIES], key=lambda entry: entry.start_ms)),
        )


def _last(skill: object) -> str:
    """Returns the name in `source:name`."""
    return well_formed(skill.rpartition(":")[2]) if isinstance(skill, str) else ""


def well_formed(text: str) -> str:
    """Replaces halves of surrogate pairs, which no file and no JSON document in UTF-8 can have."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
