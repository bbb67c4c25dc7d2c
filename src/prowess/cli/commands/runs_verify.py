"""Action `prowess runs verify`: checks records in the log and in run folders, and compares both."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import click

from prowess._internal.files import open_regular
from prowess.cli.app import Call, verb
from prowess.cli.call import note_findings
from prowess.cli.screen import count
from prowess.core.findings import visible
from prowess.core.ports import EventLog
from prowess.core.values import OrphanedEvents
from prowess.errors import ConfigError, StoreError
from prowess.records.audit import (
    LACKS,
    Check,
    SessionRecord,
    check_copy,
    check_run,
    check_session,
    compare_copy,
    compare_summary,
    explain_stray,
    kept_head,
    read_session,
)
from prowess.records.summary import RunSummary
from prowess.runtime.factories import runs_folder
from prowess.runtime.runtime import Runtime
from prowess.runtime.services.find_run import FoundRun, copies, find_run, load_lines, load_summary, opened
from prowess.stores.run_folders import EVENTS, OUTPUTS, SUMMARY, store_id


@verb(
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
            return _all(call, runtime)
        result = asyncio.run(_one(runtime, run))
    if call.screen.is_json:
        call.screen.document({"schema": "prowess.run-verified/1", **result})
    else:
        call.screen.text(_line(result))
    return 0 if result["valid"] else 1


async def _one(runtime: Runtime, ref: str) -> dict[str, Any]:
    async with opened(runtime) as (log, place):
        try:
            found = await find_run(runtime, log, ref)
        except StoreError as error:
            if error.code != "run-unknown" or log is None or not await log.strays():
                raise
            hint = "The log has events of no session, which may be of this run. See: prowess runs verify --all"
            raise StoreError(error.message, code=error.code, hint=hint) from error
        return await verify_one(log, place, found)


async def verify_one(log: EventLog | None, place: str, found: FoundRun) -> dict[str, Any]:
    """Checks a run, and events of its session in the log that the session's row does not count."""
    result = verify_found(found, store_id(place))
    strays = await log.strays() if log is not None else ()
    mine = [stray for stray in strays if (stray.tenant, stray.session) == ("default", result["session"])]
    return _stray_row({**result, "where": "log"}, mine[0]) if mine and result["valid"] else result


def verify_found(found: FoundRun, store: str | None) -> dict[str, Any]:
    """Checks a run in the log and as a copy, and returns the first fault. `store` is the id of the log's store."""
    told = load_summary(found.folder) if found.folder else None
    checks: list[tuple[str, Check]] = []
    elsewhere = found.summary is None and _is_of_another_store(told, store, found.record)
    if found.record is not None and found.summary is not None:
        kept = kept_head(told) if told and told.get("run") == found.summary.run else None
        checks.append(("log", check_run(found.record, found.summary, kept)))
    elif found.record is not None and not elsewhere:
        after = kept_head(told, "after")
        why = "the log has its session, and not this run"
        checks.append(("log", Check(valid=False, events=0, first_bad=after.seq + 1 if after else None, why=why)))
    lacks = _what_it_lacks(found)
    if found.folder is not None and lacks is None:
        checks.append(("copy", _check_folder(found, told)))
    bad = next(((where, check) for where, check in checks if not check.valid), None)
    where, check = bad or (checks[0] if checks else ("", Check(valid=False, events=0, why="there is no record of it")))
    return {
        "run": found.run,
        "session": found.summary.key.session if found.summary else _session(told),
        "valid": bool(checks) and bad is None,
        "events": check.events,
        "first_bad": check.first_bad,
        "anchored": any(check.anchored for _, check in checks) and bad is None,
        "why": check.why,
        "where": where if bad else None,
        "checked": [name for name, _ in checks],
        "copy_lacks": lacks,
        "other_store": elsewhere,
    }


