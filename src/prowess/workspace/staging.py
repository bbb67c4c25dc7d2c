"""A skill's tree is published once, under its digest, and never changes: bodies, docs and runs are read from there.

`publish` copies exactly the files that were there when the skill was loaded, checked by their sha256 on the way; a tree
appears whole or not at all, whoever else publishes the same one at the same time. The source is only ever read.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

from prowess._files import open_regular
from prowess._paths import inside
from prowess.errors import WorkspaceError
from prowess.skills.entry import Skill, SkillFile
from prowess.skills.findings import Note
from prowess.skills.validate import WORKSPACE_NAMES, shipped_folders

SHIPPED = "_shipped"  # a skill that ships a folder of a name that leads to the workspace keeps it readable here
_CHUNK = 1 << 20


class Tree(NamedTuple):
    path: str
    digest: str
    notes: tuple[Note, ...] = ()


def publish(skill: Skill, store: str) -> Tree:
    """The skill's tree in `store`, made now or by somebody before."""
    target = os.path.join(store, skill.digest.removeprefix("sha256:"))
    notes = tuple(Note("shipped-folder", None, {"folder": folder}) for folder in shipped_folders(skill))
    if os.path.isdir(target):
        return Tree(target, skill.digest, notes)
    os.makedirs(store, mode=0o711, exist_ok=True)
    temporary = tempfile.mkdtemp(dir=store, prefix=".new-")
    try:
        for file in skill.files:
            _copy(skill, file, os.path.join(temporary, *_place(file.path).split("/")))
        for name in WORKSPACE_NAMES:
            os.mkdir(os.path.join(temporary, name))
        _make_read_only(temporary)
        try:
            os.rename(temporary, target)
        except OSError:
            if not os.path.isdir(target):  # otherwise somebody was faster, with the same bytes
                raise
            remove_tree(temporary)
    except BaseException:
        remove_tree(temporary)
        raise
    return Tree(target, skill.digest, notes)


def copy_tree(tree: Tree, target: str) -> None:
    """A private copy for executors that cannot bind: appears whole, replaces an older one."""
    parent = os.path.dirname(target)
    temporary = tempfile.mkdtemp(dir=parent, prefix=".new-")
    try:
        shutil.copytree(tree.path, temporary, dirs_exist_ok=True, symlinks=True, copy_function=shutil.copy)
        remove_tree(target)
        os.rename(temporary, target)
    except BaseException:
        remove_tree(temporary)
        raise


def remove_tree(path: str) -> None:
    """Also what is read-only. Nothing happens when it is not there."""
    if not os.path.lexists(path):
        return
    for folder, _, _ in os.walk(path):
        os.chmod(folder, 0o700)
    shutil.rmtree(path)


def _place(path: str) -> str:
    return f"{SHIPPED}/{path}" if path.split("/")[0] in WORKSPACE_NAMES else path


def _copy(skill: Skill, file: SkillFile, target: str) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    digest = hashlib.sha256()
    with open(target, "xb") as out:
        for chunk in _chunks(skill, file.path):
            digest.update(chunk)
            out.write(chunk)
    if digest.hexdigest() != file.sha256:
        raise WorkspaceError(
            f"'{file.path}' of the skill '{skill.name}' changed since the skill was loaded.",
            op="stage",
            code="resource-changed",
            hint="Load the skill again to work with the new content.",
        )
    os.chmod(target, 0o555 if file.executable else 0o444)


def _chunks(skill: Skill, path: str) -> Iterator[bytes]:
    if skill.contents is not None:
        yield skill.contents[path]
        return
    assert skill.directory is not None
    with open(open_regular(inside(skill.directory, path)), "rb") as source:
        while chunk := source.read(_CHUNK):
            yield chunk


def _make_read_only(path: str) -> None:
    for folder, _, _ in os.walk(path, topdown=False):
        os.chmod(folder, 0o555)  # noqa: S103 - whoever the run is started as must be able to read it
