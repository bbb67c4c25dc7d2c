"""What is approved for good is exactly what a person said, for exactly the content that they saw: it survives races,
fails closed on damage, and is over when it is taken back."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from guard import GUARD_S
from prowess.errors import StoreError
from prowess.policy.approvals import (
    Standing,
    UserApprovals,
    changes,
    files_of,
    grant,
    load_approvals,
    make_standing,
    matching,
    revoke,
)
from prowess.skills.discover import discover
from prowess.skills.load import load
from prowess.skills.skill import Skill

AT = "2026-01-02T03:04:05Z"
ONE = Standing("project:demo", "sha256:1", "skill_run", AT, "ada", (("SKILL.md", "aa"), ("scripts/a.sh", "bb+x")))


@pytest.fixture
def state(tmp_path: Path) -> str:
    return str(tmp_path / "home" / ".prowess")


def _store(state: str) -> Path:
    return Path(state, "approvals.json")


def skill(body: str, **files: str) -> Skill:
    text = f"---\nname: demo\ndescription: Does one thing. Use when asked.\n---\n{body}\n"
    return Skill.from_text(text, files={name.replace("_", "."): content for name, content in files.items()})


# --- what holds for what


def test_nothing_is_approved_at_first(state: str) -> None:
    assert load_approvals(state) == ((), ())
    assert not os.path.exists(state)


def test_an_approval_holds_for_one_capability_of_one_content_of_one_skill(state: str) -> None:
    approvals = grant(state, ONE)
    assert approvals == load_approvals(state) and approvals.find("project:demo", "sha256:1", "skill_run") == ONE
    for other in (
        ("project:demo", "sha256:2", "skill_run"),
        ("project:demo", "sha256:1", "install_dependencies"),
        ("user:demo", "sha256:1", "skill_run"),
        ("project:demo", "", "skill_run"),
        ("", "sha256:1", "skill_run"),
    ):
        assert approvals.find(*other) is None, other


def test_the_same_is_kept_once_and_other_contents_stay(state: str) -> None:
    grant(state, ONE)
    grant(state, ONE._replace(digest="sha256:2", at="2026-02-02T00:00:00Z"))
    approvals = grant(state, ONE._replace(by="bob"))
    assert [(row.digest, row.by) for row in approvals.rows] == [("sha256:2", "ada"), ("sha256:1", "bob")]
    assert approvals.find_earlier("project:demo", "sha256:3", "skill_run") == approvals.rows[1], "the last one said"
    assert approvals.find_earlier("project:demo", "sha256:1", "skill_run") == approvals.rows[0]
    assert approvals.find_earlier("project:demo", "sha256:3", "install_dependencies") is None


def test_an_approval_has_an_owner_and_one_of_before_is_that_of_the_command_line(state: str) -> None:
    demo = skill("one")
    UserApprovals(state, "ann", "acme", "ann").remember(demo, "skill_run")
    owners = [("acme", "ann"), ("acme", "default"), ("default", "ann"), ("default", "default")]
    approved = [owner for owner in owners if UserApprovals(state, "", *owner).find(demo, "skill_run")]
    assert approved == owners[:1]
    UserApprovals(state, "me").remember(demo, "skill_run")
    assert len(load_approvals(state).rows) == 2
    document = json.loads(_store(state).read_text(encoding="utf-8"))
    for row in document["approvals"]:
        del row["tenant"], row["user"]
    _store(state).write_text(json.dumps(document), encoding="utf-8")
    approved = [owner for owner in owners if UserApprovals(state, "", *owner).find(demo, "skill_run")]
    assert approved == owners[3:]


@pytest.mark.parametrize("missing", ["skill", "digest", "capability"])
def test_what_is_bound_to_nothing_is_not_kept(state: str, missing: str) -> None:
    with pytest.raises(StoreError) as caught:
        grant(state, ONE._replace(**{missing: ""}))
    assert (caught.value.code, bool(caught.value.hint)) == ("approval-not-bound", True)
    assert not _store(state).exists()


def test_only_the_user_can_read_it(state: str) -> None:
    grant(state, ONE)
    assert stat.S_IMODE(_store(state).stat().st_mode) == 0o600
    assert json.loads(_store(state).read_text(encoding="utf-8"))["schema"] == "prowess.approvals/1"


def test_any_file_name_can_be_kept(state: str) -> None:
    odd = (("a\udcff\n\x1b", "1"), ("漢字 b", "2"))
    assert grant(state, ONE._replace(files=odd)) == load_approvals(state)


# --- taking back


def test_revoke_by_number_skill_and_capability(state: str) -> None:
    assert revoke(state, 1) == [] and not os.path.exists(state)
    rows = [
        ONE,
        ONE._replace(digest="sha256:2"),
        ONE._replace(capability="install_dependencies"),
        ONE._replace(skill="user:demo"),
        ONE._replace(skill="user:other"),
    ]
    for row in rows:
        grant(state, row)
    approvals = load_approvals(state)
    assert matching(approvals, 0) == matching(approvals, -1) == matching(approvals, 6) == matching(approvals, "d") == []
    assert revoke(state, 2, "install_dependencies") == [] and revoke(state, 2) == [rows[1]]
    assert revoke(state, "project:demo", "install_dependencies") == [rows[2]]
    assert revoke(state, "demo") == [rows[0], rows[3]]
    assert load_approvals(state).rows == (rows[4],)
    assert revoke(state, [rows[0], rows[4]]) == [rows[4]] and load_approvals(state).rows == ()


def test_a_change_is_seen_at_once_and_an_unchanged_file_is_not_read_again(state: str) -> None:
    file = UserApprovals(state)
    assert file.current().rows == ()
    grant(state, ONE)
    first = file.current()
    assert first.rows == (ONE,) and file.current() is first
    revoke(state, 1)
    assert file.current().rows == ()
    os.unlink(_store(state))
    assert file.current() == ((), ())


# --- what has changed


def test_what_changed_since() -> None:
    now = [("SKILL.md", "aa"), ("scripts/a.sh", "bb"), ("new", "1")]
    assert changes(ONE, now) == {"since": AT, "added": ["new"], "removed": [], "changed": ["scripts/a.sh"]}
    assert changes(ONE, []) == {"since": AT, "added": [], "removed": ["SKILL.md", "scripts/a.sh"], "changed": []}


def test_a_skill_that_changes_is_asked_about_again_and_says_what_is_different(state: str) -> None:
    approvals = UserApprovals(state, "ada")
    old, new = skill("one", a_sh="1", b_sh="1"), skill("one", a_sh="2", c_sh="1")
    assert approvals.find(old, "skill_run") is None and approvals.changed(old, "skill_run") == {}
    approvals.remember(old, "skill_run")
    answer = approvals.find(old, "skill_run")
    assert answer is not None and (answer.answer, answer.capability) == ("always", "skill_run")
    assert answer.by is not None and answer.by.startswith("standing approval by ada, 2")
    assert approvals.find(old, "skill_exec") is None and approvals.changed(old, "skill_run") == {}
    assert approvals.find(new, "skill_run") is None
    different = approvals.changed(new, "skill_run")
    del different["since"]
    assert different == {"added": ["c.sh"], "removed": ["b.sh"], "changed": ["a.sh"]}
    assert approvals.changed(new, "skill_exec") == {}
    revoke(state, 1)
    assert approvals.find(old, "skill_run") is None and approvals.changed(new, "skill_run") == {}


def test_what_is_approved_already_is_not_said_again(state: str) -> None:
    demo = skill("one")
    grant(state, make_standing(demo, "skill_run", "ada")._replace(at=AT))
    UserApprovals(state, "bob").remember(demo, "skill_run")
    assert [(row.by, row.at) for row in load_approvals(state).rows] == [("ada", AT)]


def test_whether_a_list_may_grant_is_bound_to_a_content_as_well(state: str) -> None:
    approvals, demo = UserApprovals(state, "ada"), skill("one")
    approvals.remember(demo, "skill_run")
    assert not approvals.grants(demo)
    approvals.remember(demo, "allowed-tools")
    assert approvals.grants(demo) and not approvals.grants(skill("two"))


def test_an_executable_bit_is_a_part_of_the_content(tmp_path: Path, make_skill: Any) -> None:
    folder = make_skill(tmp_path / "skills" / "demo", files={"a.sh": "echo"})
    before = load(discover(tmp_path / "skills"), "demo")
    os.chmod(folder / "a.sh", 0o755)
    after = load(discover(tmp_path / "skills"), "demo")
    assert before.digest != after.digest
    assert changes(make_standing(before, "skill_run", "ada"), files_of(after))["changed"] == ["a.sh"]


# --- damage

GOOD = '{"skill": "a:b", "digest": "sha256:1", "capability": "skill_run", "at": "", "by": "", "files": {}}'
BROKEN = {
    "empty": b"",
    "cut": b'{"schema": "prowess.approvals/1", "approvals": [{"sk',
    "not an object": b"[]",
    "no schema": b"{}",
    "no list": b'{"schema": "prowess.approvals/1"}',
    "newer": b'{"schema": "prowess.approvals/2", "approvals": []}',
    "not UTF-8": b'{"schema": "prowess.approvals/1", "approvals": ["\xff"]}',
    "missing field": b'{"schema": "prowess.approvals/1", "approvals": [{"skill": "a:b"}]}',
    "no digest": f'{{"schema": "prowess.approvals/1", "approvals": [{GOOD.replace("sha256:1", "")}]}}'.encode(),
    "one of two": f'{{"schema": "prowess.approvals/1", "approvals": [{GOOD}, 1]}}'.encode(),
    "files": f'{{"schema": "prowess.approvals/1", "approvals": [{GOOD.replace("{}", "[]")}]}}'.encode(),
    "deep": b'{"schema":' * 100_000,
    "zeros": b"\0" * 1000,
}


def test_the_pattern_of_the_broken_ones_is_good(state: str) -> None:
    os.makedirs(state)
    _store(state).write_text(f'{{"schema": "prowess.approvals/1", "approvals": [{GOOD}]}}', encoding="utf-8")
    assert len(load_approvals(state).rows) == 1


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_approves_nothing_and_is_kept(state: str, name: str) -> None:
    os.makedirs(state)
    _store(state).write_bytes(BROKEN[name])
    approvals = load_approvals(state)
    assert approvals.rows == ()
    assert [(f.code, f.severity, f.path, bool(f.hint)) for f in approvals.findings] == [
        ("approvals-corrupt", "error", str(_store(state)), True)
    ]
    assert len(approvals.findings[0].message) < 600 and approvals.findings[0].message.isprintable()
    assert UserApprovals(state, "ada").findings == approvals.findings
    with pytest.raises(StoreError) as caught:
        revoke(state, 1)
    assert caught.value.code == "approvals-corrupt"
    assert _store(state).read_bytes() == BROKEN[name], "reading and revoking change nothing"
    granted = grant(state, ONE)
    assert "approvals.json.broken-1" in granted.findings[0].message
    assert Path(f"{_store(state)}.broken-1").read_bytes() == BROKEN[name]
    assert load_approvals(state) == ((ONE,), ())


@pytest.mark.parametrize("kind", ["folder", "fifo"])
def test_a_file_that_is_none(state: str, kind: str) -> None:
    os.makedirs(state)
    _store(state).mkdir() if kind == "folder" else os.mkfifo(_store(state))
    assert load_approvals(state).findings[0].code == "approvals-corrupt"
    grant(state, ONE)
    assert load_approvals(state).rows == (ONE,)


def test_a_file_kept_elsewhere_stays_there(state: str, tmp_path: Path) -> None:
    os.makedirs(state)
    _store(state).symlink_to(tmp_path / "dotfiles.json")
    file = UserApprovals(state)
    assert file.current().rows == ()
    grant(state, ONE)
    assert _store(state).is_symlink() and file.current().rows == (ONE,)
    revoke(state, 1)
    assert file.current().rows == ()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(StoreError) as caught:
        grant(str(tmp_path / "file" / ".prowess"), ONE)
    assert (caught.value.code, bool(caught.value.hint)) == ("approvals-unwritable", True)
    assert load_approvals(str(tmp_path / "file" / ".prowess")).rows == ()


def test_what_could_not_be_read_again_is_not_written(state: str) -> None:
    grant(state, ONE)
    with pytest.raises(StoreError) as caught:
        grant(state, ONE._replace(digest="sha256:2", files=(("x" * (17 << 20), ""),)))
    assert caught.value.code == "approvals-unwritable"
    assert load_approvals(state).rows == (ONE,)


# --- two at once


def test_grants_at_the_same_time_are_all_kept(state: str) -> None:
    code = """
import sys
from prowess.policy.approvals import Standing, grant
for digest in sys.argv[2:]:
    grant(sys.argv[1], Standing("a:b", digest, "skill_run", "", "ada"))
"""
    digests = [f"sha256:{number}" for number in range(32)]
    env = {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    running = [
        subprocess.Popen([sys.executable, "-c", code, state, *digests[start::4]], env=env, stderr=subprocess.PIPE)
        for start in range(4)
    ]
    for process in running:
        _, errors = process.communicate(timeout=GUARD_S)
        assert (process.returncode, errors) == (0, b"")
    assert sorted(row.digest for row in load_approvals(state).rows) == sorted(digests)
    assert sorted(os.listdir(state)) == ["approvals.json", "approvals.lock"]
