"""Joins a relative path to a root folder and refuses every path that leaves it.

`inside` is the only place that does this; all other code calls it. A path is checked and used in its resolved form.
"""

from __future__ import annotations

import os
import re

from prowess.errors import PathEscape

_DRIVE = re.compile(r"^[A-Za-z]:")


def inside(root: str | os.PathLike[str], relative: str) -> str:
    """Returns the absolute, resolved path of `relative` below `root`. PathEscape if it leads anywhere else.

    Links are followed before the check, so a link that leads out of the root is refused too.
    """
    check_safe_name(relative)
    base = os.path.realpath(root)
    path = os.path.realpath(os.path.join(base, relative))
    if not is_inside(base, path):
        raise PathEscape(
            f"'{relative}' leads outside {base}.",
            op="resolve",
            hint="Use a path below that folder; links may not lead out of it.",
        )
    return path


def user_path(cwd: str, path: str) -> str:
    """Returns the path that a person wrote: absolute, below the home folder (`~/x`), or relative to `cwd`."""
    return os.path.join(cwd, os.path.expanduser(path))


def find_repository(folder: str) -> str | None:
    """Returns the folder of the git repository that this folder is, or is in. The folder need not exist."""
    while not os.path.lexists(os.path.join(folder, ".git")):
        if folder == os.path.dirname(folder):
            return None
        folder = os.path.dirname(folder)
    return folder


def is_inside(base: str, path: str) -> bool:
    """True if `path` is `base` or below it. Both are resolved already."""
    return path == base or path.startswith(base.rstrip(os.sep) + os.sep)


def check_safe_name(relative: str) -> None:
    """Refuses a name by its spelling alone: an absolute path, a drive, a NUL or `..`."""
    parts = relative.replace("\\", "/").split("/")
    if not _can_be_a_name(relative) or relative.startswith(("/", "\\")) or _DRIVE.match(relative) or ".." in parts:
        raise PathEscape(
            f"{relative!r} is not a relative path below its folder.",
            op="resolve",
            hint="Use a plain relative path such as references/guide.md.",
        )


def _can_be_a_name(relative: str) -> bool:
    """False for a name with a NUL or half of a surrogate pair: the system cannot take it."""
    try:
        return b"\0" not in os.fsencode(relative)
    except UnicodeEncodeError:
        return False
