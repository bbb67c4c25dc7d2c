"""Checks a skill's declared requirements, on this machine or where its scripts will run.

The check runs before the work starts. It does not promise that the work will succeed.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from prowess.skills.head import Controls

_PLATFORMS = {"linux": "linux", "darwin": "macos", "win32": "windows"}
_ALIASES = {"mac": "macos", "osx": "macos", "darwin": "macos", "win": "windows", "win32": "windows"}


def missing_requirements(
    controls: Controls,
    environ: Mapping[str, str],
    has_skill: Callable[[str], bool] = lambda name: True,
    *,
    has_program: Callable[[str], bool] | None = None,
    has_variable: Callable[[str], bool] | None = None,
    python: tuple[int, ...] | None = None,
    platform: str | None = None,
) -> list[str]:
    """Lists requirements that are missing: `ffmpeg (program)`, `API_KEY (environment)`, `windows (platform)`, `>=3.13
    (Python)`.

    Before a run, pass what the place of the run offers: its programs, the variables and secrets that the script gets,
    the version of its interpreter (`()` when there is none) and its `sys.platform`. Anything left out is taken from
    this machine.
    """
    if has_program is None:
        search_path = environ.get("PATH")
        has_program = partial(_is_on_path, search_path)
    if has_variable is None:
        has_variable = partial(_is_set, environ)
    if python is None:
        python = sys.version_info[:3]
    missing: list[str] = []
    for kind, items in controls.requires:
        if kind == "bins":
            missing += [f"{name} (program)" for name in items if not has_program(name)]
        elif kind == "env":
            missing += [f"{name} (environment)" for name in items if not has_variable(name)]
        elif kind == "platforms":
            if items and not _platform_fits(items, platform or sys.platform):
                missing.append(f"{' or '.join(items)} (platform)")
        elif kind == "skills":
            missing += [f"{name} (skill)" for name in items if not has_skill(name)]
        elif kind == "python":
            missing += [f"{item} (Python)" for item in items if not _python_fits(item, python)]
    return missing


def _is_on_path(search_path: str | None, program: str) -> bool:
    """True when a program is in one of the folders of PATH."""
    return shutil.which(program, path=search_path) is not None


def _is_set(environ: Mapping[str, str], name: str) -> bool:
    return bool(environ.get(name))


def _platform_fits(wanted: Iterable[str], platform: str) -> bool:
    """True when `sys.platform` is one of the wanted systems, by any of their names."""
    here = _PLATFORMS.get(platform, platform)
    for name in wanted:
        lowered = name.lower()
        if _ALIASES.get(lowered, lowered) == here:
            return True
    return False


def _python_fits(wanted: str, here: tuple[int, ...]) -> bool:
    """True when a version such as `3.12` or `>=3.11,<4` fits, compared as numbers. Text that is no version is a
    package; only a run can check that, so it counts as fitting."""
    clauses = wanted.split(",")
    return all(_clause_fits(clause.strip(), here) for clause in clauses)


def _clause_fits(clause: str, here: tuple[int, ...]) -> bool:
    operator = ">="
    for sign in (">=", "<=", "==", ">", "<"):
        if clause.startswith(sign):
            operator = sign
            break
    text = clause.removeprefix(operator).strip()
    parts = text.removesuffix(".*").split(".")
    if not all(part.isdigit() for part in parts):
        return True
    if not here:
        return False
    version = tuple(map(int, parts))
    here = here[: len(version)]
    if operator == ">=":
        return here >= version
    if operator == "<=":
        return here <= version
    if operator == ">":
        return here > version
    if operator == "<":
        return here < version
    return here == version
