"""Repositories and packs that were made to harm: nothing outside the target is read, written or trusted."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import prowess
from archive_bytes import tarred, zipped
from loopback import Server
from pack_machines import PackMachine
from pack_samples import SKILL_MD, refused, skill_folder
from prowess.errors import PackError, in_one_line
from prowess.packs.plan import InstallPlan

ESCAPES = "\x1b]0;owned\x07\x1b[2J\u202e"


@pytest.fixture
def here(tmp_path: Path) -> PackMachine:
    return PackMachine(tmp_path / "here")


@pytest.fixture
def source(tmp_path: Path) -> str:
    return str(skill_folder(tmp_path / "src", "pdf", {"a.md": "a"}))


def tree(folder: Path) -> dict[str, bytes | str]:
    """Everything below a folder, with links as their targets."""
    found = [path for path in folder.rglob("*") if path.is_symlink() or path.is_file()]
    return {
        str(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else path.read_bytes() for path in found
    }


# --- a repository brings the state of an installation -----------------------------------------------------------------


def journal_of(*folders: tuple[str, str | None, str], files: object = (), inode: object = None) -> str:
    rows = [dict(zip(("target", "new", "old"), row, strict=True)) for row in folders]
    return json.dumps({"schema": "prowess.journal/1", "folders": rows, "files": files, "inode": inode})


def test_a_journal_that_comes_with_a_repository_is_not_carried_out(here: PackMachine, source: str) -> None:
    skill_folder(here.root, "evil")
    skill_folder(here.root, "mine")
    state = here.root / ".prowess"
    state.mkdir()
    inode = state.stat().st_ino
    outside = here.home / ".agent/skills"
    outside.mkdir(parents=True)
    (state / "backups").symlink_to(outside)
    shutil.copytree(here.root / "evil", state / "new-abc/x")
    for journal in (
        journal_of(("mine", None, "new-abc/gone")),
        journal_of(("mine", "new-abc/x", "new-abc/gone"), inode=1),
        journal_of(("evil", None, "backups/evil/x"), inode=inode),
        journal_of(("evil", None, "backups/evil"), inode=inode),
        journal_of(("mine", None, "new-abc/.."), inode=inode),
        journal_of(("mine", None, "new-abc/../x"), inode=inode),
        json.dumps({"folders": [{"target": "mine", "new": None, "old": None}], "files": [], "inode": inode}),
        json.dumps({"folders": [{"target": 3, "new": 3, "old": 3}], "files": [], "inode": inode}),
        json.dumps({"folders": [], "files": [{"path": 5, "new": 5}], "inode": inode}),
        json.dumps({"folders": [], "files": [{"path": "../skills.lock", "new": 5}], "inode": inode}),
        "[]",
        "[" * 100_000,
    ):
        (state / "journal.json").write_text(journal)
        prowess.discover(here.root)
        assert {*here.on_disk()} == {"evil", "mine"} and not [*outside.iterdir()], journal[:200]
        assert not (state / "journal.json").exists()


def test_odd_files_in_place_of_the_journal(here: PackMachine, source: str) -> None:
    state = here.root / ".prowess"
    state.mkdir(parents=True)
    secret = here.home / "secret"
    secret.write_text("secret")
    for make in (
        lambda path: os.mkfifo(path),
        lambda path: os.symlink(secret, path),
        lambda path: os.symlink(path, path),
        lambda path: os.mkdir(path),
    ):
        make(str(state / "journal.json"))
        prowess.discover(here.root)
        here.install(source, force=True)
        assert here.verify().same and secret.read_text() == "secret"
        here.uninstall("pdf", purge=True)
        for left in state.glob("journal.json*"):
            left.rmdir() if left.is_dir() and not left.is_symlink() else left.unlink()


@pytest.mark.parametrize("name", [".prowess", ".prowess/lock", ".prowess/backups", ".prowess/backups/pdf"])
def test_links_in_place_of_our_folders(here: PackMachine, source: str, tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside"
    (outside / "0001" / "tree").mkdir(parents=True)
    (outside / "0001" / "tree" / "SKILL.md").write_text("mine")
    skill_folder(here.root, "pdf", {"a.md": "local"})
    link = here.root / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(outside)
    before = tree(outside)
    prowess.discover(here.root)
    for call in (lambda: here.install(source, force=True), lambda: here.rollback("pdf")):
        assert refused(call).code in ("target-unsafe", "target-not-writable", "not-installed")
    assert tree(outside) == before
    assert (here.root / "pdf/a.md").read_text() == "local"


def test_links_and_odd_names_among_the_backups(here: PackMachine, source: str, tmp_path: Path) -> None:
    outside = skill_folder(tmp_path / "outside", "pdf")
    here.install(source)
    backups = here.root / ".prowess/backups/pdf"
    backups.mkdir(parents=True)
    for name in ("²", "٣٣٣٣", "1", "00001", "0" * 200, "x"):
        skill_folder(backups / name, "pdf", folder="tree")
    (backups / "0007").symlink_to(tmp_path)
    (backups / "0008").mkdir()
    (backups / "0008/tree").symlink_to(outside)
    before = tree(tmp_path / "outside")
    assert refused(lambda: here.rollback("pdf")).code == "no-backup"
    skill_folder(tmp_path / "src", "pdf", {"a.md": "new"})
    here.update()
    here.rollback("pdf")
    here.uninstall("pdf", purge=True)
    assert tree(tmp_path / "outside") == before and (tmp_path / "src").exists()


def test_backups_that_are_counted_to_the_end(here: PackMachine, source: str, tmp_path: Path) -> None:
    """The number after the last one is a link that came with a repository."""
    here.install(source)
    backups, outside = here.root / ".prowess/backups/pdf", tmp_path / "outside"
    (backups / "999999999").mkdir(parents=True)
    outside.mkdir()
    (backups / "1000000000").symlink_to(outside)
    skill_folder(tmp_path / "src", "pdf", {"a.md": "new"})
    before = here.state()
    for call in (here.update, lambda: here.uninstall("pdf")):
        assert refused(call).code == "target-unsafe"
    assert here.state() == before and not list(outside.iterdir())


def test_a_backup_with_a_note_of_somebody_else(here: PackMachine, source: str) -> None:
    here.install(source)
    for number, note in enumerate(("{", "[" * 100_000, '{"source": "x"}', '{"files": {"../x": 1}}'), 1):
        backup = here.root / f".prowess/backups/pdf/{number:04}"
        skill_folder(backup, "pdf", folder="tree")
        (backup / "locked.json").write_text(note)
        assert here.rollback("pdf", digest=here.backup("pdf")).now is None
        assert here.locked() == {} and here.wants() == {}
        here.install(source, force=True)


@pytest.mark.parametrize("name", ["skills.lock", "skills.toml"])
def test_links_in_place_of_the_two_files(here: PackMachine, source: str, tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside"
    for text in ("", "secret = 1\n"):
        outside.write_text(text)
        here.agent.mkdir(exist_ok=True)
        (here.agent / name).symlink_to(outside)
        if text:
            assert "secret" not in refused(lambda: here.install(source)).message.replace("'secret'", "")
        else:
            here.install(source)
            assert here.verify().same
        assert outside.read_text() == text
        (here.agent / name).unlink()


@pytest.mark.parametrize("name", [".agent", ".agent/skills"])
@pytest.mark.parametrize("inside", [True, False])
def test_a_repository_does_not_choose_where_skills_are_written(
    here: PackMachine, source: str, name: str, inside: bool
) -> None:
    """Its skills folder may be a link to the user's own, whose skills are trusted everywhere."""
    target = (here.project if inside else here.home) / "shelf/skills"
    target.mkdir(parents=True)
    (here.project / name).parent.mkdir(exist_ok=True)
    (here.project / name).symlink_to(target if name.endswith("skills") else target.parent)
    for call in (lambda: here.install(source), here.install, here.update, here.verify, lambda: here.uninstall("pdf")):
        try:
            assert refused(call).code == "target-unsafe"
        except pytest.fail.Exception:
            assert name == ".agent", "a project whose .agent leads elsewhere may be no project"
    assert not [*target.iterdir()]
    here.install(source, to=str(target))
    assert (target / "pdf/SKILL.md").exists() and (target / "skills.lock").exists()
    assert here.verify(to=str(target)).same


