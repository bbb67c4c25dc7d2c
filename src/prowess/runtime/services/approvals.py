"""Answers questions that wait for a person; lists, grants and revokes standing approvals."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from prowess.agent.approvals import approval_keys
from prowess.core.events import Answer, ApprovalAnswered, Envelope, render_at
from prowess.core.ports import EventLog
from prowess.core.values import SessionKey
from prowess.errors import ConfigError, ProwessError, StoreError
from prowess.policy.approvals import (
    ALLOWED_TOOLS,
    Approvals,
    Standing,
    grant,
    load_approvals,
    make_standing,
    matching,
    revoke,
)
from prowess.policy.decision import asked_isolated
from prowess.records.marks import Marks
from prowess.records.pending import PendingSession, Waiting, find_waiting, read_waiting
from prowess.runtime.factories import skill_access
from prowess.runtime.runtime import Runtime
from prowess.runtime.services.sessions import session_place
from prowess.runtime.storage import is_shared, whoami, workspace_dir
from prowess.skills.skill import Skill
from prowess.workspace.session_folder import hold_session, is_held

if TYPE_CHECKING:
    from prowess.runtime.documents.permissions import QuestionRow, Revoked


class ApprovalList(NamedTuple):
    waiting: tuple[Waiting, ...]
    asking: frozenset[SessionKey]  # sessions in which a run asks now
    standing: Approvals
    damaged: tuple[str, ...]  # sessions that cannot be read


async def find_approvals(runtime: Runtime, log: EventLog | None, marks: Marks | None) -> ApprovalList:
    sessions = await find_waiting(log, marks)
    waiting = tuple(question for session in sessions for question in session.questions)
    return ApprovalList(
        waiting=waiting,
        asking=frozenset(each.key for each in waiting if _is_asked_now(runtime, each)),
        standing=load_approvals(runtime.places.state_dir),
        damaged=tuple(session.key.session for session in sessions if session.damage),
    )


def _is_asked_now(runtime: Runtime, question: Waiting) -> bool:
    return not question.ended and is_held(*session_place(runtime), question.key)


def question_row(question: Waiting, asking: bool) -> QuestionRow:
    about, answer = question.decision.about, question.answer
    return {
        "session": question.key.session,
        "run": question.run,
        "call_id": question.call.id,
        "tool": question.call.tool,
        "capability": question.capability,
        "skill": about.get("skill"),
        "args": question.call.args,
        "why": question.why,
        "about": about,
        "since": question.since,
        "answer": None if answer is None else answer.answer,
        "of_child": question.of_child,
        "state": "waiting" if question.ended else "asking" if asking else "cut-off",
    }


def standing_row(row: Standing) -> Revoked:
    return {"skill": row.skill, "digest": row.digest, "capability": row.capability, "at": row.at, "by": row.by}


# --- answer -----------------------------------------------------------------------------------------------------------


class CallAnswer(NamedTuple):
    """Answer of a person to the question about a call."""

    call_id: str
    answer: Answer
    session: str | None = None  # needed when several sessions wait for a call with this id
    because: str | None = None  # told to the model


class AnswerResult(NamedTuple):
    question: Waiting
    others: tuple[Waiting, ...]  # questions of the session that are still open


async def answer_call(
    runtime: Runtime,
    log: EventLog | None,
    marks: Marks | None,
    given: CallAnswer,
    to_resume: Callable[[Waiting], str],
) -> AnswerResult:
    """Answers a waiting question, read again under the session's lock. `to_resume` says how to resume its run."""
    question = choose_question(await find_waiting(log, marks, given.session), given.call_id, given.session)
    _check_answer_counts(question, given.answer, to_resume)
    _check_run_ended(runtime, question, to_resume)
    key = question.key
    with hold_session(*session_place(runtime), key):
        if log is None:
            raise StoreError("The record has gone.", code="session-unknown", hint="See: prowess sessions list")
        question = choose_question([await read_waiting(log, key, marks)], given.call_id, key.session)
        by = whoami()
        if given.answer == "always":
            grant(runtime.places.state_dir, make_standing(_get_content(runtime, question), _approval_key(question), by))
        event = ApprovalAnswered(
            call_id=given.call_id,
            answer=given.answer,
            why=given.because,
            by=by,
            capability=question.capability,
            later=True,
        )
        await _append(log, marks, question, event)
        left = (await read_waiting(log, key, marks)).questions
    return AnswerResult(question, tuple(each for each in left if each.answer is None))


def choose_question(sessions: Sequence[PendingSession], call_id: str, session: str | None) -> Waiting:
    """Returns the open question about that call. Raises an error that says why there is none."""
    if session is not None and not sessions:
        raise StoreError(f"No session '{session}'.", code="session-unknown", hint="See: prowess sessions list")
    asked = [question for each in sessions for question in each.questions if question.call.id == call_id]
    unanswered = [question for question in asked if question.answer is None]
    if len({question.key for question in unanswered}) > 1:
        names = ", ".join(question.key.session for question in unanswered)
        raise ConfigError(
            f"A call '{call_id}' waits in several sessions: {names}.", code="call-ambiguous", hint="Add --session ID."
        )
    if unanswered:
        return unanswered[0]
    if asked:
        last = asked[-1].answer
        raise StoreError(
            f"The question about '{call_id}' was answered already: {last.answer if last else ''}.",
            code="already-answered",
            hint="Go on as `prowess approvals list` says.",
        )
    if any(call_id in each.calls for each in sessions):
        raise StoreError(
            f"The call '{call_id}' does not wait for an answer.",
            code="not-waiting",
            hint="It was made, denied or given up. See: prowess approvals list",
        )
    raise _unknown_call(sessions, call_id)


