"""A run that has ended has a copy, byte for byte as the log has it; one that cannot be written stops nothing."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from guard import GUARD_S
from prowess.cli.commands.schema import FOLDER as SCHEMAS
from prowess.core.events import (
    ApprovalAnswered,
    ApprovalAsked,
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
from prowess.stores.run_folders import CopyingLog, CopyPlace, folder_name
from prowess.stores.sqlite import SqliteEventLog

KEY = SessionKey(session="s")
AT = "2026-01-02T03:04:05.000006Z"


class Writer:
    """Appends to one session, as a process would."""

    def __init__(self, log: CopyingLog, lease: Any) -> None:
        self.log, self.lease = log, lease

    async def write(self, run: str, *events: Event | UnknownEvent) -> None:
        seq = (await self.log.head(KEY)).seq
        given = [Envelope(at=AT, session=KEY.session, run=run, event=event) for event in events]
        await self.log.append(KEY, seq, self.lease, given)


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    (tmp_path / ".agent").mkdir()
    return tmp_path / ".agent" / "runs"


def place(runs: Path) -> CopyPlace:
    return CopyPlace(str(runs.parent.parent), in_project=True)


@pytest.fixture
def copying(runs: Path, told: list[str]) -> Callable[[Callable[[Writer], Awaitable[None]]], None]:
    inner = MemoryEventLog()

    async def go(test: Callable[[Writer], Awaitable[None]]) -> None:
        log = CopyingLog(inner, place(runs), on_problem=told.append)
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


def lines_of(folder: Path) -> list[str]:
    return (folder / "events.jsonl").read_bytes().decode("ascii").split("\n")[:-1]


def copied(runs: Path) -> list[str]:
    return sorted(os.listdir(runs)) if runs.is_dir() else []


def only(runs: Path) -> Path:
    (folder,) = runs.iterdir()
    return folder


def summary_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "run.json").read_text(encoding="utf-8"))


def check_schema(document: Any) -> None:
    jsonschema.validate(document, json.loads(Path(SCHEMAS, "run.json").read_text(encoding="utf-8")))


class WithoutLines(MemoryEventLog):
    """A log of another package, which returns no lines from `append`."""

    async def append(self, *given: Any) -> Any:
        return [replace(stored, line="") for stored in await super().append(*given)]


def test_a_log_that_returns_no_lines_is_copied_whole(runs: Path, told: list[str]) -> None:
    async def go() -> list[str]:
        log = CopyingLog(WithoutLines(), place(runs), on_problem=told.append)
        writer = Writer(log, await log.lease(KEY))
        await writer.write("r1", RunStarted(model="m"), *call("c1"))
        await writer.write("r1", RunFinished(stop_reason="answer"))
        lines = [line async for line in log.lines(KEY)]
        await log.close()
        return lines

    lines = asyncio.run(go())
    assert lines_of(only(runs)) == lines and len(lines) == 5 and not told


def test_the_summary_says_what_the_log_says(copying: Any, runs: Path) -> None:
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
        assert document == wanted
        assert {"skill": "s", "path": "a.md"} in document["resources"] and document["children"] == ["r-2"]

    copying(test)


def test_a_run_is_a_folder_with_its_lines_and_a_summary(copying: Any, runs: Path, told: list[str]) -> None:
    async def test(writer: Writer) -> None:
        await writer.write("r-0", RunStarted(model="m"), RunFinished(stop_reason="answer"))
        await writer.write("r-1", RunStarted(model="scripted:x", request="Make a chart \ud83d\ude00 会议"))
        await writer.write("r-1", SkillLoaded(id="builtin:csv-report", digest="sha256:1", trigger="model"))
        await writer.write("r-1", *call("c1"), *call("c2", "failed", "exit-code"), *call("c3"))
        await writer.write("r-1", UnknownEvent(type="of_tomorrow", data={"x\ud83d": 1, "\ude00": "\ud83d"}))
        folder = runs / "20260102T030405Z-r-1"
        lines = [line async for line in writer.log.lines(KEY)]
        assert len(lines) == 14 and copied(runs) == ["20260102T030405Z-r-0"], "it has not ended"
        usage = Usage(input=10, output=2, requests=2)
        await writer.write("r-1", RunFinished(stop_reason="limit:turns", text="Done: half.", usage=usage))
        lines = [line async for line in writer.log.lines(KEY)]
        assert lines_of(folder) == lines[2:]
        head = await writer.log.head(KEY)
        document = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        check_schema(document)
        after = document["after"]
        assert verify_chain(lines_of(folder), head, after=ChainHead(**after)).valid
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
        }
        assert document["usage"]["input"] == 10
        assert [(each["command"], each["status"]) for each in document["commands"]] == [
            ("x.py", "ok"),
            ("x.py", "failed"),
            ("x.py", "ok"),
        ]
        assert copied(runs) == ["20260102T030405Z-r-0", "20260102T030405Z-r-1"]
        assert "/runs/" in (runs.parent / ".gitignore").read_text(encoding="utf-8")
        for path in (folder, folder / "events.jsonl", folder / "run.json"):
            assert path.stat().st_mode & 0o077 == 0, "what was said in a session is its owner's"

    copying(test)
    assert told == []


def test_child_runs_are_in_the_folder_of_the_run_they_belong_to(copying: Any, runs: Path, told: list[str]) -> None:
    async def test(writer: Writer) -> None:
        await writer.write("r-1", RunStarted(model="m"))
        await writer.write("r-2", RunStarted(model="m", parent="r-1"), *call("c1"))
        await writer.write("r-3", RunStarted(model="m", parent="r-2"), RunFinished(stop_reason="answer", text="deep"))
        await writer.write("r-2", RunFinished(stop_reason="answer", text="child"))
        assert not copied(runs), "only a child has ended"
        await writer.write("r-1", RunFinished(stop_reason="answer", text="parent"))
        folder = only(runs)
        assert lines_of(folder) == [line async for line in writer.log.lines(KEY)]
        document = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        assert (document["text"], document["children"], document["events"]) == ("parent", ["r-2", "r-3"], 9)
        assert document["tools"][0]["count"] == 1
        assert only(runs) == folder

    copying(test)
    assert told == []


def test_a_run_that_another_process_began_is_copied_whole(copying: Any, runs: Path, told: list[str]) -> None:
    async def begin(writer: Writer) -> None:
        await writer.write("r-0", RunStarted(model="m"))  # killed
        await writer.write("r-1", RunStarted(model="m"), *call("c1"))
        await writer.write("r-2", RunStarted(model="m", parent="r-1"))

    async def go_on(writer: Writer) -> None:
        await writer.write("r-2", NoteAppended(text="of the child"), RunFinished(stop_reason="answer"))
        await writer.write("r-3", RunStarted(model="m", parent="r-2"), RunFinished(stop_reason="answer"))
        assert not copied(runs)
        await writer.write("r-1", RunFinished(stop_reason="answer"))
        lines = [line async for line in writer.log.lines(KEY)]
        assert only(runs).name.endswith("-r-1") and lines_of(only(runs)) == lines[1:]

    copying(begin)
    copying(go_on)
    assert told == []


@pytest.mark.parametrize("same_process", [True, False])
def test_what_comes_after_the_end_is_copied_too(copying: Any, runs: Path, told: list[str], same_process: bool) -> None:
    async def end(writer: Writer) -> None:
        await writer.write("r-1", RunStarted(model="m"), *call("c1")[:1], ApprovalAsked(call_id="c1", why="x"))
        await writer.write("r-1", RunFinished(stop_reason="waiting"))
        if same_process:
            await answer(writer)

    async def answer(writer: Writer) -> None:
        assert summary_of(only(runs))["prompts"]["answered"] == 0
        await writer.write("r-1", ApprovalAnswered(call_id="c1", answer="once", by="me"))
        assert lines_of(only(runs)) == [line async for line in writer.log.lines(KEY)]
        assert summary_of(only(runs))["prompts"]["answered"] == 1
        assert sorted(os.listdir(only(runs))) == ["events.jsonl", "run.json"]

    copying(end)
    if not same_process:
        copying(answer)
    assert told == []


def test_a_copy_that_cannot_be_written_is_told_once(copying: Any, runs: Path, told: list[str]) -> None:
    runs.write_text("a file", encoding="utf-8")

    async def test(writer: Writer) -> None:
        for run in ("r-1", "r-2"):
            await writer.write(run, RunStarted(model="m"), RunFinished(stop_reason="answer"))
        assert (await writer.log.head(KEY)).seq == 4
        assert len(told) == 1 and str(runs) in told[0] and "'r-1'" in told[0] and "The log has it" in told[0]
        os.unlink(runs)
        await writer.write("r-3", RunStarted(model="m"), RunFinished(stop_reason="answer"))
        assert only(runs).name.endswith("-r-3")

    copying(test)
    assert len(told) == 1


def large(size: int = 30_000) -> list[Event]:
    """A run whose copy has two outputs."""
    ran = Outcome(status="ok", content="a" * 70_000, data={"stdout": "b" * 80_000, "exit_code": 0})
    return [RunStarted(model="m", request="x" * size), *call("c1")[:2], CallActed(call_id="c1", outcome=ran)]


APART = """
import resource, sys
sys.path[:0] = {tests!r}
from test_run_copies import *

