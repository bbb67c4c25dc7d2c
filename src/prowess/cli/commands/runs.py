"""Command `prowess runs`: lists the runs. The other actions have modules of their own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any

import click

from prowess._internal.text import one_line
from prowess.cli.app import Call, actions, verb
from prowess.cli.call import note_findings
from prowess.cli.commands.runs_prune import prune
from prowess.cli.commands.runs_replay import replay
from prowess.cli.commands.runs_show import diff, export, show
from prowess.cli.commands.runs_verify import verify
from prowess.cli.timeline import short_time
from prowess.core.events import Envelope, parse_event
from prowess.core.findings import visible
from prowess.core.ports import EventLog
from prowess.core.values import SessionInfo
from prowess.errors import AuditBroken, StoreError
from prowess.records.summary import RunSummary, find_resuming, is_cut_off, summarise
from prowess.runtime.factories import runs_folder
from prowess.runtime.runtime import Runtime
from prowess.runtime.services.find_run import copies, load_summary, opened

_MOST = 1_000_000
_REQUEST = 60  # characters of a request in the list


@verb("list", example="prowess runs list\nprowess runs list --session s-1f2e --json")
@click.option("--session", metavar="ID", help="Only of this session.")
@click.option("--limit", type=click.IntRange(1, _MOST), default=20, show_default=True, help="At most so many.")
def list_runs(call: Call, session: str | None, limit: int) -> int:
    """Show the runs there are, the last one first.

    A run that exists only as a copy, because its session was removed or has expired, is marked.
    """
    with call.runtime() as runtime:
        note_findings(call, runtime)
        store, rows, more, damaged = asyncio.run(_list(runtime, session, limit))
    if call.screen.is_json:
        document = {"store": store, "runs": rows, "more": more, "damaged": damaged}
        call.screen.document({"schema": "prowess.runs/1", **document})
        return 0
    if rows:
        columns = ["run", "began", "session", "model", "ended", "request"]
        call.screen.table(columns, [_cells(row) for row in rows])
    others = f" · there are more: --limit {limit * 5}" if more else ""
    call.screen.note(f"\n{len(rows)} {'run' if len(rows) == 1 else 'runs'}{others} · {visible(store)}")
    for name in damaged:
        call.screen.note(f"warning: session {visible(name)} is damaged: prowess runs verify --all")
    return 0


async def _list(runtime: Runtime, session: str | None, limit: int) -> tuple[str, list[dict[str, Any]], bool, list[str]]:
    async with opened(runtime) as (log, store):
        infos = await log.sessions() if log is not None else []
        wanted = [info for info in infos if session in (None, info.key.session)]
        if session is not None and not wanted:
            raise StoreError(f"No session '{session}'.", code="session-unknown", hint="See: prowess sessions list")
        found: list[dict[str, Any]] = []
        damaged: list[str] = []
        if log is not None:
            stray = {each.session for each in await log.strays()}
            damaged = sorted(name for name in stray if session in (None, name))
        for info in sorted(wanted, key=lambda each: each.updated_at, reverse=True):
            # No run of a session can begin after its last event.
            if len(found) > limit and _nth(found, limit)["started_at"] > info.updated_at:
                break
            if log is not None:
                rows, broken = await _rows(log, info)
                found += rows
                damaged += [info.key.session] if broken and info.key.session not in damaged else []
    known = {info.key.session for info in infos}
    found += _only_copies(runs_folder(runtime.places), known, session, limit + 1)
    found.sort(key=lambda row: row["started_at"], reverse=True)
    return store, found[:limit], len(found) > limit, damaged


def _nth(rows: list[dict[str, Any]], number: int) -> dict[str, Any]:
    return sorted(rows, key=lambda row: row["started_at"], reverse=True)[number - 1]


async def _rows(log: EventLog, info: SessionInfo) -> tuple[list[dict[str, Any]], bool]:
    """Parses only the lines where a run begins or ends: a session can have very many others."""
    envelopes, broken = await _read(log, info, '"type":"run_')
    runs = summarise(envelopes)
    if any(summary.finished_at is None for summary in runs):  # then only the replies show its usage
        envelopes, broken = await _read(log, info, '"type":"run_', '"type":"model_replied"', '"type":"compacted"')
        runs = summarise(envelopes)
    return [_row(summary, runs) for summary in runs], broken


async def _read(log: EventLog, info: SessionInfo, *kinds: str) -> tuple[list[Envelope], bool]:
    found: list[Envelope] = []
    try:
        async for line in log.lines(info.key):
            if any(kind in line for kind in kinds):
                found.append(parse_event(json.loads(line)))
    except (AuditBroken, ValueError, RecursionError, TypeError):
        return found, True
    return found, any(envelope.key != info.key for envelope in found)


def _row(summary: RunSummary, runs: Sequence[RunSummary]) -> dict[str, Any]:
    usage = summary.usage
    return {
        "run": summary.run,
        "session": summary.key.session,
        "started_at": summary.started_at,
        "finished_at": summary.finished_at,
        "model": summary.model,
        "request": one_line(summary.request, 1000),
        "stop_reason": summary.stop_reason,
        "cut_off": is_cut_off(runs, summary),
        "resumes": summary.resumes,
        "resumed_by": find_resuming(runs, summary),
        "tokens": usage.input + usage.output,
        "children": len(summary.children),
        "in_log": True,
    }


def _only_copies(folder: str, known: set[str], session: str | None, limit: int) -> Iterator[dict[str, Any]]:
    found = 0
    for name, path in copies(folder):
        told = load_summary(path)
        key = told.get("key") if told else None
        where = key.get("session") if isinstance(key, dict) else None
        if told is None or where is None or where in known or session not in (None, where):
            continue
        usage = told.get("usage")
        tokens = [usage.get(side) for side in ("input", "output")] if isinstance(usage, dict) else []
        yield {
            "run": str(told.get("run") or name.partition("Z-")[2]),
            "session": str(where),
            "started_at": str(told.get("started_at") or ""),
            "finished_at": _text(told.get("finished_at")),
            "model": str(told.get("model") or ""),
            "request": one_line(str(told.get("request") or ""), 1000),
            "stop_reason": _text(told.get("stop_reason")),
            "cut_off": told.get("finished_at") is None,
            "resumes": _text(told.get("resumes")),
            "resumed_by": None,
            "tokens": sum(number for number in tokens if type(number) is int),
            "children": 0,
            "in_log": False,
        }
        found += 1
        if found >= limit:
            return


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _cells(row: dict[str, Any]) -> list[str]:
    ended = row["stop_reason"] or ("cut off" if row["cut_off"] else "has not ended")
    ended += f", resumed by {row['resumed_by']}" if row["cut_off"] and row["resumed_by"] else ""
    session = row["session"] if row["in_log"] else f"{row['session']} (copy)"
    instead = f"(goes on with {row['resumes']})" if row["resumes"] else "-"
    request = one_line(row["request"] or instead, _REQUEST)
    return [row["run"], short_time(row["started_at"]), session, row["model"], ended, request]


command = actions(
    "runs",
    {
        "list": list_runs,
        "show": show,
        "verify": verify,
        "replay": replay,
        "diff": diff,
        "export": export,
        "prune": prune,
    },
    help="Show, check, repeat, compare, export and remove the records of runs.\n\nWithout an action, the list.",
    example="prowess runs\nprowess runs show r-1f2e\nprowess runs verify --all --json",
)
