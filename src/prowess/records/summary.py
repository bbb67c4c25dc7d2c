"""Sums up a run from its events alone: request, skills, tools, outputs and stop reason.

A child run is part of its parent: its events, skills and calls count there. A run without `run_finished` is still
active or was cut off; its usage is the sum of its replies.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple

from prowess.core.codec import to_json
from prowess.core.events import (
    ApprovalAnswered,
    ApprovalAsked,
    CallActed,
    CallPlanned,
    Compacted,
    Envelope,
    ModelReplied,
    RunFinished,
    RunStarted,
    SkillLoaded,
)
from prowess.core.tool_table import COMMAND_TOOLS, TOOLS
from prowess.core.values import ChainHead, Outcome, SessionKey, ToolCall, Usage, add_usage
from prowess.records.chain import GENESIS

SCHEMA = "prowess.run/1"
LARGE_BYTES = 64 << 10  # a larger text of an outcome is also stored as a file
_KEY_OUTPUT = 500  # characters
_STDOUT = "stdout"  # no file has this name: file names start with out/, work/ or runs/
_DEEPEST = 64


class LargeOutput(NamedTuple):
    """Text that is stored as `outputs/<sha256>`. `field` is its place in the outcome, such as `data.stdout`."""

    call_id: str
    field: str
    sha256: str
    size_bytes: int


@dataclass(slots=True, kw_only=True)
class RunSummary:
    """Summary of a run: the slice of its session between the heads `after` (before its first event) and `head` (its
    last)."""

    key: SessionKey
    run: str
    started_at: str
    after: ChainHead = GENESIS
    head: ChainHead = GENESIS
    events: int = 0
    request: str = ""
    attachments: list[dict[str, Any]] = field(default_factory=list)
    model: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    resumes: str | None = None
    finished_at: str | None = None
    stop_reason: str | None = None
    code: str | None = None
    text: str = ""
    key_output: dict[str, str] | None = None
    usage: Usage = field(default_factory=Usage)
    skills: list[dict[str, Any]] = field(default_factory=list)
    resources: list[dict[str, str]] = field(default_factory=list)
    tools: dict[tuple[str, str, str | None], int] = field(default_factory=dict)
    commands: list[dict[str, Any]] = field(default_factory=list)
    isolation: list[dict[str, Any]] = field(default_factory=list)
    asked: int = 0
    answered: dict[str, int] = field(default_factory=dict)  # by -> count
    outputs: list[LargeOutput] = field(default_factory=list)
    children: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Returns the content of run.json."""
        tools: list[dict[str, Any]] = []
        for (tool, status, code), count in self.tools.items():
            tools.append({"tool": tool, "status": status, "code": code, "count": count})
        answers = sum(self.answered.values())
        outputs = [output._asdict() for output in self.outputs]
        return {
            "schema": SCHEMA,
            "run": self.run,
            "key": to_json(self.key),
            "request": self.request,
            "normalised_request": normalise(self.request),
            "attachments": self.attachments,
            "model": self.model,
            "versions": self.versions,
            "resumes": self.resumes,
            "started_at": self.started_at,
            "finished_at": self.finished_at,
            "stop_reason": self.stop_reason,
            "code": self.code,
            "text": self.text,
            "key_output": self.key_output,
            "usage": to_json(self.usage),
            "skills": self.skills,
            "resources": self.resources,
            "tools": tools,
            "commands": self.commands,
            "isolation": self.isolation,
            "prompts": {"asked": self.asked, "answered": answers, "by": self.answered},
            "outputs": outputs,
            "children": self.children,
            "events": self.events,
            "after": to_json(self.after),
            "head": to_json(self.head),
        }


def normalise(request: str) -> str:
    """Returns the request in NFC and without outer spaces, so that equal words are equal requests."""
    return unicodedata.normalize("NFC", request).strip()


def summarise(envelopes: Iterable[Envelope], *, after: ChainHead = GENESIS) -> list[RunSummary]:
    """Returns the runs of a session in the order of their starts. `after` is the head before the first event."""
    reader = SummaryReader(after)
    for envelope in envelopes:
        reader.add(envelope)
    return reader.found


