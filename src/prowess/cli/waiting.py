"""Questions that wait for a person: those of every session whose last run ended because nobody could be asked."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from prowess.errors import AuditBroken
from prowess.events import (
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
from prowess.ports import EventLog
from prowess.values import Decision, SessionKey, ToolCall

_LINES = ('"type":"run_', '"type":"call_', '"type":"approval_')  # a session can have very many others


class Waiting(NamedTuple):
    """One question: about a call, or about something else that the call needs."""

    key: SessionKey
    run: str  # in which it was asked
    call: ToolCall
    decision: Decision
    capability: str
    why: str
    since: str
    of_child: bool  # it was asked in a child run, which begins anew when the session is resumed
    answer: ApprovalAnswered | None = None  # when it was answered since, and nobody has gone on


class Session(NamedTuple):
    key: SessionKey
    questions: tuple[Waiting, ...]
    calls: frozenset[str]  # every call that was ever made in it
    damage: str | None = None


async def find_waiting(log: EventLog | None, session: str | None = None) -> list[Session]:
    """Every session, or the one of that name, with what waits in it. A damaged one hides no other."""
    infos = await log.sessions() if log is not None else []
    return [
        await read_waiting(log, info.key) for info in infos if log is not None and session in (None, info.key.session)
    ]


async def read_waiting(log: EventLog, key: SessionKey) -> Session:
    try:
        lines = [line async for line in log.lines(key) if any(mark in line for mark in _LINES)]
        envelopes = [parse_event(json.loads(line)) for line in lines]
    except (AuditBroken, ValueError, RecursionError) as broken:
        return Session(key, (), frozenset(), str(broken)[:300])
    calls = frozenset(each.event.call.id for each in envelopes if isinstance(each.event, CallPlanned))
    return Session(key, tuple(find_questions(key, envelopes)), calls)


def find_questions(key: SessionKey, envelopes: Iterable[Envelope]) -> list[Waiting]:
    """Those that are open when the last run of the session has ended as waiting, in the order they were asked."""
    calls: dict[tuple[str, str], ToolCall] = {}
    decisions: dict[tuple[str, str], Decision] = {}
    asked: dict[tuple[str, str], Waiting] = {}  # by call and capability
    children: set[str] = set()
    last, waits = "", False
    for envelope in envelopes:
        event, run = envelope.event, envelope.run
        if isinstance(event, RunStarted):
            if event.parent is not None:
                children.add(run)
                continue
            last, waits = run, False
            if event.resumes is None:  # what was asked for before is given up
                asked.clear()
        elif isinstance(event, CallPlanned):
            calls[run, event.call.id] = event.call
        elif isinstance(event, CallDecided) and event.decision.verdict == "ask":
            decisions[run, event.call_id] = event.decision
        elif isinstance(event, ApprovalAsked):
            call = calls.get((run, event.call_id)) or ToolCall(id=event.call_id, tool=event.capability or "?")
            decision = decisions.get((run, event.call_id)) or Decision(verdict="ask", rule="", why=event.why)
            capability = event.capability or call.tool
            place = (event.call_id, capability)
            since = asked[place].since if place in asked else envelope.at
            asked[place] = Waiting(key, run, call, decision, capability, event.why, since, run in children)
        elif isinstance(event, ApprovalAnswered):
            for place in [place for place in asked if place[0] == event.call_id]:
                if event.capability in ("", place[1]):
                    asked[place] = asked[place]._replace(answer=event)
        elif isinstance(event, CallActed) and event.outcome.status != "waiting":
            for place in [place for place in asked if place[0] == event.call_id]:
                del asked[place]
        elif isinstance(event, RunFinished) and run == last:
            waits = event.stop_reason == "waiting"
    return [each for each in asked.values() if waits]
