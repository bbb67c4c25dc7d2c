"""The packages that a script declares, found or installed for the Python that will run it.

On this machine that is an environment with an interpreter of its own; for a container, which has another Python, a
folder for PYTHONPATH. Installing is a capability that was granted before `install` is called. Whoever runs a script
holds its environment meanwhile, so that nobody cleans it away.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import NamedTuple

from prowess.errors import WorkspaceError
from prowess.ports import Workspace
from prowess.tools.inside import Python, find_python
from prowess.tools.work import Loaded, Work
from prowess.workspace.script.block import ScriptBlock, python_fits
from prowess.workspace.script.dependencies import Built, Environments
from prowess.workspace.script.environments import environment_removed

_TRIES = 100
_WAIT_S = 0.05


class Wanted(NamedTuple):
    """Which packages, for which skill and which Python."""

    block: ScriptBlock
    skill: str  # its digest
    python: str  # by path, for this machine
    elsewhere: Python | None  # what is known of one that is not of this machine

    @property
    def what(self) -> tuple[str, str]:
        return self.skill, self.block.digest


async def wanted_for(block: ScriptBlock, work: Work, loaded: Loaded, workspace: Workspace) -> Wanted:
    if workspace.isolation.executor != "container":
        return Wanted(block, loaded.tree.digest, workspace.python, None)
    key = workspace.python
    if key not in work.pythons:
        work.pythons[key] = await find_python(loaded, workspace)
    return Wanted(block, loaded.tree.digest, key, work.pythons[key])


def find(environments: Environments, wanted: Wanted) -> Built | None:
    """What was installed before and granted to this skill; asks nobody, and works offline."""
    built = _find(environments, wanted)
    return built if built is not None and environments.is_granted(built, wanted.skill) else None


def _find(environments: Environments, wanted: Wanted) -> Built | None:
    there = wanted.elsewhere
    if there is None:
        return environments.find(wanted.block, wanted.python)
    return environments.find_target(wanted.block, version=_version(there), machine=there.machine)


async def hold(environments: Environments, wanted: Wanted, held: ExitStack, *, granted: bool) -> Built:
    """Found or installed, and not removed before `held` is closed. What was there when it was decided, and is not any
    more, is not installed without being granted."""
    for _ in range(_TRIES):
        built = _find(environments, wanted) if granted else find(environments, wanted)
        if built is None and not granted:
            break
        built = built or await install(environments, wanted)
        if environments.hold(built, held):
            if granted:
                environments.keep_grant(built, wanted.skill)
            return built
        await asyncio.sleep(_WAIT_S)  # somebody looks whether it is in use, or removes it
    raise environment_removed()


async def install(environments: Environments, wanted: Wanted) -> Built:
    there = wanted.elsewhere
    if there is not None:
        return await environments.build_target(wanted.block, version=_version(there), machine=there.machine)
    if not wanted.python:
        raise WorkspaceError(
            "There is no Python where scripts run, so nothing can be installed for it.",
            op="dependencies",
            code="no-python",
            hint="See: prowess doctor --workspace",
        )
    return await environments.build(wanted.block, wanted.python)


async def refuse_other_python(block: ScriptBlock, loaded: Loaded, workspace: Workspace) -> None:
    """A script may need a version of Python and nothing else."""
    if not block.requires_python:
        return
    python = await find_python(loaded, workspace)
    if python is None or not python_fits(block.requires_python, python.version):
        there = "none" if python is None else _version(python)
        raise WorkspaceError(
            f"The script needs Python {block.requires_python}, and where it runs there is {there}.",
            op="dependencies",
            code="python-too-old",
            hint="See: prowess doctor --workspace. Another executor may have it.",
        )


def environment_of(built: Built) -> dict[str, str]:
    """What a script has to be told to find the packages."""
    return {} if built.python else {"PYTHONPATH": built.path}


def _version(python: Python) -> str:
    return ".".join(map(str, python.version))
