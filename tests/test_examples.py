"""Every example runs as it is and prints what its docstring says."""

from __future__ import annotations

import ast
import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import make_skill
from guard import GUARD_S

REPOSITORY = Path(__file__).parent.parent
EXAMPLES = sorted((REPOSITORY / "examples").glob("*.py"))


def run(example: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(example), *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONUTF8": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        encoding="utf-8",
        timeout=GUARD_S,
    )


def promised(example: Path) -> str:
    """The first indented block of the docstring; `...` stands for anything."""
    text = ast.get_docstring(ast.parse(example.read_text(encoding="utf-8"))) or ""
    block = re.search(r"^(?: {4}.*\n|\n(?= {4}))+", text + "\n", re.MULTILINE)
    assert block, f"{example.name} does not say what it prints"
    return "".join(line[4:] for line in block[0].splitlines(keepends=True))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_it_prints_what_it_says(example: Path) -> None:
    ran = run(example)
    assert (ran.returncode, ran.stderr) == (0, "")
    wanted = promised(example)
    assert doctest.OutputChecker().check_output(wanted, ran.stdout, doctest.ELLIPSIS), f"{wanted}\n---\n{ran.stdout}"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_it_uses_only_what_is_public(example: Path) -> None:
    import prowess

    tree = ast.parse(example.read_text(encoding="utf-8"))
    assert not [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and (n.module or "").startswith("prowess")]
    used = {
        n.attr
        for n in ast.walk(tree)
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == "prowess"
    }
    assert used
    assert used <= set(prowess.__all__)


def test_five_lines_are_five_lines() -> None:
    tree = ast.parse((REPOSITORY / "examples" / "five_lines.py").read_text(encoding="utf-8"))
    assert len(tree.body) - 1 == 5


def test_validation_fails_for_a_bad_skill(tmp_path: Path) -> None:
    make_skill(tmp_path / "good-one")
    make_skill(tmp_path / "bad-one", name="Bad_One")
    ran = run(REPOSITORY / "examples" / "validate_in_ci.py", str(tmp_path))
    assert ran.returncode == 1
    assert "FAIL  bad-one\n" in ran.stdout
    assert "ok    good-one\n" in ran.stdout
    assert "[name-invalid]" in ran.stdout
    assert ran.stdout.endswith("2 skills, 1 failed\n")


def test_the_readme_lists_every_example() -> None:
    text = (REPOSITORY / "examples" / "README.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\(([^)]+)\)", text))
    assert all((REPOSITORY / "examples" / target).exists() for target in linked)
    assert {example.name for example in EXAMPLES} <= linked
    skills = {
        str(path.relative_to(REPOSITORY / "examples")) for path in (REPOSITORY / "examples").glob("skills/*/SKILL.md")
    }
    assert skills <= linked
    data = {str(path.relative_to(REPOSITORY / "examples")) for path in (REPOSITORY / "examples" / "data").iterdir()}
    assert data <= linked
