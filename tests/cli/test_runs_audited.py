"""What an auditor tries: a record that was moved, cut off, pruned too early or is of another store is told as that."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from test_cli_runs import CHART, change, folder_of, record

from command_lines import Cli
from prowess.core.events import Envelope, Event, ModelReplied, NoteAppended, RunFinished, RunStarted
from prowess.core.values import Lease, SessionKey, Usage
from prowess.stores.run_folders import CopyingLog, CopyPlace
from prowess.stores.sqlite import SqliteEventLog
from state_places import database_of

KEY = SessionKey(session="s-1")
BEGIN = RunStarted(model="m", request="go")
REPLY = ModelReplied(text="hm", usage=Usage(input=10, output=2, requests=1))
NOTE, END = NoteAppended(text="x"), RunFinished(stop_reason="answer", text="done")


class Process:
    """One process that works in a session: it opens the log, appends, and may end without a word."""

    def __init__(self, project: Path) -> None:
        self.told: list[str] = []
        inner = SqliteEventLog(database_of(project))
        self.log = CopyingLog(inner, CopyPlace(str(project), in_project=True), on_problem=self.told.append)
        self._lease: Lease | None = None

    async def write(self, run: str, *events: Event, key: SessionKey = KEY) -> None:
        self._lease = self._lease or await self.log.lease(key)
        for event in events:
            seq = (await self.log.head(key)).seq
            at = f"2026-01-02T03:04:{seq:02}.500000Z"
            await self.log.append(
                key, seq, self._lease, [Envelope(at=at, user=key.user, session=key.session, run=run, event=event)]
            )


def write(project: Path, *parts: tuple[str, Sequence[Event]], key: SessionKey = KEY) -> list[str]:
    async def go() -> list[str]:
        process = Process(project)
        for run, events in parts:
            await process.write(run, *events, key=key)
        await process.log.close()
        return process.told

    return asyncio.run(go())


def summary_of(project: Path, run: str) -> dict[str, Any]:
    return json.loads((folder_of(project, run) / "run.json").read_text(encoding="utf-8"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".agent").mkdir()
    return tmp_path


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, project: Path) -> Cli:
    monkeypatch.chdir(project)
    return Cli(capfd, "runs")


# --- a session that was moved -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("column", "was"), [("session", "s-1"), ("user", "default"), ("app", "default")])
@pytest.mark.parametrize("copied", [True, False])
def test_a_session_under_another_name_or_owner_is_found(
    cli: Cli, project: Path, column: str, was: str, copied: bool
) -> None:
    record(project, "s-1", ("r-1", CHART), ("r-2", CHART))
    if not copied:
        shutil.rmtree(project / ".agent" / "runs")
    for table in ("sessions", "events"):
        change(project, f"UPDATE {table} SET {column} = 'zz'")
    document = cli.json("verify", "r-2", code=1)
    assert f"of {column} '{was}', and stored as one of 'zz'" in document["why"]
    everything = cli.json("verify", "--all", code=1)
    assert everything["sessions"][0]["first_bad"] == 1 and not any(run["valid"] for run in everything["runs"])
    assert cli.json()["damaged"] == ["zz" if column == "session" else "s-1"]
    assert cli("show", "r-1") and "not what was written" in cli.err


def test_a_session_of_somebody_is_theirs(cli: Cli, project: Path) -> None:
    write(project, ("r-1", (BEGIN, END)), key=SessionKey(session="s", user="ann"))
    assert cli.json("verify", "--all")["valid"] and cli.json()["damaged"] == []


# --- damage is told wherever the record is read -----------------------------------------------------------------------


DAMAGE = {
    "deleted": ("DELETE FROM events WHERE seq = 8", 1),
    "edited": ("UPDATE events SET line = replace(line, '42 rows', '43 rows') WHERE seq = 10", 0),
    "not an event": ("UPDATE events SET line = '{}' WHERE seq = 5", 1),
    "no text": ("UPDATE events SET line = X'ff00' WHERE seq = 5", 1),
    "head moved back": ("UPDATE sessions SET seq = 12", 0),
    "seq": ("UPDATE events SET seq = -5 WHERE seq = 5", 1),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_whoever_reads_a_damaged_log_is_told(cli: Cli, project: Path, what: str) -> None:
    statement, unreadable = DAMAGE[what]
    record(project, "s-1", ("r-1", CHART))
    assert cli.json("show", "r-1")["damage"] is None and "warning" not in (cli("show", "r-1") and cli.err)
    change(project, statement)
    warning = "warning: this record is not what was written: prowess runs verify r-1"
    for words in (("show", "r-1"), ("show", "r-1", "--events"), ("show", "r-1", "--full"), ("diff", "r-1", "r-1")):
        assert cli(*words) and warning in cli.err
        assert ("1 event is missing or cannot be read" in cli.err) == bool(unreadable)
    shown = cli.json("show", "r-1")
    assert shown["damage"] and shown["unreadable"] == unreadable
    for form in ("otel", "jsonl"):
        assert cli("export", "r-1", "--format", form, code=1) and warning in cli.err
    assert cli("export", "r-1", "-o", "a.json", code=1) == "" and warning in cli.err
    assert cli.json("export", "r-1", "-o", "b.json", code=1)["damage"] == shown["damage"]
    assert (project / "b.json").read_bytes() == (project / "a.json").read_bytes() != b""


def test_a_copy_that_was_edited_is_no_damage_of_the_log(cli: Cli, project: Path) -> None:
    record(project, "s-1", ("r-1", CHART))
    path = folder_of(project, "r-1") / "events.jsonl"
    path.write_text(path.read_text(encoding="ascii").replace("42 rows", "43 rows"), encoding="ascii")
    assert "42 rows" in cli("show", "r-1") and "warning" not in cli.err
    assert cli.json("export", "r-1", "-o", "a.json")["damage"] is None


def test_the_list_tells_of_events_outside_of_their_session(cli: Cli, project: Path) -> None:
    record(project, "s-1", ("r-1", CHART))
    record(project, "s-2", ("r-2", CHART))
    change(project, "UPDATE events SET seq = 99 WHERE session = 's-1' AND seq = 18")
    change(project, "DELETE FROM sessions WHERE session = 's-2'")
    assert cli.json()["damaged"] == ["s-1", "s-2"]
    assert cli("list", "--session", "s-1") and "s-2" not in cli.err


# --- a run that was cut off -------------------------------------------------------------------------------------------


def test_a_run_that_was_cut_off_and_resumed(cli: Cli, project: Path) -> None:
    write(project, ("r-1", (BEGIN, REPLY, REPLY)))
    (row,) = cli.json()["runs"]
    assert (row["cut_off"], row["resumed_by"], row["tokens"]) == (False, None, 24) and "has not ended" in cli()
    assert write(project, ("r-2", (RunStarted(model="m", resumes="r-1"), END))) == []
    assert [path.name[-3:] for path in (project / ".agent" / "runs").iterdir()] == ["r-2"], "the other never ended"
    assert summary_of(project, "r-2")["resumes"] == "r-1"
    second, first = cli.json()["runs"]
    assert (first["cut_off"], first["resumed_by"], first["tokens"]) == (True, "r-2", 24)
    assert (second["resumes"], second["cut_off"]) == ("r-1", False)
    listed = cli().splitlines()
    assert "(goes on with r-1)" in listed[1] and "cut off, resumed by r-2" in listed[2]
    assert cli("show", "r-1") and "3 events · cut off · resumed by r-2" in cli.err
    shown = cli.json("show", "r-1")
    assert shown["cut_off"] and shown["resumed_by"] == "r-2"
    assert cli.json("verify", "r-1")["valid"] and cli.json("verify", "--all")["valid"]
    (row,) = cli.json("export", "r-1", "--to", "x")["runs"]
    told = json.loads(Path(row["path"], "run.json").read_text(encoding="utf-8"))
    assert (told["stop_reason"], told["finished_at"], told["events"]) == (None, None, 3)
    assert told["usage"]["input"] == 20
    assert cli("show", row["path"]) and "cut off" in cli.err
