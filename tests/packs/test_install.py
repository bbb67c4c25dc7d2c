"""Skills from each source are installed, listed, verified, updated, rolled back, removed, and restored elsewhere."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

import prowess
from archive_bytes import tarred, zipped
from loopback import Exchange, Server
from pack_machines import PackMachine
from pack_samples import SKILL_MD, refused, skill_folder
from prowess import packs
from prowess.errors import ConfigError, PackMismatch, SkillDenied
from prowess.packs.plan import InstallPlan
from prowess.policy.trust import load_trust, revoke
from prowess.runtime.runtime import open_runtime

Publish = Callable[[str], None]  # makes the source have this content
Files = dict[str, bytes]


@pytest.fixture
def here(tmp_path: Path) -> PackMachine:
    return PackMachine(tmp_path / "here")


def skill_files(text: str, prefix: str = "") -> Files:
    return {f"{prefix}SKILL.md": SKILL_MD.format(name="pdf").encode(), f"{prefix}scripts/run.py": text.encode()}


# --- each source ------------------------------------------------------------------------------------------------------


@contextmanager
def folder_source(base: Path) -> Iterator[tuple[str, Publish]]:
    yield str(base / "src"), lambda text: void(skill_folder(base / "src", "pdf", {"scripts/run.py": text}))


def void(_: object) -> None:
    pass


def archive(name: str, pack: Callable[[Files], bytes], prefix: str):
    @contextmanager
    def source(base: Path) -> Iterator[tuple[str, Publish]]:
        yield str(base / name), lambda text: void((base / name).write_bytes(pack(skill_files(text, prefix))))

    return source


def git(base: Path, *arguments: str) -> None:
    own = {"GIT_CONFIG_GLOBAL": os.devnull, "PATH": os.environ["PATH"], "HOME": str(base)}
    own |= {f"GIT_{who}_{what}": "a@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    subprocess.run(["git", *arguments], cwd=base, env=own, check=True, capture_output=True)


@contextmanager
def git_source(base: Path) -> Iterator[tuple[str, Publish]]:
    (base / "tree").mkdir()
    git(base, "init", "-q", "--bare", "-b", "main", "repo.git")
    git(base / "tree", "init", "-q", "-b", "main")

    def publish(text: str) -> None:
        skill_folder(base / "tree" / "skills", "pdf", {"scripts/run.py": text})
        git(base / "tree", "add", "-A")
        git(base / "tree", "commit", "-q", "-m", text)
        git(base / "tree", "push", "-q", "../repo.git", "main")

    yield f"{base}/repo.git@main#skills", publish


@contextmanager
def served(pages: dict[str, bytes]) -> Iterator[Server]:
    def handle(exchange: Exchange) -> None:
        page = pages.get(exchange.request.path)
        exchange.answer(404) if page is None else exchange.answer(200, page)

    with Server(handle) as server:
        yield server


@contextmanager
def url_source(base: Path) -> Iterator[tuple[str, Publish]]:
    pages: dict[str, bytes] = {}
    with served(pages) as server:
        yield server.url("/pack.zip"), lambda text: pages.update({"/pack.zip": zipped(skill_files(text, "pdf/"))})


@contextmanager
def site_source(base: Path) -> Iterator[tuple[str, Publish]]:
    pages: dict[str, bytes] = {}
    where = "/.well-known/agent-skills"

    def publish(text: str) -> None:
        data = zipped(skill_files(text))
        row = {"name": "pdf", "type": "archive", "description": "Fills.", "url": "pdf.zip"}
        row["digest"] = f"sha256:{hashlib.sha256(data).hexdigest()}"
        index = {"$schema": "https://schemas.agentskills.io/discovery/0.2.0/schema.json", "skills": [row]}
        pages.update({f"{where}/index.json": json.dumps(index).encode(), f"{where}/pdf.zip": data})

    with served(pages) as server:
        yield server.url(""), publish


@contextmanager
def package_source(base: Path) -> Iterator[tuple[str, Publish]]:
    site = base / "venv/lib/python3/site-packages"
    info = site / "acme_skills-1.0.dist-info"

    def publish(text: str) -> None:
        skill_folder(site / "acme_skills/skills", "pdf", {"scripts/run.py": text})
        (site / "acme_skills/__init__.py").write_text("raise SystemExit('it was imported')")
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-skills\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[prowess.skills]\nall = acme_skills:skills\n")

    yield "python:acme-skills", publish


SOURCES = {
    "folder": folder_source,
    "zip": archive("pack.zip", zipped, "pack-1.0/pdf/"),
    "skill": archive("pdf.skill", zipped, ""),
    "tgz": archive("pack.tgz", lambda files: gzip.compress(tarred(files)), "pdf/"),
    "tar": archive("pdf.tar", tarred, ""),
    "git": git_source,
    "url": url_source,
    "site": site_source,
    "package": package_source,
}


@pytest.mark.parametrize("kind", SOURCES)
def test_a_skill_of_each_source_lives_its_life(tmp_path: Path, kind: str) -> None:
    venv = {"VIRTUAL_ENV": str(tmp_path / "venv")}
    here, there = PackMachine(tmp_path / "here", venv), PackMachine(tmp_path / "there", venv)
    with SOURCES[kind](tmp_path) as (source, publish):
        publish("print(1)")
        assert here.install(source).applied
        first = here.on_disk()
        assert [entry.name for entry in prowess.discover(here.root)] == ["pdf"]
        assert here.verify().same and here.locked() == first and [*here.wants()] == ["pdf"]
        assert (here.root / "pdf/scripts/run.py").read_text() == "print(1)"

        here.copy_files_to(there)
        assert there.install(frozen=True).applied and there.verify().same
        assert there.on_disk() == first, "the same digests on another machine"

        publish("print(2)")
        (change,) = here.update(dry_run=True).changes
        assert [difference.path for difference in change.files] == ["scripts/run.py"] and here.on_disk() == first
        here.update()
        second = here.on_disk()
        assert second != first and here.verify().same
        assert (here.root / "pdf/scripts/run.py").read_text() == "print(2)"
        for expected in (first, second, first):
            here.rollback("pdf")
            assert here.on_disk() == expected and here.locked() == expected and here.verify().same
        here.uninstall("pdf")
        assert here.state() == ({}, {}, {})
        assert not [*prowess.discover(here.root)]
        here.rollback("pdf")
        assert here.on_disk() == first and here.verify().same
        here.uninstall("pdf", purge=True)
        assert here.state() == ({}, {}, {}) and not (here.root / ".prowess/backups/pdf").exists()
        here.check_clean()


def test_a_source_that_has_changed_is_not_restored(tmp_path: Path, here: PackMachine) -> None:
    for kind in ("folder", "zip", "url", "site"):
        (tmp_path / kind).mkdir()
        here, there = PackMachine(tmp_path / kind / "here"), PackMachine(tmp_path / kind / "there")
        with SOURCES[kind](tmp_path / kind) as (source, publish):
            publish("print(1)")
            here.install(source)
            here.copy_files_to(there)
            publish("print(2)")
            with pytest.raises(PackMismatch):
                there.install()
            assert there.on_disk() == {} and there.locked() == here.locked()
            there.check_clean()


def lock_row(here: PackMachine) -> dict[str, str]:
    return json.loads(here.lock.read_text())["skills"]["pdf"]


def test_the_lock_has_the_folder_within_a_repository(tmp_path: Path, here: PackMachine) -> None:
    with git_source(tmp_path) as (source, publish):
        publish("1")
        whole = source.removesuffix("#skills")
        for text in (whole, source, f"{whole}#skills/pdf"):
            here.install(text)
            assert lock_row(here)["path"] == "skills/pdf"
            assert here.install(frozen=True).changes and here.verify().same


def test_another_source_of_the_same_content_is_recorded(tmp_path: Path, here: PackMachine) -> None:
    one, two = (str(skill_folder(tmp_path / name, "pdf").parent) for name in ("one", "two"))
    here.install(one)
    (change,) = here.install(two, dry_run=True).changes
    assert (change.action, change.before and change.before.source, change.locked.source) == ("record", one, two)
    assert here.wants() == {"pdf": one}
    here.install(two)
    assert here.wants() == {"pdf": two} and lock_row(here)["source"] == two
    here.install(frozen=True)
    here.check_clean()


@pytest.mark.parametrize("folder", ["../two", "../one/"])  # another one, and the same one as a person may spell it
def test_a_source_that_was_edited_by_hand_gets_into_the_lock(here: PackMachine, folder: str) -> None:
    one, _ = (str(skill_folder(here.base / name, "pdf").parent) for name in ("one", "two"))
    here.install(one)
    here.wanted.write_text(f'[skills]\npdf = "{folder}"\n')
    error = refused(lambda: here.install(frozen=True))
    assert error.code == "lock-stale" and error.hint == "Bring the lock up to date: prowess update pdf"
    here.update("pdf")
    assert lock_row(here)["source"] == here.wants()["pdf"] == str(here.base / folder[3:6])
    here.install(frozen=True)


def test_an_edit_that_its_source_took_over_gets_into_the_lock(tmp_path: Path, here: PackMachine) -> None:
    source = str(skill_folder(tmp_path / "src", "pdf", {"a.md": "old"}))
    here.install(source)
    for top in (tmp_path / "src", here.root):
        (top / "pdf/a.md").write_text("new")
    assert not here.verify().same
    (change,) = here.update().changes
    assert change.action == "record" and here.verify().same
    here.install(frozen=True)


def test_a_skill_that_was_removed_by_hand_is_wanted_again(tmp_path: Path, here: PackMachine) -> None:
    source = str(skill_folder(tmp_path / "src", "pdf"))
    here.install(source)
    here.wanted.write_text("[skills]\n")
    here.update()
    assert here.wants() == {}
    assert refused(lambda: here.install(frozen=True)).code == "lock-stale"
    here.install(source)
    assert here.wants() == {"pdf": source}
    here.install(frozen=True)


def test_an_archive_with_another_skill_in_it_is_recorded(tmp_path: Path, here: PackMachine) -> None:
    """The lock pins the whole archive. So a skill that stays the same is locked with the new one."""
    file = tmp_path / "pack.zip"
    file.write_bytes(zipped(skill_files("1", "pdf/")))
    here.install(str(file))
    file.write_bytes(zipped({**skill_files("1", "pdf/"), "README.md": b"new"}))
    shutil.rmtree(here.root / "pdf")
    error = refused(here.install)
    assert error.code == "digest-mismatch" and str(error.hint).endswith("prowess update pdf")
    for _ in range(2):
        here.update("pdf")
    assert lock_row(here)["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    file.write_bytes(zipped({**skill_files("1", "pdf/"), "README.md": b"newer"}))
    assert [change.action for change in here.update().changes] == ["record"]
    shutil.rmtree(here.root / "pdf")
    here.install(frozen=True)
    here.check_clean()


def test_the_target_is_no_source(here: PackMachine) -> None:
    """A project that has skills of its own may be installed into itself."""
    skill_folder(here.root, "notes")
    for source in (here.project, here.root, here.root / "notes"):
        error = refused(lambda source=source: here.install(str(source)))
        assert error.code == "pack-no-skill" and "prowess trust" in str(error.hint)
    skill_folder(here.project / "skills", "pdf")
    for _ in range(2):
        assert [change.name for change in here.install(str(here.project)).changes] == ["pdf"]
    assert lock_row(here)["path"] == "skills/pdf"


def test_a_restore_says_which_skill_has_no_source(tmp_path: Path, here: PackMachine) -> None:
    here.install(str(skill_folder(tmp_path / "src", "pdf")))
    shutil.rmtree(here.root / "pdf")
    shutil.rmtree(tmp_path / "src")
    error = refused(here.install)
    assert error.code == "source-missing" and error.message.startswith("Cannot restore 'pdf'. There is no folder ")
    assert "prowess install SOURCE" in str(error.hint)


def test_a_relative_source_is_relative_to_the_project(here: PackMachine) -> None:
    """Not to the folder in which somebody called: the next one calls elsewhere."""
    sub = here.project / "sub"
    skill_folder(sub / "packs", "pdf")
    here.agent.mkdir()
    packs.install("./packs", cwd=sub, environ=here.environ)
    assert here.wants() == {"pdf": "./sub/packs"}
    shutil.rmtree(here.root / "pdf")
    here.install(frozen=True)
    skill_folder(sub / "packs", "pdf", {"new.md": "new"})
    packs.update("pdf", cwd=sub, environ=here.environ)
    assert (here.root / "pdf/new.md").exists()


def test_a_path_object_is_a_path(here: PackMachine) -> None:
    skill_folder(here.project / "owner/repo", "pdf")
    skill_folder(here.project / "owner/repo", "notes")
    here.install(Path("owner/repo"), skills="pdf")
    assert here.wants() == {"pdf": "./owner/repo"}
    packs.pack(here.root / "pdf", output=here.base / "pdf.skill")
    assert packs.verify_file(here.base / "pdf.skill").same


def test_other_targets(tmp_path: Path, here: PackMachine) -> None:
    skill_folder(here.project / "src", "pdf")
    for to, root in (("user", here.home / ".agent/skills"), ("shelf/skills", here.project / "shelf/skills")):
        assert here.install("./src", to=to).applied
        assert (root / "pdf/SKILL.md").exists() and here.verify(to=to).same
        here.uninstall("pdf", to=to)
        assert not (root / "pdf").exists()
    (here.project / "file").write_text("")
    assert refused(lambda: here.install("./src", to="file")).code == "target-not-folder"
    assert not here.agent.exists()


def test_a_private_parent_of_the_target(tmp_path: Path, here: PackMachine) -> None:
    source = skill_folder(tmp_path / "src", "pdf")
    private = tmp_path / "private"
    (private / "shelf").mkdir(parents=True)
    (private / "..other").touch()
    here.install(str(source), to=str(private / "shelf"))
    assert here.verify(to=str(private / "shelf")).same


# --- names and choices ------------------------------------------------------------------------------------------------


def test_some_skills_of_a_pack_and_another_name(tmp_path: Path, here: PackMachine) -> None:
    source = tmp_path / "src"
    for name in ("pdf", "csv", "xml"):
        skill_folder(source, name)
    here.install(str(source), skills=["pdf", "csv"])
    assert {*here.on_disk()} == {"pdf", "csv"}
    here.install(str(source), skills=["xml"], name="markup")
    assert here.wants()["markup"] == {"source": str(source), "skill": "xml"}
    assert here.verify().same
    assert refused(lambda: here.install(str(source), name="all")).code == "pack-several-skills"
    assert refused(lambda: here.install(str(source), skills=["pdg"])).code == "pack-skill-unknown"
    assert refused(lambda: here.install(skills=["pdf"])).code == "usage"
    assert refused(lambda: here.install(str(source), frozen=True)).code == "usage"


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_one_skill_under_two_names_is_updated_twice(tmp_path: Path, here: PackMachine, kind: str) -> None:
    with SOURCES[kind](tmp_path) as (source, publish):
        publish("print(1)")
        here.install(source)
        here.install(source, name="second")
        publish("print(2)")
        here.update()
        assert here.verify().same and len({*here.on_disk().values()}) == 1
        assert (here.root / "second/scripts/run.py").read_text() == "print(2)"


def test_a_folder_that_is_wanted_by_hand_is_no_name(tmp_path: Path, here: PackMachine) -> None:
    skill_folder(tmp_path / "src", "pdf", folder="the-folder")
    here.agent.mkdir()
    here.wanted.write_text(f'[skills]\nthe-folder = "{tmp_path}/src"\n')
    assert refused(here.install).code == "pack-skill-unknown"
    here.wanted.write_text(f'[skills]\nthe-folder = {{ source = "{tmp_path}/src", skill = "pdf" }}\n')
    here.install()
    assert here.verify().same and [*here.on_disk()] == ["the-folder"]


def test_two_sources_with_one_name(tmp_path: Path, here: PackMachine) -> None:
    one, two = (skill_folder(tmp_path / top, "pdf", {"x.md": top}) for top in ("one", "two"))
    assert refused(lambda: here.install(str(one), str(two))).code == "pack-duplicate-skill"
    here.install(str(one))
    first = here.on_disk()
    here.install(str(two))
    assert here.wants() == {"pdf": str(two)} and here.verify().same
    here.rollback("pdf")
    assert here.on_disk() == first and here.wants() == {"pdf": str(one)}


def test_names_that_differ_in_case(tmp_path: Path, here: PackMachine) -> None:
    lower, upper = skill_folder(tmp_path / "one", "pdf"), skill_folder(tmp_path / "two", "pdf", {"x": "x"})
    assert refused(lambda: here.install(str(lower), str(skill_folder(tmp_path, "PDF")))).code == "pack-duplicate-skill"
    here.install(str(lower))
    assert refused(lambda: here.install(str(upper), name="PDF")).code == "name-unsafe"
    assert [*here.on_disk()] == ["pdf"]


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", ".prowess", "a/b", "a\\b", "con", "nul.txt", "a:b", "a\x1b[31m", "x.", "venv", "Skills.LOCK"],
)
def test_names_that_no_folder_should_have(tmp_path: Path, here: PackMachine, name: str) -> None:
    source = skill_folder(tmp_path / "src", "pdf")
    if name:
        assert refused(lambda: here.install(str(source), name=name)).code == "name-unsafe"
    assert refused(lambda: here.uninstall(name)).code == "name-unsafe"
    assert refused(lambda: here.rollback(name)).code == "name-unsafe"
    assert here.on_disk() == {}


def test_a_skill_named_lock_is_removed(tmp_path: Path, here: PackMachine) -> None:
    """A file of that name is in the folder where removed skills go."""
    for purge in (True, False):
        here.install(str(skill_folder(tmp_path / "src", "lock")))
        here.uninstall("lock", purge=purge)
        assert here.state() == ({}, {}, {})
        assert not (here.root / "lock").exists()


def test_names_that_are_not_installed(tmp_path: Path, here: PackMachine) -> None:
    here.install(str(skill_folder(tmp_path / "src", "pdf")))
    for call in (here.uninstall, here.rollback, here.verify, here.update):
        error = refused(lambda: call("pdg"))  # noqa: B023
        assert error.code == "not-installed" and "Did you mean pdf?" in str(error.hint)
    skill_folder(here.root, "mine")
    assert "not installed by Prowess" in refused(lambda: here.uninstall("mine")).message
    assert here.verify().unknown == ("mine",)
    assert refused(lambda: here.rollback("pdf")).code == "no-backup"


# --- local edits ------------------------------------------------------------------------------------------------------


def test_a_source_that_fails_does_not_stop_the_update_of_others(tmp_path: Path, here: PackMachine) -> None:
    for name in ("csv", "ocr", "pdf"):
        skill_folder(tmp_path / name, name, {"a.md": "1"})
    skill_folder(tmp_path / "ocr", "scan")
    for name in ("csv", "ocr", "pdf"):
        here.install(str(tmp_path / name))
        skill_folder(tmp_path / name, name, {"a.md": "2"})
    shutil.rmtree(tmp_path / "csv")
    shutil.rmtree(tmp_path / "ocr/scan")
    before = here.state()
    for names in (["csv"], ["pdf", "csv"], ["scan"]):
        assert refused(lambda names=names: here.update(*names)).code in ("source-missing", "pack-skill-unknown")
    seen = here.update(dry_run=True)
    assert here.state() == before
    done = here.update()
    assert [(change.name, change.action) for change in done.changes] == [("pdf", "update")]
    codes = {"csv": "source-missing", "ocr": "pack-skill-unknown", "scan": "pack-skill-unknown"}
    assert (
        {name: error.code for name, error in done.failed.items()}
        == codes
        == {n: e.code for n, e in seen.failed.items()}
    )
    assert any(f"{tmp_path}/csv" in note for note in done.notes) and any("'ocr', 'scan'" in note for note in done.notes)
    after = here.state()
    assert {name for name in before[0] if before[0][name] != after[0][name]} == {"pdf"}
    assert here.verify().same


def test_edited_and_denied_skills_do_not_stop_the_update_of_others(tmp_path: Path, here: PackMachine) -> None:
    source = tmp_path / "src"
    names = ("csv", "ocr", "pdf")
    for name in names:
        skill_folder(source, name, {"a.md": "1"})
    here.install(str(source))
    before = here.on_disk()
    skill_folder(source, "ocr", {"a.md": "2"})
    digests = {change.name: change.skill.digest for change in here.update(dry_run=True).changes}
    for name in names:
        skill_folder(source, name, {"a.md": "2"})
    (here.root / "csv/a.md").write_text("mine")
    (here.agent / "policy.toml").write_text(f'denied_digests = ["{digests["ocr"]}"]\n')
    codes = {"csv": "local-edits", "ocr": "digest-denied"}
    for name, code in codes.items():
        assert refused(lambda name=name: here.update("pdf", name)).code == code
    assert here.on_disk()["pdf"] == before["pdf"]
    done = here.update()
    assert {name: error.code for name, error in done.failed.items()} == codes
    assert [(change.name, change.action) for change in done.changes] == [("pdf", "update")]
    assert (here.root / "csv/a.md").read_text() == "mine"
    assert here.on_disk()["ocr"] == before["ocr"] and (here.root / "pdf/a.md").read_text() == "2"
    assert [*here.update(force=True).failed] == ["ocr"]
    assert (here.root / "csv/a.md").read_text() == "2"


def test_the_only_source_that_fails_is_an_error(tmp_path: Path, here: PackMachine) -> None:
    here.install(str(skill_folder(tmp_path / "src", "pdf")))
    shutil.rmtree(tmp_path / "src")
    assert refused(here.update).code == "source-missing"


def test_capabilities_of_skills_that_stay_as_they_are(tmp_path: Path, here: PackMachine) -> None:
    source = str(skill_folder(tmp_path / "src", "pdf", {"scripts/run.py": "print(1)"}))
    here.install(source)
    seen = here.install(frozen=True, dry_run=True)
    for done in (seen, here.install(source), here.install(), here.install(frozen=True), here.update()):
        (change,) = done.changes
        assert change.action == "keep" and change.skill.capabilities == ("scripts: scripts/run.py",)


def test_edits_are_never_overwritten_without_force(tmp_path: Path, here: PackMachine) -> None:
    source = skill_folder(tmp_path / "src", "pdf", {"a.md": "a"})
    here.install(str(source))
    (here.root / "pdf/a.md").write_text("mine")
    skill_folder(tmp_path / "src", "pdf", {"a.md": "b"})
    for call in (here.update, lambda: here.install(str(source)), here.install, lambda: here.install(frozen=True)):
        assert refused(call).code == "local-edits"
        assert (here.root / "pdf/a.md").read_text() == "mine"
    assert not here.verify().same
    here.update(force=True)
    assert (here.root / "pdf/a.md").read_text() == "b" and here.verify().same
    here.rollback("pdf")
    assert (here.root / "pdf/a.md").read_text() == "mine"


def test_an_edit_while_the_person_is_asked(tmp_path: Path, here: PackMachine) -> None:
    source = skill_folder(tmp_path / "src", "pdf", {"a.md": "a"})
    here.install(str(source))
    skill_folder(tmp_path / "src", "pdf", {"a.md": "b"})
    before = here.state()[1:]

    def edit(plan: InstallPlan) -> bool:
        (here.root / "pdf/a.md").write_text("mine")
        return True

    assert refused(lambda: here.update(confirm=edit)).code == "target-changed"
    assert (here.root / "pdf/a.md").read_text() == "mine" and here.state()[1:] == before


def test_nothing_is_changed_when_the_person_says_no(tmp_path: Path, here: PackMachine) -> None:
    source = str(skill_folder(tmp_path / "src", "pdf"))
    assert not here.install(source, confirm=lambda plan: False).applied
    assert not here.install(source, dry_run=True).applied
    assert here.state() == ({}, {}, {})
    here.check_clean()


def test_a_skill_that_was_there_before(tmp_path: Path, here: PackMachine) -> None:
    source = str(skill_folder(tmp_path / "src", "pdf", {"a.md": "theirs"}))
    skill_folder(here.root, "pdf", {"a.md": "mine"})
    assert refused(lambda: here.install(source)).code == "skill-exists"
    here.install(source, force=True)
    assert (here.root / "pdf/a.md").read_text() == "theirs"
    here.rollback("pdf")
    assert (here.root / "pdf/a.md").read_text() == "mine" and here.locked() == {} and here.wants() == {}


def test_a_link_or_a_file_in_the_way(tmp_path: Path, here: PackMachine) -> None:
    """Somebody who works on a skill links it into the project."""
    source = str(skill_folder(tmp_path / "src", "pdf"))
    work = skill_folder(tmp_path / "work", "pdf", {"a.md": "mine"})
    here.root.mkdir(parents=True)
    (here.root / "pdf").symlink_to(work)
    assert refused(lambda: here.install(source)).code == "skill-exists"
    assert (here.root / "pdf").is_symlink()
    here.install(source, force=True)
    assert here.verify().same and (work / "a.md").read_text() == "mine"
    shutil.rmtree(here.root / "pdf")
    (here.root / "pdf").write_text("a file")
    assert refused(here.install).code == "local-edits" and (here.root / "pdf").read_text() == "a file"
    here.install(force=True)
    first, second = sorted((here.root / ".prowess/backups/pdf").glob("*/tree"))
    assert here.verify().same and first.readlink() == work and second.read_text() == "a file"


def test_old_backups_are_removed(tmp_path: Path, here: PackMachine) -> None:
    source = str(tmp_path / "src")
    for number in range(9):
        skill_folder(tmp_path / "src", "pdf", {"a.md": str(number)})
        here.install(source)
    assert len(os.listdir(here.root / ".prowess/backups/pdf")) == 5
    for number in (7, 8):
        here.rollback("pdf")
        assert (here.root / "pdf/a.md").read_text() == str(number)


# --- names that look alike


LOOKS = {
    "paypal": "p\u0430ypal",
    "pay-pal": "pay\u2010pal",
    "pdfl": "pdf\u04cf",
    "cope": "\u0441\u043e\u0440\u0435",
    "api": "\u03b1\u03c1\u03b9",
}


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(("first", "second"), [*LOOKS.items(), *((second, first) for first, second in LOOKS.items())])
def test_a_name_that_looks_like_an_installed_one(
    tmp_path: Path, here: PackMachine, first: str, second: str, force: bool
) -> None:
    """Is refused, whoever said yes to everything. The first skill may have been written here."""
    skill_folder(here.root, first)
    source = str(skill_folder(tmp_path / "src", second, {"a.md": "a"}))
    before = here.state()
    error = refused(lambda: here.install(source, force=force))
    assert error.code == "name-looks-alike" and "U+" in error.message and here.state() == before
    here.install(source, name="other")
    assert here.locked().keys() == {"other"}


def test_two_names_that_look_alike_in_one_pack_and_in_a_lock(tmp_path: Path, here: PackMachine) -> None:
    for name in ("paypal", "p\u0430ypal"):
        skill_folder(tmp_path / "src", name, {"a.md": name})
    error = refused(lambda: here.install(str(tmp_path / "src")))
    assert error.code == "name-looks-alike" and here.state() == ({}, {}, {})
    here.install(str(tmp_path / "src/paypal"))
    here.install(str(tmp_path / "src/p\u0430ypal"), name="other")
    for file, mark in ((here.lock, '"other"'), (here.wanted, "other")):
        file.write_text(file.read_text().replace(mark, '"p\u0430ypal"'))
    assert refused(here.install).code == "name-looks-alike"


def test_a_name_that_looks_like_one_elsewhere_is_told(tmp_path: Path, here: PackMachine) -> None:
    skill_folder(here.home / ".agent/skills", "paypal")
    done = here.install(str(skill_folder(tmp_path / "src", "p\u0430ypal")))
    assert done.notes == ("'p\u0430ypal' looks like user:paypal, and is another name.",)


@pytest.mark.parametrize("hidden", ["\u200b", "\u200d", "\u3164", "\u034f", "\ufe0f"])
def test_a_name_with_invisible_characters(tmp_path: Path, here: PackMachine, hidden: str) -> None:
    """Is not taken for the name without them, which may be installed."""
    here.install(str(skill_folder(tmp_path / "src", "pdf")))
    before = here.state()
    name = f"p{hidden}df"
    declared = skill_folder(tmp_path / "declared", name, folder="x")
    folder = skill_folder(tmp_path / "folder", "NO NAME!", folder=name)
    for source in (declared.parent, folder.parent):
        error = refused(lambda source=source: here.install(str(source), force=True))
        assert error.code == "name-unsafe" and "invisible" in error.message
    assert refused(lambda: here.install(str(tmp_path / "src/pdf"), name=name)).code == "name-unsafe"
    assert here.state() == before
    here.wanted.write_text(f'[skills]\npdf = "../src/pdf"\n"{name}" = "../src/pdf"\n')
    assert refused(here.install).code == "name-unsafe"


# --- denied and accepted contents -------------------------------------------------------------------------------------


def trusted(here: PackMachine) -> dict[str, bool]:
    with open_runtime(cwd=str(here.project), environ=here.environ) as runtime:
        return {entry.name: entry.trusted for entry in runtime.catalog if entry.source == "project"}


def test_denied_digests_hold_at_install_and_at_load(tmp_path: Path, here: PackMachine) -> None:
    source = str(skill_folder(tmp_path / "src", "pdf"))
    here.install(source)
    (digest,) = here.locked().values()
    with open_runtime(cwd=str(here.project), environ=here.environ) as runtime:
        assert runtime.load("pdf").digest == digest
        (here.agent / "policy.toml").write_text(f'denied_digests = ["{digest}"]\n')
        with pytest.raises(SkillDenied) as caught:
            runtime.load("pdf")
    assert caught.value.code == "digest-denied"
    for call in (lambda: here.install(source, force=True), lambda: here.install(source, name="other"), here.update):
        assert refused(call).code == "digest-denied"
    skill_folder(tmp_path / "src", "pdf", {"a.md": "new"})
    here.update()
    assert refused(lambda: here.rollback("pdf")).code == "digest-denied"
    assert here.verify().same and here.locked() != {"pdf": digest}


def test_a_managed_policy_denies_a_digest_everywhere(tmp_path: Path, here: PackMachine) -> None:
    source = str(skill_folder(tmp_path / "src", "pdf"))
    here.install(source, to="user")
    with open_runtime(cwd=str(here.project), environ=here.environ) as runtime:
        digest = runtime.load("pdf").digest
    (tmp_path / "policy.toml").write_text(f'denied_digests = ["{digest}"]\n')
    here.environ["PROWESS_MANAGED_POLICY"] = str(tmp_path / "policy.toml")
    with open_runtime(cwd=str(here.project), environ=here.environ) as runtime, pytest.raises(SkillDenied) as caught:
        runtime.load("pdf")
    assert caught.value.code == "digest-denied"
    assert refused(lambda: here.install(source)).code == "digest-denied"
    assert refused(lambda: here.install(source, dry_run=True)).code == "digest-denied"
    assert here.uninstall("pdf", to="user"), "it can be removed"


def test_the_configuration_that_a_person_names_counts(tmp_path: Path, here: PackMachine) -> None:
    """Instead of the project's, which may be broken."""
    source = str(skill_folder(tmp_path / "src", "pdf"))
    good, broken = tmp_path / "good.toml", here.agent / "config.toml"
    here.agent.mkdir()
    good.write_text("[skills]\nnested = true\n")
    broken.write_text("[skills\n")
    calls: list[Callable[..., object]] = [partial(here.install, source), here.update, here.verify]
    calls += [partial(call, "pdf") for call in (here.uninstall, here.rollback)]
    for call in calls:
        with pytest.raises(ConfigError):
            call(config=broken)
        call(config=good)
    assert here.verify(config=str(good)).same


