"""Whether this machine has what a skill says it needs. A look before the work starts, not a promise that it will
succeed.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping

from prowess.skills.head import Controls

_PLATFORMS = {"linux": "linux", "darwin": "macos", "win32": "windows"}
_ALIASES = {"mac": "macos", "osx": "macos", "darwin": "macos", "win": "windows", "win32": "windows"}


def missing_requirements(
    controls: Controls, environ: Mapping[str, str], has_skill: Callable[[str], bool] = lambda name: True
) -> list[str]:
    """What is required and not here: `ffmpeg (program)`, `API_KEY (environment)`, `windows (platform)`, `>=3.13
    (Python)`.
    """
    missing: list[str] = []
    for kind, items in controls.requires:
        if kind == "bins":
            missing += [f"{name} (program)" for name in items if shutil.which(name, path=environ.get("PATH")) is None]
        elif kind == "env":
            missing += [f"{name} (environment)" for name in items if not environ.get(name)]
        elif kind == "platforms" and items:
            here = _PLATFORMS.get(sys.platform, sys.platform)
            if here not in {_ALIASES.get(item.lower(), item.lower()) for item in items}:
                missing.append(f"{' or '.join(items)} (platform)")
        elif kind == "skills":
            missing += [f"{name} (skill)" for name in items if not has_skill(name)]
        elif kind == "python":
            missing += [f"{item} (Python)" for item in items if not _python_fits(item)]
    return missing


def _python_fits(wanted: str) -> bool:
    """`3.12`, `>=3.11`, `<4`: compared as numbers. What is not a version is a package, which only a run can tell."""
    text = wanted.strip()
    operator = next((op for op in (">=", "<=", "==", ">", "<") if text.startswith(op)), ">=")
    parts = text.removeprefix(operator).strip().split(".")
    if not all(part.isdigit() for part in parts):
        return True
    version = tuple(int(part) for part in parts)
    here = sys.version_info[: len(version)]
    return {
        ">=": here >= version,
        "<=": here <= version,
        "==": here == version,
        ">": here > version,
        "<": here < version,
    }[operator]
