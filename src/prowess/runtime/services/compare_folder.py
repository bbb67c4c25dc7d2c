"""Compares a skill's folder with the files that it should have. Each file is hashed once."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from prowess.skills.file_list import FileDifference, digest_of, file_differences, hash_files
from prowess.skills.skill import SkillFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Folder of a skill compared with a list of files. `digest` is None when the folder is gone."""

    digest: str | None
    expected_digest: str | None  # None: nothing is known about the skill
    differences: tuple[FileDifference, ...] = ()
    notes: tuple[str, ...] = ()  # links to the outside, special files, files that cannot be read

    @property
    def same(self) -> bool:
        return self.expected_digest in (None, self.digest) and not self.notes


def compare_folder(folder: str, expected_digest: str | None, expected: Iterable[SkillFile]) -> Comparison:
    """Hashes the files of a folder, and compares them with the expected ones. Without a digest nothing is expected."""
    files: list[SkillFile] = []
    notes: list[str] = []
    digest = None
    if os.path.isdir(folder):
        files, notes = hash_files(folder)
        digest = digest_of(files)
    if os.path.islink(folder):
        notes = [*notes, "Its folder is a link."]
    differences: list[FileDifference] = []
    if expected_digest not in (None, digest):
        differences = file_differences(expected, files)
    return Comparison(
        digest=digest, expected_digest=expected_digest, differences=tuple(differences), notes=tuple(notes)
    )
