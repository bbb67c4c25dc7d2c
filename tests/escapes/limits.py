"""Wanting too much: what a run may use. Cases 37 to 43, and 45.

Each limit is set low, and what is tried ends by itself at a bound that harms nobody, so that a limit that does not hold
is seen and not felt.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from escapes import naive
from escapes.scene import SKILL
from escapes.story import Found, Story, found_by_host
from escapes.tiers import BareWorkspace
from prowess.core.ports import Executor, Workspace
from prowess.errors import WorkspaceError
from prowess.policy.secrets import Redactor
from prowess.workspace.job import Job, JobContext, JobResult, run_job
from prowess.workspace.limits import MIB, RunLimits

LOW = RunLimits(processes=24, cpu=1, open_files=128, file_size=8 * MIB, disk=8 * MIB)
TIGHT = RunLimits(memory=160 * MIB, processes=24, tmp=16 * MIB)
PROCESSES, DESCRIPTORS, PLENTY_MIB, MEMORY_MIB = 800, 600, 40, 320
SETTLE_S = 60.0


class Limits:
    """The same tier, with executors that allow little."""

    def __init__(self, story: Story, open_executor: Callable[[RunLimits], Executor]) -> None:
        self.story, self.scene = story, story.scene
        self.low, self.tight = open_executor(LOW), open_executor(TIGHT)

    async def use(self) -> Found:
        _, workspace = await self.story.open("limits", self.low)
        return {
            "fork-bomb": await self._wants(workspace, "fork_bomb", PROCESSES, got="count"),
            "descriptors": await self._wants(workspace, "descriptors", DESCRIPTORS, got="count"),
            "large-file": await self._wants(workspace, "large", PLENTY_MIB, got="mib"),
            "spin": await self._spins(workspace),
        }

    async def room(self) -> Found:
        """With no low limit on the size of a file, which would hide the one that counts here."""
        _, workspace = await self.story.open("room", self.tight)
        folders = {"fill-tmp": "TMPDIR", "fill-shm": "/dev/shm", "fill-dev": "/dev", "fill-root": "/"}
        return {
            name: await self._wants(workspace, "fill", PLENTY_MIB, folder, got="mib")
            for name, folder in folders.items()
        }

    async def memory(self) -> Found:
        _, workspace = await self.story.open("memory", self.tight)
        found = {
            "memory": await self._wants(workspace, "memory", MEMORY_MIB, got="mib"),
            "memory-of-children": await self._wants(workspace, "children", 6, "60", got="alive"),
            "memory-shared": await self._wants(workspace, "shared", MEMORY_MIB, got="mib"),
        }
        held = workspace.isolation.limits.get("memory", "absent")
        return {name: {**each, "limit": held} for name, each in found.items()}

    async def _wants(self, workspace: Workspace, what: str, most: int, *args: str, got: str) -> dict[str, Any]:
        """It got through when it got all that it wanted."""
        try:
            done = await self.story.run(workspace, "greedy.py", what, str(most), *args, timeout_s=20)
        except WorkspaceError as error:  # its container was ended for that, say
            return found_by_host(False, repr(error))
        lines = done.out.decode("utf-8", "replace").splitlines()
        said = json.loads(lines[-1]) if lines else {}
        return found_by_host(
            said.get(got, 0) >= said.get("wanted", most),
            {**said, "ended": str(done.ended), "err": done.err.decode()[-200:]},
        )

    async def _spins(self, workspace: Workspace) -> dict[str, Any]:
        program = self.story.program(workspace, "greedy.py", "spin", timeout_s=20)
        if isinstance(workspace, BareWorkspace):
            return found_by_host(naive.still_there_after(workspace, program, 1.5), "")
        ended = await workspace.run(program)
        return found_by_host(ended.timed_out or ended.exit_code == 0, str(ended))

    # --- through the door behind which a run is watched, and its output kept ------------------------------------------

    async def jobs(self) -> Found:
        filled, _ = await self._job("files", "1600", "16", timeout_s=15)
        endless, grown_kib = await self._job("endless", "binary", timeout_s=0.6)
        if filled is None or endless is None:
            return await self._unwatched()
        shown = len(endless.stdout)
        said = {"shown": shown, "grown_kib": grown_kib, "warnings": endless.warnings, "timed_out": endless.timed_out}
        watched = any("limit of" in warning for warning in filled.warnings)
        return {
            "fill-workspace": found_by_host(not watched, filled.warnings),
            "endless": found_by_host(shown > MIB or grown_kib > 64 << 10 or not endless.timed_out, said),
        }

    async def _job(self, *args: str, timeout_s: float) -> tuple[JobResult | None, int]:
        place, workspace = await self.story.open(args[0], self.low)
        if isinstance(workspace, BareWorkspace):
            return None, 0
        script = f"{workspace.layout.seen(f'skills/{SKILL}')}/scripts/greedy.py"
        argv = [workspace.python, "-B", script, *args]
        job = Job(skill=SKILL, folder=SKILL, tree=self.scene.trees[SKILL], argv=argv, timeout_s=timeout_s)
        desk = JobContext(workspace=workspace, place=place, key=place.key, redaction=Redactor({}), disk_bytes=LOW.disk)
        before = naive.memory_kib()
        return await run_job(job, desk), naive.memory_kib() - before

    async def _unwatched(self) -> Found:
        _, workspace = await self.story.open("unwatched", self.low)
        assert isinstance(workspace, BareWorkspace)
        filling = self.story.program(workspace, "greedy.py", "files", "1600", "16")
        endless = self.story.program(workspace, "greedy.py", "endless", "binary")
        kept = naive.keeps_all_output(workspace, endless)
        return {
            "fill-workspace": found_by_host(naive.still_there_after(workspace, filling, 1.5), ""),
            "endless": found_by_host(kept >= 96 * MIB, kept),
        }

    # --- two sessions -------------------------------------------------------------------------------------------------

    async def neighbours(self) -> Found:
        """While one session uses up all its processes, another one goes on. Without limits there is nothing to show."""
        if self.story.bare:
            return {}
        _, greedy = await self.story.open("greedy", self.low)
        _, modest = await self.story.open("modest", self.low)
        session = await greedy.open_session(self.story.program(greedy, "greedy.py", "hold_forks", str(PROCESSES)))
        try:
            said = b""
            async with asyncio.timeout(SETTLE_S):
                while b"}" not in said:
                    said += await session.read(wait_s=0.5)
            done = await self._wants(modest, "forks", 12, got="count")
        finally:
            await session.aclose()
        return {"fork-bomb-neighbour": found_by_host(not done["through"], [said.decode(), done["said"]])}

    async def aclose(self) -> None:
        await self.low.aclose()
        await self.tight.aclose()
