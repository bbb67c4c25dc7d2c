"""Command `prowess approvals`: lists, answers, grants and revokes approvals."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from prowess.cli.app import Call, actions, cli_command, roots_option, source_option
from prowess.cli.approver import make_question
from prowess.cli.call import note_findings
from prowess.cli.screen import count
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
from prowess.runtime.storage import open_marks

if TYPE_CHECKING:
    from prowess.runtime.documents.permissions import (
        ApprovalAnsweredDocument,
        ApprovalGrantedDocument,
        ApprovalRow,
        ApprovalsListDocument,
        ApprovalsRevokedDocument,
        WaitingRow,
    )


@cli_command("grant", example="prowess approvals grant csv-report\nprowess approvals grant csv-report --yes --json")
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
        listed = get_allowed_tools(skill)
        what = f"{skill.entry.id} ({skill.digest[:19]}): {', '.join(listed)}"
        if not yes:
            _confirm(
                f"Let this run without a question, where its source is trusted? {visible(what)}",
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
            call.screen.text(f"granted  {visible(what)}")
    return 0


_ANSWERS: dict[str, Answer] = {"yes": "once", "once": "once", "run": "run", "always": "always", "no": "no"}

# --- list -------------------------------------------------------------------------------------------------------------


@cli_command("list", example="prowess approvals list\nprowess approvals list -v\nprowess approvals list --json")
def list_approvals(call: Call) -> int:
    """Show the questions that wait for an answer, and what is approved for good.

    With -v each question is shown in full, as it would have been at a terminal.
    """
    with call.runtime() as runtime:
        note_findings(call, runtime)
        found, store = asyncio.run(_find(runtime))
    if call.screen.is_json:
        document: ApprovalsListDocument = {
            "schema": "prowess.approvals-list/1",
            "store": store,
            "waiting": [_waiting_row(call, question, question.key in found.asking) for question in found.waiting],
            "approvals": [_numbered_row(number, row) for number, row in enumerate(found.standing.rows, 1)],
            "damaged": list(found.damaged),
            "findings": [finding_row(finding) for finding in found.standing.findings],
        }
        call.screen.document(document)
    else:
        _show(call, found, store)
    return 0


async def _find(runtime: Runtime) -> tuple[ApprovalList, str]:
    async with opened(runtime) as (log, store):
        return await find_approvals(runtime, log, open_marks(runtime, store)), store


def _waiting_row(call: Call, question: Waiting, asking: bool) -> WaitingRow:
    return {
        **question_row(question, asking),
        "to_answer": _to_answer(call, question) if question.own and not asking else None,
        "to_resume": None if asking else to_resume(call, question),
    }


def _numbered_row(number: int, row: Standing) -> ApprovalRow:
    return {"number": number, **standing_row(row), "files": len(row.files)}


def _show(call: Call, found: ApprovalList, store: str) -> None:
    for question in found.waiting:
        _show_waiting(call, question, question.key in found.asking)
    standing = found.standing
    if standing.rows:
        rows = [_cells(number, row) for number, row in enumerate(standing.rows, 1)]
        call.screen.table(["number", "skill", "capability", "content", "since", "by"], rows)
    call.screen.findings(standing.findings)
    for name in found.damaged:
        call.screen.note(f"warning: session {visible(name)} is damaged: prowess runs verify --all")
    unanswered = [question for question in found.waiting if question.answer is None]
    approved = count(len(standing.rows), "standing approval")
    call.screen.note(f"{count(len(unanswered), 'question')} waiting · {approved} · {visible(store)}")


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
    return shlex.join(["prowess", "run", *call.where(), *question.resume_arguments, *given])


# --- answer -----------------------------------------------------------------------------------------------------------


@cli_command(
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
        done = asyncio.run(_answer(call, runtime, CallAnswer(call_id, given, session, because)))
    question = done.question
    document: ApprovalAnsweredDocument = {
        "schema": "prowess.approval-answered/1",
        "session": question.key.session,
        "run": question.run,
        "call_id": question.call.id,
        "capability": question.capability,
        "answer": given,
        "waiting": len(done.others),
        "to_resume": to_resume(call, question),
    }
    if call.screen.is_json:
        call.screen.document(document)
        return 0
    what = f"{question.capability} of {question.decision.about.get('skill') or 'the model'}"
    call.screen.note(f"Answered: {given}, to {visible(what)}.")
    for each in done.others:
        call.screen.note(f"There is another question: {visible(_to_answer(call, each))}")
    call.screen.text(visible(document["to_resume"]))
    return 0


async def _answer(call: Call, runtime: Runtime, given: CallAnswer) -> AnswerResult:
    async with opened(runtime) as (log, store):
        marks = open_marks(runtime, store)
        return await answer_call(runtime, log, marks, given, lambda question: to_resume(call, question))


# --- revoke -----------------------------------------------------------------------------------------------------------


@cli_command("revoke", example="prowess approvals revoke 2\nprowess approvals revoke demo --capability skill_run --yes")
@click.argument("which", metavar="NUMBER|SKILL")
@click.option("--capability", metavar="C", help="Only this tool or capability.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def take_back(call: Call, which: str, capability: str | None, yes: bool) -> int:
    """Take back what was approved for good: one approval by its number, or all of a skill.

    It counts from the next call on, also in runs that are going on.
    """
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
        call.screen.text(f"revoked  {visible(row.skill)}  {visible(row.capability)}  {visible(row.digest[:19])}")
    return 0


def _confirm_revoke(rows: Sequence[Standing]) -> None:
    what = ", ".join(f"{row.capability} of {row.skill}" for row in rows[:5]) + (", …" if len(rows) > 5 else "")
    _confirm(
        f"Take back {visible(what)}?",
        absent=f"{count(len(rows), 'approval')} would be taken back ({what}), and nobody is there to say yes.",
        refused="Nothing was taken back.",
    )


def _confirm(question: str, *, absent: str, refused: str) -> None:
    if not sys.stdin.isatty():
        raise ConfigError(absent, code="needs-yes", hint="Add --yes.")
    if not click.confirm(question, err=True):
        raise SkillDenied(refused, code="not-confirmed", hint="")


command = actions(
    "approvals",
    {"list": list_approvals, "answer": answer, "grant": give, "revoke": take_back},
    help="Answer questions that wait, and see or take back what is approved for good.\n\nWithout an action, the list.",
    example="prowess approvals list --json\nprowess approvals answer call-2 yes",
)
