"""Where a file may be written or removed: below work/ and out/, and below folders that the decision names.

A target is a folder that may be reached and the way down from there, in its resolved form: whoever puts a link into
that way afterwards is refused when it is walked.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from prowess._internal.paths import is_inside, refuse_unsafe_name
from prowess.core.ports import Within
from prowess.errors import PathEscape, WorkspaceError
from prowess.tools.files.paths import plain_path, shown
from prowess.tools.session_work import Work
from prowess.workspace.export import refuse_protected

WRITABLE = ("out", "work")


class Target(NamedTuple):
    root: str  # is opened as it is
    folder: str  # below it, walked without following a link
    file: str
    name: str  # as it is told
    uid: int | None = None  # whose new things become
    in_workspace: bool = True


async def find_target(text: str, work: Work, within: Within) -> Target:
    """PathEscape when it is no place that this call may change."""
    path = _path(text)
    workspace, place = await work.workspace()
    inside = workspace.layout.inside
    if path == inside or path.startswith(f"{inside}/"):
        path = path[len(inside) :].lstrip("/")
    elif path.startswith("/"):
        return _on_host(text, path, within)
    rel = plain_path(path)
    if rel.split("/")[0] == "inputs":
        rel = f"work/{rel}"
    folder, _, file = rel.rpartition("/")
    if rel.split("/")[0] not in WRITABLE or not folder:
        raise _refused(text, "is not below work/ or out/")
    if path.endswith("/"):
        raise _refused(text, "names a folder, not a file")
    return Target(place.root, folder, file, rel, place.uid)


def _path(text: str) -> str:
    scheme, mark, rest = text.partition("://")
    if mark and scheme not in ("workspace", "host"):
        raise _refused(text, f"has the scheme '{shown(scheme)[:40]}', where nothing can be written")
    if mark and scheme == "host":
        return f"/{rest.lstrip('/')}"
    path = rest if mark else text
    return os.path.expanduser(path) if path.startswith("~") else path


def _on_host(text: str, path: str, within: Within) -> Target:
    roots = [os.path.realpath(os.path.expanduser(str(root))) for root in within.decision.limits.get("roots") or ()]
    above, name = os.path.split(path)
    if name in ("", ".", "..") or "\0" in path:
        raise _refused(text, "names no file")
    refuse_unsafe_name(name)
    folder = os.path.realpath(above)
    root = next((root for root in roots if is_inside(root, folder)), None)
    if root is None:
        raise _refused(text, "is not below a folder that was opened for this", code="host-not-allowed")
    below = os.path.relpath(folder, root)
    refuse_protected(root, os.path.normpath(os.path.join(below, name)))
    return Target(root, below, name, os.path.join(folder, name), in_workspace=False)


def _refused(text: str, why: str, code: str = "write-refused") -> WorkspaceError:
    hint = "Use a path below out/ (for results) or work/, for instance out/report.md."
    return PathEscape(f"'{shown(text)[:200]}' {why}.", op="write", code=code, hint=hint)
