"""Sums up a run from its events alone: request, skills, tools, outputs and stop reason.

A child run is part of its parent: its events, skills and calls count there. A run without `run_finished` is still
active or was cut off; its usage is the sum of its replies.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
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
            "tools": [
                {"tool": tool, "status": status, "code": code, "count": count}
                for (tool, status, code), count in self.tools.items()
            ],
            "commands": self.commands,
            "isolation": self.isolation,
            "prompts": {"asked": self.asked, "answered": sum(self.answered.values()), "by": self.answered},
            "outputs": [output._asdict() for output in self.outputs],
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
    runs: dict[str, RunSummary] = {}
    calls: dict[tuple[str, str], ToolCall] = {}  # by run and id
    asking: set[tuple[str, str, str]] = set()  # open questions
    head = after
    for envelope in envelopes:
        event = envelope.event
        if isinstance(event, RunStarted) and event.parent in runs and envelope.run not in runs:
            runs[envelope.run] = runs[event.parent]
            runs[event.parent].children.append(envelope.run)
        summary = runs.get(envelope.run)
        if summary is None:
            summary = RunSummary(key=envelope.key, run=envelope.run, started_at=envelope.at, after=head)
            runs[envelope.run] = summary
        head = ChainHead(seq=envelope.seq or 0, hash=envelope.hash or "")
        summary.head, summary.events = head, summary.events + 1
        if isinstance(event, CallPlanned):
            calls[envelope.run, event.call.id] = event.call
        elif isinstance(event, CallActed):
            _acted(summary, event, calls.get((envelope.run, event.call_id)))
        elif isinstance(event, ModelReplied | Compacted) and summary.finished_at is None:
            summary.usage = add_usage(summary.usage, event.usage)
        elif isinstance(event, SkillLoaded):
            skill = {"id": event.id, "name": event.name or event.id.rpartition(":")[2], "digest": event.digest}
            summary.skills.append({**skill, "trigger": event.trigger, "rank": event.rank, "reason": event.reason})
        elif isinstance(event, ApprovalAsked):
            summary.asked += 1
            asking.add((envelope.run, event.call_id, event.capability))
        elif isinstance(event, ApprovalAnswered):
            if (envelope.run, event.call_id, event.capability) in asking and not event.asked:
                summary.asked -= 1  # answered in advance
            asking.discard((envelope.run, event.call_id, event.capability))
            by = event.by or "unknown"
            summary.answered[by] = summary.answered.get(by, 0) + 1
        elif envelope.run == summary.run:
            _frame(summary, envelope)
    return list({id(each): each for each in runs.values()}.values())


def is_cut_off(runs: Sequence[RunSummary], run: RunSummary) -> bool:
    """True if the run has no end but a later run of the session has begun, so that it will never end."""
    return run.finished_at is None and any(each.run == run.run for each in runs[:-1])


def find_resuming(runs: Sequence[RunSummary], run: RunSummary) -> str | None:
    """Returns the id of the run that resumes this one."""
    return next((each.run for each in runs if each.resumes == run.run), None)


def _frame(summary: RunSummary, envelope: Envelope) -> None:
    event = envelope.event
    if isinstance(event, RunStarted):
        summary.started_at, summary.request, summary.model = envelope.at, event.request, event.model
        summary.resumes, summary.versions = event.resumes, event.versions
        summary.attachments = [
            {"name": part.text, "ref": part.ref, "mime_type": part.mime_type}
            for part in event.attachments
            if part.kind == "file"  # a picture is listed twice: as a file, and as an image for the model
        ]
    elif isinstance(event, RunFinished):
        summary.finished_at, summary.stop_reason, summary.code = envelope.at, event.stop_reason, event.code
        summary.text, summary.usage = event.text, event.usage


def _acted(summary: RunSummary, event: CallActed, call: ToolCall | None) -> None:
    outcome, data = event.outcome, event.outcome.data
    tool = call.tool if call else "?"
    counted = tool, outcome.status, outcome.code
    summary.tools[counted] = summary.tools.get(counted, 0) + 1
    for resource in _resources(tool, outcome):
        if resource not in summary.resources:
            summary.resources.append(resource)
    if call is not None and tool in COMMAND_TOOLS:
        summary.commands.append(_command(call, outcome))
    isolation = data.get("isolation")
    if isinstance(isolation, dict) and isolation not in summary.isolation:
        summary.isolation.append(isolation)
    primary = data.get("primary_output")
    if isinstance(primary, dict) and isinstance(text := primary.get("content"), str):
        summary.key_output = {"name": str(primary.get("name") or ""), "text": text[:_KEY_OUTPUT]}
    elif (summary.key_output is None or summary.key_output["name"] == _STDOUT) and not data.get("output_files"):
        summary.key_output = _last_lines(data.get("stdout")) or summary.key_output
    summary.outputs += [output for output, _ in large_outputs(event)]


def _last_lines(stdout: object) -> dict[str, str] | None:
    """Returns whole lines from the end, as many as fit, or the end of the last line if that line alone is longer."""
    text = stdout.rstrip() if isinstance(stdout, str) else ""
    tail = text[-_KEY_OUTPUT:]
    if len(text) > _KEY_OUTPUT and text[-_KEY_OUTPUT - 1] != "\n":
        tail = tail.partition("\n")[2] or tail
    return {"name": _STDOUT, "text": tail} if tail else None


def _resources(tool: str, outcome: Outcome) -> Iterator[dict[str, str]]:
    """Yields the files of a skill that were read besides its instructions."""
    skill = outcome.data.get("skill")
    traits = TOOLS.get(tool)
    if traits is None or not traits.reads_resources or outcome.status != "ok" or not isinstance(skill, str):
        return
    shown = outcome.data.get("show")
    for path in [outcome.data.get("path"), *(shown if isinstance(shown, list) else ())]:
        if isinstance(path, str) and path:
            yield {"skill": skill, "path": path}


def _command(call: ToolCall, outcome: Outcome) -> dict[str, Any]:
    args, data = call.args, outcome.data
    words = [args.get("script"), *(args.get("args") or ())] if args.get("script") else [args.get("command")]
    exit_code, duration = data.get("exit_code"), data.get("duration_ms")
    return {
        "call_id": call.id,
        "tool": call.tool,
        "skill": str(data.get("skill") or args.get("skill") or ""),
        "command": " ".join(str(word) for word in words if word is not None),
        "status": outcome.status,
        "code": outcome.code,
        "exit_code": exit_code if isinstance(exit_code, int) else None,
        "duration_ms": duration if isinstance(duration, int) else None,
    }


def large_outputs(event: CallActed) -> Iterator[tuple[LargeOutput, bytes]]:
    """Yields the texts of an outcome that are also stored as files. A text in several places is listed for each."""
    whole = {"content": event.outcome.content, "data": event.outcome.data}
    for place, text in _texts(whole, "", 0):
        if len(text) * 4 <= LARGE_BYTES:
            continue
        data = text.encode("utf-8", "surrogatepass")
        if len(data) > LARGE_BYTES:
            yield LargeOutput(event.call_id, place, sha256(data).hexdigest(), len(data)), data


def _texts(value: Any, place: str, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield place, value
    elif depth < _DEEPEST and isinstance(value, (dict, list)):
        for name, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _texts(item, f"{place}.{name}" if place else str(name), depth + 1)
