"""Programs that see this machine under its own paths, since nothing is bound for them: their skill is a private copy.

What is put around such a program, if anything, is the business of `enclose`, which gets to know where everything is.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

from prowess._internal.paths import is_inside
from prowess.core.ports import Program
from prowess.workspace.executors.guards import leaving_cwd, missing_cwd
from prowess.workspace.executors.isolation_report import system_environment
from prowess.workspace.executors.private_copies import OWN, Copies
from prowess.workspace.executors.workspace import Ready
from prowess.workspace.layout import Layout
from prowess.workspace.process.command import Command
from prowess.workspace.session_folder import Place
from prowess.workspace.skill_trees import Tree


class Here(NamedTuple):
    """What there is of one run, on the host."""

    layout: Layout
    cwd: str
    skill: str
    own: tuple[str, ...]  # folders in the skill that the script can write to
    tmp: str


class Unbound:
    """See opened.Enclosure."""

    own_tmp = True

    def __init__(
        self,
        place: Place,
        *,
        python: str,
        enclose: Callable[[Program, Here], Command],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.layout = Layout(place.root, place.root)
        self.python = python
        usual = system_environment(python, os.path.join(place.path, "tmp"))
        self.environment: Mapping[str, str] = {**usual, **(environment or {})}
        self._enclose, self._copies = enclose, Copies(place)

    async def stage(self, tree: Tree, name: str) -> None:
        if not self._copies.is_staged(tree, name):
            await asyncio.to_thread(self._copies.stage, tree, name)

    @asynccontextmanager
    async def enclosed(self, program: Program, tmp: str) -> AsyncIterator[Ready]:
        skill = self._copies.path(program.skill)
        own = tuple(os.path.join(skill, folder) for folder in OWN)
        problems = [await self._copies.agree_on_inputs(program.skill)]
        try:
            here = Here(layout=self.layout, cwd=_resolved_cwd(self.layout, program), skill=skill, own=own, tmp=tmp)
            yield Ready(command=self._enclose(program, here), problems=problems)
        finally:
            problems.append(await self._copies.agree_on_inputs(program.skill))


def _resolved_cwd(layout: Layout, program: Program) -> str:
    """Where the program starts, on the host. It is looked at now: what a link leads to may have changed."""
    path = os.path.realpath(layout.host(program.cwd))
    if not is_inside(os.path.realpath(layout.root), path):
        raise leaving_cwd(program.cwd)
    if not os.path.isdir(path):
        raise missing_cwd(program.cwd)
    return path
