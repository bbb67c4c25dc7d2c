"""Reads the inputs of a recorded run for a replay: its request, files, people's answers, and calls."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from prowess.agent.activation import SkillRequest
from prowess.core.events import (
    ApprovalAnswered,
    ApprovalAsked,
    CallActed,
    CallPlanned,
    Envelope,
    Event,
    ModelReplied,
    ModelRequested,
    RunFinished,
    RunStarted,
    UnknownEvent,
)
from prowess.core.ports import Lease
from prowess.core.values import Decision, SessionKey, ToolCall
from prowess.errors import ProwessError, StoreError
from prowess.records.diff import settled
from prowess.stores.memory import MemoryEventLog
from prowess.workspace.dirfd import open_file

_ACTIVATION = ("caller", "user")


class Recorded:
    """Events of a run and its children, and those of its session before it.

    `is_own` is True for events that this user's home wrote. Answers and files from other homes do not count.
    """

    def __init__(
        self,
        run: str,
        key: SessionKey,
        events: Sequence[Envelope],
        before: Sequence[Envelope],
        is_own: Callable[[Envelope], bool],
    ) -> None:
        self.run, self.key, self.events = run, key, list(events)
        self.before = [each for each in before if not isinstance(each.event, ApprovalAnswered) or is_own(each)]
        self.is_own = any(is_own(each) for each in events if each.run == run and isinstance(each.event, RunStarted))
        own = [envelope.event for envelope in self.events if envelope.run == run]
        self.own: list[Event | UnknownEvent] = own
        self.started = next((event for event in own if isinstance(event, RunStarted)), None)
        ends = [event for event in own if isinstance(event, RunFinished)]
        self.was_cut_off = not ends or ends[-1].stop_reason == "cancelled"
        self.to_compare = settled(_before_the_cut(self.events) if self.was_cut_off else self.events)
        self._answers = _answers(self.events, is_own)
        answered = [each.event for each in self.events if isinstance(each.event, ApprovalAnswered)]
        self.unasked = frozenset(event.call_id for event in answered if not event.asked)
        """Calls that --yes or an earlier approval answered. Such an answer counts only for the recorded run."""
        self._said = _said(self.events)

    @property
    def by_caller(self) -> bool:
        """True when no model was asked: `prowess exec`, or another framework's loop."""
        asked = any(isinstance(event, ModelRequested | ModelReplied) for event in self.own)
        return self.started is not None and self.started.model == "caller" and not asked

    @property
    def on_ask(self) -> str:
        """Behaviour when nobody can be asked: "deny" or "wait"."""
        denied = any(
            isinstance(each.event, CallActed)
            and (each.event.outcome.status, each.event.outcome.code) == ("denied", "approval-needed")
            for each in self.events
        )
        return "deny" if denied else "wait"

    def notes(self) -> Iterator[str]:
        if self.was_cut_off:
            ended = "was cancelled" if any(isinstance(event, RunFinished) for event in self.own) else "never ended"
            yield f"The recorded run {ended}: it is repeated as far as its record goes, and nothing is done after that."
        if self.before:
            yield "Files that earlier runs of its session made are not in the workspace of the replay."

    def calls(self) -> list[ToolCall]:
        return [event.call for event in self.own if isinstance(event, CallPlanned)]

    def requested_skills(self) -> Iterator[SkillRequest]:
        """Yields the skills that the user or the caller activated, before the model was asked."""
        for event in self.own:
            if isinstance(event, ModelRequested):
                return
            if isinstance(event, CallPlanned) and event.call.tool == "skill_load":
                args, trigger = event.call.args, event.call.trigger
                if trigger in _ACTIVATION and isinstance(ref := args.get("skill"), str):
                    docs = tuple(str(doc) for doc in args.get("docs") or ())
                    source, arguments = args.get("source"), str(args.get("arguments") or "")
                    yield SkillRequest(ref=ref, source=source, trigger=trigger, arguments=arguments, docs=docs)

    def given(self, option: str) -> tuple[str, ...]:
        """Returns every value of an option of the command that started the run."""
        words = self.started.resume_arguments if self.started else ()
        pairs = zip(words[::2], words[1::2], strict=False)  # flags without a value come last
        return tuple(value for word, value in pairs if word == option)

    def attached(self) -> list[str]:
        """Returns the workspace paths of the files that came with the request."""
        parts = [part for part in self.started.attachments if part.kind == "file"] if self.started else []
        return [(part.ref or "").removeprefix("workspace://") for part in parts]

    def granted(self) -> list[str]:
        """Returns the workspace paths of the files that a person gave to a command."""
        staged = [each for call in self.own if isinstance(call, CallActed) for each in _staged(call)]
        return [str(each.get("name")) for each in staged if str(each.get("from")).startswith("host://")]

    async def approve(self, call: ToolCall, decision: Decision) -> ApprovalAnswered | None:
        """Answers as this user did then; None when nobody did."""
        answers = self._answers.get(call.id)
        if answers:
            return answers.pop(0)
        if answers is None:
            return ApprovalAnswered(
                call_id=call.id, answer="no", why="Nobody was asked that in the record.", by="replay"
            )
        return None

    async def ask(self, question: str, choices: Sequence[str]) -> str | None:
        said = self._said.get(question)
        return said.pop(0) if said else None


