"""What the front matter of one skill says, as far as discovery needs it. Values only; `fields` reads them, `model`
carries them.
"""

from __future__ import annotations

from typing import NamedTuple

from prowess.core.catalog_values import Mode
from prowess.core.findings import Note


class Controls(NamedTuple):
    """What the author says about how the skill may be used."""

    mode: Mode = "auto"
    allowed_tools: tuple[str, ...] | None = None  # None: not declared; empty: none at all
    run_mode: str = "inline"
    role: str | None = None
    user_invocable: bool = True
    argument_hint: str | None = None
    paths: tuple[str, ...] = ()
    requires: tuple[tuple[str, tuple[str, ...]], ...] = ()


class Head(NamedTuple):
    """What the front matter of one skill says, as far as discovery needs it."""

    name: str | None  # as declared
    description: str | None
    version: str | None = None
    keywords: tuple[str, ...] = ()
    controls: Controls = Controls()
    notes: tuple[Note, ...] = ()
