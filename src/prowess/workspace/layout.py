"""Folders of a session's workspace (skills/ work/ out/ runs/), as host paths and as paths the script sees.

A path that leads out of the workspace is an error, never a silent fallback.
"""

from __future__ import annotations

import posixpath
import re
from typing import NamedTuple

from prowess._internal.paths import check_safe_name
from prowess.errors import PathEscape, WorkspaceError

FOLDERS = ("skills", "work", "out", "runs")
# Names in a staged skill that lead to the workspace, so that a script can write `out/report.md` from its skill folder.
LEADS = {"out": "out", "work": "work", "inputs": "work/inputs"}
VARIABLES = {
    "WORKSPACE_DIR": "",
    "SKILLS_DIR": "skills",
    "WORK_DIR": "work",
    "OUTPUT_DIR": "out",
    "RUN_DIR": "runs",
}
_VARIABLE = re.compile(r"^\$(?:\{(?P<braced>[A-Z_]+)\}|(?P<plain>[A-Z_]+))(?P<rest>/.*)?$")
_SAFE_NAME = re.compile(r"\w[\w.-]{0,63}")


class Layout(NamedTuple):
    """Workspace path on the host (`root`), and the path of the same folder as the script sees it (`inside`)."""

    root: str
    inside: str

    def host(self, rel: str) -> str:
        if rel:
            return f"{self.root}/{rel}"
        return self.root

    def seen(self, rel: str) -> str:
        if rel:
            return f"{self.inside}/{rel}"
        return self.inside


def environment(layout: Layout, *, skill: str, run: str) -> dict[str, str]:
    """Returns the path variables of a run. `skill` is its folder below skills/, `run` its folder below runs/."""
    variables = {name: layout.seen(rel) for name, rel in VARIABLES.items()}
    variables["RUN_DIR"] = layout.seen(f"runs/{run}")
    variables["SKILL_NAME"] = skill
    variables["SKILL_DIR"] = layout.seen(f"skills/{skill}")
    return variables


def resolve_cwd(cwd: str | None, layout: Layout, *, skill: str, run: str) -> str:
    """Returns the folder to start in, relative to the workspace.

    `cwd` is empty (the skill's folder), relative to the skill's folder, a path that begins with a variable such as
    `$WORK_DIR`, or absolute inside the workspace.
    """
    home = f"skills/{skill}"
    if not cwd or cwd == ".":
        return home
    text = _expanded(cwd, run)
    if text is not None:
        return _contained(text, cwd)
    if cwd.startswith("/"):
        if cwd == layout.inside or cwd.startswith(layout.inside + "/"):
            return _contained(cwd[len(layout.inside) :].lstrip("/"), cwd)
        raise _outside(cwd)
    return _contained(f"{home}/{cwd}", cwd)


def resolve_pattern(pattern: str) -> str:
    """Returns a glob (`out/*.txt`, `$OUTPUT_DIR/**`) relative to the workspace."""
    text = _expanded(pattern, "")
    text = pattern if text is None else text
    if text.startswith("/") or ".." in text.split("/"):
        raise _outside(pattern)
    return text.removeprefix("./")


def safe_name(name: str) -> str:
    """Returns a folder name for a skill: its name if that is safe in a path, else a hash of it."""
    if _SAFE_NAME.fullmatch(name) and name not in (".", ".."):
        return name
    from zlib import crc32

    return f"skill-{crc32(name.encode('utf-8', 'surrogateescape')):08x}"


def _expanded(text: str, run: str) -> str | None:
    if not text.startswith("$"):
        return None
    found = _VARIABLE.match(text)
    name = (found["braced"] or found["plain"]) if found else None
    if found is None or name not in VARIABLES:
        message = f"'{text}' begins with a variable that a workspace does not have."
        known = ", ".join(f"${variable}" for variable in VARIABLES)
        raise WorkspaceError(message, op="resolve", code="unknown-variable", hint=f"There are: {known}")
    base = f"runs/{run}" if name == "RUN_DIR" and run else VARIABLES[name]
    rest = found["rest"] or ""
    return posixpath.join(base, rest.lstrip("/"))


def _contained(rel: str, given: str) -> str:
    try:
        check_safe_name(rel)
    except PathEscape:
        raise _outside(given) from None
    path = posixpath.normpath(rel) if rel else ""
    if path == ".":
        return ""
    return path


def _outside(given: str) -> PathEscape:
    return PathEscape(
        f"'{given}' leads out of the workspace.",
        op="resolve",
        hint="Use a path below the skill, or one that begins with $WORK_DIR, $OUTPUT_DIR or $WORKSPACE_DIR.",
    )
