from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from pack_samples import packed, refused, skill_folder
from prowess._internal.archive import extract
from prowess.packs.bundle import write_pack
from prowess.packs.compare import compare, verify_file
from prowess.packs.values import LockedSkill
from prowess.skills.file_list import FileDifference

MIB = 1024 * 1024
FILES = {"scripts/run.py": "print(1)\n", "references/a.md": "# A\n", "big": os.urandom(700_000)}


@pytest.fixture
def library(tmp_path: Path) -> Path:
    for name in ("pdf", "csv"):
        skill_folder(tmp_path / "library", name, FILES)
    return tmp_path / "library"


def locked(folder: Path) -> LockedSkill:
    (skill,) = [skill for skill in packed(folder.parent) if skill.name == folder.name]
    return LockedSkill(
        source="x",
        kind="folder",
        skill=skill.name,
        path=skill.path,
        digest=skill.digest,
        files=skill.files,
        installed_at="2026-11-17T00:00:00Z",
    )


def digests(folder: Path) -> dict[str, str]:
    return {skill.path: skill.digest for skill in packed(folder)}


# --- disk and lock ----------------------------------------------------------------------------------------------------


def test_nothing_changed(library: Path):
    lock = locked(library / "pdf")
    (library / "pdf" / "scripts" / "__pycache__").mkdir()  # as running a script leaves it
    (library / "pdf" / "scripts" / "__pycache__" / "run.pyc").write_text("")
    found = compare(str(library / "pdf"), lock)
    assert found.same
    assert (found.digest, found.differences) == (lock.digest, ())


def test_each_change_is_named(library: Path):
    lock, folder = locked(library / "pdf"), library / "pdf"
    (folder / "SKILL.md").write_text("changed")
    (folder / "references" / "a.md").unlink()
    (folder / "references" / "b.md").write_text("")
    (folder / "scripts" / "run.py").chmod(0o644)
    found = compare(str(folder), lock)
    assert not found.same
    assert found.digest not in (None, lock.digest)
    assert found.differences == (
        FileDifference("changed", "SKILL.md"),
        FileDifference("removed", "references/a.md"),
        FileDifference("added", "references/b.md"),
        FileDifference("mode", "scripts/run.py"),
    )


