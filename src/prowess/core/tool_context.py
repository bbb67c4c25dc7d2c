"""ToolContext: what a function that is a tool may know about its call, and the files of its session.

    @prowess.tool
    async def total(table: str, context: prowess.ToolContext[Shop]) -> float:
        data = await context.files.read_bytes(table)

A tool gets it by the annotation of a parameter, and a model is never told that parameter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol

from prowess._internal.light_dataclass import dataclass
from prowess.core.values import SessionKey

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    DepsT = TypeVar("DepsT", covariant=True, default=Any)
else:
    from typing import TypeVar

    DepsT = TypeVar("DepsT", covariant=True)


class ToolFiles(Protocol):
    """Files of the session: below `work/`, where given files are, and below `out/`, where results belong. A name is a
    path such as `out/report.pdf`, and never leads out of the workspace. A `def`, which runs in a thread, uses the
    methods that end in `_sync`."""

    async def names(self) -> Sequence[str]: ...

    async def read_bytes(self, name: str) -> bytes:
        """Reads a file. WorkspaceError `file-not-found` if there is none."""
        ...

    async def write_bytes(self, name: str, data: bytes) -> None:
        """Writes a file, whole or not at all. Replaces a file, never a folder or a link."""
        ...

    def names_sync(self) -> Sequence[str]: ...
    def read_bytes_sync(self, name: str) -> bytes: ...
    def write_bytes_sync(self, name: str, data: bytes) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext(Generic[DepsT]):
    """Context of one call: its session (`id`, `user`, `tenant`), its run, the files, and `deps`, the object that the
    program gave to the agent or to the run."""

    session: SessionKey
    run: str
    call_id: str
    files: ToolFiles
    deps: DepsT
