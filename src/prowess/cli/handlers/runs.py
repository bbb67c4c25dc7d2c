"""Handlers of `prowess runs`: check and remove recorded runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from prowess.cli.app import Call, confirm_removal
from prowess.cli.call import note_findings
from prowess.cli.handlers.workspaces import parse_age
from prowess.cli.screen import Screen, count, size
from prowess.core.findings import visible
from prowess.errors import ConfigError
from prowess.records.audit import Check
from prowess.runtime.services.cleanup import OldRecords, find_old_records, remove_records
from prowess.runtime.services.find_run import describe_foreign
from prowess.runtime.services.verify_run import VerifiedRun, VerifiedSession, VerifiedStore, verify_run, verify_store

if TYPE_CHECKING:
    from prowess.runtime.documents.runs import (
        PrunedCopy,
        RunsPrunedDocument,
        RunsVerifiedDocument,
        RunVerifiedDocument,
    )


# --- verify -----------------------------------------------------------------------------------------------------------


def verify(call: Call, run: str | None, everything: bool) -> int:
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
        if result.foreign is not None:
            call.screen.note(visible(describe_foreign(result.foreign)))
        _show_run(call.screen, result)
    return 0 if result.check.valid and not result.findings else 1


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
            if not run.check.valid or run.findings or screen.verbose:
                _show_run(screen, run)
        screen.note(_summary(found))
    return 1 if found.invalid or found.differing else 0


def _summary(found: VerifiedStore) -> str:
    """Renders `2 sessions · 5 runs · all valid · 1 copy differs`."""
    parts = [count(len(found.sessions), "session"), count(len(found.runs), "run")]
    if found.invalid:
        invalid = count(found.invalid, "of them is", "of them are")
        parts.append(f"{invalid} not valid")
    else:
        parts.append("all valid")
    if found.differing:
        parts.append(count(found.differing, "copy differs", "copies differ"))
    return " · ".join(parts)


def _session_line(session: VerifiedSession) -> str:
    name = f"session {session.session}"
    if session.check.valid:
        return _valid(name, session.check)
    return _invalid(name, session.check)


def _show_run(screen: Screen, run: VerifiedRun) -> None:
    if not run.check.valid:
        screen.text(_invalid(run.run, run.check))
    else:
        screen.text(_valid(run.run, run.check, " · log and copy" if run.has_copy and not run.findings else ""))
    for finding in run.findings:
        screen.note(f"{finding.severity}: {visible(finding.path)}: {finding.message} {finding.hint} [{finding.code}]")


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


# --- prune ------------------------------------------------------------------------------------------------------------


def prune(call: Call, older_than: str | None, keep: int | None, sessions: bool, dry_run: bool, yes: bool) -> int:
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
