"""Files of a skill's folder: their hashes, how two lists of them differ, and their JSON in a manifest or a lock."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from prowess._internal.digest import FileDigest, tree_digest
from prowess._internal.portable_names import is_plain
from prowess.core.findings import make_finding
from prowess.skills.load import SkillTree, list_files
from prowess.skills.skill import SkillFile

_SHA256 = re.compile(r"[0-9a-f]{64}")
_MODES = {"644": False, "755": True}


def hash_files(folder: str) -> tuple[list[SkillFile], list[str]]:
    """Returns the files of a skill's folder, and a text for each thing that is no file of it: a link to the outside, a
    FIFO, a file that cannot be read. Memory is bounded by a chunk of a file."""
    files, notes, *_ = _list_files(folder)
    findings = [make_finding(note, folder) for note in notes]
    return files, [finding.message for finding in findings]


def find_files(folder: str) -> list[SkillFile] | None:
    """Returns the files of an installed skill; None when there is no folder. A link to the outside and a special file
    are among them, without a hash: then the skill is not as it was installed."""
    if not os.path.isdir(folder) or os.path.islink(folder):
        return None
    files, notes, unsafe, _ = _list_files(folder)
    if notes:
        files += [SkillFile(path, 0, False, "") for path in unsafe]
    return files


def _list_files(folder: str) -> SkillTree:
    tree = list_files(folder)
    if not tree.notes:
        return tree
    # A link that stays in the folder seems to leave it if there is a link on the way to the folder.
    return list_files(os.path.realpath(folder))


def digest_of(files: Iterable[SkillFile]) -> str:
    """Returns the digest of a skill with these files."""
    digests = [FileDigest(file.path, file.executable, file.sha256) for file in files]
    return tree_digest(digests)


ChangeKind = Literal["added", "changed", "removed", "mode"]


class FileDifference(NamedTuple):
    kind: ChangeKind
    path: str


def file_differences(expected: Iterable[SkillFile], found: Iterable[SkillFile]) -> list[FileDifference]:
    """Returns how the found files differ from the expected ones, sorted by path."""
    old = {file.path: file for file in expected}
    new = {file.path: file for file in found}
    differences: list[FileDifference] = []
    for path in sorted(old.keys() | new.keys()):
        kind = _kind_of(old.get(path), new.get(path))
        if kind is not None:
            differences.append(FileDifference(kind, path))
    return differences


def _kind_of(before: SkillFile | None, now: SkillFile | None) -> ChangeKind | None:
    if before is None:
        return "added"
    if now is None:
        return "removed"
    if before.sha256 != now.sha256 or before.size_bytes != now.size_bytes:
        return "changed"
    if before.executable != now.executable:
        return "mode"
    return None


def to_records(files: Iterable[SkillFile]) -> dict[str, dict[str, Any]]:
    """Returns the JSON of a list of files, as a manifest and a lock have it."""
    records: dict[str, dict[str, Any]] = {}
    for file in files:
        mode = "755" if file.executable else "644"
        records[file.path] = {"sha256": file.sha256, "size": file.size_bytes, "mode": mode}
    return records


def from_records(records: Any) -> tuple[SkillFile, ...]:
    """Returns the files of `to_records`, sorted by path. ValueError says what is wrong."""
    files: list[SkillFile] = []
    try:
        for path in sorted(records):
            record = records[path]
            sha256 = record["sha256"]
            size = record["size"]
            is_executable = _MODES[record["mode"]]
            if not is_plain(path) or not _SHA256.fullmatch(sha256) or type(size) is not int:
                raise ValueError(f"the file {path!r} has no usable path, sha256 or size")
            files.append(SkillFile(path, size, is_executable, sha256))
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"the list of files has another form: {error!r}") from error
    return tuple(files)
