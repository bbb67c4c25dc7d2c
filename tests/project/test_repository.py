"""What is true of the repository itself."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import prowess
from prowess.core.findings import RULES

ROOT = Path(__file__).resolve().parents[2]
REGISTRIES = [
    name + "." + end
    for name, end in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("deb.debian", "org"),
        ("crates", "io"),
    )
]  # in pieces: this file is looked at as well
MACHINE = re.compile(r"(?<![\w.~$}\-])(?<!workspace:/)/(?:work|root|home/\w+)/\w")


def test_the_changelog_has_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## {re.escape(prowess.__version__)}\b", changelog, re.MULTILINE)


def test_the_licence_is_the_whole_of_apache_2() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text and "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_no_file_names_a_registry_or_a_place_on_somebodys_machine(repository_files: list[Path]) -> None:
    found = []
    for path in repository_files:
        name = path.relative_to(ROOT).as_posix()
        text = path.read_bytes().decode("utf-8", "replace")
        for number, line in enumerate(text.splitlines(), 1):
            named = [registry for registry in REGISTRIES if registry in line]
            if named or str(ROOT) in line or (MACHINE.search(line) and not name.startswith("tests/")):
                found.append(f"{name}:{number}: {line.strip()[:160]}")
    assert not found, "\n".join(found)


def test_no_pattern_has_a_possessive_group(repository_files: list[Path]) -> None:
    """Python 3.11.2 of Debian 12 matches `(…)*+` and `(…)++` wrongly, and single characters (`[a-z]*+`) right."""
    sources = [path for path in repository_files if path.suffix == ".py" and path.is_relative_to(ROOT / "src")]
    assert len(sources) > 300
    group = re.compile(r"\)(?:[*+?]|\{[0-9,]+\})\+")
    found = [
        f"{path}:{n}"
        for path in sources
        for n, line in enumerate(path.read_text().splitlines(), 1)
        if group.search(line)
    ]
    assert not found


def test_scripts_can_be_executed() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_every_finding_made_by_hand_is_in_the_registry() -> None:
    unknown = []
    for path in sorted((ROOT / "src" / "prowess").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Finding", "Note"):
                codes = [k.value for k in node.keywords if k.arg == "code"]
                codes += node.args[:1] if ast.unparse(node.func) == "Note" else []
                literal = [code.value for code in codes if isinstance(code, ast.Constant)]
                unknown += [f"{path.name}:{node.lineno}: {code}" for code in literal if code not in RULES]
    assert not unknown, "\n".join(unknown)


def test_every_package_says_what_its_modules_own() -> None:
    unsaid = []
    for folder in sorted(path.parent for path in (ROOT / "src" / "prowess").rglob("__init__.py")):
        text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
        named = set(re.findall(r"[a-z_0-9]+", " ".join(line for line in text.splitlines() if line.startswith("- "))))
        if folder.name not in ("prowess", "builtin_skills", "commands"):  # a command is named by its verb
            unsaid += [str(path) for path in folder.glob("*.py") if path.stem not in named | {"__init__"}]
    assert unsaid == []


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_every_path_that_a_page_names_is_there(page: str) -> None:
    """A path is in backticks and begins in the repository or in the package."""
    named = re.findall(r"`((?:[a-z_]+/)+(?:[a-z_]+\.[a-z]+)?)`", (ROOT / page).read_text(encoding="utf-8"))
    places = (ROOT, ROOT / "src" / "prowess")
    planned = {"packs/", "evals/", "mcp/", "integrations/", "serve/"}
    assert (
        named
        and [path for path in named if path not in planned if not any((at / path).exists() for at in places)] == []
    )


def test_the_architecture_page_names_every_package() -> None:
    words = set(re.findall(r"[a-z_]+/", (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")))
    packages = {f"{path.parent.name}/" for path in (ROOT / "src" / "prowess").glob("*/*/__init__.py")}
    packages |= {f"{path.parent.name}/" for path in (ROOT / "src" / "prowess").glob("*/__init__.py")}
    assert sorted(packages - words) == []


@pytest.mark.parametrize("command", [("make_docs.py", "--check"), ("ratchets.py",)], ids=lambda command: command[0])
def test_what_is_generated_and_counted_is_up_to_date(command: tuple[str, ...]) -> None:
    script, *args = command
    answer = subprocess.run(
        [sys.executable, str(ROOT / "tools" / script), *args], capture_output=True, text=True, encoding="utf-8"
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr


@pytest.fixture(scope="module")
def repository_files() -> list[Path]:
    """What is in git, or would be."""
    if not shutil.which("git") or not (ROOT / ".git").exists():
        pytest.skip("this is not a git clone")
    answer = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    paths = [ROOT / os.fsdecode(name) for name in answer.stdout.split(b"\0") if name]
    return [path for path in paths if path.is_file() and not path.is_symlink()]
