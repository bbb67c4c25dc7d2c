"""Command `prowess sessions`: lists, shows and deletes sessions."""

from __future__ import annotations

import asyncio
import difflib
import json
import sys
from collections.abc import Sequence
from typing import Any

import click

from prowess._internal.text import one_line
from prowess.cli.app import Call, actions, verb
from prowess.cli.call import note_findings
from prowess.cli.screen import count
from prowess.cli.timeline import short_time, show
from prowess.core.events import parse_event
from prowess.core.findings import visible
from prowess.core.ports import ArtifactStore, EventLog
from prowess.core.values import ChainHead, SessionInfo, SessionKey, artifact_scope, render_artifact_ref
from prowess.errors import AuditBroken, ConfigError, SkillDenied, StoreError
from prowess.records.summary import RunSummary, summarise
from prowess.records.timeline import tell
from prowess.runtime.factories import store_name, workspace_dir
from prowess.runtime.runtime import Runtime
from prowess.runtime.services.documents import finding_row
from prowess.runtime.services.find_run import opened
from prowess.workspace.session_folder import hold_session, remove_place

_MOST = 1_000_000
_REQUEST = 60  # characters of a request in the list


# --- list -------------------------------------------------------------------------------------------------------------


@verb("list", example="prowess sessions list\nprowess sessions list --limit 100 --json")
@click.option("--limit", type=click.IntRange(1, _MOST), default=20, show_default=True, help="At most so many.")
def list_sessions(call: Call, limit: int) -> int:
    """Show the sessions there are, the one used last first.

    Expired sessions are removed.
    """
    with call.runtime() as runtime:
        note_findings(call, runtime)
        store, rows, more, pruned = asyncio.run(_list(runtime, limit))
        if call.screen.is_json:
            findings = [finding_row(finding) for finding in runtime.setup_findings]
            document = {"store": store, "sessions": rows, "more": more, "pruned": pruned, "findings": findings}
            call.screen.document({"schema": "prowess.sessions/1", **document})
            return 0
    if rows:
        call.screen.table(["session", "used", "runs", "events", "ended", "last request"], [_cells(row) for row in rows])
    others = f" · {more} more: --limit {len(rows) + more}" if more else ""
    gone = f" · removed {count(pruned, 'expired session')}" if pruned else ""
    call.screen.note(f"\n{count(len(rows) + more, 'session')}{others}{gone} · {visible(store)}")
    return 0


async def _list(runtime: Runtime, limit: int) -> tuple[str, list[dict[str, Any]], int, int]:
    async with opened(runtime) as (log, store):
        if log is None:
            return store, [], 0, 0
        prune = getattr(log, "prune_expired", None)
        pruned = await prune() if prune is not None else 0
        infos = sorted(await log.sessions(), key=lambda info: (info.updated_at, info.key), reverse=True)
        return store, [await _row(log, info) for info in infos[:limit]], max(0, len(infos) - limit), pruned


async def _row(log: EventLog, info: SessionInfo) -> dict[str, Any]:
    """Returns the row of a session. A damaged session gets one, too, so that it does not hide the others."""
    runs: list[RunSummary] = []
    damage = None
    try:
        # Parses only the lines where a run begins or ends: a session can have very many others.
        lines = [line async for line in log.lines(info.key) if '"type":"run_' in line]
        runs = summarise(parse_event(json.loads(line)) for line in lines)
    except (AuditBroken, ValueError) as broken:
        damage = str(broken)
    return _known(info, runs, damage)


def _known(info: SessionInfo, runs: Sequence[RunSummary], damage: str | None = None) -> dict[str, Any]:
    last = runs[-1] if runs else None
    asked = next((run.request for run in reversed(runs) if run.request), None)
    return {
        "session": info.key.session,
        "created_at": info.created_at,
        "updated_at": info.updated_at,
        "expires_at": info.expires_at,
        "events": info.head.seq,
        "runs": None if damage else len(runs),
        "last_request": asked and one_line(asked, 1000),
        "stop_reason": last.stop_reason if last else None,
        "damage": damage,
    }


def _cells(row: dict[str, Any]) -> list[str]:
    ended = "damaged" if row["damage"] else row["stop_reason"] or ("has not ended" if row["runs"] else "-")
    runs = "?" if row["runs"] is None else str(row["runs"])
    asked = one_line(row["last_request"] or "-", _REQUEST)
    return [row["session"], short_time(row["updated_at"]), runs, str(row["events"]), ended, asked]


# --- show -------------------------------------------------------------------------------------------------------------


@verb("show", example="prowess sessions show s-1f2e\nprowess sessions show s-1f2e --events | jq .type")
@click.argument("id")
@click.option("--events", is_flag=True, help="Print the events as they are stored, one per line.")
def show_session(call: Call, id: str, events: bool) -> int:
    """Show what was asked, loaded, called and answered in a session, run by run."""
    key = SessionKey(session=id)
    with call.runtime() as runtime:
        note_findings(call, runtime)
        if events:
            asyncio.run(_print_lines(runtime, key))
            return 0
        info, runs = asyncio.run(_tell(runtime, key))
    if call.screen.is_json:
        summaries = [RunSummary(key=key, **{name: run[name] for name in _SHORT}) for run in runs]
        call.screen.document({"schema": "prowess.session/1", **_known(info, summaries), "conversation": runs})
        return 0
    show(call.screen, runs)
    expiry = f" · expires {short_time(info.expires_at)}" if info.expires_at else ""
    call.screen.note(f"\n{count(len(runs), 'run')} · {count(info.head.seq, 'event')}{expiry}")
    return 0


