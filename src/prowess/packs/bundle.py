"""Writes skills into one reproducible zip, and reads the manifest of such a pack:

my-skills.zip
  manifest.json      {"schema": "prowess.pack/1", "skills": [{"name", "version", "digest", "files": {…}}]}
  pdf-forms/SKILL.md …
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from prowess._internal.archive import DEFAULT_LIMITS
from prowess._internal.digest import content_sha256
from prowess._internal.files import read_regular
from prowess._internal.named_paths import result_path
from prowess._internal.paths import inside, is_inside
from prowess._internal.portable_names import check_portable_names, is_plain, shown_name
from prowess._internal.reproducible_zip import ZipMember, write_zip
from prowess.core.codec import from_json, to_json
from prowess.core.findings import visible
from prowess.errors import PackError, PackMismatch, PathEscape
from prowess.packs.values import PackedSkill, StrPath
from prowess.skills.file_list import digest_of, from_records, to_records
from prowess.skills.skill import SkillFile

MANIFEST = "manifest.json"
_SCHEMA = "prowess.pack/1"
_MAX_MANIFEST_BYTES = 8 * 1024 * 1024  # more than 10,000 files of long names need


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenPack:
    """Pack that was written. `left_out` names what no skill owns, such as `pdf/.git/`."""

    path: str
    sha256: str
    size_bytes: int
    skills: tuple[PackedSkill, ...]
    left_out: tuple[str, ...]


def write_pack(skills: Sequence[PackedSkill], to: StrPath, *, force: bool = False, cwd: StrPath = ".") -> WrittenPack:
    """Writes a `.zip` of skills, or a `.skill` of one. The file appears whole or not at all."""
    target = os.path.abspath(os.path.join(cwd, to))
    packed = tuple(_without_junk(skill) for skill in sorted(skills, key=lambda skill: skill.name))
    _check_request(target, packed, force)
    members = [ZipMember(MANIFEST, partial(_render_manifest, packed))]
    for skill in packed:
        for file in skill.files:
            read = partial(_read, skill.folder, file)
            members.append(ZipMember(f"{skill.name}/{file.path}", read, file.executable))
    try:
        sha256, size = write_zip(result_path(os.fspath(cwd), target, force=force), members)
    except OSError as error:
        message = f"Cannot write {shown_name(target)}: {error.strerror or error}."
        hint = "Check that the folder can be written to and that the disk has room."
        raise PackError(message, code="pack-write", hint=hint) from error
    left_out = tuple(f"{skill.name}/{path}" for skill in packed for path in skill.left_out)
    return WrittenPack(path=target, sha256=sha256, size_bytes=size, skills=packed, left_out=left_out)


def _without_junk(skill: PackedSkill) -> PackedSkill:
    """Drops what no archive unpacks, so that the digest in the manifest holds after unpacking."""
    junk = [file.path for file in skill.files if os.path.basename(file.path) == ".DS_Store"]
    files = tuple(file for file in skill.files if file.path not in junk)
    return replace(skill, files=files, digest=digest_of(files), left_out=(*skill.left_out, *junk))


def _check_request(target: str, skills: Sequence[PackedSkill], force: bool) -> None:
    shown = shown_name(target)
    number = "one skill" if len(skills) == 1 else f"{len(skills)} skills"
    endings = (".zip", ".skill") if len(skills) == 1 else (".zip",)
    names = [MANIFEST]
    sizes: list[int] = []
    for skill in skills:
        names += [f"{skill.name}/{file.path}" for file in skill.files]
        sizes += [file.size_bytes for file in skill.files]
    if not sizes:
        message = f"{shown} would have no skill."
        raise PackError(message, code="pack-no-skill", hint="Name a folder that has a SKILL.md.")
    if not target.lower().endswith(endings):
        message = f"{shown} cannot be the name of a pack of {number}."
        hint = "Use a name that ends with .zip, or with .skill for one skill."
        raise PackError(message, code="pack-target-name", hint=hint)
    above = os.path.realpath(os.path.dirname(target))
    if any(is_inside(os.path.realpath(skill.folder), above) for skill in skills):
        message = f"{shown} is inside a skill, so the next pack would contain it."
        raise PackError(message, code="pack-target-inside", hint="Write it to a folder outside the skill.")
    if os.path.lexists(target) and not force:
        raise PackError(f"{shown} exists.", code="pack-exists", hint="Use another name, or --force to replace it.")
    limits = DEFAULT_LIMITS
    if len(sizes) >= limits.max_entries or sum(sizes) > limits.max_total_bytes or max(sizes) > limits.max_file_bytes:
        message = f"{shown} would have {len(sizes)} files, the largest of {max(sizes)} bytes."
        hint = "No installation would unpack it. Leave large files out, or write several packs."
        raise PackError(message, code="pack-too-large", hint=hint)
    check_portable_names(names)


def _read(folder: str, file: SkillFile) -> bytes:
    """Returns the content that was checked before."""
    with contextlib.suppress(OSError, PathEscape):
        data = read_regular(inside(folder, file.path), file.size_bytes)
        if content_sha256(data) == file.sha256:
            return data
    message = f"{shown_name(file.path)} in {shown_name(folder)} changed while it was packed."
    raise PackMismatch(message, code="pack-changed", hint="Pack again when nothing writes to the skill.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _SkillRecord:
    name: str
    version: str | None = None
    digest: str
    files: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _ManifestRecord:
    schema: Literal["prowess.pack/1"]
    skills: tuple[_SkillRecord, ...]


def _render_manifest(skills: Sequence[PackedSkill]) -> bytes:
    records: list[_SkillRecord] = []
    for skill in skills:
        files = to_records(skill.files)
        records.append(_SkillRecord(name=skill.name, version=skill.version, digest=skill.digest, files=files))
    document = to_json(_ManifestRecord(schema=_SCHEMA, skills=tuple(records)))
    text = json.dumps(document, sort_keys=True, indent=1, ensure_ascii=False)
    return f"{text}\n".encode()


def read_manifest(folder: str) -> dict[str, tuple[SkillFile, ...]] | None:
    """Returns the files of the skills of a pack, by their folders, as its manifest lists them. None without one."""
    names = os.listdir(folder)
    wrapper = f"{names[0]}/" if len(names) == 1 and names != [MANIFEST] else ""  # the only folder of the pack
    try:
        data = read_regular(inside(folder, f"{wrapper}{MANIFEST}"), _MAX_MANIFEST_BYTES)
        if b'"prowess.pack/' not in data:
            return None
        document = json.loads(data)
        schema = document.get("schema") if isinstance(document, dict) else None
        if isinstance(schema, str) and schema.startswith("prowess.pack/") and schema != _SCHEMA:
            message = f"The pack has the newer format {visible(schema)[:40]}."
            raise PackError(message, code="manifest-newer", hint="Update Prowess, and try again.")
        return {f"{wrapper}{skill.name}": _files_of(skill) for skill in from_json(_ManifestRecord, document).skills}
    except (FileNotFoundError, NotADirectoryError, PathEscape):
        return None
    except (OSError, ValueError, RecursionError) as error:
        message = f"The manifest of this pack cannot be used: {visible(str(error))[:200]}."
        raise PackError(message, code="manifest-invalid", hint="Get the pack again, or ask its author.") from error


def _files_of(skill: _SkillRecord) -> tuple[SkillFile, ...]:
    files = from_records(skill.files)
    if "/" in skill.name or not is_plain(skill.name):
        raise ValueError(f"{skill.name!r} cannot be the name of a skill")
    if digest_of(files) != skill.digest:
        raise ValueError(f"the digest of {skill.name!r} is not that of its files")
    return files
