"""The sandbox where there is one; otherwise, and never without a word, no isolation at all.

Whether a script may run without isolation is for policy to decide: it sees which executor it would be.
"""

from __future__ import annotations

from collections.abc import Callable

from prowess.core.ports import Executor, Workspace
from prowess.core.values import Isolation, Located
from prowess.errors import WorkspaceUnavailable
from prowess.workspace.executors.isolation_report import Once
from prowess.workspace.executors.local import LocalExecutor
from prowess.workspace.session_folder import Place


class AutoExecutor:
    """See ports.Executor. It falls back only because no sandbox works here, not because one is configured wrongly: a
    script that was to be kept to some hosts, say, does not run with the network of the machine instead."""

    def __init__(self, sandbox: Executor, local: LocalExecutor) -> None:
        self._sandbox, self._local = sandbox, local
        self._chosen = Once(self._choose)

    async def isolation(self) -> Isolation:
        return await (await self._chosen.get()).isolation()

    async def programs(self) -> Callable[[str], Located]:
        return await (await self._chosen.get()).programs()

    async def open(self, place: Place) -> Workspace:
        return await (await self._chosen.get()).open(place)

    async def aclose(self) -> None:
        await self._sandbox.aclose()
        await self._local.aclose()

    async def _choose(self) -> Executor:
        try:
            await self._sandbox.isolation()
        except WorkspaceUnavailable as error:
            if error.code != "no-sandbox":
                raise
            await self._local.isolation()  # which may have its own reasons not to work
            reasons = error.message.removeprefix("No sandbox works here.").strip()
            self._local.note(f"No sandbox works here, so a script runs without isolation: {reasons}")
            return self._local
        return self._sandbox
