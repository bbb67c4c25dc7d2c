"""list_dir: lists a folder of the workspace or of a loaded skill. Links are shown as links and never followed.

A skill has the files that it had when it was loaded. Workspace files are listed as they are now.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

from prowess._internal.files import kind_of
from prowess.core.ports import CallGrant
from prowess.core.values import Outcome, ToolSpec
from prowess.errors import PathEscape, ResourceNotFound
from prowess.tools.arguments import ListArguments
from prowess.tools.files.paths import TOPS, FileRef, brief, find_ref, match_glob, not_found, shown, spelled
from prowess.tools.schema import parse_arguments, render_schema
from prowess.tools.session_work import LoadedSkill, WorkTool
from prowess.workspace.dirfd import MAX_DEPTH, open_folder

MAX_ENTRIES = 500  # entries shown
MAX_COUNTED = 100_000  # entries read
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class FolderEntry(NamedTuple):
    """Entry of a folder: its path below the listed folder, and a text about it (such as its size)."""

    name: str
    about: str
    is_folder: bool = False

    def __str__(self) -> str:
        name = shown(self.name)
        if self.is_folder:
            return f"{name}/{self.about}"
        return f"{name}  {self.about}"


class ListDir(WorkTool):
    spec = ToolSpec(
        name="list_dir",
        description="List a folder of the workspace or of a loaded skill.",
        parameters=render_schema(ListArguments),
        read_only=True,
    )

    def normalise(self, args: Mapping[str, Any]) -> dict[str, Any]:
        wanted = parse_arguments(ListArguments, args, self.spec.name)
        path = spelled(wanted.path or ".", self._work)
        wanted = wanted.model_copy(update={"path": path})
        return wanted.normal()

    async def call(self, args: Mapping[str, Any], within: CallGrant) -> Outcome:
        wanted = parse_arguments(ListArguments, args, self.spec.name)
        ref = await find_ref(wanted.path or ".", self._work)
        root = ""
        if ref.loaded is None:
            _, place = await self._work.workspace()
            root = place.root
        return await asyncio.to_thread(self._list, ref, wanted, root)

    def _list(self, ref: FileRef, wanted: ListArguments, root: str) -> Outcome:
        depth = MAX_DEPTH if wanted.pattern else wanted.depth
        listed: list[FolderEntry] = []
        left_out = 0
        seen = 0
        try:
            for each in islice(self._entries(ref, depth, root), MAX_COUNTED):
                seen += 1
                if not _is_wanted(each, wanted.pattern):
                    continue
                if len(listed) < MAX_ENTRIES:
                    listed.append(each)
                else:
                    left_out += 1
        except PermissionError:
            message = f"'{brief(ref.name)}' cannot be opened."
            raise PathEscape(message, op="list", code="not-readable", hint="Leave it.") from None
        except OSError:
            raise not_found(ref.path, root, folders=True) from None
        lines = [str(each) for each in listed]
        if not lines:
            lines.append("(nothing matches)" if wanted.pattern else "(empty)")
        if left_out:
            lines.append(f"({left_out} more entries are not shown: ask for a folder further down)")
        if seen == MAX_COUNTED:
            lines.append(f"(only the first {MAX_COUNTED} entries were looked at)")
        path = shown(ref.name)
        data = {"path": path, "count": len(listed), "not_shown": left_out, "paths": [path]}
        return Outcome(status="ok", content="\n".join(lines), data=data)

    def _entries(self, ref: FileRef, depth: int, root: str) -> Iterator[FolderEntry]:
        path = ref.path
        if ref.loaded is not None:
            return iter(_of_skill(ref.loaded, path, depth))
        if path == "":
            return self._top(depth, root)
        if path == "skills":
            return self._skills(depth)
        top, _, _ = path.partition("/")
        if top not in TOPS:
            raise FileNotFoundError(path)
        return _of_folder(root, path, depth)

    def _top(self, depth: int, root: str) -> Iterator[FolderEntry]:
        """Lists the folders of a workspace."""
        for top in sorted((*TOPS, "skills")):
            yield FolderEntry(top, "", is_folder=True)
            if depth <= 1:
                continue
            below = self._skills(depth - 1) if top == "skills" else _of_folder(root, top, depth - 1)
            yield from _under(top, below)

    def _skills(self, depth: int) -> Iterator[FolderEntry]:
        """Lists skills/, which shows only skills in use."""
        loaded = sorted(self._work.loaded.values(), key=lambda each: each.folder)
        for each in loaded:
            yield FolderEntry(each.folder, "", is_folder=True)
            if depth > 1:
                below = _of_skill(each, "", depth - 1)
                yield from _under(each.folder, below)


def _is_wanted(entry: FolderEntry, pattern: str | None) -> bool:
    if pattern is None:
        return True
    return not entry.is_folder and match_glob(pattern, entry.name)


def _of_skill(loaded: LoadedSkill, path: str, depth: int) -> list[FolderEntry]:
    """Entries of a skill's folder, or the file itself if `path` is a file."""
    found: dict[str, FolderEntry] = {}
    for file in loaded.skill.files:
        size = str(file.size_bytes)
        if file.path == path:
            _, _, name = path.rpartition("/")
            return [FolderEntry(name, size)]
        if path and not file.path.startswith(f"{path}/"):
            continue
        below = file.path[len(path) :].lstrip("/")
        parts = below.split("/")
        folders = parts[:-1]
        for end in range(1, min(len(folders), depth) + 1):
            name = "/".join(folders[:end])
            found[name] = FolderEntry(name, "", is_folder=True)
        if len(parts) <= depth:
            found[below] = FolderEntry(below, size)
    if path and not found:
        raise _no_folder(loaded, path)
    return sorted(found.values(), key=lambda each: each.name.split("/"))


