"""A kill at any step, a full disk, a target that cannot be written, and two at once: the old state or the new one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import prowess
from pack_machines import PackMachine
from pack_samples import refused, skill_folder

# Forks for each step: the child makes the change and ends itself at that step. Prints the number of steps.
DRIVER = """
import builtins, json, os, shutil, sys
sys.path.insert(0, sys.argv[4])
from pathlib import Path
from pack_machines import PackMachine
import prowess
import prowess.packs.api, prowess.packs.plan, prowess.runtime.policy_files
template, base, call = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
names = ("rename", "replace", "unlink", "mkdir", "rmdir")
def run(machine, last):
    steps = 0
    def count():
        nonlocal steps
        steps += 1
        if steps == last:
            os._exit(9)
    def counted(function):
        def step(*args, **options):
            count()
            return function(*args, **options)
        return step
    for name in names:
        setattr(os, name, counted(getattr(os, name)))
    os_open, plain_open = os.open, builtins.open
    def low(path, flags, *args, **options):
        if flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
            count()
        return os_open(path, flags, *args, **options)
    def high(file, mode="r", *args, **options):
        if "w" in mode or "x" in mode:
            count()
        return plain_open(file, mode, *args, **options)
    os.open, builtins.open, os.fsync = low, high, lambda fd: None
    exec(call, {"machine": machine, "template": template})
shutil.copytree(template / "machine", base / "first", symlinks=True)
exec(call, {"machine": PackMachine(base / "first"), "template": template})  # so that no child imports anything
last = 1
while True:
    shutil.copytree(template / "machine", base / str(last), symlinks=True)
    pid = os.fork()
    if pid == 0:
        try:
            run(PackMachine(base / str(last)), last)
            os._exit(0)
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code != 9:
        print(last)
        sys.exit(code)
    last += 1