def _unknown_call(sessions: Sequence[PendingSession], call_id: str) -> StoreError:
    damaged = [each.key.session for each in sessions if each.damage]
    known = sorted({question.call.id for each in sessions for question in each.questions})
    near = difflib.get_close_matches(call_id, known, n=2)
    meant = f"Did you mean {' or '.join(near)}? " if near else ""
    broken = f" These sessions cannot be read: {', '.join(damaged)}." if damaged else ""
    return StoreError(
        f"No call '{call_id}' waits for an answer.{broken}",
        code="call-unknown",
        hint=f"{meant}See: prowess approvals list",
    )


def _check_answer_counts(question: Waiting, given: Answer, to_resume: Callable[[Waiting], str]) -> None:
    """Refuses an answer that cannot count: a foreign record may show another question than the call that would run."""
    if not question.own:
        raise StoreError(
            f"The question about '{question.call.id}' came with a record that you did not make.",
            code="question-not-yours",
            hint=f"Go on with the session, and it is asked again: {to_resume(question)}",
        )
    about = question.decision.about
    if given == "always" and not (about.get("skill") and about.get("digest")):
        raise ConfigError(
            f"{question.capability} belongs to no skill, so there is no content that an 'always' can be bound to.",
            code="approval-not-bound",
            hint="Answer 'yes', or 'run' for the whole run.",
        )


def _check_run_ended(runtime: Runtime, question: Waiting, to_resume: Callable[[Waiting], str]) -> None:
    """Refuses an answer while the run that asked is at work, or could be on another machine."""
    if _is_asked_now(runtime, question):
        raise StoreError(
            f"The question about '{question.call.id}' is being asked now, where session '{question.key.session}' runs.",
            code="session-in-use",
            hint="Answer it there; or end that run, and answer it here.",
        )
    if not question.ended and is_shared(runtime.config):
        raise StoreError(
            f"The run that asked about '{question.call.id}' has not ended; it may be at work on another machine.",
            code="run-not-ended",
            hint=f"If it was cut off, go on with it, and it is asked again: {to_resume(question)}",
        )


def _get_content(runtime: Runtime, question: Waiting) -> Skill:
    """Returns the skill with the content that was asked about: as published for the run, or as it is now."""
    about = question.decision.about
    id, digest = str(about["skill"]), str(about["digest"])
    access = skill_access(runtime, f"{workspace_dir(runtime.config, runtime.places)}/trees")
    found = access.pinned(id, digest)
    if found is None:
        try:
            found = access.load(id, None, "caller")
        except ProwessError:
            found = None
    if found is None or found.digest != digest:
        raise StoreError(
            f"The content of '{id}' that was asked about is not there any more.",
            code="content-gone",
            hint="Answer 'yes' or 'no'; an 'always' is bound to a content.",
        )
    return found


def _approval_key(question: Waiting) -> str:
    """Returns the key of the approval. A call that was asked about in isolation is not approved without it."""
    return approval_keys(question.capability, isolated=asked_isolated(question.decision) is True)[0]


async def _append(log: EventLog, marks: Marks | None, question: Waiting, event: ApprovalAnswered) -> None:
    key = question.key
    lease = await log.lease(key, owner=f"prowess approvals, pid {os.getpid()}")
    head = await log.head(key)
    envelope = Envelope(
        at=render_at(datetime.now(UTC)),
        tenant=key.tenant,
        app=key.app,
        user=key.user,
        session=key.session,
        run=question.run,
        event=event,
    )
    await log.append(key, head.seq, lease, [marks.mark(envelope, head.hash) if marks else envelope])


# --- standing approvals -----------------------------------------------------------------------------------------------


def get_allowed_tools(skill: Skill) -> tuple[str, ...]:
    """Returns the allowed-tools that can be granted. Raises ConfigError when there are none."""
    listed = skill.entry.controls.allowed_tools
    if not listed:
        raise ConfigError(
            f"The skill '{skill.name}' has no allowed-tools that could grant anything.",
            code="nothing-to-grant",
            hint="Only what a skill lists can be granted.",
        )
    return tuple(listed)


def grant_allowed_tools(runtime: Runtime, skill: Skill) -> None:
    """Approves the skill's allowed-tools for exactly its content now."""
    grant(runtime.places.state_dir, make_standing(skill, ALLOWED_TOOLS, whoami()))


def find_standing(state_dir: str, which: str, capability: str | None = None) -> list[Standing]:
    """Returns the approvals to revoke: one by its number, or all of a skill. Raises StoreError when there are none."""
    approvals = load_approvals(state_dir)
    if approvals.findings:
        problem = approvals.findings[0]
        raise StoreError(problem.message, code="approvals-corrupt", hint=problem.hint)
    is_number = which.isascii() and which.isdigit() and len(which) < 10
    found = matching(approvals, int(which) if is_number else which, capability)
    if found:
        return found
    of = f" for {capability}" if capability else ""
    known = sorted({row.skill for row in approvals.rows})
    near = difflib.get_close_matches(which, known, n=1, cutoff=0.5)
    hint = f"Did you mean '{near[0]}'? " if near else ""
    raise StoreError(
        f"Nothing is approved under '{which[:100]}'{of[:100]}.",
        code="approval-unknown",
        hint=f"{hint}See: prowess approvals list",
    )


def revoke_standing(state_dir: str, rows: list[Standing]) -> list[Standing]:
    """Revokes these approvals, and returns those that were still there."""
    return revoke(state_dir, rows)
