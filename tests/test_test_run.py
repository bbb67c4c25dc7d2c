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
    f"2  {ROOT}",
    "2  left out by the command line",
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


@pytest.mark.parametrize("verbose", [False, True], ids=["plain", "-v"])
@pytest.mark.parametrize("workers", [(), ("-n2", "--dist", "loadfile")], ids=["one process", "two workers"])
def test_all_that_was_not_run_is_said(workers: tuple[str, ...], verbose: bool, tmp_path: Path) -> None:
    for name in ("conftest.py", "not_run.py"):
        shutil.copy(Path(__file__).with_name(name), tmp_path)
    for name in "ab":
        (tmp_path / f"test_{name}.py").write_text(FILE.format(name=name), encoding="utf-8")
    wanted = "left_out or skipped or expected or needs"
    # A folder of its own: pytest closes the one that it shares with this run to all others, even if a test opened it.
    apart = ["-p", "no:cacheprovider", "--rootdir", tmp_path, "--basetemp", tmp_path / "temp", "--strict-markers"]
    command = [sys.executable, "-m", "pytest", "-q", *apart, "-k", wanted, *workers, *(["-v"] if verbose else [])]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, encoding="utf-8")
    said = [line.removeprefix("NOT RUN  ") for line in done.stdout.splitlines() if line.startswith("NOT RUN  ")]
    last = ["speed and memory: make bench", "a real model: make e2e"]
    expected = [*COUNTED, *(sorted(LISTED) if verbose else []), *last]
    assert [line.lstrip() for line in said] == expected, done.stdout + done.stderr
    assert done.returncode == 1 and "2 failed, 2 passed, 4 skipped" in done.stdout


@pytest.mark.parametrize(
    ("why", "cause"),
    [
        ("bwrap: bubblewrap is not installed where only root could have put it.", "no bubblewrap"),
        ("No sandbox works here. bubblewrap: it is not installed. Use Linux 6.2 with Landlock.", "no bubblewrap"),
        ("sandbox: bubblewrap: not installed. Landlock: Landlock ABI 0", "no isolation on this machine"),
        ("landlock: bubblewrap is here, and only root can hide it from a test", "not root"),
        ("landlock: Could not start: [Errno 95] Landlock ABI 0", "no Landlock"),
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
