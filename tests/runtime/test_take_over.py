"""The record of an earlier release in a project folder is taken over if this home wrote it, whole and once."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest

from command_lines import run_here
from old_records import add_session, waiting, write_key, write_old_record
from prowess.core.events import ApprovalAnswered, Envelope, RunFinished, RunStarted
from prowess.core.values import ChainHead, SessionKey
from prowess.records.chain import link

DONE = [RunStarted(model="offline", request="Hello"), RunFinished(stop_reason="answer", text="Hi")]


@pytest.fixture
def project(tmp_path: Path, machine: Path) -> Path:
    folder = tmp_path / "app"
    (folder / ".agent").mkdir(parents=True)
    write_key(machine)
    return folder


def asked(project: Path, *words: str) -> dict[str, Any]:
    answer = run_here([*words, "--json"], cwd=project)
    return json.loads(answer.out)


def sessions_of(project: Path) -> list[str]:
    return sorted(row["session"] for row in asked(project, "sessions", "list")["sessions"])


def test_what_this_home_wrote_is_taken_over_and_its_question_can_be_answered(project: Path) -> None:
    old = write_old_record(project, {"s-done": DONE, "s-waits": waiting()})
    artifacts = project / ".agent" / "artifacts" / "a"
    artifacts.mkdir(parents=True)
    (artifacts / "data").write_text("kept")
    (artifacts / "link").symlink_to("/etc/passwd")
    said = run_here(["sessions", "list"], cwd=project)
    assert "was moved to" in said.err and said.err.count("warning") == 1
    assert sessions_of(project) == ["s-done", "s-waits"]
    assert not old.exists() and old.with_name("prowess.db.moved").exists()
    place = Path(asked(project, "sessions", "list")["store"])
    assert (place.parent / "artifacts" / "a" / "data").read_text() == "kept"
    assert not os.path.lexists(place.parent / "artifacts" / "a" / "link"), "links are left behind"
    assert (project / ".agent" / "artifacts.moved").is_dir()
    (question,) = asked(project, "approvals", "list")["waiting"]
    assert question["to_answer"] is not None
    assert run_here(["approvals", "answer", "c1", "yes"], cwd=project).code == 0
    assert run_here(["runs", "verify", "--all"], cwd=project).code == 0
    assert "warning" not in run_here(["sessions", "list"], cwd=project).err


@pytest.mark.parametrize("whose", ["no marks", "another key", "another place", "one run of somebody else"])
def test_any_other_record_stays_and_is_named(project: Path, whose: str) -> None:
    given: dict[str, Any] = {
        "no marks": {"key": None},
        "another key": {"key": b"x" * 32},
        "another place": {"place": Path("/elsewhere/.agent/prowess.db")},
        "one run of somebody else": {},
    }[whose]
    old = write_old_record(project, {"s-waits": waiting()}, **given)
    if whose == "one run of somebody else":
        with sqlite3.connect(old) as connection:
            add_session(connection, "s-theirs", waiting(), None, old)
        connection.close()
    before = old.read_bytes()
    run_here(["trust", ".", "--yes"], cwd=project)
    for words in (["sessions", "list"], ["approvals", "list"]):
        said = run_here(words, cwd=project)
        assert f"prowess runs import {old}" in said.err and "s-waits" not in said.out
    assert old.read_bytes() == before and not (project / ".agent" / "prowess.db.moved").exists()
    codes = [finding["code"] for finding in asked(project, "doctor")["findings"]]
    assert "record-left" in codes


def test_a_record_of_more_than_a_gigabyte_is_only_named(project: Path) -> None:
    old = write_old_record(project, {"s-waits": waiting()})
    os.truncate(old, (1 << 30) + 4096)  # with a hole, so that it is quickly made
    assert f"prowess runs import {old}" in run_here(["sessions", "list"], cwd=project).err
    assert old.exists() and not old.with_name("prowess.db.moved").exists()


def test_an_answer_that_was_added_to_a_record_of_this_home_does_not_count(project: Path) -> None:
    yes = ApprovalAnswered(call_id="c1", answer="once", capability="write_file", later=True)
    old = write_old_record(project, {"s-waits": waiting()})
    with sqlite3.connect(old) as connection:  # the chain fits, and the answer has no mark
        seq, last = connection.execute("SELECT seq, hash FROM sessions").fetchone()
        head = ChainHead(seq=seq, hash=last)
        envelope = Envelope(at="2026-01-02T03:04:06.000000Z", session="s-waits", run="r-s-waits", event=yes)
        lines, hashes = link(SessionKey(session="s-waits"), head, [envelope])
        connection.execute("INSERT INTO events VALUES ('default','default','default','s-waits',6,?)", (lines[0],))
        connection.execute("UPDATE sessions SET seq = 6, hash = ?", (hashes[0],))
    connection.close()
    (question,) = asked(project, "approvals", "list")["waiting"]
    assert question["answer"] is None and question["to_answer"] is None, "it is asked again"


def test_a_record_that_is_in_use_stays_and_that_is_an_error(project: Path) -> None:
    old = write_old_record(project, {"s-done": DONE})
    other = sqlite3.connect(old)
    other.execute("SELECT count(*) FROM events").fetchone()
    try:
        answer = run_here(["sessions", "list", "--json"], cwd=project)
        assert json.loads(answer.out)["error"]["code"] == "state-in-use" and old.exists()
    finally:
        other.close()
    assert sessions_of(project) == ["s-done"]


STEPS = ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "sqlite3.connect", "sqlite3.connect/handle", "os.chmod")


def test_killed_at_any_step_nothing_is_lost_or_there_twice(project: Path, tmp_path: Path) -> None:
    killed = 0
    for step in range(1, 200):
        folder = tmp_path / f"app-{step}"
        old = write_old_record(folder, {"s-done": DONE, "s-waits": waiting()})
        (old.parent / "artifacts").mkdir()
        (old.parent / "artifacts" / "data").write_text("kept")
        child = os.fork()
        if child == 0:
            _die_at(step)
            os._exit(run_here(["sessions", "list"], cwd=folder).code)
        _, status = os.waitpid(child, 0)
        ended = os.waitstatus_to_exitcode(status)
        assert ended in (0, 9), f"step {step}"
        assert sessions_of(folder) == ["s-done", "s-waits"], f"killed at step {step}"
        assert run_here(["runs", "verify", "--all"], cwd=folder).code == 0
        store = Path(asked(folder, "sessions", "list")["store"])
        assert (store.parent / "artifacts" / "data").read_text() == "kept"
        assert not old.exists() and not list(store.parent.glob("*.taking*"))
        if ended == 0:
            break
        killed += 1
    assert killed > 20


def _die_at(step: int) -> None:
    """Ends this process as a kill does, at the given step on disk."""
    seen = 0

    def hook(event: str, args: Any) -> None:
        nonlocal seen
        is_write = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)
        if event in STEPS or is_write:
            seen += 1
            if seen == step:
                os._exit(9)

    sys.addaudithook(hook)
