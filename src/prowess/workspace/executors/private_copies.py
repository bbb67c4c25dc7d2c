"""Gives a session its own copy of each skill (root/skills/<name>), for executors that cannot bind-mount.

In the copy, `out` and `work` are links to the workspace. `.venv` and `inputs` are folders, as programs expect, and the
script can write to them. The tree that was copied is recorded beside root/, where no script can write. A copy that was
changed does not match its record, and is replaced.

Programs of these executors see the paths of the host. The function `enclose` puts a sandbox around a program, if any.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import stat
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

from prowess._internal.files import read_regular, write_whole
from prowess._internal.paths import is_inside
from prowess.core.ports import Program
from prowess.errors import WorkspaceError
from prowess.workspace.dirfd import walk
from prowess.workspace.executors.isolation_report import system_environment
from prowess.workspace.executors.mirrored_folder import Twin
from prowess.workspace.executors.preconditions import leaving_cwd, missing_cwd
from prowess.workspace.executors.workspace import Ready
from prowess.workspace.layout import Layout
from prowess.workspace.process.command import Command
from prowess.workspace.session_folder import Place, making
from prowess.workspace.skill_trees import Tree, copy_tree, remove_tree

OWN = (".venv", "inputs")  # writable folders in a copy
_LINKS = {"out": "../../out", "work": "../../work"}


class Copies:
    """Skill copies of one session, made on demand. Other processes of the session may make them at the same time."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._known: dict[str, tuple[str, str]] = {}  # name -> (digest, `_look` of the new copy)
        self._inputs: dict[str, Twin] = {}

    def path(self, name: str) -> str:
        return os.path.join(self._place.root, "skills", name)

    def is_staged(self, tree: Tree, name: str) -> bool:
        """True when a quick check shows that the copy is of that tree. False when only a full check could show it."""
        if self._place.uid is None:
            return False
        return self._holds(tree, name)

    def stage(self, tree: Tree, name: str) -> None:
        """Copies the tree. If the copy is of that tree already, only checks it."""
        if self._holds(tree, name):
            return
        try:
            with making(self._place.path):
                self._known[name] = self._written_down(name)
                if not self._holds(tree, name):
                    self._copy(tree, name)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            message = f"The skill '{name}' could not be copied to its workspace: {reason}."
            hint = "Is there room on the disk, and may it be written to?"
            raise WorkspaceError(message, op="stage", code="stage-failed", hint=hint) from error

    async def agree_on_inputs(self, name: str) -> str | None:
        """Makes `inputs` of skill and workspace the same, before and after a run. Returns a problem or None."""
        twin = self._inputs.get(name)
        if twin is None:
            twin = Twin(self._place.root, "work/inputs", f"skills/{name}/inputs", self._place.uid)
            self._inputs[name] = twin
        if twin.is_empty():
            return None
        return await asyncio.to_thread(twin.agree)

    def _holds(self, tree: Tree, name: str) -> bool:
        digest, looks = self._known.get(name, ("", ""))
        if digest != tree.digest or not looks:
            return False
        return looks == self._look(name)

    def _copy(self, tree: Tree, name: str) -> None:
        self._inputs.pop(name, None)
        self._keep_venv(name)
        copy_tree(tree, self.path(name), lambda copy: self._arrange(copy, name, tree.digest))
        known = (tree.digest, self._look(name))
        self._known[name] = known
        write_whole(self._marker(name), json.dumps(known).encode(), mode=0o600)

    def _arrange(self, copy: str, name: str, digest: str) -> None:
        for link, leads_to in _LINKS.items():
            path = os.path.join(copy, link)
            os.rmdir(path)
            os.symlink(leads_to, path)
        kept = self._kept(name, digest)
        if _is_folder(kept):
            os.rename(kept, os.path.join(copy, ".venv"))  # over the empty one
        for folder in OWN:
            path = os.path.join(copy, folder)
            os.chmod(path, 0o700)
            self._place.own(path)

    def _keep_venv(self, name: str) -> None:
        """Moves the .venv of the old copy away. It returns with the content that it was installed for."""
        copy = self.path(name)
        venv = os.path.join(copy, ".venv")
        digest, _ = self._known[name]
        if digest and _is_folder(copy) and _is_folder(venv):
            os.chmod(copy, 0o700)
            os.chmod(venv, 0o700)
            kept = self._kept(name, digest)
            remove_tree(kept)
            os.rename(venv, kept)

    def _kept(self, name: str, digest: str) -> str:
        """Path of a .venv that was moved away. A sandbox of the same session has its own .venv, because programs in a
        .venv know the path that it was made at."""
        short = digest.removeprefix("sha256:")[:16]
        return os.path.join(self._place.path, "venvs", f"{name}-{short}-copy")

    def _look(self, name: str) -> str:
        """Returns a fingerprint that differs when the copy was changed: a script cannot set ctime.

        A script of another user cannot change the copy. Then the top folder is enough.
        """
        copy = self.path(name)
        try:
            top = _signature(os.stat(copy, follow_symlinks=False))
            if self._place.uid is not None:
                return top
            seen = hashlib.sha256(top.encode())
            for entry in sorted(os.listdir(copy)):
                status = os.stat(os.path.join(copy, entry), follow_symlinks=False)
                if entry in OWN:
                    seen.update(f"{entry}\0{status.st_ino}:{status.st_mode}\n".encode())
                    continue
                seen.update(f"{entry}\0{_signature(status)}\n".encode("utf-8", "surrogateescape"))
                if not stat.S_ISDIR(status.st_mode):
                    continue
                for rel, below, _, _ in walk(copy, entry):
                    seen.update(f"{rel}\0{_signature(below)}\n".encode("utf-8", "surrogateescape"))
            return seen.hexdigest()
        except (OSError, WorkspaceError):  # missing, or not made by us
            return ""

    def _written_down(self, name: str) -> tuple[str, str]:
        try:
            digest, looks = json.loads(read_regular(self._marker(name), 1 << 16))
            return str(digest), str(looks)
        except (OSError, ValueError, TypeError):
            return "", ""

    def _marker(self, name: str) -> str:
        return os.path.join(self._place.path, "staged", name)


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _signature(status: os.stat_result) -> str:
    return f"{status.st_dev}:{status.st_ino}:{status.st_mode}:{status.st_uid}:{status.st_size}:{status.st_ctime_ns}"


