"""A record in a project folder as the release before the state folder wrote it: database of three migrations, marks."""

from __future__ import annotations

import hashlib
import hmac
import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from prowess.core.events import (
    ApprovalAnswered,
    ApprovalAsked,
    CallDecided,
    CallPlanned,
    Envelope,
    Event,
    RunFinished,
    RunStarted,
)
from prowess.core.values import ChainHead, Decision, SessionKey, ToolCall
from prowess.records.chain import GENESIS, link
from prowess.stores.migrations import SQLITE
from prowess.stores.sqlite import migrate

AT = "2026-01-02T03:04:05.000000Z"
_KEY = bytes(range(32))
_ROW = "INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, 1, 'old', ?, ?, NULL, NULL, NULL)"


def write_key(home: Path, key: bytes = _KEY) -> None:
    """The key of the marks, as this home had it."""
    folder = home / ".prowess"
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / "record-key.json").write_text(json.dumps({"schema": "prowess.record-key/1", "key": key.hex()}))


def waiting(run: str = "r-old") -> list[Event]:
    """A run that waits for an answer about one call."""
    call = ToolCall(id="c1", tool="write_file", args={"path": "out/a.txt", "content": "hi"})
    return [
        RunStarted(model="offline", request="Write it"),
        CallPlanned(call=call),
        CallDecided(call_id="c1", decision=Decision(verdict="ask", rule="default", why="It asks.")),
        ApprovalAsked(call_id="c1", why="It asks.", capability="write_file"),
        RunFinished(stop_reason="waiting"),
    ]


def write_old_record(
    project: Path, sessions: dict[str, Sequence[Event]], *, key: bytes | None = _KEY, place: Path | None = None
) -> Path:
    """Writes `.agent/prowess.db`. `key`: of the marks; None writes none. `place`: where the marks say that it lies."""
    path = project / ".agent" / "prowess.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        migrate(connection, str(path), AT, SQLITE[:3])
        for name, events in sessions.items():
            add_session(connection, name, events, key, place or path)
    return path


def add_session(
    connection: sqlite3.Connection, name: str, events: Sequence[Event], key: bytes | None, place: Path
) -> None:
    session = SessionKey(session=name)
    head = GENESIS
    for event in events:
        envelope = Envelope(at=AT, session=name, run=f"r-{name}", event=event)
        lines, hashes = link(session, head, [_marked(envelope, head.hash, key, place)])
        head = ChainHead(seq=head.seq + 1, hash=hashes[0])
        owner = (session.tenant, session.app, session.user, name)
        connection.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", (*owner, head.seq, lines[0]))
    connection.execute(_ROW, ("default", "default", "default", name, head.seq, head.hash, AT, AT))


def _marked(envelope: Envelope, prev: str, key: bytes | None, place: Path) -> Envelope:
    event = envelope.event
    if key is None or not isinstance(event, RunStarted | ApprovalAsked | ApprovalAnswered):
        return envelope
    said: tuple[object, ...]
    if isinstance(event, RunStarted):
        said = (None,) if event.resume_arguments is None else event.resume_arguments
    elif isinstance(event, ApprovalAsked):
        said = (event.call_id, event.capability)
    else:
        said = (event.call_id, event.capability, event.answer, event.later)
    owner = (envelope.tenant, envelope.app, envelope.user)
    text = json.dumps([str(place), *owner, envelope.session, envelope.run, prev, event.type, *said])
    mark = hmac.new(key, text.encode("ascii"), hashlib.sha256).hexdigest()
    return replace(envelope, event=replace(event, mark=mark))
