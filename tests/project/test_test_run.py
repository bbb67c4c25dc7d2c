"""What was not run is counted by cause at the end of a test run, the same by one process and by several workers; with
-v all of it is listed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from not_run import CAUSES, find_cause

FILE = """
from pytest import mark, skip

def test_left_out_inside(not_run): not_run("{name}: a part", "there is no uv on the PATH")
def test_left_out_before_it_fails(not_run): not_run("{name}: another", "curl is not installed"); assert False
def test_skipped(): skip("{name} cannot")
@mark.needs("root")
@mark.needs("no root")
def test_needs(): pass
@mark.xfail(reason="{name} is known")
def test_expected(): assert False
def test_not_asked_for(): pass
"""
ROOT = "as root" if os.geteuid() == 0 else "not root"
COUNTED = [
    "4  a program is not installed",
    *sorted([f"2  {ROOT}", "2  left out by the command line"]),
    *(f"1  {name} cannot" for name in "ab"),
    *(f"1  expected to fail: {name} is known" for name in "ab"),
]
LISTED = [
    *(f"{name}: a part: there is no uv on the PATH" for name in "ab"),
    *(f"{name}: another: curl is not installed" for name in "ab"),
    *(f"test_{name}.py::test_expected: expected to fail: {name} is known" for name in "ab"),
    *(f"test_{name}.py::test_needs: {ROOT}" for name in "ab"),
    *(f"test_{name}.py::test_skipped: {name} cannot" for name in "ab"),
]


class Suite:
    """Two small files of tests in a folder, run by a pytest of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("conftest.py", "not_run.py", "two_machines.py"):
            shutil.copy(Path(__file__).parents[1] / name, folder)
        for name in "ab":
            (folder / f"test_{name}.py").write_text(FILE.format(name=name), encoding="utf-8")

    def run(self, *options: str) -> subprocess.CompletedProcess[str]:
        # A folder of its own: pytest closes the one that it shares with this run, even if a test opened it.
        apart = ["-p", "no:cacheprovider", "--rootdir", self.folder, "--basetemp", self.folder / "temp"]
        command = [sys.executable, "-m", "pytest", "-q", *apart, "--strict-markers", *options]
        env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        return subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True, encoding="utf-8")


@pytest.mark.parametrize("verbose", [False, True], ids=["plain", "-v"])
@pytest.mark.parametrize("workers", [(), ("-n2", "--dist", "loadfile")], ids=["one process", "two workers"])
def test_all_that_was_not_run_is_said(workers: tuple[str, ...], verbose: bool, tmp_path: Path) -> None:
    wanted = "left_out or skipped or expected or needs"
    done = Suite(tmp_path).run("-k", wanted, *workers, *(["-v"] if verbose else []))
    said = [line.removeprefix("NOT RUN  ") for line in done.stdout.splitlines() if line.startswith("NOT RUN  ")]
    last = ["speed and memory: make bench", "a real model: make e2e"]
    expected = [*COUNTED, *(sorted(LISTED) if verbose else []), *last]
    assert [line.lstrip() for line in said] == expected, done.stdout + done.stderr
    assert done.returncode == 1 and "2 failed, 2 passed, 4 skipped" in done.stdout


def test_a_prepared_machine_runs_what_a_bare_one_could_not(tmp_path: Path) -> None:
    suite = Suite(tmp_path)
    file = tmp_path / "not-run"
    suite.run("-n2", "--dist", "loadfile", "--write-not-run", str(file))
    names = ["expected", "left_out_before_it_fails", "left_out_inside", "needs", "skipped"]
    assert file.read_text(encoding="utf-8").split() == [
        f"test_{each}.py::test_{name}" for each in "ab" for name in names
    ]
    (tmp_path / "test_exec.py").write_text("def test_of_isolation(): pass\n", encoding="utf-8")
    file.write_text("test_a.py::test_left_out_inside\n", encoding="utf-8")
    done = suite.run("--prepared", str(file))
    assert "2 passed, 11 deselected" in done.stdout, done.stdout


@pytest.mark.parametrize(
    ("why", "cause"),
    [
        ("bwrap: bubblewrap is not installed.", "no bubblewrap"),
        ("No sandbox works here. bubblewrap: it is not installed. Use Linux 6.2 with Landlock.", "no bubblewrap"),
        ("sandbox: bubblewrap: not installed. Landlock: this kernel has no Landlock", "no isolation on this machine"),
        ("landlock: bubblewrap is here, and only root can hide it from a test", "not root"),
        ("landlock: this kernel's Landlock (ABI 2) cannot keep files from being cut short", "no Landlock"),
        ("landlock: this kernel has no Landlock.", "no Landlock"),
        ("containers: a dockerd needs root (make system installs it)", "no container engine"),
        ("PostgreSQL (initdb, postgres) or psycopg is not installed: make system, as root", "no PostgreSQL"),
        ("without root they are ourselves, and reach it", "not root"),
        ("as root they are somebody else", "as root"),
        ("something that nobody has thought of", "something that nobody has thought of"),
        *((cause, cause) for cause in CAUSES),
    ],
)
def test_reasons_come_to_few_causes(why: str, cause: str) -> None:
    assert find_cause(why) == cause
