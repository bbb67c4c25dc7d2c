"""write_file writes a whole text file atomically; delete_file deletes one file, never a folder.

Both work only below work/ and out/ of the workspace, and below host folders that the decision names. Deleting a link
removes the link, not its target.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Mapping
from typing import Any

from prowess._internal.mime import guess_mime
from prowess.core.ports import CallGrant
from prowess.core.values import Outcome, ToolSpec
from prowess.errors import WorkspaceError
from prowess.tools.arguments import DeleteFileArguments, WriteFileArguments, parse_write
from prowess.tools.files.paths import FileTarget, brief, find_target, near_names, not_found, shown, spelled
from prowess.tools.files.replace import write_at
from prowess.tools.schema import parse_arguments, render_schema
from prowess.tools.session_work import WorkTool
from prowess.workspace.dirfd import open_folder


class WriteFile(WorkTool):
    spec = ToolSpec(
        name="write_file",
        description="Write a text file, replacing what was there.",
        parameters=render_schema(WriteFileArguments),
    )

    def normalise(self, args: Mapping[str, Any]) -> dict[str, Any]:
        wanted = parse_write(args, self.spec.name)
        path = spelled(wanted.path, self._work)
        wanted = wanted.model_copy(update={"path": path})
        return wanted.normal()

    async def call(self, args: Mapping[str, Any], within: CallGrant) -> Outcome:
        wanted = parse_write(args, self.spec.name)
        target = await find_target(wanted.path, self._work, within)
        data = wanted.content.encode()
        try:
            replaced = await asyncio.to_thread(write_at, target, data)
        except OSError as error:
            message = f"'{brief(target.name)}' could not be written: {_reason(error)}."
            hint = "Is there room on the disk, and may its folder be written to? Name another place."
            raise WorkspaceError(message, op="write", code="write-failed", hint=hint) from error
        name = shown(target.name)
        did = "Replaced" if replaced else "Wrote"
        about: dict[str, Any] = {"path": name, "size_bytes": len(data), "replaced": replaced, "paths": [name]}
        if target.in_workspace and target.name.startswith("out/"):
            mime_type = guess_mime(target.name, data)
            about["output_files"] = [{"name": target.name, "mime_type": mime_type, "size_bytes": len(data)}]
        return Outcome(status="ok", content=f"{did} {name}: {len(data)} bytes.", data=about)


def _reason(error: OSError) -> str:
    reason = error.strerror or str(error)
    return reason.lower()


class DeleteFile(WorkTool):
    spec = ToolSpec(
        name="delete_file",
        description="Delete one file.",
        parameters=render_schema(DeleteFileArguments),
    )

    def normalise(self, args: Mapping[str, Any]) -> dict[str, Any]:
        wanted = parse_arguments(DeleteFileArguments, args, self.spec.name)
        path = spelled(wanted.path, self._work)
        wanted = wanted.model_copy(update={"path": path})
        return wanted.normal()

    async def call(self, args: Mapping[str, Any], within: CallGrant) -> Outcome:
        wanted = parse_arguments(DeleteFileArguments, args, self.spec.name)
        target = await find_target(wanted.path, self._work, within)
        name = shown(target.name)
        try:
            await asyncio.to_thread(_delete, target)
        except FileNotFoundError:
            missing = await asyncio.to_thread(_missing, target)
            raise missing from None
        except OSError as error:
            message = f"'{name[:200]}' could not be deleted: {_reason(error)}."
            raise WorkspaceError(message, op="delete", code="delete-failed", hint="Leave it, and go on.") from error
        about = {"path": name, "paths": [name]}
        return Outcome(status="ok", content=f"Deleted {name}.", data=about)


def _delete(target: FileTarget) -> None:
    with open_folder(target.root, target.folder) as folder:
        status = os.stat(target.file, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            message = f"'{brief(target.name)}' is a folder, and only files are deleted."
            hint = "Delete its files one by one, or leave it."
            raise WorkspaceError(message, op="delete", code="is-a-folder", hint=hint)
        os.unlink(target.file, dir_fd=folder)


def _missing(target: FileTarget) -> WorkspaceError:
    if target.in_workspace:
        return not_found(target.name, target.root)
    try:
        with open_folder(target.root, target.folder) as folder:
            names = [shown(name) for name in sorted(os.listdir(folder))]
    except OSError:
        names = []
    message = f"There is no file '{brief(target.name)}'."
    hint = "There are no files in that folder."
    if names:
        hint = f"There are: {near_names(target.file, names)}"
    return WorkspaceError(message, op="delete", code="file-not-found", hint=hint)