def test_an_accepted_skill_is_trusted_exactly_while_it_is_the_same(tmp_path: Path, here: PackMachine) -> None:
    here.install(str(skill_folder(tmp_path / "src", "pdf", {"a.md": "a"})))
    skill_folder(here.root, "other")
    assert trusted(here) == {"pdf": True, "other": False}
    with open_runtime(cwd=str(here.project), environ=here.environ) as runtime:
        assert runtime.load("pdf").entry.trusted
        (here.root / "pdf/a.md").write_text("changed after it was listed")
        with pytest.raises(SkillDenied) as caught:
            runtime.load("pdf", trigger="model")
    assert caught.value.code == "skill-untrusted"
    assert trusted(here)["pdf"] is False
    (here.root / "pdf/a.md").write_text("a")
    assert trusted(here)["pdf"] is True
    with open_runtime(cwd=str(here.project), environ=here.environ) as runtime:
        assert runtime.catalog.get("pdf").trusted
        assert revoke(runtime.places.state_dir, str(here.root / "pdf"))
        assert not runtime.catalog.get("pdf").trusted, "a revocation holds at once"
    assert trusted(here)["pdf"] is False


def test_an_uninstalled_skill_is_accepted_no_more(tmp_path: Path, here: PackMachine) -> None:
    source = skill_folder(tmp_path / "src", "pdf", {"a.md": "a"})
    here.install(str(source))
    here.uninstall("pdf")
    shutil.copytree(source, here.root / "pdf")
    assert trusted(here) == {"pdf": False}
    here.install(str(source))
    assert trusted(here) == {"pdf": True}


