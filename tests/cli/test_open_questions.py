"""A question that is open at a terminal is seen from elsewhere; when its process is killed, it waits like any other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agents import call
from guard import GUARD_S
from terminals import Terminal

LOAD, RUN = call("skill_load", skill="demo"), call("skill_run", skill="demo", command="bash scripts/a.sh")
DONE = {"text": "done"}


@pytest.fixture
def project(tmp_path: Path, make_skill: Any, workspace_dir: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PROWESS_WORKSPACE_DIR", str(Path(workspace_dir, tmp_path.name)))
    (tmp_path / ".agent").mkdir()
    make_skill(tmp_path / "skills" / "demo", files={"scripts/a.sh": "echo ran >> $WORK_DIR/marks\n"})
    (tmp_path / "script.json").write_text(json.dumps([LOAD, RUN, DONE]), encoding="utf-8")
    (tmp_path / "rest.json").write_text(json.dumps([DONE]), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def prowess(*words: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "prowess", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=GUARD_S,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def waiting() -> list[dict[str, Any]]:
    return json.loads(prowess("approvals", "list", "--json"))["waiting"]


OPTIONS = ("--root", "skills", "--executor", "local", "--model")


@pytest.fixture
def asked(project: Path) -> Any:
    terminal = Terminal("run", "go", *OPTIONS, "scripted:script.json", cwd=project)
    terminal.wait_for("asks for permission")
    terminal.wait_for("no")
    yield terminal
    if terminal.process.poll() is None:
        terminal.process.kill()
        terminal.finish()


def test_it_is_listed_and_answered_where_it_is_asked(asked: Terminal) -> None:
    [row] = waiting()
    assert (row["state"], row["to_answer"], row["to_resume"]) == ("asking", None, None)
    assert "It is being asked now, where it runs." in prowess("approvals")
    refused = prowess("approvals", "answer", row["call_id"], "yes", code=1)
    assert "[session-in-use]" in refused and "Answer it there" in refused
    asked.type("o\n")
    assert asked.finish() == 0, asked.plain
    assert waiting() == []


def test_when_its_process_is_killed_it_waits(asked: Terminal, project: Path) -> None:
    os.kill(asked.process.pid, signal.SIGKILL)
    asked.finish()
    [row] = waiting()
    assert row["state"] == "cut-off" and "Nothing of this call was done." in prowess("approvals")
    prowess("approvals", "answer", row["call_id"], "yes")
    assert waiting()[0]["answer"] == "once"
    resumed = prowess(*row["to_resume"].replace("script.json", "rest.json").split()[1:], "--json")
    acted = [line for line in map(json.loads, resumed.splitlines()) if line["type"] == "call_acted"]
    assert [line["outcome"]["status"] for line in acted] == ["ok"], "it was made once, and was not said to be cut off"
    assert waiting() == [] and "all valid" in prowess("runs", "verify", "--all")


def test_it_can_also_be_asked_again(asked: Terminal, project: Path) -> None:
    os.kill(asked.process.pid, signal.SIGKILL)
    asked.finish()
    session = waiting()[0]["session"]
    again = Terminal("run", *OPTIONS, "scripted:rest.json", "--session", session, "--resume", cwd=project)
    again.wait_for("asks for permission")
    again.type("n\n")
    assert again.finish() == 0 and waiting() == []


def test_a_session_without_a_name_is_held_and_leaves_no_lock(asked: Terminal, project: Path) -> None:
    """Or else an answer from elsewhere would take the record from under it."""
    locks = Path(os.environ["PROWESS_WORKSPACE_DIR"], "locks")
    assert len(list(locks.iterdir())) == 1
    asked.type("n\n")
    asked.finish()
    assert list(locks.iterdir()) == []