"""

CALLS = {
    "install": "machine.install(str(template / 'more'))",
    "archive": "machine.install(str(template / 'c.zip'))",
    "update": "machine.update()",
    "uninstall": "machine.uninstall('a', 'b')",
    "purge": "machine.uninstall('a', purge=True)",
    "rollback": "machine.rollback('a', digest=machine.backup('a'))",
}


@pytest.fixture
def template(tmp_path: Path) -> Path:
    """A machine with a and b installed, a newer a in the source, three more skills, and one that nobody installed."""
    template = tmp_path / "template"
    machine = PackMachine(template / "machine")
    for name in ("a", "b"):
        skill_folder(template / "src", name, {"x.md": "0"})
    machine.install(str(template / "src"))
    for name in ("a", "b"):
        skill_folder(template / "src", name, {"x.md": "1"})
    machine.update()
    for name in ("a", "b"):
        skill_folder(template / "src", name, {"x.md": "2"})
    for name in ("c", "d", "e"):
        skill_folder(template / "more", name, {"scripts/run.py": name})
    shutil.make_archive(str(template / "c"), "zip", template / "more", "c")
    skill_folder(machine.root, "z", {"x.md": "mine"})
    return template


@pytest.mark.parametrize("what", CALLS)
def test_a_kill_at_any_step(template: Path, tmp_path: Path, what: str) -> None:
    base = tmp_path / "killed"
    base.mkdir()
    tests = str(Path(__file__).parents[1])
    command = [sys.executable, "-c", DRIVER, str(template), str(base), CALLS[what], tests]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    last = int(done.stdout)
    assert last > 10
    old, new = PackMachine(template / "machine").state(), PackMachine(base / str(last)).state()
    assert old != new
    seen: set[bool] = set()
    for number in range(1, last):
        machine = PackMachine(base / str(number))
        prowess.discover(machine.root)  # as `prowess list` does
        state = machine.state()
        assert state in (old, new), number
        seen.add(state == new)
        left = {path.name for path in (machine.root / ".prowess").iterdir()}
        assert "journal.json" not in left and not [name for name in left if name.startswith("new-")], number
        if number % 7 == 0 or number == last - 1:  # the next command finds nothing in its way
            exec(CALLS[what] if state == old else "machine.install()", {"machine": machine, "template": template})
            assert machine.state() == new, number
            machine.check_clean()
            assert machine.verify().same
    assert seen == {True, False}


def test_verify_cleans_up_after_a_kill(template: Path) -> None:
    machine = PackMachine(template / "machine")
    killed = (
        "import os, signal, sys\nfrom prowess import packs\n"
        "packs.update(cwd=sys.argv[1], confirm=lambda plan: os.kill(os.getpid(), signal.SIGKILL))"
    )
    command = [sys.executable, "-c", killed, str(machine.project)]
    done = subprocess.run(command, env=machine.environ, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert list((machine.root / ".prowess").glob("new-*"))
    assert machine.verify().same
    machine.check_clean()


@pytest.mark.parametrize("step", [1, 2, 3, 4, 5])
def test_a_person_who_interrupts(template: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """At a rename in the middle: all is as before."""
    machine = PackMachine(template / "machine")
    before = machine.state()
    rename, count = os.rename, 0

    def interrupted(*args: str) -> None:
        nonlocal count
        count += 1
        if count == step:
            raise KeyboardInterrupt
        rename(*args)

    monkeypatch.setattr(os, "rename", interrupted)
    if step < 5:
        with pytest.raises(KeyboardInterrupt):
            machine.update()
        assert machine.state() == before
    else:
        machine.update()
        assert machine.state() != before
    assert machine.verify().same
    machine.check_clean()


def test_a_person_who_interrupts_twice(template: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while the first changes are undone: the next command completes them."""
    machine = PackMachine(template / "machine")
    rename, count = os.rename, 0

    def interrupted(*args: str) -> None:
        nonlocal count
        count += 1
        if count > 3:
            raise KeyboardInterrupt
        rename(*args)

    monkeypatch.setattr(os, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        machine.update()
    monkeypatch.undo()
    assert machine.verify().same
    assert {(machine.root / name / "x.md").read_text() for name in "ab"} == {"2"}
    machine.check_clean()


FULL = """
import resource, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from pack_machines import PackMachine
from prowess.errors import PackError
import prowess.packs.api
template = Path(sys.argv[1])
machine = PackMachine(template / "machine")
for limit in (0, 10, 200):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    for call in ("machine.install(str(template / 'big'))", "machine.install(str(template / 'big.zip'))",
                 "machine.install(str(template / 'more'))", "machine.update()", "machine.uninstall('a')"):
        try:
            exec(call)
        except PackError as error:
            assert error.code in ("target-not-writable", "pack-io", "archive-io"), (limit, call, error.code)
            assert error.hint
            continue
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        raise SystemExit(f"{limit}: {call} was carried out")
"""


def test_a_full_disk(template: Path) -> None:
    skill_folder(template / "big", "big", {"data.bin": bytes(100_000)})
    shutil.make_archive(str(template / "big"), "zip", template / "big")
    machine = PackMachine(template / "machine")
    before = machine.state()
    command = [sys.executable, "-B", "-c", FULL, str(template), str(Path(__file__).parents[1])]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert machine.state() == before
    prowess.discover(machine.root)
    machine.check_clean()


NOT_WRITABLE = """
import os, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from pack_machines import PackMachine
from pack_samples import refused
import prowess, prowess.packs.api
template = Path(sys.argv[1])
machine = PackMachine(template / "machine")
machine.verify()  # imports what is needed: the other user may not be able to read it
machine.install(str(template / "more"), dry_run=True)
refused(lambda: machine.install(str(template / "none")))
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
for call in (machine.update, lambda: machine.install(str(template / "more")), lambda: machine.uninstall("a"),
             lambda: machine.rollback("a"), lambda: machine.install(str(template / "more"), to="new/folder")):
    error = refused(call)
    assert error.code == "target-not-writable", error
assert machine.verify().same
assert len(prowess.discover(machine.root)) == 3
"""


def test_a_target_that_cannot_be_written(template: Path, folder: Path) -> None:
    """For another user than root, who can write everywhere."""
    place = folder / "template"
    shutil.copytree(template, place, symlinks=True)
    tests = folder / "tests"
    tests.mkdir()
    for name in ("pack_machines.py", "pack_samples.py"):
        shutil.copy(Path(__file__).parents[1] / name, tests)
    machine = PackMachine(place / "machine")
    before = machine.state()
    os.chmod(folder, 0o755)
    folders = [parent for parent, _, _ in os.walk(place)]
    for each in folders:
        os.chmod(each, 0o555)
    command = [sys.executable, "-c", NOT_WRITABLE, str(place), str(tests)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    for each in folders:
        os.chmod(each, 0o755)
    assert done.returncode == 0, done.stderr
    assert machine.state() == before
    machine.check_clean()


def test_a_home_that_cannot_be_written(template: Path) -> None:
    """The skills are installed, and the person is told that they are not accepted."""
    machine = PackMachine(template / "machine")
    (machine.home / "new").write_text("no folder")
    machine.environ["PROWESS_HOME"] = str(machine.home / "new")
    done = machine.install(str(template / "more/c"))
    assert done.applied and "not accepted" in done.notes[-1] and machine.verify().same
    machine.uninstall("c")
    machine.rollback("c", digest=machine.backup("c"))


def test_two_installs_at_once(template: Path) -> None:
    """Each takes its own skills; the lock has all of them."""
    machine = PackMachine(template / "machine")
    script = (
        "import sys; sys.path.insert(0, sys.argv[2]); from pathlib import Path; from pack_machines import PackMachine\n"
    )
    script += "PackMachine(Path(sys.argv[1])).install(sys.argv[3])"
    tests = str(Path(__file__).parents[1])
    for number in range(4):
        skill_folder(template / f"at-once-{number}", f"s{number}", {f"f{each}.md": str(each) for each in range(20)})
    processes = [
        subprocess.Popen([sys.executable, "-c", script, str(machine.base), tests, str(template / f"at-once-{number}")])
        for number in range(4)
    ]
    assert [process.wait() for process in processes] == [0] * 4
    assert {f"s{number}" for number in range(4)} <= machine.locked().keys()
    assert machine.verify().same
    machine.check_clean()


def test_a_second_install_while_the_first_asks(template: Path) -> None:
    """Other skills are no trouble. The same skill is not replaced by a plan that did not see it."""
    machine = PackMachine(template / "machine")

    def meanwhile(source: str) -> bool:
        return PackMachine(template / "machine").install(source).applied

    machine.install(str(template / "more/c"), confirm=lambda plan: meanwhile(str(template / "more/d")))
    assert machine.locked().keys() >= {"c", "d"}
    other = skill_folder(template / "other", "e", {"x.md": "other"})
    error = refused(lambda: machine.install(str(other), confirm=lambda plan: meanwhile(str(template / "more/e"))))
    assert error.code == "target-changed"
    assert machine.verify().same and (machine.root / "e/scripts/run.py").exists()
    machine.check_clean()
