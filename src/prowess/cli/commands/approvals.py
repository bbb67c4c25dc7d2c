"""Command `prowess approvals`: lists, answers, grants and revokes approvals."""

from __future__ import annotations

import asyncio
import difflib
import os
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click

from prowess.agent.tool_call import approval_keys
from prowess.cli.app import Call, actions, roots_option, source_option, verb
from prowess.cli.approver import make_question
from prowess.cli.call import note_findings
from prowess.cli.screen import count
from prowess.cli.session_options import command_to_answer
from prowess.cli.timeline import short_time
from prowess.core.events import Answer, ApprovalAnswered, Envelope, render_at
from prowess.core.findings import visible
from prowess.core.ports import EventLog
from prowess.core.values import SessionKey
from prowess.errors import ConfigError, ProwessError, SkillDenied, StoreError
from prowess.policy.approvals import ALLOWED_TOOLS, Standing, grant, load_approvals, make_standing, matching, revoke
from prowess.policy.decision import asked_isolated
from prowess.records.call_text import render_doing
from prowess.records.marks import Marks
from prowess.records.pending import PendingSession, Waiting, find_waiting, read_waiting
from prowess.runtime.config import find_places
from prowess.runtime.factories import is_shared, open_marks, skill_access, store_name, whoami, workspace_dir
from prowess.runtime.runtime import Runtime
from prowess.runtime.services.documents import finding_row
from prowess.runtime.services.find_run import opened
from prowess.skills.skill import Skill
from prowess.workspace.session_folder import hold_session, is_held


@verb("grant", example="prowess approvals grant csv-report\nprowess approvals grant csv-report --yes --json")
@click.argument("name", metavar="SKILL")
@click.option("--yes", is_flag=True, help="Do not ask.")
@source_option
@roots_option
def give(call: Call, name: str, yes: bool, source: str | None, roots: tuple[str, ...]) -> int:
    """Approve the tools in a skill's allowed-tools, for exactly the content that it has now.

    They then run without a question where a person would be asked because there is no isolation. Nothing else changes:
    what is off, denied, of high risk or always asked about stays so. When the skill changes, a person is asked again.
    Take it back with: prowess approvals revoke SKILL.
    """
    with call.runtime(roots=roots) as runtime:
        skill = runtime.load(name, source=source)
        listed = skill.entry.controls.allowed_tools
        if not listed:
            raise ConfigError(
                f"The skill '{skill.name}' has no allowed-tools that could grant anything.",
                code="nothing-to-grant",
                hint="Only what a skill lists can be granted.",
            )
        what = f"{skill.entry.id} ({skill.digest[:19]}): {', '.join(listed)}"
        if not yes:
            _confirm_grant(visible(what))
        grant(runtime.places.state_dir, make_standing(skill, ALLOWED_TOOLS, whoami()))
        if call.screen.is_json:
            document = {"skill": skill.entry.id, "digest": skill.digest, "allowed_tools": list(listed)}
            call.screen.document({"schema": "prowess.approval-granted/1", **document})
        else:
            call.screen.text(f"granted  {visible(what)}")
    return 0


def _confirm_grant(what: str) -> None:
    if not sys.stdin.isatty():
        raise ConfigError("Nobody is there to say yes.", code="needs-yes", hint="Add --yes.")
    if not click.confirm(f"Let this run without a question, where its source is trusted? {what}", err=True):
        raise SkillDenied("Nothing was granted.", code="not-confirmed", hint="")


_ANSWERS: dict[str, Answer] = {"yes": "once", "once": "once", "run": "run", "always": "always", "no": "no"}

# --- list -------------------------------------------------------------------------------------------------------------


