"""Answers questions that wait for a person; lists, grants and revokes standing approvals."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from prowess._internal.text import one_line
from prowess.agent.approvals import approval_keys
from prowess.core.events import Answer, ApprovalAnswered, Envelope, render_at
from prowess.core.ports import EventLog
from prowess.core.values import Question, SessionKey
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
from prowess.records.pending import PendingSession, Waiting, find_waiting, read_waiting
from prowess.runtime.factories import skill_access
from prowess.runtime.runtime import Runtime
from prowess.runtime.services.sessions import render_owners, session_place
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


async def find_approvals(runtime: Runtime, log: EventLog | None) -> ApprovalList:
    """Returns the questions that wait for a person, and the standing approvals."""
    waiting: list[Waiting] = []
    damaged: list[str] = []
    for session in await find_waiting(log):
        waiting += session.questions
        if session.damage:
            damaged.append(session.key.session)
    asking = frozenset(question.key for question in waiting if _is_asked_now(runtime, question))
    standing = load_approvals(runtime.places.state_dir)
    return ApprovalList(tuple(waiting), asking, standing, tuple(damaged))


def _is_asked_now(runtime: Runtime, question: Waiting) -> bool:
    if question.ended:
        return False
    place = session_place(runtime)
    return is_held(*place, question.key)


def question_row(question: Waiting, asking: bool) -> QuestionRow:
    """Returns the row of a question. `asking`: a run of its session asks now."""
    about = question.decision.about
    row: QuestionRow = {
        "session": question.key.session,
        "tenant": question.key.tenant,
        "app": question.key.app,
        "user": question.key.user,
        "run": question.run,
        "call_id": question.call.id,
        "token": question.token,
        "tool": question.call.tool,
        "capability": question.capability,
        "skill": about.get("skill"),
        "args": question.call.args,
        "why": question.why,
        "about": about,
        "since": question.since,
        "answer": None,
        "of_child": question.of_child,
        "state": "cut-off",
    }
    if question.answer is not None:
        row["answer"] = question.answer.answer
    if question.ended:
        row["state"] = "waiting"
    elif asking:
        row["state"] = "asking"
    return row


def standing_row(row: Standing) -> Revoked:
    return {
        "skill": row.skill,
        "digest": row.digest,
        "capability": row.capability,
        "at": row.at,
        "by": row.by,
        "tenant": row.tenant,
        "user": row.user,
    }


# --- answer -----------------------------------------------------------------------------------------------------------


class CallAnswer(NamedTuple):
    """Answer of a person to the question about a call."""

    call_id: str
    answer: Answer
    session: str | None = None  # needed when several sessions wait for a call with this id
    because: str | None = None  # told to the model
    owner: Mapping[str, str | None] = MappingProxyType({})  # of the session, where several owners have one of the name
    token: str | None = None  # of the question that was shown


class AnswerResult(NamedTuple):
    question: Waiting
    others: tuple[Waiting, ...]  # questions of the session that are still open


async def answer_call(
    runtime: Runtime,
    log: EventLog | None,
    given: CallAnswer,
    to_resume: Callable[[Waiting], str],
) -> AnswerResult:
    """Answers a waiting question, read again under the session's lock. `to_resume` says how to resume its run."""
    sessions = [each for each in await find_waiting(log, given.session) if _is_of(each.key, given.owner)]
    question = choose_question(sessions, given.call_id, given.session, token=given.token)
    check_answer_counts(question, given.answer, to_resume)
    _check_run_ended(runtime, question, to_resume)
    key = question.key
    place = session_place(runtime)
    with hold_session(*place, key):
        if log is None:
            raise StoreError("The record has gone.", code="session-unknown", hint="See: prowess sessions list")
        now = await read_waiting(log, key)
        question = choose_question([now], given.call_id, key.session, token=question.token)
        by = whoami()
        if given.answer == "always":
            _approve_always(runtime, question, by)
        event = ApprovalAnswered(
            call_id=given.call_id,
            answer=given.answer,
            why=given.because,
            by=by,
            capability=question.capability,
            later=True,
        )
        await _append(log, question, event)
        after = await read_waiting(log, key)
    unanswered = [each for each in after.questions if each.answer is None]
    return AnswerResult(question, tuple(unanswered))


