"""Staying too long: nothing is left of a run when it is over, however that came. Cases 44, and 47 to 50.

That a daemon lives is seen by the lock that it holds on a file, which the kernel takes from whoever ends.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from escapes import naive
from escapes.scene import SKILL
from escapes.story import Found, Story, end_left, find_pids, found_by_host
from escapes.tiers import BareWorkspace
from prowess.core.ports import Executor, Program, Workspace
from prowess.core.values import SessionKey
from prowess.workspace.layout import environment
from prowess.workspace.session_folder import OpenPlace, Place
from prowess.workspace.skill_trees import Tree, remove_tree

SETTLE_S = 60.0


class Lifetime:
    def __init__(self, story: Story, open_executor: Callable[[], Executor]) -> None:
        self.story, self.scene, self.open_executor = story, story.scene, open_executor

    async def ends(self) -> Found:
        place, workspace = await self.story.open("lifetime")
        if isinstance(workspace, BareWorkspace):
            return self._unsupervised(place, workspace)
        found: Found = {}
        await self.story.run(workspace, "lasting.py", "leave", "exit")
        found["daemon-exit"] = await self._gone(place, "exit")
        ended = (await self.story.run(workspace, "lasting.py", "stay", "timeout", timeout_s=0.8)).ended
        found["daemon-timeout"] = await self._gone(place, "timeout", str(ended))
        found["past-timeout"] = found_by_host(not ended.timed_out, str(ended))
        found["held-streams"] = await self._held_streams(workspace)
        running = await self._stays(place, workspace, "cancel")
        running.cancel()
        await asyncio.wait([running])
        found["daemon-cancel"] = await self._gone(place, "cancel")
        found["daemon-supervisor"] = await self._without_supervisor(place, workspace)
        return found

    def _unsupervised(self, place: Place, workspace: BareWorkspace) -> Found:
        """The command is killed, and its daemon is not, whoever did it."""
        naive.kill_the_command(workspace, self.story.program(workspace, "lasting.py", "stay", "alone"))
        names = ("daemon-exit", "daemon-timeout", "daemon-cancel", "daemon-supervisor", "daemon-parent", "past-timeout")
        found = dict.fromkeys(names, found_by_host(_locked(place, "alone"), ""))
        holding = self.story.program(workspace, "lasting.py", "hold")
        found["held-streams"] = found_by_host(self._waits(workspace, holding), "")
        end_left(self.scene.nonce)
        return found

    def _waits(self, workspace: BareWorkspace, program: Program) -> bool:
        """Whoever reads to the end waits for the one who holds the other end."""
        process = workspace.start(program)
        try:
            process.communicate(timeout=1)
            return False
        except subprocess.TimeoutExpired:
            return True
        finally:
            end_left(self.scene.nonce)
            process.communicate()

    async def _held_streams(self, workspace: Workspace) -> dict[str, Any]:
        try:
            async with asyncio.timeout(SETTLE_S):
                done = await self.story.run(workspace, "lasting.py", "hold")
        except TimeoutError:
            return found_by_host(True, "it never returned")
        return found_by_host(done.out != b"over\n", str(done.ended))

    async def _stays(self, place: Place, workspace: Workspace, name: str) -> asyncio.Future[Any]:
        """A run that will not end by itself, and whose daemon is there."""
        ready = asyncio.Event()
        program = self.story.program(workspace, "lasting.py", "stay", name, env={"STAYS": f"{self.scene.nonce}-{name}"})
        running = asyncio.ensure_future(workspace.run(program, lambda data: ready.set()))
        async with asyncio.timeout(SETTLE_S):
            await ready.wait()
        assert _locked(place, name)
        return running

    async def _without_supervisor(self, place: Place, workspace: Workspace) -> dict[str, Any]:
        """Whoever watches over the runs is killed: on the host, or in the container, where that is."""
        running = await self._stays(place, workspace, "supervisor")
        above = _above(find_pids(f"{self.scene.nonce}-supervisor"))
        in_container = self.story.tier.startswith("docker")
        supervisors = [pid for pid in above if (_is_below_1_of_its_own(pid) if in_container else _is_ours(pid))]
        for pid in supervisors:
            os.kill(pid, signal.SIGKILL)
        await asyncio.wait([running], timeout=SETTLE_S)
        running.cancel()
        await asyncio.wait([running])
        found = await self._gone(place, "supervisor", supervisors)
        return found if len(supervisors) == 1 else {**found, "through": None}

    async def orphaned(self) -> Found:
        """The whole runtime is killed: what it ran is gone, and what it left lying about is swept by the next one."""
        if self.story.bare:
            return {}
        place = self.scene.open_place("orphaned", uid=self.story.uid)
        self.scene.close_places()  # whoever is alone with it may tidy up
        child = await asyncio.to_thread(self._start_another_runtime, place)
        child.kill()
        child.wait()
        found = {"daemon-parent": await self._gone(place, "parent")}
        before = self._traces(child.pid)
        successor = self.open_executor()
        for session in ("next", "orphaned"):
            _, workspace = await self.story.open(session, successor)
            await self.story.run(workspace, "lasting.py", "leave", "x")
        await successor.aclose()
        swept = found_by_host(bool(self._traces(child.pid)), before)
        found["swept"] = {**swept, "control": bool(before)}  # there was something to sweep
        left = os.listdir(os.path.join(place.path, "tmp"))
        found["swept-tmp"] = found_by_host(bool(left), left)
        for name in left:
            remove_tree(os.path.join(place.path, "tmp", name))
        return found

    def _start_another_runtime(self, place: Place) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-B", "-m", "escapes.drive", "hold", self.story.tier, str(self.scene.dir)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert child.stdout is not None
        with child.stdout as out:
            said = out.readline()
        assert said == b"ready\n" and _locked(place, "parent"), said
        return child

    def _traces(self, pid: int) -> list[str]:
        """What still tells of that runtime: control groups, containers."""
        groups = [
            os.path.join(folder, name)
            for folder, names, _ in os.walk("/sys/fs/cgroup")
            for name in names
            if name.startswith(f"prowess-{pid}-")
        ]
        return groups + self.story.containers(pid)

    async def _gone(self, place: Place, name: str, said: object = "") -> dict[str, Any]:
        until = time.monotonic() + SETTLE_S
        while (alive := _locked(place, name)) and time.monotonic() < until:
            await asyncio.to_thread(time.sleep, 0.02)
        return found_by_host(alive, said)

    def left_behind(self) -> Found:
        """At the end of everything: no process, no temporary folder, no control group, no container."""
        if self.story.bare:
            return {}
        tmp = [str(path) for path in self.scene.dir.glob("workspaces/*/tmp/*")]
        alive = [pid for pid in find_pids(self.scene.nonce) if pid not in (os.getpid(), self.scene.facts["victim"])]
        traces = self._traces(os.getpid())
        found = found_by_host(bool(tmp or alive or traces), {"tmp": tmp, "alive": alive, "traces": traces})
        return {"left-behind": {**found, "control": self.story.seen_alive}}  # by the same look, while there was one


async def hold(dir: str, executor: Executor, uid: int | None) -> None:
    """The runtime that will be killed: it has a run going, and says so."""
    with OpenPlace(dir, SessionKey(session="orphaned"), uid=uid) as place:
        workspace = await executor.open(place)
        await workspace.stage(_hostile_tree(dir), SKILL)
        told = environment(workspace.layout, skill=SKILL, run="held")
        script = f"{workspace.layout.seen(f'skills/{SKILL}')}/scripts/lasting.py"
        program = Program(
            argv=[workspace.python, "-B", script, "stay", "parent"],
            skill=SKILL,
            run="held",
            cwd=f"skills/{SKILL}",
            env={**workspace.environment, **told},
        )
        await workspace.run(program, lambda data: print("ready", flush=True))


def _hostile_tree(dir: str) -> Tree:
    [tree] = [path for path in Path(dir, "trees").iterdir() if (path / "scripts").is_dir()]
    return Tree(str(tree), f"sha256:{tree.name}")


def _locked(place: Place, name: str) -> bool:
    try:
        fd = os.open(os.path.join(place.root, "out", name), os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _above(pids: list[int]) -> list[int]:
    """Those and everybody above them, as far as us."""
    found: list[int] = []
    for pid in pids:
        while pid > 1 and pid != os.getpid() and pid not in found:
            found.append(pid)
            pid = _parent(pid)
    return found


def _parent(pid: int) -> int:
    return int(_read(pid, "stat").rpartition(b")")[2].split()[1])


def _is_ours(pid: int) -> bool:
    return _parent(pid) == os.getpid() and b"supervisor.py" in _read(pid, "cmdline")


def _is_below_1_of_its_own(pid: int) -> bool:
    """Whether its parent is process 1 of a container, by the number that it has in there."""
    lines = _read(_parent(pid), "status").splitlines()
    numbers = next((line.split()[1:] for line in lines if line.startswith(b"NSpid:")), [])
    return len(numbers) > 1 and numbers[-1] == b"1"


def _read(pid: int, name: str) -> bytes:
    try:
        return Path("/proc", str(pid), name).read_bytes()
    except OSError:
        return b""
