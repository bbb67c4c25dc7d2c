"""Capabilities of a skill, for a person who decides about it: what it asks for, ships and needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prowess.core.findings import visible
from prowess.errors import SkillError, WorkspaceError
from prowess.skills.load import load_entry, read_resource
from prowess.skills.scanner import scan
from prowess.skills.skill import Root, Skill, SkillFile
from prowess.skills.validate import EXTENSIONS
from prowess.workspace.scripts.pep723 import parse_block

_ARCHIVE_NAMES = (".zip", ".skill", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".zst", ".7z", ".rar", ".jar", ".whl")
_NEEDS = {"bins": "needs programs", "env": "needs environment variables", "python": "needs Python"}


def find_capabilities(skill: Skill) -> tuple[str, ...]:
    """Returns what a skill may do and what it needs, for a person, as far as it declares or ships it."""
    controls = skill.entry.controls
    scripts = [file.path for file in skill.files if _is_script(file)]
    archives = [file.path for file in skill.files if file.path.lower().endswith(_ARCHIVE_NAMES)]
    packages = _packages(skill, scripts)
    facts: dict[str, Sequence[str]] = {}
    facts["tools"] = controls.allowed_tools or ()
    facts["scripts"] = scripts
    facts["packages of its scripts"] = sorted(packages)
    for kind, items in controls.requires:
        what = _NEEDS.get(kind, f"needs {kind}")
        facts[what] = items
    facts["archives inside, not unpacked"] = archives
    compatibility = skill.fields.get("compatibility")
    if isinstance(compatibility, str):
        facts["compatibility"] = [compatibility]
    return tuple(_say(what, items) for what, items in facts.items() if items)


def _is_script(file: SkillFile) -> bool:
    """True for a file that is meant to be run."""
    return file.executable or file.path.endswith(tuple(EXTENSIONS))


def _say(what: str, items: Iterable[str]) -> str:
    shown = ", ".join(map(visible, items))
    return f"{what}: {shown}"


def read_capabilities(folder: str) -> tuple[str, ...] | None:
    """Returns the capabilities of the skill in a folder. None if there is none, or if it cannot be read."""
    found = scan(Root("explicit", folder)).entries
    if not found:
        return None
    try:
        skill = load_entry(found[0])
    except SkillError:
        return None
    return find_capabilities(skill)


def _packages(skill: Skill, scripts: Iterable[str]) -> set[str]:
    packages: set[str] = set()
    for path in scripts:
        if not path.endswith(".py"):
            continue
        try:
            text = read_resource(skill, path).decode("utf-8", "replace")
            block = parse_block(text, name=path)
        except (WorkspaceError, SkillError):
            packages.add(f"unreadable in {path}")
            continue
        if block:
            packages |= set(block.dependencies)
    return packages