def _is_of(key: SessionKey, owner: Mapping[str, str | None]) -> bool:
    return all(name is None or getattr(key, part) == name for part, name in owner.items())


def _approve_always(runtime: Runtime, question: Waiting, by: str) -> None:
    """Approves such calls for the content that was asked about."""
    skill = _get_content(runtime, question)
    standing = make_standing(skill, _approval_key(question), by)
    key = question.key
    grant(runtime.places.state_dir, standing._replace(tenant=key.tenant, user=key.user))


_LIST = "prowess approvals list"


def choose_question(
    sessions: Sequence[PendingSession], call_id: str, session: str | None, *, token: str | None = None, see: str = _LIST
) -> Waiting:
    """Returns the open question about that call. Raises an error that says why there is none. `see` lists them."""
    if session is not None and not sessions:
        raise StoreError(f"No session '{session}'.", code="session-unknown", hint="See: prowess sessions list")
    asked: list[Waiting] = []
    for each in sessions:
        asked += [question for question in each.questions if question.call.id == call_id]
    unanswered = [question for question in asked if question.answer is None]
    if token and unanswered:
        shown = [question for question in unanswered if question.token == token]
        if not shown:
            raise question_changed(unanswered[-1].question, see)
        unanswered = shown
    keys = {question.key for question in unanswered}
    if len(keys) > 1:
        names = sorted({key.session for key in keys})
        problem = f"A call '{call_id}' waits in several sessions: {', '.join(names)}."
        option = "--session ID"
        if len(names) == 1:
            problem = f"A call '{call_id}' waits in sessions '{names[0]}' of several owners."
            option = render_owners(sorted(keys))
        raise ConfigError(problem, code="call-ambiguous", hint=f"Add {option}.")
    if unanswered:
        return unanswered[0]
    if asked:
        last = asked[-1].answer
        said = last.answer if last else ""
        problem = f"The question about '{call_id}' was answered already: {said}."
        raise StoreError(problem, code="already-answered", hint=f"Go on as `{see}` says.")
    if any(call_id in each.calls for each in sessions):
        problem = f"The call '{call_id}' does not wait for an answer."
        hint = f"It was made, denied or given up. See: {see}"
        raise StoreError(problem, code="not-waiting", hint=hint)
    raise _unknown_call(sessions, call_id, see)


def question_changed(now: Question, see: str) -> StoreError:
    """Makes the error about an answer to another question than the one of now, which it shows."""
    args = json.dumps(now.args, ensure_ascii=False)
    problem = f"The question about '{now.call_id}' is another one now: {now.tool} {one_line(args, 500)}"
    hint = f"If you mean this one, answer it with its token, {now.token}. See: {see}"
    return StoreError(problem, code="question-changed", hint=hint)


def _unknown_call(sessions: Sequence[PendingSession], call_id: str, see: str) -> StoreError:
    """Makes the error about a call that no session asks about. Names similar calls."""
    damaged: list[str] = []
    known: set[str] = set()
    for each in sessions:
        known |= {question.call.id for question in each.questions}
        if each.damage:
            damaged.append(each.key.session)
    problem = f"No call '{call_id}' waits for an answer."
    if damaged:
        problem += f" These sessions cannot be read: {', '.join(damaged)}."
    hint = f"See: {see}"
    near = difflib.get_close_matches(call_id, sorted(known), n=2)
    if near:
        hint = f"Did you mean {' or '.join(near)}? {hint}"
    return StoreError(problem, code="call-unknown", hint=hint)


def check_answer_counts(question: Waiting, given: Answer, to_resume: Callable[[Waiting], str]) -> None:
    """Refuses an answer that cannot count: a foreign record may show another question than the call that would run."""
    if not question.own:
        problem = f"The question about '{question.call.id}' came with a record that you did not make."
        hint = f"Go on with the session, and it is asked again: {to_resume(question)}"
        raise StoreError(problem, code="question-not-yours", hint=hint)
    about = question.decision.about
    has_content = about.get("skill") and about.get("digest")
    if given == "always" and not has_content:
        capability = question.capability
        problem = f"{capability} belongs to no skill, so there is no content that an 'always' can be bound to."
        hint = "Answer 'yes', or 'run' for the whole run."
        raise ConfigError(problem, code="approval-not-bound", hint=hint)


