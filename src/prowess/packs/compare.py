"""Compares skills on disk with the lock, and packs with their manifest. Each file is hashed once."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from prowess._internal.archive import extract
from prowess._internal.files import hash_regular
from prowess._internal.portable_names import shown_name
from prowess.errors import PackError
from prowess.packs.bundle import MANIFEST, read_manifest
from prowess.packs.values import LockedSkill, StrPath
from prowess.runtime.services.compare_folder import Comparison, compare_folder
from prowess.skills.file_list import digest_of
from prowess.skills.scanner import scan
from prowess.skills.skill import Root


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
    return compare_folder(folder, locked.digest, locked.files)


def verify_file(path: StrPath) -> VerifiedPack:
    """Hashes the skills of an archive or of a folder, and compares them with the pack's manifest."""
    given = os.path.abspath(os.fspath(path))
    if os.path.isdir(given):
        return _verified(given, given, None, [])
    try:
        sha256 = hash_regular(given)
    except OSError as error:
        message = f"Cannot read {shown_name(given)}: {error.strerror or 'it is no file'}."
        raise PackError(message, code="pack-unreadable", hint="Name an archive or a folder of skills.") from error
    with tempfile.TemporaryDirectory(prefix="prowess-verify-", ignore_cleanup_errors=True) as work:
        folder = os.path.join(work, "pack")
        try:
            members = extract(given, folder)
        except PackError as error:
            error.message = f"{shown_name(given)}: {error.message}"
            raise
        return _verified(given, folder, sha256, members)


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
        skills[path] = compare_folder(real_path, digest_of(files) if manifest is not None else None, files)
    owned = tuple(f"{path}/" for path in skills)
    others = tuple(name for name in members if not name.startswith(owned) and os.path.basename(name) != MANIFEST)
    return VerifiedPack(path=given, sha256=sha256, has_manifest=manifest is not None, skills=skills, others=others)