class Here(NamedTuple):
    """Host paths of one run."""

    layout: Layout
    cwd: str
    skill: str
    own: tuple[str, ...]  # folders in the skill that the script can write to
    tmp: str


class Unbound:
    """Enclosure for programs that see the paths of the host. See executors.workspace.Enclosure."""

    own_tmp = True

    def __init__(
        self,
        place: Place,
        *,
        python: str,
        enclose: Callable[[Program, Here], Command],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.layout = Layout(place.root, place.root)
        self.python = python
        usual = system_environment(python, os.path.join(place.path, "tmp"))
        self.environment: Mapping[str, str] = {**usual, **(environment or {})}
        self._enclose = enclose
        self._copies = Copies(place)

    async def stage(self, tree: Tree, name: str) -> None:
        if not self._copies.is_staged(tree, name):
            await asyncio.to_thread(self._copies.stage, tree, name)

    @asynccontextmanager
    async def enclosed(self, program: Program, tmp: str) -> AsyncIterator[Ready]:
        skill = self._copies.path(program.skill)
        own = tuple(os.path.join(skill, folder) for folder in OWN)
        problems = [await self._copies.agree_on_inputs(program.skill)]
        try:
            cwd = _resolved_cwd(self.layout, program)
            here = Here(layout=self.layout, cwd=cwd, skill=skill, own=own, tmp=tmp)
            command = self._enclose(program, here)
            yield Ready(command=command, problems=problems)
        finally:
            problems.append(await self._copies.agree_on_inputs(program.skill))


def _resolved_cwd(layout: Layout, program: Program) -> str:
    """Returns the folder to start in, on the host. Resolves links now: a script may have changed them."""
    path = os.path.realpath(layout.host(program.cwd))
    if not is_inside(os.path.realpath(layout.root), path):
        raise leaving_cwd(program.cwd)
    if not os.path.isdir(path):
        raise missing_cwd(program.cwd)
    return path
