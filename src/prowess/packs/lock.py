"""Reads and writes `skills.toml` (the skills that are wanted) and `skills.lock` (the skills that are installed).

A person may edit skills.toml, so only single lines of it are changed. The lock is sorted, so that branches merge well.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection
from functools import lru_cache
from typing import Any, NamedTuple, get_args

from prowess._internal.files import read_regular
from prowess._internal.folder_swap import BESIDE
from prowess._internal.named_paths import result_folder
from prowess._internal.paths import user_path
from prowess._internal.portable_names import is_portable_folder
from prowess._internal.text import find_invisible
from prowess._internal.toml_lines import edit_table, parse_toml
from prowess.core.findings import visible
from prowess.errors import ConfigError, PackError
from prowess.packs.values import Lock, LockedSkill, SourceKind, WantedChanges, WantedSkill
from prowess.runtime.config import ConfigPlaces
from prowess.skills.file_list import from_records, to_records
from prowess.skills.scanner import SKIPPED
from prowess.skills.spelling import near_names

SCHEMA = "prowess.lock/1"
_MAX_BYTES = 64 << 20
_MAX_WANTED_BYTES = 1 << 20
_TEXTS = ("source", "kind", "skill", "path", "digest", "installed_at")  # of a skill in the lock
_FIELDS = (*_TEXTS, "ref", "commit", "sha256", "version")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_HEADER = """\
# Skills that this project installs: name = source. `prowess install` reads and writes it; `skills.lock` pins it.

