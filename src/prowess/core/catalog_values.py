"""The nouns of the library: the few values that listing skills needs. They are public as `prowess.ports`.

They are named tuples and stand apart, because `prowess list` makes them at every start: a dataclass takes five times as
long to make, and those of a run are not needed to list.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Severity = Literal["error", "warning", "info"]
Source = Literal["explicit", "project", "user", "url", "mcp", "builtin"]
Status = Literal["active", "untrusted", "manual", "shadowed", "hidden", "off", "invalid"]
Mode = Literal["pin", "auto", "name-only", "manual", "off"]
Trigger = Literal["model", "user", "caller", "path", "nested"]


class Finding(NamedTuple):
    """Something true about a file that a person should know: what, where, and what to do about it."""

    code: str
    severity: Severity
    path: str
    message: str
    line: int | None = None
    hint: str | None = None


class SkillRef(NamedTuple):
    """Which skill, exactly: a name is a request, a ref with a digest is an identity."""

    id: str
    name: str
    source: Source
    digest: str | None = None


class TokenUse(NamedTuple):
    budget: int
    used: int
    exact: bool = False


class CatalogPlan(NamedTuple):
    """What the model is shown of the library, and where the rest went. Every visible skill is in exactly one list."""

    tokens: TokenUse
    shown: tuple[str, ...] = ()
    name_only: tuple[str, ...] = ()
    searchable: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
