"""The folder of a run has what the log has, byte for byte; one that cannot be written is told, and stops nothing."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from prowess.cli.commands.schema import FOLDER as SCHEMAS
from prowess.core.events import (
    CallActed,
    CallDecided,
    CallPlanned,
    Envelope,
    Event,
    NoteAppended,
    RunFinished,
    RunStarted,
    SkillLoaded,
    UnknownEvent,
    parse_event,
)
from prowess.core.values import ChainHead, Decision, Outcome, SessionKey, ToolCall, Usage
from prowess.errors import SessionConflict, StoreError
from prowess.records.chain import verify_chain
from prowess.records.summary import summarise
from prowess.stores.memory import MemoryEventLog
from prowess.stores.run_folders import MirroredLog, folder_name
from prowess.stores.sqlite import SqliteEventLog

KEY = SessionKey(session="s")
AT = "2026-01-02T03:04:05.000006Z"


class Writer:
    """Appends to one session through a mirror, as a process would."""

    def __init__(self, log: MirroredLog, lease: Any) -> None:
        self.log, self.lease = log, lease

    async def write(self, run: str, *events: Event | UnknownEvent) -> None:
        seq = (await self.log.head(KEY)).seq
        given = [Envelope(at=AT, session=KEY.session, run=run, event=event) for event in events]
        await self.log.append(KEY, seq, self.lease, given)
        if isinstance(self.log, MirroredLog):
            await self.log.settle()


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / ".agent" / "runs"


@pytest.fixture
def mirrored(runs: Path, told: list[str]) -> Callable[[Callable[[Writer], Awaitable[None]]], None]:
    inner = MemoryEventLog()

    async def go(test: Callable[[Writer], Awaitable[None]]) -> None:
        log = MirroredLog(inner, str(runs), on_problem=told.append)
        await test(Writer(log, await log.lease(KEY)))
        await log.close()

    return lambda test: asyncio.run(go(test))


def call(id: str, status: Any = "ok", code: str | None = None) -> list[Event]:
    planned = ToolCall(id=id, tool="skill_run", args={"script": "x.py"})
    decision = Decision(verdict="allow", rule="isolated", why="runs inside a sandbox")
    return [
        CallPlanned(call=planned),
        CallDecided(call_id=id, decision=decision),
        CallActed(call_id=id, outcome=Outcome(status=status, code=code)),
    ]


def mirror_of(folder: Path) -> list[str]:
    return (folder / "events.jsonl").read_bytes().decode("ascii").split("\n")[:-1]


def only(runs: Path) -> Path:
    (folder,) = runs.iterdir()
    return folder


def spoil(folder: Path) -> None:
    with open(folder / "events.jsonl", "ab") as file:
        file.write(b'{"half a li')


def put_in_the_way(runs: Path) -> None:
    runs.parent.mkdir()
    runs.write_text("a file", encoding="utf-8")


def check_schema(document: Any) -> None:
    jsonschema.validate(document, json.loads(Path(SCHEMAS, "run.json").read_text(encoding="utf-8")))


class WithoutLines(MemoryEventLog):
    """A log of another package, which returns no lines from `append`."""

    async def append(self, *given: Any) -> Any:
        return [replace(stored, line="") for stored in await super().append(*given)]


def test_a_log_that_returns_no_lines_is_mirrored_whole(runs: Path, told: list[str]) -> None:
    async def go() -> list[str]:
        log = MirroredLog(WithoutLines(), str(runs), on_problem=told.append)
        writer = Writer(log, await log.lease(KEY))
        await writer.write("r1", RunStarted(model="m"), *call("c1"))
        await writer.write("r1", RunFinished(stop_reason="answer"))
        lines = [line async for line in log.lines(KEY)]
        await log.close()
        return lines

    lines = asyncio.run(go())
    assert mirror_of(only(runs)) == lines and len(lines) == 5 and not told


def test_the_summary_says_what_the_log_says(mirrored: Any, runs: Path) -> None:
    """It is made from the events as they were given, which may hold tuples where the log has lists."""
    data = {"skill": "s", "show": ("", "a.md"), "isolation": {"kind": ("x",)}, "exit_code": 1, "stdout": "a\nb"}
    read = ToolCall(id="c-2", tool="skill_select_docs", args={"skill": "s"})
    outcome = Outcome(status="ok", data=data, content="c")
    started = RunStarted(model="m", request="e\u0301 \ud83d\ude00 ")

    async def test(writer: Writer) -> None:
        await writer.write("r-0", RunStarted(model="m"), RunFinished(stop_reason="answer"))
        await writer.write("r-1", started, CallPlanned(call=read), CallActed(call_id="c-2", outcome=outcome))
        await writer.write("r-2", RunStarted(model="m", parent="r-1"), *call("c1", "failed", "exit-code"))
        await writer.write("r-2", RunFinished(stop_reason="answer", text="of the child"))
        await writer.write("r-1", RunFinished(stop_reason="answer", text="of the run", usage=Usage(input=3)))
        envelopes = [parse_event(json.loads(line)) async for line in writer.log.lines(KEY)]
        document = json.loads((runs / "20260102T030405Z-r-1" / "run.json").read_text(encoding="utf-8"))
        wanted = json.loads(json.dumps(summarise(envelopes)[1].to_json()))
        assert document == {**wanted, "store": document["store"]}
        assert {"skill": "s", "path": "a.md"} in document["resources"] and document["children"] == ["r-2"]

    mirrored(test)


def test_a_run_is_a_folder_with_its_lines_and_a_summary(mirrored: Any, runs: Path, told: list[str]) -> None:
    async def test(writer: Writer) -> None:
        await writer.write("r-0", RunStarted(model="m"), RunFinished(stop_reason="answer"))
        await writer.write("r-1", RunStarted(model="scripted:x", request="Make a chart \ud83d\ude00 会议"))
        await writer.write("r-1", SkillLoaded(id="builtin:csv-report", digest="sha256:1", trigger="model"))
        await writer.write("r-1", *call("c1"), *call("c2", "failed", "exit-code"), *call("c3"))
        await writer.write("r-1", UnknownEvent(type="of_tomorrow", data={"x\ud83d": 1, "\ude00": "\ud83d"}))
        folder = runs / "20260102T030405Z-r-1"
        lines = [line async for line in writer.log.lines(KEY)]
        assert mirror_of(folder) == lines[2:], "as soon as it is in the log"
        assert not (folder / "run.json").exists()
        usage = Usage(input=10, output=2, requests=2)
        await writer.write("r-1", RunFinished(stop_reason="limit:turns", text="Done: half.", usage=usage))
        lines = [line async for line in writer.log.lines(KEY)]
        assert mirror_of(folder) == lines[2:]
        head = await writer.log.head(KEY)
        document = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        check_schema(document)
        after = document["after"]
        assert verify_chain(mirror_of(folder), head, after=ChainHead(**after)).valid
        assert document == {
            "schema": "prowess.run/1",
            "run": "r-1",
            "key": {"tenant": "default", "app": "default", "user": "default", "session": "s"},
            "request": "Make a chart \U0001f600 会议",
            "normalised_request": "Make a chart \U0001f600 会议",
            "attachments": [],
            "model": "scripted:x",
            "versions": {},
            "resumes": None,
            "started_at": AT,
            "finished_at": AT,
            "stop_reason": "limit:turns",
            "code": None,
            "text": "Done: half.",
            "key_output": None,
            "usage": document["usage"],
            "skills": [
                {
                    "id": "builtin:csv-report",
                    "name": "csv-report",
                    "digest": "sha256:1",
                    "trigger": "model",
                    "rank": None,
                    "reason": None,
                },
            ],
            "resources": [],
            "tools": [
                {"tool": "skill_run", "status": "ok", "code": None, "count": 2},
                {"tool": "skill_run", "status": "failed", "code": "exit-code", "count": 1},
            ],
            "commands": document["commands"],
            "isolation": [],
            "prompts": {"asked": 0, "answered": 0, "by": {}},
            "outputs": [],
            "children": [],
            "events": 13,
            "after": {"seq": 2, "hash": json.loads(lines[1])["hash"]},
            "head": {"seq": head.seq, "hash": head.hash},
            "store": None,
        }
        assert document["usage"]["input"] == 10
        assert [(each["command"], each["status"]) for each in document["commands"]] == [
            ("x.py", "ok"),
            ("x.py", "failed"),
            ("x.py", "ok"),
        ]
        assert sorted(os.listdir(runs)) == ["20260102T030405Z-r-0", "20260102T030405Z-r-1"]
        assert "/runs/" in (runs.parent / ".gitignore").read_text(encoding="utf-8")
        for path in (folder, folder / "events.jsonl", folder / "run.json"):
            assert path.stat().st_mode & 0o077 == 0, "what was said in a session is its owner's"

    mirrored(test)
    assert told == []


def test_child_runs_are_in_the_folder_of_the_run_they_belong_to(mirrored: Any, runs: Path, told: list[str]) -> None:
    async def test(writer: Writer) -> None:
        await writer.write("r-1", RunStarted(model="m"))
        await writer.write("r-2", RunStarted(model="m", parent="r-1"), *call("c1"))
        await writer.write("r-3", RunStarted(model="m", parent="r-2"), RunFinished(stop_reason="answer", text="deep"))
        await writer.write("r-2", RunFinished(stop_reason="answer", text="child"))
        folder = only(runs)
        assert not (folder / "run.json").exists(), "only a child has ended"
        await writer.write("r-1", RunFinished(stop_reason="answer", text="parent"))
        assert mirror_of(folder) == [line async for line in writer.log.lines(KEY)]
        document = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        assert (document["text"], document["children"], document["events"]) == ("parent", ["r-2", "r-3"], 9)
        assert document["tools"][0]["count"] == 1
        assert only(runs) == folder

    mirrored(test)
    assert told == []


def test_what_was_not_copied_is_taken_from_the_log_when_the_run_goes_on(
    mirrored: Any, runs: Path, told: list[str]
) -> None:
    async def begin(writer: Writer) -> None:
        await writer.write("r-1", RunStarted(model="m"), *call("c1"))
        await writer.write("r-2", RunStarted(model="m", parent="r-1"))
        unseen = Writer(writer.log.inner, writer.lease)  # type: ignore[arg-type]
        await unseen.write("r-1", NoteAppended(text="a kill came before the copy"))
        folder = only(runs)
        spoil(folder)

    async def resume(writer: Writer) -> None:
        folder = only(runs)
        await writer.write("r-2", NoteAppended(text="of the child"))
        assert mirror_of(folder) == [line async for line in writer.log.lines(KEY)]
        await writer.write("r-1", RunFinished(stop_reason="answer"))
        assert mirror_of(folder) == [line async for line in writer.log.lines(KEY)]
        assert json.loads((folder / "run.json").read_text(encoding="utf-8"))["events"] == 8
        assert only(runs) == folder

    mirrored(begin)
    mirrored(resume)
    assert told == []


def test_a_folder_that_cannot_be_written_is_told_once_and_made_good_at_the_end(
    mirrored: Any, runs: Path, told: list[str]
) -> None:
    async def test(writer: Writer) -> None:
        put_in_the_way(runs)
        await writer.write("r-1", RunStarted(model="m"))
        await writer.write("r-1", *call("c1"))
        assert len(told) == 1 and str(runs) in told[0] and "log has it all" in told[0]
        assert (await writer.log.head(KEY)).seq == 4
        os.unlink(runs)
        await writer.write("r-1", RunFinished(stop_reason="answer"))
        folder = only(runs)
        assert mirror_of(folder) == [line async for line in writer.log.lines(KEY)]
        assert (folder / "run.json").exists()

    mirrored(test)
    assert len(told) == 1


FULL = """
import asyncio, resource, sys
sys.path[:0] = {tests!r}
from test_runs_mirror import *

