"""Executor that uses the sandbox if it works here, else runs scripts without isolation and says so in a note.

The policy decides if a script may run without isolation: it sees the executor that would run it.
"""

from __future__ import annotations

from collections.abc import Callable

from prowess.core.ports import Executor, Workspace
from prowess.core.values import Isolation, Located
from prowess.errors import WorkspaceUnavailable
from prowess.workspace.executors.isolation_report import Once
from prowess.workspace.executors.local import LocalExecutor, make_local
from prowess.workspace.executors.sandbox import make_sandbox
from prowess.workspace.executors.setup import OwnExecutorSetup
from prowess.workspace.session_folder import Place


class AutoExecutor:
    """Executor that chooses once between sandbox and local. See ports.Executor.

    It falls back only when no sandbox works here, not when the configuration is wrong. For example, a script that may
    reach only some hosts never runs with the full network instead.
    """

    def __init__(self, sandbox: Executor, local: LocalExecutor) -> None:
        self._sandbox = sandbox
        self._local = local
        self._chosen = Once(self._choose)

    async def isolation(self) -> Isolation:
        chosen = await self._chosen.get()
        return await chosen.isolation()

    async def programs(self) -> Callable[[str], Located]:
        chosen = await self._chosen.get()
        return await chosen.programs()

    async def open(self, place: Place) -> Workspace:
        chosen = await self._chosen.get()
        return await chosen.open(place)

    async def aclose(self) -> None:
        await self._sandbox.aclose()
        await self._local.aclose()

    async def _choose(self) -> Executor:
        try:
            await self._sandbox.isolation()
        except WorkspaceUnavailable as error:
            if error.code != "no-sandbox":
                raise
            await self._local.isolation()  # raises if this does not work either
            reasons = error.message.removeprefix("No sandbox works here.").strip()
            self._local.note(f"No sandbox works here, so a script runs without isolation: {reasons}")
            return self._local
        return self._sandbox


def make_auto(setup: OwnExecutorSetup) -> AutoExecutor:
    return AutoExecutor(make_sandbox(setup), make_local(setup))
