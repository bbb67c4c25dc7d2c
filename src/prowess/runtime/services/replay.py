"""Reads the inputs of a recorded run for a replay: its request, files, people's answers, and calls."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace

from prowess.agent.agent import SkillRequest
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
        self.run = run
        self.key = key
        self.events = list(events)
        self.before: list[Envelope] = []
        for envelope in before:
            if not isinstance(envelope.event, ApprovalAnswered) or is_own(envelope):
                self.before.append(envelope)
        self.own: list[Event | UnknownEvent] = []
        self.started: RunStarted | None = None
        self.is_own = False
        self.was_cut_off = True
        for envelope in self.events:
            if envelope.run != run:
                continue
            event = envelope.event
            self.own.append(event)
            if isinstance(event, RunStarted):
                self.started = self.started or event
                self.is_own = self.is_own or is_own(envelope)
            elif isinstance(event, RunFinished):
                self.was_cut_off = event.stop_reason == "cancelled"
        counted = _before_the_cut(self.events) if self.was_cut_off else self.events
        self.to_compare = settled(counted)
        self.unasked: set[str] = set()
        """Calls that --yes or an earlier approval answered. Such an answer counts only for the recorded run."""
        self._answers: dict[str, list[ApprovalAnswered]] = {}  # empty: asked, and nobody of this home answered
        self._read_answers(is_own)
        self._said = _said(self.events)

    def _read_answers(self, is_own: Callable[[Envelope], bool]) -> None:
        for envelope in self.events:
            event = envelope.event
            if not isinstance(event, ApprovalAsked | ApprovalAnswered):
                continue
            answers = self._answers.setdefault(event.call_id, [])
            if isinstance(event, ApprovalAsked):
                continue
            if not event.asked:
                self.unasked.add(event.call_id)
            if is_own(envelope):
                answers.append(event)

    @property
    def by_caller(self) -> bool:
        """True when no model was asked: `prowess exec`, or another framework's loop."""
        if self.started is None or self.started.model != "caller":
            return False
        return not any(isinstance(event, ModelRequested | ModelReplied) for event in self.own)

    @property
    def on_ask(self) -> str:
        """Behaviour when nobody can be asked: "deny" or "wait"."""
        for envelope in self.events:
            if isinstance(envelope.event, CallActed):
                outcome = envelope.event.outcome
                if outcome.status == "denied" and outcome.code == "approval-needed":
                    return "deny"
        return "wait"

    def notes(self) -> list[str]:
        """Returns what cannot be repeated."""
        found: list[str] = []
        if self.was_cut_off:
            has_end = any(isinstance(event, RunFinished) for event in self.own)
            ended = "was cancelled" if has_end else "never ended"
            as_far = "it is repeated as far as its record goes, and nothing is done after that."
            found.append(f"The recorded run {ended}: {as_far}")
        if self.before:
            found.append("Files that earlier runs of its session made are not in the workspace of the replay.")
        return found

    def calls(self) -> list[ToolCall]:
        return [event.call for event in self.own if isinstance(event, CallPlanned)]

    def requested_skills(self) -> list[SkillRequest]:
        """Returns the skills that the user or the caller activated, before the model was asked."""
        found: list[SkillRequest] = []
        for event in self.own:
            if isinstance(event, ModelRequested):
                break
            if not isinstance(event, CallPlanned) or event.call.tool != "skill_load":
                continue
            args = event.call.args
            ref = args.get("skill")
            if event.call.trigger not in _ACTIVATION or not isinstance(ref, str):
                continue
            docs = tuple(map(str, args.get("docs") or ()))
            arguments = str(args.get("arguments") or "")
            request = SkillRequest(
                ref=ref, source=args.get("source"), trigger=event.call.trigger, arguments=arguments, docs=docs
            )
            found.append(request)
        return found

    def given(self, option: str) -> tuple[str, ...]:
        """Returns every value of an option of the command that started the run."""
        if self.started is None:
            return ()
        words = self.started.resume_arguments or ()
        pairs = zip(words[::2], words[1::2], strict=False)  # flags without a value come last
        return tuple(value for word, value in pairs if word == option)

    def attached(self) -> list[str]:
        """Returns the workspace paths of the files that came with the request."""
        found: list[str] = []
        if self.started is None:
            return found
        for part in self.started.attachments:
            if part.kind == "file":
                ref = part.ref or ""
                found.append(ref.removeprefix("workspace://"))
        return found

    def granted(self) -> list[str]:
        """Returns the workspace paths of the files that a person gave to a command."""
        found: list[str] = []
        for event in self.own:
            if not isinstance(event, CallActed):
                continue
            staged = event.outcome.data.get("staged_inputs")
            for each in staged if isinstance(staged, list) else ():
                if isinstance(each, dict) and str(each.get("from")).startswith("host://"):
                    found.append(str(each.get("name")))
        return found

    async def approve(self, call: ToolCall, decision: Decision) -> ApprovalAnswered | None:
        """Answers as this user did then; None when nobody did."""
        answers = self._answers.get(call.id)
        if answers:
            return answers.pop(0)
        if answers is not None:
            return None
        why = "Nobody was asked that in the record."
        return ApprovalAnswered(call_id=call.id, answer="no", why=why, by="replay")

    async def ask(self, question: str, choices: Sequence[str]) -> str | None:
        """Answers a question of the model as it was answered then."""
        said = self._said.get(question)
        if not said:
            return None
        return said.pop(0)


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
        self._most = len(record)
        self._open = _open_calls(record)

    @property
    def is_full(self) -> bool:
        if self._most is None:
            return False
        return len(self.counted) >= self._most

    async def append(
        self, key: SessionKey, expected_seq: int, lease: Lease, events: Sequence[Envelope]
    ) -> Sequence[Envelope]:
        stored = await super().append(key, expected_seq, lease, events)
        if self._most is None:
            return stored
        self.counted += [each.seq for each in stored if not self._is_beyond(each)]
        del self.counted[self._most :]  # several events can be written at once
        if self.is_full:
            hint = "There is nothing more that could be repeated."
            raise StoreError("The record ends here.", code="record-ends", hint=hint)
        return stored

    def _is_beyond(self, envelope: Envelope) -> bool:
        """True for the result of a call that has none in the record: parallel calls may end in another order."""
        run = self._runs.setdefault(envelope.run, len(self._runs))
        event = envelope.event
        if not isinstance(event, CallActed):
            return False
        return (run, event.call_id) in self._open


