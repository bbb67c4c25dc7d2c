"""Compares skills on disk with the lock, and packs with their manifest. Each file is hashed once."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from prowess._internal.archive import extract
from prowess._internal.files import open_regular
from prowess._internal.portable_names import shown_name
from prowess.errors import PackError
from prowess.packs.bundle import MANIFEST, read_manifest
from prowess.packs.values import LockedSkill
from prowess.skills.file_list import FileDifference, digest_of, file_differences, hash_files
from prowess.skills.scanner import scan
from prowess.skills.skill import Root, SkillFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Skill compared with the lock or with a manifest. `digest` is None when its folder is gone."""

    digest: str | None
    expected_digest: str | None  # None: nothing is known about the skill
    differences: tuple[FileDifference, ...] = ()
    notes: tuple[str, ...] = ()  # links to the outside, special files, files that cannot be read

    @property
    def same(self) -> bool:
        return self.expected_digest in (None, self.digest) and not self.notes


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedPack:
    """Archive or folder of skills, hashed and compared with its manifest, if it has one."""

    path: str
    sha256: str | None  # of the archive
    has_manifest: bool
    skills: Mapping[str, Comparison]  # by folder within the pack
    others: tuple[str, ...]  # members of an archive that belong to no skill

    @property
    def same(self) -> bool:
        is_extended = self.has_manifest and self.others
        return not is_extended and all(skill.same for skill in self.skills.values())


def compare(folder: str, locked: LockedSkill) -> Comparison:
    """Compares a skill's folder with its entry in the lock."""
    return _compare(folder, locked.digest, locked.files)


def _compare(folder: str, expected_digest: str | None, expected: Iterable[SkillFile]) -> Comparison:
    is_there = os.path.isdir(folder)
    files, notes = hash_files(folder) if is_there else ([], [])
    if os.path.islink(folder):
        notes = [*notes, "Its folder is a link."]
    digest = digest_of(files) if is_there else None
    differences = file_differences(expected, files) if expected_digest not in (None, digest) else []
    return Comparison(
        digest=digest, expected_digest=expected_digest, differences=tuple(differences), notes=tuple(notes)
    )


def verify_file(path: str | os.PathLike[str]) -> VerifiedPack:
    """Hashes the skills of an archive or of a folder, and compares them with the pack's manifest."""
    given = os.path.abspath(os.fspath(path))
    if os.path.isdir(given):
        return _verified(given, given, None, [])
    try:
        with os.fdopen(open_regular(given, follow=True), "rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        message = f"Cannot read {shown_name(given)}: {error.strerror or 'it is no file'}."
        raise PackError(message, code="pack-unreadable", hint="Name an archive or a folder of skills.") from error
    with tempfile.TemporaryDirectory(prefix="prowess-verify-", ignore_cleanup_errors=True) as work:
        folder = os.path.join(work, "pack")
        return _verified(given, folder, sha256, extract(given, folder))


def _verified(given: str, folder: str, sha256: str | None, members: Iterable[str]) -> VerifiedPack:
    found = {entry.rel: entry.real_path for entry in scan(Root("explicit", folder)).entries}
    if not found:
        hint = "A pack has a folder with a SKILL.md for each skill."
        raise PackError(f"{shown_name(given)} has no SKILL.md.", code="pack-no-skill", hint=hint)
    manifest = read_manifest(folder)
    listed = manifest or {}
    skills: dict[str, Comparison] = {}
    for path in sorted(found.keys() | listed.keys()):
        files = listed.get(path, ())
        real_path = found.get(path, os.path.join(folder, path))
        skills[path] = _compare(real_path, digest_of(files) if manifest is not None else None, files)
    owned = tuple(f"{path}/" for path in skills)
    others = tuple(name for name in members if not name.startswith(owned) and os.path.basename(name) != MANIFEST)
    return VerifiedPack(path=given, sha256=sha256, has_manifest=manifest is not None, skills=skills, others=others)
