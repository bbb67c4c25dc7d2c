"""Selects the skills and tools that a model is told, and renders the system prompt: instructions, catalog, guidance.

Guidance is short, because every request pays for it, and nothing in it competes with loading the right skill. It names
only tools that are offered: actions if the model writes actions, and no scripts without an executor.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from prowess.agent.toolkit_options import KitPolicy, KitStyle, Offer, SkillAccess
from prowess.core.events import ErrorRaised, ProtocolName
from prowess.core.ports import Policy, ShownSkill
from prowess.core.tool_table import PATH_ARGUMENTS, TOOLS
from prowess.core.values import CatalogPlan, Decision, ToolSpec
from prowess.policy.decision import PolicyContext, decide
from prowess.policy.policy_objects import ask_policies
from prowess.policy.rules import PolicyQuery, Rules
from prowess.skills.catalog import Catalog
from prowess.skills.render import render_catalog, shown_names
from prowess.tools.builtin import advertised, slim

_LISTED = ("shown", "name_only", "searchable")
_MOST_CHOICES = 30  # names in a schema


class _Planned(NamedTuple):
    """Plan of an offer, and what it was made from."""

    whole: CatalogPlan
    rules: Sequence[Rules]
    plan: CatalogPlan


class SkillOffer:
    """Skills that the model is told, without those that policy denies."""

    def __init__(self, skills: SkillAccess, policy: KitPolicy, context: PolicyContext, style: KitStyle) -> None:
        self._skills = skills
        self._policy = policy
        self._context = context
        self._style = style
        self._made: _Planned | None = None
        self._problems: dict[str, ErrorRaised] = {}  # by message
        self._told: set[str] = set()

    def take_problems(self) -> list[ErrorRaised]:
        """Returns the mistakes of policy objects that were asked about a skill, each of them once."""
        new = [problem for message, problem in self._problems.items() if message not in self._told]
        self._told.update(self._problems)
        return new

    @property
    def plan(self) -> CatalogPlan:
        """Catalog plan for the current library and rules. Cached, because every turn needs it. Policy objects can
        change their mind, so they are asked each time."""
        whole = self._skills.plan()
        rules = self._policy.rules()
        objects = self._policy.objects
        made = self._made
        is_same = made is not None and made.whole is whole and made.rules is rules
        if made is not None and is_same and not objects:
            return made.plan
        plan = plan_offer(self._skills.catalog(), whole, self._context, rules, objects, self._problems)
        if made is not None and is_same and made.plan == plan:
            return made.plan
        self._made = _Planned(whole, rules, plan)
        return plan

    def render(self, offered: Collection[str]) -> str:
        """Renders the prompt text: the catalog and the guidance. Empty if there are no skills. `offered`: the only
        tools that the model has."""
        style = self._style
        catalog = render_catalog(self._skills.catalog(), self.plan, format=style.catalog_format, sources=False)
        return render_system(
            style.instructions,
            catalog,
            style.guidance,
            offered=offered,
            protocol=style.protocol,
            prefix=style.prefix,
        )

    def render_fixed(self, offered: Collection[str]) -> str:
        """Renders the prompt text without the catalog itself and the caller's instructions, to count it."""
        if not has_skills(self.plan):
            return ""
        style = self._style
        return render_system("", "\n", style.guidance, offered=offered, protocol=style.protocol, prefix=style.prefix)

    def choices(self) -> list[str]:
        """Names for the schema of skill_load: in the lean profile of our own loop, if all skills are listed and few."""
        style = self._style
        if style.profile != "lean" or style.offer is not None:
            return []
        plan = self.plan
        listed = {*plan.shown, *plan.name_only}
        if plan.searchable or len(listed) > _MOST_CHOICES:
            return []
        return [skill.name for skill in list_offer(self._skills.catalog(), plan)]


def plan_offer(
    catalog: Catalog,
    plan: CatalogPlan,
    around: PolicyContext,
    rules: Sequence[Rules],
    objects: Sequence[Policy] = (),
    problems: dict[str, ErrorRaised] | None = None,
) -> CatalogPlan:
    """Removes skills that the rules or policy objects deny from the catalog plan. Adds the mistakes of the objects to
    `problems`."""
    if not rules and not objects:
        return plan

    def is_denied(id: str) -> bool:
        decision, mistakes = _decide_load(catalog, id, around, rules, objects)
        if problems is not None:
            problems.update({each.message: each for each in mistakes})
        return decision is not None and decision.verdict == "deny"

    denied: set[str] = set()
    kept: dict[str, tuple[str, ...]] = {}
    for name in _LISTED:
        ids = getattr(plan, name)
        denied.update(id for id in ids if is_denied(id))
        kept[name] = tuple(id for id in ids if id not in denied)
    if not denied:
        return plan
    hidden = (*plan.hidden, *sorted(denied))
    return plan._replace(**kept, hidden=hidden)


def _decide_load(
    catalog: Catalog, id: str, around: PolicyContext, rules: Sequence[Rules], objects: Sequence[Policy]
) -> tuple[Decision | None, Sequence[ErrorRaised]]:
    entry = catalog.find(id)
    if entry is None:
        return None, ()
    request = PolicyQuery(
        tool="skill_load",
        args={"skill": entry.name},
        skill=entry.id,
        source=entry.source,
        trusted=entry.trusted,
    )
    decision = decide(request, around, rules=rules)
    if not objects:
        return decision, ()
    return ask_policies(objects, request, decision)


