"""Action `prowess runs verify`: shows whether records in the log and in run folders are what was written."""

from __future__ import annotations

import asyncio

import click

from prowess.cli.app import Call, cli_command
from prowess.cli.call import note_findings
from prowess.cli.screen import count
from prowess.core.findings import visible
from prowess.errors import ConfigError
from prowess.records.audit import Check
from prowess.runtime.services.verify_run import VerifiedRun, VerifiedSession, VerifiedStore, verify_run, verify_store


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
        call.screen.document({"schema": "prowess.run-verified/1", **result.to_json()})
    else:
        call.screen.text(_run_line(result))
    return 0 if result.check.valid else 1


def _show_all(call: Call, found: VerifiedStore) -> int:
    sessions, runs, code = found.sessions, found.runs, 1 if found.invalid else 0
    if call.screen.is_json:
        rows = {"sessions": [each.to_json() for each in sessions], "runs": [each.to_json() for each in runs]}
        call.screen.document({"schema": "prowess.runs-verified/1", "valid": not found.invalid, **rows})
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
