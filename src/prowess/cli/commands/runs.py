"""Command `prowess runs`: lists, checks, repeats and removes recorded runs. `runs_show` shows them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from prowess._internal.text import one_line
from prowess.cli.app import Call, actions, cli_command, confirm_removal, executor_option, roots_option
from prowess.cli.approver import TerminalApprover
from prowess.cli.call import note_findings
from prowess.cli.commands.runs_show import diff, export, show, show_difference
from prowess.cli.commands.workspaces import parse_age
from prowess.cli.screen import Screen, count, size
from prowess.cli.session_options import yes_option
from prowess.cli.timeline import short_time
from prowess.core.codec import to_json
from prowess.core.findings import visible
from prowess.errors import ConfigError
from prowess.records.audit import Check
from prowess.runtime.services.cleanup import OldRecords, find_old_records, remove_records
from prowess.runtime.services.documents import error_row
from prowess.runtime.services.preapproved import parse_yes
from prowess.runtime.services.runs import RunRow, list_runs
from prowess.runtime.services.verify_run import VerifiedRun, VerifiedSession, VerifiedStore, verify_run, verify_store

if TYPE_CHECKING:
    from prowess.runtime.documents.runs import (
        PrunedCopy,
        RunReplayedDocument,
        RunsDocument,
        RunsPrunedDocument,
        RunsVerifiedDocument,
        RunVerifiedDocument,
    )
    from prowess.runtime.services.replay import Recorded
    from prowess.runtime.services.replay_run import Replayed

_MOST = 1_000_000
_REQUEST = 60  # characters of a request in the list
_LONG_REQUEST = 1000  # the same, as JSON


# --- list -------------------------------------------------------------------------------------------------------------


@cli_command("list", example="prowess runs list\nprowess runs list --session s-1f2e --json")
@click.option("--session", metavar="ID", help="Only of this session.")
@click.option("--limit", type=click.IntRange(1, _MOST), default=20, show_default=True, help="At most so many.")
def runs_list(call: Call, session: str | None, limit: int) -> int:
    """Show the runs there are, the last one first.

    A run that exists only as a copy, because its session was removed or has expired, is marked.
    """
    with call.runtime() as runtime:
        note_findings(call, runtime)
        store, runs, more, damaged = asyncio.run(list_runs(runtime, session=session, limit=limit))
    screen = call.screen
    if screen.is_json:
        rows = [row._replace(request=one_line(row.request, _LONG_REQUEST)) for row in runs]
        document: RunsDocument = {
            "schema": "prowess.runs/1",
            "store": store,
            "runs": to_json(rows),
            "more": more,
            "damaged": damaged,
        }
        screen.document(document)
        return 0
    if runs:
        columns = ["run", "began", "session", "model", "ended", "request"]
        cells = [_cells(row) for row in runs]
        screen.table(columns, cells)
    counted = count(len(runs), "run")
    if more:
        counted += f" · there are more: --limit {limit * 5}"
    screen.note(f"\n{counted} · {visible(store)}")
    for name in damaged:
        shown = visible(name)
        screen.note(f"warning: session {shown} is damaged: prowess runs verify --all")
    return 0


def _cells(row: RunRow) -> list[str]:
    ended = row.stop_reason
    if not ended:
        ended = "cut off" if row.cut_off else "has not ended"
    if row.cut_off and row.resumed_by:
        ended += f", resumed by {row.resumed_by}"
    session = row.session
    if not row.in_log:
        session += " (copy)"
    request = one_line(row.request, _LONG_REQUEST)
    if not request:
        request = f"(goes on with {row.resumes})" if row.resumes else "-"
    began = short_time(row.started_at)
    short_request = one_line(request, _REQUEST)
    return [row.run, began, session, row.model, ended, short_request]


# --- verify -----------------------------------------------------------------------------------------------------------


@cli_command(
    "verify",
    example="prowess runs verify r-1f2e\nprowess runs verify --all --json\n"
    "prowess runs verify .agent/runs/20260102T030405Z-r-1f2e",
)
@click.argument("run", required=False)
@click.option("--all", "everything", is_flag=True, help="Every session of the log, and every copy.")
def verify(call: Call, run: str | None, everything: bool) -> int:
    """Check that a record is what was written: no line changed, lost, moved, or cut off at its end.

    The log and the folder of the run are checked, and compared with each other. Exit code 1 when a record is not valid.
    """
    if (run is None) == (not everything):
        hint = "prowess runs verify RUN; see: prowess runs"
        raise ConfigError("Name a run, or say --all.", code="usage", hint=hint)
    with call.runtime() as runtime:
        note_findings(call, runtime)
        if run is None:
            found = asyncio.run(verify_store(runtime))
            return _show_all(call, found)
        result = asyncio.run(verify_run(runtime, run))
    if call.screen.is_json:
        document: RunVerifiedDocument = {"schema": "prowess.run-verified/1", **result.to_json()}
        call.screen.document(document)
    else:
        call.screen.text(_run_line(result))
    return 0 if result.check.valid else 1


def _show_all(call: Call, found: VerifiedStore) -> int:
    screen = call.screen
    if screen.is_json:
        document: RunsVerifiedDocument = {
            "schema": "prowess.runs-verified/1",
            "valid": not found.invalid,
            "sessions": [each.to_json() for each in found.sessions],
            "runs": [each.to_json() for each in found.runs],
        }
        screen.document(document)
    else:
        for session in found.sessions:
            if not session.check.valid or screen.verbose:
                screen.text(_session_line(session))
        for run in found.runs:
            if not run.check.valid or run.copy_lacks or screen.verbose:
                screen.text(_run_line(run))
        screen.note(_summary(found))
    return 1 if found.invalid else 0


def _summary(found: VerifiedStore) -> str:
    """Renders `2 sessions · 5 runs · all valid · 1 run has no copy`."""
    runs = found.runs
    parts = [count(len(found.sessions), "session"), count(len(runs), "run")]
    if found.invalid:
        invalid = count(found.invalid, "of them is", "of them are")
        parts.append(f"{invalid} not valid")
    else:
        parts.append("all valid")
    alone = sum(each.checked == ["copy"] and not each.other_store for each in runs)
    if alone:
        them = count(alone, "run is", "runs are")
        parts.append(f"{them} not in the log, only as a copy")
    short = sum(each.copy_lacks is not None for each in runs)
    if short:
        them = count(short, "copy is", "copies are")
        parts.append(f"{them} incomplete")
    bare = sum(each.checked == ["log"] for each in runs) - short
    if bare:
        them = count(bare, "run has", "runs have")
        parts.append(f"{them} no copy")
    others = sum(each.other_store for each in runs)
    if others:
        them = count(others, "copy is", "copies are")
        parts.append(f"{them} of another store, whose log was not checked")
    return " · ".join(parts)


def _session_line(session: VerifiedSession) -> str:
    name = f"session {session.session}"
    if session.check.valid:
        return _valid(name, session.check)
    return _invalid(name, session.check)


def _run_line(run: VerifiedRun) -> str:
    if not run.check.valid:
        line = _invalid(run.run, run.check)
        if run.where:
            line += f" (in the {run.where})"
        return line
    checked = ""
    if run.checked:
        places = " and ".join(run.checked)
        checked = f" · {places}"
    if run.other_store:
        checked += " · of another store, whose log was not checked"
    line = _valid(run.run, run.check, checked)
    if run.copy_lacks:
        line += f" · its copy lacks {run.copy_lacks} until the session is opened again"
    return line


def _valid(name: str, check: Check, checked: str = "") -> str:
    shown = visible(name)
    events = count(check.events, "event")
    anchored = "not anchored: its end may have been cut off"
    if check.anchored:
        anchored = "anchored"
    return f"valid    {shown}  {events}{checked} · {anchored}"


def _invalid(name: str, check: Check) -> str:
    shown = visible(name)
    why = visible(str(check.why))
    if check.first_bad is not None:
        why = f"event {check.first_bad}: {why}"
    return f"INVALID  {shown}  {why}"


# --- replay -----------------------------------------------------------------------------------------------------------


@cli_command("replay", example="prowess runs replay r-1f2e\nprowess runs replay r-1f2e --root ./skills --json")
@click.argument("run")
@roots_option
@executor_option("What runs scripts.  [default: as configured]")
@click.option("--instructions", metavar="TEXT", help="Other instructions than the run was given.")
@yes_option
def replay(
    call: Call, run: str, roots: Sequence[str], executor: str | None, instructions: str | None, yes: Sequence[str]
) -> int:
    """Repeat a run with today's code and skills, without a model; show the first difference.

    It works in a session and a workspace of its own; scripts are really run. Answers are those that you gave then; a
    question that was not asked then is answered with no. What --yes approved, and what would run without isolation, is
    asked about again. A run that was cut off is repeated as far as its record goes. Roots and executor are those that
    you gave the run, unless you give others. In a folder that is not trusted, or for a record that you did not make,
    neither answers nor roots and executor are taken from the record. Exit code 0: the same; 1: it went another way.
    """
    from prowess.runtime.services.replay_run import choose_settings, find_recorded, replay_run  # imports the agent

    approved = parse_yes(yes)
    ask = TerminalApprover(approved, ask=not call.screen.is_json)
    with call.runtime() as runtime:
        note_findings(call, runtime)
        found = asyncio.run(find_recorded(runtime, run))
    recorded = found.recorded
    settings = choose_settings(recorded, cwd=call.cwd, roots=roots, executor=executor, instructions=instructions)
    with call.runtime(roots=settings.roots, flags=settings.flags) as runtime:
        replayed = asyncio.run(replay_run(runtime, found, settings, ask))
    if call.screen.is_json:
        document = _replayed_document(recorded, replayed)
        call.screen.document(document)
    else:
        _show_replay(call, recorded, replayed)
    return 0 if replayed.difference is None else 1


def _replayed_document(recorded: Recorded, replayed: Replayed) -> RunReplayedDocument:
    error = None
    if replayed.error is not None:
        error = error_row(replayed.error)
    return {
        "schema": "prowess.run-replayed/1",
        "run": recorded.run,
        "same": replayed.difference is None,
        "first": to_json(replayed.difference),
        "events": len(recorded.events),
        "replayed": len(replayed.events),
        "error": error,
        "notes": replayed.notes,
    }


def _show_replay(call: Call, recorded: Recorded, replayed: Replayed) -> None:
    screen = call.screen
    for note in replayed.notes:
        shown = visible(note)
        screen.note(f"note: {shown}")
    if replayed.difference is None:
        same = "same as far as it goes" if recorded.was_cut_off else "same"
        run = visible(recorded.run)
        events = count(len(replayed.events), "event")
        screen.text(f"{same}  {run}  {events}")
        return
    show_difference(screen, replayed.difference, "recorded", "today")
    error = replayed.error
    if error is not None:
        message = visible(error.message)
        screen.note(f"It ended with: {message} [{error.code}]")


# --- prune ------------------------------------------------------------------------------------------------------------


@cli_command(
    "prune", example="prowess runs prune --older-than 30d\nprowess runs prune --older-than 90d --sessions --yes"
)
@click.option("--older-than", metavar="AGE", help="Of runs that ended so long ago: 12h, 30d, 4w.")
@click.option("--keep", type=click.IntRange(0), metavar="N", help="But not the last N runs.")
@click.option("--sessions", is_flag=True, help="Whole sessions from the log as well, if their last run is that old.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def prune(call: Call, older_than: str | None, keep: int | None, sessions: bool, dry_run: bool, yes: bool) -> int:
    """Remove the folders of old runs; those of runs that are going on are kept.

    The log keeps what was in them. With --sessions, sessions that are that old are removed from the log, too, for good.
    Workspaces and artifacts stay; see: prowess workspaces clean, prowess sessions delete --files.
    """
    age = parse_age(older_than)
    if age is None and keep is None:
        raise ConfigError("Say which runs are old.", code="usage", hint="--older-than 30d, or --keep 100.")
    with call.runtime() as runtime:
        note_findings(call, runtime)
        before = time.time() - (age or 0.0)
        old = asyncio.run(find_old_records(runtime, before=before, keep=keep or 0, with_sessions=sessions))
        is_asked = not dry_run and not yes
        if is_asked and (old.copies or old.sessions):
            paths = [each.path for each in old.copies]
            confirm_removal(_what(old), paths=paths)
        removed, kept = asyncio.run(remove_records(runtime, old, dry_run=dry_run))
    if call.screen.is_json:
        copies: list[PrunedCopy] = []
        for each in removed.copies:
            copies.append({"run": each.run, "path": each.path, "size_bytes": each.size_bytes})
        document: RunsPrunedDocument = {
            "schema": "prowess.runs-pruned/1",
            "dry_run": dry_run,
            "removed": copies,
            "sessions": [key.session for key in removed.sessions],
            "kept": kept,
        }
        call.screen.document(document)
    else:
        _show_prune(call.screen, removed, kept, dry_run)
    return 0 if not kept else 1


def _what(old: OldRecords) -> str:
    """Renders `3 folders of runs (1.2 MB) and 1 session of the log, for good`."""
    freed = size(sum(each.size_bytes for each in old.copies))
    folders = count(len(old.copies), "folder")
    text = f"{folders} of runs ({freed})"
    if old.sessions:
        sessions = count(len(old.sessions), "session")
        text += f" and {sessions} of the log, for good"
    return text


def _show_prune(screen: Screen, removed: OldRecords, kept: Sequence[str], dry_run: bool) -> None:
    word = "would remove" if dry_run else "removed"
    for each in removed.copies:
        run = visible(each.run)
        freed = size(each.size_bytes)
        path = visible(each.path)
        screen.text(f"{word}  {run}  {freed}  {path}")
    for key in removed.sessions:
        session = visible(key.session)
        screen.text(f"{word}  session {session}")
    for each in kept:
        screen.text(f"kept  {visible(each)}")
    summary = _what(removed)
    if dry_run:
        summary += " (nothing was removed)"
    screen.note(summary)


command = actions(
    "runs",
    {
        "list": runs_list,
        "show": show,
        "verify": verify,
        "replay": replay,
        "diff": diff,
        "export": export,
        "prune": prune,
    },
    help="Show, check, repeat, compare, export and remove the records of runs.\n\nWithout an action, the list.",
    example="prowess runs\nprowess runs show r-1f2e\nprowess runs verify --all --json",
)
