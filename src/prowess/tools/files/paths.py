"""Resolves paths that a model writes: to a file or folder of the workspace, or of a skill in use.

Resolving for reading looks only at the spelling and gives one plain form. Opening a file never follows a link.

Files may be written or deleted below work/ and out/, and below host folders that the decision names. A target is an
allowed root folder and a resolved path below it. A link that is put into that path later is refused when it is opened.
"""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
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
        name = self.path
        if self.loaded is not None:
            name = f"skills/{self.loaded.folder}/{name}"
        return name.rstrip("/") or "."


async def find_ref(text: str, work: SessionWork) -> FileRef:
    """Resolves a path or ref. PathEscape if it leads out of the workspace, SkillError if the skill is not in use."""
    scheme, mark, rest = text.partition("://")
    if mark and scheme == "skill":
        return skill_ref(rest, work)
    if mark and scheme != "workspace":
        message = f"'{brief(text)}' has the unknown scheme '{brief(scheme, 40)}'."
        hint = "Use workspace://, artifact:// or skill://, or a path in the workspace."
        raise WorkspaceError(message, op="read", code="read-refused", hint=hint)
    path = rest if mark else text
    if path.startswith("/"):
        workspace, _ = await work.workspace()
        below = _below(workspace.layout.inside, path)
        if below is not None:
            path = below
    return workspace_ref(path, work)


def _below(folder: str, path: str) -> str | None:
    """Path from the folder on. None if it is not in the folder."""
    if path == folder:
        return ""
    if path.startswith(f"{folder}/"):
        return path[len(folder) :].lstrip("/")
    return None


def workspace_ref(path: str, work: SessionWork) -> FileRef:
    rel = plain_path(path)
    top, _, below = rel.partition("/")
    if top == "skills" and below:
        folder, _, resource = below.partition("/")
        return FileRef(resource, work.get(folder))
    if top == "inputs":  # as a script sees it from its skill's folder
        rel = f"work/{rel}"
    return FileRef(rel)


def skill_ref(rest: str, work: SessionWork) -> FileRef:
    """Resolves `name/path`. A name may contain slashes: the shortest name of a skill in use wins."""
    check_safe_name(rest)
    parts = [part for part in rest.split("/") if part not in ("", ".")]
    for end in range(1, len(parts) + 1):
        name = "/".join(parts[:end])
        path = "/".join(parts[end:])
        try:
            return FileRef(path, work.get(name))
        except SkillError:
            continue
    name = parts[0] if parts else ""
    return FileRef("", work.get(name))  # raises an error that lists the skills in use


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
    if found.loaded is None:
        return []
    return [found.loaded]


def plain_path(path: str) -> str:
    """Normalises: `./out//a.txt`, `$OUTPUT_DIR/a.txt` -> `out/a.txt`; the top is "". PathEscape if it leads out."""
    rel = resolve_pattern(path)
    check_safe_name(rel)
    parts = [part for part in rel.split("/") if part not in ("", ".")]
    return "/".join(parts)


def spelled(text: str, work: SessionWork) -> str:
    """Returns the one spelling of a path that policy judges: a rule for `out/x` also covers `workspace://./out//x` and
    `/workspace/out/x`. An unreadable path stays unchanged and is refused later."""
    path = _in_workspace(text.removeprefix("workspace://"), work.root)
    if "://" in path or path.startswith(("/", "~")):
        return text
    try:
        rel = plain_path(path)
    except ProwessError:
        return text
    if not rel:
        return "."
    top, _, _ = rel.partition("/")
    if top == "inputs":
        rel = f"work/{rel}"
    if path.endswith("/"):  # stays: a folder must not become a file
        rel = f"{rel}/"
    return rel


def _in_workspace(path: str, root: str | None) -> str:
    """Path from the top of the workspace, if it is an absolute path of a workspace folder. Else the same path."""
    if root and path == root:
        return ""
    for inside in (root, INSIDE):
        if not inside or not path.startswith(f"{inside}/"):
            continue
        below = path[len(inside) :].lstrip("/")
        top, _, _ = below.partition("/")
        if top in FOLDERS or top in LEADS:
            return below
    return path


@contextmanager
def open_plain(place: Place, rel: str) -> Iterator[int]:
    """Opens a regular file of the workspace for reading, and yields its descriptor. OSError if it does not exist,
    PathEscape if it is not a plain file. A file of another owner with several hard links is refused, because a script
    can make a hard link to a file that it may not read."""
    top, _, _ = rel.partition("/")
    if top not in TOPS:
        raise FileNotFoundError(rel)
    with open_file(place.root, rel) as fd:
        if is_foreign(os.fstat(fd), place):
            raise foreign(rel)
        yield fd


