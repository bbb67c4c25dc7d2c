"""Several folders change at once, and a kill at any step leaves the old state or the new one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from prowess._internal.folder_swap import STATE, FolderMove, SwapBusy, hold, recover, stage, swap

OLD = {"a/SKILL.md": "old a", "b/SKILL.md": "old b", "b/x": "old x", "../skills.lock": "old lock"}
NEW = {"a/SKILL.md": "new a", "c/SKILL.md": "new c", "../skills.lock": "new lock", "../skills.toml": "new toml"}

# Changes a, removes b, adds c. Prints the number of steps. With several roots, a child for each of them ends itself: at
# the first step in the first root, at the second in the second, and so on.
CHILD = """
import os, sys, tempfile
from prowess._internal import folder_swap
root, last = sys.argv[1], 0
for number, each in enumerate(sys.argv[1:] if sys.argv[2:] else (), start=1):
    root, last = each, number
    if (child := os.fork()) == 0:
        break
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9, last
else:
    if last:
        sys.exit()
steps = 0
def counted(function):
    def call(*args, **options):
        global steps
        steps += 1
        if steps == last:
            os._exit(9)
        return function(*args, **options)
    return call
for name in ("rename", "replace", "unlink", "mkdir", "open", "chmod", "fsync", "rmdir", "write"):
    setattr(os, name, counted(getattr(os, name)))
with folder_swap.stage(root) as name:
    for skill in ("a", "c"):
        os.makedirs(f"{root}/.prowess/{name}/{skill}")
        with open(f"{root}/.prowess/{name}/{skill}/SKILL.md", "w") as file:
            file.write(f"new {skill}")
    moves = [folder_swap.FolderMove("a", f"{name}/a", "backups/a/1"), folder_swap.FolderMove("b", None, f"{name}/gone")]
    moves += [folder_swap.FolderMove("c", f"{name}/c", f"{name}/none")]
    above = os.path.dirname(root)
    with folder_swap.hold(root):
        folder_swap.swap(root, moves, {f"{above}/skills.lock": b"new lock", f"{above}/skills.toml": b"new toml"})
print(steps)
"""


def make_old(base: Path) -> Path:
    root = base / "agent" / "skills"
    for name, text in OLD.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.resolve().write_text(text)
    return root


def state_of(root: Path) -> dict[str, str]:
    above = {f"../{path.name}": path.read_text() for path in root.parent.iterdir() if path.is_file()}
    found = [path for path in root.rglob("*") if path.is_file() and STATE not in path.parts]
    return {path.relative_to(root).as_posix(): path.read_text() for path in found} | above


def run_child(*roots: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", CHILD, *map(str, roots)], capture_output=True, text=True)


def test_a_swap_changes_everything(tmp_path: Path) -> None:
    root = make_old(tmp_path)
    done = run_child(root)
    assert done.returncode == 0, done.stderr
    assert state_of(root) == NEW
    assert (root / STATE / "backups/a/1/SKILL.md").read_text() == "old a"
    assert sorted(os.listdir(root / STATE)) == [".gitignore", "backups", "lock"]


def test_a_kill_at_any_step_leaves_the_old_state_or_the_new_one(tmp_path: Path) -> None:
    steps = int(run_child(make_old(tmp_path / "whole")).stdout)
    assert steps > 20
    roots = [make_old(tmp_path / str(last)) for last in range(1, steps + 1)]
    killed = run_child(*roots)
    assert killed.returncode == 0, killed.stderr
    seen = set()
    for last, root in enumerate(roots, start=1):
        recover(str(root))
        state = {name: text for name, text in state_of(root).items() if ".new-" not in name}
        assert state in (OLD, NEW), last
        seen.add(state == NEW)
        with stage(str(root)):
            pass
        assert state_of(root) == state, "the next command removes what was prepared"
        assert {*os.listdir(root / STATE)} <= {".gitignore", "backups", "lock"}
    assert seen == {True, False}


def test_an_error_changes_nothing(tmp_path: Path) -> None:
    root = make_old(tmp_path)
    with stage(str(root)) as name, hold(str(root)), pytest.raises(OSError):
        moves = [FolderMove("b", None, f"{name}/gone"), FolderMove("a", f"{name}/a", f"{name}/b/c")]
        (root / STATE / name / "a").mkdir()
        (root / STATE / name / "b").write_text("in the way")
        swap(str(root), moves, {str(root.parent / "skills.lock"): b"new"})
    assert state_of(root) == OLD


def test_an_end_while_an_interrupted_swap_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person interrupts after the last step, and all is undone but the journal: then the swap is completed."""
    root, lock = make_old(tmp_path), tmp_path / "agent" / "skills.lock"
    replace = os.replace

    def interrupted(*paths: str) -> None:
        if paths[1:]:
            replace(*paths)
        if not paths[1:] or os.path.normpath(paths[1]) == str(lock):
            monkeypatch.setattr(os, "replace", replace)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), stage(str(root)) as name, hold(str(root)):
        (root / STATE / name / "a").mkdir()
        (root / STATE / name / "a" / "SKILL.md").write_text("new a")
        monkeypatch.setattr(os, "replace", interrupted)
        monkeypatch.setattr(os, "unlink", interrupted)
        swap(str(root), [FolderMove("a", f"{name}/a", "backups/a/1")], {str(lock): b"new lock"})
    monkeypatch.undo()
    assert recover(str(root))
    assert state_of(root) == OLD | {"a/SKILL.md": "new a", "../skills.lock": "new lock"}


def test_a_journal_that_came_with_a_repository_reaches_nothing_else(tmp_path: Path) -> None:
    root = make_old(tmp_path)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("mine")
    (root / STATE).mkdir()
    journal = root / STATE / "journal.json"
    for folders, files in (
        ([{"target": "../../outside", "new": None, "old": "backups/x/1"}], []),
        ([{"target": "a", "new": "../../../outside", "old": "backups/x/1"}], []),
        ([{"target": "a", "new": "backups/../../../outside", "old": "backups/x/1"}], []),
        ([{"target": "a", "new": None, "old": "../../../outside/a"}], []),
        ([{"target": ".prowess", "new": None, "old": "backups/x/1"}], []),
        ([], [{"path": "../../outside/file", "new": ""}]),
        ([], [{"path": "../config.toml", "new": "../.config.toml.new-x"}]),
        ([], [{"path": "../skills.lock", "new": "a/SKILL.md"}]),
        ({"target": "a"}, 3),
    ):
        journal.write_text(json.dumps({"schema": "prowess.journal/1", "folders": folders, "files": files}))
        assert recover(str(root)) is False
        assert not journal.exists() and state_of(root) == OLD and (outside / "file").read_text() == "mine"


def test_two_processes_do_not_disturb_each_other(tmp_path: Path) -> None:
    root = make_old(tmp_path)
    with stage(str(root)) as mine:
        assert run_child(root).returncode == 0
        assert (root / STATE / mine).is_dir(), "what is in use is not removed"
    assert not (root / STATE / mine).exists() and state_of(root) == NEW


def test_a_swap_waits_for_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    root = make_old(tmp_path)
    monkeypatch.setattr("prowess._internal.folder_swap._WAIT_S", 0.0)
    with stage(str(root)), (root / STATE / "lock").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(SwapBusy), hold(str(root)):
            pass
