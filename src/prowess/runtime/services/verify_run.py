"""Checks that records are what was written: sessions and runs of the log, and foreign records. Compares copies."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from prowess._internal.files import open_regular
from prowess.core.catalog_values import Finding
from prowess.core.codec import to_json
from prowess.core.findings import Note, make_finding
from prowess.core.ports import EventLog
from prowess.core.values import OrphanedEvents, SessionKey
from prowess.errors import ConfigError, StoreError
from prowess.records.audit import (
    Check,
    SessionRecord,
    check_copy,
    check_run,
    check_session,
    compare_copy,
    compare_summary,
    explain_orphan,
    read_session,
)
from prowess.records.sessions import all_sessions
from prowess.records.summary import RunSummary, find_resuming, is_cut_off
from prowess.runtime.runtime import Runtime
from prowess.runtime.services.documents import finding_row
from prowess.runtime.services.find_run import (
    FoundRun,
    RunEvents,
    events_of,
    find_run,
    load_lines,
    load_summary,
    opened,
)
from prowess.runtime.storage import find_copies, name_copies
from prowess.stores.run_folders import OUTPUTS, SUMMARY, CopyPlace, folder_name, write_copy

if TYPE_CHECKING:
    from prowess.runtime.documents.runs import CheckRow, VerifiedRunRow, VerifiedSessionRow


class VerifiedRun(NamedTuple):
    """Result for a run: its first fault, or that there is none. `foreign` is the folder of a record that is not in the
    log. `findings` say how the copy of the run differs from the log, which counts."""

    run: str
    session: str | None
    check: Check
    foreign: str | None = None
    has_copy: bool = False
    findings: tuple[Finding, ...] = ()

    def to_json(self) -> VerifiedRunRow:
        return {
            "run": self.run,
            "session": self.session,
            **_check_row(self.check),
            "foreign": self.foreign,
            "copy": _COPY[self.has_copy, bool(self.findings)],
            "findings": [finding_row(finding) for finding in self.findings],
        }


_COPY: dict[tuple[bool, bool], Literal["same", "differs"] | None] = {
    (True, False): "same",
    (True, True): "differs",
    (False, False): None,
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
    """Results for every session of the log, and every run in it."""

    sessions: list[VerifiedSession]
    runs: list[VerifiedRun]

    @property
    def invalid(self) -> int:
        """Number of sessions and runs with a fault."""
        checks = [each.check for each in (*self.sessions, *self.runs)]
        faulty = [check for check in checks if not check.valid]
        return len(faulty)

    @property
    def differing(self) -> int:
        """Number of copies that differ from the log."""
        return sum(bool(run.findings) for run in self.runs)


class ReadRun(NamedTuple):
    """Events of a run. `damage` is the fault that a check found, if any; `unreadable` is the number of events that are
    missing or cannot be parsed. `resumed_by` is the id of the run that resumes this one."""

    events: RunEvents
    damage: str | None
    unreadable: int
    cut_off: bool
    resumed_by: str | None
    foreign: str | None  # folder of a record that is not in the log


# --- one run ----------------------------------------------------------------------------------------------------------


async def verify_run(runtime: Runtime, ref: str) -> VerifiedRun:
    """Checks the run that `ref` names. Raises StoreError when there is none, or more than one."""
    async with opened(runtime) as (log, _):
        try:
            found = await find_run(runtime, log, ref)
        except StoreError as error:
            if error.code != "run-unknown" or log is None or not await log.orphans():
                raise
            hint = "The log has events of no session, which may be of this run. See: prowess runs verify --all"
            raise StoreError(error.message, code=error.code, hint=hint) from error
        return await _verify(runtime, log, found)


async def read_run(runtime: Runtime, ref: str) -> ReadRun:
    """Reads and checks a run of the log, or of a foreign folder. Raises AuditBroken when nothing is readable."""
    async with opened(runtime) as (log, _):
        found = await find_run(runtime, log, ref)
        check = (await _verify(runtime, log, found)).check
    events = events_of(found)
    summary = events.summary
    damage = None if check.valid else str(check.why)
    runs = found.record.runs
    unreadable = len(found.record.slice(summary)) - len(events.envelopes)
    cut_off = is_cut_off(runs, summary)
    if found.folder is not None:
        cut_off = summary.finished_at is None and load_summary(found.folder) is not None
    return ReadRun(events, damage, unreadable, cut_off, find_resuming(runs, summary), found.folder)


async def export_copies(
    runtime: Runtime, refs: Sequence[str], folder: str, *, force: bool = False
) -> list[tuple[ReadRun, str]]:
    """Writes copies of these runs into a folder that a person named. Returns what was read, and where each copy is."""
    reads = [await read_run(runtime, ref) for ref in refs]
    place = name_copies(runtime.places, folder)
    exported: list[tuple[ReadRun, str]] = []
    for read in reads:
        lines, _, summary = read.events
        path = find_copy(place, summary.run, summary.started_at)
        if path is not None and not force:
            raise ConfigError(f"There is already a copy at {path}.", code="file-exists", hint="Add --force.")
        exported.append((read, write_copy(place, summary, lines)))
    return exported


async def _verify(runtime: Runtime, log: EventLog | None, found: FoundRun) -> VerifiedRun:
    """Checks a run, and events of its session in the log that the session's row does not count."""
    if found.folder is not None:
        check = _check_folder(found.folder)
        session = found.summary.key.session if found.summary else None
        return VerifiedRun(found.run, session, check, foreign=found.folder)
    result = _verify_logged(find_copies(runtime), found)
    if log is None or not result.check.valid:
        return result
    key = found.record.key
    for orphan in await log.orphans():
        if key is not None and orphan.is_of(key):
            return result._replace(check=_with_orphan(result.check, orphan))
    return result


