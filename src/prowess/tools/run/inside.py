"""Small questions to the place where scripts run: which programs there are, and which Python.

They are asked by running something there, because that is the only answer that cannot be wrong.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Sequence
from typing import NamedTuple

from prowess.core.ports import Program, Workspace
from prowess.errors import WorkspaceError
from prowess.tools.session_work import Loaded
from prowess.workspace.layout import environment

_LOOK = 'for name; do command -v -- "$name" >/dev/null 2>&1 && printf "%s\\n" "$name"; done; exit 0'
_VERSION = "import json, os, sys; print(json.dumps([sys.platform, os.uname().machine, *sys.version_info[:3]]))"
_TIMEOUT_S = 20.0


class Python(NamedTuple):
    platform: str
    machine: str
    version: tuple[int, ...]


async def find_programs(names: Sequence[str], loaded: Loaded, workspace: Workspace) -> frozenset[str]:
    """Those of the names that are there."""
    if not names:
        return frozenset()
    return frozenset((await _ask(loaded, workspace, ["sh", "-c", _LOOK, "sh", *names])).splitlines())


async def find_python(loaded: Loaded, workspace: Workspace) -> Python | None:
    """The interpreter for scripts that name none; None when there is none."""
    if not workspace.python:
        return None
    said = await _ask(loaded, workspace, [workspace.python, "-I", "-S", "-c", _VERSION])
    platform, machine, *version = json.loads(said)
    return Python(platform, machine, tuple(version))


async def _ask(loaded: Loaded, workspace: Workspace, argv: Sequence[str]) -> str:
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
            "The place where scripts run could not be looked at.", op="look", code="look-failed", hint="Try again."
        )
    return said.decode("utf-8", "replace")


def _forget(folder: str) -> None:
    try:
        os.rmdir(folder)
    except OSError:
        pass
