"""Selects the skills and tools that a model is told, and renders the system prompt: instructions, catalog, guidance.

Guidance names only tools that are offered: actions if the model writes actions, and no scripts without an executor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from prowess.agent.toolkit_options import KitPolicy, KitStyle, SkillAccess
from prowess.core.events import ErrorRaised, ProtocolName
from prowess.core.ports import Policy, ShownSkill
from prowess.core.tool_table import FILE_TOOLS
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

    def render(self) -> str:
        """Renders the prompt text: the catalog and the guidance. Empty if there are no skills."""
        style = self._style
        catalog = render_catalog(self._skills.catalog(), self.plan)
        return render_system(
            style.instructions,
            catalog,
            style.guidance,
            lean=style.profile == "lean",
            protocol=style.protocol,
            can_run=style.can_run,
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
    has_skills = any(getattr(plan, name) for name in _LISTED)
    needs_search = bool(plan.searchable)
    names = list(advertised(profile, has_skills=has_skills, can_run=style.can_run, needs_search=needs_search))
    offers_files = profile != "lean" if style.files is None else style.files
    if offers_files and has_skills:
        names += FILE_TOOLS
    specs = {spec.name: spec for spec in own}
    names += [name for name in specs if name in enabled]
    found: list[ToolSpec] = []
    for name in dict.fromkeys(names):
        if name in specs:
            found.append(slim(specs[name], profile))
    return [*found, *given]


HEADER = "Available skills:"
GUIDANCE_HEADER = "Tooling and workspace guidance:"

_GUIDANCE = """\
- When a task matches a skill's description, {load} at once, before you try anything else.
- Body first. Then {docs} for the docs it needs{all_docs}.
{run}- Given files are in inputs/.{results}
- More than one step: keep a plan with {plan}, from your first reply on."""
_LEAN = """\
- When a task matches a skill's description, {load} at once. Body first, then docs with {read}.
- {run}Given files: inputs/.{results}
- More than one step: {plan}."""

_NAMES = {
    "tools": {
        "load": "call skill_load",
        "docs": "skill_list_docs and skill_select_docs",
        "all_docs": "; avoid include_all_docs",
        "read": "skill_read",
        "plan": "update_plan",
    },
    "actions": {
        "load": "select_skills",
        "docs": "load_resource",
        "all_docs": "",
        "read": "load_resource",
        "plan": "plan and plan_update",
    },
}
_RUN = {
    "tools": "- skill_run runs only commands that the skill's text documents; it is not for looking around.\n",
    "actions": "- run_script runs only scripts that the skill's text documents; it is not for looking around.\n",
}
_RESULTS = {
    "tools": " Results belong in out/; name them in output_files.",
    "actions": " Results belong in out/.",
}
_LEAN_RUN = {
    "tools": "skill_run runs only commands that the skill documents. ",
    "actions": "run_script runs only scripts that the skill documents. ",
}


def render_guidance(*, lean: bool = False, protocol: ProtocolName = "tools", can_run: bool = True) -> str:
    """Renders the built-in guidance with the names that this protocol uses."""
    template = _LEAN if lean else _GUIDANCE
    run = ""
    results = ""
    if can_run and lean:
        run = _LEAN_RUN[protocol]
        results = " Results: out/."
    elif can_run:
        run = _RUN[protocol]
        results = _RESULTS[protocol]
    return template.format(**_NAMES[protocol], run=run, results=results)


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
) -> str:
    """Renders the system prompt. `guidance` None means the built-in text, an empty text means none. Without skills,
    catalog and guidance are left out, except with `always`."""
    parts = [instructions.strip()]
    if catalog or always:
        listed = f"{HEADER}\n{catalog}"
        parts.append(listed.rstrip())
        if guidance is None:
            guidance = render_guidance(lean=lean, protocol=protocol, can_run=can_run)
        text = guidance.strip()
        if text:
            parts.append(f"{GUIDANCE_HEADER}\n{text}")
    return "\n\n".join(part for part in parts if part)
