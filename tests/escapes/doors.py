"""The doors of an executor, from outside: names and folders that lead elsewhere, and settings that it must refuse.
Cases 55, 56, 57, 60 and 61."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from escapes.scene import SKILL
from escapes.story import Found, Story, found_by_host
from escapes.tiers import ENGINE, BareWorkspace
from prowess.core.ports import Executor, Workspace
from prowess.errors import WorkspaceError, WorkspaceUnavailable
from prowess.workspace.limits import MIB, RunLimits, check_installed

NAMES = ["../../x", "..", ".", "", "/etc", "a/b", "a\0b", "a\nb", "-rf", "x" * 300, "\udcff", ".hidden", "a\\..\\b"]
OUTSIDE = ["..", "../../..", "work/../../..", "/etc", "skills/../../../etc", "work/a/../../..", "a\0b"]
LINKS = {"out": "", "up": "../../../..", "root": "/", "proc": "/proc/self/cwd/.."}


class Doors:
    def __init__(self, story: Story, open_executor: Callable[..., Executor]) -> None:
        self.story, self.scene, self.open_executor = story, story.scene, open_executor

    async def names(self) -> Found:
        """A name that is a path: nothing is staged or run under it, and nothing is made where it leads."""
        place, workspace = await self.story.open("names")
        if isinstance(workspace, BareWorkspace):
            os.makedirs(os.path.join(place.root, "skills", "../../x"))  # as it is done where nobody thinks of that
            return {"names": found_by_host("x" in os.listdir(place.path), "")}
        before, taken = self._everything(place.path), []
        for name in NAMES:
            for what, do in (
                ("stage", lambda name=name: workspace.stage(self.scene.trees[SKILL], name)),
                ("run", lambda name=name: self._touch(workspace, run=name)),
                ("skill", lambda name=name: self._touch(workspace, skill=name)),
            ):
                if await self._takes(do):
                    taken.append((what, name))
        changed = self._everything(place.path) ^ before
        return {"names": found_by_host(bool(taken or changed), [taken, sorted(changed)])}

    async def folders(self) -> Found:
        """No run starts outside of its workspace: neither by the text of `cwd`, nor by a link that is in its way."""
        place, workspace = await self.story.open("folders")
        for link, leads_to in LINKS.items():
            os.symlink(leads_to or self.scene.outside, os.path.join(place.root, "work", link))
        if isinstance(workspace, BareWorkspace):
            await workspace.run(self._program(workspace, cwd="work/out"))
            return {"cwd": found_by_host(self._ran_elsewhere(), "")}
        taken = []
        for cwd in (*OUTSIDE, *(f"work/{link}" for link in LINKS), "work/no-such-folder"):
            if await self._takes(lambda cwd=cwd: self._touch(workspace, cwd=cwd)):
                taken.append(cwd)
        return {"cwd": found_by_host(bool(taken) or self._ran_elsewhere(), taken)}

    async def settings(self) -> Found:
        if self.story.bare:
            # Whoever starts it decides, and if that is root, it is root.
            return {"run-as-root": found_by_host(self.story.uid is None and os.geteuid() == 0, "")}
        taken = []
        for uid in (0, 0xFFFFFFFF):
            executor = self.open_executor(run_as=uid)
            try:
                await executor.isolation()
                taken.append(uid)
            except WorkspaceUnavailable:
                pass
            finally:
                await executor.aclose()
        held = await self.story.executor.isolation()
        refused = not _requires(held, "memory")  # of which nobody asked for any
        return {
            "run-as-root": found_by_host(bool(taken) and os.geteuid() == 0, taken),
            "limit-not-enforced": {**found_by_host(not refused, str(held.limits)), "control": _requires(held, "cpu")},
        }

    async def engine(self) -> Found:
        """An engine that gives a container the network of the host, whatever it was asked for."""
        with weak_engine(os.environ[ENGINE], str(self.scene.base / "weak.sock")) as (address, changed):
            executor = self.open_executor(engine=address)
            try:
                await executor.isolation()
                said = ""
            except WorkspaceUnavailable as error:
                said = str(error)
            finally:
                await executor.aclose()
        found = found_by_host("no network" not in said, said)
        return {"weak-engine": {**found, "control": bool(changed)}}  # it was weaker indeed

    async def _touch(self, workspace: Workspace, **changes: Any) -> None:
        await workspace.run(self._program(workspace, **changes))

    def _program(self, workspace: Workspace, **changes: Any) -> Any:
        return self.story.changed(workspace, argv=["touch", "ran"], **{"cwd": "work", **changes})

    def _ran_elsewhere(self) -> bool:
        return os.path.lexists(self.scene.outside / "ran")

    def _everything(self, path: str) -> set[str]:
        found = {str(each) for each in Path(path).rglob("*")}
        return {each for each in found if "/runs/" not in each and "/venvs/" not in each}

    async def _takes(self, do: Callable[[], Any]) -> bool:
        try:
            await do()
        except WorkspaceError:
            return False
        return True


def _requires(held: Any, name: str) -> bool:
    """Whether it is good enough for somebody who insists on that limit."""
    try:
        check_installed(held, [name], RunLimits(memory=64 * MIB))
    except WorkspaceUnavailable:
        return False
    return True


@contextmanager
def weak_engine(address: str, path: str) -> Iterator[tuple[str, list[bytes]]]:
    """In front of the real one; of what is asked, one word is changed for another of the same length."""
    changed: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(32)
        threading.Thread(
            target=_forward_all, args=(server, address.removeprefix("unix://"), changed), daemon=True
        ).start()
        try:
            yield f"unix://{path}", changed
        finally:
            server.shutdown(socket.SHUT_RDWR)


def _forward_all(server: socket.socket, path: str, changed: list[bytes]) -> None:
    while True:
        try:
            client = server.accept()[0]
        except OSError:
            return
        engine = socket.socket(socket.AF_UNIX)
        engine.connect(path)
        for source, target in ((client, engine), (engine, client)):
            threading.Thread(target=_forward, args=(source, target, changed), daemon=True).start()


def _forward(source: socket.socket, target: socket.socket, changed: list[bytes]) -> None:
    asked = b'"NetworkMode": "none"'
    try:
        while data := source.recv(1 << 16):
            if asked in data:
                changed.append(asked)
            target.sendall(data.replace(asked, b'"NetworkMode": "host"'))
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass
