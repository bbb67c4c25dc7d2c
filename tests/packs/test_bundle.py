from __future__ import annotations

import json
import os
import resource
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import prowess
from pack_samples import obtained, packed, refused, skill_folder
from prowess._internal.archive import extract
from prowess.errors import ConfigError, PackError, PackUnsafe, in_one_line
from prowess.packs.bundle import read_manifest, write_pack
from prowess.packs.contents import find_skills
from prowess.skills.skill import SkillFile

FILES = {
    "scripts/run.py": "print(1)\n",
    "references/é.md": "# Accents\n",
    "assets/logo.png": b"\0\xff" * 500,
    "empty": "",
}
# Of the two skills below, with every Python and every zlib. If it changes, packs of the same content change.
SHA256 = "cbfc86a102d21c65997fec3306b9970c67ea670828cab4046aaa25e1eddca358"


@pytest.fixture
def library(tmp_path: Path) -> Path:
    skill_folder(tmp_path / "library", "pdf-forms", FILES)
    skill_folder(tmp_path / "library", "csv-report", {"scripts/b.sh": "#!/bin/sh\n", "a/Z.md": "z", "a/b.md": "b"})
    return tmp_path / "library"


# --- the same bytes ---------------------------------------------------------------------------------------------------


def test_the_bytes_are_known(library: Path, tmp_path: Path):
    written = write_pack(packed(library), tmp_path / "out" / "a.zip")
    assert written.sha256 == SHA256
    assert written.size_bytes == os.path.getsize(written.path)
    assert stat.S_IMODE(os.stat(written.path).st_mode) == 0o644
    assert os.listdir(tmp_path / "out") == ["a.zip"]


def test_times_modes_order_and_place_do_not_count(library: Path, tmp_path: Path):
    other = shutil.copytree(library, tmp_path / "elsewhere" / "deep")
    for number, path in enumerate(sorted(other.rglob("*"))):
        if path.is_file():
            path.chmod(0o700 if os.access(path, os.X_OK) and path.stat().st_mode & 0o100 else 0o600)
        os.utime(path, (number * 10**6, number * 10**6))
    there = packed(other)
    one = write_pack(packed(library), tmp_path / "one.zip")
    two = write_pack(there[::-1], tmp_path / "two.zip")
    assert Path(one.path).read_bytes() == Path(two.path).read_bytes()


def test_other_pythons_write_the_same_bytes(library: Path, tmp_path: Path, not_run: Callable[[str, str], None]):
    pythons = _other_pythons()
    if not pythons:
        not_run("packs of other Pythons", "no other Python from 3.11 on")
    code = (
        "import sys\n"
        "from prowess.packs.bundle import write_pack\n"
        "from prowess.packs.contents import find_skills\n"
        "from prowess.packs.values import Obtained, PackSource\n"
        "source = PackSource(kind='folder', text='x', location=sys.argv[1])\n"
        "skills = find_skills(Obtained(source=source, folder=sys.argv[1], is_ours=False))\n"
        "print(write_pack(skills, sys.argv[2]).sha256)"
    )
    ours = Path(prowess.__file__).parent.parent
    alone = tmp_path / "site"  # yaml without its C part, which belongs to one Python
    shutil.copytree(Path(yaml.__file__).parent, alone / "yaml", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for number, python in enumerate(pythons):
        environ = {
            "PYTHONPATH": f"{ours}{os.pathsep}{alone}",
            "PATH": os.environ["PATH"],
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        command = [python, "-c", code, str(library), str(tmp_path / f"{number}.zip")]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        assert (done.stdout.strip(), done.returncode) == (SHA256, 0), done.stderr[-2000:]


def _other_pythons() -> list[str]:
    """Pythons of other minor versions that really start, each version once."""
    found: dict[str, str] = {}
    folders = [*os.environ["PATH"].split(os.pathsep), *map(str, Path(sys.base_prefix).parent.glob("3.*/bin"))]
    for minor in (11, 12, 13, 14):
        for folder in folders if minor != sys.version_info.minor else ():
            python = os.path.join(folder, f"python3.{minor}")
            if f"{minor}" not in found and os.access(python, os.X_OK):
                done = subprocess.run([python, "-V"], capture_output=True, text=True, check=False)
                if done.stdout.startswith(f"Python 3.{minor}."):
                    found[f"{minor}"] = python
    return list(found.values())


NAMES = st.text("abcXYZ-é. _", min_size=1, max_size=8)


@given(st.dictionaries(NAMES, st.tuples(st.binary(max_size=50), st.booleans()), max_size=5))
def test_what_is_packed_is_what_is_unpacked(files: dict[str, tuple[bytes, bool]]):
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        home = skill_folder(top / "library", "pdf-forms")
        for name, (content, executable) in files.items():
            if not (home / name).exists() and name not in (".", ".."):
                (home / name).write_bytes(content)
                (home / name).chmod(0o755 if executable else 0o644)
        try:
            skills = packed(top / "library")
        except PackUnsafe:
            return  # names that are not portable
        write_pack(skills, top / "a.zip")
        extract(top / "a.zip", top / "into")
        again = find_skills(obtained(top / "into"))
        assert [(skill.name, skill.digest, skill.files) for skill in again] == [
            (skill.name, skill.digest, skill.files) for skill in skills
        ]


def test_the_zip_has_nothing_of_this_machine(library: Path, tmp_path: Path):
    written = write_pack(packed(library), tmp_path / "a.zip")
    with zipfile.ZipFile(written.path) as bundle:
        infos = bundle.infolist()
        assert [info.filename for info in infos] == sorted(info.filename for info in infos)
        assert {(info.date_time, info.create_system, info.extra, info.compress_type) for info in infos} == {
            ((1980, 1, 1, 0, 0, 0), 3, b"", zipfile.ZIP_STORED)
        }
        modes = {info.filename: oct(info.external_attr >> 16) for info in infos}
    assert modes["pdf-forms/scripts/run.py"] == "0o100755"
    assert modes["pdf-forms/SKILL.md"] == "0o100644"


# --- the manifest -----------------------------------------------------------------------------------------------------


@pytest.fixture
def unpacked(library: Path, tmp_path: Path) -> Path:
    write_pack(packed(library), tmp_path / "a.zip")
    extract(tmp_path / "a.zip", tmp_path / "unpacked")
    return tmp_path / "unpacked"


def test_the_manifest_says_what_is_there(unpacked: Path, library: Path):
    document = json.loads((unpacked / "manifest.json").read_bytes())
    assert document["schema"] == "prowess.pack/1"
    assert [skill["name"] for skill in document["skills"]] == ["csv-report", "pdf-forms"]
    run = document["skills"][1]["files"]["scripts/run.py"]
    assert (run["mode"], run["size"], len(run["sha256"])) == ("755", 9, 64)
    manifest = read_manifest(str(unpacked))
    assert manifest is not None
    assert manifest == {skill.name: skill.files for skill in packed(library)}


@pytest.mark.parametrize("text", [None, "", "{}", '{"manifest_version": 3}', "[1]", "no json", '{"schema": "x/1"}'])
def test_a_manifest_of_something_else_is_none_of_ours(tmp_path: Path, text: str | None):
    if text is not None:
        (tmp_path / "manifest.json").write_bytes(text.encode())
    assert read_manifest(str(tmp_path)) is None


_FIELDS = ["name", "version", "digest", "files", "sha256", "mode", "size", "SKILL.md"]
GOOD = {"name": "a", "version": None, "digest": "", "files": {}}
FILE = {"sha256": "0" * 64, "mode": "644", "size": 1}


@pytest.mark.parametrize(
    "skills",
    [
        None,
        {},
        [1],
        [{"name": "a"}],
        [GOOD],  # the digest is not that of no file
        [GOOD | {"files": {"SKILL.md": FILE}}],
        [GOOD | {"files": {"SKILL.md": FILE | {"sha256": "x"}}}],
        [GOOD | {"files": {"SKILL.md": FILE | {"mode": "777"}}}],
        [GOOD | {"files": {"SKILL.md": FILE | {"size": "1"}}}],
        [GOOD | {"files": {"../../etc/passwd": FILE}}],
        [GOOD | {"name": "../a", "files": {"SKILL.md": FILE}}],
        [GOOD | {"name": "a\u001b[2J", "files": {"SKILL.md": FILE}}],
    ],
)
def test_a_manifest_that_cannot_be_used(tmp_path: Path, skills: object):
    (tmp_path / "manifest.json").write_text(json.dumps({"schema": "prowess.pack/1", "skills": skills}))
    assert refused(lambda: read_manifest(str(tmp_path))).code == "manifest-invalid"


@pytest.mark.parametrize(
    "text",
    ['{"schema": "prowess.pack/1"', '{"schema": "prowess.pack/1", "skills": ' + "[" * 50_000, '"prowess.pack/1"'],
)
def test_a_manifest_that_is_damaged(tmp_path: Path, text: str):
    (tmp_path / "manifest.json").write_bytes(text.encode())
    assert refused(lambda: read_manifest(str(tmp_path))).code == "manifest-invalid"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["644", "0" * 64]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_FIELDS) | st.text(max_size=3), inner),
    max_leaves=20,
)


@given(skills=JSON, schema=st.just("prowess.pack/1") | JSON)
def test_whatever_a_manifest_says_it_is_refused_or_read(skills: object, schema: object):
    with tempfile.TemporaryDirectory() as folder:
        text = json.dumps({"schema": schema, "skills": skills, "made-by": "prowess.pack/1"})
        Path(folder, "manifest.json").write_bytes(text.encode())
        try:
            manifest = read_manifest(folder)
        except PackError as error:
            assert error.code == "manifest-invalid"
            assert in_one_line(error).isprintable()
        else:
            assert manifest is not None


def test_a_manifest_of_a_newer_version(tmp_path: Path):
    (tmp_path / "manifest.json").write_text('{"schema": "prowess.pack/2", "skills": "another shape"}')
    assert refused(lambda: read_manifest(str(tmp_path))).code == "manifest-newer"


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.tar.gz", "a.tgz", "a", "a.zip.txt"])
def test_only_zip_and_skill_are_written(library: Path, tmp_path: Path, name: str):
    assert refused(lambda: write_pack(packed(library), tmp_path / name)).code == "pack-target-name"


