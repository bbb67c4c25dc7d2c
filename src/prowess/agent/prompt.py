"""Selects the skills and tools that a model is told, and renders the system prompt: instructions, catalog, guidance.

Guidance names only tools that are offered: actions if the model writes actions, and no scripts without an executor.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from prowess.agent.toolkit_options import KitPolicy, KitStyle, Offer, SkillAccess
from prowess.core.events import ErrorRaised, ProtocolName
from prowess.core.ports import Policy, ShownSkill
from prowess.core.tool_table import FILE_TOOLS, PATH_ARGUMENTS, TOOLS
from prowess.core.values import CatalogPlan, Decision, ToolSpec
from prowess.policy.decision import PolicyContext, decide
from prowess.policy.policy_objects import ask_policies
from prowess.policy.rules import PolicyQuery, Rules
from prowess.skills.catalog import Catalog
from prowess.skills.render import render_catalog, shown_names
from prowess.tools.builtin import advertised, slim

_LISTED = ("shown", "name_only", "searchable")


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

    def render(self, offered: Collection[str] | None = None) -> str:
        """Renders the prompt text: the catalog and the guidance. Empty if there are no skills. `offered`: the only
        tools that the model has."""
        style = self._style
        catalog = render_catalog(self._skills.catalog(), self.plan)
        return render_system(
            style.instructions,
            catalog,
            style.guidance,
            lean=style.profile == "lean",
            protocol=style.protocol,
            can_run=style.can_run,
            offered=offered,
            prefix=style.prefix,
        )


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


def offered_tools(
    plan: CatalogPlan, style: KitStyle, own: Sequence[ToolSpec], given: Sequence[ToolSpec], enabled: frozenset[str]
) -> list[ToolSpec]:
    """Returns built-in tools of the profile, then file tools, then enabled tools, then tools of toolsets."""
    profile = style.profile
    offer = style.offer
    is_named = offer is not None and not isinstance(offer, str)
    has_skills = any(getattr(plan, name) for name in _LISTED)
    needs_search = is_named or bool(plan.searchable)
    advertised_in = "full" if is_named else profile
    names = list(advertised(advertised_in, has_skills=has_skills, can_run=style.can_run, needs_search=needs_search))
    offers_files = profile != "lean" if offer is None else offer != "skills"
    if offers_files and has_skills:
        names += FILE_TOOLS
    specs = {spec.name: spec for spec in own}
    names += [name for name in specs if name in enabled]
    found: list[ToolSpec] = []
    for name in dict.fromkeys(names):
        if name in specs and is_offered(name, offer):
            found.append(slim(specs[name], profile))
    return [*found, *given]


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

_NAMES = {
    "tools": {
        "load": "call {skill_load}",
        "docs": "{skill_list_docs} and {skill_select_docs}",
        "all_docs": "; avoid include_all_docs",
        "read": "{skill_read}",
        "run": "{skill_run} runs only commands",
        "results": " Results belong in out/; name them in output_files.",
        "plan": "{update_plan}",
    },
    "actions": {
        "load": "select_skills",
        "docs": "load_resource",
        "all_docs": "",
        "read": "load_resource",
        "run": "run_script runs only scripts",
        "results": " Results belong in out/.",
        "plan": "plan and plan_update",
    },
}
_TOOL_OF = {"load": "skill_load", "docs": "skill_select_docs", "read": "skill_read", "run": "skill_run"}
_TOOL_OF["plan"] = "update_plan"


def render_guidance(
    *,
    lean: bool = False,
    protocol: ProtocolName = "tools",
    can_run: bool = True,
    offered: Collection[str] | None = None,
    prefix: str = "",
) -> str:
    """Renders the built-in guidance with the names that this protocol uses. `offered` are the only tools that the model
    has, by their names without the prefix."""
    outer = {name: f"{prefix}{name}" for name in TOOLS}
    said: dict[str, str] = {}
    for part, text in _NAMES[protocol].items():
        tool = _TOOL_OF.get(part, "")
        is_there = offered is None or not tool or tool in offered
        said[part] = text.format(**outer) if is_there else ""
    if not said["docs"]:
        said["docs"] = said["read"]
        said["all_docs"] = ""
    elif offered is not None and "skill_list_docs" not in offered:
        said["docs"] = outer["skill_select_docs"]
    if not can_run:
        said["run"] = ""
    lines = _lean_lines(said) if lean else _guidance_lines(said)
    return "\n".join(lines)


def _guidance_lines(said: Mapping[str, str]) -> Iterator[str]:
    if said["load"]:
        yield f"- When a task matches a skill's description, {said['load']} at once, before you try anything else."
    if said["docs"]:
        yield f"- Body first. Then {said['docs']} for the docs it needs{said['all_docs']}."
    if said["run"]:
        yield f"- {said['run']} that the skill's text documents; it is not for looking around."
    results = said["results"] if said["run"] else ""
    yield f"- Given files are in inputs/.{results}"
    if said["plan"]:
        yield f"- More than one step: keep a plan with {said['plan']}, from your first reply on."


def _lean_lines(said: Mapping[str, str]) -> Iterator[str]:
    load = f"When a task matches a skill's description, {said['load']} at once. " if said["load"] else ""
    docs = f"Body first, then docs with {said['read']}." if said["read"] else "Body first."
    yield f"- {load}{docs}"
    run = f"{said['run']} that the skill documents. " if said["run"] else ""
    results = " Results: out/." if said["run"] else ""
    yield f"- {run}Given files: inputs/.{results}"
    if said["plan"]:
        yield f"- More than one step: {said['plan']}."


GUIDANCE, LEAN_GUIDANCE = render_guidance(), render_guidance(lean=True)


def render_system(
    instructions: str,
    catalog: str,
    guidance: str | None,
    *,
    lean: bool = False,
    protocol: ProtocolName = "tools",
    can_run: bool = True,
    always: bool = False,
    offered: Collection[str] | None = None,
    prefix: str = "",
) -> str:
    """Renders the system prompt. `guidance` None means the built-in text, an empty text means none. Without skills,
    catalog and guidance are left out, except with `always`."""
    parts = [instructions.strip()]
    if catalog or always:
        listed = f"{HEADER}\n{catalog}"
        parts.append(listed.rstrip())
        if guidance is None:
            guidance = render_guidance(lean=lean, protocol=protocol, can_run=can_run, offered=offered, prefix=prefix)
        text = guidance.strip()
        if text:
            parts.append(f"{GUIDANCE_HEADER}\n{text}")
    return "\n\n".join(part for part in parts if part)
