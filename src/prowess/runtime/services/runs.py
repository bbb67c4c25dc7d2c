"""Lists the runs of the log."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from prowess.core.events import Envelope, parse_event
from prowess.core.values import SessionInfo
from prowess.errors import AuditBroken, StoreError
from prowess.records.sessions import all_sessions
from prowess.records.summary import RunSummary, find_resuming, is_cut_off, summarise
from prowess.runtime.runtime import Runtime
from prowess.runtime.services.find_run import opened

if TYPE_CHECKING:
    from prowess.core.ports import EventLog


class RunRow(NamedTuple):
    run: str
    session: str
    started_at: str
    finished_at: str | None
    model: str
    request: str
    stop_reason: str | None
    cut_off: bool
    resumes: str | None
    resumed_by: str | None
    tokens: int
    children: int


class RunList(NamedTuple):
    """Newest runs of a store. `more`: there are others; `damaged` are sessions that cannot be read whole."""

    store: str
    runs: list[RunRow]
    more: bool
    damaged: list[str]


async def list_runs(runtime: Runtime, *, session: str | None = None, limit: int = 20) -> RunList:
    """Returns at most `limit` runs, newest first, of one session or of all."""
    found: list[RunRow] = []
    damaged: list[str] = []
    infos: Sequence[SessionInfo] = ()
    async with opened(runtime) as (log, store):
        if log is not None:
            infos = await all_sessions(log)
        wanted = [info for info in infos if session in (None, info.key.session)]
        if session is not None and not wanted:
            raise StoreError(f"No session '{session}'.", code="session-unknown", hint="See: prowess sessions list")
        if log is not None:
            orphans = {orphan.session for orphan in await log.orphans()}
            damaged += sorted(name for name in orphans if session in (None, name))
            found = _sorted(await _newest(log, wanted, limit, damaged))
    return RunList(store, found[:limit], len(found) > limit, damaged)


async def _newest(log: EventLog, infos: Sequence[SessionInfo], limit: int, damaged: list[str]) -> list[RunRow]:
    """Returns at least the `limit` newest runs, and adds the sessions that are damaged to `damaged`."""
    found: list[RunRow] = []
    newest_first = sorted(infos, key=lambda each: each.updated_at, reverse=True)
    for info in newest_first:
        # No run of a session can begin after its last event.
        if len(found) > limit and _sorted(found)[limit - 1].started_at > info.updated_at:
            break
        rows, broken = await _rows(log, info)
        found += rows
        session = info.key.session
        if broken and session not in damaged:
            damaged.append(session)
    return found


def _sorted(rows: list[RunRow]) -> list[RunRow]:
    """Returns the runs, newest first."""
    return sorted(rows, key=lambda row: row.started_at, reverse=True)


async def _rows(log: EventLog, info: SessionInfo) -> tuple[list[RunRow], bool]:
    """Parses only the lines where a run begins or ends: a session can have very many others."""
    envelopes, broken = await _read(log, info, '"type":"run_')
    runs = summarise(envelopes)
    finished = [summary.finished_at for summary in runs]
    if None in finished:  # then only the replies show its usage
        envelopes, broken = await _read(log, info, '"type":"run_', '"type":"model_replied"', '"type":"compacted"')
        runs = summarise(envelopes)
    rows = [_row(summary, runs) for summary in runs]
    return rows, broken


async def _read(log: EventLog, info: SessionInfo, *kinds: str) -> tuple[list[Envelope], bool]:
    """Parses the lines of these kinds. Returns them, and True when the session is damaged."""
    found: list[Envelope] = []
    try:
        async for line in log.lines(info.key):
            if any(kind in line for kind in kinds):
                event = parse_event(json.loads(line))
                found.append(event)
    except (AuditBroken, ValueError, RecursionError, TypeError):
        return found, True
    is_mixed = any(envelope.key != info.key for envelope in found)
    return found, is_mixed


def _row(summary: RunSummary, runs: Sequence[RunSummary]) -> RunRow:
    return RunRow(
        run=summary.run,
        session=summary.key.session,
        started_at=summary.started_at,
        finished_at=summary.finished_at,
        model=summary.model,
        request=summary.request,
        stop_reason=summary.stop_reason,
        cut_off=is_cut_off(runs, summary),
        resumes=summary.resumes,
        resumed_by=find_resuming(runs, summary),
        tokens=summary.usage.input + summary.usage.output,
        children=len(summary.children),
    )
