"""Exports an older version of a skill, from a commit of its git repository or from a pack."""

from __future__ import annotations

import os
import shutil
import tempfile
import time

from prowess._internal.archive import write_members
from prowess._internal.git_repository import GitFailure, GitRepository
from prowess._internal.paths import user_path
from prowess._internal.unpack import unpack
from prowess.core.findings import visible
from prowess.errors import EvalError
from prowess.runtime.runtime import Runtime
from prowess.skills.reference import find_skill_md
from prowess.skills.skill import Entry
from prowess.workspace.skill_trees import remove_tree

_TIMEOUT_S = 60.0


def export_old_skill(entry: Entry, ref: str, into: str, runtime: Runtime, *, accepts_packs: bool) -> bool:
    """Writes an older version of a skill into a new root, from a pack if there is such a file, else from git.

    Returns True for a pack. Without `accepts_packs` it is refused."""
    remove_tree(into)  # of a run that is resumed; a link there is removed, and leads nowhere
    os.mkdir(into)
    shown = visible(ref[:80])
    parts = (entry.rel or entry.name).split("/")
    home = os.path.join(into, *parts)
    pack = user_path(runtime.places.cwd, ref)
    is_pack = os.path.isfile(pack)
    if is_pack and not accepts_packs:  # its skill would stand before the installed one
        problem = f"A case names the pack '{shown}', and this project is not trusted."
        raise EvalError(problem, code="old-skill-untrusted", hint=f"Name it yourself: --arms old_skill={shown}")
    with tempfile.TemporaryDirectory() as work:
        if is_pack:
            _export_pack(pack, work, home)
        elif not ref.startswith("-"):
            _export_commit(entry, ref, work, home, runtime)
    if find_skill_md(home) is None:
        problem = f"There is no version '{shown}' of the skill in {entry.real_path}."
        hint = "Name a branch, tag or commit that has it, or the path of a pack: old_skill=REF"
        raise EvalError(problem, code="old-skill-missing", hint=hint)
    return is_pack


def _export_pack(pack: str, work: str, home: str) -> None:
    """Copies the folder of the outermost SKILL.md of a pack."""
    found: list[str] = []
    for path in unpack(pack, work):
        _, _, name = path.rpartition("/")
        if name.lower() == "skill.md":
            found.append(path)
    outermost = min(found, key=len, default="")
    folder = os.path.join(work, os.path.dirname(outermost))
    shutil.copytree(folder, home)


def _export_commit(entry: Entry, ref: str, work: str, home: str, runtime: Runtime) -> None:
    ends = time.monotonic() + _TIMEOUT_S
    try:
        git = GitRepository("", work, environ=runtime.environ, ends=ends, around=entry.real_path)
        members = git.read_around(ref)
        write_members(members or (), home)
    except GitFailure as error:
        said = visible(error.words.strip()[:200]) or error.reason
        if error.reason == "missing":
            said = "it is not on PATH"
        problem = f"Git cannot read {entry.real_path}: {said}."
        raise EvalError(problem, code=f"git-{error.reason}", hint="Name a pack: old_skill=PATH") from error