class SummaryReader:
    """Reads the events of a session into the summaries of its runs."""

    def __init__(self, after: ChainHead) -> None:
        self.found: list[RunSummary] = []
        self._runs: dict[str, RunSummary] = {}  # by id; a child has the summary of its parent
        self._calls: dict[tuple[str, str], ToolCall] = {}  # by run and id
        self._asking: set[tuple[str, str, str]] = set()  # open questions
        self._head = after

    def add(self, envelope: Envelope) -> None:
        event = envelope.event
        run = envelope.run
        summary = self._summary_of(envelope)
        self._head = ChainHead(seq=envelope.seq or 0, hash=envelope.hash or "")
        summary.head = self._head
        summary.events += 1
        if isinstance(event, CallPlanned):
            self._calls[run, event.call.id] = event.call
        elif isinstance(event, CallActed):
            call = self._calls.get((run, event.call_id))
            _acted(summary, event, call)
        elif isinstance(event, ModelReplied | Compacted) and summary.finished_at is None:
            summary.usage = add_usage(summary.usage, event.usage)
        elif isinstance(event, SkillLoaded):
            summary.skills.append(_skill(event))
        elif isinstance(event, ApprovalAsked):
            summary.asked += 1
            self._asking.add((run, event.call_id, event.capability))
        elif isinstance(event, ApprovalAnswered):
            self._answered(summary, run, event)
        elif run != summary.run:
            return  # a child run begins and ends within its parent
        elif isinstance(event, RunStarted):
            _started(summary, event, envelope.at)
        elif isinstance(event, RunFinished):
            _finished(summary, event, envelope.at)

    def _summary_of(self, envelope: Envelope) -> RunSummary:
        event = envelope.event
        run = envelope.run
        summary = self._runs.get(run)
        if summary is not None:
            return summary
        if isinstance(event, RunStarted) and event.parent is not None:
            summary = self._runs.get(event.parent)
        if summary is not None:
            summary.children.append(run)
        else:
            summary = RunSummary(key=envelope.key, run=run, started_at=envelope.at, after=self._head)
            self.found.append(summary)
        self._runs[run] = summary
        return summary

    def _answered(self, summary: RunSummary, run: str, event: ApprovalAnswered) -> None:
        """Counts an answer. A question that was answered in advance was not asked."""
        question = (run, event.call_id, event.capability)
        if question in self._asking:
            self._asking.remove(question)
            if not event.asked:
                summary.asked -= 1  # answered in advance
        by = event.by or "unknown"
        before = summary.answered.get(by, 0)
        summary.answered[by] = before + 1


def is_cut_off(runs: Sequence[RunSummary], run: RunSummary) -> bool:
    """True if the run has no end but a later run of the session has begun, so that it will never end."""
    if run.finished_at is not None:
        return False
    earlier = runs[:-1]
    return run.run in (each.run for each in earlier)


def find_resuming(runs: Sequence[RunSummary], run: RunSummary) -> str | None:
    """Returns the id of the run that resumes this one."""
    for each in runs:
        if each.resumes == run.run:
            return each.run
    return None


def _skill(event: SkillLoaded) -> dict[str, Any]:
    name = event.name
    if not name:
        name = event.id.rpartition(":")[2]
    return {
        "id": event.id,
        "name": name,
        "digest": event.digest,
        "trigger": event.trigger,
        "rank": event.rank,
        "reason": event.reason,
    }


def _started(summary: RunSummary, event: RunStarted, at: str) -> None:
    summary.started_at = at
    summary.request = event.request
    summary.model = event.model
    summary.resumes = event.resumes
    summary.versions = event.versions
    summary.attachments = []
    for part in event.attachments:
        if part.kind == "file":  # a picture is listed twice: as a file, and as an image for the model
            file = {"name": part.text, "ref": part.ref, "mime_type": part.mime_type}
            summary.attachments.append(file)


def _finished(summary: RunSummary, event: RunFinished, at: str) -> None:
    summary.finished_at = at
    summary.stop_reason = event.stop_reason
    summary.code = event.code
    summary.text = event.text
    summary.usage = event.usage


