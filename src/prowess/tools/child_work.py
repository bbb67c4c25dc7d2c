"""The work of a child run: the same workspace as its parent's, and its own skills in use."""

from __future__ import annotations

from prowess.core.ports import Workspace
from prowess.tools.session_work import Work
from prowess.workspace.session_folder import Place


class ChildWork(Work):
    def __init__(self, parent: Work) -> None:
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