def _no_folder(loaded: LoadedSkill, path: str) -> ResourceNotFound:
    folders = {file.path.rpartition("/")[0] for file in loaded.skill.files}
    folders.discard("")
    first = sorted(folders)[:10]
    there = ", ".join(first) or "no folders"
    message = f"The skill '{loaded.skill.name}' has no folder '{brief(path)}'."
    return ResourceNotFound(message, hint=f"It has: {there}")


def _of_folder(root: str, rel: str, depth: int) -> Iterator[FolderEntry]:
    """Yields the entries of the folder `rel`, or the file itself if `rel` is a file."""
    above, _, name = rel.rpartition("/")
    with open_folder(root, above) as fd:
        status = os.stat(name, dir_fd=fd, follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode):
            yield FolderEntry(name, _about(fd, name, status))
            return
    with open_folder(root, rel) as fd:
        yield from _below(fd, depth)


def _below(fd: int, depth: int) -> Iterator[FolderEntry]:
    for name in sorted(os.listdir(fd)):
        try:
            status = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            continue
        if not stat.S_ISDIR(status.st_mode):
            yield FolderEntry(name, _about(fd, name, status))
            continue
        with _entered(fd, name) as below:
            about = "  (cannot be opened)" if below is None else ""
            yield FolderEntry(name, about, is_folder=True)
            if below is not None and depth > 1:
                yield from _under(name, _below(below, depth - 1))


@contextmanager
def _entered(fd: int, name: str) -> Iterator[int | None]:
    try:
        below = os.open(name, _FOLDER, dir_fd=fd)
    except OSError:  # no permission, or replaced by a link a moment ago
        yield None
        return
    try:
        yield below
    finally:
        os.close(below)


def _about(fd: int, name: str, status: os.stat_result) -> str:
    """Size of a file, target of a link, kind of anything else."""
    mode = status.st_mode
    if stat.S_ISREG(mode):
        return str(status.st_size)
    if not stat.S_ISLNK(mode):
        return f"({kind_of(mode)})"
    try:
        target = os.readlink(name, dir_fd=fd)
    except OSError:
        return "(a link)"
    return f"-> {brief(target)}"


def _under(folder: str, entries: Iterable[FolderEntry]) -> Iterator[FolderEntry]:
    """Puts the folder before the names of its entries."""
    for each in entries:
        yield each._replace(name=f"{folder}/{each.name}")
