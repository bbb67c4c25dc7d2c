"""Values that are needed to list skills. They are public in `prowess.ports`.

They are named tuples in a module of their own, because `prowess list` creates these classes at every start. A dataclass
takes five times as long to create, and listing does not need the values of a run.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Severity = Literal["error", "warning", "info"]
Source = Literal["explicit", "project", "user", "url", "mcp", "builtin"]
Status = Literal["active", "untrusted", "manual", "shadowed", "hidden", "off", "invalid", "denied"]
Mode = Literal["pin", "auto", "name-only", "manual", "off"]
Trigger = Literal["model", "user", "caller", "path", "nested"]


class Finding(NamedTuple):
    """Fact about a file that a person should know: the problem, its place, and a hint."""

    code: str
    severity: Severity
    path: str
    message: str
    line: int | None = None
    hint: str | None = None


class SkillRef(NamedTuple):
    """Identity of a skill. A name is only a request; a ref with a digest names exact content."""

    id: str
    name: str
    source: Source
    digest: str | None = None


class TokenUse(NamedTuple):
    budget: int
    used: int
    exact: bool = False


class CatalogPlan(NamedTuple):
    """Plan of the catalog that the model is shown. Every visible skill is in exactly one of the lists."""

    tokens: TokenUse
    shown: tuple[str, ...] = ()
    name_only: tuple[str, ...] = ()
    searchable: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
