"""Writes new skills and new projects from templates."""

from __future__ import annotations

import os
import unicodedata
from typing import NamedTuple

from prowess._internal.files import write_whole
from prowess._internal.named_paths import result_folder, result_path
from prowess._internal.state_folder import GITIGNORE
from prowess.core.findings import make_finding
from prowess.errors import ConfigError, StoreError
from prowess.policy.trust import note_made
from prowess.skills.metadata import name_notes
from prowess.skills.template import TEMPLATE, UNDESCRIBED
from prowess.skills.yaml_mapping import Unreadable, read_mapping

_LONGEST_DESCRIPTION = 1024

_CONFIG = """\
# The project's configuration. Every setting, its value and where it comes from: prowess config show --origin
# A setting that is not known is an error, so a typing mistake cannot go unnoticed.

# [skills]
# budget = 4000                    # tokens for the catalog; default: 2 % of the model's window

# [skills.modes]                   # pin | auto | name-only | manual | off, by name or pattern
# "deploy-*" = "manual"

# [security]
# max_skill_body_lines = 500       # set means refuse
"""


class NewSkill(NamedTuple):
    name: str
    file: str

    @property
    def folder(self) -> str:
        return os.path.dirname(self.file)


class NewProject(NamedTuple):
    folder: str
    written: list[str]
    kept: list[str]  # files that were there already
    problem: StoreError | None = None  # why it is not known as made by the person


def write_skill(name: str, folder: str, description: str | None = None, *, base: str = ".") -> NewSkill:
    """Writes a skill into a folder that holds skills, relative to `base`."""
    name = _check_name(name)
    home = os.path.join(base, folder, name)
    if os.path.lexists(home):
        problem = f"There is already something at {home}."
        raise ConfigError(problem, code="skill-exists", hint="Choose another name, or remove it first.")
    title = name.replace("-", " ").capitalize()
    described = _yaml_text(description or f"{title}{UNDESCRIBED}")
    if description and len(description) > _LONGEST_DESCRIPTION:
        problem = f"The description has {len(description)} characters; {_LONGEST_DESCRIPTION} are allowed."
        hint = "Say what it does and when to use it; the rest belongs into the body."
        raise ConfigError(problem, code="description-too-long", hint=hint)
    target = os.path.join(home, "SKILL.md")
    text = TEMPLATE.format(name=name, title=title, description=described)
    _write(result_path(base, target, force=False), text)
    return NewSkill(name, target)


def _check_name(name: str) -> str:
    """Returns the name in its normal form. Raises ConfigError for a name that no skill can have."""
    name = unicodedata.normalize("NFKC", name.strip())
    for note in name_notes(name):
        if note.code != "name-not-portable":
            finding = make_finding(note, name)
            raise ConfigError(finding.message, code=note.code, hint=finding.hint)
    if not name:
        raise ConfigError("A skill needs a name.", code="name-missing", hint="prowess new NAME")
    return name


def _write(target: str, text: str) -> None:
    """Writes the whole skill or nothing: a folder without SKILL.md would block the next try."""
    folder = os.path.dirname(target)
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    os.mkdir(folder)
    try:
        write_whole(target, text.encode())
    except OSError:
        os.rmdir(folder)
        raise


def _yaml_text(text: str) -> str:
    """Renders the text as one line of YAML, quoted only where needed."""
    text = " ".join(text.split())
    try:
        fields, _, notes = read_mapping(f"description: {text}")
        if fields == {"description": text} and not notes:
            return text
    except Unreadable:
        pass
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def write_project(folder: str, state_dir: str) -> NewProject:
    """Makes a folder a project. Files that are there already are left as they are. A project without an earlier
    `.agent` is noted as made by the person."""
    base = os.path.join(folder, ".agent")
    is_new = not os.path.lexists(base)
    files = {
        os.path.join(base, "config.toml"): _CONFIG,
        os.path.join(base, ".gitignore"): GITIGNORE,
        os.path.join(base, "skills", ".gitkeep"): "",
    }
    if os.path.lexists(os.path.join(base, "config.json")):
        del files[os.path.join(base, "config.toml")]
    for path in files:
        result_folder(folder, os.path.dirname(path))
    written: list[str] = []
    kept: list[str] = []
    for path, text in files.items():
        if os.path.lexists(path):
            kept.append(path)
            continue
        write_whole(path, text.encode())
        written.append(path)
    problem = None
    if is_new:
        try:
            note_made(state_dir, folder)
        except StoreError as error:  # then only copies of its runs are missing
            problem = error
    return NewProject(base, written, kept, problem)
