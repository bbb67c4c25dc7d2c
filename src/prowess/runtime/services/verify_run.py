"""Checks that records are what was written: sessions and runs of the log, and copies of runs against the log."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from prowess._internal.files import open_regular
from prowess.core.codec import to_json
from prowess.core.ports import EventLog
from prowess.core.values import OrphanedEvents, SessionKey
from prowess.errors import StoreError
from prowess.records.audit import (
    LACKS,
    Check,
    SessionRecord,
    check_copy,
    check_run,
    check_session,
    compare_copy,
    compare_summary,
    explain_orphan,
    kept_head,
    read_session,
)
from prowess.records.sessions import all_sessions
from prowess.records.summary import RunSummary, find_resuming, is_cut_off
from prowess.runtime.runtime import Runtime
from prowess.runtime.services.find_run import (
    FoundRun,
    RunEvents,
    events_of,
    find_key,
    find_run,
    folders_by_run,
    load_lines,
    load_summary,
    named_session,
    opened,
)
from prowess.stores.run_folders import EVENTS, OUTPUTS, SUMMARY, store_id

if TYPE_CHECKING:
    from prowess.runtime.documents.runs import CheckRow, VerifiedRunRow, VerifiedSessionRow


Place = Literal["log", "copy"]


class VerifiedRun(NamedTuple):
    """Result for a run: its first fault, or that there is none.

    `where` is the place of the fault, "log" or "copy"; `checked` are the places that were checked. `copy_lacks`
    describes what an incomplete copy lacks. `other_store`: the copy is of a store whose log was not checked.
    """

    run: str
    session: str | None
    check: Check
    where: Place | None
    checked: list[Place]
    copy_lacks: str | None
    other_store: bool

    def to_json(self) -> VerifiedRunRow:
        return {
            "run": self.run,
            "session": self.session,
            **_check_row(self.check),
            "where": self.where,
            "checked": self.checked,
            "copy_lacks": self.copy_lacks,
            "other_store": self.other_store,
        }


class VerifiedSession(NamedTuple):
    """Result for a session. `key` is None if only events or a row of it were found."""

    session: str
    check: Check
    key: SessionKey | None = None

    def to_json(self) -> VerifiedSessionRow:
        return {"session": self.session, **_check_row(self.check)}


def _check_row(check: Check) -> CheckRow:
    return to_json(check)


class VerifiedStore(NamedTuple):
    """Results for every session of the log, every run in it and every copy."""

    sessions: list[VerifiedSession]
    runs: list[VerifiedRun]

    @property
    def invalid(self) -> int:
        """Number of sessions and runs with a fault."""
        checks = [each.check for each in (*self.sessions, *self.runs)]
        faulty = [check for check in checks if not check.valid]
        return len(faulty)


class ReadRun(NamedTuple):
    """Events of a run. `damage` is the fault that a check found, if any; `unreadable` is the number of events that are
    missing or cannot be parsed. `resumed_by` is the id of the run that resumes this one."""

    events: RunEvents
    damage: str | None
    unreadable: int
    cut_off: bool
    resumed_by: str | None


# --- one run ----------------------------------------------------------------------------------------------------------


async def verify_run(runtime: Runtime, ref: str) -> VerifiedRun:
    """Checks the run that `ref` names. Raises StoreError when there is none, or more than one."""
    async with opened(runtime) as (log, place):
        try:
            found = await find_run(runtime, log, ref)
        except StoreError as error:
            if error.code != "run-unknown" or log is None or not await log.orphans():
                raise
            hint = "The log has events of no session, which may be of this run. See: prowess runs verify --all"
            raise StoreError(error.message, code=error.code, hint=hint) from error
        return await _verify(log, place, found)


async def read_run(runtime: Runtime, ref: str) -> ReadRun:
    """Reads and checks a run of the log, else its copy. Raises AuditBroken when nothing is readable."""
    async with opened(runtime) as (log, place):
        found = await find_run(runtime, log, ref)
        result = await _verify(log, place, found)
    events = events_of(found)
    summary = found.summary
    is_read = result.where == "log" or summary is None  # an edited copy does not matter when the log is read
    damage = None
    if is_read and not result.check.valid:
        damage = str(result.check.why)
    if found.record is None or summary is None:
        is_whole = found.folder is not None and load_summary(found.folder) is not None
        cut_off = is_whole and events.summary.finished_at is None
        unreadable = len(events.lines) - len(events.envelopes)
        return ReadRun(events, damage, unreadable, cut_off, None)
    runs = found.record.runs
    logged = found.record.slice(summary)
    unreadable = len(logged) - len(events.envelopes)
    return ReadRun(events, damage, unreadable, is_cut_off(runs, summary), find_resuming(runs, summary))


async def _verify(log: EventLog | None, place: str, found: FoundRun) -> VerifiedRun:
    """Checks a run, and events of its session in the log that the session's row does not count."""
    result = _verify_found(found, store_id(place))
    if log is None or not result.check.valid:
        return result
    key = _key(found)
    for orphan in await log.orphans():
        if key is not None and orphan.is_of(key):
            check = _with_orphan(result.check, orphan)
            return result._replace(check=check, where="log")
    return result


