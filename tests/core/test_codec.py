"""pydantic_core reads records; commands that read none do not load it, and no reader loads pydantic."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = """
import sys
from prowess.cli.main import main
sys.argv = ["prowess", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
"""


def loaded_by(code: str, *args: str, cwd: Path) -> str:
    """Runs the code in a new process and returns which of the two packages it loaded."""
    code += "\nprint(*sorted({'pydantic', 'pydantic_core'} & sys.modules.keys()), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code, *args], cwd=cwd, capture_output=True, text=True, check=True)
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize("args", [["--version"], ["list"], ["list", "--json"], ["run", "--help"]], ids=" ".join)
def test_a_command_that_reads_no_record_loads_no_pydantic(args: list[str], tmp_path: Path) -> None:
    assert loaded_by(COMMAND, *args, cwd=tmp_path) == ""


def test_importing_the_package_loads_no_pydantic(tmp_path: Path) -> None:
    assert loaded_by("import sys, prowess", cwd=tmp_path) == ""


def test_reading_an_event_loads_the_core_of_pydantic_only(tmp_path: Path) -> None:
    line = {"at": "", "session": "s", "run": "r", "type": "text_delta", "text": "t"}
    code = f"import sys\nfrom prowess.events import parse_event\nparse_event({line})"
    assert loaded_by(code, cwd=tmp_path) == "pydantic_core"
