"""One session's work: the skills it has loaded, each pinned by digest, and its workspace, opened on first use.

Skills are published when they are loaded, so what a run or a reader sees is what was loaded, whatever happens to the
source. A skill that is unloaded is no longer in use and stays known: what it forbids is not lifted by that.

The work of a child run: the same workspace as its parent's, and its own skills in use.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from prowess._internal.tracing import span
from prowess.core.ports import ArtifactStore, CallGrant, Executor, Workspace
from prowess.core.values import Located, SessionKey
from prowess.errors import SkillError, SkillNotFound, WorkspaceError
from prowess.skills.load import read_resource
from prowess.skills.skill import Entry, Skill
from prowess.skills.validate import WORKSPACE_NAMES
from prowess.workspace.job import JobContext, JobResult
from prowess.workspace.layout import safe_name
from prowess.workspace.limits import RunLimits, check_installed
from prowess.workspace.outputs import DEFAULT_INLINE_BYTES
from prowess.workspace.scripts.environments import Environments
from prowess.workspace.session_folder import OpenPlace, Place
from prowess.workspace.skill_trees import SHIPPED, Tree, publish
from prowess.workspace.skill_trees_in_use import HeldTrees, TreeUser, add_user

_TRIES = 100
_WAIT_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSkill:
    """A skill in use: its content, where that is published, and its folder in the workspace."""

    skill: Skill
    tree: Tree
    folder: str

    def read(self, path: str) -> bytes:
        """One of its files as it was when the skill was loaded, also when the source was edited or removed since."""
        skill = self.skill
        if skill.contents is None:
            shipped = path.removeprefix("./").split("/")[0] in WORKSPACE_NAMES
            skill = skill._replace(directory=f"{self.tree.path}/{SHIPPED}" if shipped else self.tree.path)
        return read_resource(skill, path)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkOptions:
    """What holds for all runs of a session."""

    dir: str  # where workspaces and published trees are
    uid: int | None = None  # who owns what scripts write
    host_roots: Sequence[str] = ()
    limits: RunLimits = field(default_factory=RunLimits)
    require: Sequence[str] = ()
    inline_bytes: int = DEFAULT_INLINE_BYTES
    granted: Sequence[tuple[str, str | None]] = ()  # files that a person gave to the next run
    packages: Callable[[Entry], Sequence[str]] = lambda entry: ()  # what the configuration names for a skill
    store: str | None = None  # where the session is recorded; None: nobody can go on from what it has published
    store_name: str = ""  # the same, always: the session's folder is named by it


class SessionWork:
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
        self.to_install: set[tuple[str, str]] = set()  # (skill, block): what had to be granted
        self.added: dict[str, tuple[str, ...]] = {}  # packages that calls of this session added to a skill, by digest
        self.not_installed: dict[str, str] = {}  # why the last installation for a skill failed, by digest
        self.fit: set[str] = set()  # digests of skills whose requirements were found
        self.last: JobResult | None = None  # of skill_run, with the names of its files as they are
        self.pythons: dict[str, Any] = {}  # what was found out about an interpreter of another machine
        self._loaded: dict[str, LoadedSkill] = {}
        self._known: dict[str, LoadedSkill] = {}
        self._trees = HeldTrees()
        self._held: OpenPlace | None = None
        self._opened: tuple[Workspace, Place] | None = None
        self._turn = asyncio.Lock()

    @property
    def loaded(self) -> Mapping[str, LoadedSkill]:
        """The skills in use, by id; the one that was touched last comes last."""
        return self._loaded

    @property
    def known(self) -> Mapping[str, LoadedSkill]:
        """Every skill that was ever loaded, by id, as it was last; in the order of the first loading."""
        return self._known

    async def load(self, skill: Skill) -> LoadedSkill:
        """Publish it, and take it into use. Loading other content of the same skill replaces what was loaded, for the
        runs from now on."""
        id = skill.entry.id
        known = self._known.get(id)
        if known is None or known.skill.digest != skill.digest:
            with span("workspace.stage.publish", skill=skill.name, digest=skill.digest):
                tree = await self._publish(skill)
            self._known[id] = known = LoadedSkill(skill=_pinned(skill, tree), tree=tree, folder=self._folder(skill))
        self._loaded[id] = known
        self.touch(id)
        return known

    def touch(self, id: str) -> None:
        """It is worked with now. Nothing happens when it is not in use."""
        if id in self._loaded:
            self._loaded[id] = self._loaded.pop(id)

    def unload(self, id: str) -> None:
        """It is no longer in use."""
        self._loaded.pop(id, None)

    def restore(self, skill: Skill) -> LoadedSkill:
        """A skill as it was published before: nothing is copied."""
        path = f"{self.options.dir}/trees/{skill.digest.removeprefix('sha256:')}"
        self._hold(path, skill.digest)
        return LoadedSkill(skill=skill, tree=Tree(path, skill.digest), folder=self._folder(skill))

    def adopt(self, loaded: LoadedSkill, *, in_use: bool) -> None:
        """What another process of this session had loaded."""
        self._known[loaded.skill.entry.id] = loaded
        if in_use:
            self._loaded[loaded.skill.entry.id] = loaded

    def get(self, ref: str) -> LoadedSkill:
        """By id, or by a name that is unique among what is in use. Whoever asks for it works with it: it is touched."""
        found = [
            each
            for each in self._loaded.values()
            if ref in (each.skill.entry.id, each.skill.entry.qualified, each.skill.name, each.folder)
        ]
        if len(found) == 1:
            self.touch(found[0].skill.entry.id)
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
                check_installed(isolation, self.options.require, self.options.limits)
                with span("workspace.create", executor=f"{isolation.executor}:{isolation.mechanism}"):
                    self._held = OpenPlace(
                        self.options.dir, self.key, store=self.options.store_name, uid=self.options.uid
                    )
                    place = self._held.__enter__()  # not in a thread: one that is abandoned would keep the lock
                    opened = None
                    try:
                        opened = self._opened = (await self.executor.open(place), place)
                    finally:
                        if opened is None:
                            self._held.close()
            return self._opened

    async def find_program(self, ref: str) -> Callable[[str], Located]:
        """Finds the file of the system that a name leads to in a run of that skill, whose `.venv/bin` comes first."""
        find, (_, place), loaded = await self.executor.programs(), await self.workspace(), self.get(ref)
        venvs = (place.make_venv(loaded.folder, loaded.tree.digest), place.copied_venv(loaded.folder))

        def find_in_run(name: str) -> Located:
            if "/" not in name and any(os.path.lexists(os.path.join(venv, "bin", name)) for venv in venvs):
                return Located(why_not=f"'{name[:80]}' is the skill's own .venv/bin/{name[:80]}, which comes first.")
            return find(name)

        return find_in_run

    async def desk(self, within: CallGrant) -> JobContext:
        workspace, place = await self.workspace()
        return JobContext(
            workspace=workspace,
            place=place,
            key=self.key,
            redaction=within.redaction,
            artifacts=self.artifacts,
            host_roots=self.options.host_roots,
            skills=lambda name: self.get(name).tree.path,
            disk_bytes=self.options.limits.disk,
            inline_bytes=self.options.inline_bytes,
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
            self._trees.close()
            if self._held is not None:
                self._held.close()
                self._held = None

    async def _publish(self, skill: Skill) -> Tree:
        """Nobody cleans it away from now on, until this work is closed."""
        for _ in range(_TRIES):
            tree = await asyncio.to_thread(publish, skill, f"{self.options.dir}/trees")
            if self._hold(tree.path, skill.digest):
                return tree
            await asyncio.sleep(_WAIT_S)  # somebody looks whether it is in use, or removes it
        raise WorkspaceError(
            f"The published files of the skill '{skill.name}' are held by somebody else.",
            op="stage",
            code="workspace-in-use",
            retryable=True,
            hint="Wait until whoever cleans there has ended.",
        )

    def _hold(self, path: str, digest: str) -> bool:
        if not self._trees.hold(path):
            return False
        if self.options.store is not None:
            add_user(os.path.dirname(path), digest, TreeUser(self.options.store, self.key.tenant))
        return True

    def _folder(self, skill: Skill) -> str:
        """By its name; two skills of one name are told apart."""
        name = safe_name(skill.name)
        taken = {each.folder for id, each in self._known.items() if id != skill.entry.id}
        return name if name not in taken else f"{name[:50]}-{crc32(skill.entry.id.encode()):08x}"


def _pinned(skill: Skill, tree: Tree) -> Skill:
    """Its files are read from where they cannot change. A skill that ships a folder by a name of the workspace has that
    elsewhere in its tree, and is read at its source, where a change is noticed."""
    return skill if skill.directory is None or tree.notes else skill._replace(directory=tree.path)


class ChildWork(SessionWork):
    def __init__(self, parent: SessionWork) -> None:
        super().__init__(
            parent.key,
            parent.executor,
            parent.options,
            artifacts=parent.artifacts,
            environments=parent.environments,
        )
        self._parent = parent
        self.granted = parent.granted
        self._trees = parent._trees  # let go of when the parent is closed

    @property
    def root(self) -> str:
        return self._parent.root

    async def workspace(self) -> tuple[Workspace, Place]:
        return await self._parent.workspace()

    async def aclose(self) -> None:
        """The workspace is the parent's to close."""