def _verify_logged(place: CopyPlace | None, found: FoundRun) -> VerifiedRun:
    """Checks a run in the log, and compares its copy, if there is one."""
    record, summary = found.record, found.summary
    if summary is None:
        return VerifiedRun(found.run, None, Check(valid=False, events=0, why="there is no record of it"))
    result = VerifiedRun(found.run, summary.key.session, check_run(record, summary))
    folder = find_copy(place, summary.run, summary.started_at)
    if folder is None or not os.path.lexists(os.path.join(folder, SUMMARY)):  # not complete, so it claims nothing
        return result
    why = _differs(folder, record, summary)
    result = result._replace(has_copy=True)
    if why is None:
        return result
    note = Note("copy-differs", None, {"run": found.run, "why": why})
    return result._replace(findings=(make_finding(note, folder),))


def find_copy(place: CopyPlace | None, run: str, started_at: str) -> str | None:
    """Returns the folder of a run's copy. A link is none: we make none."""
    try:
        folder = os.path.join(place.path, folder_name(run, started_at)) if place else ""
    except StoreError:
        return None
    return folder if os.path.isdir(folder) and not os.path.islink(folder) else None


def _differs(folder: str, record: SessionRecord, summary: RunSummary) -> str | None:
    """Returns how a copy differs from the log. A copy may lack what came to the run after its end."""
    check = _check_folder(folder)
    if not check.valid:
        return str(check.why) if check.first_bad is None else f"event {check.first_bad}: {check.why}"
    fault = compare_copy(load_lines(folder) or (), record, summary)
    if fault is not None:
        return "event {}: {}".format(*fault)
    told = load_summary(folder) or {}
    if summary.finished_at is not None and told.get("finished_at") is None:
        return "the end of the run is missing"
    return None


def _check_folder(folder: str) -> Check:
    """Checks the record in a folder by itself: its lines, run.json and outputs."""
    lines = load_lines(folder)
    if lines is None:
        return Check(valid=False, events=0, why="there is no events.jsonl")
    told = load_summary(folder)
    check = check_copy(lines, told)
    if not check.valid:
        return check
    why = _bad_summary(folder, told, lines)
    if not why and told:
        why = _bad_output(folder, told)
    return replace(check, valid=False, anchored=False, why=why) if why else check


def _bad_summary(folder: str, told: Mapping[str, Any] | None, lines: Sequence[str]) -> str | None:
    """Returns the fault of run.json, if any: it must fit the events. A run that has not ended has none."""
    if told is None:
        return f"{SUMMARY} cannot be read" if os.path.lexists(os.path.join(folder, SUMMARY)) else None
    summary = SessionRecord.of_lines(lines).find(str(told.get("run")))
    return compare_summary(told, summary) if summary else f"{SUMMARY} is of another run"


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
    """Checks every session of the log and every run in it, and compares their copies."""
    place = find_copies(runtime)
    found = VerifiedStore([], [])
    async with opened(runtime) as (log, _):
        if log is None:
            return found
        for info in await all_sessions(log):
            record = await read_session(log, info.key)
            found.sessions.append(VerifiedSession(info.key.session, check_session(record), info.key))
            for summary in record.runs:
                found.runs.append(_verify_logged(place, FoundRun(summary.run, record, summary)))
        for orphan in await log.orphans():
            _add_orphan(found.sessions, orphan)
    return found


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
