"""Local runs on systems without the kernel parts of Linux: the same contract, but for what every result says."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from pathlib import Path
from typing import Any

import pytest
from test_local_executor import LOCAL, UID, make

from command_lines import run_here
from conftest import make_skill
from kits import open_kit
from machine_contract import MachineContract, grounds
from prowess.core.values import Outcome
from prowess.errors import WorkspaceError, WorkspaceUnavailable
from prowess.workspace.limits import MIB, RunLimits
from prowess.workspace.process import posix_client as posix
from prowess.workspace.process.command import Command, Landlock
from prowess.workspace.process.posix_client import NOTE, PosixProcesses
from workspace_contract import DAEMON, Claims, Desk, Ground, Tier

POSIX = Tier(
    name="posix",
    make=make,
    claims=Claims(
        **{name: getattr(LOCAL.claims, name) for name in Claims.__dataclass_fields__} | {"finds_daemons": False}
    ),
    processes=PosixProcesses,
)
RUN = {"skill": "demo", "script": "scripts/x.py"}
whole, ground = grounds(POSIX)


class TestContract(MachineContract):
    def test_the_supervisor_may_be_killed(self, ground: Ground) -> None:
        """Here that is the watcher of a run: what it watched over ends as well."""

        async def kill(desk: Desk) -> None:
            up = asyncio.Event()
            program = desk.program(desk.workspace.python, "-I", "-S", "-c", desk.daemon + "while 1: signal.pause()")
            task = asyncio.ensure_future(desk.workspace.run(program, lambda data: up.set()))
            await up.wait()
            processes = desk.ground.processes
            assert isinstance(processes, PosixProcesses)
            processes.watchers[-1].kill()
            with pytest.raises(WorkspaceError) as lost:
                await task
            assert lost.value.code == "run-lost"
            with desk.host("work/lock").open("rb") as held:  # until it is free, which is when nothing is left
                await asyncio.to_thread(fcntl.flock, held, fcntl.LOCK_EX)
            assert await desk.sh("echo again") == ["again"]

        ground.go(kill)


def test_what_does_not_hold_is_said(ground: Ground) -> None:
    async def ask(desk: Desk) -> None:
        isolation = desk.workspace.isolation
        assert (isolation.executor, isolation.mechanism, isolation.network) == ("local", "none", "host")
        assert isolation.notes == (NOTE,)
        assert isolation.limits == {
            **dict.fromkeys(("cpu", "open_files", "file_size"), "enforced"),
            **dict.fromkeys(("processes", "memory", "tmp"), "absent"),
            "disk": "best-effort",
        }

    ground.go(ask, RunLimits(memory=256 * MIB))


def test_who_leaves_the_group_goes_on_as_the_note_says(ground: Ground) -> None:
    async def leave(desk: Desk) -> None:
        result = await desk.python(
            DAEMON.replace("os.write(tell", "print(os.getpid(), flush=True)\n        os.write(tell")
        )
        assert result.ended.exit_code == 0 and not desk.lock_is_free() and "leaves its process group" in NOTE
        os.kill(int(result.lines[0]), 9)

    ground.go(leave)


def test_no_run_outlives_the_runtime(ground: Ground) -> None:
    async def close(desk: Desk) -> None:
        desk.put("work/lock", "")
        processes = PosixProcesses()
        lock = "import fcntl, signal\nfcntl.flock(open('lock', 'r+'), fcntl.LOCK_EX)\n"
        argv = [desk.workspace.python, "-c", f"{lock}print('up', flush=True)\nsignal.pause()"]
        work = desk.host("work")
        gid = work.stat().st_gid if os.geteuid() == 0 else None  # as root the session has a group of its own
        session = await processes.open_session(Command(argv=argv, cwd=str(work), env={}, uid=UID, gid=gid))
        assert await session.read(wait_s=60) == b"up\n"
        await processes.aclose()
        assert desk.lock_is_free() and (await session.wait()).killed
        with pytest.raises(WorkspaceError):
            await processes.run(Command(argv=["true"], cwd="/", env={}))
        await session.aclose()

    ground.go(close)


def test_what_only_linux_can_do_is_refused_and_not_left_out() -> None:
    async def run() -> None:
        async with PosixProcesses() as processes:
            plain = Command(argv=["/bin/true"], cwd="/", env={})
            for isolated in ({"landlock": Landlock()}, {"seccomp": b"x"}, {"cgroups": ("x",)}):
                with pytest.raises(WorkspaceUnavailable):
                    await processes.run(plain._replace(**isolated))

    asyncio.run(run())


def test_nothing_is_used_that_other_systems_do_not_have(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, names in (
        (os, ("memfd_create", "pipe2", "pidfd_open", "waitid", "O_PATH", "setresuid", "sched_getaffinity")),
        (fcntl, ("F_ADD_SEALS",)),
    ):
        for name in names:
            monkeypatch.delattr(module, name, raising=False)

    async def run(desk: Desk) -> None:
        result = await desk.run("sh", "-c", "cat; echo err >&2; exit 3", stdin=b"given")
        assert (result.out, result.err, result.ended.exit_code) == (b"given", b"err\n", 3)
        session = await desk.workspace.open_session(desk.program("cat"))
        await session.write(b"x\n")
        assert await session.read(wait_s=60) == b"x\n"
        await session.aclose()

    ground.go(run)


# --- the front door ---------------------------------------------------------------------------------------------------


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    """A system that is not Linux, with a skill."""
    monkeypatch.setattr(posix, "LINUX", False)
    make_skill(folder / "skills" / "demo", files={"scripts/x.py": "import os\nprint(sorted(os.environ))\n"})
    return folder


def call(folder: Path, **given: Any) -> Outcome:
    async def work() -> Outcome:
        async with open_kit(folder / "skills", **given) as kit:
            return await kit.call("skill_run", RUN)

    return asyncio.run(work())


@pytest.mark.parametrize("executor", ["auto", "local"])
def test_a_person_is_asked_and_the_result_says_what_did_not_hold(
    elsewhere: Path, executor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SECRET", "x")
    asked: list[str] = []

    async def approver(call: Any, decision: Any) -> str:
        asked.append(decision.why)
        return "once"

    outcome = call(elsewhere, executor=executor, approver=approver)
    assert outcome.status == "ok" and len(asked) == 1 and "without isolation" in asked[0], outcome
    assert "MY_SECRET" not in outcome.data["stdout"] and "SKILL_DIR" in outcome.data["stdout"]
    notes = outcome.data["isolation"]["notes"]
    assert NOTE in notes and (executor == "local" or "it needs Linux" in notes[0])
    assert call(elsewhere, executor=executor, approver=None).status == "waiting", "nobody is asked: nothing runs"


def test_isolation_that_is_asked_for_is_not_replaced(elsewhere: Path) -> None:
    assert call(elsewhere, executor="sandbox").code == "no-sandbox"
    assert call(elsewhere, executor="local", settings={"workspace.require_isolation": True}).status == "denied"


def test_doctor_says_what_runs_scripts_here(elsewhere: Path) -> None:
    answer = run_here(["doctor", "--workspace", "--json"], cwd=elsewhere)
    document = json.loads(answer.out)
    assert document["workspace"]["isolation"]["executor"] == "local" and document["workspace"]["error"] is None
    assert NOTE in document["workspace"]["isolation"]["notes"]
    assert {each["error"] for each in document["workspace"]["sandboxes"]} == {"it needs Linux."}