def test_a_change_behind_the_first_chunk_is_seen(library: Path):
    lock = locked(library / "pdf")
    with open(library / "pdf" / "big", "r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))
    assert compare(str(library / "pdf"), lock).differences == (FileDifference("changed", "big"),)


def test_a_skill_that_is_gone(library: Path):
    lock = locked(library / "pdf")
    shutil.rmtree(library / "pdf")
    found = compare(str(library / "pdf"), lock)
    assert (found.same, found.digest) == (False, None)
    assert found.differences == tuple(FileDifference("removed", file.path) for file in lock.files)


def test_links_and_special_files_are_differences(library: Path):
    lock, folder = locked(library / "pdf"), library / "pdf"
    (folder / "link").symlink_to("/etc/passwd")
    os.mkfifo(folder / "fifo")
    found = compare(str(folder), lock)
    assert not found.same
    assert found.notes == (
        "'fifo' is a FIFO; it is not part of the skill.",
        "link leads outside the skill's folder; it is not read.",
    )
    (folder / "SKILL.md").unlink()
    (folder / "SKILL.md").symlink_to("/etc/passwd")
    assert compare(str(folder), lock).differences == (FileDifference("removed", "SKILL.md"),)


def test_a_link_to_a_file_of_the_skill_has_the_digest_of_a_load(library: Path):
    (library / "pdf" / "b.md").symlink_to("references/a.md")
    assert compare(str(library / "pdf"), locked(library / "pdf")).same


def test_large_files_are_hashed_in_chunks(library: Path):
    with open(library / "pdf" / "large", "wb") as file:
        file.truncate(30 * MIB)
    lock = locked(library / "pdf")
    tracemalloc.start()
    try:
        assert compare(str(library / "pdf"), lock).same
        assert tracemalloc.get_traced_memory()[1] < 2 * MIB
    finally:
        tracemalloc.stop()


# --- archives and folders ---------------------------------------------------------------------------------------------


def test_a_pack(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    write_pack(packed(library), tmp_path / "a.zip")
    found = verify_file(tmp_path / "a.zip")
    assert found.same
    assert found.has_manifest
    assert found.sha256 == hashlib.sha256((tmp_path / "a.zip").read_bytes()).hexdigest()
    assert {path: skill.digest for path, skill in found.skills.items()} == digests(library)
    assert os.listdir(tmp_path / "temporary") == []


@pytest.mark.parametrize("wrapper", ["", "wrapper/"])
def test_a_pack_that_was_changed(library: Path, tmp_path: Path, wrapper: str):
    write_pack(packed(library), tmp_path / "a.zip")
    with zipfile.ZipFile(tmp_path / "a.zip") as old, zipfile.ZipFile(tmp_path / "b.zip", "w") as new:
        for info in old.infolist():
            data = old.read(info)
            info.filename = wrapper + info.filename
            if info.filename.endswith("csv/SKILL.md"):
                data += b"more"
            if not info.filename.endswith("csv/big"):
                new.writestr(info, data)
        for name in ("csv/scripts/__pycache__/run.pyc", "csv/new", "other/deep/x", "readme"):
            new.writestr(wrapper + name, b"")
    found = verify_file(tmp_path / "b.zip")
    assert not found.same
    assert found.skills[f"{wrapper}pdf"].same
    assert found.skills[f"{wrapper}csv"].differences == (
        FileDifference("changed", "SKILL.md"),
        FileDifference("removed", "big"),
        FileDifference("added", "new"),
    )
    assert found.others == (f"{wrapper}other/deep/x", f"{wrapper}readme")


def test_a_skill_without_its_skill_md_and_a_skill_of_nobody(library: Path, tmp_path: Path):
    write_pack(packed(library), tmp_path / "a.zip")
    extract(tmp_path / "a.zip", tmp_path / "into")
    (tmp_path / "into" / "csv" / "SKILL.md").unlink()
    skill_folder(tmp_path / "into", "third")
    found = verify_file(tmp_path / "into")
    assert {path: skill.differences for path, skill in found.skills.items() if not skill.same} == {
        "csv": (FileDifference("removed", "SKILL.md"),),
        "third": (FileDifference("added", "SKILL.md"),),
    }


def test_an_archive_without_a_manifest(library: Path, tmp_path: Path):
    shutil.make_archive(str(tmp_path / "plain"), "gztar", library)
    found = verify_file(tmp_path / "plain.tar.gz")
    assert (found.same, found.has_manifest) == (True, False)
    assert {path: skill.digest for path, skill in found.skills.items()} == digests(library)


def test_folders(library: Path, tmp_path: Path):
    found = verify_file(library)
    assert (found.sha256, found.has_manifest, [*found.skills]) == (None, False, ["csv", "pdf"])
    write_pack(packed(library), tmp_path / "a.zip")
    extract(tmp_path / "a.zip", tmp_path / "into")
    assert verify_file(tmp_path / "into").has_manifest
    (tmp_path / "into" / "pdf" / "SKILL.md").write_text("changed")
    found = verify_file(tmp_path / "into")
    assert (found.same, found.skills["csv"].same) == (False, True)
    assert found.skills["pdf"].differences == (FileDifference("changed", "SKILL.md"),)
    os.mkfifo(library / "pdf" / "fifo")
    assert not verify_file(library).same


def test_what_cannot_be_verified(tmp_path: Path):
    assert refused(lambda: verify_file(tmp_path / "missing.zip")).code == "pack-unreadable"
    (tmp_path / "cut.zip").write_bytes(b"PK\x03\x04")
    error = refused(lambda: verify_file(tmp_path / "cut.zip"))
    assert error.code == "archive-corrupt" and "cut.zip" in error.message  # one of many may have been named
    assert refused(lambda: verify_file(tmp_path)).code == "pack-no-skill"
    (tmp_path / "a.zip").write_text("no archive")
    assert refused(lambda: verify_file(tmp_path / "a.zip")).code == "archive-unknown"
    os.mkfifo(tmp_path / "fifo")
    assert refused(lambda: verify_file(tmp_path / "fifo")).code == "pack-unreadable"
