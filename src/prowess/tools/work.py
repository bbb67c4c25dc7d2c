"""One session's work: the skills it has loaded, each pinned by digest, and its workspace, opened on first use.

Skills are published when they are loaded, so what a run sees is what was loaded, whatever happens to the source.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from prowess._tracing import span
from prowess.errors import SkillError, SkillNotFound
from prowess.ports import ArtifactStore, Executor, Within, Workspace
from prowess.skills.entry import Skill
from prowess.values import SessionKey
from prowess.workspace.job import Desk, Result
from prowess.workspace.layout import safe_name
from prowess.workspace.limits import RunLimits, refuse_absent
from prowess.workspace.place import OpenPlace, Place
from prowess.workspace.script.dependencies import Environments
from prowess.workspace.staging import Tree, publish


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A skill in use: its content, where that is published, and its folder in the workspace."""

    skill: Skill
    tree: Tree
    folder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkOptions:
    """What holds for all runs of a session."""

    dir: str  # where workspaces and published trees are
    uid: int | None = None  # who owns what scripts write
    host_roots: Sequence[str] = ()
    limits: RunLimits = field(default_factory=RunLimits)
    require: Sequence[str] = ()
    granted: Sequence[tuple[str, str | None]] = ()  # files that a person gave to the next run


class Work:
    def __init__(
        self,
        key: SessionKey,
        executor: Executor,
        options: WorkOptions,
        *,
        artifacts: ArtifactStore | None = None,
        environments: Environments | None = None,
    ) -> None:
        self.key = key
        self.executor = executor
        self.options = options
        self.artifacts = artifacts
        self.environments = environments
        self.granted = list(options.granted)
        self.fit: set[str] = set()  # digests of skills whose requirements were found
        self.last: Result | None = None  # of skill_run, with the names of its files as they are
        self.pythons: dict[str, Any] = {}  # what was found out about an interpreter of another machine
        self._loaded: dict[str, Loaded] = {}
        self._held: OpenPlace | None = None
        self._opened: tuple[Workspace, Place] | None = None
        self._turn = asyncio.Lock()

    @property
    def loaded(self) -> Mapping[str, Loaded]:
        """By id, in the order of loading."""
        return self._loaded

    async def load(self, skill: Skill) -> Loaded:
        """Publish it. Loading other content of the same skill replaces what was loaded, for the runs from now on."""
        known = self._loaded.get(skill.entry.id)
        if known is not None and known.skill.digest == skill.digest:
            return known
        with span("workspace.stage.publish", skill=skill.name, digest=skill.digest):
            tree = await asyncio.to_thread(publish, skill, f"{self.options.dir}/trees")
        loaded = Loaded(skill=skill, tree=tree, folder=self._folder(skill))
        self._loaded[skill.entry.id] = loaded
        return loaded

    def get(self, ref: str) -> Loaded:
        """By id, or by a name that is unique among what is loaded."""
        found = [
            each
            for each in self._loaded.values()
            if ref in (each.skill.entry.id, each.skill.entry.qualified, each.skill.name, each.folder)
        ]
        if len(found) == 1:
            return found[0]
        if found:
            raise SkillNotFound(
                f"'{ref}' could be {' or '.join(each.skill.entry.id for each in found)}.",
                code="skill-ambiguous",
                hint="Name it by its id.",
            )
        names = ", ".join(each.skill.name for each in self._loaded.values()) or "none"
        raise SkillError(
            f"The skill '{ref[:100]}' is not loaded.",
            code="skill-not-loaded",
            hint=f"Load it first with skill_load, and follow its instructions. Loaded: {names}",
        )

    @property
    def root(self) -> str:
        """Where the workspace's files are on this machine; "" before the first run."""
        return "" if self._opened is None else self._opened[1].root

    async def workspace(self) -> tuple[Workspace, Place]:
        async with self._turn:
            if self._opened is None:
                isolation = await self.executor.isolation()
                refuse_absent(isolation, self.options.require, self.options.limits)
                with span("workspace.create", executor=f"{isolation.executor}:{isolation.mechanism}"):
                    self._held = OpenPlace(self.options.dir, self.key, uid=self.options.uid)
                    place = self._held.__enter__()  # not in a thread: one that is abandoned would keep the lock
                    opened = None
                    try:
                        opened = self._opened = (await self.executor.open(place), place)
                    finally:
                        if opened is None:
                            self._held.close()
            return self._opened

    async def desk(self, within: Within) -> Desk:
        workspace, place = await self.workspace()
        return Desk(
            workspace=workspace,
            place=place,
            key=self.key,
            redaction=within.redaction,
            artifacts=self.artifacts,
            host_roots=self.options.host_roots,
            skills=lambda name: self.get(name).tree.path,
            disk_bytes=self.options.limits.disk,
            on_output=within.on_output,
        )

    async def aclose(self) -> None:
        """End what still runs. The files stay."""
        opened, self._opened = self._opened, None
        try:
            if opened is not None:
                with span("workspace.cleanup"):
                    await opened[0].aclose()
        finally:
            if self._held is not None:
                self._held.close()
                self._held = None

    def _folder(self, skill: Skill) -> str:
        """By its name; two skills of one name are told apart."""
        name = safe_name(skill.name)
        taken = {each.folder for id, each in self._loaded.items() if id != skill.entry.id}
        return name if name not in taken else f"{name[:50]}-{crc32(skill.entry.id.encode()):08x}"