def test_a_skill_file_has_one_skill(library: Path, tmp_path: Path):
    skills = packed(library)
    error = refused(lambda: write_pack(skills, tmp_path / "a.skill"))
    assert error.code == "pack-target-name" and f"a pack of {len(skills)} skills." in error.message
    assert "a pack of one skill." in refused(lambda: write_pack(skills[:1], tmp_path / "a.tar")).message
    assert write_pack(skills[:1], tmp_path / "a.skill").skills[0].name == "csv-report"
    assert refused(lambda: write_pack([], tmp_path / "b.zip")).code == "pack-no-skill"


def test_an_existing_file_is_replaced_only_by_force(library: Path, tmp_path: Path):
    skills, target = packed(library), tmp_path / "a.zip"
    target.write_text("mine")
    assert refused(lambda: write_pack(skills, target)).code == "pack-exists"
    assert target.read_text() == "mine"
    write_pack(skills, target, force=True)
    assert zipfile.is_zipfile(target)


def test_a_pack_inside_its_skill(library: Path):
    assert refused(lambda: write_pack(packed(library), library / "pdf-forms" / "a.zip")).code == "pack-target-inside"


@pytest.mark.parametrize("name", ["nul.md", "a/aux", "skill.MD", "dot.", "a?b", "a\\b", "a\nb"])
def test_names_that_are_not_portable(library: Path, tmp_path: Path, name: str):
    skill = packed(library)[1]
    (library / "pdf-forms" / name).parent.mkdir(exist_ok=True)
    (library / "pdf-forms" / name).write_text("")
    extra = SkillFile(name, 0, False, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
    unsafe = replace(skill, files=(*skill.files, extra))
    assert str(refused(lambda: write_pack([unsafe], tmp_path / "a.zip")).code).startswith("pack-unsafe-")
    assert os.listdir(tmp_path) == ["library"]


def test_two_skills_of_one_name_are_not_packed(library: Path, tmp_path: Path):
    one, two = packed(library)
    names = {
        one.name: "pack-unsafe-duplicate",
        one.name.upper(): "pack-unsafe-case",
        "manifest.json": "pack-unsafe-duplicate",
    }
    for name, code in names.items():
        skills = [one, replace(two, name=name)]
        assert refused(lambda skills=skills: write_pack(skills, tmp_path / "a.zip")).code == code


def test_a_file_that_changes_while_it_is_packed(library: Path, tmp_path: Path):
    skills = packed(library)
    (library / "pdf-forms" / "SKILL.md").write_text("other")
    assert refused(lambda: write_pack(skills, tmp_path / "a.zip")).code == "pack-changed"
    (library / "pdf-forms" / "SKILL.md").unlink()
    assert refused(lambda: write_pack(skills, tmp_path / "a.zip")).code == "pack-changed"
    assert os.listdir(tmp_path) == ["library"]


def test_a_pack_that_nobody_could_unpack(library: Path, tmp_path: Path):
    skill = packed(library)[0]
    huge = replace(skill, files=(*skill.files, SkillFile("huge", 65 * 1024 * 1024, False, "0" * 64)))
    assert refused(lambda: write_pack([huge], tmp_path / "a.zip")).code == "pack-too-large"
    many = replace(skill, files=tuple(SkillFile(f"{n}", 1, False, "0" * 64) for n in range(10_000)))
    assert refused(lambda: write_pack([many], tmp_path / "a.zip")).code == "pack-too-large"


def test_a_disk_that_is_full_leaves_nothing(library: Path, tmp_path: Path):
    skills, before = packed(library), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))  # as on a full disk, for root too
    try:
        error = refused(lambda: write_pack(skills, tmp_path / "a.zip"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert error.code == "pack-write"
    assert os.listdir(tmp_path) == ["library"]


def test_a_target_that_cannot_be_written(library: Path, tmp_path: Path):
    (tmp_path / "file").write_text("")
    assert refused(lambda: write_pack(packed(library), tmp_path / "file" / "a.zip")).code == "pack-write"
    (tmp_path / "folder.zip").mkdir()
    with pytest.raises(ConfigError, match="is a folder"):
        write_pack(packed(library), tmp_path / "folder.zip", force=True)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder.zip", "library"]


def test_what_no_skill_owns_is_left_out_and_told(library: Path, tmp_path: Path):
    for path in (".git/config", "scripts/__pycache__/a.pyc", "node_modules/x/y.js", ".venv/bin/python", "a/.DS_Store"):
        (library / "pdf-forms" / path).parent.mkdir(parents=True, exist_ok=True)
        (library / "pdf-forms" / path).write_text("")
    written = write_pack(packed(library), tmp_path / "a.zip")
    assert sorted(written.left_out) == [
        "pdf-forms/.git/",
        "pdf-forms/.venv/",
        "pdf-forms/a/.DS_Store",
        "pdf-forms/node_modules/",
        "pdf-forms/scripts/__pycache__/",
    ]
    assert written.sha256 == SHA256
