"""Holds the work of one session: its loaded skills, each pinned by digest, and its workspace, opened on first use.

A skill is published (copied) when it is loaded. Runs and readers see that copy, also when the source changes later.
An unloaded skill is no longer in use but stays known: its restrictions stay in force.

A child run has the workspace of its parent, and its own skills in use.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from prowess._internal.light_dataclass import dataclass
from prowess._internal.tracing import span
from prowess.core.ports import ArtifactStore, CallGrant, Executor, Workspace
from prowess.core.values import Located, SessionKey
from prowess.errors import ProwessError, SkillError, SkillNotFound, WorkspaceError
from prowess.skills.load import read_resource
from prowess.skills.skill import WORKSPACE_NAMES, Entry, Skill
from prowess.tools.base import PlainTool
from prowess.workspace.dirfd import read_beneath
from prowess.workspace.job import JobContext, JobResult
from prowess.workspace.layout import safe_name
from prowess.workspace.limits import RunLimits, check_installed
from prowess.workspace.outputs import DEFAULT_INLINE_BYTES
from prowess.workspace.scripts.environments import Environments
from prowess.workspace.session_folder import OpenPlace, Place
from prowess.workspace.skill_trees import SHIPPED, Tree, publish
from prowess.workspace.skill_trees_in_use import HeldTrees, TreeUser, add_user

if TYPE_CHECKING:
    from prowess.workspace.inputs import Staged
    from prowess.workspace.run_file import RunFile

_TRIES = 100
_WAIT_S = 0.05


class LoadedSkill(NamedTuple):
    """Skill in use: its content, its published tree, and its folder in the workspace."""

    skill: Skill
    tree: Tree
    folder: str

    def read(self, path: str) -> bytes:
        """Reads one file as it was when the skill was loaded, also if the source was edited or removed since."""
        skill = self.skill
        if skill.contents is None:
            directory = self.tree.path
            top, _, _ = path.removeprefix("./").partition("/")
            if top in WORKSPACE_NAMES:
                directory = f"{directory}/{SHIPPED}"
            skill = skill._replace(directory=directory)
        return read_resource(skill, path)


class WorkOptions(NamedTuple):
    """Options for all runs of a session."""

    dir: str  # folder of workspaces and published trees
    host_roots: Sequence[str] = ()
    require: Sequence[str] = ()
    inline_bytes: int = DEFAULT_INLINE_BYTES
    granted: Sequence[tuple[str, str | None]] = ()  # files that a person gave to the next run
    searched: Sequence[str] = ()  # folders of skills
    store: str | None = None  # store that records the session; None: the session cannot be continued
    store_name: str = ""  # name of the store, never None; part of the session's folder name


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkBackend:
    """Parts behind the work of a session. A session that loads no skill and touches no file needs none of them."""

    executor: Executor
    uid: int | None = None  # owner of files that scripts write
    limits: RunLimits = field(default_factory=RunLimits)
    packages: Callable[[Entry], Sequence[str]] = lambda entry: ()  # packages that the configuration names for a skill
    artifacts: ArtifactStore | None = None
    environments: Environments | None = None
    trees: HeldTrees = field(default_factory=HeldTrees)


class SessionWork:
    def __init__(self, key: SessionKey, options: WorkOptions, make_backend: Callable[[], WorkBackend]) -> None:
        """Takes `make_backend`, which is called when a part of it is first needed."""
        self.key = key
        self.options = options
        self._make_backend = make_backend
        self._backend: WorkBackend | None = None
        self.granted: list[tuple[str, str | None]] = list(options.granted)
        self.to_install: set[tuple[str, str]] = set()  # (skill, block) that needed a grant
        self.added: dict[str, tuple[str, ...]] = {}  # packages that calls of this session added to a skill, by digest
        self.not_installed: dict[str, str] = {}  # reason why the last installation for a skill failed, by digest
        self.fit: set[str] = set()  # digests of skills whose requirements are met
        self.last: JobResult | None = None  # last result of skill_run, with its real file names
        self.pythons: dict[str, Any] = {}  # facts about an interpreter on another machine
        self._loaded: dict[str, LoadedSkill] = {}
        self._known: dict[str, LoadedSkill] = {}
        self._held: OpenPlace | None = None
        self._opened: tuple[Workspace, Place] | None = None
        self._turn = asyncio.Lock()

    @property
    def backend(self) -> WorkBackend:
        """The parts, made on first use."""
        if self._backend is None:
            self._backend = self._make_backend()
        return self._backend

    @property
    def loaded(self) -> Mapping[str, LoadedSkill]:
        """Skills in use, by id. The most recently used skill comes last."""
        return self._loaded

    @property
    def known(self) -> Mapping[str, LoadedSkill]:
        """All skills that were ever loaded, by id, in their latest version. Ordered by first load."""
        return self._known

    async def load(self, skill: Skill) -> LoadedSkill:
        """Publishes a skill and takes it into use. New content of the same skill replaces the old for later runs."""
        id = skill.entry.id
        known = self._known.get(id)
        if known is None or known.skill.digest != skill.digest:
            with span("workspace.stage.publish", skill=skill.name, digest=skill.digest):
                tree = await self._publish(skill)
            pinned = _pinned(skill, tree)
            folder = self._folder(skill)
            known = LoadedSkill(skill=pinned, tree=tree, folder=folder)
            self._known[id] = known
        self._loaded[id] = known
        self.touch(id)
        return known

    def touch(self, id: str) -> None:
        """Marks a skill as the most recently used. Does nothing when it is not in use."""
        if id in self._loaded:
            self._loaded[id] = self._loaded.pop(id)

    def unload(self, id: str) -> None:
        """Takes a skill out of use. It stays known."""
        self._loaded.pop(id, None)

    def restore(self, skill: Skill) -> LoadedSkill:
        """Returns a skill that was published before. Copies nothing."""
        name = skill.digest.removeprefix("sha256:")
        path = f"{self.options.dir}/trees/{name}"
        self._hold(path, skill.digest)
        tree = Tree(path, skill.digest)
        folder = self._folder(skill)
        return LoadedSkill(skill=skill, tree=tree, folder=folder)

    def adopt(self, loaded: LoadedSkill, *, in_use: bool) -> None:
        """Takes over a skill that another process of this session loaded."""
        id = loaded.skill.entry.id
        self._known[id] = loaded
        if in_use:
            self._loaded[id] = loaded

    def get(self, ref: str) -> LoadedSkill:
        """Returns a skill in use, by id or by a unique name, and marks it as the most recently used."""
        found = self._find(ref)
        if len(found) == 1:
            self.touch(found[0])
            return self._loaded[found[0]]
        if found:
            could_be = " or ".join(found)
            raise SkillNotFound(f"'{ref}' could be {could_be}.", code="skill-ambiguous", hint="Name it by its id.")
        names = ", ".join(each.skill.name for each in self._loaded.values()) or "none"
        message = f"The skill '{ref[:100]}' is not loaded."
        hint = f"Load it first with skill_load. Loaded: {names}"
        raise SkillError(message, code="skill-not-loaded", hint=hint)

    def is_loaded(self, ref: object) -> bool:
        """True if `ref` names a skill in use."""
        return bool(self._find(ref))

    def _find(self, ref: object) -> list[str]:
        found: list[str] = []
        for id, each in self._loaded.items():
            entry = each.skill.entry
            if ref in (id, entry.qualified, each.skill.name, each.folder):
                found.append(id)
        return found

    @property
    def root(self) -> str:
        """Folder of the workspace on this machine; "" before the first run."""
        if self._opened is None:
            return ""
        _, place = self._opened
        return place.root

    async def workspace(self) -> tuple[Workspace, Place]:
        """The workspace and its folder, opened on first use."""
        async with self._turn:
            if self._opened is None:
                self._opened = await self._open()
            return self._opened

    async def _open(self) -> tuple[Workspace, Place]:
        backend = self.backend
        options = self.options
        isolation = await backend.executor.isolation()
        check_installed(isolation, options.require, backend.limits)
        with span("workspace.create", executor=f"{isolation.executor}:{isolation.mechanism}"):
            self._held = OpenPlace(options.dir, self.key, store=options.store_name, uid=backend.uid)
            place = self._held.__enter__()  # not in a thread: an abandoned thread would keep the lock
            workspace = None
            try:
                workspace = await backend.executor.open(place)
                return workspace, place
            finally:
                if workspace is None:
                    self._held.close()

    async def read_file(self, path: str, limit_bytes: int) -> bytes | None:
        """Reads a workspace file. None if it does not exist or is larger than the limit."""
        _, place = await self.workspace()
        try:
            return await asyncio.to_thread(read_beneath, place.root, path, limit_bytes)
        except (OSError, ProwessError):
            return None

    async def stage_file(self, path: str, to: str | None) -> Staged:
        """Copies a file or folder that a person gave into the workspace."""
        from prowess.workspace.inputs import stage_granted

        workspace, place = await self.workspace()
        layout = workspace.layout
        return await asyncio.to_thread(stage_granted, path, to, layout, place.uid)

    def find_output(self, file: Mapping[str, Any]) -> RunFile:
        """Returns a file of `output_files`, which outcomes have, where it is on this machine."""
        from prowess.workspace.run_file import RunFile

        name = file["name"]
        return RunFile(
            name=name,
            mime_type=file["mime_type"],
            size_bytes=file["size_bytes"],
            folder=self.root,
            below=name,
            searched=tuple(self.options.searched),
        )

    async def store_output(self, call_id: str, text: str) -> str | None:
        """Stores the full text of an output as an artifact, and returns its ref. None if it cannot be stored."""
        name = f"outputs/{call_id}.txt"
        try:
            artifacts = self.backend.artifacts
            if artifacts is None:
                return None
            kept = await artifacts.save(self.key, name, text.encode(), mime_type="text/plain")
        except (ProwessError, OSError):  # whoever shows the text says that the rest was not kept
            return None
        return f"artifact://{name}@{kept.version}"

    async def find_program(self, ref: str) -> Callable[[str], Located]:
        """Returns a function that finds the system's file for a program name. The skill's `.venv/bin` comes first."""
        find = await self.backend.executor.programs()
        _, place = await self.workspace()
        loaded = self.get(ref)
        made = place.make_venv(loaded.folder, loaded.tree.digest)
        copied = place.copied_venv(loaded.folder)

        def find_in_run(name: str) -> Located:
            if "/" in name:
                return find(name)
            for venv in (made, copied):
                if os.path.lexists(os.path.join(venv, "bin", name)):
                    shown = name[:80]
                    return Located(reason=f"'{shown}' is the skill's own .venv/bin/{shown}, which comes first.")
            return find(name)

        return find_in_run

    async def desk(self, within: CallGrant) -> JobContext:
        """Environment of a job in this session."""
        workspace, place = await self.workspace()
        backend = self.backend
        options = self.options
        return JobContext(
            workspace=workspace,
            place=place,
            key=self.key,
            redaction=within.redaction,
            artifacts=backend.artifacts,
            host_roots=options.host_roots,
            skills=self._path_of,
            disk_bytes=backend.limits.disk,
            inline_bytes=options.inline_bytes,
            on_output=within.on_output,
        )

    def _path_of(self, ref: str) -> str:
        loaded = self.get(ref)
        return loaded.tree.path

    async def aclose(self) -> None:
        """Ends running programs. The files stay."""
        if self._backend is None:
            return
        opened = self._opened
        self._opened = None
        try:
            if opened is not None:
                workspace, _ = opened
                with span("workspace.cleanup"):
                    await workspace.aclose()
        finally:
            self._backend.trees.close()
            if self._held is not None:
                self._held.close()
                self._held = None

    async def _publish(self, skill: Skill) -> Tree:
        """Publishes a skill and holds its tree, so that no clean-up removes it until this work is closed."""
        trees = f"{self.options.dir}/trees"
        for _ in range(_TRIES):
            tree = await asyncio.to_thread(publish, skill, trees)
            if self._hold(tree.path, skill.digest):
                return tree
            await asyncio.sleep(_WAIT_S)  # another process checks if it is in use, or removes it
        message = f"The published files of the skill '{skill.name}' are held by somebody else."
        hint = "Wait until whoever cleans there has ended."
        raise WorkspaceError(message, op="stage", code="workspace-in-use", retryable=True, hint=hint)

    def _hold(self, path: str, digest: str) -> bool:
        """Holds a published tree, and records that this session's store uses it. False if it is being removed."""
        if not self.backend.trees.hold(path):
            return False
        store = self.options.store
        if store is not None:
            user = TreeUser(store, self.key.tenant)
            add_user(os.path.dirname(path), digest, user)
        return True

    def _folder(self, skill: Skill) -> str:
        """Folder name of a skill. A second skill with the same name gets a suffix."""
        own_id = skill.entry.id
        name = safe_name(skill.name)
        taken = {each.folder for id, each in self._known.items() if id != own_id}
        if name not in taken:
            return name
        checksum = crc32(own_id.encode())
        return f"{name[:50]}-{checksum:08x}"


class WorkTool(PlainTool):
    """Base of the tools that work in the workspace."""

    def __init__(self, work: SessionWork) -> None:
        self._work = work


def _pinned(skill: Skill, tree: Tree) -> Skill:
    """Returns the skill with its published tree as directory, where files cannot change. A skill that ships a folder
    with a workspace name has that folder elsewhere in its tree; it is read at its source, where changes are noticed."""
    if skill.directory is None or tree.notes:
        return skill
    return skill._replace(directory=tree.path)


class ChildWork(SessionWork):
    def __init__(self, parent: SessionWork) -> None:
        super().__init__(parent.key, parent.options, lambda: parent.backend)
        self._parent = parent
        self.granted = parent.granted

    @property
    def root(self) -> str:
        return self._parent.root

    async def workspace(self) -> tuple[Workspace, Place]:
        return await self._parent.workspace()

    async def aclose(self) -> None:
        """Does nothing: the parent closes the workspace."""
