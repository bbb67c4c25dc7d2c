"""Executor that runs scripts in containers, through the Docker Engine API, which Podman also offers.

A container has the image, one skill, and the session's work/, out/ and runs/; no network, no capabilities, no way to
become root. A session has one container for each of its skills. It is made on the skill's first run and kept, so the
next run starts in milliseconds (see `workspace`). Process 1 in it is ours (see `init`).

If the engine can mount the folders of this machine, they are mounted and compared. If it runs elsewhere, files are
copied before and after each run; for an interactive program, at its start and end.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from prowess.core.values import Isolation, Located
from prowess.errors import ConfigError, WorkspaceUnavailable
from prowess.workspace.container.container import NotTheSame
from prowess.workspace.container.engine import WAIT_S, Engine, connect, sweep
from prowess.workspace.container.image import DEFAULT_IMAGE, PATH
from prowess.workspace.container.selftest import Trial, check_not_weaker, try_out
from prowess.workspace.container.spec import image_missing, refused
from prowess.workspace.container.workspace import ContainerWorkspace, Setup
from prowess.workspace.executors.isolation_report import Once, check_root
from prowess.workspace.executors.preconditions import check_owner
from prowess.workspace.executors.setup import OwnExecutorSetup
from prowess.workspace.isolation.selftest import DEFAULT_UID
from prowess.workspace.limits import RunLimits
from prowess.workspace.session_folder import Place

__all__ = ["DEFAULT_IMAGE", "ContainerExecutor", "sweep"]
Files = Literal["auto", "mount", "tar"]
IMAGE_PYTHON = "A container has the Python of its image: workspace.python has no effect."


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProvenContainer:
    setup: Setup
    isolation: Isolation
    python: str
    programs: Mapping[str, tuple[str, str]]


class ContainerExecutor:
    """Executor for containers; see ports.Executor. `engine` is an address such as unix:///var/run/docker.sock; None
    means DOCKER_HOST, or the usual places of Docker and Podman. `files` says how a container gets the workspace's
    files. `folder` is for files of the self-test, and the engine should be able to see it. `patience_s` is the time-out
    for one answer of the engine."""

    def __init__(
        self,
        *,
        image: str = DEFAULT_IMAGE,
        engine: str | None = None,
        run_as: int = DEFAULT_UID,
        limits: RunLimits,
        files: Files = "auto",
        folder: str | None = None,
        wait_s: int = WAIT_S,
        network_allow: Sequence[str] = (),
        notes: Sequence[str] = (),
    ) -> None:
        if files not in ("auto", "mount", "tar"):
            raise ConfigError(f"files is {files!r}, and can be auto, mount or tar.", code="config-invalid")
        self.uid = run_as if os.geteuid() == 0 else None  # owner of files that scripts write; None: our own user
        self._image = image
        self._address = engine
        self._limits = limits
        self._files = files
        self._folder = folder
        self._wait_s = wait_s
        self._network_allow = network_allow
        self._engine: Engine | None = None
        self._notes = notes
        self._found = Once(self._find)
        self._open: set[ContainerWorkspace] = set()

    async def isolation(self) -> Isolation:
        return (await self._found.get()).isolation

    async def programs(self) -> Callable[[str], Located]:
        """Returns a lookup of the programs that the self-test found in the image, which no run can change."""
        found = await self._found.get()
        by_path: dict[str, Located] = {}
        by_name: dict[str, Located] = {}
        for name, (path, reason) in found.programs.items():
            by_name[name] = Located(path, reason)
            if path:
                by_path[path] = Located(path)
        known = by_path | by_name
        unknown = Located(reason=f"The image has no program of the system by that name in {found.setup.path}.")
        return lambda name: known.get(name, unknown)

    async def open(self, place: Place) -> ContainerWorkspace:
        found = await self._found.get()
        check_owner(place, self.uid)
        self._open = {workspace for workspace in self._open if not workspace.closed}
        isolation = found.isolation
        check = check_not_weaker(self._limits, isolation.limits)
        workspace = ContainerWorkspace(place, found.setup, isolation=isolation, python=found.python, check=check)
        self._open.add(workspace)
        return workspace

    async def aclose(self) -> None:
        await asyncio.gather(*(workspace.aclose() for workspace in self._open))
        self._open.clear()
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    async def _find(self) -> _ProvenContainer:
        check_root(self.uid)
        if self._network_allow:
            message = "A list of hosts (workspace.network_allow) cannot be used with containers, which have no network."
            hint = "Use the sandbox, with bubblewrap; or leave the setting out."
            raise WorkspaceUnavailable(message, op="network", code="network-not-available", hint=hint)
        if self._engine is None:
            self._engine = await asyncio.to_thread(connect, self._address, wait_s=self._wait_s)
        engine = self._engine
        swept = await _swept(engine)
        setup = await self._inspect(engine)
        setup, trial = await self._try(setup)
        broken = [promise for promise, kept in trial.promises.items() if not kept]
        if broken:
            message = f"Containers of '{self._image}' do not isolate as promised: {', '.join(broken)}."
            hint = f"The engine is {engine.kind} at {engine.address}. Is it configured to isolate less than usual?"
            raise WorkspaceUnavailable(message, op="isolation", code="isolation-failed", hint=hint)
        notes = (*self._notes, *swept, *_about_limits(self._limits, trial))
        isolation = Isolation(
            executor="container",
            mechanism=f"{engine.kind}+seccomp",
            uid=setup.uid,
            network="none",
            limits=trial.limits,
            notes=notes,
            kind="container",
        )
        return _ProvenContainer(setup=setup, isolation=isolation, python=trial.python, programs=trial.programs)

    async def _inspect(self, engine: Engine) -> Setup:
        import docker.errors

        try:
            found = await engine.call("image", engine.client.api.inspect_image, self._image)
        except docker.errors.ImageNotFound as error:
            raise image_missing(self._image, engine) from error
        except docker.errors.APIError as error:
            raise refused("look at an image", error) from error
        config = found.get("Config") or {}
        path = PATH
        for pair in config.get("Env") or []:
            name, _, value = pair.partition("=")
            if name == "PATH":
                path = value or PATH
        volumes = config.get("Volumes") or ()
        uid = os.geteuid()
        gid = os.getegid()
        if self.uid is not None:
            uid = self.uid
            gid = self.uid
        mounted = self._files == "mount"
        if self._files == "auto":
            mounted = engine.local
        return Setup(
            engine=engine,
            image=self._image,
            image_id=found["Id"],
            path=path,
            covered=tuple(volumes),
            uid=uid,
            gid=gid,
            limits=self._limits,
            mounted=mounted,
        )

    async def _try(self, setup: Setup) -> tuple[Setup, Trial]:
        """Runs the self-test. With `auto`, copies files if the engine refuses the mount or mounts another folder."""
        try:
            return setup, await try_out(setup, self._folder)
        except NotTheSame:
            if self._files != "auto":
                raise
        except WorkspaceUnavailable as error:
            if self._files != "auto" or not setup.mounted or error.code != "container-refused":
                raise
        setup = replace(setup, mounted=False)
        return setup, await try_out(setup, self._folder)


async def _swept(engine: Engine) -> list[str]:
    """Removes containers of dead owners. A failure becomes a note, not an error."""
    import docker.errors

    try:
        await engine.call("sweep", sweep, engine.client)
    except docker.errors.APIError as error:
        return [f"Abandoned containers could not be removed: {error.explanation or error}."]
    return []


def _about_limits(limits: RunLimits, trial: Trial) -> list[str]:
    notes = []
    for name, held in trial.limits.items():
        if held == "absent" and getattr(limits, name) is not None:
            notes.append(f"The engine accepts and ignores this limit: {name}.")
    return notes


def make_container(setup: OwnExecutorSetup) -> ContainerExecutor:
    image = setup.image or DEFAULT_IMAGE
    engine = setup.environ.get("DOCKER_HOST")
    notes: list[str] = []
    if setup.python:
        notes.append(IMAGE_PYTHON)
    return ContainerExecutor(
        image=image,
        engine=engine,
        run_as=setup.run_as,
        limits=setup.run_limits,
        folder=setup.dir,
        network_allow=setup.network_allow,
        notes=notes,
    )
