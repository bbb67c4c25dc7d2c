"""Fixture folders become libraries: what git can hold is copied, the rest is made by the folder's `make.py`."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

FIXTURES = Path(__file__).parent / "fixtures"


def build_library(recipe: Path, folder: Path, *, neighbour: str | None = None) -> Path:
    """The library of a recipe, at `folder`, with a copy of another fixture beside its skills."""
    shutil.copytree(recipe, folder, symlinks=True, ignore=shutil.ignore_patterns("expect.toml", "make.py"))
    if neighbour:
        shutil.copytree(FIXTURES / neighbour, folder / neighbour)
    if make := load_maker(recipe).get("make"):
        make(folder)
    return folder


def load_maker(recipe: Path) -> dict[str, Any]:
    """What `make.py` defines: make(folder) builds, findings(folder) opens the door through which a finding is seen."""
    path = recipe / "make.py"
    names: dict[str, Any] = {}
    if path.exists():
        exec(compile(path.read_text(encoding="utf-8"), path, "exec"), names)
    return names


def load_expectations(recipe: Path) -> SimpleNamespace:
    return SimpleNamespace(**tomllib.loads((recipe / "expect.toml").read_text(encoding="utf-8")))
