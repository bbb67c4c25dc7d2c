"""Finds a run by its id, the beginning of its id, its folder or a path: in the log, as a copy, or both."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from prowess._internal.files import open_regular, read_regular
from prowess.core.codec import from_json
from prowess.core.events import Envelope, parse_event
from prowess.core.ports import EventLog
from prowess.core.values import SessionInfo, SessionKey
from prowess.errors import AuditBroken, StoreError
from prowess.records.audit import SessionRecord, read_session
from prowess.records.chain import without_duplicates
from prowess.records.summary import RunSummary
from prowess.runtime.runtime import Runtime
from prowess.runtime.storage import open_log, runs_folder
from prowess.stores.run_folders import EVENTS, SUMMARY

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
    log = open_log(runtime.config, runtime.places)
    place = str(getattr(log, "path", "")) or "memory:"
    try:
        yield None if _is_missing_file(place) else log, place
    finally:
        await log.close()


def _is_missing_file(place: str) -> bool:
    return os.path.isabs(place) and not os.path.exists(place)


async def find_run(runtime: Runtime, log: EventLog | None, ref: str) -> FoundRun:
    """Returns the run that `ref` names. Raises StoreError when there is none, or more than one."""
    folder = _folder_at(ref) if _is_path(ref) else None
    if folder is not None:
        run = _run_of(folder)
        return await _copied(log, run, folder) if run else FoundRun(os.path.basename(folder), None, None, folder)
    folders = {name.partition("-")[2]: path for name, path in copies(runs_folder(runtime.places))}
    wanted = ref.rpartition("Z-")[2] if ref[:1].isdigit() else ref
    if wanted in folders:
        return await _copied(log, wanted, folders[wanted])
    for thoroughly in (False, True):  # a run whose first line was changed is found by its other lines
        known: dict[str, SessionInfo | None] = dict.fromkeys(folders)
        known |= await _known(log, thoroughly)
        meant = [wanted] if wanted in known else [run for run in known if wanted and run.startswith(wanted)]
        if len(meant) == 1:
            return await _found(log, meant[0], known[meant[0]], folders)
        if meant:
            break
    raise _unknown(ref, list(known), several=meant)


async def _found(log: EventLog | None, run: str, info: SessionInfo | None, folders: Mapping[str, str]) -> FoundRun:
    if info is None or log is None:
        return await _copied(log, run, folders[run])
    record = await read_session(log, info.key)
    summary = record.find(run)
    whole = summary.run if summary else run  # for a child run, the run that it belongs to
    return FoundRun(whole, record, summary, folders.get(whole))


async def _copied(log: EventLog | None, run: str, folder: str) -> FoundRun:
    record, summary = await _in_log(log, run, load_summary(folder))
    return FoundRun(run, record, summary, folder)


def events_of(found: FoundRun) -> RunEvents:
    """Returns the events from the log, else from the copy. Raises AuditBroken when nothing is readable."""
    if found.record is not None and found.summary is not None:
        lines = [line.text for line in found.record.slice(found.summary) if line.text is not None]
        return RunEvents(lines, found.record.of(found.summary), found.summary)
    lines = (load_lines(found.folder) if found.folder else None) or []
    copied = SessionRecord.of_lines(lines)
    if not copied.runs:
        raise AuditBroken(
            f"The record of run '{found.run}' cannot be read.",
            hint=f"See what is wrong with it: prowess runs verify {found.folder or found.run}",
        )
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
    try:
        data = read_regular(os.path.join(folder, SUMMARY), _SUMMARY_BYTES)
        document = json.loads(data, object_pairs_hook=without_duplicates) if len(data) <= _SUMMARY_BYTES else None
    except (OSError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def find_key(folder: str, told: Mapping[str, Any] | None) -> SessionKey | None:
    """Returns the session of a copy, from its summary or, without one, from its first line."""
    try:
        if told is not None:
            return from_json(SessionKey, told.get("key"))
        with open(open_regular(os.path.join(folder, EVENTS)), "rb") as file:
            return parse_event(json.loads(file.readline(_EVENTS_BYTES))).key
    except (OSError, ValueError, RecursionError, TypeError):
        return None


def load_lines(folder: str) -> list[str] | None:
    """Returns the lines of a copy unchecked, or None when events.jsonl cannot be read."""
    try:
        data = read_regular(os.path.join(folder, EVENTS), _EVENTS_BYTES)
    except OSError:
        return None
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _is_path(ref: str) -> bool:
    return os.sep in ref or ref.endswith(".jsonl") or ref in (".", "..")


def _folder_at(ref: str) -> str:
    path = os.path.abspath(ref)
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    if not os.path.isdir(path) and os.path.basename(path) not in (EVENTS, SUMMARY):
        raise StoreError(
            f"There is no record at '{ref[:200]}'.",
            code="run-unknown",
            hint="Name the folder of a run, or its events.jsonl; see: prowess runs list",
        )
    if not os.path.isfile(os.path.join(folder, EVENTS)):
        raise StoreError(
            f"There is no {EVENTS} in '{folder[:200]}'.",
            code="run-unknown",
            hint="Name the folder of a run; see: prowess runs list",
        )
    return folder


def _run_of(folder: str) -> str | None:
    """Returns the run id of a copy, from its summary, its first line or its folder name."""
    told = load_summary(folder)
    if told and isinstance(told.get("run"), str):
        return told["run"]
    for line in (load_lines(folder) or [])[:1]:
        try:
            data = json.loads(line)
        except (ValueError, RecursionError):
            break
        if isinstance(data, dict) and isinstance(data.get("run"), str):
            return data["run"]
    return os.path.basename(folder).partition("Z-")[2] or None


async def _in_log(
    log: EventLog | None, run: str, told: Mapping[str, Any] | None
) -> tuple[SessionRecord | None, RunSummary | None]:
    """Looks a run up in the log. Reads the session that the copy names first, because a log can have many."""
    if log is None:
        return None, None
    key = told.get("key") if told else None
    named = key.get("session") if isinstance(key, dict) else None
    infos = sorted(await log.sessions(), key=lambda info: (info.key.session == named, info.updated_at), reverse=True)
    own: SessionRecord | None = None
    for info in infos:
        record = await read_session(log, info.key)
        if (summary := record.find(run)) is not None:
            return record, summary
        if info.key.session == named:
            own = record
    return own, None


async def _known(log: EventLog | None, thoroughly: bool) -> dict[str, SessionInfo]:
    """Returns every run of the log, children too. `thoroughly` reads all lines, not only the first of a run."""
    found: dict[str, SessionInfo] = {}
    if log is None:
        return found
    for info in await log.sessions():
        if not thoroughly:
            found |= dict.fromkeys(await _begun(log, info), info)
            continue
        record = await read_session(log, info.key)
        for summary in record.runs:
            found |= dict.fromkeys((summary.run, *summary.children), info)
    return found


async def _begun(log: EventLog, info: SessionInfo) -> list[str]:
    runs: list[str] = []
    try:
        async for line in log.lines(info.key):
            if isinstance(line, str) and '"type":"run_started"' in line:
                runs.append(parse_event(json.loads(line)).run)
    except (StoreError, ValueError, RecursionError, TypeError):
        return runs  # damaged: the thorough search finds the rest
    return runs


def _unknown(ref: str, runs: list[str], several: list[str]) -> StoreError:
    if len(several) > 1:
        return StoreError(
            f"'{ref[:100]}' can be one of {len(several)} runs.",
            code="run-ambiguous",
            hint=f"Give more of its id: {', '.join(several[:4])}.",
        )
    near = difflib.get_close_matches(ref, runs, n=3)
    meant = f"Did you mean {' or '.join(near)}? " if near else ""
    return StoreError(f"No run '{ref[:100]}'.", code="run-unknown", hint=f"{meant}See: prowess runs list")