@verb("list", example="prowess approvals list\nprowess approvals list -v\nprowess approvals list --json")
def list_approvals(call: Call) -> int:
    """Show the questions that wait for an answer, and what is approved for good.

    With -v each question is shown in full, as it would have been at a terminal.
    """
    with call.runtime() as runtime:
        note_findings(call, runtime)
        store, sessions = asyncio.run(_find(runtime))
        standing = load_approvals(runtime.places.state_dir)
        waiting = [question for session in sessions for question in session.questions]
        asking = {each.key for each in waiting if not each.ended and _is_held(runtime, each.key)}
    damaged = [session.key.session for session in sessions if session.damage]
    if call.screen.is_json:
        document = {
            "store": store,
            "waiting": [_waiting_row(call, question, question.key in asking) for question in waiting],
            "approvals": [_standing_row(number, row) for number, row in enumerate(standing.rows, 1)],
            "damaged": damaged,
            "findings": [finding_row(finding) for finding in standing.findings],
        }
        call.screen.document({"schema": "prowess.approvals-list/1", **document})
        return 0
    for question in waiting:
        _show_waiting(call, question, question.key in asking)
    if standing.rows:
        rows = [_cells(number, row) for number, row in enumerate(standing.rows, 1)]
        call.screen.table(["number", "skill", "capability", "content", "since", "by"], rows)
    call.screen.findings(standing.findings)
    for name in damaged:
        call.screen.note(f"warning: session {visible(name)} is damaged: prowess runs verify --all")
    open_ = [question for question in waiting if question.answer is None]
    approved = count(len(standing.rows), "standing approval")
    call.screen.note(f"{count(len(open_), 'question')} waiting · {approved} · {visible(store)}")
    return 0


async def _find(runtime: Runtime, session: str | None = None) -> tuple[str, list[PendingSession]]:
    async with opened(runtime) as (log, store):
        return store, await find_waiting(log, open_marks(runtime, store), session)


def _is_held(runtime: Runtime, key: SessionKey) -> bool:
    return is_held(*_place(runtime), key)


def _place(runtime: Runtime) -> tuple[str, str]:
    return workspace_dir(runtime.config, runtime.places), store_name(runtime.config, runtime.places)


def _waiting_row(call: Call, question: Waiting, asking: bool) -> dict[str, Any]:
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
        "to_answer": _to_answer(call, question) if question.own and not asking else None,
        "to_resume": None if asking else to_resume(call, question),
    }


def _standing_row(number: int, row: Standing) -> dict[str, Any]:
    return {"number": number, **_identity(row), "at": row.at, "by": row.by, "files": len(row.files)}


def _identity(row: Standing) -> dict[str, Any]:
    return {"skill": row.skill, "digest": row.digest, "capability": row.capability}


def _cells(number: int, row: Standing) -> list[str]:
    digest = row.digest.removeprefix("sha256:")[:12]
    return [str(number), row.skill, row.capability, digest, short_time(row.at), row.by]


def _show_waiting(call: Call, question: Waiting, asking: bool) -> None:
    screen, session = call.screen, visible(question.key.session)
    screen.heading(f"{visible(question.call.id)} · session {session} · since {short_time(question.since)}")
    if screen.verbose:
        for line in make_question(question.call, question.decision, whole=True).text.split("\n"):
            screen.text(f"  {line}")
    else:
        of = question.decision.about.get("skill")
        need = f" (needs {visible(question.capability)})" if question.capability != question.call.tool else ""
        screen.text(f"  {visible(question.call.tool)}{f' of {visible(str(of))}' if of else ''}{need}")
        screen.text(f"  {render_doing(question.call)}")
        screen.text(f"  {visible(question.why)}")
    if asking:
        screen.text("  It is being asked now, where it runs. Answer it there; or end that run, and answer it here.\n")
        return
    if not question.ended:
        screen.text("  The run was cut off while it asked. Nothing of this call was done.")
    if question.answer is not None:
        screen.text(f"  answered: {question.answer.answer}")
    elif question.own:
        screen.text(f"  answer:  {visible(_to_answer(call, question))}")
    else:
        screen.text("  It came with a record that you did not make, and is asked again when the session is resumed.")
    screen.text(f"  resume:  {visible(to_resume(call, question))}\n")


def _to_answer(call: Call, question: Waiting) -> str:
    return command_to_answer(call, question.call.id, "yes", question.key.session)


def to_resume(call: Call, question: Waiting) -> str:
    """Returns the command that resumes the run, with the options that the run was started with."""
    given = ["--session", question.key.session, "--resume"]
    return shlex.join(["prowess", "run", *call.where(), *question.again, *given])


# --- answer -----------------------------------------------------------------------------------------------------------


