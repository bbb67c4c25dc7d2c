"""A path from outside is used only in its resolved form, and only when that form is inside the folder it belongs to.

`inside` is the one place where a relative path is joined to a root. Everyone else asks it.
"""

from __future__ import annotations

import os
import re

from prowess.errors import PathEscape

_DRIVE = re.compile(r"^[A-Za-z]:")


def inside(root: str | os.PathLike[str], relative: str) -> str:
    """The absolute, resolved path of `relative` below `root`; PathEscape when it leads anywhere else.

    Links are followed before the check, so a link out of the root is an escape however innocent its name looks.
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


def is_inside(base: str, path: str) -> bool:
    """Both resolved already. The base is inside itself."""
    return path == base or path.startswith(base.rstrip(os.sep) + os.sep)


def check_safe_name(relative: str) -> None:
    """Refuse, by its spelling alone, a name that no relative path needs: absolute, drive, NUL or `..`."""
    parts = relative.replace("\\", "/").split("/")
    if not _can_be_a_name(relative) or relative.startswith(("/", "\\")) or _DRIVE.match(relative) or ".." in parts:
        raise PathEscape(
            f"{relative!r} is not a relative path below its folder.",
            op="resolve",
            hint="Use a plain relative path such as references/guide.md.",
        )


def _can_be_a_name(relative: str) -> bool:
    """A NUL, or half of a surrogate pair, cannot be passed to the system."""
    try:
        return b"\0" not in os.fsencode(relative)
    except UnicodeEncodeError:
        return False
