"""Whatever a full disk or a kill cuts short in the copy of a run is told, is found, and is mended from the log."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from test_cli_runs import folder_of, large_run

from command_lines import Cli
from guard import GUARD_S
from prowess.core.events import ApprovalAnswered, Envelope, Event, NoteAppended, RunFinished, RunStarted
from prowess.core.values import SessionKey
from prowess.stores.run_folders import MirroredLog
from prowess.stores.sqlite import SqliteEventLog

KEY = SessionKey(session="s")
ANSWERED = ApprovalAnswered(call_id="c1", answer="once")
RUN: Sequence[Event] = (
    RunStarted(model="m", request="go"),
    *(NoteAppended(text=f"{number} " * 300) for number in range(3)),
    RunFinished(stop_reason="answer", text="done"),
)


class RoomyLog(SqliteEventLog):
    """The log has room; what is written beside it meets the limit, which is what a full disk looks like."""

    limit = resource.RLIM_INFINITY

    async def append(self, *args: Any, **more: Any) -> Any:
        set_limit(resource.RLIM_INFINITY)
        try:
            return await super().append(*args, **more)
        finally:
            set_limit(self.limit)


class MortalLog(SqliteEventLog):
    """Ends this process, as a power cut would, right after so many appends and before they are copied."""

    left = 0

    async def append(self, *args: Any, **more: Any) -> Any:
        stored = await super().append(*args, **more)
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return stored


def set_limit(size_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, resource.RLIM_INFINITY))


async def write(project: Path, inner: SqliteEventLog, events: Sequence[Any], run: str = "r-1") -> list[str]:
    """One event after the other, as a run does it, and what was told about the copy."""
    told: list[str] = []
    log = MirroredLog(inner, str(project / ".agent" / "runs"), on_problem=told.append)
    lease = await log.lease(KEY)
    seq = (await log.head(KEY)).seq
    for event in events:
        given = [Envelope(at="2026-01-02T03:04:05.000006Z", session="s", run=run, event=event)]
        seq += len(await log.append(KEY, seq, lease, given))
        await log.settle()  # so that the limit is in force for the copy
    await log.close()
    return told


def open_again(project: Path) -> list[str]:
    """As the next run of the session would."""
    return asyncio.run(write(project, SqliteEventLog(project / ".agent" / "prowess.db"), ()))


def apart(code: str, project: Path, *args: object) -> subprocess.CompletedProcess[str]:
    """In a process of its own, because limits and kills are."""
    tests = Path(__file__).parents[1]
    folders = [str(folder) for folder in (tests, tests / "stores", tests / "cli")]
    code = f"import sys; sys.path[:0] = {folders!r}\nfrom test_mirror_mending import *\n{code}"
    words = [sys.executable, "-c", code, str(project), *map(str, args)]
    return subprocess.run(words, capture_output=True, text=True, timeout=GUARD_S, check=False)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".agent").mkdir()
    return tmp_path


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, project: Path) -> Cli:
    monkeypatch.chdir(project)
    return Cli(capfd, "runs")


@pytest.fixture
def wanted(project: Path) -> dict[str, bytes]:
    """The copy as it is when nothing goes wrong."""
    assert asyncio.run(write(project, SqliteEventLog(project / ".agent" / "prowess.db"), RUN)) == []
    whole = files(folder_of(project, "r-1"))
    shutil.rmtree(project / ".agent")
    (project / ".agent").mkdir()
    return whole


FULL = """
async def go(project, limit):
    log = RoomyLog(project / ".agent" / "prowess.db")
    log.limit = limit
    for line in await write(project, log, RUN):
        print(line)