def _check_run_ended(runtime: Runtime, question: Waiting, to_resume: Callable[[Waiting], str]) -> None:
    """Refuses an answer while the run that asked is at work, or could be on another machine."""
    call = question.call.id
    if _is_asked_now(runtime, question):
        session = question.key.session
        problem = f"The question about '{call}' is being asked now, where session '{session}' runs."
        hint = "Answer it there; or end that run, and answer it here."
        raise StoreError(problem, code="session-in-use", hint=hint)
    if not question.ended and is_shared(runtime.config):
        problem = f"The run that asked about '{call}' has not ended; it may be at work on another machine."
        hint = f"If it was cut off, go on with it, and it is asked again: {to_resume(question)}"
        raise StoreError(problem, code="run-not-ended", hint=hint)


def _get_content(runtime: Runtime, question: Waiting) -> Skill:
    """Returns the skill with the content that was asked about: as published for the run, or as it is now."""
    about = question.decision.about
    id = str(about["skill"])
    digest = str(about["digest"])
    dir = workspace_dir(runtime.config, runtime.places)
    access = skill_access(runtime, f"{dir}/trees")
    found = access.pinned(id, digest)
    if found is None:
        try:
            found = access.load(id, None, "caller")
        except ProwessError:
            found = None
    if found is None or found.digest != digest:
        problem = f"The content of '{id}' that was asked about is not there any more."
        hint = "Answer 'yes' or 'no'; an 'always' is bound to a content."
        raise StoreError(problem, code="content-gone", hint=hint)
    return found


def _approval_key(question: Waiting) -> str:
    """Returns the key of the approval. A call that was asked about in isolation is not approved without it."""
    isolated = asked_isolated(question.decision) is True
    return approval_keys(question.capability, isolated=isolated)[0]


async def _append(log: EventLog, question: Waiting, event: ApprovalAnswered) -> None:
    """Adds the answer to the log of the session that asked."""
    key = question.key
    owner = f"prowess approvals, pid {os.getpid()}"
    lease = await log.lease(key, owner=owner)
    head = await log.head(key)
    now = datetime.now(UTC)
    envelope = Envelope(
        at=render_at(now),
        tenant=key.tenant,
        app=key.app,
        user=key.user,
        session=key.session,
        run=question.run,
        event=event,
    )
    await log.append(key, head.seq, lease, [envelope])


# --- standing approvals -----------------------------------------------------------------------------------------------


def get_allowed_tools(skill: Skill) -> tuple[str, ...]:
    """Returns the allowed-tools that can be granted. Raises ConfigError when there are none."""
    listed = skill.entry.controls.allowed_tools
    if not listed:
        problem = f"The skill '{skill.name}' has no allowed-tools that could grant anything."
        raise ConfigError(problem, code="nothing-to-grant", hint="Only what a skill lists can be granted.")
    return tuple(listed)


def grant_allowed_tools(runtime: Runtime, skill: Skill) -> None:
    """Approves the skill's allowed-tools for exactly its content now."""
    standing = make_standing(skill, ALLOWED_TOOLS, whoami())
    grant(runtime.places.state_dir, standing)


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
    raise _unknown_standing(approvals, which, capability)


def _unknown_standing(approvals: Approvals, which: str, capability: str | None) -> StoreError:
    """Makes the error about an approval that does not exist. Names a similar skill."""
    of = ""
    if capability:
        of = f" for {capability}"
    hint = "See: prowess approvals list"
    known = {row.skill for row in approvals.rows}
    near = difflib.get_close_matches(which, sorted(known), n=1, cutoff=0.5)
    if near:
        hint = f"Did you mean '{near[0]}'? {hint}"
    problem = f"Nothing is approved under '{which[:100]}'{of[:100]}."
    return StoreError(problem, code="approval-unknown", hint=hint)


def revoke_standing(state_dir: str, rows: list[Standing]) -> list[Standing]:
    """Revokes these approvals, and returns those that were still there."""
    return revoke(state_dir, rows)