def _open_calls(events: Sequence[Envelope]) -> set[tuple[int, str]]:
    """Returns (number of the run, call) of calls without an outcome."""
    runs: dict[str, int] = {}
    found: set[tuple[int, str]] = set()
    for envelope in events:
        event = envelope.event
        run = runs.setdefault(envelope.run, len(runs))
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
    if isinstance(event, CallActed):
        return event.outcome.status == "interrupted"
    return False


def _said(events: Sequence[Envelope]) -> dict[str, list[str]]:
    """Returns people's answers to questions of the model, by question."""
    questions: dict[tuple[str, str], str] = {}
    found: dict[str, list[str]] = {}
    for envelope in events:
        event = envelope.event
        if isinstance(event, CallPlanned) and event.call.tool == "ask_user":
            question = event.call.args.get("question") or ""
            questions[envelope.run, event.call.id] = str(question)
        elif isinstance(event, CallActed):
            question = questions.get((envelope.run, event.call_id))
            answer = event.outcome.data.get("answer")
            if question is not None and isinstance(answer, str):
                found.setdefault(question, []).append(answer)
    return found


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
        below = os.path.relpath(top, path)
        for name in names:
            inner = os.path.normpath(os.path.join(below, name))
            to = os.path.join(target, inner)
            os.makedirs(os.path.dirname(to), exist_ok=True)
            _copy_file(root, os.path.join(rel, inner), to)


def _copy_file(root: str, rel: str, target: str) -> None:
    with open_file(root, rel) as fd, open(target, "wb") as file:
        while piece := os.read(fd, 1 << 20):
            file.write(piece)


async def put_back(log: MemoryEventLog, key: SessionKey, events: Sequence[Envelope]) -> None:
    """Writes the earlier events of a session as the beginning of another one."""
    moved: list[Envelope] = []
    for envelope in events:
        fresh = replace(envelope, tenant=key.tenant, app=key.app, user=key.user, session=key.session)
        moved.append(replace(fresh, seq=None, prev=None, hash=None))
    lease = await log.lease(key)
    await log.append(key, 0, lease, moved)
