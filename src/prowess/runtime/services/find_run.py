"""Finds a run in the log, by its id, the beginning of it or the name of its copy. A path names a foreign record."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from prowess._internal.files import read_regular
from prowess.core.events import Envelope, parse_event
from prowess.core.values import SessionInfo
from prowess.errors import AuditBroken, StoreError
from prowess.records.audit import SessionRecord, read_session
from prowess.records.chain import without_duplicates
from prowess.records.sessions import all_sessions
from prowess.records.summary import RunSummary
from prowess.runtime.config import Config
from prowess.runtime.runtime import Runtime
from prowess.runtime.storage import find_copies, is_shared, open_log, store_name
from prowess.stores.run_folders import EVENTS, SUMMARY

if TYPE_CHECKING:
    from prowess.core.ports import EventLog

_SUMMARY_BYTES = 16 << 20
_EVENTS_BYTES = 1 << 30


class FoundRun(NamedTuple):
    """Run as the log has it, or as the foreign `folder` has it that a person named. The summary is None where no line
    of that folder can be read."""

    run: str
    record: SessionRecord
    summary: RunSummary | None
    folder: str | None = None


class RunEvents(NamedTuple):
    """Stored lines of a run, and those of them that can be parsed."""

    lines: list[str]
    envelopes: list[Envelope]
    summary: RunSummary


@asynccontextmanager
async def opened(runtime: Runtime) -> AsyncIterator[tuple[EventLog | None, str]]:
    """Yields the log and its place. The log is None when nothing was ever recorded there; no file is created."""
    config = runtime.config
    log = open_log(config, runtime.places, find_copies(runtime))
    place = "memory:" if config.store == "memory:" else store_name(config, runtime.places)
    place = str(getattr(log, "path", "")) or place
    try:
        if _is_missing_file(config, place):
            yield None, place
        else:
            yield log, place
    finally:
        await log.close()


def _is_missing_file(config: Config, place: str) -> bool:
    if config.store == "memory:" or is_shared(config):
        return False
    return not os.path.lexists(place)


async def find_run(runtime: Runtime, log: EventLog | None, ref: str) -> FoundRun:
    """Returns the run of the log, or at a path, that `ref` names. StoreError when there is none, or more than one."""
    if _is_path(ref):
        return _foreign(_folder_at(ref))
    wanted = ref
    if ref[:1].isdigit():
        wanted = ref.rpartition("Z-")[2]  # the name of a copy
    known: dict[str, SessionInfo] = {}
    meant: list[str] = []
    for thoroughly in (False, True):  # a run whose first line was changed is found by its other lines
        if log is None or len(meant) > 1:
            break
        known = await _known(log, thoroughly)
        meant = _beginning_with(wanted, known)
        if len(meant) == 1:
            record = await read_session(log, known[meant[0]].key)
            summary = record.find(meant[0])
            if summary is not None:
                return FoundRun(summary.run, record, summary)
    raise _unknown(ref, list(known), several=meant)


def _beginning_with(wanted: str, runs: Iterable[str]) -> list[str]:
    """Returns the run with this id, else those whose ids begin so."""
    if wanted in runs:
        return [wanted]
    if not wanted:
        return []
    return [run for run in runs if run.startswith(wanted)]


def _foreign(folder: str) -> FoundRun:
    """Reads the run of a folder. Anybody can have written it."""
    record = SessionRecord.of_lines(load_lines(folder) or ())
    told = load_summary(folder) or {}
    name = os.path.basename(folder)
    run = record.runs[0].run if record.runs else str(told.get("run") or name.partition("Z-")[2] or name)
    return FoundRun(run, record, record.find(run), folder)


def describe_foreign(folder: str) -> str:
    """Says that a record is not one of the log."""
    return f"{folder} is foreign: it is read as it is, and nothing in it counts as an answer."


def events_of(found: FoundRun) -> RunEvents:
    """Returns the events of a run. Raises AuditBroken when nothing is readable."""
    if found.summary is None:
        problem = f"The record of run '{found.run}' cannot be read."
        where = found.folder or found.run
        raise AuditBroken(problem, hint=f"See what is wrong with it: prowess runs verify {where}")
    lines = [line.text for line in found.record.slice(found.summary) if line.text is not None]
    return RunEvents(lines, found.record.of(found.summary), found.summary)


def load_summary(folder: str) -> dict[str, Any] | None:
    """Returns the run.json of a copy, or None when it is missing or unreadable."""
    path = os.path.join(folder, SUMMARY)
    try:
        data = read_regular(path, _SUMMARY_BYTES)
        if len(data) > _SUMMARY_BYTES:
            return None
        document = json.loads(data, object_pairs_hook=without_duplicates)
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    return document


def load_lines(folder: str) -> list[str] | None:
    """Returns the lines of a copy unchecked, or None when events.jsonl cannot be read."""
    path = os.path.join(folder, EVENTS)
    try:
        data = read_regular(path, _EVENTS_BYTES)
    except OSError:
        return None
    text = data.decode("utf-8", "surrogateescape")
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return lines


def _is_path(ref: str) -> bool:
    """True for a path; an id has no slash, and no ending."""
    if os.sep in ref or ref in (".", ".."):
        return True
    return ref.endswith(".jsonl")


def _folder_at(ref: str) -> str:
    """Returns the folder of a run, given by its path or by that of a file in it."""
    folder = os.path.abspath(ref)
    if not os.path.isdir(folder):
        folder, name = os.path.split(folder)
        if name not in (EVENTS, SUMMARY):
            problem = f"There is no record at '{ref[:200]}'."
            hint = "Name the folder of a run, or its events.jsonl; see: prowess runs list"
            raise StoreError(problem, code="run-unknown", hint=hint)
    events = os.path.join(folder, EVENTS)
    if not os.path.isfile(events):
        problem = f"There is no {EVENTS} in '{folder[:200]}'."
        raise StoreError(problem, code="run-unknown", hint="Name the folder of a run; see: prowess runs list")
    return folder


async def _known(log: EventLog, thoroughly: bool) -> dict[str, SessionInfo]:
    """Returns every run of the log, children too. `thoroughly` reads all lines, not only the first of a run."""
    found: dict[str, SessionInfo] = {}
    for info in await all_sessions(log):
        if not thoroughly:
            found |= dict.fromkeys(await _begun(log, info), info)
            continue
        record = await read_session(log, info.key)
        for summary in record.runs:
            found |= dict.fromkeys((summary.run, *summary.children), info)
    return found


async def _begun(log: EventLog, info: SessionInfo) -> list[str]:
    """Returns the runs whose first line a session has."""
    runs: list[str] = []
    try:
        async for line in log.lines(info.key):
            if isinstance(line, str) and '"type":"run_started"' in line:
                event = parse_event(json.loads(line))
                runs.append(event.run)
    except (StoreError, ValueError, RecursionError, TypeError):
        return runs  # damaged: the thorough search finds the rest
    return runs


def _unknown(ref: str, runs: list[str], several: list[str]) -> StoreError:
    """Makes the error about a run that does not exist, or of which there are several."""
    shown = ref[:100]
    if len(several) > 1:
        problem = f"'{shown}' can be one of {len(several)} runs."
        ids = ", ".join(several[:4])
        return StoreError(problem, code="run-ambiguous", hint=f"Give more of its id: {ids}.")
    hint = "See: prowess runs list"
    near = difflib.get_close_matches(ref, runs, n=3)
    if near:
        meant = " or ".join(near)
        hint = f"Did you mean {meant}? {hint}"
    return StoreError(f"No run '{shown}'.", code="run-unknown", hint=hint)
