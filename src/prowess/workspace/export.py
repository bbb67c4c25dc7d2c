"""Writes files from a workspace to a folder of the user. All exports go through this module.

A hidden file is exported only when a pattern names it. A protected name is never written. No link is followed, and no
file is replaced without `force`. A file is written whole or not at all.
"""

from __future__ import annotations

import errno
import functools
import os
import re
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO

from prowess._internal.files import kind_of
from prowess._internal.globs import Glob, IndexedText
from prowess._internal.paths import check_safe_name, is_inside
from prowess._internal.protected_names import find_protected, hidden_parts
from prowess.errors import ConfigError, WorkspaceError
from prowess.workspace.dirfd import open_file, open_folder

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHECKOUT = re.compile(r".*/\.(?:(?:claude|codex)/worktrees|local/share)(?=/[^/])")  # agents keep whole projects here


def is_named(rel: str, patterns: Sequence[str]) -> bool:
    """True when each hidden part of the path matches a part of a pattern that begins with a dot, too."""
    hidden = hidden_parts(rel)
    if not hidden:
        return True
    named = [glob for pattern in patterns for glob in _dotted(pattern)]
    for name in hidden:
        part = IndexedText(name)
        if not any(glob.fullmatch(part) for glob in named):
            return False
    return True


def read_named(root: str, names: Sequence[str], most_bytes: int) -> dict[str, bytes]:
    """Reads files of a workspace. Hidden ones, and those that would be too much together, are left out."""
    found: dict[str, bytes] = {}
    for name in names:
        if not is_named(name, ()):
            continue
        with open_file(root, name) as fd, open(os.dup(fd), "rb") as file:
            data = file.read(most_bytes + 1)
        if len(data) <= most_bytes:
            most_bytes -= len(data)
            found[name] = data
    return found


@functools.lru_cache(maxsize=128)
def _dotted(pattern: str) -> tuple[Glob, ...]:
    parts = dict.fromkeys(pattern.split("/"))
    return tuple(Glob(part, sets=True) for part in parts if part.startswith("."))


def pattern_for(rel: str) -> str:
    """Returns a pattern that names a hidden file, such as `out/.cache/**` for a file in a hidden folder."""
    parts = rel.split("/")
    first = parts.index(hidden_parts(rel)[0])
    if first == len(parts) - 1:
        return "/".join(parts)
    return "/".join([*parts[: first + 1], "**"])


def check_unprotected(root: str, rel: str) -> None:
    """Raises when the path has a protected name in it.

    The user named `root`, so it may be inside a project below a hidden folder of an agent, such as .claude/worktrees.
    `rel` is checked whole.
    """
    checkout = _CHECKOUT.match(root)
    below = root[checkout.end() :] if checkout else root
    part = find_protected(os.path.join(below, rel))
    if part is not None:
        message = f"{os.path.join(root, rel)} is not written: '{part}' is a name that programs act on."
        hint = "Name another place. If you want it there, look at it first and copy it yourself."
        raise WorkspaceError(message, op="write", code="protected-name", hint=hint)


@contextmanager
def open_outside(
    cwd: str, folder: str, rel: str, *, force: bool, make: bool = False, mode: int = 0o644
) -> Iterator[IO[bytes]]:
    """Opens a new file `rel` in a folder that the user named, relative to `cwd`. An error leaves no file.

    Links of the user's own machine may lead to the folder. Links below `cwd` or in a git repository are not followed:
    they may have come with a clone.
    """
    check_safe_name(rel)
    root, way = _find_root(cwd, folder)
    below = os.path.normpath(os.path.join(way, rel))
    between, _, name = below.rpartition("/")
    path = os.path.join(root, between, name)
    check_unprotected(os.path.normpath(os.path.join(root, way)), rel)
    with open_folder(root, between, make=make) as fd:
        _check_free(fd, name, path, force)
        temporary = f".{secrets.token_hex(8)}.part"
        part = os.open(temporary, _NEW, mode, dir_fd=fd)
        try:
            with open(part, "wb") as file:
                yield file
                file.flush()
                os.fsync(part)
            _put(fd, temporary, name, path, force)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=fd)


def find_outside(cwd: str, folder: str) -> str:
    """Returns the folder that `open_outside` would write to, by its path without links. Raises if it would not."""
    root, way = _find_root(cwd, folder)
    path = os.path.normpath(os.path.join(root, way))
    check_unprotected(path, "")
    with suppress(FileNotFoundError), open_folder(root, way):
        pass
    there = path
    while not os.path.isdir(there):
        there = os.path.dirname(there)
    if not os.access(there, os.W_OK):
        why = os.strerror(errno.EACCES)
        raise PermissionError(errno.EACCES, why, there)
    return path


def _find_root(cwd: str, folder: str) -> tuple[str, str]:
    """Returns (an existing folder without links, the path below it on which no link is followed)."""
    root = os.path.realpath(cwd)
    path = os.path.normpath(os.path.join(root, folder))
    if is_inside(root, path):
        return root, os.path.relpath(path, root)
    root = os.sep
    parts = path.strip(os.sep).split(os.sep)
    while parts and not _is_in_clone(root):
        path = os.path.join(root, parts[0])
        if not os.path.isdir(path):
            break
        root = os.path.realpath(path)
        parts.pop(0)
    return root, os.path.join("", *parts) or "."


def _is_in_clone(folder: str) -> bool:
    """True when the folder is a git repository or is inside one."""
    while not os.path.lexists(os.path.join(folder, ".git")):
        if folder == os.path.dirname(folder):
            return False
        folder = os.path.dirname(folder)
    return True


def _put(fd: int, temporary: str, name: str, path: str, force: bool) -> None:
    """Gives the file its name in one step. Without `force`, fails if another program created the name meanwhile."""
    try:
        if force:
            _check_free(fd, name, path, force)
            os.replace(temporary, name, src_dir_fd=fd, dst_dir_fd=fd)
        else:
            _take(fd, temporary, name)
    except FileExistsError:
        _check_free(fd, name, path, force)
        raise


def _take(fd: int, temporary: str, name: str) -> None:
    try:
        os.link(temporary, name, src_dir_fd=fd, dst_dir_fd=fd)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        new = os.open(name, _NEW, 0o600, dir_fd=fd)
        os.close(new)
        os.replace(temporary, name, src_dir_fd=fd, dst_dir_fd=fd)


def _check_free(fd: int, name: str, path: str, force: bool) -> None:
    """Raises when the name exists and may not be replaced.

    A link is replaced, not followed. A device, FIFO or folder is never replaced: naming one is probably a mistake.
    """
    try:
        mode = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        what = f"is {kind_of(mode)}, not a file that could be replaced"
        hint = "Name a file, or use a pipe."
    elif not force:
        what = "exists already"
        hint = "Add --force to replace it."
    else:
        return
    raise ConfigError(f"{path} {what}.", code="file-exists", hint=hint)
