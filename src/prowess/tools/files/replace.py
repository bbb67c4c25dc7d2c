"""Replaces a whole file atomically, and shows beforehand what would change."""

from __future__ import annotations

import difflib
import itertools
import os
import secrets
import stat
from typing import NamedTuple

from prowess._internal.files import kind_of
from prowess.core.values import ToolCall
from prowess.errors import WorkspaceError
from prowess.tools.files.paths import FileTarget, brief
from prowess.tools.session_work import SessionWork
from prowess.workspace.dirfd import open_folder

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_COMPARED = 1 << 20  # bytes of the old file
_MOST_LINES = 400  # of the diff


async def preview_write(work: SessionWork, call: ToolCall) -> str:
    """Returns the diff of the changes that a write_file call would make; "" for other calls."""
    path = call.args.get("path")
    content = call.args.get("content")
    if call.tool != "write_file" or not isinstance(path, str) or not isinstance(content, str):
        return ""
    before = None
    if not path.startswith("/"):
        before = await work.read_file(path, _MOST_COMPARED)
    old = "" if before is None else before.decode("utf-8", "replace")
    lines = difflib.unified_diff(old.splitlines(), content.splitlines(), path, path, lineterm="")
    first = itertools.islice(lines, _MOST_LINES)
    return "\n".join(first)


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
        fd = os.open(temporary, _NEW, 0o600, dir_fd=folder)
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
        kind = kind_of(old.st_mode)
        message = f"'{brief(target.name)}' is {kind}, and only a file is replaced."
        raise WorkspaceError(message, op="write", code="not-a-plain-file", hint="Name another place.")
    return old


def _kept(target: FileTarget, folder: int, old: os.stat_result | None) -> FileOwner:
    """Mode of the old file, or 0644. Owner: the scripts' user, outside the workspace that of the old file or folder."""
    mode = 0o644
    if old is not None:
        mode = stat.S_IMODE(old.st_mode) & 0o777 | 0o600
    if target.uid is not None:
        return FileOwner(mode, target.uid, target.uid)
    if target.in_workspace or os.geteuid() != 0:
        return FileOwner(mode, None, None)
    owner = old or os.fstat(folder)
    return FileOwner(mode, owner.st_uid, owner.st_gid)
