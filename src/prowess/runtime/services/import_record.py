"""Takes over the sessions of a record that somebody else wrote, or that lies at another place."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from prowess._internal.paths import user_path
from prowess.core.events import PLACE, Envelope, SessionImported, UnknownEvent, render_at
from prowess.core.ports import EventLog
from prowess.core.values import SessionKey
from prowess.errors import ConfigError, StoreError
from prowess.records.audit import SessionRecord, check_session, read_session
from prowess.records.chain import GENESIS, link
from prowess.records.sessions import all_sessions
from prowess.runtime.project_state import note_taken
from prowess.runtime.runtime import Runtime
from prowess.runtime.services.sessions import session_place
from prowess.runtime.storage import open_store
from prowess.runtime.take_over import find_old_record
from prowess.stores.foreign_sqlite import open_foreign
from prowess.workspace.session_folder import hold_session

ImportStatus = Literal["imported", "already-there", "conflict", "damaged"]


class ImportedSession(NamedTuple):
    """`why`: reason why a session was not imported."""

    key: SessionKey
    events: int
    status: ImportStatus
    why: str | None = None


class Imported(NamedTuple):
    file: str
    store: str
    sessions: list[ImportedSession]


async def import_record(runtime: Runtime, file: str, *, mine: bool = False) -> Imported:
    """Imports every session that verifies. Answers in them do not count, and what waited is asked again; with `mine`,
    they count as your own."""
    path = user_path(runtime.places.cwd, file)
    if runtime.config.store == "memory:":
        raise ConfigError(
            "The store is memory:, so what is imported would be gone at once.",
            code="import-into-memory",
            hint="Name a store that stays, or leave the setting store out.",
        )
    found: list[ImportedSession] = []
    log = open_store(runtime.config, runtime.places)
    place = str(getattr(log, "path", "")) or str(runtime.config.store)
    try:
        if _is_same(place, path):
            raise ConfigError(f"{path} is the store itself.", code="import-into-itself", hint="Name another file.")
        async with open_foreign(path) as source:
            for info in await all_sessions(source):
                record = await read_session(source, info.key)
                with hold_session(*session_place(runtime), info.key):
                    found.append(await _import(log, info.key, record, None if mine else path))
    finally:
        await log.close()
    is_whole = all(each.status in ("imported", "already-there") for each in found)
    if is_whole:
        _note_taken(runtime, path)
    return Imported(path, place, found)


def _is_same(one: str, other: str) -> bool:
    return os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other)


def _note_taken(runtime: Runtime, path: str) -> None:
    """Notes that nothing is left to import in the project folder, if that was its record."""
    old = find_old_record(runtime.places)
    if old is not None and _is_same(old, path):
        note_taken(runtime.places, os.lstat(old).st_ino)


async def _import(log: EventLog, key: SessionKey, record: SessionRecord, source: str | None) -> ImportedSession:
    """Imports one session. `source`: where it came from, if it is not the user's own."""
    checked = check_session(record)
    if not checked.valid:
        return ImportedSession(key, checked.events, "damaged", checked.why)
    head = record.lines[-1].hash if record.lines else None
    known = [info.head for info in await log.sessions(key.tenant, app=key.app, user=key.user) if info.key == key]
    if known and known[0].seq:
        is_known = known[0].seq >= len(record.lines) and await _hash_at(log, key, len(record.lines)) == head
        status: ImportStatus = "already-there" if is_known else "conflict"
        why = None if is_known else "the store has another session of this name"
        return ImportedSession(key, len(record.lines), status, why)
    events = [
        _as_it_is(envelope, line.data or {}) for envelope, line in zip(record.envelopes, record.lines, strict=True)
    ]
    try:
        _, hashes = link(key, GENESIS, events)
    except StoreError as error:
        return ImportedSession(key, len(events), "damaged", error.message)
    if hashes and hashes[-1] != head:
        return ImportedSession(key, len(events), "damaged", "it has fields that this release does not know")
    lease = await log.lease(key, owner=f"prowess runs import, pid {os.getpid()}")
    ended = [] if source is None or not events else [_note_import(key, events[-1].run, source, len(events))]
    # One append, which is whole or not at all: without its last event, the answers in the session would count.
    await log.append(key, 0, lease, [*events, *ended])
    return ImportedSession(key, len(events), "imported")


def _note_import(key: SessionKey, run: str, source: str, events: int) -> Envelope:
    return Envelope(
        at=render_at(datetime.now(UTC)),
        tenant=key.tenant,
        app=key.app,
        user=key.user,
        session=key.session,
        run=run,
        event=SessionImported(source=source, events=events),
    )


def _as_it_is(envelope: Envelope, data: Mapping[str, Any]) -> Envelope:
    """Returns the event with the fields that its line has: the chain is over them, and today an event has others."""
    fields = {name: value for name, value in data.items() if name not in PLACE}
    return replace(envelope, event=UnknownEvent(type=str(data["type"]), data=fields))


async def _hash_at(log: EventLog, key: SessionKey, seq: int) -> str | None:
    async for envelope in log.read(key, after_seq=seq - 1):
        return envelope.hash
    return None
