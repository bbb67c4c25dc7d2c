"""What was not run is said at the end of a test run, all of it, and the same by one process and by several workers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FILE = """
from pytest import mark, skip

def test_left_out_inside(not_run): not_run("{name}: a part", "it is not here")
def test_left_out_before_it_fails(not_run): not_run("{name}: another", "nor is it"); assert False
def test_skipped(): skip("{name} cannot")
@mark.xfail(reason="{name} is known")
def test_expected(): assert False
def test_not_asked_for(): pass
"""
EXPECTED = [
    "2 tests: left out by the command line",
    *(f"{name}: {what}" for name in "ab" for what in ("a part: it is not here", "another: nor is it")),
    *(f"test_{name}.py::test_expected: expected to fail: {name} is known" for name in "ab"),
    *(f"test_{name}.py::test_skipped: {name} cannot" for name in "ab"),
]


@pytest.mark.parametrize("workers", [(), ("-n2", "--dist", "loadfile")], ids=["one process", "two workers"])
def test_all_that_was_not_run_is_said(workers: tuple[str, ...], tmp_path: Path) -> None:
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    for name in "ab":
        (tmp_path / f"test_{name}.py").write_text(FILE.format(name=name), encoding="utf-8")
    wanted = "left_out or skipped or expected"
    # A folder of its own: pytest closes the one that it shares with this run to all others, even if a test opened it.
    apart = ["-p", "no:cacheprovider", "--rootdir", tmp_path, "--basetemp", tmp_path / "temp"]
    command = [sys.executable, "-m", "pytest", *apart, "-k", wanted, *workers]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, encoding="utf-8")
    said = [line.removeprefix("NOT RUN  ") for line in done.stdout.splitlines() if line.startswith("NOT RUN  ")]
    assert sorted(said[:-2]) == sorted(EXPECTED) and said[-2].startswith("speed"), done.stdout + done.stderr
    assert done.returncode == 1 and "2 failed, 2 passed, 2 skipped" in done.stdout
