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
    if call.screen.is_json:
        rows = [row._replace(request=one_line(row.request, _LONG_REQUEST)) for row in runs]
        document: RunsDocument = {
            "schema": "prowess.runs/1",
            "store": store,
            "runs": to_json(rows),
            "more": more,
            "damaged": damaged,
        }
        call.screen.document(document)
        return 0
    if runs:
        columns = ["run", "began", "session", "model", "ended", "request"]
        call.screen.table(columns, [_cells(row) for row in runs])
    others = f" · there are more: --limit {limit * 5}" if more else ""
    call.screen.note(f"\n{count(len(runs), 'run')}{others} · {visible(store)}")
    for name in damaged:
        call.screen.note(f"warning: session {visible(name)} is damaged: prowess runs verify --all")
    return 0


def _cells(row: RunRow) -> list[str]:
    ended = row.stop_reason or ("cut off" if row.cut_off else "has not ended")
    if row.cut_off and row.resumed_by:
        ended += f", resumed by {row.resumed_by}"
    session = row.session if row.in_log else f"{row.session} (copy)"
    instead = f"(goes on with {row.resumes})" if row.resumes else "-"
    request = one_line(one_line(row.request, _LONG_REQUEST) or instead, _REQUEST)
    return [row.run, short_time(row.started_at), session, row.model, ended, request]


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
        raise ConfigError("Name a run, or say --all.", code="usage", hint="prowess runs verify RUN; see: prowess runs")
    with call.runtime() as runtime:
        note_findings(call, runtime)
        if run is None:
            return _show_all(call, asyncio.run(verify_store(runtime)))
        result = asyncio.run(verify_run(runtime, run))
    if call.screen.is_json:
        document: RunVerifiedDocument = {"schema": "prowess.run-verified/1", **result.to_json()}
        call.screen.document(document)
    else:
        call.screen.text(_run_line(result))
    return 0 if result.check.valid else 1


def _show_all(call: Call, found: VerifiedStore) -> int:
    sessions, runs, code = found.sessions, found.runs, 1 if found.invalid else 0
    if call.screen.is_json:
        document: RunsVerifiedDocument = {
            "schema": "prowess.runs-verified/1",
            "valid": not found.invalid,
            "sessions": [each.to_json() for each in sessions],
            "runs": [each.to_json() for each in runs],
        }
        call.screen.document(document)
        return code
    for session in sessions:
        if not session.check.valid or call.screen.verbose:
            call.screen.text(_session_line(session))
    for run in runs:
        if not run.check.valid or run.copy_lacks or call.screen.verbose:
            call.screen.text(_run_line(run))
    parts = [count(len(sessions), "session"), count(len(runs), "run")]
    parts.append(f"{count(found.invalid, 'of them is', 'of them are')} not valid" if found.invalid else "all valid")
    if alone := sum(each.checked == ["copy"] and not each.other_store for each in runs):
        parts.append(f"{count(alone, 'run is', 'runs are')} not in the log, only as a copy")
    if short := sum(each.copy_lacks is not None for each in runs):
        parts.append(f"{count(short, 'copy is', 'copies are')} incomplete")
    if bare := sum(each.checked == ["log"] for each in runs) - short:
        parts.append(f"{count(bare, 'run has', 'runs have')} no copy")
    if others := sum(each.other_store for each in runs):
        parts.append(f"{count(others, 'copy is', 'copies are')} of another store, whose log was not checked")
    call.screen.note(" · ".join(parts))
    return code


def _session_line(session: VerifiedSession) -> str:
    name = f"session {session.session}"
    return _valid(name, session.check) if session.check.valid else _invalid(name, session.check)


def _run_line(run: VerifiedRun) -> str:
    if not run.check.valid:
        where = f" (in the {run.where})" if run.where else ""
        return _invalid(run.run, run.check) + where
    checked = f" · {' and '.join(run.checked)}" if run.checked else ""
    checked += " · of another store, whose log was not checked" if run.other_store else ""
    lacks = f" · its copy lacks {run.copy_lacks} until the session is opened again" if run.copy_lacks else ""
    return _valid(run.run, run.check, checked) + lacks


