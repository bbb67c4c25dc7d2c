"""prowess sessions: what people and programs see of it, what is refused, and what is gone after a delete."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from command_lines import Cli
from guard import GUARD_S
from prowess.core.events import (
    ApprovalAnswered,
    ApprovalAsked,
    CallActed,
    CallDecided,
    CallPlanned,
    Compacted,
    Envelope,
    Event,
    ModelReplied,
    RunFinished,
    RunStarted,
    SkillLoaded,
    SkillUnloaded,
    UnknownEvent,
    parse_event,
)
from prowess.core.values import Decision, Outcome, SessionKey, ToolCall, Usage
from prowess.stores.artifacts import FolderArtifacts
from prowess.stores.sqlite import SqliteEventLog
from prowess.workspace.session_folder import OpenPlace, hold_session
from state_places import database_of


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, project: Path) -> Cli:
    monkeypatch.chdir(project)
    return Cli(capfd, "sessions")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".agent").mkdir()
    return tmp_path


def record(project: Path, session: str, *parts: tuple[str, Sequence[Event | UnknownEvent]], day: int = 2) -> None:
    async def go() -> None:
        async with SqliteEventLog(database_of(project)) as log:
            key = SessionKey(session=session)
            lease, seq = await log.lease(key), 0
            for run, events in parts:
                at = f"2026-01-{day:02}T03:04:05.000006Z"
                given = [Envelope(at=at, session=session, run=run, event=event) for event in events]
                seq += len(await log.append(key, seq, lease, given))

    asyncio.run(go())


def call(id: str, outcome: Outcome | None, tool: str = "skill_run", **args: Any) -> list[Event]:
    decision = Decision(verdict="allow", rule="isolated", why="runs inside a sandbox")
    events: list[Event] = [
        CallPlanned(call=ToolCall(id=id, tool=tool, args=args)),
        CallDecided(call_id=id, decision=decision),
    ]
    return [*events, CallActed(call_id=id, outcome=outcome)] if outcome else events


CHART = [
    RunStarted(model="scripted:x", request="Make a chart\nof sales.csv"),
    SkillLoaded(id="builtin:csv-report", name="csv-report", digest="sha256:1", trigger="model"),
    ModelReplied(text="I will run the report."),
    *call("c1", Outcome(status="ok", content="42 rows"), script="report.py", args=["sales.csv"]),
    ApprovalAsked(call_id="c2", why="it wants the network"),
    ApprovalAnswered(call_id="c2", answer="no", by="the user"),
    *call("c2", Outcome(status="denied", code="denied-by-user"), tool="network_request", url="http://x"),
    SkillUnloaded(id="builtin:csv-report"),
    Compacted(why="context", before_tokens=90, after_tokens=40),
    UnknownEvent(type="of_tomorrow"),
    ModelReplied(text="Here is the chart.\n\nIt is in out/."),
    RunFinished(stop_reason="answer", text="Here is the chart.\n\nIt is in out/.", usage=Usage(input=10, output=5)),
]
CUT = [
    RunStarted(model="scripted:x", request="And now as PDF", resumes="r-0"),
    *call("c1", None, script="pdf.py"),
]


# --- list


def test_without_a_record_there_is_nothing_and_nothing_is_made(cli: Cli, project: Path) -> None:
    assert cli("list") == cli() == "" and "0 sessions" in cli.err
    assert cli.json()["sessions"] == []
    assert not database_of(project).exists()
    assert cli.refused("show", "s-1")["code"] == "session-unknown"
    assert not database_of(project).exists()


def test_the_list_has_the_last_used_first(cli: Cli, project: Path) -> None:
    record(project, "s-old", ("r-1", CHART))
    record(project, "s-new", ("r-2", CHART), ("r-3", CUT))
    lines = cli().splitlines()
    assert lines[0].split() == ["SESSION", "USED", "RUNS", "EVENTS", "ENDED", "LAST", "REQUEST"]
    assert [line.split()[0] for line in lines[1:]] == ["s-new", "s-old"]
    assert "And now as PDF" in lines[1] and "has not ended" in lines[1]
    assert "Make a chart of sales.csv" in lines[2] and "answer" in lines[2]
    assert "2 sessions" in cli.err and str(database_of(project)) in cli.err
    first, second = cli.json("list")["sessions"]
    assert (first["session"], first["runs"], first["stop_reason"]) == ("s-new", 2, None)
    assert (second["events"], second["last_request"]) == (len(CHART), "Make a chart of sales.csv")


def test_the_list_can_be_short_and_says_so(cli: Cli, project: Path) -> None:
    for number in range(5):
        record(project, f"s-{number}", ("r", [RunStarted(model="m", request="x" * 500)]))
    assert len(cli("--limit", "2").splitlines()) == 3 and "3 more: --limit 5" in cli.err
    document = cli.json("list", "--limit", "2")
    assert (len(document["sessions"]), document["more"]) == (2, 3)
    assert all(len(line) < 160 for line in cli().splitlines())
    assert cli.refused("list", "--limit", "0")["code"] == "usage"


def test_a_damaged_session_does_not_hide_the_others(cli: Cli, project: Path) -> None:
    record(project, "s-1", ("r-1", CHART))
    record(project, "s-2", ("r-2", CHART))
    with closing(sqlite3.connect(database_of(project))) as connection:
        connection.execute("DELETE FROM events WHERE session = 's-1' AND seq = 3")
        connection.commit()
    rows = {row["session"]: row for row in cli.json("list")["sessions"]}
    assert rows["s-1"]["damage"] and rows["s-1"]["runs"] is None and rows["s-2"]["runs"] == 1
    assert "damaged" in cli()
    assert cli.refused("show", "s-1")["code"] == "audit-broken"
    cli("delete", "s-1", "--yes")
    assert [row["session"] for row in cli.json("list")["sessions"]] == ["s-2"]


def test_expired_sessions_are_removed(cli: Cli, project: Path) -> None:
    record(project, "s-1", ("r-1", CHART))
    record(project, "s-2", ("r-2", CHART))

    async def expire() -> None:
        async with SqliteEventLog(database_of(project)) as log:
            await log.expire(SessionKey(session="s-1"), "2026-01-01T00:00:00Z")
            await log.expire(SessionKey(session="s-2"), "2999-01-01T00:00:00Z")

    asyncio.run(expire())
    assert cli.refused("show", "s-1")["code"] == "session-unknown"
    document = cli.json("list")
    assert document["pruned"] == 1
    assert [row["expires_at"] for row in document["sessions"]] == ["2999-01-01T00:00:00.000000Z"]
    cli("show", "s-2")
    assert "expires 2999-01-01" in cli.err


# --- show


def test_a_session_reads_like_a_conversation(cli: Cli, project: Path) -> None:
    record(project, "s-1", ("r-1", CHART), ("r-2", CUT))
    shown = cli("show", "s-1")
    assert shown.splitlines() == [
        "r-1 · 2026-01-02 03:04 · scripted:x",
        "> Make a chart",
        "  of sales.csv",
        "* loaded csv-report (by the model)",
        "  I will run the report.",
        '- skill_run {"args": ["sales.csv"], "script": "report.py"}  ok',
        "! asked: it wants the network",
        "! answered by the user: no",
        '- network_request {"url": "http://x"}  denied [denied-by-user]',
        "* unloaded csv-report",
        "! shortened the conversation: 90 to 40 tokens (context)",
        "! of_tomorrow (of a newer release)",
        "",
        "Here is the chart.",
        "",
        "It is in out/.",
        "",
        "r-2 · 2026-01-02 03:04 · scripted:x · goes on with r-0",
        "> And now as PDF",
        '- skill_run {"script": "pdf.py"}  unfinished',
    ]
    assert "answer · 16 events · 15 tokens" in cli.err and "has not ended" in cli.err and "2 runs" in cli.err
    document = cli.json("show", "s-1")
    assert [run["run"] for run in document["conversation"]] == ["r-1", "r-2"]
    assert document["conversation"][1]["said"] == [
        {
            "run": "r-2",
            "kind": "call",
            "id": "c1",
            "text": 'skill_run {"script": "pdf.py"}',
            "status": "unfinished",
            "code": None,
        }
    ]
    assert (document["runs"], document["last_request"], document["stop_reason"]) == (2, "And now as PDF", None)


def test_a_child_run_stands_in_its_parent(cli: Cli, project: Path) -> None:
    child = [RunStarted(model="m", request="Look it up", parent="r-1"), ModelReplied(text="Found.")]
    finished = [RunFinished(stop_reason="answer", text="Done.")]
    record(
        project,
        "s-1",
        ("r-1", [RunStarted(model="m", request="Do it")]),
        ("r-2", [*child, RunFinished(stop_reason="answer", text="Found.")]),
        ("r-1", finished),
    )
    assert cli("show", "s-1").splitlines() == [
        "r-1 · 2026-01-02 03:04 · m",
        "> Do it",
        "  + child run r-2: Look it up",
        "    Found.",
        "",
        "Done.",
    ]
    assert cli.json("list")["sessions"][0]["runs"] == 1


def test_the_events_are_printed_as_they_are_stored(cli: Cli, project: Path) -> None:
    record(project, "s-1", ("r-1", CHART))
    for args in (("show", "s-1", "--events"), ("show", "s-1", "--events", "--json")):
        lines = cli(*args).splitlines()
        assert [parse_event(json.loads(line)).event for line in lines] == CHART


def test_nothing_that_was_said_reaches_the_terminal_unescaped(cli: Cli, project: Path) -> None:
    nasty = "\x1b]0;owned\x07 \u202e evil"
    events: list[Event | UnknownEvent] = [
        RunStarted(model=nasty, request=nasty),
        SkillLoaded(id=nasty, name=nasty, digest=nasty, trigger="model"),
        *call("c1", Outcome(status="failed", code=nasty), tool=nasty, arg=nasty),
        ModelReplied(text=nasty),
        UnknownEvent(type=nasty),
        RunFinished(stop_reason="error", text=nasty, code=nasty),
    ]
    record(project, "s-1", (f"r{nasty}", events))
    shown = cli("show", "s-1") + cli.err + cli("list") + cli.err
    assert "owned" in shown and "\x1b" not in shown and "\x07" not in shown and "\u202e" not in shown
    cli.json("show", "s-1")


def test_an_unknown_session_is_told_with_what_comes_close(cli: Cli, project: Path) -> None:
    record(project, "s-12345", ("r-1", CHART))
    record(project, "report", ("r-1", CHART))
    assert "Did you mean s-12345?" in cli.refused("show", "s-12")["hint"]
    assert "Did you mean report?" in cli.refused("show", "reprot")["hint"]
    assert cli.refused("delete", "nothing like it", "--yes")["hint"] == "See: prowess sessions list"
    assert cli.refused("show", "../x\n")["code"] == "session-key-invalid"
    assert cli.refused("show")["code"] == "usage"


def test_a_session_without_runs_can_be_shown(cli: Cli, project: Path) -> None:
    record(project, "empty")
    assert cli("show", "empty") == "" and "0 runs · 0 events" in cli.err
    assert cli.json("list")["sessions"][0]["runs"] == 0
    assert cli("list").splitlines()[1].split()[-2:] == ["-", "-"]


# --- delete


def test_a_deleted_session_is_gone_and_the_others_stay(cli: Cli, project: Path) -> None:
    record(project, "s-1", ("r-1", CHART))
    record(project, "s-2", ("r-2", CHART))
    error = cli.refused("delete", "s-1")
    assert error["code"] == "needs-yes" and len(cli.json("list")["sessions"]) == 2
    assert cli("delete", "s-1", "--yes") == "removed  s-1  16 events\n"
    assert cli.refused("show", "s-1")["code"] == "session-unknown"
    document = cli.json("delete", "s-2", "--yes")
    assert document == {
        "schema": "prowess.session-deleted/1",
        "session": "s-2",
        "events": 16,
        "workspace": None,
        "artifacts": [],
    }
    assert cli.json("list")["sessions"] == []


def test_its_files_go_only_when_asked_for(cli: Cli, project: Path, workspace_dir: str) -> None:
    store = FolderArtifacts(database_of(project).with_name("artifacts"))
    other = SessionKey(session="other")
    for session in ("s-1", "s-2"):
        key = SessionKey(session=session)
        record(project, session, ("r-1", CHART))
        with OpenPlace(workspace_dir, key, store=str(project / ".agent" / "prowess.db")) as place:
            Path(place.root, "out", "chart.png").write_bytes(b"x")
        asyncio.run(store.save(key, "chart.png", b"x"))
        asyncio.run(store.save(key, "user:mine.txt", b"x"))
    asyncio.run(store.save(other, "chart.png", b"x"))
    cli("delete", "s-1", "--yes")
    assert "1 saved file of it left" in cli.err
    assert asyncio.run(store.names(SessionKey(session="s-1"))) == ["chart.png", "user:mine.txt"]
    document = cli.json("delete", "s-2", "--files", "--yes")
    assert document["artifacts"] == ["artifact://chart.png@0"] and not os.path.exists(document["workspace"])
    assert asyncio.run(store.names(SessionKey(session="s-2"))) == ["user:mine.txt"]
    assert asyncio.run(store.names(other)) == ["chart.png", "user:mine.txt"]
    left = os.listdir(os.path.join(workspace_dir, "workspaces"))
    assert any(name.startswith("s-1-") for name in left) and not any(name.startswith("s-2-") for name in left)


def test_a_session_that_somebody_works_in_stays(cli: Cli, project: Path, workspace_dir: str) -> None:
    key = SessionKey(session="s-1")
    record(project, "s-1", ("r-1", CHART))
    with hold_session(workspace_dir, str(project / ".agent" / "prowess.db"), key):
        assert cli.refused("delete", "s-1", "--yes")["code"] == "session-in-use"
    with OpenPlace(workspace_dir, key, store=str(project / ".agent" / "prowess.db")):
        assert cli.refused("delete", "s-1", "--yes", "--files")["code"] == "workspace-in-use"
    assert len(cli.json("list")["sessions"]) == 1
    cli("delete", "s-1", "--yes", "--files")


@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 0), (b"n\n", 3), (b"\x04", 130)])
def test_on_a_terminal_it_asks(project: Path, answer: bytes, code: int) -> None:
    record(project, "s-1", ("r-1", CHART))
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "prowess", "sessions", "delete", "s-1"]
    with subprocess.Popen(
        command, cwd=project, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        os.close(theirs)
        os.write(ours, answer)
        out, err = process.communicate(timeout=GUARD_S)
    os.close(ours)
    assert process.returncode == code, err
    assert b"16 events?" in err and bool(out) == (code == 0)
