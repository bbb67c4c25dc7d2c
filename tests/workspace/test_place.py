"""A session's place is made whole, by whoever comes first, is never removed while in use, and can always be removed."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from prowess.core.codec import to_json
from prowess.core.values import SessionKey
from prowess.errors import WorkspaceError
from prowess.workspace.cleanup import clean as clean_all
from prowess.workspace.session_folder import (
    OpenPlace,
    PlaceInfo,
    hold_session,
    is_held,
    list_places,
    read_meta,
    remove_place,
    write_meta,
)
from prowess.workspace.session_names import place_path
from prowess.workspace.skill_trees import remove_tree

OTHER = 64321


def key(session: str = "s", **more: str) -> SessionKey:
    return SessionKey(session=session, **more)


def mode(path: str | Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def test_a_place_has_its_folders_and_says_whose_it_is(tmp_path: Path) -> None:
    with OpenPlace(str(tmp_path / "d"), key("my-session")) as place:
        assert sorted(os.listdir(place.root)) == ["out", "runs", "skills", "work"]
        assert os.listdir(os.path.join(place.root, "work")) == ["inputs"]
        assert os.path.basename(place.path).startswith("my-session-")
        meta = read_meta(place.path)
        assert meta["schema"] == "prowess.workspace/1" and meta["key"]["session"] == "my-session"
        assert mode(os.path.join(place.path, "meta.json")) == 0o600
        created = meta["created_at"]
    with OpenPlace(str(tmp_path / "d"), key("my-session")) as place:
        again = read_meta(place.path)
        assert again["created_at"] == created and again["used_at"] > meta["used_at"]


def test_others_can_pass_through_and_see_nothing(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        with OpenPlace(str(tmp_path / "a" / "b"), key()) as place:
            run, tmp, venv = place.make_run("r"), place.make_tmp("r"), place.make_venv("pdf", "sha256:" + "ab" * 32)
            for folder in (tmp_path / "a", tmp_path / "a" / "b", os.path.dirname(place.path)):
                assert mode(folder) == 0o711
            assert mode(place.path) == 0o700
            for name in ("", "skills", "runs"):
                assert mode(os.path.join(place.root, name)) == 0o755
            for own in (run, tmp, venv, os.path.join(place.root, "work"), os.path.join(place.root, "out")):
                assert mode(own) == 0o700
            assert os.path.basename(venv) == "pdf-abababababababab"
            assert place.make_venv("pdf", "sha256:" + "ab" * 32) == venv
            with pytest.raises(FileExistsError):
                place.make_run("r")
    finally:
        os.umask(before)


def test_a_folder_that_was_there_keeps_its_mode(tmp_path: Path) -> None:
    """It may be /tmp, and we may be root."""
    given = tmp_path / "given"
    given.mkdir()
    given.chmod(0o1777)
    with OpenPlace(str(given), key()):
        assert mode(given) == 0o1777
    assert mode(tmp_path) == 0o700


def test_what_scripts_write_is_the_scripts(tmp_path: Path) -> None:
    uid = OTHER if os.geteuid() == 0 else None
    owner = OTHER if uid is not None else os.geteuid()
    with OpenPlace(str(tmp_path), key(), uid=uid) as place:
        run, tmp, venv = place.make_run("r"), place.make_tmp("r"), place.make_venv("pdf", "sha256:00")
        theirs = [run, tmp, venv, *(os.path.join(place.root, name) for name in ("work", "out", "work/inputs"))]
        assert [os.stat(path).st_uid for path in theirs] == [owner] * 6
        ours = [place.path, place.root, *(os.path.join(place.root, name) for name in ("skills", "runs"))]
        assert [os.stat(path).st_uid for path in ours] == [os.geteuid()] * 4


def test_no_two_sessions_share_a_place(tmp_path: Path) -> None:
    keys = [
        *(key("a"), key("a", user="u"), key("a", app="u"), key("a", tenant="u"), key("../../x"), key(".")),
        *(key("ä"), key("x" * 199), key("x" * 200), key("A"), key("a b"), key("session")),
    ]
    names = set[str]()
    for each in keys:
        for store in ("/a/prowess.db", "/b/prowess.db"):
            with OpenPlace(str(tmp_path), each, store=store) as place:
                assert os.path.dirname(place.path) == str(tmp_path / "workspaces")
            assert place_path(str(tmp_path), store, each) == place.path
            names.add(os.path.basename(place.path))
    assert len(names) == 2 * len(keys)
    assert all(not name.startswith(".") and len(name) < 80 for name in names)


def test_the_name_of_a_place_depends_on_a_secret(tmp_path: Path) -> None:
    names = set[str]()
    for dir in (tmp_path / "a", tmp_path / "b"):
        with OpenPlace(str(dir), key(), store="/a") as place:
            assert mode(dir / "workspaces.secret") == 0o600
            names |= {os.path.basename(place.path), computed()}
        (dir / "locks").mkdir(mode=0o700)
        with hold_session(str(dir), "/a", key()):
            assert os.listdir(dir / "locks") == [os.path.basename(place.path)]
        with OpenPlace(str(dir), key(), store="/a") as again:
            assert again.path == place.path
    assert len(names) == 3


def test_a_secret_of_somebody_else_or_that_cannot_be_read_is_not_used(tmp_path: Path) -> None:
    secret = tmp_path / "workspaces.secret"
    os.symlink(tmp_path / "elsewhere", secret)
    with pytest.raises(WorkspaceError) as refused:
        OpenPlace(str(tmp_path), key()).__enter__()
    assert refused.value.code == "workspace-dir" and not (tmp_path / "elsewhere").exists()
    if os.geteuid() == 0:
        secret.unlink()
        secret.touch()
        os.chown(secret, OTHER, OTHER)
        with pytest.raises(WorkspaceError, match="belongs to another user"):
            OpenPlace(str(tmp_path), key()).__enter__()
    secret.unlink()
    secret.mkdir()
    with pytest.raises(WorkspaceError, match="cannot be read"):
        place_path(str(tmp_path), "/a", key())


def computed() -> str:
    """The name of the place in versions that computed it, for the store /a."""
    return f"s-{hashlib.sha256(chr(0).join(('/a', *('default',) * 3, 's')).encode()).hexdigest()[:32]}"


def of_before(dir: Path) -> Path:
    """A place as such a version left it."""
    with OpenPlace(str(dir), key(), store="/a") as place:
        Path(place.root, "work", "mine").write_text("mine", encoding="utf-8")
    old = dir / "workspaces" / computed()
    os.rename(place.path, old)
    (dir / "workspaces.secret").unlink()
    return old


def test_a_place_with_a_computed_name_is_renamed_when_its_session_opens(tmp_path: Path) -> None:
    old = of_before(tmp_path)
    venv = old / "root" / "skills" / "pdf" / ".venv"
    venv.mkdir(parents=True)
    (venv / "pyvenv.cfg").touch()
    assert place_path(str(tmp_path), "/a", key()) == str(old), "until then it is found under that name"
    assert not (tmp_path / "workspaces.secret").exists()
    with OpenPlace(str(tmp_path), key(), store="/a") as place:
        assert os.listdir(tmp_path / "workspaces") == [os.path.basename(place.path)] != [old.name]
        assert Path(place.root, "work", "mine").read_text(encoding="utf-8") == "mine"
        assert ["renamed" in note for note in place.notes] == [True]
        assert [(info.session, info.store, info.in_use) for info in list_places(str(tmp_path))] == [("s", "/a", True)]
    with OpenPlace(str(tmp_path), key(), store="/a") as place:
        assert place.notes == (), "it is said once"
    assert remove_place(str(tmp_path), "/a", key()) == place.path


def test_a_place_with_a_computed_name_can_be_removed(tmp_path: Path) -> None:
    old = of_before(tmp_path)
    assert remove_place(str(tmp_path), "/a", key()) == str(old) and not old.exists()
    assert remove_place(str(tmp_path), "/a", key()) is None


def test_a_place_that_an_earlier_version_works_in_is_not_renamed(tmp_path: Path) -> None:
    old = of_before(tmp_path)
    with open(old / "lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        with pytest.raises(WorkspaceError) as refused:
            OpenPlace(str(tmp_path), key(), store="/a").__enter__()
        assert refused.value.code == "workspace-in-use" and refused.value.retryable
        assert os.listdir(tmp_path / "workspaces") == [old.name]
    with OpenPlace(str(tmp_path), key(), store="/a") as place:
        assert os.path.exists(os.path.join(place.root, "work", "mine"))


def test_a_session_that_an_earlier_version_holds_is_in_use(tmp_path: Path) -> None:
    (tmp_path / "locks").mkdir()
    with open(tmp_path / "locks" / computed(), "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert is_held(str(tmp_path), "/a", key())
        with pytest.raises(WorkspaceError) as refused, hold_session(str(tmp_path), "/a", key()):
            pass
        assert refused.value.code == "session-in-use"
    with hold_session(str(tmp_path), "/a", key()):
        assert is_held(str(tmp_path), "/a", key())
    assert not is_held(str(tmp_path), "/a", key())


# Opens a place in children that are killed, each one step later: before each file that is opened, made or renamed.
KILLED = """
import os, shutil, signal, sys
from prowess.core.values import SessionKey
from prowess.workspace.session_folder import OpenPlace, list_places
top, before = sys.argv[1:]
key = SessionKey(session="s")