_SHORT = ("run", "started_at", "request", "stop_reason")


async def _tell(runtime: Runtime, key: SessionKey) -> tuple[SessionInfo, list[dict[str, Any]]]:
    async with opened(runtime) as (log, _):
        info, known = await _find(log, key)
        return info, tell([envelope async for envelope in known.read(key)])


async def _print_lines(runtime: Runtime, key: SessionKey) -> None:
    async with opened(runtime) as (log, _):
        _, known = await _find(log, key)
        async for line in known.lines(key):
            sys.stdout.write(f"{line}\n")


# --- delete -----------------------------------------------------------------------------------------------------------


@verb("delete", example="prowess sessions delete s-1f2e\nprowess sessions delete s-1f2e --files --yes")
@click.argument("id")
@click.option("--files", is_flag=True, help="Its workspace and its artifacts as well.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def delete(call: Call, id: str, files: bool, yes: bool) -> int:
    """Remove a session: what was said and done in it, for good.

    The user's own artifacts stay in any case. A session that is in use is not removed.
    """
    key = SessionKey(session=id)
    with call.runtime() as runtime:
        note_findings(call, runtime)
        head, artifacts = asyncio.run(_look(runtime, key))
        if not yes:
            _confirm(id, head, files, artifacts)
        workspace = asyncio.run(_delete(runtime, key, artifacts if files else None))
    removed = [render_artifact_ref(name, version) for name, version in artifacts] if files else []
    if call.screen.is_json:
        document = {"session": id, "events": head.seq, "workspace": workspace, "artifacts": removed}
        call.screen.document({"schema": "prowess.session-deleted/1", **document})
        return 0
    call.screen.text(f"removed  {visible(id)}  {count(head.seq, 'event')}")
    for thing in (*([workspace] if workspace else []), *removed):
        call.screen.text(f"removed  {visible(thing)}")
    if artifacts and not files:
        call.screen.note(f"{count(len(artifacts), 'saved file')} of it left: prowess artifacts list --session {id}")
    return 0


async def _look(runtime: Runtime, key: SessionKey) -> tuple[ChainHead, list[tuple[str, int]]]:
    async with opened(runtime) as (log, _):
        info, _ = await _find(log, key)
    return info.head, await _artifacts(runtime.open_artifacts(), key)


async def _artifacts(store: ArtifactStore | None, key: SessionKey) -> list[tuple[str, int]]:
    if store is None:
        return []
    names = [name for name in await store.names(key) if not artifact_scope(name)[0]]
    return [(name, version) for name in names for version in await store.versions(key, name)]


async def _delete(runtime: Runtime, key: SessionKey, artifacts: Sequence[tuple[str, int]] | None) -> str | None:
    """Removes the files, and the record last: while the record is there, a failed removal can be repeated."""
    folder, named = workspace_dir(runtime.config, runtime.places), store_name(runtime.config, runtime.places)
    workspace = None
    with hold_session(folder, named, key):
        if artifacts is not None:
            workspace = remove_place(folder, named, key)
            if (store := runtime.open_artifacts()) is not None:
                for name, version in artifacts:
                    await store.delete(key, name, version=version)
        async with opened(runtime) as (log, _):
            _, known = await _find(log, key)
            await known.delete(key)
    return workspace


def _confirm(id: str, head: ChainHead, files: bool, artifacts: Sequence[tuple[str, int]]) -> None:
    with_files = f", its workspace and {count(len(artifacts), 'saved file')}" if files else ""
    what = f"session '{id}' with {count(head.seq, 'event')}{with_files}"
    if not sys.stdin.isatty():
        raise ConfigError(
            f"The {what} would be removed, and nobody is there to say yes.", code="needs-yes", hint="Add --yes."
        )
    if not click.confirm(f"Remove {visible(what)}?", err=True):
        raise SkillDenied("Nothing was removed.", code="not-confirmed", hint="")


# --- find the session ------------------------------------------------------------------------------------------------


async def _find(log: EventLog | None, key: SessionKey) -> tuple[SessionInfo, EventLog]:
    infos = await log.sessions() if log is not None else []
    for info in infos:
        if info.key == key and log is not None:
            return info, log
    names = [info.key.session for info in infos]
    near = [name for name in names if name.startswith(key.session)][:3]
    near = near or difflib.get_close_matches(key.session, names, n=3)
    meant = f"Did you mean {' or '.join(near)}? " if near else ""
    raise StoreError(f"No session '{key.session}'.", code="session-unknown", hint=f"{meant}See: prowess sessions list")


command = actions(
    "sessions",
    {"list": list_sessions, "show": show_session, "delete": delete},
    help="Show and remove what was said and done in sessions.\n\nWithout an action, the list.",
    example="prowess sessions list --json\nprowess sessions show s-1f2e",
)
