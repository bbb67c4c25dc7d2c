"""What a kit is given by whoever opens it: skills, a policy, a style, and people to ask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from prowess.core.events import ApprovalAnswered, ProtocolName
from prowess.core.ports import Approver, Asker
from prowess.core.values import CatalogPlan, Trigger
from prowess.policy.decision import PolicyContext
from prowess.policy.rules import Rules
from prowess.skills.catalog import Catalog
from prowess.skills.skill import Entry, Skill
from prowess.tools.profiles import Profile

Search = Callable[[str, int], Sequence[tuple[Entry, float]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillAccess:
    """Where a kit gets skills from; each is asked anew, because a library can change while somebody talks."""

    catalog: Callable[[], Catalog]
    load: Callable[[str, str | None, Trigger], Skill]
    plan: Callable[[], CatalogPlan]
    search: Search
    pinned: Callable[[str, str], Skill | None] = lambda id, digest: None  # content that was published before


class StandingApprovals(Protocol):
    """What a person has approved for good: a capability of exactly this content of a skill."""

    def find(self, skill: Skill, capability: str) -> ApprovalAnswered | None: ...

    def changed(self, skill: Skill, capability: str) -> dict[str, Any]:
        """What is different from the content that was approved before; empty when none was."""
        ...

    def remember(self, skill: Skill, capability: str) -> None: ...

    def grants(self, skill: Skill) -> bool:
        """Whether its `allowed-tools` may also grant."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KitPolicy:
    """What decides about calls, besides the skills themselves. Rules are asked for at each call, because a person may
    change them while a run goes on."""

    surroundings: PolicyContext = field(default_factory=PolicyContext)
    rules: Callable[[], Sequence[Rules]] = tuple
    approvals: StandingApprovals | None = None
    redact: Sequence[str] = ()
    on_ask: Literal["wait", "deny"] = "wait"
    ask_unisolated: bool = False  # what is allowed without isolation is asked about


@dataclass(frozen=True, slots=True, kw_only=True)
class KitStyle:
    """How skills are shown and used."""

    profile: Profile = "default"
    instructions: str = ""
    guidance: str | None = None
    max_loaded: int | None = None
    max_bodies_per_turn: int = 2
    can_run: bool = True
    protocol: ProtocolName = "tools"
    files: bool | None = None  # offer file tools; None: not in the lean profile


@dataclass(frozen=True, slots=True, kw_only=True)
class HumanChannels:
    approver: Approver | None = None
    asker: Asker | None = None