def _acted(summary: RunSummary, event: CallActed, call: ToolCall | None) -> None:
    outcome = event.outcome
    tool = call.tool if call else "?"
    counted = (tool, outcome.status, outcome.code)
    summary.tools[counted] = summary.tools.get(counted, 0) + 1
    for resource in _resources(tool, outcome):
        if resource not in summary.resources:
            summary.resources.append(resource)
    if call is not None and tool in COMMAND_TOOLS:
        summary.commands.append(_command(call, outcome))
    isolation = outcome.data.get("isolation")
    if isinstance(isolation, dict) and isolation not in summary.isolation:
        summary.isolation.append(isolation)
    summary.key_output = _key_output(outcome.data, summary.key_output)
    for output, _ in large_outputs(event):
        summary.outputs.append(output)


def _key_output(data: Mapping[str, Any], before: dict[str, str] | None) -> dict[str, str] | None:
    """Returns the main output of a call, or else the one before. A file counts more than what a script printed."""
    primary = data.get("primary_output")
    if isinstance(primary, dict):
        content = primary.get("content")
        if isinstance(content, str):
            name = str(primary.get("name") or "")
            return {"name": name, "text": content[:_KEY_OUTPUT]}
    if data.get("output_files"):
        return before
    if before is not None and before["name"] != _STDOUT:
        return before
    printed = _last_lines(data.get("stdout"))
    return printed or before


def _last_lines(stdout: object) -> dict[str, str] | None:
    """Returns whole lines from the end, as many as fit, or the end of the last line if that line alone is longer."""
    if not isinstance(stdout, str):
        return None
    text = stdout.rstrip()
    if not text:
        return None
    tail = text[-_KEY_OUTPUT:]
    if len(text) > _KEY_OUTPUT and text[-_KEY_OUTPUT - 1] != "\n":
        whole_lines = tail.partition("\n")[2]
        tail = whole_lines or tail
    return {"name": _STDOUT, "text": tail}


def _resources(tool: str, outcome: Outcome) -> Iterator[dict[str, str]]:
    """Yields the files of a skill that were read besides its instructions."""
    traits = TOOLS.get(tool)
    if traits is None or not traits.reads_resources:
        return
    data = outcome.data
    skill = data.get("skill")
    if outcome.status != "ok" or not isinstance(skill, str):
        return
    paths = [data.get("path")]
    shown = data.get("show")
    if isinstance(shown, list | tuple):
        paths += shown
    for path in paths:
        if isinstance(path, str) and path:
            yield {"skill": skill, "path": path}


def _command(call: ToolCall, outcome: Outcome) -> dict[str, Any]:
    args = call.args
    data = outcome.data
    words = [args.get("command")]
    if args.get("script"):
        words = [args.get("script"), *(args.get("args") or ())]
    command = " ".join(str(word) for word in words if word is not None)
    skill = data.get("skill") or args.get("skill") or ""
    return {
        "call_id": call.id,
        "tool": call.tool,
        "skill": str(skill),
        "command": command,
        "status": outcome.status,
        "code": outcome.code,
        "exit_code": _whole(data.get("exit_code")),
        "duration_ms": _whole(data.get("duration_ms")),
    }


def _whole(value: object) -> int | None:
    if isinstance(value, int):
        return value
    return None


def large_outputs(event: CallActed) -> Iterator[tuple[LargeOutput, bytes]]:
    """Yields the texts of an outcome that are also stored as files. A text in several places is listed for each."""
    outcome = event.outcome
    whole = {"content": outcome.content, "data": outcome.data}
    for place, text in _texts(whole, "", 0):
        if len(text) * 4 <= LARGE_BYTES:
            continue
        data = text.encode("utf-8", "surrogatepass")
        size = len(data)
        if size > LARGE_BYTES:
            digest = sha256(data).hexdigest()
            yield LargeOutput(event.call_id, place, digest, size), data


def _texts(value: Any, place: str, depth: int) -> Iterator[tuple[str, str]]:
    """Yields (place, text) for every text in a value."""
    if isinstance(value, str):
        yield place, value
    if depth >= _DEEPEST:
        return
    items: Iterable[tuple[object, Any]] = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    for name, item in items:
        inner = f"{place}.{name}" if place else str(name)
        yield from _texts(item, inner, depth + 1)