def is_foreign(status: os.stat_result, place: Place) -> bool:
    """True for a file of another owner than the workspace's that has several hard links."""
    if not stat.S_ISREG(status.st_mode) or status.st_nlink <= 1:
        return False
    owner = os.geteuid() if place.uid is None else place.uid
    return status.st_uid != owner


def foreign(rel: str) -> PathEscape:
    message = f"'{brief(rel)}' is a link to somebody else's file."
    hint = "Links are not followed here."
    return PathEscape(message, op="open", code="not-a-plain-file", hint=hint)


def not_found(rel: str, root: str, *, folders: bool = False) -> WorkspaceError:
    """Error for a missing file, with similar names as a hint."""
    names = [shown(name) for name in _names(root, folders=folders)]
    what = "file or folder" if folders else "file"
    message = f"There is no {what} '{brief(rel)}' in the workspace."
    hint = "It is empty so far."
    if names:
        hint = f"There are: {near_names(rel, names)}"
    return WorkspaceError(message, op="read", code="file-not-found", hint=hint)


def near_names(wanted: str, names: Sequence[str]) -> str:
    """Lists the names that are most like the wanted one, or the first ten."""
    near = difflib.get_close_matches(wanted, names, n=5, cutoff=0.4)
    return ", ".join(near or names[:10])


def match_glob(pattern: str, rel: str) -> bool:
    """True if `rel` matches. `*.md` matches names in any folder; a pattern with a slash matches the path, and `**`
    crosses folders. Many stars do not make it slow."""
    glob = Glob(pattern, sets=True)
    if "/" in pattern:
        return glob.fullmatch(rel)
    _, _, name = rel.rpartition("/")
    return glob.fullmatch(name)


def shown(text: str) -> str:
    """Escapes line breaks and control characters, because names and lines are foreign text."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def brief(text: str, most: int = 200) -> str:
    """Escapes a name, and cuts it for a message."""
    return shown(text)[:most]


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
    below = _below(workspace.layout.inside, path)
    if below is not None:
        path = below
    elif path.startswith("/"):
        return _on_host(text, path, within)
    rel = plain_path(path)
    top, _, _ = rel.partition("/")
    if top == "inputs":
        top = "work"
        rel = f"work/{rel}"
    folder, _, file = rel.rpartition("/")
    if top not in WRITABLE or not folder:
        raise _refused(text, "is not below work/ or out/")
    if path.endswith("/"):
        raise _refused(text, "names a folder, not a file")
    return FileTarget(place.root, folder, file, rel, place.uid)


def _path(text: str) -> str:
    """Path without its scheme. A path of the host is absolute."""
    scheme, mark, rest = text.partition("://")
    if not mark:
        return os.path.expanduser(text)
    if scheme == "workspace":
        return os.path.expanduser(rest)
    if scheme == "host":
        below = rest.lstrip("/")
        return f"/{below}"
    raise _refused(text, f"has the scheme '{brief(scheme, 40)}', where nothing can be written")


def _on_host(text: str, path: str, within: CallGrant) -> FileTarget:
    """Target below a host folder that the decision names."""
    above, name = os.path.split(path)
    if name in ("", ".", "..") or "\0" in path:
        raise _refused(text, "names no file")
    check_safe_name(name)
    folder = os.path.realpath(above)
    root = _find_root(folder, within.decision.limits.get("roots") or ())
    if root is None:
        raise _refused(text, "is not below a folder that was opened for this", code="host-not-allowed")
    below = os.path.relpath(folder, root)
    inner = os.path.join(below, name)
    check_unprotected(root, os.path.normpath(inner))
    full = os.path.join(folder, name)
    return FileTarget(root, below, name, full, in_workspace=False)


def _find_root(folder: str, roots: Iterable[object]) -> str | None:
    for each in roots:
        expanded = os.path.expanduser(str(each))
        root = os.path.realpath(expanded)
        if is_inside(root, folder):
            return root
    return None


def _refused(text: str, why: str, code: str = "write-refused") -> WorkspaceError:
    message = f"'{brief(text)}' {why}."
    hint = "Use a path below out/ (for results) or work/, for instance out/report.md."
    return PathEscape(message, op="write", code=code, hint=hint)
