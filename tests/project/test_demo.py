"""make demo: what it shows is there, and nothing of it is left behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from guard import GUARD_S

ROOT = Path(__file__).resolve().parents[2]


def test_the_demo_shows_a_request_from_the_sentence_to_the_file(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "tools/demo.py"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=GUARD_S,
    )
    shown = done.stdout
    assert done.returncode == 0, shown
    for step in (
        "$ prowess list",
        "$ prowess validate",
        "$ prowess load",
        "$ prowess exec",
        "$ prowess run",
        "sessions",
    ):
        assert step in shown
    assert "offline planner: no language model" in shown and "loaded csv-report" in shown
    assert "chart.svg and report.md made by a request" in shown
    assert "[answer · " in shown and "prowess sessions show s-" in shown
    assert "sandbox (" in shown or "local (none" in shown