def _key(found: FoundRun) -> SessionKey | None:
    """Returns the session of a run, as the log or the copy names it."""
    if found.record is not None:
        return found.record.key
    if found.folder is None:
        return None
    return find_key(found.folder, load_summary(found.folder))


def _verify_found(found: FoundRun, store: str | None) -> VerifiedRun:
    """Checks a run in the log and as a copy. `store` is the id of the log's store."""
    told = None
    if found.folder:
        told = load_summary(found.folder)
    elsewhere = found.summary is None and _is_of_another_store(told, store, found.record)
    checks: dict[Place, Check] = {}
    if found.record is not None and not elsewhere:
        checks["log"] = _check_log(found.record, found.summary, told)
    lacks = _what_it_lacks(found)
    if found.folder is not None and lacks is None:
        checks["copy"] = _check_folder(found, told)
    where, check = _sum_up(checks)
    session = named_session(told)
    if found.summary:
        session = found.summary.key.session
    return VerifiedRun(found.run, session, check, where, list(checks), lacks, elsewhere)


def _sum_up(checks: Mapping[Place, Check]) -> tuple[Place | None, Check]:
    """Returns the place of the first fault, if any, and the check that counts for all places."""
    if not checks:
        return None, Check(valid=False, events=0, why="there is no record of it")
    for where, check in checks.items():
        if not check.valid:
            return where, check
    first, *others = checks.values()
    anchored = first.anchored or any(check.anchored for check in others)
    return None, replace(first, anchored=anchored)


def _check_log(record: SessionRecord, summary: RunSummary | None, told: Mapping[str, Any] | None) -> Check:
    """Checks the run as the log has it. `told` is the run.json of its copy."""
    if summary is not None:
        kept = None
        if told and told.get("run") == summary.run:
            kept = kept_head(told)
        return check_run(record, summary, kept)
    after = kept_head(told, "after")
    first_bad = after.seq + 1 if after else None
    return Check(valid=False, events=0, first_bad=first_bad, why="the log has its session, and not this run")


def _is_of_another_store(told: Mapping[str, Any] | None, store: str | None, record: SessionRecord | None) -> bool:
    """True when run.json names another store, unless the run follows an event of ours: run.json alone proves little."""
    if told is None:
        return False
    named = told.get("store")
    if not isinstance(named, str) or named == store:
        return False
    after = kept_head(told, "after")
    if record is None or after is None:
        return True
    return after.hash not in record.ends


def _what_it_lacks(found: FoundRun) -> str | None:
    """Describes what an incomplete copy lacks. A full disk or a kill cut it short; what it has is the same as in the
    log. A copy with a run.json claims to be complete, so it is checked as a whole instead."""
    folder, record, summary = found.folder, found.record, found.summary
    if folder is None or record is None or summary is None:
        return None
    if os.path.lexists(os.path.join(folder, SUMMARY)):
        return None
    lines = load_lines(folder)
    if lines is None:
        if os.path.lexists(os.path.join(folder, EVENTS)):
            return None
        lines = []
    fault = compare_copy(lines, record, summary)
    if fault is None:
        return SUMMARY if summary.finished_at is not None else None
    _, why = fault
    if why != LACKS:
        return None
    missing = summary.events - len(lines)
    noun = "event" if summary.events == 1 else "events"
    return f"{missing} of {summary.events} {noun}"


