"""No example and no page needs a private import: they use public modules, and of these what is exported."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PUBLIC = ("prowess", "prowess.ports", "prowess.events", "prowess.errors", "prowess.testing", "prowess.packs")
# Also in heredocs, docstrings and blocks that are not run.
IMPORT = re.compile(
    r"^[> .$]*(?:from (?P<module>prowess[\w.]*) import (?P<names>\([^)]*\)|[^\n]*)|import (?P<plain>prowess[\w.]*))",
    re.MULTILINE,
)


def texts() -> list[Path]:
    pages = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")]
    examples = [path for path in (REPOSITORY / "examples").rglob("*") if path.suffix in (".py", ".md", ".sh")]
    return sorted([*pages, *examples])


def private_imports(text: str) -> list[str]:
    found: list[str] = []
    for match in IMPORT.finditer(text):
        module = match["module"] or match["plain"]
        if module not in PUBLIC:
            found.append(module)
            continue
        public = importlib.import_module(module)
        exported = getattr(public, "__all__", dir(public))
        for name in re.findall(r"(\w+)(?: as \w+)?[ ,)]*", (match["names"] or "").partition("#")[0]):
            if name not in exported and f"{module}.{name}" not in PUBLIC:
                found.append(f"{module}.{name}")
    return found


@pytest.mark.parametrize("path", texts(), ids=lambda path: path.relative_to(REPOSITORY).as_posix())
def test_it_imports_only_what_is_public(path: Path) -> None:
    assert private_imports(path.read_text(encoding="utf-8")) == []


def test_a_private_import_is_found() -> None:
    text = (
        ">>> from prowess.tools.toolset import Only\nimport prowess.stores.sqlite\nfrom prowess.ports import Nothing\n"
    )
    assert private_imports(text) == ["prowess.tools.toolset", "prowess.stores.sqlite", "prowess.ports.Nothing"]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_exported_name_is_there(name: str) -> None:
    module = importlib.import_module(name)
    for each in getattr(module, "__all__", ()):
        assert getattr(module, each) is not None


def test_protocols_are_imported_without_what_they_are_implemented_by() -> None:
    script = (
        "import sys, prowess.ports, prowess.events\n"
        "private = ('workspace', 'stores', 'records', 'tools', 'runtime', 'agent', 'models')\n"
        "print([name for name in sys.modules if name.split('.')[1:2] and name.split('.')[0] == 'prowess'"
        " and name.split('.')[1] in private or name == 'pydantic'])"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"
