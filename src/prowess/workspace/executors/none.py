"""Executor that refuses to run anything, for agents that only read skills."""

from __future__ import annotations

from typing import NoReturn

from prowess.core.ports import ExecutorSetup
from prowess.core.values import Isolation
from prowess.errors import WorkspaceUnavailable
from prowess.workspace.session_folder import Place


class NoExecutor:
    async def isolation(self) -> Isolation:
        self._refuse()

    async def programs(self) -> NoReturn:
        self._refuse()

    async def open(self, place: Place) -> NoReturn:
        self._refuse()

    async def aclose(self) -> None:
        """Does nothing: nothing was opened."""

    def _refuse(self) -> NoReturn:
        raise WorkspaceUnavailable(
            "Nothing can run scripts here: there is no executor.",
            op="open",
            code="executor-not-configured",
            hint="Set workspace.executor to auto, sandbox, container or local; or answer without running anything.",
        )


def make_none(setup: ExecutorSetup) -> NoExecutor:
    return NoExecutor()
