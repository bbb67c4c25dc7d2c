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
    return frozenset((await _ask(loaded, workspace, ["sh", "-c", _LOOK, "sh", *names])).splitlines())


async def find_python(loaded: LoadedSkill, workspace: Workspace) -> Python | None:
    """Finds the default Python of the workspace. None if there is no Python."""
    if not workspace.python:
        return None
    said = await _ask(loaded, workspace, [workspace.python, "-I", "-S", "-c", _VERSION])
    platform, machine, *version = json.loads(said)
    return Python(platform, machine, tuple(version))


async def _ask(loaded: LoadedSkill, workspace: Workspace, argv: Sequence[str]) -> str:
    run = f"look-{secrets.token_hex(6)}"
    await workspace.stage(loaded.tree, loaded.folder)
    program = Program(
        argv=argv,
        skill=loaded.folder,
        run=run,
        cwd=f"skills/{loaded.folder}",
        env={**workspace.environment, **environment(workspace.layout, skill=loaded.folder, run=run)},
        timeout_s=_TIMEOUT_S,
    )
    said = bytearray()
    ended = await workspace.run(program, said.extend)
    _forget(f"{workspace.layout.root}/runs/{run}")
    if ended.exit_code != 0:
        raise WorkspaceError(
            "The place where scripts run could not be looked at.", op="look", code="probe-failed", hint="Try again."
        )
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
    controls = loaded.skill.entry.controls
    if not controls.requires or loaded.skill.digest in work.fit:
        return
    wanted = dict(controls.requires)
    programs = await find_programs(wanted.get("bins", ()), loaded, workspace)
    python = await find_python(loaded, workspace) if "python" in wanted or "platforms" in wanted else None
    missing = missing_requirements(
        controls,
        {},
        lambda name: any(name in (each.skill.name, each.skill.entry.id) for each in work.loaded.values()),
        has_program=programs.__contains__,
        has_variable=lambda name: bool(env.get(name)),
        python=python.version if python else (),
        platform=python.platform if python else None,
    )
    if missing:
        hints = [text for item in missing for end, text in _HINTS.items() if item.endswith(end)]
        raise WorkspaceError(
            f"The skill '{loaded.skill.name}' needs what is not here: {', '.join(missing)}.",
            op="preflight",
            code="requires-missing",
            hint=f"{'; '.join(dict.fromkeys(hints))}.",
        )
    work.fit.add(loaded.skill.digest)
