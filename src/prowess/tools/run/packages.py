"""Finds or installs the Python packages that a run needs, for the Python that will run it.

A script declares packages in its PEP 723 block, the configuration names them for a skill, and a call asks for those
that an earlier run lacked.

On this machine the packages go into an environment with its own interpreter. For a container, which has another Python,
they go into a folder for PYTHONPATH. Installing is a capability that is granted before `install` is called. A run holds
its environment, so that no clean-up removes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Literal, NamedTuple

from prowess.core.ports import Workspace
from prowess.errors import ConfigError, WorkspaceError
from prowess.skills.name_patterns import matches_pattern
from prowess.skills.skill import Entry
from prowess.tools.run.requirements import Python, find_python
from prowess.tools.session_work import LoadedSkill, SessionWork
from prowess.workspace.scripts.environment_store import environment_removed
from prowess.workspace.scripts.environments import Built, Environments
from prowess.workspace.scripts.pep723 import ScriptBlock, parse_requirements, python_fits

_TRIES = 100
_WAIT_S = 0.05


class Packages(NamedTuple):
    """Packages that a run needs, and the least trusted party that asks for them."""

    block: ScriptBlock
    by: Literal["configuration", "script", "call"]
    named: tuple[str, ...] = ()  # packages that the script does not declare
    added: tuple[str, ...] = ()  # the part of `named` that this call or an earlier one asked for
    declared: bool = False  # the script has its own list: it sees only those packages


class WantedPackages(NamedTuple):
    """Request for packages: for one skill and one Python."""

    block: ScriptBlock
    added: tuple[str, ...]
    skill: str  # its digest
    python: str  # path of the interpreter on this machine
    elsewhere: Python | None  # facts about a Python that is not on this machine

    @property
    def what(self) -> tuple[str, str]:
        """Key of the request, without the interpreter."""
        return self.skill, self.block.digest


def configured_packages(find: Callable[[], Mapping[str, Sequence[str]]]) -> Callable[[Entry], Sequence[str]]:
    """Returns a function: skill -> the packages that [skills.dependencies] names for it, from all matching patterns.
    It calls `find` each time, because trust in a file can be revoked. An invalid package is an error at once."""

    def parsed() -> dict[str, tuple[str, ...]]:
        requirements: dict[str, tuple[str, ...]] = {}
        try:
            for pattern, packages in find().items():
                place = f"skills.dependencies.{pattern}"
                requirements[pattern] = parse_requirements(packages, place)
        except WorkspaceError as error:
            raise ConfigError(error.message, code="config-dependency", hint=error.hint) from error
        return requirements

    def packages_of(entry: Entry) -> Sequence[str]:
        found: set[str] = set()
        for pattern, packages in parsed().items():
            if matches_pattern(pattern, entry):
                found.update(packages)
        return sorted(found)

    parsed()
    return packages_of


def find_packages(
    environments: Environments,
    work: SessionWork,
    loaded: LoadedSkill,
    block: ScriptBlock | None,
    install: Sequence[str],
) -> Packages | None:
    """Collects the packages that a run needs. None if it needs none."""
    digest = loaded.tree.digest
    block = block or ScriptBlock()
    configured = set(work.backend.packages(loaded.skill.entry))
    asked = set(parse_requirements(install, "install"))
    asked.update(environments.find_added(digest))
    asked.update(work.added.get(digest, ()))
    added = asked - configured
    named = configured | added
    declared = set(block.dependencies)
    every = declared | named
    if not every:
        return None
    by: Literal["configuration", "script", "call"] = "call"
    if every <= configured:
        by = "configuration"
    elif every <= configured | declared:
        by = "script"
    block = block._replace(dependencies=tuple(sorted(every)))
    return Packages(block, by, tuple(sorted(named)), tuple(sorted(added)), bool(declared))


async def wanted_for(
    packages: Packages, work: SessionWork, loaded: LoadedSkill, workspace: Workspace
) -> WantedPackages:
    """Adds to the packages the Python that they are for. The Python of a container is asked once."""
    python = workspace.python
    elsewhere = None
    if workspace.isolation.kind == "container":
        if python not in work.pythons:
            work.pythons[python] = await find_python(loaded, workspace)
        elsewhere = work.pythons[python]
    return WantedPackages(packages.block, packages.added, loaded.tree.digest, python, elsewhere)


def find(environments: Environments, wanted: WantedPackages) -> Built | None:
    """Finds packages that are installed and that a person granted to this skill. Asks nobody and works offline. Grants
    of rules or the configuration do not count here: they are decided each time, because they may change."""
    built = _find(environments, wanted)
    if built is None or not environments.is_granted(built, wanted.skill):
        return None
    return built


def _find(environments: Environments, wanted: WantedPackages) -> Built | None:
    there = wanted.elsewhere
    if there is None:
        return environments.find(wanted.block, wanted.python)
    block = wanted.block
    version = _version(there)
    return environments.find_target(block, version=version, machine=there.machine)


async def hold(
    environments: Environments, wanted: WantedPackages, held: ExitStack, *, granted: bool, by_person: bool
) -> Built:
    """Finds or installs packages, and holds them until `held` is closed. Packages that were removed after the decision
    are not installed again without a grant. A grant of a person is kept for later runs."""
    for _ in range(_TRIES):
        built = _find(environments, wanted) if granted else find(environments, wanted)
        if built is None and not granted:
            break
        built = built or await install(environments, wanted)
        if environments.hold(built, held):
            if granted and by_person:
                environments.keep_grant(built, wanted.skill, wanted.added)
            return built
        await asyncio.sleep(_WAIT_S)  # another process checks if it is in use, or removes it
    raise environment_removed()


async def install(environments: Environments, wanted: WantedPackages) -> Built:
    there = wanted.elsewhere
    if there is not None:
        version = _version(there)
        return await environments.build_target(wanted.block, version=version, machine=there.machine)
    if not wanted.python:
        message = "There is no Python where scripts run, so nothing can be installed for it."
        hint = "See: prowess doctor --workspace"
        raise WorkspaceError(message, op="dependencies", code="no-python", hint=hint)
    return await environments.build(wanted.block, wanted.python)


async def check_python(block: ScriptBlock, loaded: LoadedSkill, workspace: Workspace) -> None:
    """Checks `requires-python` of a script that declares no packages."""
    wanted = block.requires_python
    if not wanted:
        return
    there = "none"
    python = await find_python(loaded, workspace)
    if python is not None:
        if python_fits(wanted, python.version):
            return
        there = _version(python)
    message = f"The script needs Python {wanted}, and where it runs there is {there}."
    hint = "See: prowess doctor --workspace. Another executor may have it."
    raise WorkspaceError(message, op="dependencies", code="python-too-old", hint=hint)


def environment_of(built: Built, *, declared: bool) -> dict[str, str]:
    """Variables that a run needs to find the packages. A script without its own list keeps its interpreter and that
    interpreter's packages, but these packages come first."""
    if built.python and declared:
        return {}
    return {"PYTHONPATH": built.site}


def _version(python: Python) -> str:
    numbers = map(str, python.version)
    return ".".join(numbers)
