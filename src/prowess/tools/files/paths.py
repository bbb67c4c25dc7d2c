"""Resolves paths that a model writes: to a file or folder of the workspace, or of a skill in use.

Resolving for reading looks only at the spelling and gives one plain form. Opening a file never follows a link.

Files may be written or deleted below work/ and out/, and below host folders that the decision names. A target is an
allowed root folder and a resolved path below it. A link that is put into that path later is refused when it is opened.
"""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from prowess._internal.globs import Glob
from prowess._internal.paths import check_safe_name, is_inside
from prowess.core.ports import CallGrant
from prowess.errors import PathEscape, ProwessError, SkillError, WorkspaceError
from prowess.tools.session_work import LoadedSkill, SessionWork
from prowess.workspace.dirfd import open_file, walk
from prowess.workspace.export import check_unprotected
from prowess.workspace.isolation.mounts import INSIDE
from prowess.workspace.layout import FOLDERS, LEADS, resolve_pattern
from prowess.workspace.session_folder import Place

TOPS = ("out", "runs", "work")  # folders of the session's own files
_MOST_NAMES = 2000


class FileRef(NamedTuple):
    path: str  # path below the workspace or the skill; "" is the top
    loaded: LoadedSkill | None = None  # skill of the file; None: the workspace

    @property
    def name(self) -> str:
        """Path from the top of the workspace."""
        name = self.path if self.loaded is None else f"skills/{self.loaded.folder}/{self.path}"
        return name.rstrip("/") or "."


async def find_ref(text: str, work: SessionWork) -> FileRef:
    """Resolves a path or ref. PathEscape if it leads out of the workspace, SkillError if the skill is not in use."""
    scheme, mark, rest = text.partition("://")
    if mark and scheme == "skill":
        return skill_ref(rest, work)
    if mark and scheme != "workspace":
        raise WorkspaceError(
            f"'{shown(text)[:200]}' has the unknown scheme '{shown(scheme)[:40]}'.",
            op="read",
            code="read-refused",
            hint="Use workspace://, artifact:// or skill://, or a path in the workspace.",
        )
    path = rest if mark else text
    if path.startswith("/"):
        workspace, _ = await work.workspace()
        inside = workspace.layout.inside
        if path == inside or path.startswith(f"{inside}/"):
            path = path[len(inside) :].lstrip("/")
    return workspace_ref(path, work)


def workspace_ref(path: str, work: SessionWork) -> FileRef:
    rel = plain_path(path)
    top, _, below = rel.partition("/")
    if top == "skills" and below:
        folder, _, resource = below.partition("/")
        return FileRef(resource, work.get(folder))
    return FileRef(f"work/{rel}" if top == "inputs" else rel)  # inputs/ as a script sees it from its skill's folder


def skill_ref(rest: str, work: SessionWork) -> FileRef:
    """Resolves `name/path`. A name may contain slashes: the shortest name of a skill in use wins."""
    check_safe_name(rest)
    parts = [part for part in rest.split("/") if part not in ("", ".")]
    for end in range(1, len(parts) + 1):
        try:
            return FileRef("/".join(parts[end:]), work.get("/".join(parts[:end])))
        except SkillError:
            continue
    return FileRef("", work.get(parts[0] if parts else ""))


def skills_read(text: str, work: SessionWork) -> Sequence[LoadedSkill]:
    """Returns the skills in use whose files are at or below that path."""
    scheme, mark, rest = text.partition("://")
    try:
        if mark and scheme == "skill":
            found = skill_ref(rest, work)
        else:
            rel = plain_path(rest if mark else text)
            if rel in ("", "skills"):
                return list(work.loaded.values())
            found = workspace_ref(rel, work)
    except ProwessError:  # the tool reports the error itself
        return []
    return [] if found.loaded is None else [found.loaded]


def plain_path(path: str) -> str:
    """Normalises: `./out//a.txt`, `$OUTPUT_DIR/a.txt` -> `out/a.txt`; the top is "". PathEscape if it leads out."""
    rel = resolve_pattern(path)
    check_safe_name(rel)
    return "/".join(part for part in rel.split("/") if part not in ("", "."))


def spelled(text: str, work: SessionWork) -> str:
    """Returns the one spelling of a path that policy judges: a rule for `out/x` also covers `workspace://./out//x` and
    `/workspace/out/x`. An unreadable path stays unchanged and is refused later."""
    path = text.removeprefix("workspace://")
    for inside in filter(None, (work.root, INSIDE)):
        below = path.removeprefix(f"{inside}/").lstrip("/") if path.startswith(f"{inside}/") else ""
        if path == inside == work.root or below.split("/")[0] in (*FOLDERS, *LEADS):
            path = below
            break
    if "://" in path or path.startswith(("/", "~")):
        return text
    try:
        rel = plain_path(path)
    except ProwessError:
        return text
    if not rel:
        return "."
    rel = f"work/{rel}" if rel.split("/")[0] == "inputs" else rel
    return f"{rel}/" if path.endswith("/") else rel  # keeps the slash: a folder must not become a file