def opened(dies_at):
    steps = 0
    def count(event, args):
        nonlocal steps
        if event in ("open", "os.mkdir", "os.rename", "os.chmod", "os.chown", "fcntl.flock"):
            steps += 1
            if steps == dies_at:
                os.kill(os.getpid(), signal.SIGKILL)
    child = os.fork()
    if child == 0:
        sys.addaudithook(count)
        OpenPlace(dir, key, store="/a").__enter__()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

step = 0
while True:
    step += 1
    dir = os.path.join(top, str(step))
    os.mkdir(dir)
    if before:
        shutil.copytree(before, dir, dirs_exist_ok=True)
    how = opened(step)
    with OpenPlace(dir, key, store="/a") as place:
        assert os.path.isdir(os.path.join(place.root, "work", "inputs"))
        assert not before or open(os.path.join(place.root, "work", "mine")).read() == "mine", step
    assert [(info.session, info.store) for info in list_places(dir)] == [("s", "/a")], step
    if how == 0:
        break
    assert how == -signal.SIGKILL
print(step)
"""


@pytest.mark.parametrize("renamed", [False, True])
def test_who_is_killed_while_a_place_is_made_or_renamed_loses_nothing(tmp_path: Path, renamed: bool) -> None:
    before = ""
    if renamed:
        of_before(tmp_path / "before")
        before = str(tmp_path / "before")
    (tmp_path / "top").mkdir()
    argv = [sys.executable, "-c", KILLED, str(tmp_path / "top"), before]
    done = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True)
    assert int(done.stdout) > 10


def test_each_session_has_a_group_that_others_do_not_have(workspace_dir: str) -> None:
    if os.geteuid() != 0:
        with OpenPlace(workspace_dir, key()) as place:
            assert place.gid is None
        return
    with OpenPlace(workspace_dir, key("a"), uid=OTHER) as one, OpenPlace(workspace_dir, key("b"), uid=OTHER) as two:
        reach = "import os, sys; os.chmod(sys.argv[1], 0o700)"
        done = [
            subprocess.run(
                ["/usr/bin/python3", "-c", reach, f"{place.root}/work"],
                check=False,
                cwd="/",
                user=OTHER,
                group=gid,
                extra_groups=[],
                stderr=subprocess.PIPE,
                text=True,
            )
            for place, gid in ((one, one.gid), (two, one.gid), (two, OTHER))
        ]
        assert [each.returncode for each in done] == [0, 1, 1], done
        assert all("PermissionError" in each.stderr for each in done[1:])
    with OpenPlace(workspace_dir, key("a"), uid=OTHER) as again:
        assert again.gid == one.gid


def test_a_place_that_is_recorded_as_another_sessions_is_not_opened(tmp_path: Path) -> None:
    """As if the names of two had come out the same."""
    dir = str(tmp_path)
    for other in ({"store": "/b", "key": to_json(key())}, {"store": "/a", "key": to_json(key(user="u"))}):
        with OpenPlace(dir, key(), store="/a") as place:
            Path(place.root, "work", "mine").write_text("mine", encoding="utf-8")
            before = read_meta(place.path)
        write_meta(place.path, {**before, **other})
        with pytest.raises(WorkspaceError) as refused:
            OpenPlace(dir, key(), store="/a").__enter__()
        assert refused.value.code == "workspace-of-another" and place.path in refused.value.message
        assert not list_places(dir)[0].in_use, "the lock was let go"
        write_meta(place.path, before)
    with OpenPlace(dir, key(), store="/a") as place:
        assert Path(place.root, "work", "mine").read_text(encoding="utf-8") == "mine"


def test_a_place_of_an_earlier_version_is_listed_and_not_taken_up(tmp_path: Path) -> None:
    """Its name does not say which store it belongs to: the files may be those of another project."""
    old = (
        tmp_path
        / "workspaces"
        / f"s-{hashlib.sha256(chr(0).join(('default',) * 3 + ('s',)).encode()).hexdigest()[:12]}"
    )
    (old / "root" / "work").mkdir(parents=True)
    (old / "root" / "work" / "mine").write_text("mine")
    write_meta(str(old), {"key": to_json(key()), "used_at": 1.0})
    with OpenPlace(str(tmp_path), key(), store="/a") as place:
        assert place.path != str(old) and os.listdir(os.path.join(place.root, "work")) == ["inputs"]
        assert ["earlier version" in note for note in place.notes] == [True]
    with OpenPlace(str(tmp_path), key(), store="/a") as place:
        assert place.notes == (), "it is said once"
    assert [(info.session, info.store) for info in list_places(str(tmp_path))] == [("s", None), ("s", "/a")]
    clean_all(str(tmp_path))
    assert os.listdir(tmp_path / "workspaces") == []


def test_a_session_of_a_project_that_was_moved_says_where_its_files_are(tmp_path: Path) -> None:
    before, after = str(tmp_path / "before.db"), str(tmp_path / "after.db")
    Path(before).touch()
    with OpenPlace(str(tmp_path), key(), store=before) as place:
        Path(place.root, "work", "mine").write_text("mine", encoding="utf-8")
    with OpenPlace(str(tmp_path), key(), store=str(tmp_path / "other.db")) as place:
        assert place.notes == (), "the store of that name is there: this is another project"
    os.rename(before, after)
    with OpenPlace(str(tmp_path), key(), store=after) as place:
        assert ["If the project was moved" in note for note in place.notes] == [True]
    with OpenPlace(str(tmp_path), key(), store=after) as place:
        assert place.notes == (), "it is said once"


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(WorkspaceError) as refused:
        OpenPlace(str(tmp_path / "file"), key()).__enter__()
    assert refused.value.code == "workspace-dir" and str(tmp_path / "file") in refused.value.message
    assert "workspace.dir" in (refused.value.hint or "")


def test_who_holds_a_session_is_told_as_well(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(WorkspaceError) as refused, hold_session(str(tmp_path / "file" / "ws"), "", key()):
        pass
    assert refused.value.code == "workspace-dir" and str(tmp_path / "file" / "ws") in refused.value.message


def test_holding_a_session_first_closes_the_way_to_nobody(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        with (
            hold_session(str(tmp_path / "new" / "ws"), "", key()),
            OpenPlace(str(tmp_path / "new" / "ws"), key()) as place,
        ):
            made = [*(tmp_path / name for name in ("new", "new/ws", "new/ws/workspaces")), Path(place.path)]
            assert [mode(path) for path in made] == [0o711] * 3 + [0o700]
            assert mode(tmp_path / "new" / "ws" / "locks") == 0o700
    finally:
        os.umask(before)


def test_meta_that_was_broken_is_made_anew(tmp_path: Path) -> None:
    for content in ("", "{", "[]", "null", json.dumps({"used_at": "yesterday", "key": "x"})):
        with OpenPlace(str(tmp_path), key()) as place:
            Path(place.path, "meta.json").write_text(content, encoding="utf-8")
        assert [info.session for info in list_places(str(tmp_path))] == [os.path.basename(place.path)]
        with OpenPlace(str(tmp_path), key()):
            assert [info.session for info in list_places(str(tmp_path))] == ["s"]


def test_the_list_has_size_age_and_use(tmp_path: Path) -> None:
    assert list_places(str(tmp_path / "nothing")) == []
    with OpenPlace(str(tmp_path), key("old")) as old:
        Path(old.root, "work", "big").write_bytes(b"x" * 300_000)
    with OpenPlace(str(tmp_path), key("new")):
        found = list_places(str(tmp_path))
        assert [(info.session, info.in_use) for info in found] == [("old", False), ("new", True)]
        assert found[0].size_bytes >= 300_000 > found[1].size_bytes > 0
        assert found[0].files > found[1].files > 5
        assert found[0].used_at <= found[1].used_at
    assert not any(info.in_use for info in list_places(str(tmp_path)))


def clean_places(dir: str, **more: Any) -> tuple[list[PlaceInfo], list[PlaceInfo]]:
    removed, kept = clean_all(dir, **more)
    return list(removed.places), list(kept.places)


def aged(folder: Path, session: str, age_s: float, size: int = 0) -> str:
    with OpenPlace(str(folder), key(session)) as place:
        Path(place.root, "work", "big").write_bytes(b"x" * size)
        write_meta(place.path, {**read_meta(place.path), "used_at": time.time() - age_s})
        return place.path


def test_cleaning_by_age_and_by_size(tmp_path: Path) -> None:
    paths = {name: aged(tmp_path, name, age, 1_000_000) for name, age in (("a", 400), ("b", 300), ("c", 200), ("d", 1))}

    def clean(**more: object) -> list[str]:
        removed, kept = clean_places(str(tmp_path), **more)
        assert kept == []
        return [info.session for info in removed]

    assert clean(older_than_s=1000) == []
    assert clean(older_than_s=350, dry_run=True) == ["a"] and os.path.isdir(paths["a"])
    assert clean(older_than_s=350) == ["a"] and not os.path.exists(paths["a"])
    assert clean(keep_bytes=10_000_000) == []
    assert clean(keep_bytes=2_500_000) == ["b"], "the one used longest ago goes first"
    assert clean(older_than_s=100, keep_bytes=0) == ["c", "d"]
    aged(tmp_path, "e", 0)
    assert clean() == ["e"] and os.listdir(tmp_path / "workspaces") == []


def test_one_in_use_is_never_removed(tmp_path: Path) -> None:
    aged(tmp_path, "idle", 100)
    with OpenPlace(str(tmp_path), key("busy")) as place:
        removed, kept = clean_places(str(tmp_path))
        assert ([info.session for info in removed], [info.session for info in kept]) == (["idle"], ["busy"])
        assert os.path.isdir(place.root)
        code = (
            "import sys; from prowess.workspace.cleanup import clean; "
            "print(*(len(each.places) for each in clean(sys.argv[1])))"
        )
        said = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, capture_output=True, text=True)
        assert said.stdout.split() == ["0", "1"], "nor by another process"
    assert [info.session for info in clean_places(str(tmp_path))[0]] == ["busy"]


def test_what_was_left_half_removed_goes_with_the_next_cleaning(tmp_path: Path) -> None:
    path = aged(tmp_path, "a", 0)
    os.rename(path, tmp_path / "workspaces" / ".gone-0123")
    assert list_places(str(tmp_path)) == []
    assert clean_places(str(tmp_path), older_than_s=1e9, dry_run=True) == ([], [])
    assert os.listdir(tmp_path / "workspaces") == [".gone-0123"]
    assert clean_places(str(tmp_path), older_than_s=1e9) == ([], [])
    assert os.listdir(tmp_path / "workspaces") == []


def test_who_opens_while_others_clean_has_a_whole_place(tmp_path: Path) -> None:
    opener = """
