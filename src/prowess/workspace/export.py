"""Files on their way out of a workspace, to where a person wants them. Every way out ends here.

A hidden file leaves only when a pattern names it; a protected name is never written; no link is followed, and nothing
is replaced unless that was asked for. A file is whole or not there.
"""

from __future__ import annotations

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
from prowess.workspace.dirfd import open_folder

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHECKOUT = re.compile(r".*/\.(?:(?:claude|codex)/worktrees|local/share)(?=/[^/])")  # whole projects are there


def is_named(rel: str, patterns: Sequence[str]) -> bool:
    """Whether each hidden part of the path is named by a pattern: by a part of it that begins with a dot itself."""
    hidden = hidden_parts(rel)
    if not hidden:
        return True
    named = [glob for pattern in patterns for glob in _dotted(pattern)]
    return all(any(glob.fullmatch(part) for glob in named) for part in map(IndexedText, hidden))


@functools.lru_cache(maxsize=128)
def _dotted(pattern: str) -> tuple[Glob, ...]:
    return tuple(Glob(part, sets=True) for part in dict.fromkeys(pattern.split("/")) if part.startswith("."))


def pattern_for(rel: str) -> str:
    """A pattern that names a hidden file: `out/.cache/**` for all that is with it."""
    parts = rel.split("/")
    first = parts.index(hidden_parts(rel)[0])
    return "/".join(parts) if first == len(parts) - 1 else "/".join([*parts[: first + 1], "**"])


def check_unprotected(root: str, rel: str) -> None:
    """Refuse a path that has a protected name in it. `root` was named by a person, and may be in a project that an
    agent keeps; `rel` is looked at whole."""
    checkout = _CHECKOUT.match(root)
    if (part := find_protected(os.path.join(root[checkout.end() :] if checkout else root, rel))) is not None:
        raise WorkspaceError(
            f"{os.path.join(root, rel)} is not written: '{part}' is a name that programs act on.",
            op="write",
            code="protected-name",
            hint="Name another place. If you want it there, look at it first and copy it yourself.",
        )


@contextmanager
def open_outside(
    cwd: str, folder: str, rel: str, *, force: bool, make: bool = False, mode: int = 0o644
) -> Iterator[IO[bytes]]:
    """A new file `rel` in a folder that a person named, standing in `cwd`. It is there when this ends without an error.

    Links of the person's own machine may lead to the folder. None below `cwd` or in a git repository is followed: a
    clone can bring some.
    """
    check_safe_name(rel)
    root, way = _find_root(cwd, folder)
    between, _, name = os.path.normpath(os.path.join(way, rel)).rpartition("/")
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


def _find_root(cwd: str, folder: str) -> tuple[str, str]:
    """(a folder that is there, resolved; the way from it, on which no link is followed)."""
    root = os.path.realpath(cwd)
    path = os.path.normpath(os.path.join(root, folder))
    if is_inside(root, path):
        return root, os.path.relpath(path, root)
    root, parts = os.sep, path.strip(os.sep).split(os.sep)
    while parts and not _is_in_clone(root) and os.path.isdir(os.path.join(root, parts[0])):
        root = os.path.realpath(os.path.join(root, parts.pop(0)))
    return root, os.path.join("", *parts) or "."


def _is_in_clone(folder: str) -> bool:
    """Tell whether the folder is in a git repository, or is one."""
    while not os.path.lexists(os.path.join(folder, ".git")):
        if folder == os.path.dirname(folder):
            return False
        folder = os.path.dirname(folder)
    return True


def _put(fd: int, temporary: str, name: str, path: str, force: bool) -> None:
    """In its place, at once. Somebody may have been faster, so without force a name is taken, never replaced."""
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
        os.close(os.open(name, _NEW, 0o600, dir_fd=fd))
        os.replace(temporary, name, src_dir_fd=fd, dst_dir_fd=fd)


def _check_free(fd: int, name: str, path: str, force: bool) -> None:
    """A link is replaced, not followed. A device, FIFO or folder never is: whoever names one means something else."""
    try:
        mode = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        what, hint = f"is {kind_of(mode)}, not a file that could be replaced", "Name a file, or use a pipe."
    elif not force:
        what, hint = "exists already", "Add --force to replace it."
    else:
        return
    raise ConfigError(f"{path} {what}.", code="file-exists", hint=hint)
