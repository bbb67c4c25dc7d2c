"""Services behind `prowess runs`, `sessions`, `artifacts` and `workspaces`, called from Python."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from prowess.core.events import ApprovalAnswered
from prowess.core.values import ArtifactRef, Decision, SessionKey, ToolCall
from prowess.errors import ConfigError, StoreError
from prowess.models.scripted import ScriptedModel
from prowess.runtime.runtime import Runtime, open_runtime
from prowess.runtime.services.artifacts import find_artifact, get_artifacts, list_artifacts, remove_artifacts
from prowess.runtime.services.cleanup import (
    clean_workspaces,
    delete_session,
    find_old_records,
    list_workspaces,
    look_at_session,
    remove_records,
)
from prowess.runtime.services.replay_run import choose_settings, find_recorded, replay_run
from prowess.runtime.services.runs import list_runs
from prowess.runtime.services.sessions import list_sessions, opened_session, session_place
from prowess.runtime.services.verify_run import read_run, verify_run, verify_store
from prowess.workspace.session_folder import OpenPlace, hold_session
from state_places import database_of

KEY = SessionKey(session="s-one")


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    (tmp_path / ".agent").mkdir()
    with open_runtime(cwd=str(tmp_path), environ={**os.environ, "PROWESS_TRUST": "1"}) as runtime:
        yield runtime


async def play(runtime: Runtime, request: str = "Say hello") -> str:
    """A run that is recorded, and its id."""
    async with runtime.open_session(session=KEY.session, model=ScriptedModel([{"text": "Hello."}])) as session:
        await session.run(request)
    return (await list_runs(runtime, limit=1)).runs[0].run


def test_a_run_is_listed_read_and_verified(runtime: Runtime, tmp_path: Path) -> None:
    async def go() -> None:
        run = await play(runtime)
        row = (await list_sessions(runtime)).sessions[0]
        assert (row.session, row.runs, row.last_request) == (KEY.session, 1, "Say hello")
        read = await read_run(runtime, run[:4])
        assert read.events.summary.text == "Hello." and read.damage is None and not read.unreadable
        assert (await verify_run(runtime, run)).check.valid
        events = next((tmp_path / ".agent" / "runs").glob("*/events.jsonl"))
        events.write_text(events.read_text(encoding="utf-8").replace("Hello.", "Goodbye."), encoding="utf-8")
        verified = await verify_run(runtime, run)
        assert verified.check.valid and [finding.code for finding in verified.findings] == ["copy-differs"]
        found = await verify_store(runtime)
        assert (found.invalid, found.differing) == (0, 1)
        assert (await read_run(runtime, run)).damage is None, "the log is read, and it is whole"

    asyncio.run(go())


@pytest.mark.parametrize("owner", [{"tenant": "other"}, {"app": "other"}, {"user": "other"}])
def test_what_is_cut_off_is_not_valid_whoever_owns_it(runtime: Runtime, tmp_path: Path, owner: dict[str, Any]) -> None:
    """A row that counts fewer events than are there, with the hash of the last one that it counts."""

    async def go() -> None:
        own = await play(runtime)
        model = ScriptedModel([{"text": "Hello."}])
        async with runtime.open_session(session=KEY.session, model=model, **owner) as session:
            await session.run("Say hello")
        theirs = (await list_runs(runtime, limit=1)).runs[0].run
        with closing(sqlite3.connect(database_of(tmp_path))) as database, database:
            (part,) = owner
            (line,) = database.execute(f"SELECT line FROM events WHERE {part} = 'other' AND seq = 3").fetchone()
            head = json.loads(line)["hash"]
            database.execute(f"UPDATE sessions SET seq = 3, hash = ? WHERE {part} = 'other'", (head,))
        assert not (await verify_run(runtime, theirs)).check.valid
        assert (await verify_run(runtime, own)).check.valid
        found = await verify_store(runtime)
        wrong = [session for session in found.sessions if not session.check.valid]
        assert [(each.session, each.check.first_bad) for each in wrong] == [(KEY.session, 4)]
        assert f"of {part} 'other'" in str(wrong[0].check.why)
        assert len(found.sessions) == 2

    asyncio.run(go())


def test_a_session_whose_key_is_not_text_is_not_valid(runtime: Runtime, tmp_path: Path) -> None:
    asyncio.run(play(runtime))
    with closing(sqlite3.connect(database_of(tmp_path))) as database, database:
        for table in ("sessions", "events"):
            database.execute(f"UPDATE {table} SET tenant = CAST(tenant AS BLOB)")
    (row,) = asyncio.run(verify_store(runtime)).sessions
    assert not row.check.valid and "not text" in str(row.check.why)


def test_a_run_is_replayed_with_an_approver_that_is_handed_in(runtime: Runtime, tmp_path: Path) -> None:
    async def nobody(call: ToolCall, decision: Decision) -> ApprovalAnswered | None:
        raise AssertionError("nothing in this run is asked about")

    async def go(request: str) -> Any:
        found = await find_recorded(runtime, await play(runtime, request))
        settings = choose_settings(found.recorded, cwd=str(tmp_path))
        with open_runtime(cwd=str(tmp_path), environ=os.environ, flags=settings.flags) as other:
            return await replay_run(other, found, settings, nobody)

    replayed = asyncio.run(go("Say hello"))
    assert replayed.difference is None and replayed.error is None and replayed.notes == []
    again = asyncio.run(go("And again"))
    assert again.difference is None and "earlier runs" in again.notes[0]


def test_old_records_and_sessions_are_removed_unless_they_are_in_use(runtime: Runtime) -> None:
    async def go() -> None:
        run = await play(runtime)
        old = await find_old_records(runtime, before=time.time(), with_sessions=True)
        assert [copy.run for copy in old.copies] == [run] and old.sessions == [KEY]
        assert (await find_old_records(runtime, before=time.time(), keep=1, with_sessions=True)).sessions == []
        assert (await remove_records(runtime, old, dry_run=True)).removed.sessions == [KEY]
        assert (await look_at_session(runtime, KEY)).events > 0
        removed, kept = await remove_records(runtime, old._replace(sessions=()))
        assert [copy.run for copy in removed.copies] == [run] and not kept
        async with opened_session(runtime, KEY) as (info, _):
            assert info.key == KEY, "the log keeps what the folder had"
        await delete_session(runtime, KEY, [])
        with pytest.raises(StoreError) as gone:
            await look_at_session(runtime, KEY)
        assert gone.value.code == "session-unknown"

    asyncio.run(go())


def test_a_session_in_use_is_kept(runtime: Runtime) -> None:
    async def go() -> None:
        await play(runtime)
        old = await find_old_records(runtime, before=time.time(), with_sessions=True)
        with hold_session(*session_place(runtime), KEY):
            removed, kept = await remove_records(runtime, old)
        assert not removed.sessions and "in use" in kept[0]

    asyncio.run(go())


def test_workspaces_are_listed_and_cleaned(runtime: Runtime) -> None:
    dir, store = session_place(runtime)
    with OpenPlace(dir, KEY, store=store):
        assert clean_workspaces(runtime).removed.places == [], "it is in use"
    found = list_workspaces(runtime)
    assert [info.session for info in found.left.places] == [KEY.session]
    assert clean_workspaces(runtime, older_than_s=3600.0).removed.places == []
    cleaned = clean_workspaces(runtime)
    assert [info.path for info in cleaned.removed.places] == [info.path for info in found.left.places]
    assert list_workspaces(runtime).left.places == []


def test_an_artifact_is_found_without_its_session(runtime: Runtime) -> None:
    async def go() -> None:
        store = get_artifacts(runtime)
        other = SessionKey(session="s-two")
        await store.save(KEY, "report.md", b"one")
        await store.save(other, "chart.svg", b"two")
        assert [row.session for row in await list_artifacts(store, KEY, everywhere=True)] == ["s-one", "s-two"]
        assert [row.session for row in await list_artifacts(store, KEY)] == ["s-one"]
        assert await find_artifact(store, KEY, "chart.svg", everywhere=True) == other
        await store.save(other, "report.md", b"three")
        with pytest.raises(ConfigError) as several:
            await find_artifact(store, KEY, "report.md", everywhere=True)
        assert several.value.code == "artifact-ambiguous"
        removed = await remove_artifacts(store, KEY, [ArtifactRef(name="report.md")])
        assert [each.ref for each in removed] == ["artifact://report.md@0"]

    asyncio.run(go())
