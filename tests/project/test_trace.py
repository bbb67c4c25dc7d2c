"""Holds the path of a library run: how many modules of ours it visits, and how deep its stack is."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_library_run_with_two_calls_visits_few_modules(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "trace_run.py")], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    found = re.match(r"modules (\d+)  depth (\d+) ", ended.stdout)
    assert found, ended.stdout
    modules, depth = map(int, found.groups())
    assert modules <= 66, "see them: python tools/trace_run.py -v"
    assert depth <= 25
