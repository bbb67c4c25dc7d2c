"""write_file writes a whole text file atomically; delete_file deletes one file, never a folder.

Both work only below work/ and out/ of the workspace, and below host folders that the decision names. Deleting a link
removes the link, not its target.
"""

from __future__ import annotations

import asyncio
import difflib
import itertools
import os
import secrets
import stat
from collections.abc import Mapping
from typing import Any, NamedTuple

from prowess._internal.files import kind_of
from prowess.core.ports import CallGrant
from prowess.core.values import Outcome, ToolCall, ToolSpec
from prowess.errors import WorkspaceError
from prowess.tools.arguments import DeleteFileArguments, WriteFileArguments, parse_write
from prowess.tools.files.paths import FileTarget, find_target, not_found, shown, spelled
from prowess.tools.schema import parse_arguments, render_schema
from prowess.tools.session_work import SessionWork, WorkTool
from prowess.workspace.dirfd import open_folder

_MOST_COMPARED, _MOST_LINES = 1 << 20, 400  # bytes of the old file, lines of the diff


async def preview_write(work: SessionWork, call: ToolCall) -> str:
    """Returns the diff of the changes that a write_file call would make; "" for other calls."""
    path, content = call.args.get("path"), call.args.get("content")
    if call.tool != "write_file" or not isinstance(path, str) or not isinstance(content, str):
        return ""
    before = None if path.startswith("/") else await work.read_file(path, _MOST_COMPARED)
    old = "" if before is None else before.decode("utf-8", "replace")
    lines = difflib.unified_diff(old.splitlines(), content.splitlines(), path, path, lineterm="")
    return "\n".join(itertools.islice(lines, _MOST_LINES))


class WriteFile(WorkTool):
    spec = ToolSpec(
        name="write_file",
        description="Write a text file, replacing what was there.",
        parameters=render_schema(WriteFileArguments),
    )

    def normalise(self, args: Mapping[str, Any]) -> dict[str, Any]:
        wanted = parse_write(args, self.spec.name)
        return wanted.model_copy(update={"path": spelled(wanted.path, self._work)}).normal()

    async def call(self, args: Mapping[str, Any], within: CallGrant) -> Outcome:
        wanted = parse_write(args, self.spec.name)
        target = await find_target(wanted.path, self._work, within)
        data = wanted.content.encode()
        try:
            replaced = await asyncio.to_thread(write_at, target, data)
        except OSError as error:
            raise WorkspaceError(
                f"'{shown(target.name)[:200]}' could not be written: {(error.strerror or str(error)).lower()}.",
                op="write",
                code="write-failed",
                hint="Is there room on the disk, and may its folder be written to? Name another place.",
            ) from error
        name = shown(target.name)
        did = f"{'Replaced' if replaced else 'Wrote'} {name}: {len(data)} bytes."
        about = {"path": name, "size_bytes": len(data), "replaced": replaced, "paths": [name]}
        return Outcome(status="ok", content=did, data=about)


class FileOwner(NamedTuple):
    """Owner and mode of the written file."""

    mode: int
    uid: int | None
    gid: int | None


def write_at(target: FileTarget, data: bytes) -> bool:
    """Writes the file. True if it replaced one. Uses descriptors, so a folder that becomes a link is noticed."""
    with open_folder(target.root, target.folder, make=True, uid=target.uid) as folder:
        old = _look(folder, target)
        kept = _kept(target, folder, old)
        temporary = f".new-{secrets.token_hex(8)}"
        fd = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder
        )
        is_there = False
        try:
            with open(fd, "wb") as file:
                file.write(data)
                file.flush()
                if kept.uid is not None and kept.gid is not None:
                    os.fchown(fd, kept.uid, kept.gid)
                os.fchmod(fd, kept.mode)
                os.fsync(fd)
            os.rename(temporary, target.file, src_dir_fd=folder, dst_dir_fd=folder)
            is_there = True
        finally:
            if not is_there:
                os.unlink(temporary, dir_fd=folder)
    return old is not None


def _look(folder: int, target: FileTarget) -> os.stat_result | None:
    """Finds the old file. Only a plain file is replaced: a link, a FIFO or a folder is an error."""
    try:
        old = os.stat(target.file, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(old.st_mode):
        raise WorkspaceError(
            f"'{shown(target.name)[:200]}' is {kind_of(old.st_mode)}, and only a file is replaced.",
            op="write",
            code="not-a-plain-file",
            hint="Name another place.",
        )
    return old


def _kept(target: FileTarget, folder: int, old: os.stat_result | None) -> FileOwner:
    """Mode of the old file, or 0644. Owner: the scripts' user, outside the workspace that of the old file or folder."""
    mode = 0o644 if old is None else stat.S_IMODE(old.st_mode) & 0o777 | 0o600
    if target.uid is not None:
        return FileOwner(mode, target.uid, target.uid)
    if target.in_workspace or os.geteuid() != 0:
        return FileOwner(mode, None, None)
    owner = old or os.fstat(folder)
    return FileOwner(mode, owner.st_uid, owner.st_gid)


class DeleteFile(WorkTool):
    spec = ToolSpec(
        name="delete_file",
        description="Delete one file.",
        parameters=render_schema(DeleteFileArguments),
    )

    def normalise(self, args: Mapping[str, Any]) -> dict[str, Any]:
        wanted = parse_arguments(DeleteFileArguments, args, self.spec.name)
        return wanted.model_copy(update={"path": spelled(wanted.path, self._work)}).normal()

    async def call(self, args: Mapping[str, Any], within: CallGrant) -> Outcome:
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


def _delete(target: FileTarget) -> None:
    with open_folder(target.root, target.folder) as folder:
        if stat.S_ISDIR(os.stat(target.file, dir_fd=folder, follow_symlinks=False).st_mode):
            raise WorkspaceError(
                f"'{shown(target.name)[:200]}' is a folder, and only files are deleted.",
                op="delete",
                code="is-a-folder",
                hint="Delete its files one by one, or leave it.",
            )
        os.unlink(target.file, dir_fd=folder)


def _missing(target: FileTarget) -> WorkspaceError:
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