def test_a_rollback_accepts_only_what_was_accepted_before(tmp_path: Path, here: PackMachine) -> None:
    """A repository may bring backups of its own."""
    skill_folder(tmp_path / "src", "pdf", {"a.md": "1"})
    here.install(str(tmp_path / "src"))
    skill_folder(tmp_path / "src", "pdf", {"a.md": "2"})
    here.update()
    here.rollback("pdf")
    assert trusted(here) == {"pdf": True}
    here.uninstall("pdf")
    here.rollback("pdf")
    assert trusted(here) == {"pdf": True}
    shipped = skill_folder(here.root / ".prowess/backups/pdf/0900", "pdf", {"a.md": "evil"}, folder="tree")
    before = here.state()
    error = refused(lambda: here.rollback("pdf"))
    assert error.code == "backup-unknown" and here.state() == before
    assert error.hint and str(shipped) in error.hint
    digest = here.backup("pdf")
    assert error.hint.endswith(f" --digest {digest}")
    assert refused(lambda: here.rollback("pdf", digest=digest[:-1])).code == "backup-unknown"
    here.rollback("pdf", digest=digest)
    assert (here.root / "pdf/a.md").read_text() == "evil"
    assert trusted(here) == {"pdf": False}


def test_a_backup_that_came_with_a_clone_is_not_restored(tmp_path: Path, here: PackMachine) -> None:
    """Also if the lock and the note that came with it name its content. What this person has had there is restored."""
    author = PackMachine(tmp_path / "author")
    for text in ("evil", "good"):
        skill_folder(tmp_path / "src", "pdf", {"a.md": text})
        author.install(str(tmp_path / "src"))
    author.rollback("pdf")
    shutil.copy(author.lock, tmp_path / "evil.lock")
    author.rollback("pdf")
    shutil.copytree(author.agent, here.agent)
    shutil.copy(tmp_path / "evil.lock", here.lock)
    for cloned in (here.rollback, partial(here.rollback, to=str(here.root))):
        assert refused(lambda cloned=cloned: cloned("pdf")).code == "backup-unknown"
        assert (here.root / "pdf/a.md").read_text() == "good"
    here.uninstall("pdf")
    assert here.rollback("pdf").digest == here.on_disk()["pdf"]
    assert (here.root / "pdf/a.md").read_text() == "good"


