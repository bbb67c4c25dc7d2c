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
from prowess.tools.files.paths import TOPS, FileRef, find_ref, match_glob, not_found, shown, spelled
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
        return f"{shown(self.name)}/{self.about}" if self.is_folder else f"{shown(self.name)}  {self.about}"


class ListDir(WorkTool):
    spec = ToolSpec(
        name="list_dir",
        description="List a folder of the workspace or of a loaded skill.",
        parameters=render_schema(ListArguments),
        read_only=True,
    )

    def normalise(self, args: Mapping[str, Any]) -> dict[str, Any]:
        wanted = parse_arguments(ListArguments, args, self.spec.name)
        return wanted.model_copy(update={"path": spelled(wanted.path or ".", self._work)}).normal()

    async def call(self, args: Mapping[str, Any], within: CallGrant) -> Outcome:
        wanted = parse_arguments(ListArguments, args, self.spec.name)
        ref = await find_ref(wanted.path or ".", self._work)
        root = "" if ref.loaded is not None else (await self._work.workspace())[1].root
        return await asyncio.to_thread(self._list, ref, wanted, root)

    def _list(self, ref: FileRef, wanted: ListArguments, root: str) -> Outcome:
        depth = MAX_DEPTH if wanted.pattern else wanted.depth
        listed: list[FolderEntry] = []
        matching = seen = 0
        try:
            for each in islice(self._entries(ref, depth, root), MAX_COUNTED):
                seen += 1
                if wanted.pattern is None or (not each.is_folder and match_glob(wanted.pattern, each.name)):
                    matching += 1
                    if matching <= MAX_ENTRIES:
                        listed.append(each)
        except PermissionError:
            raise PathEscape(
                f"'{shown(ref.name)[:200]}' cannot be opened.", op="list", code="not-readable", hint="Leave it."
            ) from None
        except OSError:
            raise not_found(ref.path, root, folders=True) from None
        lines = [str(each) for each in listed] or ["(nothing matches)" if wanted.pattern else "(empty)"]
        if left_out := matching - len(listed):
            lines.append(f"({left_out} more entries are not shown: ask for a folder further down)")
        if seen == MAX_COUNTED:
            lines.append(f"(only the first {MAX_COUNTED} entries were looked at)")
        data = {"path": shown(ref.name), "count": len(listed), "left_out": left_out, "paths": [shown(ref.name)]}
        return Outcome(status="ok", content="\n".join(lines), data=data)

    def _entries(self, ref: FileRef, depth: int, root: str) -> Iterator[FolderEntry]:
        if ref.loaded is not None:
            return iter(_of_skill(ref.loaded, ref.path, depth))
        if ref.path in ("", "skills"):
            return self._top(ref.path, depth, root)
        if ref.path.split("/")[0] not in TOPS:
            raise FileNotFoundError(ref.path)
        return _of_folder(root, ref.path, depth)

    def _top(self, path: str, depth: int, root: str) -> Iterator[FolderEntry]:
        """Lists the folders of a workspace. Below skills/ it lists only skills in use."""
        loaded = sorted(self._work.loaded.values(), key=lambda each: each.folder)
        if path == "skills":
            for each in loaded:
                yield FolderEntry(each.folder, "", is_folder=True)
                yield from _under(each.folder, _of_skill(each, "", depth - 1) if depth > 1 else ())
            return
        for top in sorted((*TOPS, "skills")):
            yield FolderEntry(top, "", is_folder=True)
            if depth > 1:
                below = self._top(top, depth - 1, root) if top == "skills" else _of_folder(root, top, depth - 1)
                yield from _under(top, below)


def _of_skill(loaded: LoadedSkill, path: str, depth: int) -> list[FolderEntry]:
    found: dict[str, FolderEntry] = {}
    for file in loaded.skill.files:
        if file.path == path:
            return [FolderEntry(path.rpartition("/")[2], str(file.size_bytes))]
        if path and not file.path.startswith(f"{path}/"):
            continue
        parts = file.path[len(path) :].lstrip("/").split("/")
        for end in range(1, min(len(parts), depth) + 1):
            name = "/".join(parts[:end])
            found[name] = (
                FolderEntry(name, "", is_folder=True) if end < len(parts) else FolderEntry(name, str(file.size_bytes))
            )
    if path and not found:
        folders = sorted({file.path.rpartition("/")[0] for file in loaded.skill.files} - {""})
        raise ResourceNotFound(
            f"The skill '{loaded.skill.name}' has no folder '{shown(path)[:200]}'.",
            hint=f"It has: {', '.join(folders[:10]) or 'no folders'}",
        )
    return sorted(found.values(), key=lambda each: each.name.split("/"))


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
            yield FolderEntry(name, "  (cannot be opened)" if below is None else "", is_folder=True)
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
    if stat.S_ISREG(status.st_mode):
        return str(status.st_size)
    if not stat.S_ISLNK(status.st_mode):
        return f"({kind_of(status.st_mode)})"
    try:
        return f"-> {shown(os.readlink(name, dir_fd=fd))[:200]}"
    except OSError:
        return "(a link)"


def _under(folder: str, entries: Iterable[FolderEntry]) -> Iterator[FolderEntry]:
    return (each._replace(name=f"{folder}/{each.name}") for each in entries)
