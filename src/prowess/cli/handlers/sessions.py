"""Handlers of `prowess sessions`."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from prowess._internal.text import one_line
from prowess.cli.app import Call, confirm_removal
from prowess.cli.call import note_findings
from prowess.cli.screen import count
from prowess.cli.timeline import short_time, show
from prowess.core.codec import to_json
from prowess.core.events import Envelope
from prowess.core.findings import visible
from prowess.core.values import SessionInfo, SessionKey, render_artifact_ref
from prowess.records.story import tell
from prowess.records.summary import summarise
from prowess.runtime.runtime import Runtime
from prowess.runtime.services.cleanup import delete_session, look_at_session
from prowess.runtime.services.documents import finding_row
from prowess.runtime.services.sessions import (
    OWNER,
    SessionRow,
    find_session,
    list_sessions,
    opened_session,
    session_row,
)

if TYPE_CHECKING:
    from prowess.runtime.documents.runs import SessionDeletedDocument, SessionParts, SessionsDocument

_REQUEST = 60  # characters of a request in the list
_LONG_REQUEST = 1000  # the same, as JSON


# --- list -------------------------------------------------------------------------------------------------------------


def show_sessions(call: Call, limit: int) -> int:
    screen = call.screen
    with call.runtime() as runtime:
        note_findings(call, runtime)
        store, sessions, more, pruned = asyncio.run(list_sessions(runtime, limit=limit))
        if screen.is_json:
            rows = [_document(row) for row in sessions]
            findings = [finding_row(finding) for finding in runtime.setup_findings]
            document: SessionsDocument = {
                "schema": "prowess.sessions/1",
                "store": store,
                "sessions": rows,
                "more": more,
                "pruned": pruned,
                "findings": findings,
            }
            screen.document(document)
            return 0
    if sessions:
        owner = [part for part in reversed(OWNER) if any(getattr(row, part) != "default" for row in sessions)]
        columns = ["session", *owner, "used", "runs", "events", "ended", "last request"]
        cells = [_cells(row, owner) for row in sessions]
        screen.table(columns, cells)
    total = len(sessions) + more
    summary = count(total, "session")
    if more:
        summary += f" · {more} more: --limit {total}"
    if pruned:
        expired = count(pruned, "expired session")
        summary += f" · removed {expired}"
    screen.note(f"\n{summary} · {visible(store)}")
    return 0


def _document(row: SessionRow) -> SessionParts:
    request = _request(row)
    return to_json(row._replace(last_request=request))


def _request(row: SessionRow) -> str | None:
    if not row.last_request:
        return row.last_request
    return one_line(row.last_request, _LONG_REQUEST)


def _cells(row: SessionRow, owner: Sequence[str]) -> list[str]:
    owners = [getattr(row, part) for part in owner]
    used = short_time(row.updated_at)
    runs = "?" if row.runs is None else str(row.runs)
    ended = _ended(row)
    asked = _request(row) or "-"
    return [row.session, *owners, used, runs, str(row.events), ended, one_line(asked, _REQUEST)]


def _ended(row: SessionRow) -> str:
    if row.damage:
        return "damaged"
    if row.stop_reason:
        return row.stop_reason
    if row.runs:
        return "has not ended"
    return "-"


# --- show -------------------------------------------------------------------------------------------------------------


def show_session(call: Call, id: str, events: bool, owner: Mapping[str, str | None]) -> int:
    with call.runtime() as runtime:
        note_findings(call, runtime)
        key = asyncio.run(find_session(runtime, id, owner))
        if events:
            asyncio.run(_print_lines(runtime, key))
            return 0
        info, envelopes = asyncio.run(_read(runtime, key))
    runs = tell(envelopes)
    if call.screen.is_json:
        row = session_row(info, summarise(envelopes))
        call.screen.document({"schema": "prowess.session/1", **_document(row), "conversation": runs})
        return 0
    show(call.screen, runs)
    parts = [f"{part} {visible(name)}" for part, name in key.owner.items()]
    parts += [count(len(runs), "run"), count(info.head.seq, "event")]
    if info.expires_at:
        expiry = short_time(info.expires_at)
        parts.append(f"expires {expiry}")
    summary = " · ".join(parts)
    call.screen.note(f"\n{summary}")
    return 0


async def _read(runtime: Runtime, key: SessionKey) -> tuple[SessionInfo, list[Envelope]]:
    async with opened_session(runtime, key) as (info, log):
        envelopes = [envelope async for envelope in log.read(key)]
        return info, envelopes


async def _print_lines(runtime: Runtime, key: SessionKey) -> None:
    async with opened_session(runtime, key) as (_, log):
        async for line in log.lines(key):
            sys.stdout.write(f"{line}\n")


# --- delete -----------------------------------------------------------------------------------------------------------


def delete(call: Call, id: str, files: bool, yes: bool, owner: Mapping[str, str | None]) -> int:
    with call.runtime() as runtime:
        note_findings(call, runtime)
        key = asyncio.run(find_session(runtime, id, owner))
        events, artifacts = asyncio.run(look_at_session(runtime, key))
        number = count(events, "event")
        saved = count(len(artifacts), "saved file")
        if not yes:
            whose = "".join(f" of {part} {name}" for part, name in key.owner.items())
            what = f"session '{id}'{whose} with {number}"
            if files:
                what += f", its workspace and {saved}"
            confirm_removal(what, refused=f"The {what}", hint="Add --yes.")
        workspace = asyncio.run(delete_session(runtime, key, artifacts if files else None))
    removed: list[str] = []
    if files:
        removed += [render_artifact_ref(name, version) for name, version in artifacts]
    if call.screen.is_json:
        document: SessionDeletedDocument = {
            "schema": "prowess.session-deleted/1",
            "session": id,
            "events": events,
            "workspace": workspace,
            "artifacts": removed,
        }
        call.screen.document(document)
        return 0
    call.screen.text(f"removed  {visible(id)}  {number}")
    if workspace:
        call.screen.text(f"removed  {visible(workspace)}")
    for ref in removed:
        call.screen.text(f"removed  {visible(ref)}")
    if artifacts and not files:
        words = ["prowess", "artifacts", "list", "--session", id]
        for part, name in key.owner.items():
            words += [f"--{part}", name]
        call.screen.note(f"{saved} of it left: {visible(shlex.join(words))}")
    return 0