def test_a_target_that_is_a_link_which_the_user_named(here: PackMachine, source: str, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    here.install(source, to=str(tmp_path / "link"))
    assert {"pdf", "skills.lock", "skills.toml"} <= {*os.listdir(tmp_path / "real")}
    here.uninstall("pdf", to=str(tmp_path / "link"))
    assert not (tmp_path / "real/pdf").exists()


# --- packs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [".prowess", "..", "con", "a/b", "aux.md", "skills.lock", ESCAPES, "x" * 300])
def test_a_skill_with_a_name_that_is_none(here: PackMachine, tmp_path: Path, name: str) -> None:
    front = SKILL_MD.format(name=json.dumps(name)).encode()
    archives = [zipped({"SKILL.md": front}), zipped({"top/SKILL.md": front}), tarred({f"{name}/SKILL.md": front})]
    for number, data in enumerate(archives):
        path = tmp_path / f"{number}.zip"
        path.write_bytes(data)
        try:
            here.install(str(path))
        except PackError as error:
            assert error.hint and in_one_line(error).isprintable()
    assert {*here.on_disk()} <= {"0", "1", "top", "b"}, "the name of its folder or file is used instead"
    here.check_clean()
    assert not (here.root / ".prowess/SKILL.md").exists()


def test_escapes_stay_out_of_all_texts(here: PackMachine, tmp_path: Path) -> None:
    """What a person is shown before the answer, and what the lock and the wanted file have."""
    said = json.dumps(f"Reads. {ESCAPES}")
    front = f"---\nname: pdf\ndescription: {said}\nversion: {said}\nallowed-tools: {said}\n---\n# Do\n"
    (tmp_path / "src/pdf").mkdir(parents=True)
    (tmp_path / "src/pdf/SKILL.md").write_text(front)

    def check(plan: InstallPlan) -> bool:
        for change in plan.changes:
            texts = [*change.skill.capabilities, *(finding.message for finding in change.skill.findings), *plan.notes]
            assert all("\x1b" not in text and "\u202e" not in text for text in texts)
        return True

    try:
        here.install(str(tmp_path / "src"), confirm=check)
    except PackError as error:
        assert in_one_line(error).isprintable()
    for path in (here.lock, here.wanted):
        assert not path.exists() or "\x1b" not in path.read_text()
    (tmp_path / "src/pdf/SKILL.md").write_text(SKILL_MD.format(name="pdf"))
    (tmp_path / "src/pdf" / f"x{ESCAPES}").write_text("")
    refused(lambda: here.install(str(tmp_path / "src")))
    refused(lambda: here.install(f"./{ESCAPES}"))


def test_modes_and_owner_of_what_is_written(here: PackMachine, tmp_path: Path) -> None:
    folder = skill_folder(tmp_path / "src", "pdf", {"scripts/run.sh": "#!/bin/sh\n", "data.bin": "x"})
    (folder / "scripts/run.sh").chmod(0o6777)
    (folder / "data.bin").chmod(0o600)
    files = {"csv/SKILL.md": SKILL_MD.format(name="csv").encode(), "csv/tool": b"x"}
    (tmp_path / "csv.tar").write_bytes(tarred(files, mode=0o6777))
    if os.geteuid() == 0:
        os.chown(folder / "data.bin", 12345, 12345)
    here.install(str(folder), str(tmp_path / "csv.tar"))
    for path in here.agent.rglob("*"):
        found = path.lstat()
        assert found.st_uid == os.geteuid() and not found.st_mode & 0o6022, path
    assert stat.S_IMODE((here.root / "pdf/data.bin").stat().st_mode) == 0o644
    assert stat.S_IMODE((here.root / "pdf/scripts/run.sh").stat().st_mode) == 0o755
    assert here.verify().same


def test_a_source_that_changes_while_it_is_installed(here: PackMachine, tmp_path: Path) -> None:
    folder = skill_folder(tmp_path / "src", "pdf", {"a.md": "a"})
    secret = tmp_path / "secret"
    secret.write_text("secret")

    def changing(action: Callable[[], object]) -> Callable[[InstallPlan], bool]:
        def change(plan: InstallPlan) -> bool:
            (folder / "a.md").unlink()
            action()
            return True

        return change

    for action in (
        lambda: (folder / "a.md").write_text("b"),
        lambda: (folder / "a.md").symlink_to(secret),
        lambda: os.mkfifo(folder / "a.md"),
        lambda: None,
    ):
        change = changing(action)
        assert refused(lambda: here.install(str(folder), confirm=change)).code in (  # noqa: B023
            "source-changed",
            "target-not-writable",
            "source-missing",
        )
        assert here.state() == ({}, {}, {})
        (folder / "a.md").unlink(missing_ok=True)
        (folder / "a.md").write_text("a")
    here.check_clean()


def test_a_source_in_the_target_and_a_target_in_the_source(here: PackMachine, source: str) -> None:
    skill_folder(here.root, "mine", {"a.md": "mine"})
    here.install(source)
    before = here.on_disk()
    for same in (str(here.root / "mine"), str(here.root), "."):
        with pytest.raises(PackError, match="where they would be installed") as caught:
            here.install(same)
        assert caught.value.code == "pack-no-skill" and here.on_disk() == before
    inner = here.root / "mine" / "inner"
    inner.mkdir()
    try:
        here.install(source, to=str(inner))
    except PackError as error:
        assert error.hint
    shutil.rmtree(inner)
    assert here.on_disk() == before and here.verify().same


@pytest.mark.needs("root")
def test_a_folder_that_all_can_write(tmp_path: Path, here: PackMachine, source: str, folder: Path) -> None:
    """Somebody else made the folder in which we would prepare, and could exchange what is in it."""
    shared = folder / "shared"
    (shared / ".prowess").mkdir(parents=True)
    shared.chmod(0o1777)
    os.chown(shared / ".prowess", 12345, 12345)
    error = refused(lambda: here.install(source, to=str(shared)))
    assert error.code == "target-not-writable" and "another user" in error.message
    assert not (shared / "pdf").exists()
    (shared / ".prowess").rmdir()
    here.install(source, to=str(shared))
    assert stat.S_IMODE((shared / ".prowess").stat().st_mode) == 0o755


UMASK = """
import os, sys
sys.path.insert(0, sys.argv[3])
os.umask(0)
from pathlib import Path
from pack_machines import PackMachine
machine = PackMachine(Path(sys.argv[1]))
modes = []
def look(plan):
    (staging,) = (machine.root / ".prowess").glob("new-*")
    modes.append((machine.root / ".prowess").stat().st_mode & 0o777)
    modes.append(staging.stat().st_mode & 0o777)
    return True
machine.install(sys.argv[2], confirm=look)
assert modes == [0o755, 0o700], modes
"""


def test_prepared_content_is_private(here: PackMachine, source: str) -> None:
    command = [sys.executable, "-c", UMASK, str(here.base), source, str(Path(__file__).parents[1])]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_only_names_that_we_make_are_cleaned_up(here: PackMachine, source: str, tmp_path: Path) -> None:
    """Not what somebody keeps under a name that begins like them, nor what a link leads to."""
    here.install(source)
    outside = skill_folder(tmp_path / "outside", "pdf")
    (here.root / ".prowess/new-00000000").mkdir()
    (here.root / ".prowess/new-11111111").symlink_to(outside)
    (here.root / ".prowess/new-notes").mkdir()
    (here.root / ".prowess/new-notes/mine").write_text("mine")
    for folder in (here.root, here.agent):
        (folder / ".skills.toml.new-notes").write_text("mine")
        (folder / f".skills.toml.new-{'0' * 12}").write_text("half")
        (folder / f"..skills.lock.new-{'0' * 12}.abcd_123").write_text("half")
    prowess.discover(here.root)
    left = {path.name for path in (here.root / ".prowess").iterdir()}
    assert left == {".gitignore", "lock", "new-11111111", "new-notes"}
    assert (here.root / ".prowess/new-notes/mine").exists() and (outside / "SKILL.md").exists()
    for folder in (here.root, here.agent):
        assert [path.name for path in folder.glob(".*skills.*")] == [".skills.toml.new-notes"]


def test_a_deep_tree_among_the_prepared_folders(here: PackMachine, source: str) -> None:
    """Deeper than a function can call itself."""
    here.install(source)
    at = os.open(here.root / ".prowess", os.O_RDONLY)
    for name in ("new-deep0000", *(["d"] * 1500)):
        os.mkdir(name, dir_fd=at)
        below = os.open(name, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    assert len(prowess.discover(here.root)) == 1
    (here.root / ".prowess/backups/pdf/0001").mkdir(parents=True)
    (here.root / ".prowess/new-deep0000").rename(here.root / ".prowess/backups/pdf/0001/tree")
    here.uninstall("pdf", purge=True)
    assert here.locked() == {}
    subprocess.run(["rm", "-rf", here.root], check=True)


def test_text_that_is_not_unicode(here: PackMachine, tmp_path: Path) -> None:
    for number, line in enumerate(('version: "\\ud800"', 'license: "\\ud800"', 'compatibility: "\\udfff x"')):
        folder = skill_folder(tmp_path / f"src{number}", f"s{number}")
        text = SKILL_MD.format(name=f"s{number}").replace("\n---\n", f"\n{line}\n---\n")
        (folder / "SKILL.md").write_text(text)
        try:
            here.install(str(folder))
        except PackError as error:
            assert in_one_line(error).isprintable()
    assert here.verify().same


def test_credentials_are_not_stored(here: PackMachine) -> None:
    pack = zipped({"pdf/SKILL.md": SKILL_MD.format(name="pdf").encode()})
    with Server(lambda exchange: exchange.answer(200, pack)) as server:
        here.install(server.url("/pack.zip?token=s3cret&v=1").replace("://", "://me:s3cret@"))
    assert "authorization" in server.requests[0].headers
    for path in here.base.rglob("*"):
        assert not path.is_file() or b"s3cret" not in path.read_bytes(), path


def test_the_pin_of_an_archive_stays(here: PackMachine) -> None:
    data = zipped({"pdf/SKILL.md": SKILL_MD.format(name="pdf").encode()})
    (here.project / "pack.zip").write_bytes(data)
    pinned = f"./pack.zip#sha256={hashlib.sha256(data).hexdigest()}"
    here.install(pinned)
    assert here.wants() == {"pdf": pinned}
    (here.project / "pack.zip").write_bytes(zipped({"pdf/SKILL.md": SKILL_MD.format(name="pdf").encode() + b"\n"}))
    assert refused(here.update).code == "digest-mismatch"
