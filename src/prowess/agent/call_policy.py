"""Decides calls: finds the facts about a call that policy needs, and asks policy.

A child run is also bound by the policy of its parent: `allowed-tools` of the parent's skills must allow its calls, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from prowess.agent.toolkit_options import KitPolicy, SkillAccess
from prowess.core.ports import CapabilityRequest, Toolset
from prowess.core.tool_table import COMMAND_TOOLS, FILE_TOOLS, NEVER_NARROWED, STEERING_TOOLS, TOOLS
from prowess.core.values import Decision, ToolCall
from prowess.errors import SkillError
from prowess.policy.allowed_tools import AllowedTools, canonical_tools, parse_allowed
from prowess.policy.decision import PolicyContext, decide, is_isolated, stricter
from prowess.policy.rules import PolicyQuery, Rules, find_rule
from prowess.skills.skill import Skill
from prowess.tools.files.paths import skills_read
from prowess.tools.run.terminals import Programs
from prowess.tools.session_work import SessionWork


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillIdentity:
    """Facts about the skill of a call that policy needs."""

    id: str
    source: Any = None
    trusted: bool = False
    env: tuple[str, ...] = ()  # variables that it declares
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFacts:
    """Call with its skill, and with the context in which policy judges it."""

    call: ToolCall
    skill: SkillIdentity | None
    touched: Sequence[SkillIdentity]  # skills whose files it reads without naming them
    context: PolicyContext

    @property
    def isolated(self) -> bool:
        return is_isolated(self.context.isolation)

    def query(self) -> PolicyQuery:
        """Returns the question whether this call may be made."""
        tool, args = self.call.tool, self.call.args
        if self.skill is not None:
            return PolicyQuery(tool=tool, args=args, **_about(self.skill))
        touches = tuple((each.id, each.source) for each in self.touched)
        digests = tuple(each.digest for each in self.touched)
        return PolicyQuery(tool=tool, args=args, touches=touches, digests=digests)

    def query_for(self, need: CapabilityRequest) -> PolicyQuery:
        """Returns the question whether this call may use another capability."""
        about = {} if self.skill is None else _about(self.skill)
        return PolicyQuery(tool=need.capability, args=need.args, kind="capability", **about)


def _about(skill: SkillIdentity) -> dict[str, Any]:
    return {"skill": skill.id, "source": skill.source, "trusted": skill.trusted, "digests": (skill.digest,)}


class CallPolicy:
    def __init__(
        self,
        options: KitPolicy,
        context: PolicyContext,
        skills: SkillAccess,
        work: SessionWork,
        programs: Programs,
        tools: Toolset,
        *,
        parent: CallPolicy | None = None,
    ) -> None:
        """Takes the context of calls that run no program, and the policy of the parent run."""
        self._options, self._context, self._parent = options, context, parent
        self._skills, self._work, self._programs, self._tools = skills, work, programs, tools

    async def examine(self, call: ToolCall) -> CallFacts:
        """Finds the facts about a call. Raises an error if its skill or its workspace cannot be found."""
        skill = self._find_skill(call)
        context = await self._find_context(call)
        touched = () if skill is not None else self.find_touched(call)
        return CallFacts(call=call, skill=skill, touched=touched, context=context)

    def decide(self, query: PolicyQuery, facts: CallFacts) -> Decision:
        """Asks policy about a call or a capability. Rules are read each time: a person may change them meanwhile."""
        rules, context = self._options.rules(), facts.context
        decision = decide(query, context, lists=self._lists(), rules=rules)
        ceiling = self._ceiling()
        if ceiling:
            decision = stricter(decision, decide(query, context, lists=ceiling, rules=rules))
        if decision.verdict == "allow" and self._asks_unisolated(context):
            decision = replace(decision, verdict="ask", why=f"It would run without isolation. {decision.why}")
        return decision

    def is_asked_each_time(self, query: PolicyQuery, facts: CallFacts) -> bool:
        return is_asked_each_time(query, facts.context, self._options.rules())

    def find_touched(self, call: ToolCall) -> Sequence[SkillIdentity]:
        """Finds skills whose files a file tool would read. Rules about a skill also apply to its files."""
        if call.tool not in FILE_TOOLS:
            return ()
        path = call.args.get("file_name") or call.args.get("path") or "."
        return [identify(loaded.skill) for loaded in skills_read(str(path), self._work)]

    def _asks_unisolated(self, context: PolicyContext) -> bool:
        unisolated = context.isolation is not None and not is_isolated(context.isolation)
        return self._options.ask_unisolated and unisolated

    def _lists(self) -> Mapping[str, AllowedTools]:
        """`allowed-tools` of every skill loaded in this run. Unloading a skill does not lift its restriction."""
        known = [spec.name for spec in self._tools.specs()]
        found: dict[str, AllowedTools] = {}
        for id, loaded in self._work.known.items():
            declared = loaded.skill.entry.controls.allowed_tools
            if declared is not None:
                found[id] = parse_allowed(declared, known=known)
        return found

    def _ceiling(self) -> Mapping[str, AllowedTools]:
        """Lists of all runs above this one."""
        return {} if self._parent is None else {**self._parent._ceiling(), **self._parent._lists()}

    async def _find_context(self, call: ToolCall) -> PolicyContext:
        """Returns the policy context of a call. For scripts it includes the real isolation, grants and programs."""
        if call.tool not in STEERING_TOOLS:
            return self._context
        grants = self._find_grants()
        isolation = await self._work.backend.executor.isolation()
        context = replace(self._context, isolation=isolation, grants=grants)
        ref = call.args.get("skill")
        judges_programs = bool(grants) or self._allows_commands()
        if call.tool in COMMAND_TOOLS and judges_programs and isinstance(ref, str):
            return replace(context, find_program=await self._work.find_program(ref))
        return context

    def _find_grants(self) -> frozenset[str]:
        """Ids of skills whose `allowed-tools` may also grant permissions."""
        approvals = self._options.approvals
        if approvals is None:
            return frozenset()
        return frozenset(id for id, loaded in self._work.known.items() if approvals.grants(loaded.skill))

    def _allows_commands(self) -> bool:
        every = (rule for rules in self._options.rules() for rule in rules.rules)
        return any(rule.verdict == "allow" and rule.commands for rule in every)

    def _find_skill(self, call: ToolCall) -> SkillIdentity | None:
        session, ref = call.args.get("session_id"), call.args.get("skill")
        if isinstance(session, str):
            return identify(self._work.known[self._programs.get(session).skill].skill)
        if not isinstance(ref, str):
            return None
        if call.tool not in NEVER_NARROWED:
            return identify(self._work.get(ref).skill)
        try:
            if call.tool != "skill_load":
                return identify(self._work.get(ref).skill)
        except SkillError:
            if not TOOLS[call.tool].takes_unloaded:
                return None
        return self._find_entry(ref, call.args.get("source"))

    def _find_entry(self, ref: str, source: Any) -> SkillIdentity | None:
        try:
            entry = self._skills.catalog().get(ref, source=source)
        except SkillError:  # the tool reports the error, with similar names
            return None
        return SkillIdentity(id=entry.id, source=entry.source, trusted=entry.trusted)


def is_asked_each_time(query: PolicyQuery, context: PolicyContext, rules: Sequence[Rules]) -> bool:
    """True if no earlier approval counts: the configuration or a managed policy always asks about this call, or only
    the call names the packages to install."""
    if query.kind == "capability" and query.args.get("by") == "call":  # a yes to one package is no yes to another
        return True
    if any(query.tool in (name, *canonical_tools(name)) for name in context.require_approval_for):
        return True
    for each in rules:
        if each.only_tightens and each.trusted:
            rule = find_rule(each, query, context.find_program)
            if rule is not None and rule.verdict == "ask":
                return True
    return False


def declared_env(skill: Skill) -> tuple[str, ...]:
    return tuple(name for kind, names in skill.entry.controls.requires if kind == "env" for name in names)


def identify(skill: Skill) -> SkillIdentity:
    entry = skill.entry
    return SkillIdentity(
        id=entry.id,
        source=entry.source,
        trusted=entry.trusted,
        env=declared_env(skill),
        digest=skill.digest,
    )