def _valid(name: str, check: Check, checked: str = "") -> str:
    anchored = "anchored" if check.anchored else "not anchored: its end may have been cut off"
    return f"valid    {visible(name)}  {count(check.events, 'event')}{checked} · {anchored}"


def _invalid(name: str, check: Check) -> str:
    place = f"event {check.first_bad}: " if check.first_bad is not None else ""
    return f"INVALID  {visible(name)}  {place}{visible(str(check.why))}"


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

    ask = TerminalApprover(parse_yes(yes), ask=not call.screen.is_json)
    with call.runtime() as runtime:
        note_findings(call, runtime)
        found = asyncio.run(find_recorded(runtime, run))
    recorded = found.recorded
    settings = choose_settings(recorded, cwd=call.cwd, roots=roots, executor=executor, instructions=instructions)
    with call.runtime(roots=settings.roots, flags=settings.flags) as runtime:
        replayed = asyncio.run(replay_run(runtime, found, settings, ask))
    if call.screen.is_json:
        document: RunReplayedDocument = {
            "schema": "prowess.run-replayed/1",
            "run": recorded.run,
            "same": replayed.difference is None,
            "first": to_json(replayed.difference),
            "events": len(recorded.events),
            "replayed": len(replayed.events),
            "error": None if replayed.error is None else error_row(replayed.error),
            "notes": replayed.notes,
        }
        call.screen.document(document)
    else:
        for note in replayed.notes:
            call.screen.note(f"note: {visible(note)}")
        _show_replay(call, recorded, replayed)
    return 0 if replayed.difference is None else 1


def _show_replay(call: Call, recorded: Recorded, replayed: Replayed) -> None:
    if replayed.difference is None:
        same = "same as far as it goes" if recorded.was_cut_off else "same"
        call.screen.text(f"{same}  {visible(recorded.run)}  {count(len(replayed.events), 'event')}")
        return
    show_difference(call.screen, replayed.difference, "recorded", "today")
    if replayed.error is not None:
        call.screen.note(f"It ended with: {visible(replayed.error.message)} [{replayed.error.code}]")


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
        if not dry_run and not yes and (old.copies or old.sessions):
            confirm_removal(_what(old), paths=[each.path for each in old.copies])
        removed, kept = asyncio.run(remove_records(runtime, old, dry_run=dry_run))
    if call.screen.is_json:
        document: RunsPrunedDocument = {
            "schema": "prowess.runs-pruned/1",
            "dry_run": dry_run,
            "removed": [{"run": each.run, "path": each.path, "size_bytes": each.size_bytes} for each in removed.copies],
            "sessions": [key.session for key in removed.sessions],
            "kept": kept,
        }
        call.screen.document(document)
    else:
        _show_prune(call.screen, removed, kept, dry_run)
    return 0 if not kept else 1


def _what(old: OldRecords) -> str:
    freed = size(sum(each.size_bytes for each in old.copies))
    parts = [f"{count(len(old.copies), 'folder')} of runs ({freed})"]
    if old.sessions:
        parts.append(f"{count(len(old.sessions), 'session')} of the log, for good")
    return " and ".join(parts)


def _show_prune(screen: Screen, removed: OldRecords, kept: Sequence[str], dry_run: bool) -> None:
    word = "would remove" if dry_run else "removed"
    for each in removed.copies:
        screen.text(f"{word}  {visible(each.run)}  {size(each.size_bytes)}  {visible(each.path)}")
    for key in removed.sessions:
        screen.text(f"{word}  session {visible(key.session)}")
    for each in kept:
        screen.text(f"kept  {visible(each)}")
    screen.note(f"{_what(removed)}{' (nothing was removed)' if dry_run else ''}")


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
