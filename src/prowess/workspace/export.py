"""Writes files from a workspace to a folder of the user. All exports go through this module.

A hidden file is exported only when a pattern names it. A protected name is never written, and a name that acts where it
lies is not written into a folder that is in use. `named_paths` decides about links and files that are there. A file is
written whole or not at all.
"""

from __future__ import annotations

import errno
import functools
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO

from prowess._internal.globs import Glob, IndexedText
from prowess._internal.named_paths import check_free, find_way, result_folder
from prowess._internal.paths import check_safe_name, find_repository, is_inside
from prowess._internal.protected_names import find_acting, find_protected, hidden_parts
from prowess.errors import WorkspaceError
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


def is_unused(cwd: str, folder: str) -> bool:
    """True for a folder that is missing or empty, and is neither the working folder nor in a git repository."""
    path = result_folder(cwd, folder)
    if path == os.path.realpath(cwd) or find_repository(path) is not None:
        return False
    with suppress(FileNotFoundError):
        return not os.listdir(path)
    return True


def find_acting_part(
    cwd: str, folder: str, rel: str, *, unused: bool, searched: Sequence[str], patterns: Sequence[str] = ()
) -> str | None:
    """Returns the part of `rel` that acts where it lies, or None. Raises where the folder is in use, unless a pattern
    of the user's has this very name.

    `unused` is what `is_unused` said before the first file was written. `searched` are the folders of skills. They are
    in use with all that is below them, and SKILL.md acts there.
    """
    path = os.path.normpath(os.path.join(result_folder(cwd, folder), rel))
    is_skill = any(is_inside(os.path.realpath(root), path) for root in searched)
    name = find_acting(rel, as_skill=is_skill)
    is_free = unused and not is_skill
    if name is None or is_free or any(name in pattern.split("/") for pattern in patterns):
        return name
    message = f"{path} is not written: programs act on '{name}' where it lies, and this folder is in use."
    hint = (
        "Look at it in the workspace. If you want it, name it (exec --output NAME, file.save(PATH)), copy it yourself, "
        "or give a new folder that is in no git repository."
    )
    raise WorkspaceError(message, op="write", code="acting-name", hint=hint)


@contextmanager
def open_outside(
    cwd: str, folder: str, rel: str, *, force: bool, make: bool = False, mode: int = 0o644
) -> Iterator[IO[bytes]]:
    """Opens a new file `rel` in a folder that the user named, relative to `cwd`. An error leaves no file."""
    check_safe_name(rel)
    root, way = find_way(cwd, folder)
    check_unprotected(os.path.normpath(os.path.join(root, way)), rel)
    between, name = os.path.split(os.path.normpath(os.path.join(way, rel)))
    path = os.path.join(root, between, name)
    with open_folder(root, between, make=make) as fd:
        check_free(path, force, dir_fd=fd)
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
    path = result_folder(cwd, folder)
    check_unprotected(path, "")
    with suppress(FileNotFoundError):
        os.stat(os.path.join(path, ""))  # a file raises, and so does a name that is too long
    there = path
    while not os.path.isdir(there):
        there = os.path.dirname(there)
    if not os.access(there, os.W_OK):
        why = os.strerror(errno.EACCES)
        raise PermissionError(errno.EACCES, why, there)
    return path


def _put(fd: int, temporary: str, name: str, path: str, force: bool) -> None:
    """Gives the file its name in one step. Without `force`, fails if another program created the name meanwhile."""
    try:
        if force:
            check_free(path, force, dir_fd=fd)
            os.replace(temporary, name, src_dir_fd=fd, dst_dir_fd=fd)
        else:
            _take(fd, temporary, name)
    except FileExistsError:
        check_free(path, force, dir_fd=fd)
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
