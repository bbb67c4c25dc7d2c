"""A workspace with one plain skill in it, opened by an executor of one kind, for tests of the doors before a run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import prowess
from escapes.reports import ROOT
from escapes.scene import ORDINARY
from prowess.core.ports import Executor, Program
from prowess.core.values import SessionKey
from prowess.workspace.executors.local import LocalExecutor
from prowess.workspace.executors.sandbox import SandboxExecutor
from prowess.workspace.layout import environment
from prowess.workspace.limits import RunLimits
from prowess.workspace.process.client import Processes
from prowess.workspace.process.command import Ended
from prowess.workspace.session_folder import OpenPlace
from prowess.workspace.skill_trees import publish

UID = ORDINARY if ROOT else None
KINDS = ("local", "bwrap+seccomp", "landlock+seccomp")
TEXT = "---\nname: plain\ndescription: Does one thing. Use when asked.\n---\nbody\n"


def executor_of(kind: str, processes: Processes, folder: Path) -> Executor:
    if kind == "local":
        return LocalExecutor(processes, uid=UID, limits=RunLimits())
    more: dict[str, Any] = {"mechanism": kind, "limits": RunLimits(), "dir": str(folder / "proofs")}
    return SandboxExecutor(processes, run_as=ORDINARY, **more)


class Opened:
    def __init__(self, executor: Executor, folder: Path, name: str = "plain") -> None:
        self.executor, self.folder, self.name = executor, folder, name
        self.number = 0

    async def __aenter__(self) -> Opened:
        self._open = OpenPlace(str(self.folder / "state"), SessionKey(session="doors"), uid=UID)
        self.place = self._open.__enter__()
        self.workspace = await self.executor.open(self.place)
        self.layout = self.workspace.layout
        self.tree = publish(prowess.Skill.from_text(TEXT), str(self.folder / "state" / "trees"))
        await self.workspace.stage(self.tree, self.name)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.workspace.aclose()
        self._open.close()

    def program(
        self, *argv: str, cwd: str = "work", run: str | None = None, skill: str | None = None, **env: str
    ) -> Program:
        self.number += 1
        told = environment(self.layout, skill=self.name, run=f"r{self.number}")
        return Program(
            argv=argv,
            skill=self.name if skill is None else skill,
            run=f"r{self.number}" if run is None else run,
            cwd=cwd,
            env={**self.workspace.environment, **told, **env},
        )

    async def run(self, *argv: str, **more: Any) -> Ended:
        return await self.workspace.run(self.program(*argv, **more))

    def path(self, rel: str) -> Path:
        return Path(self.place.root, rel)

    def has(self, rel: str) -> bool:
        return os.path.lexists(self.path(rel))

    def link(self, rel: str, leads_to: str | Path) -> None:
        self.path(rel).symlink_to(leads_to)