def test_a_person_who_has_no_state_names_the_digest(tmp_path: Path, here: PackMachine) -> None:
    skill_folder(tmp_path / "src", "pdf")
    here.install(str(tmp_path / "src"))
    (here.root / "pdf/a.md").write_text("mine")
    here.install(force=True)
    shutil.rmtree(here.home / ".prowess")
    error = refused(lambda: here.rollback("pdf"))
    assert error.code == "backup-unknown"
    here.rollback("pdf", digest=here.backup("pdf"))
    assert (here.root / "pdf/a.md").read_text() == "mine"


def test_a_repository_that_brings_skills_with_a_lock_is_not_accepted_by_a_restore(tmp_path: Path) -> None:
    author = PackMachine(tmp_path / "author")
    author.install(str(skill_folder(tmp_path / "src", "pdf")))
    reader = PackMachine(tmp_path / "reader")
    shutil.copytree(author.agent, reader.agent)
    reader.install()
    reader.install(frozen=True)
    reader.update()
    assert trusted(reader) == {"pdf": False}


def test_recording_a_source_does_not_accept_what_came_with_a_clone(tmp_path: Path, here: PackMachine) -> None:
    one, two = (str(skill_folder(tmp_path / name, "pdf").parent) for name in ("one", "two"))
    here.install(one)
    with open_runtime(cwd=str(here.project), environ=here.environ) as runtime:
        state = runtime.places.state_dir
    assert revoke(state, str(here.root / "pdf"))
    here.wanted.write_text(f'[skills]\npdf = "{two}"\n')
    assert [change.action for change in here.update().changes] == ["record"]
    assert not load_trust(state).accepted_skills
    assert [change.action for change in here.install(one).changes] == ["accept"]  # the person named it
    assert load_trust(state).accepted_skills and lock_row(here)["source"] == one


def test_trust_in_the_folder_that_is_taken_back_while_an_edited_skill_is_open(
    tmp_path: Path, here: PackMachine
) -> None:
    from prowess.policy.trust import grant_folder

    here.install(str(skill_folder(tmp_path / "src", "pdf", {"a.md": "a"})))
    (here.root / "pdf/a.md").write_text("edited")
    state = str(here.home / ".prowess")
    grant_folder(state, str(here.project))
    with open_runtime(cwd=str(here.project), environ=here.environ) as runtime:
        assert runtime.load("pdf").entry.trusted
        revoke(state, str(here.project))
        with pytest.raises(SkillDenied):
            runtime.load("pdf")


def test_what_is_no_part_of_a_skill_is_not_installed(tmp_path: Path, here: PackMachine) -> None:
    files = skill_files("print(1)", "pdf/") | {"pdf/__pycache__/run.pyc": b"x", "pdf/node_modules/x.js": b"x"}
    (tmp_path / "pack.zip").write_bytes(zipped(files))
    assert any("__pycache__" in note for note in here.install(str(tmp_path / "pack.zip")).notes)
    assert {path.name for path in (here.root / "pdf").iterdir()} == {"SKILL.md", "scripts"} and here.verify().same
