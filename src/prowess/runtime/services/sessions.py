"""Lists the sessions of the log, whoever owns them, and finds one of them."""

from __future__ import annotations

import difflib
import json
import shlex
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from prowess.core.events import parse_event
from prowess.core.ports import EventLog
from prowess.core.values import SessionInfo, SessionKey
from prowess.errors import AuditBroken, StoreError, in_one_line
from prowess.records.sessions import all_sessions
from prowess.records.summary import RunSummary, summarise
from prowess.runtime.runtime import Runtime
from prowess.runtime.services.find_run import opened
from prowess.runtime.storage import name_log, store_name, workspace_dir

OWNER = ("tenant", "app", "user")


class SessionRow(NamedTuple):
    """Session in a list. `runs` is None for a damaged session, and `damage` says what is wrong."""

    session: str
    tenant: str
    app: str
    user: str
    created_at: str
    updated_at: str
    expires_at: str | None
    events: int
    runs: int | None
    last_request: str | None
    stop_reason: str | None
    damage: str | None


class SessionList(NamedTuple):
    """Sessions of a store, last used first. `more` counts the others; `pruned` counts expired ones, now removed."""

    store: str
    sessions: list[SessionRow]
    more: int
    pruned: int


async def list_sessions(runtime: Runtime, *, limit: int = 20) -> SessionList:
    """Returns at most `limit` sessions, and removes the expired ones."""
    async with opened(runtime) as (log, store):
        if log is None:
            return SessionList(store, [], 0, 0)
        pruned = 0
        prune = getattr(log, "prune_expired", None)
        if prune is not None:
            pruned = await prune()
        infos = list(await all_sessions(log))
        infos.sort(key=lambda info: (info.updated_at, info.key), reverse=True)
        rows = [await _row(log, info) for info in infos[:limit]]
        more = max(0, len(infos) - limit)
        return SessionList(store, rows, more, pruned)


async def _row(log: EventLog, info: SessionInfo) -> SessionRow:
    """Returns the row of a session. A damaged session gets one, too, so that it does not hide the others."""
    try:
        # Parses only the lines where a run begins or ends: a session can have very many others.
        lines = [line async for line in log.lines(info.key) if '"type":"run_' in line]
        events = [parse_event(json.loads(line)) for line in lines]
        runs = summarise(events)
    except (AuditBroken, ValueError) as broken:
        return session_row(info, (), damage=in_one_line(broken))
    return session_row(info, runs)


def session_row(info: SessionInfo, runs: Sequence[RunSummary], damage: str | None = None) -> SessionRow:
    """Returns the row of a session with these runs. `damage` says why they cannot be counted."""
    last_request = stop_reason = None
    for run in runs:
        last_request = run.request or last_request
        stop_reason = run.stop_reason
    return SessionRow(
        session=info.key.session,
        tenant=info.key.tenant,
        app=info.key.app,
        user=info.key.user,
        created_at=info.created_at,
        updated_at=info.updated_at,
        expires_at=info.expires_at,
        events=info.head.seq,
        runs=None if damage else len(runs),
        last_request=last_request,
        stop_reason=stop_reason,
        damage=damage,
    )


@asynccontextmanager
async def opened_session(runtime: Runtime, key: SessionKey) -> AsyncIterator[tuple[SessionInfo, EventLog]]:
    """Yields a session and the log that has it. Raises StoreError when there is no such session."""
    async with opened(runtime) as (log, _):
        if log is not None:
            for info in await log.sessions(key.tenant):
                if info.key == key:
                    yield info, log
                    return
    raise _unknown(key.session, ())


async def find_session(runtime: Runtime, session: str, owner: Mapping[str, str | None]) -> SessionKey:
    """Returns the session of this name. `owner` names tenant, app and user, as far as they are known. Raises StoreError
    when there is none, or more than one."""
    known = {part: name for part, name in owner.items() if name is not None}
    SessionKey(session=session, **known)  # raises for names that no session can have
    keys: list[SessionKey] = []
    async with opened(runtime) as (log, _):
        if log is not None:
            keys += [info.key for info in await all_sessions(log)]
    named = [key for key in keys if key.session == session]
    found = [key for key in named if all(getattr(key, part) == name for part, name in known.items())]
    if len(found) == 1:
        return found[0]
    if found:
        problem = f"Several owners have a session '{session}'."
        raise StoreError(problem, code="session-ambiguous", hint=f"Add {render_owners(found)}.")
    if named:
        asked = ", ".join(f"{part} '{name}'" for part, name in known.items())
        problem = f"No session '{session}' of {asked}."
        raise StoreError(problem, code="session-unknown", hint=f"There is one with {render_owners(named)}.")
    raise _unknown(session, [key.session for key in keys])


def render_owners(keys: Sequence[SessionKey]) -> str:
    """Renders `--user ann or --user bob`: what tells the owners apart, or else the whole owner."""
    parts = [part for part in OWNER if len({getattr(key, part) for key in keys}) > 1] or OWNER
    options: list[str] = []
    for key in keys[:10]:
        words = [f"--{part} {shlex.quote(getattr(key, part))}" for part in parts]
        options.append(" ".join(words))
    return " or ".join(options)


def _unknown(session: str, names: Sequence[str]) -> StoreError:
    """Makes the error about a session that does not exist. Names similar ones."""
    hint = "See: prowess sessions list"
    near = [name for name in names if name.startswith(session)]
    near = near[:3] or difflib.get_close_matches(session, names, n=3)
    if near:
        meant = " or ".join(near)
        hint = f"Did you mean {meant}? {hint}"
    return StoreError(f"No session '{session}'.", code="session-unknown", hint=hint)


def session_place(runtime: Runtime, log: EventLog | None = None) -> tuple[str, str]:
    """Returns (folder of the workspaces, name of the store), which give each session its lock and its workspace. `log`
    is the store of the session if it is not the configured one."""
    folder = workspace_dir(runtime.config, runtime.places)
    if log is not None:
        return folder, name_log(log, runtime.places.project)
    return folder, store_name(runtime.config, runtime.places)
