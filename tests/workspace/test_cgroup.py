"""Memory is limited for all processes of a run together where the kernel lets us; where it does not, that is said."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from guard import GUARD_S
from prowess.workspace.executors.local import LocalExecutor
from prowess.workspace.isolation.selftest import DEFAULT_UID
from prowess.workspace.limits import MIB, RunLimits
from prowess.workspace.process import cgroup
from prowess.workspace.process.cgroup import Groups, Parent, find_groups
from prowess.workspace.process.client import Processes
from prowess.workspace.process.command import Command, NotStarted

UID = DEFAULT_UID if os.geteuid() == 0 else None


@pytest.fixture
def groups(not_run: Callable[[str, str], None]) -> Groups | None:
    """None when there are none on this machine for this user."""

    async def find() -> tuple[Groups | None, str]:
        async with Processes() as processes:
            return await find_groups(256 * MIB, 20, processes, UID)

    found, why = asyncio.run(find())
    if found is None:
        assert why
        not_run("control groups", why)
    return found


def ours(groups: Groups) -> list[str]:
    mine = f"prowess-{os.getpid()}-"
    return [name for parent in groups._parents for name in os.listdir(parent.path) if name.startswith(mine)]


def test_whoever_joins_is_limited_with_all_it_starts(groups: Groups | None) -> None:
    if groups is None:
        return

    async def story() -> None:
        async with asyncio.timeout(GUARD_S), Processes() as processes:
            async with groups.made() as group:
                out = bytearray()
                command = Command(
                    argv=["sh", "-c", "cat /proc/self/cgroup; exit 3"],
                    cwd="/",
                    env={"PATH": "/usr/bin:/bin"},
                    uid=UID,
                    cgroups=group.lists,
                )
                assert (await processes.run(command, out.extend)).exit_code == 3
                name = os.path.basename(group.paths[0])
                assert out.decode().count(name) == len(group.paths) and not group.oom()
                assert ours(groups) == [name] * len(group.paths)
            assert ours(groups) == []

    asyncio.run(story())


def test_a_run_that_is_cancelled_leaves_no_group(groups: Groups | None) -> None:
    if groups is None:
        return

    async def story() -> None:
        async with asyncio.timeout(GUARD_S), Processes() as processes:
            started = asyncio.Event()

            async def run() -> None:
                async with groups.made() as group:
                    command = Command(argv=["/bin/sleep", "1000"], cwd="/", env={}, uid=UID, cgroups=group.lists)
                    await processes.run(command, on_start=lambda run: started.set())

            task = asyncio.ensure_future(run())
            await started.wait()
            assert ours(groups) != []
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(story())
    assert ours(groups) == []


def test_groups_of_runtimes_that_are_gone_are_swept_and_others_stay(groups: Groups | None) -> None:
    if groups is None:
        return
    start = cgroup._started_at(os.getpid())
    gone = ["prowess-999999999-1-1", f"prowess-{os.getpid()}-{int(start) + 1}-1"]  # nobody, and somebody later
    stay = [f"prowess-{os.getpid()}-{start}-77", "prowess-not-ours", "else"]
    folders = [os.path.join(parent.path, name) for parent in groups._parents for name in (*gone, *stay)]
    try:
        for folder in folders:
            os.mkdir(folder)
        groups.sweep()
        left = {os.path.basename(folder) for folder in folders if os.path.exists(folder)}
        assert left == set(stay)
    finally:
        for folder in folders:
            if os.path.exists(folder):
                os.rmdir(folder)


def test_a_group_that_cannot_be_joined_is_no_start(tmp_path: Path) -> None:
    async def story() -> None:
        async with Processes() as processes:
            command = Command(argv=["/bin/true"], cwd="/", env={}, uid=UID, cgroups=(str(tmp_path / "nowhere"),))
            with pytest.raises(NotStarted) as refused:
                await processes.run(command)
            assert refused.value.step == "cgroup"

    asyncio.run(story())


def test_without_groups_the_limit_is_absent_and_a_note_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "_mounts", lambda: iter(()))

    async def story() -> None:
        async with Processes() as processes:
            executor = LocalExecutor(processes, uid=UID, limits=RunLimits(memory=256 * MIB))
            isolation = await executor.isolation()
            assert isolation.limits["memory"] == "absent" and isolation.limits["processes"] == "best-effort"
            assert len(isolation.notes) == 1 and isolation.notes[0].startswith("The limit on memory does not hold: ")

    asyncio.run(story())


def test_groups_that_are_there_and_do_not_work_are_not_believed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A folder that looks like one of version 2, and is only a folder."""
    (tmp_path / "cgroup.subtree_control").write_text("memory pids\n", encoding="utf-8")
    (tmp_path / "cgroup.procs").write_text("", encoding="utf-8")
    monkeypatch.setattr(cgroup, "_mounts", lambda: iter([({"cgroup2"}, "/", str(tmp_path))]))
    monkeypatch.setattr(cgroup, "REMOVE_S", 0.0)

    async def story() -> None:
        async with Processes() as processes:
            found, why = await find_groups(256 * MIB, 20, processes, UID)
            assert found is None and "cannot be used" in why

    asyncio.run(story())


# What a machine says about its groups -> where ours would be, and what they would be told.
V2_SETTINGS = (("memory.max", "1000", False), ("memory.swap.max", "0", True), ("pids.max", "9", False))
LAYOUTS: dict[str, tuple[dict[str, str], str, list[Parent]]] = {
    "delegated scope: beside the group that we are in": (
        {"app.slice/cgroup.subtree_control": "cpu memory pids", "app.slice/term.scope/cgroup.subtree_control": ""},
        "0::/app.slice/term.scope",
        [Parent("app.slice", V2_SETTINGS)],
    ),
    "no memory among what is given": (
        {"app.slice/cgroup.subtree_control": "cpu pids", "app.slice/term.scope/cgroup.subtree_control": ""},
        "0::/app.slice/term.scope",
        [],
    ),
    "no processes among what is given": (
        {"app.slice/cgroup.subtree_control": "memory", "app.slice/term.scope/cgroup.subtree_control": ""},
        "0::/app.slice/term.scope",
        [Parent("app.slice", V2_SETTINGS[:2])],
    ),
    "a container, whose own group is the root": ({"cgroup.subtree_control": ""}, "0::/", []),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_version_2(layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, own, expected = LAYOUTS[layout]
    for name, content in files.items():
        path = tmp_path / "fs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
        (path.parent / "cgroup.procs").write_text("", encoding="utf-8")
    monkeypatch.setattr(cgroup, "_mounts", lambda: iter([({"cgroup2"}, "/", str(tmp_path / "fs"))]))
    read: Any = cgroup._lines
    monkeypatch.setattr(cgroup, "_lines", lambda path: [own] if path == "/proc/self/cgroup" else read(path))
    found = cgroup._parents(1000, 9)
    assert found == [parent._replace(path=str(tmp_path / "fs" / parent.path)) for parent in expected]