@verb(
    "answer",
    example="prowess approvals answer call-2 yes\n"
    "prowess approvals answer call-2 always --session s-1f2e\n"
    'prowess approvals answer call-2 no --because "use the copy in work/"',
)
@click.argument("call_id", metavar="CALL")
@click.argument("said", metavar="yes|once|run|always|no", type=click.Choice(list(_ANSWERS)))
@click.option("--session", metavar="ID", help="The session that it waits in, when several have such a call.")
@click.option("--because", metavar="TEXT", help="Why not; the model is told.")
def answer(call: Call, call_id: str, said: str, session: str | None, because: str | None) -> int:
    """Answer a question that waits; the session then goes on with `prowess run --session ID --resume`.

    yes and once: this call. run: the same tool for the same skill until the run ends. always: this tool for exactly
    this content of the skill, from now on. no: the model is told, and does something else.
    """
    given = _ANSWERS[said]
    if because is not None and given != "no":
        raise ConfigError("--because is the reason for a 'no' only.", code="usage", hint="Leave it out.")
    with call.runtime() as runtime:
        note_findings(call, runtime)
        _, sessions = asyncio.run(_find(runtime, session))
        question = choose(sessions, call_id, session)
        stored = asyncio.run(_answer(call, runtime, question, given, because))
        others = [each for each in stored if each.answer is None]
    document = {
        "session": question.key.session,
        "run": question.run,
        "call_id": question.call.id,
        "capability": question.capability,
        "answer": given,
        "waiting": len(others),
        "to_resume": to_resume(call, question),
    }
    if call.screen.is_json:
        call.screen.document({"schema": "prowess.approval-answered/1", **document})
        return 0
    what = f"{question.capability} of {question.decision.about.get('skill') or 'the model'}"
    call.screen.note(f"Answered: {given}, to {visible(what)}.")
    for each in others:
        call.screen.note(f"There is another question: {visible(_to_answer(call, each))}")
    call.screen.text(visible(document["to_resume"]))
    return 0


def choose(sessions: Sequence[PendingSession], call_id: str, session: str | None) -> Waiting:
    """Returns the open question about that call. Raises an error that says why there is none."""
    if session is not None and not sessions:
        raise StoreError(f"No session '{session}'.", code="session-unknown", hint="See: prowess sessions list")
    asked = [question for each in sessions for question in each.questions if question.call.id == call_id]
    open_ = [question for question in asked if question.answer is None]
    if len({question.key for question in open_}) > 1:
        names = ", ".join(question.key.session for question in open_)
        raise ConfigError(
            f"A call '{call_id}' waits in several sessions: {names}.", code="call-ambiguous", hint="Add --session ID."
        )
    if open_:
        return open_[0]
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
    damaged = [each.key.session for each in sessions if each.damage]
    known = sorted({question.call.id for each in sessions for question in each.questions})
    near = difflib.get_close_matches(call_id, known, n=2)
    meant = f"Did you mean {' or '.join(near)}? " if near else ""
    broken = f" These sessions cannot be read: {', '.join(damaged)}." if damaged else ""
    raise StoreError(
        f"No call '{call_id}' waits for an answer.{broken}",
        code="call-unknown",
        hint=f"{meant}See: prowess approvals list",
    )


async def _answer(
    call: Call, runtime: Runtime, question: Waiting, given: Answer, because: str | None
) -> Sequence[Waiting]:
    """Answers the question, read again under the session's lock. Returns the questions of the session after that."""
    check_not_in_vain(call, question, given)
    by = whoami()
    if _is_held(runtime, question.key) and not question.ended:
        raise StoreError(
            f"The question about '{question.call.id}' is being asked now, where session '{question.key.session}' runs.",
            code="session-in-use",
            hint="Answer it there; or end that run, and answer it here.",
        )
    if not question.ended and is_shared(runtime.config):
        raise StoreError(
            f"The run that asked about '{question.call.id}' has not ended; it may be at work on another machine.",
            code="run-not-ended",
            hint=f"If it was cut off, go on with it, and it is asked again: {to_resume(call, question)}",
        )
    with hold_session(*_place(runtime), question.key):
        async with opened(runtime) as (log, store):
            if log is None:
                raise StoreError("The record has gone.", code="session-unknown", hint="See: prowess sessions list")
            marks = open_marks(runtime, store)
            question = choose([await read_waiting(log, question.key, marks)], question.call.id, question.key.session)
            if given == "always":
                grant(runtime.places.state_dir, make_standing(get_content(runtime, question), kept_under(question), by))
            event = ApprovalAnswered(
                call_id=question.call.id, answer=given, why=because, by=by, capability=question.capability, later=True
            )
            await _append(log, marks, question, event)
            return (await read_waiting(log, question.key, marks)).questions


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


