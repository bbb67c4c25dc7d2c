"""delete_file: one file, never a folder, only where the call was allowed to. A link is removed, not what it means."""

from __future__ import annotations

import asyncio
import difflib
import os
import stat
from collections.abc import Mapping, Sequence
from typing import Any

from prowess.core.ports import Need, Within
from prowess.core.values import Outcome, ToolSpec
from prowess.errors import WorkspaceError
from prowess.tools.file_arguments import DeleteFileArguments
from prowess.tools.files.file_targets import Target, find_target
from prowess.tools.files.paths import not_found, shown, spelled
from prowess.tools.schema import parse_arguments, render_schema
from prowess.tools.session_work import Work
from prowess.workspace.dirfd import open_folder


class DeleteFile:
    def __init__(self, work: Work) -> None:
        self._work = work
        self.spec = ToolSpec(
            name="delete_file",
            description="Delete one file.",
            parameters=render_schema(DeleteFileArguments),
        )

    def normalise(self, args: Mapping[str, Any]) -> dict[str, Any]:
        normal = parse_arguments(DeleteFileArguments, args, self.spec.name).normal()
        return {**normal, "path": spelled(normal["path"], self._work)}

    async def needs(self, args: Mapping[str, Any]) -> Sequence[Need]:
        return ()

    async def call(self, args: Mapping[str, Any], within: Within) -> Outcome:
        wanted = parse_arguments(DeleteFileArguments, args, self.spec.name)
        target = await find_target(wanted.path, self._work, within)
        name = shown(target.name)
        try:
            await asyncio.to_thread(_delete, target)
        except FileNotFoundError:
            raise await asyncio.to_thread(_missing, target) from None
        except OSError as error:
            raise WorkspaceError(
                f"'{name[:200]}' could not be deleted: {(error.strerror or str(error)).lower()}.",
                op="delete",
                code="delete-failed",
                hint="Leave it, and go on.",
            ) from error
        return Outcome(status="ok", content=f"Deleted {name}.", data={"path": name, "paths": [name]})


def _delete(target: Target) -> None:
    with open_folder(target.root, target.folder) as folder:
        if stat.S_ISDIR(os.stat(target.file, dir_fd=folder, follow_symlinks=False).st_mode):
            raise WorkspaceError(
                f"'{shown(target.name)[:200]}' is a folder, and only files are deleted.",
                op="delete",
                code="is-a-folder",
                hint="Delete its files one by one, or leave it.",
            )
        os.unlink(target.file, dir_fd=folder)


def _missing(target: Target) -> WorkspaceError:
    if target.in_workspace:
        return not_found(target.name, target.root)
    try:
        with open_folder(target.root, target.folder) as folder:
            names = sorted(os.listdir(folder))
    except OSError:
        names = []
    near = difflib.get_close_matches(target.file, names, n=5, cutoff=0.4) or names[:10]
    return WorkspaceError(
        f"There is no file '{shown(target.name)[:200]}'.",
        op="delete",
        code="file-not-found",
        hint=f"There are: {', '.join(map(shown, near))}" if near else "There are no files in that folder.",
    )
