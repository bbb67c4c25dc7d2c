"""Trust is only ever what a person gave: it survives races, fails closed on damage, and no folder can forge it."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from guard import GUARD_S
from prowess._internal.digest import content_sha256
from prowess.errors import ConfigError, StoreError
from prowess.policy.trust import (
    grant_folder,
    grant_skills,
    grant_url,
    load_trust,
    revoke,
    still_trusted,
    without_userinfo,
)


@pytest.fixture
def state(tmp_path: Path) -> str:
    return str(tmp_path / "home" / ".prowess")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "proj"
    (folder / ".agent").mkdir(parents=True)
    return folder


def _store(state: str) -> Path:
    return Path(state, "trust.json")


# Folders


def test_nothing_is_trusted_at_first(state: str, project: Path) -> None:
    trust = load_trust(state)
    assert (trust.folders, trust.files, trust.urls, trust.findings) == ((), (), (), ())
    assert not trust.trusts_folder(str(project))
    assert not trust.accepts_file(str(project / ".agent/config.toml"), "0")
    assert not trust.accepts_url("https://h/a.zip", "sha256:0")
    assert not os.path.exists(state), "reading creates nothing"


def test_trust_covers_what_is_below_and_nothing_else(state: str, project: Path, tmp_path: Path) -> None:
    granted = grant_folder(state, str(project))
    (project / "sub").mkdir()
    (tmp_path / "proj-evil").mkdir()
    for trust in (granted, load_trust(state)):
        assert trust.trusts_folder(str(project))
        assert trust.trusts_folder(f"{project}/sub/../sub/.")
        assert trust.trusts_folder(str(project / "not" / "there" / "yet"))
        assert not trust.trusts_folder(str(tmp_path))
        assert not trust.trusts_folder(str(tmp_path / "proj-evil"))
        assert not trust.trusts_folder(f"{project}/../proj-evil")


def test_the_store_is_private_and_has_a_schema(state: str, project: Path) -> None:
    grant_folder(state, str(project))
    store = json.loads(_store(state).read_text(encoding="utf-8"))
    assert store["schema"] == "prowess.trust/1"
    assert [folder["path"] for folder in store["folders"]] == [str(project)]
    assert stat.S_IMODE(_store(state).stat().st_mode) == 0o600
    assert stat.S_IMODE(os.stat(state).st_mode) == 0o700


def test_granting_twice_is_one_record(state: str, project: Path) -> None:
    grant_folder(state, str(project))
    assert len(grant_folder(state, f"{project}/.").folders) == 1


def test_links_are_resolved_both_ways(state: str, project: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(project)
    trust = grant_folder(state, str(link))
    assert trust.folders[0].path == str(project)
    assert trust.trusts_folder(str(project))
    assert trust.trusts_folder(str(link))
    link.unlink()
    (tmp_path / "evil").mkdir()
    link.symlink_to(tmp_path / "evil")
    assert not load_trust(state).trusts_folder(str(link)), "the link leads elsewhere now"
    (project / "out").symlink_to(tmp_path / "evil")
    assert not load_trust(state).trusts_folder(str(project / "out")), "a link out of a trusted folder"


def test_a_trusted_folder_replaced_by_a_link_is_not_trusted(state: str, project: Path, tmp_path: Path) -> None:
    grant_folder(state, str(project))
    (tmp_path / "evil").mkdir()
    project.rename(tmp_path / "moved")
    project.symlink_to(tmp_path / "evil")
    assert not load_trust(state).trusts_folder(str(project))
    assert revoke(state, str(project)), "but it can still be taken back by its name"


@pytest.mark.parametrize("what", ["missing", "file"])
def test_only_a_folder_can_be_trusted(state: str, tmp_path: Path, what: str) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        grant_folder(state, str(tmp_path / what))
    assert (caught.value.code, bool(caught.value.hint)) == ("trust-not-a-folder", True)


def test_names_that_are_not_utf8(state: str, tmp_path: Path) -> None:
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9 \n\x1b[31m")
    os.mkdir(folder)
    grant_folder(state, folder)
    assert load_trust(state).trusts_folder(folder)


# Files by content


def test_config_and_policy_are_trusted_by_content(state: str, project: Path) -> None:
    config, policy = project / ".agent/config.toml", project / ".agent/policy.toml"
    config.write_bytes(b"a = 1\n")
    policy.write_bytes(b"b = 1\n")
    (project / ".agent/other.toml").write_bytes(b"c = 1\n")
    trust = grant_folder(state, str(project))
    assert [record.path for record in trust.files] == [str(config), str(policy)]
    assert trust.accepts_file(str(config), content_sha256(b"a = 1\n"))
    assert trust.accepts_file(f"{project}/sub/../.agent/config.toml", content_sha256(b"a = 1\n"))
    assert not trust.accepts_file(str(config), content_sha256(b"a = 2\n"))
    assert not trust.accepts_file(str(policy), content_sha256(b"a = 1\n")), "another file's content"


def test_granting_again_accepts_what_is_there_now(state: str, project: Path) -> None:
    config = project / ".agent/config.toml"
    config.write_bytes(b"1")
    grant_folder(state, str(project))
    config.write_bytes(b"2")
    trust = grant_folder(state, str(project))
    assert trust.accepts_file(str(config), content_sha256(b"2"))
    assert not trust.accepts_file(str(config), content_sha256(b"1"))
    config.unlink()
    assert grant_folder(state, str(project)).files == ()


def test_a_config_added_after_the_grant_is_not_accepted(state: str, project: Path) -> None:
    trust = grant_folder(state, str(project))
    config = project / ".agent/config.json"
    config.write_bytes(b"{}")
    assert trust.trusts_folder(str(project))
    assert not trust.accepts_file(str(config), content_sha256(b"{}"))


@pytest.mark.parametrize("kind", ["fifo", "folder", "huge", "dangling link"])
def test_a_strange_config_is_not_recorded(state: str, project: Path, kind: str) -> None:
    config = project / ".agent/config.toml"
    if kind == "fifo":
        os.mkfifo(config)
    elif kind == "folder":
        config.mkdir()
    elif kind == "huge":
        with config.open("wb") as file:
            file.truncate(2 << 30)
    else:
        config.symlink_to("nowhere")
    trust = grant_folder(state, str(project))
    assert trust.files == ()
    assert trust.trusts_folder(str(project))


# URLs


def test_a_url_is_trusted_with_its_digest_only(state: str) -> None:
    grant_url(state, "https://me:secret@h.org/a.zip?x=1#f", "sha256:1")
    grant_url(state, "https://h.org/a.zip?x=1#f", "sha256:2")
    trust = grant_url(state, "https://h.org/a.zip?x=1#f", "sha256:2")
    assert [(record.url, record.digest) for record in trust.urls] == [
        ("https://h.org/a.zip?x=1", "sha256:1"),
        ("https://h.org/a.zip?x=1", "sha256:2"),
    ]
    assert "secret" not in _store(state).read_text(encoding="utf-8")
    assert trust.accepts_url("https://you:other@h.org/a.zip?x=1#f", "sha256:1")
    assert trust.accepts_url("https://h.org/a.zip?x=1", "sha256:1"), "with a pin or without, it is the same content"
    assert not trust.accepts_url("https://h.org/a.zip?x=1#f", "sha256:3")
    assert not trust.accepts_url("https://h.org/b.zip", "sha256:1")
    assert not trust.accepts_url("https://h.org/a.zip?x=1#f", "")


@pytest.mark.parametrize(
    ("url", "clean"),
    [
        ("https://u:p@h/a@b", "https://h/a@b"),
        ("https://u@p@h", "https://h"),
        ("https://h?q=a@b", "https://h?q=a@b"),
        ("https://h#a@b", "https://h"),
        ("file:///a@b", "file:///a@b"),
        ("/plain/a@b", "/plain/a@b"),
    ],
)
def test_userinfo_is_removed(url: str, clean: str) -> None:
    assert without_userinfo(url) == clean


@pytest.mark.parametrize(("url", "digest"), [("not a url", "sha256:0"), ("https://h/a.zip", "")])
def test_a_url_needs_a_digest(state: str, url: str, digest: str) -> None:
    with pytest.raises(ConfigError) as caught:
        grant_url(state, url, digest)
    assert caught.value.code == "trust-not-a-url"


# Taking back


def test_revoke(state: str, project: Path, tmp_path: Path) -> None:
    (project / ".agent/config.toml").write_bytes(b"1")
    other = tmp_path / "other"
    other.mkdir()
    grant_folder(state, str(project))
    grant_folder(state, str(other))
    grant_url(state, "https://h/a.zip", "sha256:1")
    grant_url(state, "https://h/a.zip", "sha256:2")
    assert not revoke(state, f"{project}/.agent"), "nothing was given to exactly this folder"
    assert revoke(state, f"{project}/.")
    assert not revoke(state, str(project))
    assert revoke(state, "https://me@h/a.zip")
    trust = load_trust(state)
    assert ([record.path for record in trust.folders], trust.files, trust.urls) == ([str(other)], (), ())


def test_revoke_without_a_store_creates_nothing(state: str) -> None:
    assert not revoke(state, "/anything")
    assert not os.path.exists(state)


# Damage

BROKEN = {
    "empty": b"",
    "cut": b'{"schema": "prowess.trust/1", "folders": [{"pa',
    "not an object": b"[]",
    "no schema": b"{}",
    "newer": b'{"schema": "prowess.trust/2"}',
    "not UTF-8": b'{"schema": "prowess.trust/1", "folders": [{"path": "/\xff", "at": ""}]}',
    "wrong type": b'{"schema": "prowess.trust/1", "folders": {"path": "/"}}',
    "missing field": b'{"schema": "prowess.trust/1", "folders": [{"path": "/"}]}',
    "empty path": b'{"schema": "prowess.trust/1", "folders": [{"path": "", "at": ""}]}',
    "relative path": b'{"schema": "prowess.trust/1", "folders": [{"path": "..", "at": ""}]}',
    "crooked path": b'{"schema": "prowess.trust/1", "folders": [{"path": "/x/..", "at": ""}]}',
    "deep": b'{"schema":' * 100_000,
    "zeros": b"\0" * 1000,
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_store_trusts_nothing_and_is_kept(state: str, project: Path, tmp_path: Path, name: str) -> None:
    grant_folder(state, str(tmp_path))
    _store(state).write_bytes(BROKEN[name])
    trust = load_trust(state)
    assert not trust.trusts_folder(str(project))
    assert [(f.code, f.severity, f.path, bool(f.hint)) for f in trust.findings] == [
        ("trust-store-corrupt", "error", str(_store(state)), True)
    ]
    assert len(trust.findings[0].message) < 600
    with pytest.raises(StoreError) as caught:
        revoke(state, str(tmp_path))
    assert caught.value.code == "trust-store-corrupt"
    assert _store(state).read_bytes() == BROKEN[name], "reading and revoking change nothing"
    granted = grant_folder(state, str(project))
    assert "trust.json.broken-1" in granted.findings[0].message
    assert Path(f"{_store(state)}.broken-1").read_bytes() == BROKEN[name]
    assert load_trust(state).findings == ()
    assert [record.path for record in load_trust(state).folders] == [str(project)]


def test_every_broken_store_is_kept(state: str, project: Path) -> None:
    os.makedirs(state)
    for content in (b"first", b"second"):
        _store(state).write_bytes(content)
        grant_url(state, "https://h/a.zip", "sha256:1")
    assert Path(f"{_store(state)}.broken-1").read_bytes() == b"first"
    assert Path(f"{_store(state)}.broken-2").read_bytes() == b"second"


@pytest.mark.parametrize("kind", ["folder", "fifo"])
def test_a_store_that_is_no_file(state: str, project: Path, kind: str) -> None:
    os.makedirs(state)
    if kind == "folder":
        _store(state).mkdir()
    else:
        os.mkfifo(_store(state))
    assert load_trust(state).findings[0].code == "trust-store-corrupt"
    assert grant_folder(state, str(project)).trusts_folder(str(project))
    assert load_trust(state).trusts_folder(str(project))


def test_a_store_kept_elsewhere_stays_there(state: str, project: Path, tmp_path: Path) -> None:
    os.makedirs(state)
    _store(state).symlink_to(tmp_path / "dotfiles.json")
    grant_folder(state, str(project))
    assert _store(state).is_symlink()
    assert load_trust(state).trusts_folder(str(project))


def test_a_state_folder_that_cannot_be_made(project: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(StoreError) as caught:
        grant_folder(str(tmp_path / "file" / ".prowess"), str(project))
    assert (caught.value.code, bool(caught.value.hint)) == ("trust-store-unwritable", True)
    assert load_trust(str(tmp_path / "file" / ".prowess")).folders == ()


# Two at once


def test_grants_at_the_same_time_are_all_kept(state: str, tmp_path: Path) -> None:
    code = """