def _check_folder(found: FoundRun, told: Mapping[str, Any] | None) -> Check:
    """Checks the copy, and compares it with the log."""
    folder = found.folder or ""
    lines = load_lines(folder)
    if lines is None:
        return Check(valid=False, events=0, why="there is no events.jsonl")
    check = check_copy(lines, told)
    if found.record is not None and found.summary is not None:
        fault = compare_copy(lines, found.record, found.summary)
        if fault is not None:
            at, why = fault
            if check.first_bad is None or at < check.first_bad:
                return Check(valid=False, events=check.events, first_bad=at, why=why)
    if not check.valid:
        return check
    why = _bad_summary(folder, told, lines, found.summary)
    if not why and told:
        why = _bad_output(folder, told)
    if not why:
        return check
    return Check(valid=False, events=check.events, why=why)


def _bad_summary(
    folder: str, told: Mapping[str, Any] | None, lines: list[str], summary: RunSummary | None
) -> str | None:
    """Returns the fault of run.json, if any. A run that has not ended has none; else it must fit the events."""
    if told is None:
        if os.path.lexists(os.path.join(folder, SUMMARY)):
            return f"{SUMMARY} cannot be read"
        return None
    if summary is not None:
        return compare_summary(told, summary)
    run = str(told.get("run"))
    from_lines = SessionRecord.of_lines(lines).find(run)
    if not from_lines:
        return f"{SUMMARY} is of another run"
    return compare_summary(told, from_lines, alone=True)


def _bad_output(folder: str, told: Mapping[str, Any]) -> str | None:
    """Returns the first output file that is missing or whose content does not fit the hash in its name."""
    listed = told.get("outputs")
    if not isinstance(listed, list):
        return None
    for output in listed:
        name = output.get("sha256") if isinstance(output, dict) else None
        if not isinstance(name, str) or len(name) != 64 or not name.isalnum():
            return f"{SUMMARY} lists an output that is none"
        path = os.path.join(folder, OUTPUTS, name)
        try:
            digest = _hash_file(path)
        except OSError:
            return f"{OUTPUTS}/{name} is missing"
        if digest != name:
            return f"{OUTPUTS}/{name} was edited"
    return None


def _hash_file(path: str) -> str:
    digest = sha256()
    with open(open_regular(path), "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


# --- all of them ------------------------------------------------------------------------------------------------------


async def verify_store(runtime: Runtime) -> VerifiedStore:
    """Checks every session of the log, every run in it, and every copy."""
    folders = folders_by_run(runtime)
    found = VerifiedStore([], [])
    known: dict[SessionKey | None, SessionRecord] = {}
    async with opened(runtime) as (log, place):
        store = store_id(place)
        if log is not None:
            for info in await all_sessions(log):
                record = await read_session(log, info.key)
                found.sessions.append(VerifiedSession(info.key.session, check_session(record), info.key))
                found.runs.extend(_verify_runs(record, folders, store))
                bare = SessionRecord(info.key, (), record.head)  # only that it exists, and where its runs end
                bare.ends = record.ends
                known[info.key] = bare
            for orphan in await log.orphans():
                _add_orphan(found.sessions, orphan)
    for run, folder in folders.items():
        told = load_summary(folder)
        key = find_key(folder, told) if told else None
        copied = FoundRun(run, known.get(key), None, folder)
        found.runs.append(_verify_found(copied, store))
    return found


def _verify_runs(record: SessionRecord, folders: dict[str, str], store: str | None) -> Iterator[VerifiedRun]:
    """Checks the runs of a session. Takes their copies from `folders`, so that those of no session are left."""
    for summary in record.runs:
        folder = folders.pop(summary.run, None)
        run = FoundRun(summary.run, record, summary, folder)
        yield _verify_found(run, store)


def _add_orphan(sessions: list[VerifiedSession], orphan: OrphanedEvents) -> None:
    """Adds stray events to the row of their session, if there is one. An earlier fault of the row stays."""
    for place, row in enumerate(sessions):
        if row.key is not None and orphan.is_of(row.key) and not orphan.orphaned:
            if row.check.valid:
                check = _with_orphan(row.check, orphan)
                sessions[place] = row._replace(check=check)
            return
    nothing = Check(valid=False, events=orphan.events)
    check = _with_orphan(nothing, orphan)
    sessions.append(VerifiedSession(orphan.session, check))


def _with_orphan(check: Check, orphan: OrphanedEvents) -> Check:
    return Check(valid=False, events=check.events, first_bad=orphan.first, why=explain_orphan(orphan))
