"""Decides which files that a person named may be read, and where results may go. Everything that reads or writes a file
which a person named asks here.

A link below the working folder or in a git repository may have come with a clone. An input is not read through it where
it leads out, and a result is never written through it. The person's own links elsewhere are followed. A file is
replaced only with `force`; a link is replaced, not followed.
"""

from __future__ import annotations

import os
import stat
from pathlib import PurePath

from prowess._internal.files import kind_of
from prowess._internal.paths import find_repository, is_inside
from prowess._internal.protected_names import find_protected
from prowess.errors import ConfigError

_MOST_LINKS = 40  # as many as Linux follows
_ANNEX = os.path.join(".git", "annex", "objects", "")  # git-annex: every file of data is a link to there


def check_input(cwd: str, path: str) -> None:
    """ConfigError if a link on the way to a file that a person named leads out of the git repository that has the link,
    or out of `cwd` where it is below that, or to what is private there, such as `.git/config` and `.env`. What stands
    after a link in the path, such as `link/../x`, is the person's again."""
    here = os.path.realpath(cwd)
    base = os.path.abspath(cwd)
    named = PurePath(base, path)
    at = named.anchor
    left = [*reversed(named.parts[1:])]
    if named.is_relative_to(base):  # links to where the person stands are the person's
        at = here
        left = [*reversed(named.relative_to(base).parts)]
    links = 0  # of the person; they may be a loop
    while left and links < _MOST_LINKS:
        part = left.pop()
        there = os.path.join(at, part)
        if part == "..":
            at = os.path.dirname(at)
            continue
        if not os.path.islink(there):
            at = there
            continue
        within = find_repository(at)
        if within is None and is_inside(here, at):
            within = here
        if within is not None:
            at = os.path.realpath(there)
            _check_link(there, at, within)
            continue
        links += 1
        target = PurePath(at, os.readlink(there))
        at = target.anchor
        left += reversed(target.parts[1:])


def _check_link(link: str, real: str, within: str) -> None:
    below = os.path.relpath(real, within)
    where = "out of"
    if is_inside(within, real):
        is_open = find_protected(below) is None or below.startswith(_ANNEX)
        if is_open and not is_inside(real, link):  # a folder around the link has everything that is private
            return
        where = "to what is private in"
    message = f"{link} is a link that leads {where} {within}, to {real}."
    hint = f"It may have come with the folder. If you mean that file, name it: {real}"
    raise ConfigError(message, code="input-leads-out", hint=hint)


def result_path(cwd: str, path: str, *, force: bool) -> str:
    """Returns the path, without links, where a file that a person named may be written. Raises if it may not."""
    folder, name = os.path.split(os.path.normpath(os.path.join(cwd, path)))
    target = os.path.join(result_folder(cwd, folder), name)
    check_free(target, force)
    return target


def result_folder(cwd: str, folder: str) -> str:
    """Returns the folder of `find_way`."""
    return os.path.normpath(os.path.join(*find_way(cwd, folder)))


def find_way(cwd: str, folder: str) -> tuple[str, str]:
    """Returns (an existing folder without links, the path below it on which no link is followed) for a folder that a
    person named, relative to `cwd`. It need not exist. ConfigError if there is a link on that path."""
    root, way = _split(cwd, folder)
    there = root
    for part in way.split(os.sep):
        there = os.path.join(there, part)
        if os.path.islink(there):
            real = os.path.realpath(there)
            message = f"{there} is a link to {real}. Results are not written through it: it may have come with a clone."
            hint = "If you mean that folder, name it by its own path."
            raise ConfigError(message, code="output-through-link", hint=hint)
    return root, way


def _split(cwd: str, folder: str) -> tuple[str, str]:
    root = os.path.realpath(cwd)
    path = os.path.normpath(os.path.join(root, folder))
    for above in (root, os.path.abspath(cwd)):  # links to where the person stands are the person's
        if is_inside(above, path):
            return root, os.path.relpath(path, above)
    root = os.sep
    parts = path.strip(os.sep).split(os.sep)
    while parts and find_repository(root) is None:
        path = os.path.join(root, parts[0])
        if not os.path.isdir(path):
            break
        root = os.path.realpath(path)
        parts.pop(0)
    return root, os.path.join("", *parts) or "."


def check_free(path: str, force: bool, *, dir_fd: int | None = None) -> None:
    """Raises when something is there that may not be replaced. With `dir_fd`, its last part is looked up there.

    A device, FIFO or folder is never replaced: naming one is probably a mistake.
    """
    try:
        name = path if dir_fd is None else os.path.basename(path)
        mode = os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode
    except (FileNotFoundError, NotADirectoryError):
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
