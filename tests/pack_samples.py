"""Folders of skills for tests of packs, and what a test asks of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from prowess.errors import PackError, in_one_line
from prowess.packs.contents import find_skills
from prowess.packs.values import Obtained, PackedSkill, PackSource

SKILL_MD = (
    "---\nname: {name}\ndescription: Fills PDF forms. Use when the user mentions a form.\n---\n\n# Steps\n\nDo it.\n"
)


def skill_folder(top: Path, name: str, files: Mapping[str, bytes | str] | None = None, *, folder: str = "") -> Path:
    """Writes a skill below `top`. Files below scripts/ are executable."""
    home = top / (folder or name)
    for path, content in {"SKILL.md": SKILL_MD.format(name=name), **(files or {})}.items():
        target = home / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        target.chmod(0o755 if path.startswith("scripts/") else 0o644)
    return home


def obtained(folder: Path, *, path: str | None = None, is_ours: bool = False, location: str = "") -> Obtained:
    source = PackSource(kind="folder", text="the-source", location=location or str(folder), path=path)
    return Obtained(source=source, folder=str(folder), is_ours=is_ours)


def packed(folder: Path) -> list[PackedSkill]:
    return find_skills(obtained(folder))


def refused(call: Callable[[], object]) -> PackError:
    """The error of a call, which says what to do and is safe to print."""
    with pytest.raises(PackError) as caught:
        call()
    error = caught.value
    assert error.hint
    assert in_one_line(error).isprintable()
    return error
