"""Makes an executor of Prowess for a program that wraps it.

class Watched:
    def __init__(self):
        self._inner = prowess.make_executor("sandbox")
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields

from prowess.core.ports import Executor, ExecutorSetup, Workspace
from prowess.core.values import Isolation, Located
from prowess.runtime.factories import setup_executor
from prowess.runtime.runtime import open_runtime
from prowess.runtime.settings import EXECUTORS
from prowess.workspace.executors.setup import OwnExecutorSetup
from prowess.workspace.process.client import Processes
from prowess.workspace.process.posix_client import open_processes
from prowess.workspace.session_folder import Place


def make_executor(name: str = "auto", setup: ExecutorSetup | None = None) -> Executor:
    """Makes the executor of this name: `auto`, `local`, `sandbox`, `container`, `none`, or that of a package. It starts
    nothing before its first use. The caller closes it with `aclose()`.

    An entry point of `prowess.workspaces` passes its own setup on. Without one, the configuration counts.
    """
    make = EXECUTORS.load(name)
    if isinstance(setup, OwnExecutorSetup):  # whoever made it closes the processes
        return make(setup)
    processes = open_processes()
    if setup is None:
        with open_runtime(cwd=os.getcwd(), environ=os.environ) as runtime:
            made = setup_executor(runtime.config, runtime.places, processes, runtime.environ)
    else:
        given = {each.name: getattr(setup, each.name) for each in fields(ExecutorSetup)}
        made = OwnExecutorSetup(**given, processes=processes)
    return _OwnExecutor(make(made), processes)


class _OwnExecutor:
    """Executor with processes of its own."""

    def __init__(self, inner: Executor, processes: Processes) -> None:
        self._inner = inner
        self._processes = processes

    async def isolation(self) -> Isolation:
        return await self._inner.isolation()

    async def programs(self) -> Callable[[str], Located]:
        return await self._inner.programs()

    async def open(self, place: Place) -> Workspace:
        return await self._inner.open(place)

    async def aclose(self) -> None:
        try:
            await self._inner.aclose()
        finally:
            await self._processes.aclose()