async def main(project):
    told = []
    log = CopyingLog(SqliteEventLog(project + "/prowess.db"), CopyPlace(project, True), on_problem=told.append)
    writer = Writer(log, await log.lease(KEY))
    await writer.write("r-1", *large())
    {prepare}
    await writer.write("r-1", RunFinished(stop_reason="answer"))
    await log.close()
    print(told)

asyncio.run(main(sys.argv[1]))
"""


def apart(prepare: str, project: Path) -> subprocess.CompletedProcess[str]:
    """In a process of its own, because limits and kills are."""
    tests = [str(folder) for folder in Path(__file__).parents[:2]]
    code = APART.format(tests=tests, prepare=prepare)
    words = [sys.executable, "-c", code, str(project)]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=GUARD_S)


def whole_again(runs: Path, told: list[str]) -> None:
    """The next thing that comes to the run writes all of its copy, and leaves nothing of the one before."""

    async def go() -> None:
        inner = SqliteEventLog(runs.parent.parent / "prowess.db")
        log = CopyingLog(inner, place(runs), on_problem=told.append)
        await Writer(log, await log.lease(KEY)).write("r-1", NoteAppended(text="later"))
        assert lines_of(only(runs)) == [line async for line in log.lines(KEY)]
        await log.close()

    asyncio.run(go())
    folder = only(runs)
    assert sorted(os.listdir(folder)) == ["events.jsonl", "outputs", "run.json"]
    assert {each["sha256"] for each in summary_of(folder)["outputs"]} == set(os.listdir(folder / "outputs"))


@pytest.mark.parametrize("limit", [0, 10_000])
def test_a_full_disk_leaves_no_half_a_file_and_stops_nothing(runs: Path, told: list[str], limit: int) -> None:
    """A limit on the size of a file is what a full disk looks like; the log has room."""
    prepare = f"""
    class Roomy:
        async def append(self, *given):
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            stored = await inner.append(*given)
            resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, resource.RLIM_INFINITY))
            return stored
        def __getattr__(self, name):
            return getattr(inner, name)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    inner, log.inner = log.inner, Roomy()
