"""Finds a run by its id, the beginning of its id, its folder or a path: in the log, as a copy, or both."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from prowess._internal.files import open_regular, read_regular
from prowess.core.codec import from_json
from prowess.core.events import Envelope, parse_event
from prowess.core.values import SessionInfo, SessionKey
from prowess.errors import AuditBroken, StoreError
from prowess.records.audit import SessionRecord, read_session
from prowess.records.chain import without_duplicates
from prowess.records.sessions import all_sessions
from prowess.records.summary import RunSummary
from prowess.runtime.config import Config
from prowess.runtime.runtime import Runtime
from prowess.runtime.storage import is_shared, open_log, runs_folder, store_name
from prowess.stores.run_folders import EVENTS, SUMMARY

if TYPE_CHECKING:
    from prowess.core.ports import EventLog

_SUMMARY_BYTES = 16 << 20
_EVENTS_BYTES = 1 << 30


class FoundRun(NamedTuple):
    """Run as the log has it, and the folder of its copy. A record without a summary: the log has the session, but not
    the run."""

    run: str
    record: SessionRecord | None
    summary: RunSummary | None
    folder: str | None


class RunEvents(NamedTuple):
    """Stored lines of a run, and those of them that can be parsed."""

    lines: list[str]
    envelopes: list[Envelope]
    summary: RunSummary


@asynccontextmanager
async def opened(runtime: Runtime) -> AsyncIterator[tuple[EventLog | None, str]]:
    """Yields the log and its place. The log is None when nothing was ever recorded there; no file is created."""
    config = runtime.config
    log = open_log(config, runtime.places)
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
    """Returns the run that `ref` names. Raises StoreError when there is none, or more than one."""
    if _is_path(ref):
        folder = _folder_at(ref)
        run = _run_of(folder)
        if not run:
            return FoundRun(os.path.basename(folder), None, None, folder)
        return await _copied(log, run, folder)
    folders = folders_by_run(runtime)
    wanted = ref
    if ref[:1].isdigit():
        wanted = ref.rpartition("Z-")[2]
    if wanted in folders:
        return await _copied(log, wanted, folders[wanted])
    for thoroughly in (False, True):  # a run whose first line was changed is found by its other lines
        known: dict[str, SessionInfo | None] = dict.fromkeys(folders)
        known |= await _known(log, thoroughly)
        meant = _beginning_with(wanted, known)
        if len(meant) == 1:
            (run,) = meant
            return await _found(log, run, known[run], folders)
        if meant:
            break
    raise _unknown(ref, list(known), several=meant)


def folders_by_run(runtime: Runtime) -> dict[str, str]:
    """Returns the folder of each run that has a copy."""
    found: dict[str, str] = {}
    for name, path in copies(runs_folder(runtime.places)):
        _, _, run = name.partition("-")
        found[run] = path
    return found


def _beginning_with(wanted: str, runs: Iterable[str]) -> list[str]:
    """Returns the run with this id, else those whose ids begin so."""
    if wanted in runs:
        return [wanted]
    if not wanted:
        return []
    return [run for run in runs if run.startswith(wanted)]


async def _found(log: EventLog | None, run: str, info: SessionInfo | None, folders: Mapping[str, str]) -> FoundRun:
    """Reads the session of a run. For a child run, returns the run that it belongs to."""
    if info is None or log is None:
        return await _copied(log, run, folders[run])
    record = await read_session(log, info.key)
    summary = record.find(run)
    if summary:
        run = summary.run
    folder = folders.get(run)
    return FoundRun(run, record, summary, folder)


async def _copied(log: EventLog | None, run: str, folder: str) -> FoundRun:
    """Returns a run that has a copy, as the log has it, too."""
    told = load_summary(folder)
    record, summary = await _in_log(log, run, told)
    return FoundRun(run, record, summary, folder)


def events_of(found: FoundRun) -> RunEvents:
    """Returns the events from the log, else from the copy. Raises AuditBroken when nothing is readable."""
    if found.record is not None and found.summary is not None:
        logged = found.record.slice(found.summary)
        lines = [line.text for line in logged if line.text is not None]
        return RunEvents(lines, found.record.of(found.summary), found.summary)
    lines = None
    if found.folder:
        lines = load_lines(found.folder)
    lines = lines or []
    copied = SessionRecord.of_lines(lines)
    if not copied.runs:
        problem = f"The record of run '{found.run}' cannot be read."
        where = found.folder or found.run
        raise AuditBroken(problem, hint=f"See what is wrong with it: prowess runs verify {where}")
    summary = copied.find(found.run) or copied.runs[0]
    return RunEvents(lines, copied.of(summary), summary)


def copies(folder: str) -> Iterator[tuple[str, str]]:
    """Yields (name, path) of each run folder, newest first. Links are skipped: we make none."""
    try:
        names = sorted(os.listdir(folder), reverse=True)
    except OSError:
        return
    for name in names:
        path = os.path.join(folder, name)
        if "Z-" in name and os.path.isdir(path) and not os.path.islink(path):
            yield name, path


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


def find_key(folder: str, told: Mapping[str, Any] | None) -> SessionKey | None:
    """Returns the session of a copy, from its summary or, without one, from its first line."""
    try:
        if told is not None:
            return from_json(SessionKey, told.get("key"))
        path = os.path.join(folder, EVENTS)
        with open(open_regular(path), "rb") as file:
            line = file.readline(_EVENTS_BYTES)
        return parse_event(json.loads(line)).key
    except (OSError, ValueError, RecursionError, TypeError):
        return None


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


def _run_of(folder: str) -> str | None:
    """Returns the run id of a copy, from its summary, its first line or its folder name."""
    told = load_summary(folder)
    if told and isinstance(told.get("run"), str):
        return told["run"]
    lines = load_lines(folder)
    if lines:
        try:
            data = json.loads(lines[0])
        except (ValueError, RecursionError):
            data = None
        if isinstance(data, dict) and isinstance(data.get("run"), str):
            return data["run"]
    _, _, run = os.path.basename(folder).partition("Z-")
    return run or None


async def _in_log(
    log: EventLog | None, run: str, told: Mapping[str, Any] | None
) -> tuple[SessionRecord | None, RunSummary | None]:
    """Looks a run up in the log. Reads the session that the copy names first, because a log can have many."""
    if log is None:
        return None, None
    named = named_session(told)
    infos = list(await all_sessions(log))
    infos.sort(key=lambda info: (info.key.session == named, info.updated_at), reverse=True)
    own: SessionRecord | None = None
    for info in infos:
        record = await read_session(log, info.key)
        summary = record.find(run)
        if summary is not None:
            return record, summary
        if info.key.session == named:
            own = record
    return own, None


def named_session(told: Mapping[str, Any] | None) -> str | None:
    """Returns the session that the run.json of a copy names."""
    if told is None:
        return None
    key = told.get("key")
    if not isinstance(key, dict):
        return None
    session = key.get("session")
    if not isinstance(session, str):
        return None
    return session


async def _known(log: EventLog | None, thoroughly: bool) -> dict[str, SessionInfo]:
    """Returns every run of the log, children too. `thoroughly` reads all lines, not only the first of a run."""
    found: dict[str, SessionInfo] = {}
    if log is None:
        return found
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
