"""Options of a Toolkit: access to skills, policy, style, and people to ask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from prowess.core.events import ApprovalAnswered, ProtocolName
from prowess.core.ports import Approver, Asker, Policy
from prowess.core.tool_table import Profile
from prowess.core.values import CatalogPlan, Trigger
from prowess.policy.decision import PolicyContext
from prowess.policy.rules import Rules
from prowess.skills.catalog import Catalog
from prowess.skills.render import Format
from prowess.skills.skill import Entry, Skill

Offer = Literal["skills", "files"] | Sequence[str]  # skill tools, these and file tools, or names
Search = Callable[[str, int], Sequence[tuple[Entry, float]]]


class SkillAccess(NamedTuple):
    """Access to the skill library. Called each time, because the library can change during a session."""

    catalog: Callable[[], Catalog]
    load: Callable[[str, str | None, Trigger], Skill]
    plan: Callable[[], CatalogPlan]
    search: Search
    pinned: Callable[[str, str], Skill | None] = lambda id, digest: None  # finds content that was published before


class StandingApprovals(Protocol):
    """Permanent approvals by a person: a capability for exactly one content of a skill."""

    def find(self, skill: Skill, capability: str) -> ApprovalAnswered | None: ...

    def changed(self, skill: Skill, capability: str) -> dict[str, Any]:
        """Returns the differences from the content that was approved before. Empty if none was approved."""
        ...

    def remember(self, skill: Skill, capability: str) -> None: ...

    def grants(self, skill: Skill) -> bool:
        """True if `allowed-tools` of this skill may also grant permissions."""
        ...


class KitPolicy(NamedTuple):
    """Policy of a kit. Rules are read at each call, because a person may change them during a run."""

    surroundings: PolicyContext = PolicyContext()
    rules: Callable[[], Sequence[Rules]] = tuple
    objects: Sequence[Policy] = ()  # asked after the rules
    approvals: StandingApprovals | None = None
    redact: Sequence[str] = ()
    on_ask: Literal["wait", "deny"] = "wait"
    ask_unisolated: bool = False  # ask about calls that policy allows to run without isolation


class KitStyle(NamedTuple):
    """Options for the presentation and use of skills."""

    profile: Profile = "default"
    instructions: str = ""
    guidance: str | None = None
    max_loaded: int | None = None
    max_bodies_per_turn: int = 2
    can_run: bool = True
    protocol: ProtocolName = "tools"
    offer: Offer | None = None  # tools for the model of another agent; None: those of the profile, and file tools
    prefix: str = ""  # of the names that this model uses; the kit itself uses plain names
    catalog_format: Format = "xml"
    require_load: bool = False  # the model has to load a skill before it uses it


class HumanChannels(NamedTuple):
    """People who approve calls and answer questions."""

    approver: Approver | None = None
    asker: Asker | None = None