"""


class PackPlace(NamedTuple):
    """A folder that skills are installed into, with its two files."""

    root: str
    wanted: str
    lock: str
    base: str  # folder that relative sources in both files refer to
    state_dir: str  # of the person

    def folder(self, name: str) -> str:
        return os.path.join(self.root, name)


def find_place(to: str, places: ConfigPlaces) -> PackPlace:
    """Returns the place that `--to` names: `project`, `user`, or a folder of skills."""
    if to in ("project", "user"):
        base = places.project if to == "project" else places.home
        above = os.path.join(base, ".agent")
        root = os.path.join(above, "skills")
        cwd = base if to == "project" else above  # ~/.agent may be a link of the person's
    else:
        cwd = places.cwd
        base = above = root = os.path.abspath(user_path(cwd, to))
        if os.path.lexists(root) and not os.path.isdir(root):
            hint = "Name a folder of skills, or a new one."
            raise PackError(f"{to} is not a folder.", code="target-not-folder", hint=hint)
    try:
        result_folder(cwd, root)  # a repository must not decide where we write
    except ConfigError as error:
        message = f"{root} cannot be used. {visible(error.message)}"
        raise PackError(message, code="target-unsafe", hint="If you mean that folder, name it: --to FOLDER") from None
    wanted = os.path.join(above, "skills.toml")
    lock = os.path.join(above, "skills.lock")
    return PackPlace(root, wanted, lock, base, places.state_dir)


def read_wanted(place: PackPlace) -> dict[str, WantedSkill]:
    """Returns the wanted skills by their name here. Without the file, none."""
    return _parse_wanted(_read(place.wanted), place.wanted)


def _parse_wanted(text: str, path: str) -> dict[str, WantedSkill]:
    try:
        table = parse_toml(text)
    except (ValueError, RecursionError) as error:
        raise _invalid(path, str(error)[:200]) from None
    rows = table.pop("skills", {})
    if table or not isinstance(rows, dict):
        raise _invalid(path, f"'{next(iter(table), 'skills')}' is not the table [skills]")
    wanted = {}
    for name, value in rows.items():
        row = {"source": value} if isinstance(value, str) else value
        if not isinstance(row, dict) or not isinstance(row.get("source"), str) or row.keys() - {"source", "skill"}:
            raise _invalid(path, f"'{visible(name)}' is neither a source nor {{ source = …, skill = … }}")
        check_name(name, path)
        there = check_name(str(row.get("skill", name)), path)
        wanted[name] = WantedSkill(row["source"], there)
    return wanted


def edit_wanted(place: PackPlace, changes: WantedChanges) -> bytes | None:
    """Returns the file with the changes, or None when nothing changes. Comments and other lines stay."""
    text = _read(place.wanted)
    before = _parse_wanted(text, place.wanted)
    rows = {name: skill and skill.row(name) for name, skill in changes.items() if skill != before.get(name)}
    if not rows:
        return None
    try:
        edited = edit_table(text if text.strip() else _HEADER, "skills", rows)
    except (ValueError, RecursionError):
        message = f"{place.wanted} has a form that is not edited automatically."
        hint = 'Write each skill on a line of its own below [skills]: name = "source".'
        raise PackError(message, code="wanted-not-editable", hint=hint) from None
    _parse_wanted(edited, place.wanted)
    return edited.encode()


def read_lock(place: PackPlace) -> dict[str, LockedSkill]:
    """Returns the installed skills by their name here. Without the file, none."""
    text = _read(place.lock)
    if not text:
        return {}
    try:
        document: Any = json.loads(text)
        schema = document["schema"]
        if schema == SCHEMA:
            return {check_name(name, place.lock): parse_locked(row) for name, row in document["skills"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _invalid(place.lock, str(error)[:200]) from None
    if str(schema).startswith("prowess.lock/"):
        message = f"{place.lock} was written by a newer release ({visible(str(schema))[:40]})."
        raise PackError(message, code="lock-newer", hint="Update Prowess: pip install -U prowess")
    raise _invalid(place.lock, f'it does not say "schema": "{SCHEMA}"')


def parse_locked(data: Any) -> LockedSkill:
    """Returns the skill of `render_locked`. ValueError says what is wrong."""
    # Not by `from_json`, which imports pydantic: the lock is read by every command.
    if not isinstance(data, dict):
        raise ValueError("a skill is not an object")
    values: dict[str, Any] = {name: data.get(name) for name in _FIELDS}
    for name, value in values.items():
        if isinstance(value, str):
            value.encode()  # ValueError for half of a surrogate pair, which could not be written again
        elif value is not None or name in _TEXTS:
            raise ValueError(f"'{name}' must be a text, not {value!r}"[:200])
    if values["commit"] and not _COMMIT.fullmatch(values["commit"]):
        raise ValueError("'commit' is not the id of a commit")
    if values["kind"] not in get_args(SourceKind) or not _DIGEST.fullmatch(values["digest"]):
        raise ValueError("'kind' is not known, or 'digest' is not sha256: and 64 hexadecimal digits")
    return LockedSkill(files=from_records(data.get("files")), **values)


def render_locked(skill: LockedSkill) -> dict[str, Any]:
    """Returns the JSON of one installed skill."""
    values = {name: getattr(skill, name) for name in _FIELDS}
    known = {name: value for name, value in values.items() if value is not None}
    return known | {"files": to_records(skill.files)}


def render_lock(skills: Lock) -> bytes:
    """Returns the file: sorted, with one line for each value and each file of a skill."""
    rows = []
    for name, skill in sorted(skills.items()):
        row = render_locked(skill)
        files = ",\n".join(f"    {_json(path)}: {_json(file)}" for path, file in sorted(row.pop("files").items()))
        values = "".join(f"   {_json(key)}: {_json(value)},\n" for key, value in sorted(row.items()))
        rows.append(f'  {_json(name)}: {{\n{values}   "files": {{\n{files}\n   }}\n  }}')
    text = ",\n".join(rows)
    return f'{{\n "schema": "{SCHEMA}",\n "skills": {{\n{text}\n }}\n}}\n'.encode()


_json = json.JSONEncoder(ensure_ascii=False, sort_keys=True).encode  # without an indent it is ten times as fast


@lru_cache(maxsize=10_000)  # a name is in the lock, in the wanted file and in the plan
def _can_be_folder(name: str) -> bool:
    if name.casefold() in (*SKIPPED, *BESIDE):
        return False
    if find_invisible(name):
        return False
    return is_portable_folder(name)


def check_name(name: str, where: str) -> str:
    """Returns a name that can be a folder of skills. PackError says why it cannot."""
    if _can_be_folder(name):
        return name
    message = f"{where}: '{visible(name)[:80]}' cannot be the name of a skill's folder."
    raise PackError(message, code="name-unsafe", hint="Use lower-case letters, digits and single hyphens.")


def _read(path: str) -> str:
    try:
        limit = _MAX_BYTES if path.endswith(".lock") else _MAX_WANTED_BYTES
        data = read_regular(path, limit, follow=True)
        if len(data) > limit:
            raise _invalid(path, "it is too large")
        if b"\n<<<<<<< " in b"\n" + data:
            error = _invalid(path, "it has a merge conflict")
            error.hint = "Resolve it in skills.toml, and take one side of skills.lock. Then: prowess install"
            raise error
        return data.decode("utf-8-sig")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError:
        raise _invalid(path, "it is not UTF-8") from None
    except OSError as error:
        raise _invalid(path, (error.strerror or str(error)).lower()) from None


def _invalid(path: str, why: str) -> PackError:
    message = f"{path} cannot be used: {visible(why[:300])}."
    if path.endswith(".lock"):
        hint = "Restore it from version control, or delete it and install again."
        return PackError(message, code="lock-invalid", hint=hint)
    return PackError(message, code="wanted-invalid", hint="Mend it.")


def lock_missing(place: PackPlace) -> PackError:
    hint = "Commit skills.lock, or run this where it is."
    return PackError(f"There is no {place.lock}.", code="lock-missing", hint=hint)


def not_installed(name: str, known: Collection[str]) -> PackError:
    message = f"'{visible(name)[:80]}' is not installed here."
    hint = "See: prowess verify --all"
    near = near_names(name, known, limit=3)
    if near:
        hint = f"Did you mean {' or '.join(near)}? {hint}"
    return PackError(message, code="not-installed", hint=hint)
