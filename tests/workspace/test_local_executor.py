"""The local executor keeps the contract, and says of itself that it isolates nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from machine_contract import MachineContract, grounds
from prowess.core.values import SessionKey
from prowess.errors import ConfigError, PathEscape, WorkspaceError, WorkspaceUnavailable
from prowess.workspace.executors.local import LocalExecutor
from prowess.workspace.isolation.selftest import DEFAULT_UID
from prowess.workspace.limits import RunLimits, parse_limits
from prowess.workspace.process.client import Processes
from prowess.workspace.session_folder import OpenPlace
from prowess.workspace.skill_trees import remove_tree
from workspace_contract import MANY, Claims, Desk, Ground, Tier

AS_ROOT = os.geteuid() == 0
UID = DEFAULT_UID if AS_ROOT else None


def make(processes: Processes, limits: RunLimits, folder: str) -> LocalExecutor:
    return LocalExecutor(processes, uid=UID, limits=limits)


# As another user, a script cannot write to what is ours; as ourselves it can, and nobody says otherwise.
LOCAL = Tier(
    name="local",
    make=make,
    claims=Claims(skill_is_read_only=AS_ROOT, files_protected=AS_ROOT, other_skills_hidden=False, host_hidden=False),
)


whole, ground = grounds(LOCAL)


class TestContract(MachineContract):
    pass


def test_it_says_that_there_is_no_isolation(ground: Ground) -> None:
    async def ask(desk: Desk) -> None:
        isolation = desk.workspace.isolation
        assert (isolation.executor, isolation.mechanism, isolation.network) == ("local", "none", "host")
        assert isolation.uid == (UID if AS_ROOT else os.geteuid())
        assert isolation.limits == {
            **dict.fromkeys(("cpu", "open_files", "file_size"), "enforced"),
            **dict.fromkeys(("processes", "disk"), "best-effort"),
            **dict.fromkeys(("memory", "tmp"), "absent"),
        }
        assert desk.workspace.layout.root == desk.workspace.layout.inside == desk.place.root

    ground.go(ask)


def test_a_limit_that_nobody_asks_for_is_absent(ground: Ground) -> None:
    none = RunLimits(**dict.fromkeys(RunLimits._fields))

    async def ask(desk: Desk) -> None:
        assert set(desk.workspace.isolation.limits.values()) == {"absent"}
        assert await desk.sh("ulimit -t; ulimit -f") == ["unlimited", "unlimited"]

    ground.go(ask, none)


def test_limits_as_the_configuration_says_them() -> None:
    limits = parse_limits({"memory": 1e9, "cpu": 0, "processes": -1, "tmp": 0.5})
    assert limits == RunLimits(memory=10**9, cpu=None, processes=None, tmp=1)
    for wrong, code in (({"cpus": 1}, "limit-unknown"), ({"cpu": float("inf")}, "limit-invalid")):
        with pytest.raises(ConfigError) as refused:
            parse_limits(wrong)
        assert refused.value.code == code and "cpu" in str(refused.value)


@pytest.mark.parametrize("uid", [0, None])
def test_nothing_runs_as_root(uid: int | None) -> None:
    async def ask() -> None:
        async with Processes() as processes:
            with pytest.raises(WorkspaceUnavailable) as refused:
                await LocalExecutor(processes, uid=uid, limits=RunLimits()).isolation()
            assert refused.value.code == "run-as-root" and "workspace.run_as" in (refused.value.hint or "")

    if AS_ROOT:
        asyncio.run(ask())


def test_only_root_can_run_scripts_as_somebody_else() -> None:
    async def ask() -> None:
        async with Processes() as processes:
            with pytest.raises(WorkspaceUnavailable) as refused:
                await LocalExecutor(processes, uid=DEFAULT_UID, limits=RunLimits()).isolation()
            assert refused.value.code == "privilege-drop-failed"

    if not AS_ROOT:
        asyncio.run(ask())


def test_notes_are_carried_by_every_workspace() -> None:
    async def ask(folder: str) -> None:
        async with Processes() as processes:
            executor = LocalExecutor(processes, uid=UID, limits=RunLimits(), notes=["first"])
            executor.note("second")
            assert (await executor.isolation()).notes == ("first", "second")

    asyncio.run(ask(""))


def test_a_copy_is_made_once_for_each_content(ground: Ground) -> None:
    async def look(desk: Desk) -> None:
        copy = desk.host("skills/demo")
        tree = desk.publish({"data.txt": "x"})

        def seen() -> dict[str, tuple[int, int]]:
            return {str(path): (path.lstat().st_ino, path.lstat().st_ctime_ns) for path in (copy, *copy.rglob("*"))}

        await desk.workspace.stage(tree, "demo")
        before = seen()
        await desk.workspace.stage(tree, "demo")
        await desk.sh("true; cat SKILL.md", cwd="skills/demo")
        await desk.workspace.stage(tree, "demo")
        another = await make(ground.processes, RunLimits(), "").open(desk.place)  # as another process would
        await another.stage(tree, "demo")
        await another.aclose()
        assert seen() == before
        await desk.workspace.stage(desk.publish({"data.txt": "y"}), "demo")
        assert seen() != before
        assert [path.name for path in desk.host("skills").iterdir()] == ["demo"]
        assert {name: os.readlink(copy / name) for name in ("out", "work")} == {
            "out": "../../out",
            "work": "../../work",
        }

    ground.go(look)


def test_a_copy_that_vanished_or_became_something_else_is_made_anew(ground: Ground) -> None:
    async def look(desk: Desk) -> None:
        tree = desk.publish({"data.txt": "x"})
        copy = desk.host("skills/demo")
        for change in (lambda: None, lambda: copy.symlink_to("/etc"), lambda: copy.write_text("x", encoding="utf-8")):
            await desk.workspace.stage(tree, "demo")
            assert await desk.sh("cat data.txt", cwd="skills/demo") == ["x"]
            remove_tree(str(copy))
            change()
        await desk.workspace.stage(tree, "demo")
        assert await desk.sh("cat data.txt", cwd="skills/demo") == ["x"]

    ground.go(look)


def test_a_workspace_of_another_user_or_out_of_reach_is_refused(ground: Ground) -> None:
    async def look(desk: Desk) -> None:
        with pytest.raises(WorkspaceError) as refused:
            await desk.executor.open(replace(desk.place, uid=None if AS_ROOT else 1))
        assert refused.value.code == "workspace-owner"
        closed = Path(desk.place.path).parent.parent / "closed"
        closed.mkdir(mode=0o700)
        if AS_ROOT:
            with OpenPlace(str(closed), SessionKey(session="s"), uid=UID) as place:
                with pytest.raises(WorkspaceError) as refused:
                    await desk.executor.open(place)
                assert refused.value.code == "workspace-unreachable"
                assert str(closed) in refused.value.message and "workspace.dir" in (refused.value.hint or "")

    ground.go(look)


@pytest.mark.parametrize("folder", ["work", "out", "runs", "skills"])
def test_a_folder_of_ours_that_became_a_link_is_not_worked_in(ground: Ground, folder: str) -> None:
    async def look(desk: Desk) -> None:
        desk.host(folder).rename(desk.host(f"{folder}-moved"))
        desk.host(folder).symlink_to(desk.host(f"{folder}-moved"))
        with pytest.raises(PathEscape) as refused:
            await desk.run("true")
        assert refused.value.code == "workspace-changed"
        desk.host(folder).unlink()
        with pytest.raises(PathEscape):
            await desk.run("true")

    ground.go(look)


def test_a_program_that_multiplies_comes_to_an_end(ground: Ground, not_run: Callable[[str, str], None]) -> None:
    """Counted together with whatever else the user runs, so there is room for that; see RUNS_AT_ONCE."""
    if not AS_ROOT:
        not_run("local: the bound on all processes of a user", "this user has others, whose number is not known")
        return

    async def multiply(desk: Desk) -> None:
        result = await desk.python(MANY, timeout_s=30)
        assert b"stopped" in result.out, result

    ground.go(multiply, RunLimits(processes=2))


def test_a_skill_that_cannot_be_copied_says_so(ground: Ground) -> None:
    async def look(desk: Desk) -> None:
        with pytest.raises(WorkspaceError) as refused:
            await desk.workspace.stage(desk.publish()._replace(path="/nowhere", digest="sha256:0"), "demo")
        assert refused.value.code == "stage-failed" and "'demo'" in refused.value.message
        assert [path.name for path in desk.host("skills").iterdir()] == ["demo"]

    ground.go(look)
