"""Finds questions that wait for a person's answer: nobody could be asked, a run asks now, or a run was cut off."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from prowess._internal.digest import content_sha256
from prowess.core.codec import to_json
from prowess.core.events import (
    ApprovalAnswered,
    ApprovalAsked,
    CallActed,
    CallDecided,
    CallPlanned,
    Envelope,
    RunFinished,
    RunStarted,
    SessionImported,
    parse_event,
)
from prowess.core.ports import EventLog
from prowess.core.values import Decision, Question, SessionKey, ToolCall
from prowess.errors import AuditBroken, in_one_line
from prowess.records.sessions import all_sessions, answers_since

_LINES = (
    '"type":"run_',
    '"type":"call_',
    '"type":"approval_',
    '"type":"session_',
)  # a session can have very many other events


_QuestionKey = tuple[str, str, str]  # work, call and capability


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
    resume_arguments: tuple[str, ...] | None = ()  # options that a resume must repeat; None: a program runs it
    answer: ApprovalAnswered | None = None  # answer that no run has used yet
    of_program: bool = False  # a program of the user makes the calls, and not an agent of ours
    own: bool = True  # this user's home asked; else the question came with a foreign record and may say anything
    token: str = ""  # of this question; another call under the same id has another one

    @property
    def question(self) -> Question:
        """Question as it is shown to the person."""
        call = self.call
        about = to_json(self.decision.about)
        return Question(call_id=call.id, tool=call.tool, args=call.args, why=self.why, about=about, token=self.token)


class PendingSession(NamedTuple):
    key: SessionKey
    questions: tuple[Waiting, ...]
    calls: frozenset[str]  # every call in the session
    damage: str | None = None


async def find_waiting(log: EventLog | None, session: str | None = None) -> list[PendingSession]:
    """Returns every session, or the one of that name, with its waiting questions. A damaged session does not hide the
    others."""
    found: list[PendingSession] = []
    if log is None:
        return found
    for info in await all_sessions(log):
        if session in (None, info.key.session):
            waiting = await read_waiting(log, info.key)
            found.append(waiting)
    return found


async def read_waiting(log: EventLog, key: SessionKey) -> PendingSession:
    """Reads one session. `damage` says what is wrong with a record that cannot be read."""
    envelopes: list[Envelope] = []
    calls: set[str] = set()
    try:
        async for line in log.lines(key):
            if any(mark in line for mark in _LINES):
                envelope = parse_event(json.loads(line))
                envelopes.append(envelope)
                if isinstance(envelope.event, CallPlanned):
                    calls.add(envelope.event.call.id)
    except (AuditBroken, ValueError, RecursionError) as broken:
        damage = in_one_line(broken)[:300]
        return PendingSession(key, (), frozenset(), damage)
    questions = find_questions(key, envelopes, answers_since(log))
    return PendingSession(key, tuple(questions), frozenset(calls))


def find_questions(key: SessionKey, envelopes: Iterable[Envelope], since: str | None = "") -> list[Waiting]:
    """Returns the open questions, in the order in which they were asked. A session has them if its last run ended as
    waiting or has not ended. Questions before `since` are not own."""
    reading = _PendingReader(key, since)
    for envelope in envelopes:
        reading.apply(envelope)
    return reading.questions()


class _PendingReader:
    """Collects questions. A child run can use the same call ids as its parent. A resumed run counts as the same
    work."""

    def __init__(self, key: SessionKey, since: str | None) -> None:
        self._key = key
        self._since = since
        self._work: dict[str, str] = {}  # run -> first run of a chain of resumes
        self._children: set[str] = set()
        self._calls: dict[tuple[str, str], ToolCall] = {}
        self._decisions: dict[tuple[str, str], Decision] = {}
        self._asked: dict[_QuestionKey, Waiting] = {}
        self._last = ""
        self._ending = ""
        self._resume_arguments: tuple[str, ...] | None = ()
        self._of_program = False

    def apply(self, envelope: Envelope) -> None:
        event = envelope.event
        run = envelope.run
        if isinstance(event, RunStarted):
            self._started(event, run, self._is_own(envelope))
        elif isinstance(event, CallPlanned):
            self._calls[run, event.call.id] = event.call
        elif isinstance(event, CallDecided):
            if event.decision.verdict == "ask":
                self._decisions[run, event.call_id] = event.decision
        elif isinstance(event, ApprovalAsked):
            self._ask(event, envelope, self._is_own(envelope))
        elif isinstance(event, ApprovalAnswered):
            if not event.asked or self._is_own(envelope):
                self._answer(event, run)
        elif isinstance(event, CallActed):
            if event.outcome.status != "waiting":
                self._settle(event.call_id, run)
        elif isinstance(event, RunFinished) and run == self._last:
            self._ending = event.stop_reason
        elif isinstance(event, SessionImported):
            for place, question in self._asked.items():
                self._asked[place] = question._replace(own=False, answer=None)
            self._resume_arguments = () if self._resume_arguments else self._resume_arguments

    def questions(self) -> list[Waiting]:
        """Returns the open questions. In a run that has not ended, an answered question is already being worked on."""
        ended = self._ending == "waiting"
        found: list[Waiting] = []
        if self._ending and not ended:
            return found
        for asked in self._asked.values():
            answer = asked.answer
            is_open = answer is None or answer.later
            if ended or is_open:
                question = asked._replace(ended=ended, resume_arguments=self._resume_arguments)
                found.append(question._replace(of_program=self._of_program))
        return found

    def _is_own(self, envelope: Envelope) -> bool:
        return self._since is not None and envelope.at >= self._since

    def _started(self, event: RunStarted, run: str, own: bool) -> None:
        resumed = event.resumes
        self._work[run] = self._work.get(resumed, resumed) if resumed else run
        if event.parent is not None:
            self._children.add(run)
            return
        self._last = run
        self._ending = ""
        self._of_program = event.model == "caller"
        is_known = own or event.resume_arguments is None
        self._resume_arguments = event.resume_arguments if is_known else ()
        if resumed is None:  # a new request gives up the old questions
            self._asked.clear()

    def _ask(self, event: ApprovalAsked, envelope: Envelope, own: bool) -> None:
        id = event.call_id
        run = envelope.run
        call = self._calls.get((run, id))
        if call is None:
            call = ToolCall(id=id, tool=event.capability or "?")
        decision = self._decisions.get((run, id))
        if decision is None:
            decision = Decision(verdict="ask", rule="", why=event.why)
        capability = event.capability or call.tool
        place = (self._work.get(run, run), id, capability)
        child = run in self._children
        since, token = envelope.at, _make_token(envelope, call, capability)
        before = self._asked.get(place)
        if before is not None:
            since = before.since
            asked_again = (before.call, before.decision, before.why, before.answer) == (call, decision, event.why, None)
            token = before.token if asked_again else token
        self._asked[place] = Waiting(
            self._key, run, call, decision, capability, event.why, since, child, ended=False, own=own, token=token
        )

    def _answer(self, event: ApprovalAnswered, run: str) -> None:
        for place in self._places(run, event.call_id):
            _, _, capability = place
            if event.capability not in ("", capability):
                continue
            if event.asked:
                question = self._asked[place]
                self._asked[place] = question._replace(answer=event)
            else:  # answered by --yes: a resume gives it again
                del self._asked[place]

    def _settle(self, call_id: str, run: str) -> None:
        """Removes the questions about a call that was made."""
        for place in self._places(run, call_id):
            del self._asked[place]

    def _places(self, run: str, call_id: str) -> list[_QuestionKey]:
        """Returns the questions about a call."""
        wanted = (self._work.get(run, run), call_id)
        found: list[_QuestionKey] = []
        for place in self._asked:
            if place[:2] == wanted:
                found.append(place)
        return found


def _make_token(envelope: Envelope, call: ToolCall, capability: str) -> str:
    """Returns the token of a question. The hash of its event stands for its place, and for all that was before."""
    asked = json.dumps([envelope.hash, call.tool, call.args, capability], sort_keys=True)
    return content_sha256(asked.encode())[:16]