async def main():
    runs = Path(sys.argv[1])
    told = []
    log = MirroredLog(MemoryEventLog(), str(runs), on_problem=told.append)
    writer = Writer(log, await log.lease(KEY))
    await writer.write("r-1", RunStarted(model="m"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
    for _ in range(10):
        await writer.write("r-1", NoteAppended(text="x" * 9_000))
    (folder,) = runs.iterdir()
    kept = mirror_of(folder)
    assert len(told) == 1 and 0 < len(kept) < 8, (told, len(kept))
    assert (folder / "events.jsonl").read_bytes().endswith(b"\\n"), "no half line"
    assert kept == [line async for line in log.lines(KEY)][: len(kept)]
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await writer.write("r-1", RunFinished(stop_reason="answer"))
    assert mirror_of(folder) == [line async for line in log.lines(KEY)]
    await log.close()
    print("fine")

asyncio.run(main())
"""


def test_a_full_disk_leaves_whole_lines_and_does_not_stop_the_run(runs: Path) -> None:
    code = FULL.format(tests=[str(folder) for folder in Path(__file__).parents[:2]])
    done = subprocess.run([sys.executable, "-c", code, str(runs)], capture_output=True, text=True, check=False)
    assert done.stdout == "fine\n", done.stderr


@pytest.mark.parametrize("run", ["../evil", "a/b", ".hidden", "", "x" * 200, "nul\0"])
def test_a_run_that_would_lead_elsewhere_has_no_folder(mirrored: Any, runs: Path, told: list[str], run: str) -> None:
    async def test(writer: Writer) -> None:
        await writer.write(run, RunStarted(model="m"), RunFinished(stop_reason="answer"))
        assert (await writer.log.head(KEY)).seq == 2

    mirrored(test)
    assert len(told) == 1
    assert not runs.exists() and not (runs.parent.parent / "evil").exists()


def test_a_link_in_the_place_of_a_run_is_not_followed(mirrored: Any, runs: Path, told: list[str]) -> None:
    elsewhere = runs.parent.parent / "elsewhere"
    elsewhere.mkdir()
    runs.mkdir(parents=True)
    (runs / folder_name("r-1", AT)).symlink_to(elsewhere)
    runs_2 = runs / folder_name("r-2", AT)
    runs_2.mkdir()
    (runs_2 / "events.jsonl").symlink_to(elsewhere / "events.jsonl")

    async def test(writer: Writer) -> None:
        for run in ("r-1", "r-2"):
            await writer.write(run, RunStarted(model="m"))

    mirrored(test)
    assert len(told) == 1 and list(elsewhere.iterdir()) == []


def test_what_the_log_refuses_is_not_in_the_folder(mirrored: Any, runs: Path) -> None:
    async def test(writer: Writer) -> None:
        await writer.write("r-1", RunStarted(model="m"))
        await writer.log.lease(KEY)
        with pytest.raises(SessionConflict):
            await writer.write("r-1", RunFinished(stop_reason="answer"))
        folder = only(runs)
        assert len(mirror_of(folder)) == 1 and not (folder / "run.json").exists()

    mirrored(test)


def test_a_deleted_session_leaves_no_copies(mirrored: Any, runs: Path, told: list[str]) -> None:
    async def test(writer: Writer) -> None:
        for run in ("r-1", "r-2"):
            await writer.write(run, RunStarted(model="m"), RunFinished(stop_reason="answer"))
        other = SessionKey(session="other")
        lease = await writer.log.lease(other)
        started = Envelope(at=AT, session="other", run="r-3", event=RunStarted(model="m"))
        await writer.log.append(other, 0, lease, [started])
        note = runs / "20260102T030405Z-r-2" / "mine.txt"
        note.write_text("of a person", encoding="utf-8")
        await writer.log.delete(KEY)
        assert sorted(os.listdir(runs)) == ["20260102T030405Z-r-2", "20260102T030405Z-r-3"]
        assert list(note.parent.iterdir()) == [note]
        assert len(told) == 1 and "r-2" in told[0]
        with pytest.raises(StoreError):
            await writer.log.head(KEY)

    mirrored(test)


def test_it_is_a_log_like_any_other(tmp_path: Path, runs: Path, told: list[str]) -> None:
    async def test() -> None:
        log = MirroredLog(SqliteEventLog(tmp_path / "prowess.db"), str(runs), on_problem=told.append)
        writer = Writer(log, await log.lease(KEY, "me"))
        await writer.write("r-1", RunStarted(model="m"))
        assert log.path == str(tmp_path / "prowess.db")
        assert [envelope.run async for envelope in log.read(KEY)] == ["r-1"]
        assert [info.key for info in await log.sessions(prefix="s")] == [KEY]
        await log.expire(KEY, "2020-01-01T00:00:00Z")
        assert await log.prune_expired() == 1
        assert only(runs)
        await log.close()
        with pytest.raises(StoreError) as caught:
            await log.head(KEY)
        assert caught.value.code == "store-closed"

    asyncio.run(test())
    assert told == []


def test_many_runs_at_once_keep_their_lines_apart(runs: Path, told: list[str]) -> None:
    async def test() -> None:
        log = MirroredLog(MemoryEventLog(), str(runs), on_problem=told.append)

        async def one(number: int) -> None:
            key, run = SessionKey(session=f"s{number}"), f"r-{number}"
            lease = await log.lease(key)
            events: list[Event] = [RunStarted(model="m"), *call("c"), RunFinished(stop_reason="answer")]
            for seq, event in enumerate(events):
                await log.append(key, seq, lease, [Envelope(at=AT, session=key.session, run=run, event=event)])
            lines = [line async for line in log.lines(key)]
            assert mirror_of(runs / folder_name(run, AT)) == lines

        await asyncio.gather(*(one(number) for number in range(50)))
        await log.close()

    asyncio.run(test())
    assert told == []
