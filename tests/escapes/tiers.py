"""The ways to run the hostile skill: every executor behind its port, and, for control, nothing at all around it.

`control` runs it as an ordinary user, as any program runs; `root` as root, for what only root may do. An attempt that
gets through in neither shows nothing on this machine when a tier refuses it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from escapes.scene import INHERITED_FD, ORDINARY, PYTHON
from prowess.core.ports import Executor, Interactive, Program
from prowess.core.values import Isolation, Located
from prowess.workspace.container.executor import ContainerExecutor
from prowess.workspace.executors.local import LocalExecutor
from prowess.workspace.executors.sandbox import SandboxExecutor
from prowess.workspace.layout import LEADS, Layout
from prowess.workspace.limits import RunLimits
from prowess.workspace.process.client import Processes
from prowess.workspace.process.command import Ended
from prowess.workspace.session_folder import Place
from prowess.workspace.skill_trees import Tree

TIERS = ("local", "bwrap", "landlock", "docker")
CONTROLS = ("control", "root")
ENGINE = "ESCAPES_DOCKER"  # the address of an engine of our own, with the image in it


class Bare:
    """No executor: the environment, the descriptors and the rights of whoever starts it."""

    def __init__(self, uid: int | None) -> None:
        self.uid = uid

    async def isolation(self) -> Isolation:
        return Isolation(executor="none", mechanism="none", uid=self.uid)

    async def programs(self) -> Callable[[str], Located]:
        return Located

    async def open(self, place: Place) -> BareWorkspace:
        return BareWorkspace(place, self.uid)

    async def aclose(self) -> None: ...


class BareWorkspace:
    python = PYTHON
    environment: Mapping[str, str] = {"PATH": "/usr/bin:/bin", "TMPDIR": "/tmp", "LANG": "C.UTF-8"}

    def __init__(self, place: Place, uid: int | None) -> None:
        self.place, self.uid = place, uid
        self.layout = Layout(place.root, place.root)
        self.isolation = Isolation(executor="none", mechanism="none", uid=uid)

    async def stage(self, tree: Tree, name: str) -> None:
        self._copy(tree.path, self.layout.host(f"skills/{name}"))

    def _copy(self, source: str, target: str) -> None:
        """The user's own, and writable: nobody has thought of anything."""
        shutil.copytree(source, target, copy_function=shutil.copyfile)
        for folder, _, names in os.walk(target):
            for path in (folder, *(os.path.join(folder, each) for each in names)):
                self.place.own(path)
                os.chmod(path, 0o755 if os.path.isdir(path) else 0o644)
        for lead, leads_to in LEADS.items():
            os.rmdir(f"{target}/{lead}")
            os.symlink(self.layout.host(leads_to), f"{target}/{lead}")

    async def run(
        self,
        program: Program,
        on_stdout: Callable[[bytes], None] | None = None,
        on_stderr: Callable[[bytes], None] | None = None,
    ) -> Ended:
        self.place.make_run(program.run)
        process = self.start(program)
        done = await asyncio.to_thread(process.communicate, program.stdin)
        for callback, data in zip((on_stdout, on_stderr), done, strict=True):
            if callback is not None:
                callback(data)
        return Ended(why="exit", exit_code=process.returncode)

    async def open_session(self, program: Program, on_output: Callable[[bytes], None] | None = None) -> Interactive:
        raise NotImplementedError("a control starts what it needs, with nothing around it")

    def start(self, program: Program, **more: Any) -> subprocess.Popen[bytes]:
        if self.uid is not None:
            more |= {"user": self.uid, "group": self.place.gid or self.uid, "extra_groups": []}
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        return subprocess.Popen(
            list(program.argv),
            cwd=self.layout.host(program.cwd),
            env={**os.environ, **program.env},
            pass_fds=[INHERITED_FD],
            **{**streams, "start_new_session": True, **more},
        )

    async def aclose(self) -> None: ...


def open_executor(
    tier: str,
    *,
    cache: str,
    limits: RunLimits | None = None,
    run_as: int = ORDINARY,
    network_allow: Sequence[str] = (),
    engine: str | None = None,
) -> Executor:
    limits = limits or RunLimits()
    if tier in CONTROLS:
        return Bare(None if tier == "root" or os.geteuid() != 0 else run_as)
    if tier == "local":
        return LocalExecutor(Processes(), uid=run_as if os.geteuid() == 0 else None, limits=limits)
    if tier.startswith("docker"):
        return ContainerExecutor(
            engine=engine or os.environ[ENGINE],
            run_as=run_as,
            limits=limits,
            folder=os.path.dirname(cache),
            files="tar" if tier == "docker-tar" else "mount",
        )
    mechanism = "bwrap+seccomp" if tier == "bwrap" else "landlock+seccomp"
    more = {"mechanism": mechanism, "limits": limits, "dir": cache, "network_allow": network_allow}
    return SandboxExecutor(Processes(), run_as=run_as, **more)