import os, sys
from prowess.core.codec import to_json
from prowess.core.values import SessionKey
from prowess.workspace.session_folder import OpenPlace
for number in range(60):
    with OpenPlace(sys.argv[1], SessionKey(session="shared")) as place:
        run = place.make_run(f"{os.getpid()}-{number}")
        assert os.path.isdir(os.path.join(place.root, "work", "inputs")) and os.path.isdir(place.make_venv("x", "y"))
        assert os.path.isdir(run)
"""
    cleaner = """
import sys
from prowess.workspace.cleanup import clean
for _ in range(60): clean(sys.argv[1])
"""
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stderr=subprocess.PIPE, text=True)
        for code in (opener, cleaner, opener, cleaner, opener)
    ]
    assert [(process.communicate()[1], process.returncode) for process in running] == [("", 0)] * 5
    clean_places(str(tmp_path))
    assert os.listdir(tmp_path / "workspaces") == []


def test_whatever_a_script_left_can_be_removed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x", encoding="utf-8")
    top = tmp_path / "top"
    top.mkdir()
    fd = os.open(top, os.O_RDONLY)
    for _ in range(1200):  # deeper than a path can say, and than Python recurses
        os.mkdir("deep-deep-deep-deep", dir_fd=fd)
        below = os.open("deep-deep-deep-deep", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    (top / "closed" / "in").mkdir(parents=True)
    (top / "closed" / "in" / "file").write_text("x", encoding="utf-8")
    (top / "closed" / "in").chmod(0)
    (top / "closed").chmod(0)
    (top / "read-only").mkdir()
    (top / "read-only" / "file").write_text("x", encoding="utf-8")
    (top / "read-only").chmod(0o555)
    (top / "link").symlink_to(outside)
    (top / "dangling").symlink_to("/nowhere")
    os.mkfifo(top / "fifo")
    for number in range(300):
        (top / f"folder-{number}\n").mkdir()
    remove_tree(str(top))
    assert not top.exists() and (outside / "precious").exists()
    remove_tree(str(top))
    (tmp_path / "to-outside").symlink_to(outside)
    remove_tree(str(tmp_path / "to-outside"))
    assert not (tmp_path / "to-outside").is_symlink() and (outside / "precious").exists()
