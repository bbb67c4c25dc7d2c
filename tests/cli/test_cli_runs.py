"""prowess runs: the record of a run is shown, checked, repeated, compared, exported and removed."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from command_lines import Cli
from guard import GUARD_S
from prowess.core.events import (
    ApprovalAnswered,
    ApprovalAsked,
    CallActed,
    CallDecided,
    CallPlanned,
    CatalogPlanned,
    Compacted,
    Envelope,
    EpochStarted,
    ErrorRaised,
    Event,
    ModelReplied,
    ModelRequested,
    NoteAppended,
    PlanChanged,
    RunFinished,
    RunStarted,
    SkillLoaded,
    SkillUnloaded,
    UnknownEvent,
    render_event,
)
from prowess.core.values import CatalogPlan, Decision, Outcome, Part, Plan, SessionKey, Step, TokenUse, ToolCall, Usage
from prowess.records.audit import SessionRecord, check_run, check_session
from prowess.records.diff import first_difference, settled
from prowess.records.spans import render_spans
from prowess.records.timeline import timeline
from prowess.runtime.services.replay import Recorded
from prowess.stores.run_folders import CopyingLog, CopyPlace
from prowess.stores.sqlite import SqliteEventLog
from prowess.workspace.session_folder import hold_session
from state_places import database_of


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, project: Path) -> Cli:
    monkeypatch.chdir(project)
    return Cli(capfd, "runs")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".agent").mkdir()
    return tmp_path


def record(project: Path, session: str, *parts: tuple[str, Sequence[Event | UnknownEvent]], day: int = 2) -> None:
    """As a run would have written it."""

    async def go() -> None:
        inner = SqliteEventLog(database_of(project))
        log = CopyingLog(inner, CopyPlace(str(project), in_project=True), on_problem=told.append)
        key = SessionKey(session=session)
        lease, seq = await log.lease(key), 0
        for run, events in parts:
            for number, event in enumerate(events):
                at = f"2026-01-{day:02}T03:04:{number:02}.500000Z"
                given = [Envelope(at=at, session=session, run=run, event=event)]
                seq += len(await log.append(key, seq, lease, given))
        await log.close()

    told: list[str] = []
    asyncio.run(go())
    assert told == []


def call(id: str, outcome: Outcome | None, tool: str = "skill_run", **args: Any) -> list[Event]:
    decision = Decision(verdict="allow", rule="table:isolated", why="It runs isolated.")
    events: list[Event] = [
        CallPlanned(call=ToolCall(id=id, tool=tool, args=args)),
        CallDecided(call_id=id, decision=decision),
    ]
    return [*events, CallActed(call_id=id, outcome=outcome)] if outcome else events


RAN = Outcome(
    status="failed",
    code="command-failed",
    data={
        "exit_code": 3,
        "duration_ms": 12,
        "stdout": "42 rows\n",
        "isolation": {"executor": "sandbox", "mechanism": "b"},
    },
)
CHART: list[Event | UnknownEvent] = [
    RunStarted(
        model="openai:gpt-5",
        request="Make a chart\nof sales.csv",
        attachments=(Part(kind="file", text="inputs/sales.csv", ref="workspace://work/inputs/sales.csv"),),
    ),
    EpochStarted(why="run started", system="s"),
    CatalogPlanned(plan=CatalogPlan(shown=("a",), name_only=(), searchable=(), hidden=(), tokens=TokenUse(9, 1, True))),
    NoteAppended(kind="budget", text="<note>\nLeft: 3 turns.\n</note>"),
    ModelRequested(bytes=77, sha256="ab" * 32),
    ModelReplied(
        text="I will run it.",
        calls=(ToolCall(id="c1", tool="skill_run"),),
        finish="calls",
        usage=Usage(input=10, cached=4, output=2, requests=1),
    ),
    SkillLoaded(id="builtin:csv", name="csv", digest="sha256:123456789abcdef", trigger="model", rank=2, reason="fits"),
    *call("c1", RAN, script="report.py"),
    ApprovalAsked(call_id="c2", why="it wants the network"),
    ApprovalAnswered(call_id="c2", answer="no", by="the user", why="not today"),
    PlanChanged(plan=Plan(goal="A chart", steps=(Step(id="a", title="Draw", status="completed"),))),
    Compacted(why="context", before_tokens=90, after_tokens=40),
    ErrorRaised(code="busy", message="The model is busy."),
    SkillUnloaded(id="builtin:csv", reason="shown once"),
    UnknownEvent(type="of_tomorrow"),
    RunFinished(stop_reason="answer", text="Here it is.", usage=Usage(input=10, output=2, requests=1)),
]
CUT: list[Event | UnknownEvent] = [RunStarted(model="m", request="And now as PDF", resumes="r-0"), *call("c1", None)]


def folder_of(project: Path, run: str) -> Path:
    (folder,) = (project / ".agent" / "runs").glob(f"*Z-{run}")
    return folder


def change(project: Path, statement: str, *values: Any) -> None:
    with closing(sqlite3.connect(database_of(project))) as connection:
        assert connection.execute(statement, values).rowcount > 0
        connection.commit()


# --- list -------------------------------------------------------------------------------------------------------------


def test_without_a_record_there_is_nothing_and_nothing_is_made(cli: Cli, project: Path) -> None:
    assert cli("list") == cli() == "" and "0 runs" in cli.err
    assert cli.json()["runs"] == [] and cli.json("verify", "--all")["valid"]
    for verb in ("show", "verify", "replay", "export"):
        assert cli.refused(verb, "r-1")["code"] == "run-unknown"
    assert cli.json("prune", "--keep", "0", "--sessions", "--yes")["removed"] == []
    assert not database_of(project).exists() and not (project / ".agent" / "runs").exists()


def test_the_list_has_the_last_run_first(cli: Cli, project: Path) -> None:
    record(project, "s-1", ("r-1", CHART), ("r-2", CUT), day=2)
    record(project, "s-2", ("r-3", CHART), day=4)
    lines = cli().splitlines()
    assert lines[0].split() == ["RUN", "BEGAN", "SESSION", "MODEL", "ENDED", "REQUEST"]
    assert lines[1].split()[:3] == ["r-3", "2026-01-04", "03:04"] and "Make a chart of sales.csv" in lines[1]
    assert "r-2" in cli("list") and "has not ended" in cli()
    rows = cli.json("--session", "s-1")["runs"]
    assert sorted(row["run"] for row in rows) == ["r-1", "r-2"] and rows[0]["session"] == "s-1"
    assert cli.json("list", "--limit", "1")["more"] and "--limit" in (cli("--limit", "1") and cli.err)
    assert cli.refused("list", "--session", "s-9")["code"] == "session-unknown"


def test_a_run_that_is_only_a_copy_is_no_run(cli: Cli, project: Path) -> None:
    record(project, "s-1", ("r-1", CHART))
    database_of(project).unlink()
    assert cli.json()["runs"] == [] and cli() == ""
    for verb in ("show", "verify", "replay", "export"):
        assert cli.refused(verb, "r-1")["code"] == "run-unknown"
    assert cli.json("verify", "--all")["runs"] == []
    assert cli.json("prune", "--keep", "0", "--yes")["removed"] == [] and folder_of(project, "r-1").exists()


def test_a_path_names_a_foreign_record(cli: Cli, project: Path) -> None:
    """Also that of a copy of our own: who wrote a folder cannot be seen."""
    record(project, "s-1", ("r-1", CHART))
    folder = folder_of(project, "r-1")
    for ref in (folder, folder / "run.json", folder / "events.jsonl", f".agent/runs/{folder.name}/"):
        assert "Make a chart" in cli("show", str(ref))
        assert cli.err.startswith(f"{folder} is foreign: ") and "nothing in it counts as an answer" in cli.err
        document = cli.json("verify", str(ref))
        assert (document["run"], document["valid"], document["foreign"]) == ("r-1", True, str(folder))
        assert cli("verify", str(ref)) == "valid    r-1  18 events · anchored\n" and "is foreign" in cli.err
    assert cli.json("show", str(folder))["foreign"] == str(folder) and cli.json("show", "r-1")["foreign"] is None
    assert cli("export", str(folder)) and "is foreign" in cli.err
    database_of(project).unlink()
    edit(folder, lambda lines: [*lines[:9], lines[9].replace(b"42 rows", b"43 rows"), *lines[10:]])
    assert "43 rows" in cli("show", str(folder)) and f"not what was written: prowess runs verify {folder}" in cli.err
    assert cli("export", str(folder), code=1) and cli("verify", str(folder), code=1).startswith(
        "INVALID  r-1  event 10"
    )
    (folder / "events.jsonl").write_text("x\n", encoding="utf-8")
    assert cli.refused("show", str(folder))["code"] == "audit-broken"


def test_a_damaged_session_does_not_hide_the_others(cli: Cli, project: Path) -> None:
    record(project, "s-1", ("r-1", CHART))
    record(project, "s-2", ("r-2", CHART))
    change(project, "DELETE FROM events WHERE session = 's-1' AND seq = 3")
    document = cli.json()
    assert {row["run"] for row in document["runs"]} == {"r-1", "r-2"} and document["damaged"] == ["s-1"]
    assert cli() and "s-1 is damaged" in cli.err
    assert "Make a chart" in cli("show", "r-1"), "what is left can be read"


# --- show -------------------------------------------------------------------------------------------------------------


def test_a_run_reads_as_a_timeline(cli: Cli, project: Path) -> None:
    record(project, "s-1", ("r-1", CHART))
    assert cli("show", "r-1").splitlines() == [
        "r-1 · 2026-01-02 03:04:00 · session s-1",
        " 0.000  run begins · openai:gpt-5 · tools · with inputs/sales.csv",
        "          Make a chart of sales.csv",
        " 1.000  epoch: run started",
        " 2.000  catalog: 1 shown, 0 by name, 0 to be searched, 0 hidden",
        " 3.000  note (budget): Left: 3 turns.",
        f" 4.000  asks the model · 77 bytes · {'ab' * 6}",
        " 5.000  the model replies (calls) · 10 tokens in (4 cached), 2 out · 1 call",
        "          I will run it.",
        " 6.000  loads csv · by model · rank 2 · builtin:csv@123456789abc · fits",
        " 7.000  calls skill_run",
        '          {"script": "report.py"}',
        " 8.000  allow skill_run · table:isolated · It runs isolated.",
        " 9.000  skill_run: failed [command-failed] · exit code 3 · 12 ms · sandbox (b)",
        "          42 rows",
        "10.000  a person is asked: it wants the network",
        "11.000  answered by the user: no: not today",
        "12.000  plan: A chart · 1 of 1 done",
        "          [x] a Draw",
        "13.000  shortens the conversation: 90 to 40 tokens · context",
        "14.000  error: The model is busy. [busy]",
        "15.000  unloads builtin:csv · shown once",
        "16.000  of_tomorrow (of a newer release)",
        "17.000  run ends: answer · 10 tokens in, 2 out",
        "          Here it is.",
    ]
    assert "18 events · answer" in cli.err
    assert "          Make a chart\n          of sales.csv\n" in cli("show", "r-1", "--full")
    document = cli.json("show", "r-1")
    assert document["run"] == "r-1" and document["timeline"][1]["kind"] == "epoch"
    assert document["timeline"][9]["offset_ms"] == 9000 and document["commands"][0]["exit_code"] == 3


def test_a_run_is_found_by_much(cli: Cli, project: Path) -> None:
    record(project, "s-1", ("r-12", CHART), ("r-13", CHART))
    child = [RunStarted(model="m", parent="r-14"), RunFinished(stop_reason="answer")]
    record(project, "s-2", ("r-14", CHART[:1]), ("child", child), ("r-14", CHART[-1:]))
    folder = folder_of(project, "r-13")
    for ref in ("r-13", folder.name, str(folder), str(folder / "events.jsonl"), f".agent/runs/{folder.name}/"):
        assert cli.json("show", ref)["run"] == "r-13"
    assert cli.json("show", "chi")["run"] == "r-14", "a child run is part of its parent"
    assert cli.refused("show", "r-1")["code"] == "run-ambiguous"
    assert "Did you mean" in cli.refused("show", "r-19")["hint"]
    for ref in ("", "../x", "nothing/here", "/", "x.jsonl", str(project)):
        assert cli.refused("show", ref)["code"] in ("run-unknown", "run-ambiguous")
    assert "  + " not in cli("show", "r-14") and "    run begins as a part of r-14" in cli("show", "r-14")


def test_the_events_are_printed_as_they_are_stored(cli: Cli, project: Path) -> None:
    record(project, "s-1", ("r-1", CHART), ("r-2", CUT))
    copied = (folder_of(project, "r-1") / "events.jsonl").read_text(encoding="ascii")
    assert cli("show", "r-1", "--events") == cli("export", "r-1", "--format", "jsonl") == copied


def test_nothing_that_was_said_reaches_the_terminal_unescaped(cli: Cli, project: Path) -> None:
    nasty = "\x1b]0;owned\x07 \u202e evil"
    events: list[Event | UnknownEvent] = [
        RunStarted(model=nasty, request=nasty),
        SkillLoaded(id=nasty, name=nasty, digest=nasty, trigger="model", reason=nasty),
        *call("c1", Outcome(status="failed", code=nasty, content=nasty), tool=nasty, arg=nasty),
        NoteAppended(kind=nasty, text=nasty),
        ErrorRaised(code=nasty, message=nasty, hint=nasty),
        UnknownEvent(type=nasty),
        RunFinished(stop_reason="error", text=nasty, code=nasty),
    ]
    record(project, "s-1", ("r-1", events), ("r-2", CHART))
    shown = cli("show", "r-1") + cli("show", "r-1", "--full") + cli() + cli("diff", "r-1", "r-2", code=1) + cli.err
    assert "owned" in shown and "\x1b" not in shown and "\x07" not in shown and "\u202e" not in shown
    cli.json("show", "r-1")


# --- verify -----------------------------------------------------------------------------------------------------------


def test_an_untouched_record_is_valid(cli: Cli, project: Path) -> None:
    record(project, "s-1", ("r-1", CHART), ("r-2", CHART), ("r-3", CUT))
    document = cli.json("verify", "r-2")
    assert document == {
        "schema": "prowess.run-verified/1",
        "run": "r-2",
        "session": "s-1",
        "valid": True,
        "events": 18,
        "first_bad": None,
        "anchored": True,
        "why": None,
        "foreign": None,
        "copy": "same",
        "findings": [],
    }
    assert cli("verify", "r-2") == "valid    r-2  18 events · log and copy · anchored\n"
    everything = cli.json("verify", "--all")
    assert everything["valid"] and [run["run"] for run in everything["runs"]] == ["r-1", "r-2", "r-3"]
    assert cli("verify", "--all") == "" and "1 session · 3 runs · all valid" in cli.err
    assert cli.refused("verify")["code"] == cli.refused("verify", "r-1", "--all")["code"] == "usage"


EDITS: dict[str, tuple[str, int, str]] = {
    "edited": ("UPDATE events SET line = replace(line, '42 rows', '43 rows') WHERE seq = 10", 10, "edited"),
    "dropped": ("DELETE FROM events WHERE seq = 5", 5, "missing"),
    "cut off": ("DELETE FROM events WHERE seq > 16", 17, "missing"),
    "no text": ("UPDATE events SET line = X'ff00' WHERE seq = 4", 4, "not an event"),
    "not UTF-8": ("UPDATE events SET line = CAST(X'ff41' AS TEXT) WHERE seq = 1", 1, "missing"),
    "a number": ("UPDATE events SET line = 17 WHERE seq = 4", 4, "not an event"),
    "reordered": ("UPDATE events SET seq = CASE seq WHEN 3 THEN -4 ELSE -3 END WHERE seq IN (3, 4)", 3, "missing"),
}


@pytest.mark.parametrize("what", EDITS)
def test_a_change_of_the_database_is_found(cli: Cli, project: Path, what: str) -> None:
    statement, first_bad, why = EDITS[what]
    record(project, "s-1", ("r-1", CHART))
    record(project, "s-2", ("r-2", CHART))
    change(project, statement.replace("WHERE", "WHERE session = 's-1' AND", 1))
    if what == "reordered":
        change(project, "UPDATE events SET seq = -seq WHERE seq < 0")
    document = cli.json("verify", "r-1", code=1)
    assert (document["valid"], document["first_bad"]) == (False, first_bad)
    assert why in document["why"] or what == "reordered"
    assert f"INVALID  r-1  event {first_bad}: " in cli("verify", "r-1", code=1)
    everything = cli.json("verify", "--all", code=1)
    assert [(each["session"], each["valid"]) for each in everything["sessions"]] == [("s-1", False), ("s-2", True)]
    assert everything["sessions"][0]["first_bad"] == first_bad
    assert "INVALID  r-1" in cli("verify", "--all", code=1) and cli.json("verify", "r-2")["valid"]


def test_a_tail_that_was_cut_off_in_the_database_and_in_its_head_is_found_by_the_copy(cli: Cli, project: Path) -> None:
    record(project, "s-1", ("r-1", CHART))
    with closing(sqlite3.connect(database_of(project))) as connection:
        (line,) = connection.execute("SELECT line FROM events WHERE seq = 16").fetchone()
    change(project, "DELETE FROM events WHERE seq > 16")
    change(project, "UPDATE sessions SET seq = 16, hash = ?", json.loads(line)["hash"])
    assert "event 17: not in the log" in differs(cli)
    shutil.rmtree(folder_of(project, "r-1"))
    assert cli.json("verify", "r-1")["valid"], "nothing is left that knows better; the docs say so"


def test_events_of_a_session_whose_row_was_removed_are_found(cli: Cli, project: Path) -> None:
    record(project, "s-1", ("r-1", CHART))
    record(project, "s-2", ("r-2", CHART))
    change(project, "DELETE FROM sessions WHERE session = 's-1'")
    everything = cli.json("verify", "--all", code=1)
    assert [(each["session"], each["valid"]) for each in everything["sessions"]] == [("s-2", True), ("s-1", False)]
    assert "its row is gone" in everything["sessions"][1]["why"] and everything["sessions"][1]["first_bad"] == 1
    assert "INVALID  session s-1  event 1: its row is gone" in cli("verify", "--all", code=1)
    assert "verify --all" in cli.refused("verify", "r-1")["hint"], "where nothing else knows the run"
    assert cli.json("verify", "r-2")["valid"]


def test_a_session_whose_events_are_all_gone_is_found(cli: Cli, project: Path) -> None:
    record(project, "s-1", ("r-1", CHART))
    change(project, "DELETE FROM events")
    (session,) = cli.json("verify", "--all", code=1)["sessions"]
    assert (session["valid"], session["events"], session["first_bad"], session["why"]) == (False, 0, 1, "missing")
    assert cli.refused("verify", "r-1")["code"] == "run-unknown", "its copy is not asked"


def test_an_end_that_was_moved_leaves_events_behind_it(cli: Cli, project: Path) -> None:
    """The head fits the chain, and no copy is left; but what comes after it is still there."""
    record(project, "s-1", ("r-1", CHART))
    with closing(sqlite3.connect(database_of(project))) as connection:
        (line,) = connection.execute("SELECT line FROM events WHERE seq = 16").fetchone()
    change(project, "UPDATE sessions SET seq = 16, hash = ?", json.loads(line)["hash"])
    shutil.rmtree(folder_of(project, "r-1"))
    (session,) = cli.json("verify", "--all", code=1)["sessions"]
    assert (session["valid"], session["first_bad"]) == (False, 17) and "what its row counts" in session["why"]
    assert cli.json("verify", "r-1", code=1)["first_bad"] == 17


@pytest.mark.parametrize("head", ["'x'", "-3", "1e300", "99999", "NULL + 0"])
def test_a_head_that_makes_no_sense_is_not_valid(cli: Cli, project: Path, head: str) -> None:
    record(project, "s-1", ("r-1", CHART))
    if "NULL" in head:
        change(project, "UPDATE sessions SET hash = 'x'")
    else:
        change(project, f"UPDATE sessions SET seq = {head}")
    assert not cli.json("verify", "--all", code=1)["valid"]
    cli("verify", "r-1", code=1)


def differs(cli: Cli, run: str = "r-1") -> str:
    """How the copy differs from the log, whose record is what it was."""
    document = cli.json("verify", run, code=1)
    (finding,) = document["findings"]
    assert document["valid"] and (document["copy"], finding["code"]) == ("differs", "copy-differs")
    assert cli("verify", run, code=1).startswith(f"valid    {run}") and "[copy-differs]" in cli.err
    assert cli("verify", "--all", code=1) and "all valid · 1 copy differs" in cli.err
    return finding["message"]


def edit(folder: Path, how: Callable[[list[bytes]], list[bytes]]) -> None:
    path = folder / "events.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in how(path.read_bytes().split(b"\n")[:-1])))


@pytest.mark.parametrize(
    ("how", "first_bad"),
    [
        (lambda lines: [*lines[:9], lines[9].replace(b"42 rows", b"43 rows"), *lines[10:]], 10),
        (lambda lines: [*lines[:4], *lines[5:]], 5),
        (lambda lines: lines[:-2], 17),
        (lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]], 3),
        (lambda lines: [*lines, lines[-1]], 19),
        (lambda lines: [b"\xff\xfe", *lines[1:]], 1),
        (lambda lines: [b"[" * 200_000, *lines[1:]], 1),
        (lambda lines: [*lines[:3], b"", *lines[3:]], 4),
        (lambda lines: [], 1),
    ],
    ids=["edited", "dropped", "cut", "reordered", "repeated", "binary", "deep", "blank", "empty"],
)
def test_a_change_of_the_copy_is_found(cli: Cli, project: Path, how: Any, first_bad: int) -> None:
    record(project, "s-1", ("r-1", CHART))
    folder = folder_of(project, "r-1")
    edit(folder, how)
    assert f"event {first_bad}: " in differs(cli)
    assert cli.json("verify", str(folder), code=1)["first_bad"] == first_bad


def test_a_copy_with_a_chain_of_its_own_is_found_by_the_log(cli: Cli, project: Path, tmp_path: Path) -> None:
    """Who can write the folder can write another chain, and a run.json that fits it."""
    record(project, "s-1", ("r-1", CHART))
    other = tmp_path / "forged"
    (other / ".agent").mkdir(parents=True)
    record(other, "s-1", ("r-1", [*CHART[:-1], RunFinished(stop_reason="answer", text="All is well.")]))
    shutil.rmtree(folder_of(project, "r-1"))
    shutil.copytree(folder_of(other, "r-1"), folder := project / ".agent" / "runs" / folder_of(other, "r-1").name)
    assert "event 18: not what the log has" in differs(cli)
    assert cli.json("verify", str(folder))["valid"], "without the log nobody can tell; the docs say so"


@pytest.mark.parametrize("text", [b"", b"[]", b"\xff", b'{"run": 1}', b'{"head": {"seq": "x"}}', b"[" * 100_000])
def test_a_summary_that_cannot_be_read_is_found(cli: Cli, project: Path, text: bytes) -> None:
    record(project, "s-1", ("r-1", CHART))
    (folder_of(project, "r-1") / "run.json").write_bytes(text)
    assert "run.json" in differs(cli)
    cli.json("list")
    cli.json("prune", "--keep", "0", "--dry-run")


def test_a_summary_that_was_edited_is_found(cli: Cli, project: Path) -> None:
    record(project, "s-1", ("r-1", CHART))
    path = folder_of(project, "r-1") / "run.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**document, "stop_reason": "denied"}), encoding="utf-8")
    assert "stop_reason" in differs(cli)
    assert "stop_reason" in cli.json("verify", str(path), code=1)["why"]
    path.write_text(json.dumps({**document, "after": {"seq": 1, "hash": "0" * 64}}), encoding="utf-8")
    assert "event 1: " in differs(cli) or "event 2: " in differs(cli)


def test_a_copy_that_is_not_there_or_not_complete_is_no_fault(cli: Cli, project: Path) -> None:
    record(project, "s-1", ("r-1", CHART), ("r-2", CUT))
    assert cli.json("verify", "r-2")["copy"] is None, "it has not ended"
    folder = folder_of(project, "r-1")
    (folder / "run.json").unlink()
    edit(folder, lambda lines: lines[:3])
    assert cli.json("verify", "r-1")["copy"] is None and cli.json("verify", "--all")["valid"]
    shutil.rmtree(folder)
    assert cli("verify", "r-1") == "valid    r-1  18 events · anchored\n"


def test_a_copy_may_lack_what_came_later_and_not_the_end(cli: Cli, project: Path) -> None:
    record(project, "s-1", ("r-1", [*CHART[:9], CHART[-1]]))
    folder = folder_of(project, "r-1")
    answered = ApprovalAnswered(call_id="c1", answer="once")

    async def answer() -> None:
        log, key = SqliteEventLog(database_of(project)), SessionKey(session="s-1")
        given = Envelope(at="2026-01-02T03:05:00Z", session="s-1", run="r-1", event=answered)
        await log.append(key, 10, await log.lease(key), [given])
        await log.close()

    asyncio.run(answer())
    assert (document := cli.json("verify", "r-1"))["copy"] == "same" and document["events"] == 11
    edit(folder, lambda lines: lines[:9])
    assert "end is cut off" in differs(cli)
    (other := project / "other").mkdir()
    record(other, "s-1", ("r-1", CHART[:9]))
    cli.prowess("-C", str(other), "runs", "export", "r-1", "--to", "x")
    shutil.copy(next((other / "x").glob("*/run.json")), folder)
    assert "the end of the run is missing" in differs(cli)


def test_things_that_are_no_files_do_not_hang_it(cli: Cli, project: Path) -> None:
    record(project, "s-1", ("r-1", CHART))
    folder = folder_of(project, "r-1")
    for name in ("events.jsonl", "run.json"):
        (folder / name).unlink()
        os.mkfifo(folder / name)
    assert "no events.jsonl" in differs(cli)
    assert cli("show", "r-1")
    folder.rename(project / "elsewhere")
    folder.symlink_to(project / "elsewhere")
    assert cli.json("verify", "r-1")["copy"] is None, "a link is no copy: we make none"


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for name, item in inner for place in _places(item, (*path, name)))]


@given(st.data())
def test_no_record_can_break_what_reads_it(data: st.DataObject) -> None:
    """Every field of every event, replaced by anything that JSON can say."""
    chart = [Envelope(seq=n, at="2026-01-02T03:04:05Z", session="s", run="r", event=e) for n, e in enumerate(CHART, 1)]
    lines = [render_event(envelope) for envelope in chart]
    number = data.draw(st.integers(0, len(lines) - 1))
    path = data.draw(st.sampled_from(_places(lines[number])[1:]))
    holder: Any = lines[number]
    for name in path[:-1]:
        holder = holder[name]
    holder[path[-1]] = data.draw(
        st.sampled_from(
            [None, True, -1, 10**40, 1e308, float("nan"), "", "\x1b\ud800", "9999-99", [], {}, [{}], {"a": []}]
        )
    )
    record = SessionRecord.of_lines([json.dumps(line) for line in lines])
    assert not check_session(record).valid, "it has no hashes at all"
    for summary in record.runs:
        json.dumps(summary.to_json())
        assert not check_run(record, summary).valid
    for full in (False, True):
        timeline(record.envelopes, full=full)
    json.dumps(render_spans(record.envelopes))
    first_difference(settled(record.envelopes), chart)
    recorded = Recorded("r", SessionKey(session="s"), record.envelopes, (), lambda envelope: True)
    assert [*recorded.requested_skills(), *recorded.calls(), *recorded.attached(), *recorded.granted()]


# --- large outputs ----------------------------------------------------------------------------------------------------


def large_run(size: int = 70_000) -> list[Event | UnknownEvent]:
    text = "会" * size
    ran = Outcome(status="ok", content=text, data={"stdout": text, "exit_code": 0, "files": [{"content": "x" * size}]})
    return [RunStarted(model="m", request="go"), *call("c1", ran, command="x"), RunFinished(stop_reason="answer")]


def test_large_outputs_are_files_by_their_hash(cli: Cli, project: Path) -> None:
    record(project, "s-1", ("r-1", large_run()))
    folder = folder_of(project, "r-1")
    document = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    fields = {each["field"]: each for each in document["outputs"]}
    assert sorted(fields) == ["content", "data.files.0.content", "data.stdout"]
    assert all(each["call_id"] == "c1" for each in document["outputs"])
    names = {each["sha256"] for each in document["outputs"]}
    assert set(os.listdir(folder / "outputs")) == names and len(names) == 2
    assert (folder / "outputs" / document["outputs"][0]["sha256"]).read_text(encoding="utf-8") == "会" * 70_000
    assert cli.json("verify", "r-1")["valid"]
    assert cli("show", "r-1", "--events") == (folder / "events.jsonl").read_text(encoding="ascii")
    file = folder / "outputs" / sorted(names)[0]
    file.write_bytes(b"other")
    assert "was edited" in differs(cli)
    file.unlink()
    assert "is missing" in differs(cli)
    cli("prune", "--keep", "0", "--yes")
    assert not folder.exists()


# --- diff -------------------------------------------------------------------------------------------------------------


def test_two_runs_are_compared(cli: Cli, project: Path) -> None:
    other = [*CHART[:9], CallActed(call_id="c1", outcome=Outcome(status="ok")), *CHART[10:]]
    record(project, "s-1", ("r-1", CHART), ("r-2", CHART), ("r-3", other))
    assert cli("diff", "r-1", "r-2").splitlines()[0] == "no difference"
    assert cli.json("diff", "r-1", "r-2")["same"]
    document = cli.json("diff", "r-1", "r-3", code=1)
    first = document["first"]
    assert (first["what"], first["seq"], first["other_seq"], first["type"]) == ("outcome", 10, 46, "call_acted")
    assert "command-failed" in first["recorded"] and document["b"]["calls"] == ["skill_run ok x1"]
    shown = cli("diff", "r-1", "r-3", code=1)
    assert shown.startswith("first difference: outcome · call_acted · event 10, and there event 46")
    assert cli.refused("diff", "r-1", "r-9")["code"] == "run-unknown"
    assert cli.refused("diff", "r-1")["code"] == "usage"


# --- export -----------------------------------------------------------------------------------------------------------


def test_a_run_is_exported_to_a_file(cli: Cli, project: Path) -> None:
    record(project, "s-1", ("r-1", CHART))
    printed = cli("export", "r-1")
    document = cli.json("export", "r-1", "-o", "trace.json")
    assert (project / "trace.json").read_text(encoding="utf-8") == printed
    assert document["path"] == str(project / "trace.json") and document["size_bytes"] == len(printed)
    spans = json.loads(printed)["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert [span["name"] for span in spans] == ["invoke_agent prowess", "chat gpt-5", "execute_tool skill_run"]
    assert "42 rows" not in printed and "Make a chart" not in printed
    assert (project / "trace.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("-o", "trace.json"), "file-exists"),
        (("-o", "trace.json", "--format", "jsonl"), "file-exists"),
        (("-o", "link"), "file-exists"),
        (("-o", ".", "--force"), "file-exists"),
        (("-o", "fifo", "--force"), "file-exists"),
        (("-o", "/dev/null", "--force"), "file-exists"),
        (("-o", "no/such/folder"), "no-folder"),
        (("-o", "/dev/null/x"), "no-folder"),
        (("-o", ".agent/trace.json", "--force"), "protected-name"),
        (("--force",), "usage"),
        (("-o", "-", "--force"), "usage"),
    ],
)
def test_an_export_replaces_nothing_by_itself(cli: Cli, project: Path, words: Sequence[str], code: str) -> None:
    record(project, "s-1", ("r-1", CHART))
    (project / "trace.json").write_text("mine", encoding="utf-8")
    (project / "link").symlink_to("nowhere")
    os.mkfifo(project / "fifo")
    before = sorted(path.name for path in project.iterdir())
    assert cli.refused("export", "r-1", *words)["code"] == code
    assert sorted(path.name for path in project.iterdir()) == before
    assert (project / "trace.json").read_text(encoding="utf-8") == "mine"


def test_an_export_replaces_a_file_when_it_is_told_to_and_never_by_half(cli: Cli, project: Path) -> None:
    record(project, "s-1", ("r-1", CHART))
    (project / "trace.json").write_text("mine", encoding="utf-8")
    (project / "link").symlink_to("trace.json")
    printed = cli("export", "r-1")
    cli("export", "r-1", "-o", "trace.json", "--force")
    assert (project / "trace.json").read_text(encoding="utf-8") == printed
    (project / "trace.json").write_text("mine", encoding="utf-8")
    cli("export", "r-1", "-o", "link", "--force")
    assert not (project / "link").is_symlink() and (project / "trace.json").read_text(encoding="utf-8") == "mine"
    change(project, "UPDATE events SET line = 'x'")
    cli.refused("export", "r-1", "-o", "other.json")
    assert not (project / "other.json").exists()


def test_copies_are_exported_to_any_folder(cli: Cli, project: Path) -> None:
    record(project, "s-1", ("r-1", large_run()), ("r-2", CUT))
    document = cli.json("export", "r-1", "r-2", "--to", "there/copies")
    for row in document["runs"]:
        copy = Path(row["path"])
        assert copy.parent == project / "there" / "copies" and row["damage"] is None
        told = json.loads((copy / "run.json").read_text(encoding="utf-8"))
        assert told["run"] == row["run"] and cli.json("verify", str(copy))["valid"]
        assert (copy / "events.jsonl").read_text(encoding="ascii") == cli("show", row["run"], "--events")
    assert told["stop_reason"] is None, "it has not ended"
    (same,) = (project / ".agent" / "runs").iterdir()
    for path in same.rglob("*"):
        if path.is_file():
            assert (project / "there/copies" / same.name / path.relative_to(same)).read_bytes() == path.read_bytes()
    assert cli.refused("export", "r-1", "--to", "there/copies")["code"] == "file-exists"
    assert cli("export", "r-1", "--to", "there/copies", "--force").strip() == str(project / "there/copies" / same.name)
    for words in (("r-1", "r-2"), ("r-1", "--to", "x", "-o", "y"), ("r-1", "--to", "x", "--format", "otel"), ()):
        assert cli.refused("export", *words)["code"] == "usage"
    change(project, "UPDATE events SET line = replace(line, 'go', 'no') WHERE seq = 1")
    (row,) = cli.json("export", "r-1", "--to", "damaged", code=1)["runs"]
    assert row["damage"] == "edited" and Path(row["path"], "run.json").exists()


# --- prune ------------------------------------------------------------------------------------------------------------


def test_old_folders_are_removed_and_the_log_stays(cli: Cli, project: Path) -> None:
    for day in range(1, 6):
        record(project, f"s-{day}", (f"r-{day}", CHART), day=day)
    (folder_of(project, "r-1") / "mine.txt").write_text("x", encoding="utf-8")
    assert cli.refused("prune", "--yes")["code"] == "usage"
    assert cli.refused("prune", "--older-than", "30d")["code"] == "needs-yes"
    assert "would remove  r-3" in cli("prune", "--older-than", "30d", "--keep", "2", "--dry-run")
    document = cli.json("prune", "--older-than", "30d", "--keep", "2", "--yes", code=1)
    assert sorted(each["run"] for each in document["removed"]) == ["r-2", "r-3"]
    assert len(document["kept"]) == 1 and "r-1" in document["kept"][0], "somebody has put something there"
    assert sorted(path.name.partition("-")[2] for path in (project / ".agent/runs").iterdir()) == ["r-1", "r-4", "r-5"]
    assert (folder_of(project, "r-1") / "mine.txt").exists()
    assert len(cli.json()["runs"]) == 5 and cli.json("verify", "r-2")["copy"] is None
    assert cli.json("prune", "--older-than", "99999d", "--yes")["removed"] == []


def test_whole_sessions_are_removed_only_when_asked_for(cli: Cli, project: Path, workspace_dir: str) -> None:
    for day in (1, 2, 3):
        record(project, f"s-{day}", (f"r-{day}", CHART), day=day)
    assert cli.json("prune", "--older-than", "30d", "--sessions", "--yes")["sessions"] == [], "written just now"
    with hold_session(workspace_dir, str(project / ".agent" / "prowess.db"), SessionKey(session="s-2")):
        document = cli.json("prune", "--keep", "1", "--sessions", "--yes", code=1)
    assert document["sessions"] == ["s-1"] and "s-2" in document["kept"][0]
    assert {row["session"] for row in cli.json()["runs"]} == {"s-2", "s-3"}
    document = cli.json("prune", "--older-than", "0s", "--sessions", "--yes")
    assert sorted(document["sessions"]) == ["s-2", "s-3"] and cli.json()["runs"] == []


@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 0), (b"n\n", 3)])
def test_on_a_terminal_it_asks(project: Path, answer: bytes, code: int) -> None:
    record(project, "s-1", ("r-1", CHART))
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "prowess", "runs", "prune", "--keep", "0"]
    with subprocess.Popen(
        command, cwd=project, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        os.close(theirs)
        os.write(ours, answer)
        out, err = process.communicate(timeout=GUARD_S)
    os.close(ours)
    assert process.returncode == code, err
    assert b"Remove 1 folder of runs" in err and bool(out) == (code == 0)
    assert any((project / ".agent" / "runs").iterdir()) == (code != 0)
