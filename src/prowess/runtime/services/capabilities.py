"""Capabilities of a skill, for a person who decides about it: what it asks for, ships and needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prowess.core.findings import visible
from prowess.errors import SkillError, WorkspaceError
from prowess.skills.load import load_entry, read_resource
from prowess.skills.scanner import scan
from prowess.skills.skill import Root, Skill
from prowess.skills.validate import EXTENSIONS
from prowess.workspace.scripts.pep723 import parse_block

_ARCHIVE_NAMES = (".zip", ".skill", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".zst", ".7z", ".rar", ".jar", ".whl")
_NEEDS = {"bins": "needs programs", "env": "needs environment variables", "python": "needs Python"}


def find_capabilities(skill: Skill) -> tuple[str, ...]:
    """Returns what a skill may do and what it needs, for a person, as far as it declares or ships it."""
    controls = skill.entry.controls
    scripts = [file.path for file in skill.files if file.executable or file.path.endswith(tuple(EXTENSIONS))]
    archives = [file.path for file in skill.files if file.path.lower().endswith(_ARCHIVE_NAMES)]
    compatibility = skill.fields.get("compatibility")
    facts: dict[str, Sequence[str]] = {
        "tools": controls.allowed_tools or (),
        "scripts": scripts,
        "packages of its scripts": sorted(_packages(skill, scripts)),
        **{_NEEDS.get(kind, f"needs {kind}"): items for kind, items in controls.requires},
        "archives inside, not unpacked": archives,
        "compatibility": [compatibility] if isinstance(compatibility, str) else (),
    }
    return tuple(f"{what}: {', '.join(map(visible, items))}" for what, items in facts.items() if items)


def read_capabilities(folder: str) -> tuple[str, ...] | None:
    """Returns the capabilities of the skill in a folder. None if there is none, or if it cannot be read."""
    found = scan(Root("explicit", folder)).entries
    try:
        return find_capabilities(load_entry(found[0])) if found else None
    except SkillError:
        return None


def _packages(skill: Skill, scripts: Iterable[str]) -> set[str]:
    packages: set[str] = set()
    for path in scripts:
        if path.endswith(".py"):
            try:
                block = parse_block(read_resource(skill, path).decode("utf-8", "replace"), name=path)
                packages |= set(block.dependencies if block else ())
            except (WorkspaceError, SkillError):
                packages.add(f"unreadable in {path}")
    return packages