@contextmanager
def open_plain(place: Place, rel: str) -> Iterator[int]:
    """Opens a regular file of the workspace for reading, and yields its descriptor. OSError if it does not exist,
    PathEscape if it is not a plain file. A file of another owner with several hard links is refused, because a script
    can make a hard link to a file that it may not read."""
    if rel.split("/")[0] not in TOPS:
        raise FileNotFoundError(rel)
    with open_file(place.root, rel) as fd:
        if is_foreign(os.fstat(fd), place):
            raise foreign(rel)
        yield fd


def is_foreign(status: os.stat_result, place: Place) -> bool:
    owner = os.geteuid() if place.uid is None else place.uid
    return stat.S_ISREG(status.st_mode) and status.st_nlink > 1 and status.st_uid != owner


def foreign(rel: str) -> PathEscape:
    return PathEscape(
        f"'{shown(rel)[:200]}' is a link to somebody else's file.",
        op="open",
        code="not-a-plain-file",
        hint="Links are not followed here.",
    )


def not_found(rel: str, root: str, *, folders: bool = False) -> WorkspaceError:
    """Error for a missing file, with similar names as a hint."""
    names = [shown(name) for name in _names(root, folders=folders)]
    near = difflib.get_close_matches(rel, names, n=5, cutoff=0.4) or names[:10]
    what = "file or folder" if folders else "file"
    return WorkspaceError(
        f"There is no {what} '{shown(rel)[:200]}' in the workspace.",
        op="read",
        code="file-not-found",
        hint=f"There are: {', '.join(near)}" if near else "It is empty so far.",
    )


def match_glob(pattern: str, rel: str) -> bool:
    """True if `rel` matches. `*.md` matches names in any folder; a pattern with a slash matches the path, and `**`
    crosses folders. Many stars do not make it slow."""
    name = rel if "/" in pattern else rel.rpartition("/")[2]
    return Glob(pattern, sets=True).fullmatch(name)


def shown(text: str) -> str:
    """Escapes line breaks and control characters, because names and lines are foreign text."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _names(root: str, *, folders: bool) -> list[str]:
    found: list[str] = []
    for top in TOPS:
        try:
            for each in walk(root, top, max_entries=_MOST_NAMES):
                if folders or not stat.S_ISDIR(each.status.st_mode):
                    found.append(each.rel)
        except (ProwessError, OSError):  # the names found so far are enough for a hint
            continue
    return found


WRITABLE = ("out", "work")


class FileTarget(NamedTuple):
    root: str  # trusted: opened as it is
    folder: str  # below the root, opened without following links
    file: str
    name: str  # as it is shown
    uid: int | None = None  # owner of new files and folders
    in_workspace: bool = True


async def find_target(text: str, work: SessionWork, within: CallGrant) -> FileTarget:
    """Resolves a path for writing or deleting. PathEscape if this call may not change it."""
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
    return FileTarget(place.root, folder, file, rel, place.uid)


def _path(text: str) -> str:
    scheme, mark, rest = text.partition("://")
    if mark and scheme not in ("workspace", "host"):
        raise _refused(text, f"has the scheme '{shown(scheme)[:40]}', where nothing can be written")
    if mark and scheme == "host":
        return f"/{rest.lstrip('/')}"
    path = rest if mark else text
    return os.path.expanduser(path) if path.startswith("~") else path


def _on_host(text: str, path: str, within: CallGrant) -> FileTarget:
    roots = [os.path.realpath(os.path.expanduser(str(root))) for root in within.decision.limits.get("roots") or ()]
    above, name = os.path.split(path)
    if name in ("", ".", "..") or "\0" in path:
        raise _refused(text, "names no file")
    check_safe_name(name)
    folder = os.path.realpath(above)
    root = next((root for root in roots if is_inside(root, folder)), None)
    if root is None:
        raise _refused(text, "is not below a folder that was opened for this", code="host-not-allowed")
    below = os.path.relpath(folder, root)
    check_unprotected(root, os.path.normpath(os.path.join(below, name)))
    return FileTarget(root, below, name, os.path.join(folder, name), in_workspace=False)


def _refused(text: str, why: str, code: str = "write-refused") -> WorkspaceError:
    hint = "Use a path below out/ (for results) or work/, for instance out/report.md."
    return PathEscape(f"'{shown(text)[:200]}' {why}.", op="write", code=code, hint=hint)
