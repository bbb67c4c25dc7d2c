"""Checks the `requires` of a skill where its scripts will run, before the first run, once for each content.

Without this check a script would fail half-way; with it the error names what is missing. A skill without `requires`
costs nothing. Programs and the Python version are found by running a small program in the workspace, because only that
gives a reliable answer.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from prowess.core.ports import Program, Workspace
from prowess.errors import WorkspaceError
from prowess.skills.requirements import missing_requirements
from prowess.tools.session_work import LoadedSkill, SessionWork
from prowess.workspace.layout import environment

_LOOK = 'for name; do command -v -- "$name" >/dev/null 2>&1 && printf "%s\\n" "$name"; done; exit 0'
_VERSION = "import json, os, sys; print(json.dumps([sys.platform, os.uname().machine, *sys.version_info[:3]]))"
_TIMEOUT_S = 20.0


class Python(NamedTuple):
    platform: str
    machine: str
    version: tuple[int, ...]


async def find_programs(names: Sequence[str], loaded: LoadedSkill, workspace: Workspace) -> frozenset[str]:
    """Returns the names of the programs that exist there."""
    if not names:
        return frozenset()
    said = await _ask(loaded, workspace, ["sh", "-c", _LOOK, "sh", *names])
    return frozenset(said.splitlines())


async def find_python(loaded: LoadedSkill, workspace: Workspace) -> Python | None:
    """Finds the default Python of the workspace. None if there is no Python."""
    if not workspace.python:
        return None
    argv = [workspace.python, "-I", "-S", "-c", _VERSION]
    said = await _ask(loaded, workspace, argv)
    platform, machine, *version = json.loads(said)
    return Python(platform, machine, tuple(version))


async def _ask(loaded: LoadedSkill, workspace: Workspace, argv: Sequence[str]) -> str:
    """Runs a small program beside the skill, and returns its output."""
    run = f"look-{secrets.token_hex(6)}"
    folder = loaded.folder
    await workspace.stage(loaded.tree, folder)
    env = dict(workspace.environment)
    env |= environment(workspace.layout, skill=folder, run=run)
    cwd = f"skills/{folder}"
    program = Program(argv=argv, skill=folder, run=run, cwd=cwd, env=env, timeout_s=_TIMEOUT_S)
    said = bytearray()
    ended = await workspace.run(program, said.extend)
    _forget(f"{workspace.layout.root}/runs/{run}")
    if ended.exit_code != 0:
        message = "The place where scripts run could not be looked at."
        raise WorkspaceError(message, op="look", code="probe-failed", hint="Try again.")
    return said.decode("utf-8", "replace")


def _forget(folder: str) -> None:
    try:
        os.rmdir(folder)
    except OSError:
        pass


_HINTS = {
    "(program)": "install the program where scripts run (prowess doctor --workspace says where that is)",
    "(environment)": "give the value: [secrets] NAME = 'env:NAME' in the configuration, and NAME in your environment",
    "(skill)": "load the other skill first",
    "(Python)": "use an executor with that version",
    "(platform)": "run it on such a machine",
}


async def check_present(work: SessionWork, loaded: LoadedSkill, workspace: Workspace, env: Mapping[str, str]) -> None:
    """Raises `requires-missing` if the skill needs what is not there. Remembers skills that have all they need."""
    skill = loaded.skill
    controls = skill.entry.controls
    if not controls.requires or skill.digest in work.fit:
        return
    wanted = dict(controls.requires)
    programs = await find_programs(wanted.get("bins", ()), loaded, workspace)
    version: tuple[int, ...] = ()
    platform = None
    if "python" in wanted or "platforms" in wanted:
        python = await find_python(loaded, workspace)
        if python is not None:
            version = python.version
            platform = python.platform

    def has_variable(name: str) -> bool:
        return bool(env.get(name))

    missing = missing_requirements(
        controls,
        {},
        _names_in_use(work).__contains__,
        has_program=programs.__contains__,
        has_variable=has_variable,
        python=version,
        platform=platform,
    )
    if missing:
        raise _requires_missing(skill.name, missing)
    work.fit.add(skill.digest)


def _names_in_use(work: SessionWork) -> set[str]:
    """Names and ids of the loaded skills."""
    names: set[str] = set()
    for each in work.loaded.values():
        names.add(each.skill.name)
        names.add(each.skill.entry.id)
    return names


def _requires_missing(name: str, missing: Sequence[str]) -> WorkspaceError:
    hints: dict[str, None] = {}  # each hint once, in the order of what is missing
    for item in missing:
        for end, text in _HINTS.items():
            if item.endswith(end):
                hints[text] = None
    listed = ", ".join(missing)
    message = f"The skill '{name}' needs what is not here: {listed}."
    hint = "; ".join(hints)
    return WorkspaceError(message, op="preflight", code="requires-missing", hint=f"{hint}.")
