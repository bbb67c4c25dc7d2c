"""What a run leaves in out/ for whoever comes to collect it. Cases 46, 51 and 52."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

from escapes import naive
from escapes.story import Found, Story, found_by_host
from escapes.tiers import BareWorkspace
from prowess.core.ports import Workspace
from prowess.errors import WorkspaceError
from prowess.workspace.outputs import OutputFile, collect
from prowess.workspace.skill_trees import remove_tree

SETTLE_S = 60.0
ODD_NAMES, MANY = 6, 1500


class Collecting:
    def __init__(self, story: Story) -> None:
        self.story, self.scene = story, story.scene

    async def hostile_files(self) -> Found:
        _, workspace = await self.story.open("collection")
        credentials = str(self.scene.credentials)
        done = await self.story.run(workspace, "swapping.py", "outputs", credentials, str(MANY))
        if done.ended.exit_code != 0:
            raise RuntimeError(done.err.decode()[-2000:])
        made, before = done.out.decode(), naive.memory_kib()
        if isinstance(workspace, BareWorkspace):
            found = self._naive(workspace)
        else:
            found = {
                "collect-links": self._tells(collected(workspace, "out/l*")),
                "collect-hard-link": self._tells(collected(workspace, "out/hard")),
                "collect-fifo": not await _returns(workspace, "out/fifo"),
                "collect-many": len(collected(workspace, "out/many/*")) > 100,
                "collect-odd-names": not _can_be_told(collected(workspace, "out/*")),
                "collect-sparse": any(len(file.content or "") > 64 << 20 for file in collected(workspace, "out/s*"))
                or naive.memory_kib() - before > 256 << 10,
            }
        return {name: found_by_host(through, made) for name, through in found.items()}

    def _naive(self, workspace: BareWorkspace) -> dict[str, bool]:
        out, secret = workspace.layout.host("out"), self.scene.canary("home")
        return {
            "collect-links": secret in naive.collected(out, "l*"),
            "collect-hard-link": secret in naive.collected(out, "hard"),
            "collect-fifo": naive.waits_for_a_fifo(f"{out}/fifo"),
            "collect-many": len(os.listdir(f"{out}/many")) > 100,
            "collect-odd-names": not _is_text(os.listdir(out)),
            "collect-sparse": os.stat(f"{out}/sparse").st_size > 1 << 30,
        }

    def _tells(self, files: tuple[OutputFile, ...]) -> bool:
        return any(self.scene.canary("home") in (file.content or "") for file in files)

    async def changing(self) -> Found:
        """Now a file, now a link to a secret, for as long as somebody collects it."""
        _, workspace = await self.story.open("changing")
        program = self.story.program(workspace, "swapping.py", "swap", str(self.scene.credentials))
        if isinstance(workspace, BareWorkspace):
            path, secret = workspace.layout.host("out/changing"), self.scene.canary("home")
            return {"collect-changing": found_by_host(naive.reads_what_changes(workspace, program, path, secret), "")}
        session = await workspace.open_session(program)
        try:
            async with asyncio.timeout(SETTLE_S):
                while b"ready" not in await session.read(wait_s=0.5):
                    pass
            seen = [file for _ in range(400) for file in collected(workspace, "out/changing")]
        finally:
            await session.aclose()
        said = sorted({str(file.content) for file in seen})
        return {"collect-changing": found_by_host(self._tells(tuple(seen)), said)}

    async def deep(self) -> Found:
        return {"deep-folders": await self._deep()}

    async def _deep(self) -> dict[str, Any]:
        """Deeper than any path can say: whoever collects and whoever cleans must come to an end of it."""
        _, workspace = await self.story.open("deep")
        out = workspace.layout.host("out")
        try:
            done = await self.story.run(workspace, "greedy.py", "deep", "1200", "200")
        except WorkspaceError as error:  # where files have to be carried home: not these, and that is said
            return found_by_host(False, str(error)[:200])
        said = done.out.decode() + done.err.decode()[-300:]
        if self.story.bare:
            problem = naive.fails_to_remove(out)
            return found_by_host(problem != "", problem + said)
        try:
            returns = await _returns(workspace, "out/**")
            await asyncio.to_thread(remove_tree, out)
        except (OSError, RecursionError, WorkspaceError) as error:
            return found_by_host(True, f"{error!r} {said}")
        return found_by_host(not returns, said)


def collected(workspace: Workspace, pattern: str) -> tuple[OutputFile, ...]:
    return collect(workspace.layout, [pattern]).files


async def _returns(workspace: Workspace, pattern: str) -> bool:
    try:
        async with asyncio.timeout(SETTLE_S):
            await asyncio.to_thread(collect, workspace.layout, [pattern])
    except TimeoutError:
        return False
    return True


def _can_be_told(files: tuple[OutputFile, ...]) -> bool:
    """All of them, as results are told: one name that is no text does not cost the others."""
    names = [file.name for file in files]
    return len(names) >= ODD_NAMES and json.loads(json.dumps(names).encode()) == names


def _is_text(names: list[str]) -> bool:
    try:
        "".join(names).encode()
    except UnicodeEncodeError:
        return False
    return True
