"""Values of a skill's front matter, as far as discovery needs it.

Stands apart from `metadata`, which reads them: a list of known skills imports no reader of front matter.
"""

from __future__ import annotations

from typing import NamedTuple

from prowess.core.catalog_values import Mode
from prowess.core.findings import Note


class Controls(NamedTuple):
    """Author's settings for how the skill may be used."""

    mode: Mode = "auto"
    allowed_tools: tuple[str, ...] | None = None  # None: not declared; empty: no tools allowed
    run_mode: str = "inline"
    role: str | None = None
    user_invocable: bool = True
    argument_hint: str | None = None
    paths: tuple[str, ...] = ()
    requires: tuple[tuple[str, tuple[str, ...]], ...] = ()


class SkillHead(NamedTuple):
    """Front matter of one skill, as far as discovery needs it."""

    name: str | None  # as declared
    description: str | None
    version: str | None = None
    keywords: tuple[str, ...] = ()
    controls: Controls = Controls()
    notes: tuple[Note, ...] = ()