def _is_of_another_store(told: Mapping[str, Any] | None, store: str | None, record: SessionRecord | None) -> bool:
    """True when run.json names another store, unless the run follows an event of ours: run.json alone proves little."""
    named, after = told.get("store") if told else None, kept_head(told, "after")
    ours = record is not None and after is not None and after.hash in record.ends
    return isinstance(named, str) and named != store and not ours


def _what_it_lacks(found: FoundRun) -> str | None:
    """Describes what an incomplete copy lacks. A full disk or a kill cut it short; what it has is the same as in the
    log. A copy with a run.json claims to be complete, so it is checked as a whole instead."""
    folder, record, summary = found.folder, found.record, found.summary
    if folder is None or record is None or summary is None or os.path.lexists(os.path.join(folder, SUMMARY)):
        return None
    lines = load_lines(folder)
    if lines is None and os.path.lexists(os.path.join(folder, EVENTS)):
        return None
    fault = compare_copy(lines or [], record, summary)
    if fault is not None:
        missing = summary.events - len(lines or [])
        return f"{missing} of {count(summary.events, 'event')}" if fault[1] == LACKS else None
    return SUMMARY if summary.finished_at is not None else None


def _check_folder(found: FoundRun, told: Mapping[str, Any] | None) -> Check:
    folder = found.folder or ""
    lines = load_lines(folder)
    if lines is None:
        return Check(valid=False, events=0, why="there is no events.jsonl")
    check = check_copy(lines, told)
    fault = None
    if found.record is not None and found.summary is not None:
        fault = compare_copy(lines, found.record, found.summary)
    if fault is not None and (check.first_bad is None or fault[0] < check.first_bad):
        return Check(valid=False, events=check.events, first_bad=fault[0], why=fault[1])
    if not check.valid:
        return check
    why = _bad_summary(folder, told, lines, found.summary) or (_bad_output(folder, told) if told else None)
    return Check(valid=False, events=check.events, why=why) if why else check


def _bad_summary(
    folder: str, told: Mapping[str, Any] | None, lines: list[str], summary: RunSummary | None
) -> str | None:
    """Returns the fault of run.json, if any. A run that has not ended has none; else it must fit the events."""
    if told is None:
        return f"{SUMMARY} cannot be read" if os.path.lexists(os.path.join(folder, SUMMARY)) else None
    if summary is None:
        from_lines = SessionRecord.of_lines(lines).find(str(told.get("run")))
        return compare_summary(told, from_lines, alone=True) if from_lines else f"{SUMMARY} is of another run"
    return compare_summary(told, summary)


def _bad_output(folder: str, told: Mapping[str, Any]) -> str | None:
    """Returns the first output file that is missing or whose content does not fit the hash in its name."""
    listed = told.get("outputs")
    for output in listed if isinstance(listed, list) else ():
        name = output.get("sha256") if isinstance(output, dict) else None
        if not isinstance(name, str) or len(name) != 64 or not name.isalnum():
            return f"{SUMMARY} lists an output that is none"
        try:
            with open(open_regular(os.path.join(folder, OUTPUTS, name)), "rb") as file:
                digest = sha256()
                while piece := file.read(1 << 20):
                    digest.update(piece)
        except OSError:
            return f"{OUTPUTS}/{name} is missing"
        if digest.hexdigest() != name:
            return f"{OUTPUTS}/{name} was edited"
    return None


def _session(told: Mapping[str, Any] | None) -> str | None:
    key = told.get("key") if told else None
    session = key.get("session") if isinstance(key, dict) else None
    return session if isinstance(session, str) else None


# --- all of them ------------------------------------------------------------------------------------------------------


