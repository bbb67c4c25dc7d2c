"""Finds questions that wait for a person's answer: nobody could be asked, a run asks now, or a run was cut off."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from prowess.core.events import (
    ApprovalAnswered,
    ApprovalAsked,
    CallActed,
    CallDecided,
    CallPlanned,
    Envelope,
    RunFinished,
    RunStarted,
    parse_event,
)
from prowess.core.ports import EventLog
from prowess.core.values import Decision, SessionKey, ToolCall
from prowess.errors import AuditBroken
from prowess.records.marks import Marks

_LINES = ('"type":"run_', '"type":"call_', '"type":"approval_')  # a session can have very many other events


class Waiting(NamedTuple):
    """Question about a call, or about another capability that the call needs."""

    key: SessionKey
    run: str  # run that asked
    call: ToolCall
    decision: Decision
    capability: str
    why: str
    since: str
    of_child: bool  # a child run asked
    ended: bool  # the run ended because nobody could be asked; else it asks now, or was cut off
    resume_arguments: tuple[str, ...] = ()  # options that a resume must repeat
    answer: ApprovalAnswered | None = None  # answer that no run has used yet
    own: bool = True  # this user's home asked; else the question came with a foreign record and may say anything


class PendingSession(NamedTuple):
    key: SessionKey
    questions: tuple[Waiting, ...]
    calls: frozenset[str]  # every call in the session
    damage: str | None = None


async def find_waiting(log: EventLog | None, marks: Marks | None, session: str | None = None) -> list[PendingSession]:
    """Returns every session, or the one of that name, with its waiting questions. A damaged session does not hide the
    others. `marks` are those of this user's home; with None, all events in the log count as its own."""
    infos = await log.sessions() if log is not None else []
    return [
        await read_waiting(log, info.key, marks)
        for info in infos
        if log is not None and session in (None, info.key.session)
    ]


async def read_waiting(log: EventLog, key: SessionKey, marks: Marks | None) -> PendingSession:
    try:
        lines = [line async for line in log.lines(key) if any(mark in line for mark in _LINES)]
        envelopes = [parse_event(json.loads(line)) for line in lines]
    except (AuditBroken, ValueError, RecursionError) as broken:
        return PendingSession(key, (), frozenset(), str(broken)[:300])
    calls = frozenset(each.event.call.id for each in envelopes if isinstance(each.event, CallPlanned))
    return PendingSession(key, tuple(find_questions(key, envelopes, marks)), calls)


def find_questions(key: SessionKey, envelopes: Iterable[Envelope], marks: Marks | None = None) -> list[Waiting]:
    """Returns the open questions, in the order in which they were asked. A session has them if its last run ended as
    waiting or has not ended."""
    reading = _PendingReader(key, marks)
    for envelope in envelopes:
        reading.apply(envelope)
    return reading.questions()


class _PendingReader:
    """Collects questions. A child run can use the same call ids as its parent. A resumed run counts as the same
    work."""

    def __init__(self, key: SessionKey, marks: Marks | None) -> None:
        self._key, self._marks = key, marks
        self._work: dict[str, str] = {}  # run -> first run of a chain of resumes
        self._children: set[str] = set()
        self._calls: dict[tuple[str, str], ToolCall] = {}
        self._decisions: dict[tuple[str, str], Decision] = {}
        self._asked: dict[tuple[str, str, str], Waiting] = {}  # by work, call and capability
        self._last, self._ending = "", ""
        self._resume_arguments: tuple[str, ...] = ()

    def apply(self, envelope: Envelope) -> None:
        event, run = envelope.event, envelope.run
        if isinstance(event, RunStarted):
            self._started(event, run, self._is_own(envelope))
        elif isinstance(event, CallPlanned):
            self._calls[run, event.call.id] = event.call
        elif isinstance(event, CallDecided) and event.decision.verdict == "ask":
            self._decisions[run, event.call_id] = event.decision
        elif isinstance(event, ApprovalAsked):
            self._ask(event, run, envelope.at, self._is_own(envelope))
        elif isinstance(event, ApprovalAnswered) and (not event.asked or self._is_own(envelope)):
            for place in self._places(run, event.call_id):
                if event.capability not in ("", place[2]):
                    continue
                if event.asked:
                    self._asked[place] = self._asked[place]._replace(answer=event)
                else:  # answered by --yes: a resume gives it again
                    del self._asked[place]
        elif isinstance(event, CallActed) and event.outcome.status != "waiting":
            for place in self._places(run, event.call_id):
                del self._asked[place]
        elif isinstance(event, RunFinished) and run == self._last:
            self._ending = event.stop_reason

    def questions(self) -> list[Waiting]:
        """Returns the open questions. In a run that has not ended, an answered question is already being worked on."""
        ended = self._ending == "waiting"
        if not ended and self._ending:
            return []
        found = [each._replace(ended=ended, resume_arguments=self._resume_arguments) for each in self._asked.values()]
        return [each for each in found if ended or each.answer is None or each.answer.later]

    def _is_own(self, envelope: Envelope) -> bool:
        return self._marks is None or self._marks.fits(envelope)

    def _started(self, event: RunStarted, run: str, own: bool) -> None:
        self._work[run] = self._work.get(event.resumes, event.resumes) if event.resumes else run
        if event.parent is not None:
            self._children.add(run)
            return
        self._last, self._ending, self._resume_arguments = run, "", event.resume_arguments if own else ()
        if event.resumes is None:  # a new request gives up the old questions
            self._asked.clear()

    def _ask(self, event: ApprovalAsked, run: str, at: str, own: bool) -> None:
        call = self._calls.get((run, event.call_id)) or ToolCall(id=event.call_id, tool=event.capability or "?")
        decision = self._decisions.get((run, event.call_id)) or Decision(verdict="ask", rule="", why=event.why)
        capability = event.capability or call.tool
        place = (self._work.get(run, run), event.call_id, capability)
        since = self._asked[place].since if place in self._asked else at
        self._asked[place] = Waiting(
            self._key, run, call, decision, capability, event.why, since, run in self._children, ended=False, own=own
        )

    def _places(self, run: str, call_id: str) -> list[tuple[str, str, str]]:
        work = self._work.get(run, run)
        return [place for place in self._asked if place[:2] == (work, call_id)]