class LogUntil(MemoryEventLog):
    """Event log that is full when it has as many events as a record.

    A step whose event cannot be written is not done, so the run ends where its record ends. `counted` has the numbers
    of the events that the record has too.
    """

    immediate = True

    def __init__(self) -> None:
        super().__init__()
        self.counted: list[int | None] = []
        self._most: int | None = None
        self._open: set[tuple[int, str]] = set()
        self._runs: dict[str, int] = {}

    def stop_after(self, record: Sequence[Envelope]) -> None:
        self._most, self._open = len(record), _open_calls(record)

    @property
    def is_full(self) -> bool:
        return self._most is not None and len(self.counted) >= self._most

    async def append(
        self, key: SessionKey, expected_seq: int, lease: Lease, events: Sequence[Envelope]
    ) -> Sequence[Envelope]:
        stored = await super().append(key, expected_seq, lease, events)
        if self._most is not None:
            self.counted += [each.seq for each in stored if not self._is_beyond(each)]
            del self.counted[self._most :]  # several events can be written at once
        if self.is_full:
            raise StoreError(
                "The record ends here.", code="record-ends", hint="There is nothing more that could be repeated."
            )
        return stored

    def _is_beyond(self, envelope: Envelope) -> bool:
        """True for the result of a call that has none in the record: parallel calls may end in another order."""
        run, event = self._runs.setdefault(envelope.run, len(self._runs)), envelope.event
        return isinstance(event, CallActed) and (run, event.call_id) in self._open


def _open_calls(events: Sequence[Envelope]) -> set[tuple[int, str]]:
    """Returns (number of the run, call) of calls without an outcome."""
    runs: dict[str, int] = {}
    found: set[tuple[int, str]] = set()
    for envelope in events:
        run, event = runs.setdefault(envelope.run, len(runs)), envelope.event
        if isinstance(event, CallPlanned):
            found.add((run, event.call.id))
        elif isinstance(event, CallActed):
            found.discard((run, event.call_id))
    return found


def _before_the_cut(events: Sequence[Envelope]) -> list[Envelope]:
    """Drops the events at the end that were written because the run was cut off."""
    found = list(events)
    while found and _comes_of_a_cut(found[-1].event):
        found.pop()
    return found


def _comes_of_a_cut(event: Event | UnknownEvent) -> bool:
    if isinstance(event, RunFinished):
        return event.stop_reason == "cancelled"
    return isinstance(event, CallActed) and event.outcome.status == "interrupted"


def _answers(events: Sequence[Envelope], is_own: Callable[[Envelope], bool]) -> dict[str, list[ApprovalAnswered]]:
    """Returns answers by call. An empty list: it was asked, and nobody of this home answered."""
    found: dict[str, list[ApprovalAnswered]] = {}
    for envelope in events:
        event = envelope.event
        if isinstance(event, ApprovalAsked):
            found.setdefault(event.call_id, [])
        elif isinstance(event, ApprovalAnswered):
            found.setdefault(event.call_id, []).extend([event] if is_own(envelope) else [])
    return found


def _said(events: Sequence[Envelope]) -> dict[str, list[str]]:
    """Returns people's answers to questions of the model."""
    questions: dict[tuple[str, str], str] = {}
    found: dict[str, list[str]] = {}
    for envelope in events:
        event = envelope.event
        if isinstance(event, CallPlanned) and event.call.tool == "ask_user":
            questions[envelope.run, event.call.id] = str(event.call.args.get("question") or "")
        elif isinstance(event, CallActed) and (asked := questions.get((envelope.run, event.call_id))) is not None:
            answer = event.outcome.data.get("answer")
            if isinstance(answer, str):
                found.setdefault(asked, []).append(answer)
    return found


def _staged(event: CallActed) -> list[dict[str, Any]]:
    staged = event.outcome.data.get("staged_inputs")
    return [each for each in staged if isinstance(each, dict)] if isinstance(staged, list) else []


def copy_files(names: Sequence[str], workspace: str, folder: str) -> tuple[list[tuple[str, str | None]], list[str]]:
    """Copies the files that are still in the recorded workspace to `folder`; returns them, and the names of the others.

    A script could have put a link in their place: no link is followed.
    """
    found: list[tuple[str, str | None]] = []
    missing: list[str] = []
    for number, name in enumerate(names):
        target = os.path.join(folder, str(number))
        try:
            _copy(workspace, name, target)
            found.append((target, name))
        except (OSError, ProwessError):
            missing.append(name)
    return found, missing


def _copy(root: str, rel: str, target: str) -> None:
    """Copies a file, or a folder with its content."""
    path = os.path.join(root, rel)
    if not rel or not os.path.isdir(path) or os.path.islink(path):
        _copy_file(root, rel, target)
        return
    os.makedirs(target, exist_ok=True)
    for top, _, names in os.walk(path):
        for name in names:
            inner = os.path.relpath(os.path.join(top, name), path)
            to = os.path.join(target, inner)
            os.makedirs(os.path.dirname(to), exist_ok=True)
            _copy_file(root, os.path.join(rel, inner), to)


def _copy_file(root: str, rel: str, target: str) -> None:
    with open_file(root, rel) as fd, open(target, "wb") as file:
        while piece := os.read(fd, 1 << 20):
            file.write(piece)


async def put_back(log: MemoryEventLog, key: SessionKey, events: Sequence[Envelope]) -> None:
    """Writes the earlier events of a session as the beginning of another one."""
    lease = await log.lease(key)
    moved: list[Any] = [
        replace(
            each, session=key.session, tenant=key.tenant, app=key.app, user=key.user, seq=None, prev=None, hash=None
        )
        for each in events
    ]
    await log.append(key, 0, lease, moved)