"""
    done = apart(prepare, runs.parent.parent)
    assert done.returncode == 0 and done.stdout.count("was not written") == 1, (done.stdout, done.stderr)
    names = [name for _, _, names in os.walk(runs) for name in names]
    assert "run.json" not in names and not any(name.startswith(".") for name in names)
    whole_again(runs, told)
    assert told == []


@pytest.mark.parametrize("renames", range(4))
def test_a_kill_while_a_copy_is_written_leaves_no_summary(runs: Path, told: list[str], renames: int) -> None:
    """events.jsonl, two outputs and run.json: it ends before each of them has its name."""
    prepare = f"""
    done = []
    def kill(name, args):
        if name == "os.rename" and args[2] >= 0:
            done.append(name)
            if len(done) > {renames}:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(kill)
"""
    assert apart(prepare, runs.parent.parent).returncode == -signal.SIGKILL
    names = sorted(name for _, _, names in os.walk(only(runs)) for name in names)
    assert "run.json" not in names and len(names) == renames + 1, "and the one that has no name yet"
    whole_again(runs, told)
    assert told == []


@pytest.mark.parametrize("run", ["../evil", "a/b", ".hidden", "", "x" * 200, "nul\0"])
def test_a_run_that_would_lead_elsewhere_has_no_folder(copying: Any, runs: Path, told: list[str], run: str) -> None:
    async def test(writer: Writer) -> None:
        await writer.write(run, RunStarted(model="m"), RunFinished(stop_reason="answer"))
        assert (await writer.log.head(KEY)).seq == 2

    copying(test)
    assert len(told) == 1
    assert not copied(runs) and not (runs.parent.parent / "evil").exists()


LINKS = {
    "agent": ".agent",
    "runs": ".agent/runs",
    "run": ".agent/runs/20260102T030405Z-r-1",
    "outputs": ".agent/runs/20260102T030405Z-r-1/outputs",
}


@pytest.mark.parametrize("which", LINKS)
def test_no_link_is_followed(copying: Any, runs: Path, told: list[str], which: str) -> None:
    """Neither to write a copy nor to remove one. What is there stays, and is told."""
    elsewhere = runs.parent.parent / "elsewhere"
    link = runs.parent.parent / LINKS[which]
    runs.parent.rmdir()
    link.parent.mkdir(parents=True, exist_ok=True)
    (elsewhere / "runs" / "20260102T030405Z-r-1" / "outputs").mkdir(parents=True)
    (elsewhere / "20260102T030405Z-r-1").mkdir()
    for path in (elsewhere, *elsewhere.rglob("*")):
        for name in ("events.jsonl", "run.json", "ab" * 32, ".gitignore"):
            (path / name).write_text("theirs", encoding="utf-8") if path.is_dir() else None
    before = {path: path.read_bytes() for path in elsewhere.rglob("*") if path.is_file()}
    link.symlink_to(elsewhere)

    async def test(writer: Writer) -> None:
        for _ in range(2):
            await writer.write("r-1", *large(), RunFinished(stop_reason="answer"))
        assert len(told) == 1 and "is a link" in told[0] and not (runs / "20260102T030405Z-r-1/run.json").is_symlink()
        assert (await writer.log.head(KEY)).seq == 10
        await writer.log.delete(KEY)

    copying(test)
    assert len(told) == 2 and "could not be removed" in told[1]
    assert {path: path.read_bytes() for path in elsewhere.rglob("*") if path.is_file()} == before
    assert link.is_symlink()


def test_a_link_with_the_name_of_a_file_is_replaced(copying: Any, runs: Path, told: list[str]) -> None:
    (runs.parent / "theirs").write_text("theirs", encoding="utf-8")
    folder = runs / "20260102T030405Z-r-1"
    folder.mkdir(parents=True)
    for name in ("events.jsonl", "run.json"):
        (folder / name).symlink_to(runs.parent / "theirs")

    async def test(writer: Writer) -> None:
        await writer.write("r-1", RunStarted(model="m"), RunFinished(stop_reason="answer"))
        assert lines_of(folder) == [line async for line in writer.log.lines(KEY)] and summary_of(folder)["events"] == 2

    copying(test)
    assert told == [] and (runs.parent / "theirs").read_text(encoding="utf-8") == "theirs"


def test_what_the_log_refuses_is_not_in_the_folder(copying: Any, runs: Path) -> None:
    async def test(writer: Writer) -> None:
        await writer.write("r-1", RunStarted(model="m"))
        await writer.log.lease(KEY)
        with pytest.raises(SessionConflict):
            await writer.write("r-1", RunFinished(stop_reason="answer"))
        assert not copied(runs)

    copying(test)


def test_a_deleted_session_leaves_no_copies(copying: Any, runs: Path, told: list[str]) -> None:
    async def test(writer: Writer) -> None:
        for run in ("r-1", "r-2"):
            await writer.write(run, RunStarted(model="m"), RunFinished(stop_reason="answer"))
        other = SessionKey(session="other")
        lease = await writer.log.lease(other)
        events = (RunStarted(model="m"), RunFinished(stop_reason="answer"))
        envelopes = [Envelope(at=AT, session="other", run="r-3", event=event) for event in events]
        await writer.log.append(other, 0, lease, envelopes)
        note = runs / "20260102T030405Z-r-2" / "mine.txt"
        note.write_text("of a person", encoding="utf-8")
        await writer.log.delete(KEY)
        assert copied(runs) == ["20260102T030405Z-r-2", "20260102T030405Z-r-3"]
        assert list(note.parent.iterdir()) == [note]
        assert len(told) == 1 and "'r-2'" in told[0] and "mine.txt stays" in told[0]
        with pytest.raises(StoreError):
            await writer.log.head(KEY)

    copying(test)


def test_it_is_a_log_like_any_other(tmp_path: Path, runs: Path, told: list[str]) -> None:
    async def test() -> None:
        log = CopyingLog(SqliteEventLog(tmp_path / "prowess.db"), place(runs), on_problem=told.append)
        writer = Writer(log, await log.lease(KEY, "me"))
        await writer.write("r-1", RunStarted(model="m"), RunFinished(stop_reason="answer"))
        assert log.path == str(tmp_path / "prowess.db")
        assert [envelope.run async for envelope in log.read(KEY)] == ["r-1", "r-1"]
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
        log = CopyingLog(MemoryEventLog(), place(runs), on_problem=told.append)

        async def one(number: int) -> None:
            key, run = SessionKey(session=f"s{number}"), f"r-{number}"
            lease = await log.lease(key)
            events: list[Event] = [RunStarted(model="m"), *call("c"), RunFinished(stop_reason="answer")]
            for seq, event in enumerate(events):
                await log.append(key, seq, lease, [Envelope(at=AT, session=key.session, run=run, event=event)])
            lines = [line async for line in log.lines(key)]
            assert lines_of(runs / folder_name(run, AT)) == lines

        await asyncio.gather(*(one(number) for number in range(50)))
        await log.close()

    asyncio.run(test())
    assert told == []