asyncio.run(go(Path(sys.argv[1]), int(sys.argv[2])))
"""


@pytest.mark.parametrize("limit", [0, 10, 500, 1_500, 3_000])
def test_a_disk_that_is_full_at_any_write(cli: Cli, project: Path, wanted: dict[str, bytes], limit: int) -> None:
    """From the first file on, at the first line, at later ones."""
    done = apart(FULL, project, limit)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("is not complete") == 1 and "The log has it all" in done.stdout
    folder = folder_of(project, "r-1")
    left = files(folder)
    assert "run.json" not in left and wanted["events.jsonl"].startswith(left.get("events.jsonl", b""))
    assert (left.get("events.jsonl") or b"\n").endswith(b"\n"), "no half a line"
    document = cli.json("verify", "r-1")
    assert document["valid"] and document["checked"] == ["log"] and "of 5 events" in document["copy_lacks"]
    assert "its copy lacks" in cli("verify", "--all") and "1 copy is incomplete" in cli.err
    assert open_again(project) == [] and files(folder) == wanted
    document = cli.json("verify", "r-1")
    assert document["checked"] == ["log", "copy"] and document["copy_lacks"] is None
    assert (project / ".agent" / ".gitignore").exists()


WORDY = (RunStarted(model="m", request="go on " * 400), RUN[-1])  # which its summary has twice


def test_a_disk_that_is_full_at_the_summary(cli: Cli, project: Path) -> None:
    done = apart(FULL.replace("RUN", "WORDY"), project, 4_000)
    assert done.stdout.count("is not complete") == 1, done.stderr
    folder = folder_of(project, "r-1")
    assert list(files(folder)) == ["events.jsonl"]
    assert cli.json("verify", "r-1")["copy_lacks"] == "run.json"
    assert open_again(project) == [] and cli.json("verify", "r-1")["copy_lacks"] is None


def test_outputs_that_could_not_be_written(cli: Cli, project: Path) -> None:
    events = large_run()
    told = asyncio.run(write(project, SqliteEventLog(project / ".agent" / "prowess.db"), events[:2]))
    folder = folder_of(project, "r-1")
    (folder / "outputs").write_text("in the way", encoding="utf-8")
    told += asyncio.run(write(project, SqliteEventLog(project / ".agent" / "prowess.db"), events[2:]))
    assert len(told) == 1 and "is not complete" in told[0] and not (folder / "run.json").exists()
    assert cli.json("verify", "r-1")["copy_lacks"] == "run.json"
    (folder / "outputs").unlink()
    assert open_again(project) == []
    listed = {each["sha256"] for each in json.loads((folder / "run.json").read_text(encoding="utf-8"))["outputs"]}
    assert listed == set(os.listdir(folder / "outputs")) and cli.json("verify", "r-1")["valid"]


LATE = FULL.replace("RUN", "[ANSWERED]")


def test_what_comes_after_the_end_of_a_run_and_does_not_fit(cli: Cli, project: Path) -> None:
    """An answer to what it was waiting for: the summary that was there is of fewer events."""
    asyncio.run(write(project, SqliteEventLog(project / ".agent" / "prowess.db"), RUN))
    done = apart(LATE, project, 0)
    assert done.stdout.count("is not complete") == 1, done.stderr
    assert cli.json("verify", "r-1")["copy_lacks"] == "1 of 6 events"
    assert open_again(project) == [] and cli.json("verify", "r-1")["checked"] == ["log", "copy"]


KILLED = """
log = MortalLog(Path(sys.argv[1]) / ".agent" / "prowess.db")
log.left = int(sys.argv[2])
asyncio.run(write(Path(sys.argv[1]), log, RUN))
"""


@pytest.mark.parametrize("appends", range(1, len(RUN) + 1))
def test_a_process_that_is_killed_between_the_log_and_the_copy(cli: Cli, project: Path, appends: int) -> None:
    assert apart(KILLED, project, appends).returncode == -signal.SIGKILL
    if appends > 1:  # before that there is no folder, and so no copy that could be wrong
        assert f"of {appends} events" in cli.json("verify", "r-1")["copy_lacks"]
        half = folder_of(project, "r-1") / ".run.json.a1b2_c3d"
        half.write_text("{", encoding="utf-8")
        assert open_again(project) == [] and not half.exists()
        assert (folder_of(project, "r-1") / "run.json").exists() == (appends == len(RUN))
    document = cli.json("verify", "r-1")
    assert document["valid"] and document["events"] == appends and document["copy_lacks"] is None
    assert cli.json("verify", "--all")["valid"]


def test_a_copy_that_says_something_else_is_left_for_whoever_verifies_it(cli: Cli, project: Path) -> None:
    asyncio.run(write(project, SqliteEventLog(project / ".agent" / "prowess.db"), RUN))
    folder = folder_of(project, "r-1")
    (folder / "run.json").unlink()
    path = folder / "events.jsonl"
    edited = path.read_bytes().replace(b"0 0 0", b"9 9 9")
    for content in (edited, path.read_bytes() + b"one more\n"):
        path.write_bytes(content)
        assert open_again(project) == [] and path.read_bytes() == content and not (folder / "run.json").exists()
        assert not cli.json("verify", "r-1", code=1)["valid"]


def test_a_copy_that_was_removed_stays_so(cli: Cli, project: Path) -> None:
    asyncio.run(write(project, SqliteEventLog(project / ".agent" / "prowess.db"), RUN))
    cli("prune", "--keep", "0", "--yes")
    assert open_again(project) == [] and list((project / ".agent" / "runs").iterdir()) == []
    assert cli.json("verify", "r-1")["checked"] == ["log"]
    cli("verify", "--all")
    assert "1 run has no copy" in cli.err


def test_a_link_or_a_strange_thing_in_its_place_is_not_mended(cli: Cli, project: Path) -> None:
    asyncio.run(write(project, SqliteEventLog(project / ".agent" / "prowess.db"), RUN))
    folder = folder_of(project, "r-1")
    for name in ("events.jsonl", "run.json"):
        (folder / name).unlink()
    os.mkfifo(folder / "events.jsonl")
    (told,) = open_again(project)
    assert "is not complete" in told and (folder / "events.jsonl").is_fifo()
    (folder / "events.jsonl").unlink()
    folder.rename(project / "elsewhere")
    folder.symlink_to(project / "elsewhere")
    assert open_again(project) == [] and list((project / "elsewhere").iterdir()) == []
