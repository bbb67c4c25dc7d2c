"""Programs that go on between calls: they are written to, looked at and ended, and none outlives its kit."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from guard import GUARD_S
from kits import open_kit, with_kit

ASK = """\
import sys
name = input("name? ")
print("hello", name, flush=True)
open("out/name.txt", "w").write(name)
"""
SLEEP = f"sleep 963{os.getpid()}"  # no other test run's


@pytest.fixture(params=["local", pytest.param("sandbox", marks=pytest.mark.needs("isolation"))])
def executor(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def root(tmp_path: Path, make_skill: Any) -> Path:
    files = {"scripts/ask.py": ASK, "scripts/tty.py": "import sys; print(sys.stdin.isatty(), flush=True); input()"}
    return make_skill(tmp_path / "skills" / "demo", files=files).parent


async def until(kit: Any, started: Any, words: str | None = None) -> dict[str, Any]:
    """Look until it has said so, or has ended. All that it said since it was started is in the output."""
    data, seen = started.data, started.data["output"]
    while data["status"] != "exited" and (words is None or words not in seen):
        data = (await kit.call("skill_poll_session", {"session_id": data["session_id"], "yield_ms": 2000})).data
        seen += data["output"]
    return {**data, "output": seen}


@pytest.mark.parametrize("tty", [False, True])
def test_a_conversation(root: Path, executor: str, tty: bool) -> None:
    async def work(kit: Any) -> None:
        args = {"skill": "demo", "script": "scripts/ask.py", "tty": tty, "yield_ms": 0}
        started = await kit.call("skill_exec", args)
        assert started.status == "ok" and started.data["status"] == "running", started
        session = started.data["session_id"]
        asked = await until(kit, started, "name?")
        assert asked["interaction"] == {
            "needs_input": True,
            "kind": "prompt",
            "hint": "Answer with skill_write_stdin, submit true.",
        }
        told = await kit.call(
            "skill_write_stdin", {"session_id": session, "chars": "Ada", "submit": True, "yield_ms": 5000}
        )
        ended = await until(kit, told)
        assert ended["status"] == "exited" and ended["exit_code"] == 0
        result = ended["result"]
        assert "hello Ada" in result["stdout"] and result["output_files"][0]["content"] == "Ada"
        assert result["isolation"]["executor"] == executor
        again = await kit.call("skill_poll_session", {"session_id": session})
        assert again.data["status"] == "exited" and again.data["result"] == result, "the result stays"

    with_kit(root, work, executor=executor)


@pytest.mark.needs("isolation")
def test_whoever_may_start_it_may_answer_it(root: Path) -> None:
    """In a sandbox nobody is asked, not to start it and not to write to it."""

    async def work(kit: Any) -> None:
        started = await kit.call("skill_exec", {"skill": "demo", "command": "cat; echo over", "yield_ms": 0})
        told = {"session_id": started.data["session_id"], "chars": "hi", "submit": True, "eof": True, "yield_ms": 5000}
        ended = await until(kit, await kit.call("skill_write_stdin", told))
        assert ended["result"]["stdout"] == "hi\nover\n"

    with_kit(root, work, executor="sandbox", approver=None)


def test_a_program_that_does_not_read_holds_nobody_up(root: Path) -> None:
    async def work(kit: Any) -> None:
        args = {"skill": "demo", "command": "sleep 60", "stdin": "x" * 300_000, "yield_ms": 100}
        started = await kit.call("skill_exec", args)
        assert started.data["status"] == "running" and "not taken all" in started.data["warnings"][0]

    with_kit(root, work, executor="local")


def test_a_cancelled_start_leaves_nothing_running(root: Path) -> None:
    async def work(kit: Any) -> None:
        call = kit.call("skill_exec", {"skill": "demo", "command": f"exec {SLEEP}", "yield_ms": 60_000})
        task = asyncio.ensure_future(call)
        await asyncio.to_thread(_appears, SLEEP)
        task.cancel()
        await asyncio.wait((task,))
        assert task.cancelled() and SLEEP not in _processes()

    with_kit(root, work, executor="local")


def test_the_record_ends_with_the_end(root: Path) -> None:
    """A kit that is closed while a call is being made: what came of the call stands before the end of the run."""

    async def story() -> list[str]:
        async with open_kit(root, executor="local") as kit:
            call = asyncio.ensure_future(kit.call("skill_run", {"skill": "demo", "command": f"exec {SLEEP}"}))
            await asyncio.to_thread(_appears, SLEEP)
        outcome = await call
        assert outcome.status == "failed" and SLEEP not in _processes()
        return [envelope.event.type async for envelope in kit.recorder._log.read(kit.recorder.key)]

    assert asyncio.run(story())[-2:] == ["call_acted", "run_finished"]


def test_a_terminal_is_one(root: Path, executor: str) -> None:
    async def work(kit: Any) -> None:
        for tty in (False, True):
            started = await kit.call("skill_exec", {"skill": "demo", "script": "scripts/tty.py", "tty": tty})
            assert str(tty) in (await until(kit, started, "e"))["output"]

    with_kit(root, work, executor=executor)


def test_ending_one_ends_all_of_it(root: Path, executor: str) -> None:
    mark = f"sleep 98{'1' if executor == 'local' else '2'}.5"

    async def work(kit: Any) -> None:
        command = f"(trap '' TERM; setsid {mark}) & echo started; {mark}"
        started = await kit.call("skill_exec", {"skill": "demo", "command": command, "yield_ms": 5000})
        session = started.data["session_id"]
        await until(kit, started, "started")
        killed = await kit.call("skill_kill_session", {"session_id": session})
        assert killed.data == {"ok": True, "session_id": session, "status": "killed"}
        assert mark not in _processes()
        again = await kit.call("skill_kill_session", {"session_id": session})
        assert again.data["status"] == "exited"

    with_kit(root, work, executor=executor)


def test_none_outlives_its_kit(root: Path, executor: str) -> None:
    mark = f"sleep 97{'1' if executor == 'local' else '2'}.5"

    async def work(kit: Any) -> None:
        started = await kit.call("skill_exec", {"skill": "demo", "command": f"echo up; exec {mark}", "yield_ms": 5000})
        await until(kit, started, "up")
        assert mark in _processes()

    with_kit(root, work, executor=executor)
    assert mark not in _processes()


def test_much_output_is_bounded_and_what_is_left_out_is_said(root: Path) -> None:
    async def work(kit: Any) -> None:
        started = await kit.call(
            "skill_exec", {"skill": "demo", "command": "seq 1 50000", "yield_ms": 60_000, "poll_lines": 5}
        )
        ended = started.data
        while ended["status"] != "exited":
            ended = (
                await kit.call("skill_poll_session", {"session_id": started.data["session_id"], "poll_lines": 5})
            ).data
        assert ended["next_offset"] == 50_000 and len(ended["output"].splitlines()) <= 6
        assert ended["result"]["truncated"] and ended["result"]["stdout_ref"].startswith("workspace://runs/")

    with_kit(root, work, executor="local")


def test_secrets_stay_out_of_what_is_shown(tmp_path: Path, make_skill: Any) -> None:
    front = "name: demo\ndescription: x\nrequires:\n  env: [API_KEY]\n"
    root = make_skill(tmp_path / "skills" / "demo", front=front).parent
    given = {
        "settings": {"secrets": {"API_KEY": "env:K"}, "redact": ["tok_[a-z]+"]},
        "environ": {"K": "s3cret-value-1"},
    }

    async def work(kit: Any) -> None:
        command = "printf 'key %s tok_abc? ' $API_KEY; read x"
        started = await kit.call("skill_exec", {"skill": "demo", "command": command, "yield_ms": 5000})
        said = await until(kit, started, "?")
        assert said["output"].strip() == "key [secret API_KEY] [redacted]?", "a prompt is not held back"

    with_kit(root, work, executor="local", **given)


@pytest.mark.parametrize("tool", ["skill_write_stdin", "skill_poll_session", "skill_kill_session"])
def test_a_session_that_is_not_there(root: Path, tool: str) -> None:
    outcome = with_kit(root, lambda kit: kit.call(tool, {"session_id": "none"}), executor="local")
    assert (outcome.status, outcome.code) == ("failed", "session-not-found") and "skill_exec" in (outcome.hint or "")


def test_not_too_many_at_once(root: Path) -> None:
    async def work(kit: Any) -> None:
        outcomes = [
            await kit.call("skill_exec", {"skill": "demo", "command": "sleep 60", "yield_ms": 0}) for _ in range(9)
        ]
        assert [outcome.status for outcome in outcomes] == ["ok"] * 8 + ["failed"]
        assert outcomes[-1].code == "too-many-sessions" and outcomes[0].data["session_id"] in (outcomes[-1].hint or "")

    with_kit(root, work, executor="local")


def test_what_cannot_start_is_said(root: Path, executor: str) -> None:
    async def work(kit: Any) -> None:
        settings_free = await kit.call("skill_exec", {"skill": "demo", "script": "scripts/none.py"})
        assert settings_free.code == "script-not-found"
        missing = await kit.call("skill_exec", {"skill": "demo", "command": "no-such-program", "yield_ms": 5000})
        assert missing.data["status"] == "exited" and missing.data["exit_code"] == 127

    with_kit(root, work, executor=executor)


def _appears(mark: str) -> None:
    while mark not in _processes():
        pass


def _processes() -> str:
    return subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout


def test_what_it_said_while_nobody_looked_is_told_at_once(root: Path) -> None:
    async def work(kit: Any) -> None:
        command = "until [ -e work/go ]; do sleep 0.02; done; echo said; touch work/said; exec cat"
        started = await kit.call("skill_exec", {"skill": "demo", "command": command, "yield_ms": 0})
        wait = "touch work/go; until [ -e work/said ]; do sleep 0.02; done"
        assert (await kit.call("skill_run", {"skill": "demo", "command": wait})).status == "ok"
        async with asyncio.timeout(GUARD_S):
            session = {"session_id": started.data["session_id"], "yield_ms": 60_000}
            assert "said" in (await kit.call("skill_poll_session", session)).data["output"]

    with_kit(root, work, executor="local")
