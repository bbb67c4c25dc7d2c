"""Handlers of `prowess approvals`."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from prowess.cli.app import Call
from prowess.cli.approver import make_question
from prowess.cli.call import note_findings
from prowess.cli.line_input import confirm
from prowess.cli.screen import Screen, count
from prowess.cli.session_options import command_to_answer
from prowess.cli.timeline import short_time
from prowess.core.events import Answer
from prowess.core.findings import visible
from prowess.errors import ConfigError, SkillDenied
from prowess.records.call_text import render_doing
from prowess.records.pending import Waiting
from prowess.runtime.config import find_places
from prowess.runtime.runtime import Runtime
from prowess.runtime.services.approvals import (
    AnswerResult,
    ApprovalList,
    CallAnswer,
    Standing,
    answer_call,
    find_approvals,
    find_standing,
    get_allowed_tools,
    grant_allowed_tools,
    question_row,
    revoke_standing,
    standing_row,
)
from prowess.runtime.services.documents import finding_row
from prowess.runtime.services.find_run import opened

if TYPE_CHECKING:
    from prowess.runtime.documents.permissions import (
        ApprovalAnsweredDocument,
        ApprovalGrantedDocument,
        ApprovalRow,
        ApprovalsListDocument,
        ApprovalsRevokedDocument,
        WaitingRow,
    )


def grant(call: Call, name: str, yes: bool, source: str | None, roots: tuple[str, ...]) -> int:
    with call.runtime(roots=roots) as runtime:
        skill = runtime.load(name, source=source)
        listed = get_allowed_tools(skill)
        tools = ", ".join(listed)
        what = f"{skill.entry.id} ({skill.digest[:19]}): {tools}"
        shown = visible(what)
        if not yes:
            _confirm(
                f"Let this run without a question, where its source is trusted? {shown}",
                absent="Nobody is there to say yes.",
                refused="Nothing was granted.",
            )
        grant_allowed_tools(runtime, skill)
        if call.screen.is_json:
            document: ApprovalGrantedDocument = {
                "schema": "prowess.approval-granted/1",
                "skill": skill.entry.id,
                "digest": skill.digest,
                "allowed_tools": list(listed),
            }
            call.screen.document(document)
        else:
            call.screen.text(f"granted  {shown}")
    return 0


_ANSWERS: dict[str, Answer] = {"yes": "once", "once": "once", "run": "run", "always": "always", "no": "no"}

# --- list -------------------------------------------------------------------------------------------------------------


def list_approvals(call: Call) -> int:
    with call.runtime() as runtime:
        note_findings(call, runtime)
        found, store = asyncio.run(_find(runtime))
    if not call.screen.is_json:
        _show(call, found, store)
        return 0
    waiting = [_waiting_row(call, question, question.key in found.asking) for question in found.waiting]
    standing = [_numbered_row(number, row) for number, row in enumerate(found.standing.rows, 1)]
    findings = [finding_row(finding) for finding in found.standing.findings]
    document: ApprovalsListDocument = {
        "schema": "prowess.approvals-list/1",
        "store": store,
        "waiting": waiting,
        "approvals": standing,
        "damaged": list(found.damaged),
        "findings": findings,
    }
    call.screen.document(document)
    return 0


async def _find(runtime: Runtime) -> tuple[ApprovalList, str]:
    """Returns what waits and what is approved, and the name of the store."""
    async with opened(runtime) as (log, store):
        found = await find_approvals(runtime, log)
        return found, store


def _waiting_row(call: Call, question: Waiting, asking: bool) -> WaitingRow:
    """Returns a question with the commands to answer it and to go on. A question that is being asked has none."""
    answer = None
    resume = None
    if not asking:
        resume = to_resume(call, question)
        if question.own:
            answer = _to_answer(call, question)
    return {**question_row(question, asking), "to_answer": answer, "to_resume": resume}


def _numbered_row(number: int, row: Standing) -> ApprovalRow:
    about = standing_row(row)
    return {"number": number, **about, "files": len(row.files)}


def _show(call: Call, found: ApprovalList, store: str) -> None:
    screen = call.screen
    for question in found.waiting:
        _show_waiting(call, question, question.key in found.asking)
    standing = found.standing
    if standing.rows:
        columns = ["number", "skill", "capability", "content", "since", "by"]
        rows = [_cells(number, row) for number, row in enumerate(standing.rows, 1)]
        if any(map(_whose, standing.rows)):
            columns.append("only for")
            rows = [[*cells, _whose(row)] for cells, row in zip(rows, standing.rows, strict=True)]
        screen.table(columns, rows)
    screen.findings(standing.findings)
    for name in found.damaged:
        shown = visible(name)
        screen.note(f"warning: session {shown} is damaged: prowess runs verify --all")
    unanswered = [question for question in found.waiting if question.answer is None]
    questions = count(len(unanswered), "question")
    approved = count(len(standing.rows), "standing approval")
    screen.note(f"{questions} waiting · {approved} · {visible(store)}")


def _cells(number: int, row: Standing) -> list[str]:
    digest = row.digest.removeprefix("sha256:")
    since = short_time(row.at)
    return [str(number), row.skill, row.capability, digest[:12], since, row.by]


def _whose(row: Standing) -> str:
    """Owner of the sessions in which it holds; empty for those of the command line."""
    named = {"user": row.user, "tenant": row.tenant}
    return " · ".join(f"{part} {name}" for part, name in named.items() if name != "default")


def _show_waiting(call: Call, question: Waiting, asking: bool) -> None:
    screen = call.screen
    id = visible(question.call.id)
    whose = [f"{part} {visible(name)}" for part, name in question.key.owner.items()]
    where = " · ".join([f"session {visible(question.key.session)}", *whose])
    since = short_time(question.since)
    screen.heading(f"{id} · {where} · since {since}")
    _show_question(screen, question)
    if asking:
        screen.text("  It is being asked now, where it runs. Answer it there; or end that run, and answer it here.\n")
        return
    if not question.ended:
        screen.text("  The run was cut off while it asked. Nothing of this call was done.")
    if question.answer is not None:
        screen.text(f"  answered: {question.answer.answer}")
    elif question.own:
        answer = visible(_to_answer(call, question))
        screen.text(f"  answer:  {answer}")
    else:
        screen.text("  It came with a record that you did not make, and is asked again when the session is resumed.")
    resume = visible(to_resume(call, question))
    screen.text(f"  resume:  {resume}\n")


def _show_question(screen: Screen, question: Waiting) -> None:
    """Shows tool, skill, call and reason. With -v, the whole question as at a terminal."""
    if screen.verbose:
        whole = make_question(question.call, question.decision, whole=True)
        for line in whole.text.split("\n"):
            screen.text(f"  {line}")
        return
    tool = question.call.tool
    text = visible(tool)
    skill = question.decision.about.get("skill")
    if skill:
        name = visible(str(skill))
        text += f" of {name}"
    if question.capability != tool:
        capability = visible(question.capability)
        text += f" (needs {capability})"
    screen.text(f"  {text}")
    doing = render_doing(question.call)
    screen.text(f"  {doing}")
    why = visible(question.why)
    screen.text(f"  {why}")


def _to_answer(call: Call, question: Waiting) -> str:
    """Returns the command that answers with yes."""
    return command_to_answer(call, question.question, question.key)


def to_resume(call: Call, question: Waiting) -> str:
    """Returns the command that resumes the run, with the options that the run was started with. Where a program makes
    the calls, a comment says what to do there."""
    if question.of_program:
        return f"# in the program that asked: make the call {question.call.id} again, under the same id"
    if question.resume_arguments is None:
        key = question.key
        parts = {"session": key.session, **key.owner}
        named = ", ".join(f"{part}={json.dumps(name, ensure_ascii=False)}" for part, name in parts.items())
        return f"# in the program that asked: run again with {named}, resume=True"
    words = ["prowess", "run", *call.where(store=True)]
    words += question.resume_arguments
    words += ["--session", question.key.session, "--resume"]
    return shlex.join(words)


# --- answer -----------------------------------------------------------------------------------------------------------


def answer(
    call: Call,
    call_id: str,
    said: str,
    session: str | None,
    token: str | None,
    because: str | None,
    owner: Mapping[str, str | None],
) -> int:
    given = _ANSWERS[said]
    if because is not None and given != "no":
        raise ConfigError("--because is the reason for a 'no' only.", code="usage", hint="Leave it out.")
    with call.runtime() as runtime:
        note_findings(call, runtime)
        call_answer = CallAnswer(call_id, given, session, because, owner, token)
        done = asyncio.run(_answer(call, runtime, call_answer))
    question = done.question
    resume = to_resume(call, question)
    if call.screen.is_json:
        document: ApprovalAnsweredDocument = {
            "schema": "prowess.approval-answered/1",
            "session": question.key.session,
            "run": question.run,
            "call_id": question.call.id,
            "capability": question.capability,
            "answer": given,
            "waiting": len(done.others),
            "to_resume": resume,
        }
        call.screen.document(document)
        return 0
    skill = question.decision.about.get("skill")
    what = visible(f"{question.capability} of {skill}" if skill else question.capability)
    call.screen.note(f"Answered: {given}, about {what}.")
    for each in done.others:
        command = visible(_to_answer(call, each))
        call.screen.note(f"There is another question: {command}")
    call.screen.text(visible(resume))
    return 0


async def _answer(call: Call, runtime: Runtime, given: CallAnswer) -> AnswerResult:
    async with opened(runtime) as (log, _):
        return await answer_call(runtime, log, given, lambda question: to_resume(call, question))


# --- revoke -----------------------------------------------------------------------------------------------------------


def revoke(call: Call, which: str, capability: str | None, yes: bool) -> int:
    state_dir = find_places(call.cwd, os.environ).state_dir
    found = find_standing(state_dir, which, capability)
    if not yes:
        _confirm_revoke(found)
    gone = revoke_standing(state_dir, found)
    if call.screen.is_json:
        document: ApprovalsRevokedDocument = {
            "schema": "prowess.approvals-revoked/1",
            "revoked": [standing_row(row) for row in gone],
        }
        call.screen.document(document)
        return 0
    for row in gone:
        skill = visible(row.skill)
        tool = visible(row.capability)
        digest = visible(row.digest[:19])
        call.screen.text(f"revoked  {skill}  {tool}  {digest}")
    return 0


def _confirm_revoke(rows: Sequence[Standing]) -> None:
    some = [" · ".join(filter(None, [f"{row.capability} of {row.skill}", _whose(row)])) for row in rows[:5]]
    if len(rows) > 5:
        some.append("…")
    what = ", ".join(some)
    number = count(len(rows), "approval")
    _confirm(
        f"Take back {visible(what)}?",
        absent=f"{number} would be taken back ({what}), and nobody is there to say yes.",
        refused="Nothing was taken back.",
    )


def _confirm(question: str, *, absent: str, refused: str) -> None:
    """Asks at the terminal. Raises `absent` without one, and `refused` after a no."""
    if not sys.stdin.isatty():
        raise ConfigError(absent, code="needs-yes", hint="Add --yes.")
    if not confirm(question):
        raise SkillDenied(refused, code="not-confirmed", hint="")