def check_not_in_vain(call: Call, question: Waiting, given: Answer) -> None:
    """Refuses an answer that cannot count: a foreign record may show another question than the call that would run."""
    if not question.own:
        raise StoreError(
            f"The question about '{question.call.id}' came with a record that you did not make.",
            code="question-not-yours",
            hint=f"Go on with the session, and it is asked again: {to_resume(call, question)}",
        )
    about = question.decision.about
    if given == "always" and not (about.get("skill") and about.get("digest")):
        raise ConfigError(
            f"{question.capability} belongs to no skill, so there is no content that an 'always' can be bound to.",
            code="approval-not-bound",
            hint="Answer 'yes', or 'run' for the whole run.",
        )


def get_content(runtime: Runtime, question: Waiting) -> Skill:
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


def kept_under(question: Waiting) -> str:
    """Returns the key of the approval. A call that was asked about in isolation is not approved without it."""
    return approval_keys(question.capability, isolated=asked_isolated(question.decision) is True)[0]


# --- revoke -----------------------------------------------------------------------------------------------------------


@verb("revoke", example="prowess approvals revoke 2\nprowess approvals revoke demo --capability skill_run --yes")
@click.argument("which", metavar="NUMBER|SKILL")
@click.option("--capability", metavar="C", help="Only this tool or capability.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def take_back(call: Call, which: str, capability: str | None, yes: bool) -> int:
    """Take back what was approved for good: one approval by its number, or all of a skill.

    It counts from the next call on, also in runs that are going on.
    """
    state_dir = find_places(call.cwd, os.environ).state_dir
    approvals = load_approvals(state_dir)
    if approvals.findings:
        problem = approvals.findings[0]
        raise StoreError(problem.message, code="approvals-corrupt", hint=problem.hint)
    meant = matching(
        approvals, int(which) if which.isascii() and which.isdigit() and len(which) < 10 else which, capability
    )
    if not meant:
        of = f" for {capability}" if capability else ""
        known = sorted({row.skill for row in approvals.rows})
        near = difflib.get_close_matches(which, known, n=1, cutoff=0.5)
        hint = f"Did you mean '{near[0]}'? " if near else ""
        raise StoreError(
            f"Nothing is approved under '{which[:100]}'{of[:100]}.",
            code="approval-unknown",
            hint=f"{hint}See: prowess approvals list",
        )
    if not yes:
        _confirm(meant)
    gone = revoke(state_dir, meant)
    if call.screen.is_json:
        rows = [{**_identity(row), "at": row.at, "by": row.by} for row in gone]
        call.screen.document({"schema": "prowess.approvals-revoked/1", "revoked": rows})
        return 0
    for row in gone:
        call.screen.text(f"revoked  {visible(row.skill)}  {visible(row.capability)}  {visible(row.digest[:19])}")
    return 0


def _confirm(rows: Sequence[Standing]) -> None:
    what = ", ".join(f"{row.capability} of {row.skill}" for row in rows[:5]) + (", …" if len(rows) > 5 else "")
    if not sys.stdin.isatty():
        raise ConfigError(
            f"{count(len(rows), 'approval')} would be taken back ({what}), and nobody is there to say yes.",
            code="needs-yes",
            hint="Add --yes.",
        )
    if not click.confirm(f"Take back {visible(what)}?", err=True):
        raise SkillDenied("Nothing was taken back.", code="not-confirmed", hint="")


command = actions(
    "approvals",
    {"list": list_approvals, "answer": answer, "grant": give, "revoke": take_back},
    help="Answer questions that wait, and see or take back what is approved for good.\n\nWithout an action, the list.",
    example="prowess approvals list --json\nprowess approvals answer call-2 yes",
)