import sys
from prowess.policy.trust import grant_folder
for path in sys.argv[2:]:
    grant_folder(sys.argv[1], path)
"""
    folders = [str(tmp_path / f"p{number}") for number in range(40)]
    for folder in folders:
        os.mkdir(folder)
    env = {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    running = [
        subprocess.Popen([sys.executable, "-c", code, state, *folders[start::8]], env=env, stderr=subprocess.PIPE)
        for start in range(8)
    ]
    for process in running:
        _, errors = process.communicate(timeout=GUARD_S)
        assert (process.returncode, errors) == (0, b"")
    trust = load_trust(state)
    assert sorted(record.path for record in trust.folders) == sorted(folders)
    assert sorted(os.listdir(state)) == ["trust.json", "trust.lock"]


# Git worktrees


def _git(folder: Path, *args: str) -> None:
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        **{f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }
    subprocess.run(["git", "-C", str(folder), *args], env=env, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    (folder / ".agent").mkdir(parents=True)
    (folder / ".agent/config.toml").write_bytes(b"store = 'a'\n")
    _git(folder, "init", "-q")
    _git(folder, "add", ".")
    _git(folder, "commit", "-q", "-m", "first")
    return folder


@pytest.fixture
def worktree(repository: Path, tmp_path: Path) -> Path:
    _git(repository, "worktree", "add", "-q", str(tmp_path / "wt"))
    return tmp_path / "wt"


def test_a_worktree_of_a_trusted_repository_is_trusted(state: str, repository: Path, worktree: Path) -> None:
    assert not load_trust(state).trusts_folder(str(worktree))
    trust = grant_folder(state, str(repository))
    assert trust.trusts_folder(str(worktree))
    assert trust.trusts_folder(str(worktree / ".agent"))
    assert not trust.trusts_folder(str(worktree.parent))
    config = str(worktree / ".agent/config.toml")
    assert trust.accepts_file(config, content_sha256(b"store = 'a'\n"))
    assert not trust.accepts_file(config, content_sha256(b"store = 'b'\n"))
    assert revoke(state, str(repository))
    assert not load_trust(state).trusts_folder(str(worktree))


def test_trust_in_a_part_of_the_repository_is_trust_in_that_part(state: str, repository: Path, worktree: Path) -> None:
    trust = grant_folder(state, str(repository / ".agent"))
    assert trust.trusts_folder(str(worktree / ".agent"))
    assert not trust.trusts_folder(str(worktree))


def test_trust_in_a_worktree_is_not_trust_in_its_repository(state: str, repository: Path, worktree: Path) -> None:
    trust = grant_folder(state, str(worktree))
    assert trust.trusts_folder(str(worktree))
    assert not trust.trusts_folder(str(repository))


def test_a_worktree_with_relative_pointers(state: str, repository: Path, worktree: Path) -> None:
    (worktree / ".git").write_text("gitdir: ../repo/.git/worktrees/wt\n", encoding="utf-8")
    (repository / ".git/worktrees/wt/gitdir").write_text("../../../../wt/.git\n", encoding="utf-8")
    assert grant_folder(state, str(repository)).trusts_folder(str(worktree))


def test_a_removed_worktree_is_not_trusted(state: str, repository: Path, worktree: Path) -> None:
    trust = grant_folder(state, str(repository))
    marker = (worktree / ".git").read_bytes()
    _git(repository, "worktree", "remove", str(worktree))
    worktree.mkdir()
    (worktree / ".git").write_bytes(marker)
    assert not trust.trusts_folder(str(worktree))


@pytest.mark.parametrize("how", ["copied", "linked", "hard link", "own record", "repository itself", "junk", "fifo"])
def test_a_forged_git_file_gains_nothing(
    state: str, repository: Path, worktree: Path, tmp_path: Path, how: str
) -> None:
    evil = tmp_path / "evil"
    evil.mkdir()
    marker = evil / ".git"
    if how == "copied":
        marker.write_bytes((worktree / ".git").read_bytes())
    elif how == "linked":
        marker.symlink_to(worktree / ".git")
    elif how == "hard link":
        marker.hardlink_to(worktree / ".git")
    elif how == "own record":
        record = evil / ".git-data/.git/worktrees/x"
        record.mkdir(parents=True)
        (record / "gitdir").write_text(f"{marker}\n", encoding="utf-8")
        (record / "commondir").write_text(f"{repository}/.git\n", encoding="utf-8")
        marker.write_text(f"gitdir: {record}\n", encoding="utf-8")
    elif how == "repository itself":
        marker.write_text(f"gitdir: {repository}/.git\n", encoding="utf-8")
    elif how == "junk":
        marker.write_bytes(b"gitdir: \0\xff\n" * 5000)
    else:
        os.mkfifo(marker)
    trust = grant_folder(state, str(repository))
    assert trust.trusts_folder(str(worktree)), "the real one still is"
    assert not trust.trusts_folder(str(evil))
    assert not trust.accepts_file(str(evil / ".agent/config.toml"), content_sha256(b"store = 'a'\n"))


@pytest.mark.needs("root")
def test_a_worktree_folder_of_somebody_else_is_not_trusted(state: str, repository: Path, worktree: Path) -> None:
    trust = grant_folder(state, str(repository))
    assert trust.trusts_folder(str(worktree))
    os.chown(worktree, 12345, 12345)
    assert not trust.trusts_folder(str(worktree))


# Installed skills


def test_skills_are_accepted_by_their_digest(state: str, project: Path) -> None:
    path = str(project / "pdf")
    grant_skills(state, {path: "sha256:1"})
    grant_skills(state, {path: "sha256:2", str(project / "csv"): "sha256:3"})
    trust = load_trust(state)
    assert trust.accepted_skills == {path: "sha256:2", str(project / "csv"): "sha256:3"}
    assert trust.accepted_once(path, "sha256:1") and not trust.accepted_once(path, "sha256:3")
    grant_skills(state, {path: "sha256:1"})
    assert load_trust(state).accepted_skills[path] == "sha256:1", "the newest counts"
    grant_skills(state, {path: ""})
    assert load_trust(state).accepted_skills[path] == "" and load_trust(state).accepted_once(path, "sha256:2")
    assert revoke(state, path) and not load_trust(state).accepted_once(path, "sha256:1")
    assert [*load_trust(state).accepted_skills] == [str(project / "csv")]


def test_a_folder_is_revoked_with_the_skills_in_it(state: str, project: Path) -> None:
    inside, beside = str(project / ".agent/skills/pdf"), f"{project}-other/pdf"
    grant_skills(state, {inside: "sha256:1", beside: "sha256:2"})
    grant_folder(state, str(project))
    assert revoke(state, str(project))
    assert load_trust(state).accepted_skills == {beside: "sha256:2"} and not load_trust(state).folders
    assert not revoke(state, str(project))


def test_only_some_digests_of_a_skill_are_remembered(state: str, project: Path) -> None:
    for number in range(20):
        grant_skills(state, {str(project / "pdf"): f"sha256:{number}"})
    assert [skill.digest for skill in load_trust(state).skills] == [f"sha256:{number}" for number in range(13, 20)]


def test_nothing_is_written_for_a_skill_that_nobody_accepted(state: str, project: Path) -> None:
    grant_skills(state, {str(project / "pdf"): ""})
    assert not _store(state).exists()


def test_what_was_accepted_at_the_start_is_lost_with_another_digest(state: str, project: Path) -> None:
    path = str(project / "pdf")
    grant_skills(state, {path: "sha256:1"})
    before = grant_skills(state, {path: "sha256:2"})
    assert still_trusted(before, load_trust(state)) is before
    grant_skills(state, {str(project / "csv"): "sha256:3"})
    assert still_trusted(before, load_trust(state)) is before, "more is no loss"
    for digest in ("sha256:3", "", "sha256:1"):
        grant_skills(state, {path: digest})
        assert still_trusted(before, load_trust(state)).accepted_skills.get(path) != "sha256:2"


def test_a_skill_with_a_relative_path_is_damage(state: str) -> None:
    Path(state).mkdir(parents=True)
    rows = [{"path": "pdf", "digest": "sha256:1", "at": "now"}]
    _store(state).write_text(json.dumps({"schema": "prowess.trust/1", "skills": rows}))
    assert load_trust(state).findings and load_trust(state).accepted_skills == {}