def list_offer(catalog: Catalog, plan: CatalogPlan) -> list[ShownSkill]:
    """Returns the skills that a model may load, under the names that the prompt text and skill_search show."""
    offered = {*plan.shown, *plan.name_only, *plan.searchable}
    entries = [entry for entry in catalog if entry.id in offered]
    names = shown_names(catalog, entries)
    found: list[ShownSkill] = []
    for entry in entries:
        name = names[entry.id][0]
        found.append(ShownSkill(name, entry.description))
    return found


def has_skills(plan: CatalogPlan) -> bool:
    """True if a model may load a skill."""
    return any(getattr(plan, name) for name in _LISTED)


def offered_tools(
    plan: CatalogPlan,
    style: KitStyle,
    own: Sequence[ToolSpec],
    given: Sequence[ToolSpec],
    enabled: frozenset[str],
    choices: Sequence[str] = (),
) -> list[ToolSpec]:
    """Returns the built-in tools of the profile and those enabled, then tools of toolsets. `choices` are the only names
    that skill_load is told to take."""
    profile = style.profile
    offer = style.offer
    is_named = offer is not None and not isinstance(offer, str)
    needs_search = is_named or bool(plan.searchable)
    told = partial(
        advertised,
        has_skills=has_skills(plan),
        can_run=style.can_run,
        needs_search=needs_search,
        enabled=enabled,
    )
    names = set(told("full" if is_named else profile))
    if offer == "files":
        names.update(name for name in told("full") if name in PATH_ARGUMENTS)
    specs = {spec.name: spec for spec in own}
    found: list[ToolSpec] = []
    for name in TOOLS:
        if name in names and name in specs and is_offered(name, offer):
            spec = slim(specs[name], profile)
            found.append(_with_choices(spec, choices) if name == "skill_load" and choices else spec)
    return [*found, *given]


def _with_choices(spec: ToolSpec, choices: Sequence[str]) -> ToolSpec:
    properties = dict(spec.parameters["properties"])
    properties["skill"] = {"type": "string", "enum": list(choices)}
    parameters = {**spec.parameters, "properties": properties}
    return replace(spec, parameters=parameters)


def is_offered(tool: str, offer: Offer | None) -> bool:
    """True if the offer includes this built-in tool."""
    if offer is None:
        return True
    if not isinstance(offer, str):
        return tool in offer
    is_skill_tool = tool.startswith("skill_")
    return is_skill_tool or (offer == "files" and tool in PATH_ARGUMENTS)


HEADER = "Available skills:"
GUIDANCE_HEADER = "Tooling and workspace guidance:"

_LOAD = "- When a task matches a skill's description, {load} at once."
_DOCS = "- Body first, then the docs you need: {docs}."
_RUN = "- Run what the skill's text asks for with {run}."
_WRITE = " Code that it tells you to write: {write}."
_PLACES = "- Given files are in inputs/."
_RESULTS = " Results belong in out/."
_PLAN = "- More than one step: keep a plan with {plan}."


def render_guidance(offered: Collection[str], *, protocol: ProtocolName = "tools", prefix: str = "") -> str:
    """Renders the built-in guidance with the names that this protocol uses. `offered` are the only tools that the model
    has, by their names without the prefix."""
    docs = [name for name in ("skill_list_docs", "skill_select_docs") if name in offered]
    if "skill_select_docs" not in offered:
        docs = [name for name in ("skill_read",) if name in offered]
    named = {
        "load": f"call {prefix}skill_load",
        "docs": ", ".join(f"{prefix}{name}" for name in docs),
        "run": f"{prefix}skill_run",
        "write": f"{prefix}write_file into work/, then run it",
        "plan": f"{prefix}update_plan",
    }
    if protocol == "actions":
        named = {
            "load": "select_skills",
            "docs": "load_resource" if docs else "",
            "run": "run_script",
            "write": "write_file into work/, then skill_run",
            "plan": "plan and plan_update",
        }
    can_run = "skill_run" in offered
    lines: list[str] = []
    if "skill_load" in offered:
        lines.append(_LOAD)
    if docs:
        lines.append(_DOCS)
    if can_run:
        lines.append(_RUN + _WRITE if "write_file" in offered else _RUN)
    if can_run or "read_file" in offered:
        lines.append(_PLACES + _RESULTS if can_run else _PLACES)
    if "update_plan" in offered:
        lines.append(_PLAN)
    return "\n".join(lines).format(**named)


def render_system(
    instructions: str,
    catalog: str,
    guidance: str | None,
    *,
    offered: Collection[str],
    protocol: ProtocolName = "tools",
    prefix: str = "",
) -> str:
    """Renders the system prompt. `guidance` None means the built-in text, an empty text means none. Without skills,
    catalog and guidance are left out."""
    parts = [instructions.strip()]
    if catalog:
        parts.append(f"{HEADER}\n{catalog}")
        parts.append(_render_told(guidance, offered, protocol, prefix))
    return "\n\n".join(part for part in parts if part)


def _render_told(guidance: str | None, offered: Collection[str], protocol: ProtocolName, prefix: str) -> str:
    if guidance is None:
        guidance = render_guidance(offered, protocol=protocol, prefix=prefix)
    text = guidance.strip()
    if not text:
        return ""
    return f"{GUIDANCE_HEADER}\n{text}"
