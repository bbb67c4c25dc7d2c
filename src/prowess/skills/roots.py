"""Places where skills are looked for, in order: explicit, project, user, url, mcp, builtin.

Within the project the nearest folder comes first. Folders, environment values and trust all come from the caller.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable

from prowess.core.catalog_values import Source
from prowess.errors import ConfigError
from prowess.skills.skill import Root

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:(?://|/)")
FOLDERS = (".agent", ".agents", ".claude")
BUILTIN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "builtin_skills")
WORDS = ("builtin", "default")  # places without a path: our own skills, and the default places
BUILTIN_ROOT = Root("builtin", BUILTIN, expected=False, origin="default")


def default_roots(*, cwd: str, top: str, home: str, trusts: Callable[[str], bool] = lambda folder: False) -> list[Root]:
    """Returns the project's roots from `cwd` up to `top` (the git root or the project folder), the user's roots and the
    builtin one."""
    found: list[Root] = []
    real_home = os.path.realpath(home)
    for folder in _upwards(cwd, top):
        if os.path.realpath(folder) == real_home:
            continue
        found += [_default_root("project", place, trusts(folder)) for place in _places(folder)]
    found += [_default_root("user", place) for place in _places(home)]
    found.append(BUILTIN_ROOT)
    return found


def _default_root(source: Source, place: str, trusted: bool = True) -> Root:
    """Makes a root that nobody named, so that no finding reports it when it is missing."""
    return Root(source, place, trusted, expected=False, origin="default")


def named_root(
    place: str,
    *,
    origin: str,
    base: str,
    home: str,
    project: str | None = None,
    trusts: Callable[[str], bool] = lambda folder: False,
    by_location: bool = False,
) -> Root:
    """Makes a root from a path or URL that somebody named. With `by_location` (a configuration file named it), the
    folder's location decides its source. So a project cannot declare its own folder explicit."""
    if is_url(place):
        return Root("url", place, False, url=place, origin=origin)
    is_blank = not place.strip()
    if is_blank or _SCHEME.match(place) or not _is_path(place):
        message = "A root needs a path." if is_blank else f"{place!r} is not a root."
        hint = "Give a folder, or an address that begins with https://, http:// or file://."
        raise ConfigError(message, code="root-unknown", hint=hint)
    path = os.path.normpath(os.path.join(base, _expand(place, home)))
    if not by_location:
        return Root("explicit", path, True, origin=origin)
    source = _source_by_location(path, home=home, project=project)
    is_trusted = source != "project" or trusts(path)
    return Root(source, path, is_trusted, origin=origin)


def is_missing(root: Root) -> bool:
    try:
        return not root.url and not os.stat(root.path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:  # it exists but cannot be read
        return False


def check_present(root: Root) -> Root:
    """Returns the root, or raises ConfigError when it is missing. For callers in code; the command line only warns."""
    if is_missing(root):
        problem = f"There is no folder '{root.path}'."
        raise ConfigError(problem, code="root-missing", hint="Create it, or correct the path.")
    return root


def check_file(root: Root, given: str) -> None:
    """Refuses a file where a folder of skills is expected. The hint names the folder or URL to give instead."""
    if root.url or not os.path.isfile(root.path):
        return
    hint = f"Give the folder that holds it: {os.path.dirname(given) or '.'!r}."
    if root.path.lower().endswith((".zip", ".tar", ".tar.gz", ".tgz")):
        hint = f"Give an archive by its address: 'file://{root.path}'."
    raise ConfigError(f"'{given}' is a file, where a folder of skills is expected.", code="root-not-folder", hint=hint)


def _is_path(place: str) -> bool:
    try:
        return b"\0" not in os.fsencode(place)
    except UnicodeEncodeError:  # a lone surrogate
        return False


def is_url(place: str) -> bool:
    return place.lower().startswith(("http://", "https://", "file://"))


def unique_roots(roots: Iterable[Root]) -> list[Root]:
    """Returns each real folder once, under its first name. If any of its roots is trusted, the folder is trusted."""
    found: dict[str, Root] = {}
    for root in roots:
        key = root.url or os.path.realpath(root.path)
        before = found.get(key)
        if before is None:
            found[key] = root
        elif root.trusted and not before.trusted:
            found[key] = before._replace(trusted=True, source=root.source)
    return list(found.values())


def _upwards(cwd: str, top: str) -> list[str]:
    folders: list[str] = []
    at = cwd
    while True:
        folders.append(at)
        parent = os.path.dirname(at)
        if at == top or parent == at or not _below(top, at):
            return folders
        at = parent


def _below(top: str, folder: str) -> bool:
    if folder == top:
        return True
    start = top.rstrip(os.sep) + os.sep
    return folder.startswith(start)


def _places(folder: str) -> list[str]:
    return [os.path.join(folder, name, "skills") for name in FOLDERS]


def _expand(place: str, home: str) -> str:
    """Replaces `~` at the start by the home folder."""
    if place == "~" or place.startswith(("~/", "~" + os.sep)):
        return home + place[1:]
    return place


def _source_by_location(path: str, *, home: str, project: str | None) -> Source:
    real = os.path.realpath(path)
    if project and _below(os.path.realpath(project), real):
        return "project"
    if _below(os.path.realpath(BUILTIN), real):
        return "builtin"
    if _below(os.path.realpath(home), real):
        return "user"
    return "explicit"