def _all(call: Call, runtime: Runtime) -> int:
    sessions, runs = asyncio.run(_everything(runtime))
    valid = all(each["valid"] for each in (*sessions, *runs))
    if call.screen.is_json:
        document = {"valid": valid, "sessions": sessions, "runs": runs}
        call.screen.document({"schema": "prowess.runs-verified/1", **document})
        return 0 if valid else 1
    for each in (*sessions, *runs):
        if not each["valid"] or each.get("copy_lacks") or call.screen.verbose:
            call.screen.text(_line(each))
    bad = sum(not each["valid"] for each in (*sessions, *runs))
    found = f"{count(bad, 'of them is', 'of them are')} not valid" if bad else "all valid"
    alone = sum(each["checked"] == ["copy"] and not each["other_store"] for each in runs)
    only = f" · {count(alone, 'run is', 'runs are')} not in the log, only as a copy" if alone else ""
    short = sum(each["copy_lacks"] is not None for each in runs)
    only += f" · {count(short, 'copy is', 'copies are')} incomplete" if short else ""
    bare = sum(each["checked"] == ["log"] for each in runs) - short
    only += f" · {count(bare, 'run has', 'runs have')} no copy" if bare else ""
    others = sum(each["other_store"] for each in runs)
    only += f" · {count(others, 'copy is', 'copies are')} of another store, whose log was not checked" if others else ""
    call.screen.note(f"{count(len(sessions), 'session')} · {count(len(runs), 'run')} · {found}{only}")
    return 0 if valid else 1


async def _everything(runtime: Runtime) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    folders = {name.partition("-")[2]: path for name, path in copies(runs_folder(runtime.places))}
    sessions: list[dict[str, Any]] = []
    runs: list[dict[str, Any]] = []
    known: dict[str, SessionRecord] = {}
    async with opened(runtime) as (log, place):
        store = store_id(place)
        for info in await log.sessions() if log is not None else ():
            record = await read_session(log, info.key) if log is not None else None
            if record is None:
                continue
            sessions.append(_session_row(info.key.session, record))
            for summary in record.runs:
                runs.append(verify_found(FoundRun(summary.run, record, summary, folders.pop(summary.run, None)), store))
            bare = SessionRecord(info.key, (), record.head)  # only that it exists, and where its runs end
            bare.ends, known[info.key.session] = record.ends, bare
        for stray in await log.strays() if log is not None else ():
            _add_stray(sessions, stray)
    for run, folder in folders.items():
        runs.append(verify_found(FoundRun(run, known.get(_session(load_summary(folder)) or ""), None, folder), store))
    return sessions, runs


def _session_row(session: str, record: SessionRecord) -> dict[str, Any]:
    check = check_session(record)
    return {
        "session": session,
        "valid": check.valid,
        "events": check.events,
        "first_bad": check.first_bad,
        "anchored": check.anchored,
        "why": check.why,
    }


def _add_stray(sessions: list[dict[str, Any]], stray: OrphanedEvents) -> None:
    """Adds stray events to the row of their session, if there is one. An earlier fault of the row stays."""
    for place, row in enumerate(sessions):
        if (stray.tenant, stray.session) == ("default", row["session"]) and not stray.orphaned:
            sessions[place] = _stray_row(row, stray) if row["valid"] else row
            return
    sessions.append(_stray_row({"session": stray.session, "events": stray.events}, stray))


def _stray_row(row: Mapping[str, Any], stray: OrphanedEvents) -> dict[str, Any]:
    wrong = {"valid": False, "first_bad": stray.first, "anchored": False, "why": explain_stray(stray)}
    return {**row, **wrong}


def _line(result: Mapping[str, Any]) -> str:
    name = visible(str(result.get("run") or f"session {result['session']}"))
    if result["valid"]:
        anchored = "anchored" if result["anchored"] else "not anchored: its end may have been cut off"
        checked = f" · {' and '.join(result['checked'])}" if result.get("checked") else ""
        checked += " · of another store, whose log was not checked" if result.get("other_store") else ""
        lacks = result.get("copy_lacks")
        copy = f" · its copy lacks {lacks} until the session is opened again" if lacks else ""
        return f"valid    {name}  {count(result['events'], 'event')}{checked} · {anchored}{copy}"
    place = f"event {result['first_bad']}: " if result["first_bad"] is not None else ""
    where = f" (in the {result['where']})" if result.get("where") else ""
    return f"INVALID  {name}  {place}{visible(str(result['why']))}{where}"
