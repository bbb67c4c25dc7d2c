"""Decides calls: finds the facts about a call that policy needs, and asks policy.

A child run is also bound by the policy of its parent: `allowed-tools` of the parent's skills must allow its calls, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from prowess.agent.toolkit_options import KitPolicy, SkillAccess
from prowess.core.events import ErrorRaised
from prowess.core.ports import CapabilityRequest
from prowess.core.tool_table import COMMAND_TOOLS, FILE_TOOLS, NEVER_NARROWED, STEERING_TOOLS, TOOLS, TOOLS_BY_ISOLATION
from prowess.core.values import Decision, ToolCall
from prowess.errors import SkillError
from prowess.policy.allowed_tools import AllowedTools, canonical_tools, parse_allowed
from prowess.policy.decision import PolicyContext, decide, is_isolated, stricter
from prowess.policy.policy_objects import ask_policies
from prowess.policy.rules import PolicyQuery, Rules, find_rule
from prowess.skills.skill import Skill
from prowess.tools.session_work import SessionWork

if TYPE_CHECKING:
    from prowess.tools.run.programs import Programs


class SkillIdentity(NamedTuple):
    """Facts about the skill of a call that policy needs."""

    id: str
    source: Any = None
    trusted: bool = False
    env: tuple[str, ...] = ()  # variables that it declares
    digest: str = ""
    files: tuple[str, ...] = ()


class CallFacts(NamedTuple):
    """Call with its skill, and with the context in which policy judges it."""

    call: ToolCall
    skill: SkillIdentity | None
    touched: Sequence[SkillIdentity]  # skills whose files it reads without naming them
    context: PolicyContext
    lists: Mapping[str, AllowedTools] = {}  # of a skill that would be loaded before it
    may_ask: bool = True  # a person may be asked about it

    @property
    def isolated(self) -> bool:
        return is_isolated(self.context.isolation)

    def query(self) -> PolicyQuery:
        """Returns the question whether this call may be made."""
        call = self.call
        if self.skill is not None:
            return PolicyQuery(tool=call.tool, args=call.args, **_about(self.skill))
        touches: list[tuple[str, Any]] = []
        digests: list[str] = []
        for each in self.touched:
            touches.append((each.id, each.source))
            digests.append(each.digest)
        return PolicyQuery(tool=call.tool, args=call.args, touches=tuple(touches), digests=tuple(digests))

    def query_for(self, need: CapabilityRequest) -> PolicyQuery:
        """Returns the question whether this call may use another capability."""
        about = {} if self.skill is None else _about(self.skill)
        return PolicyQuery(tool=need.capability, args=need.args, kind="capability", **about)


def _about(skill: SkillIdentity) -> dict[str, Any]:
    """Fields of a policy query about a skill."""
    about = {"skill": skill.id, "source": skill.source, "trusted": skill.trusted}
    return {**about, "digests": (skill.digest,), "files": skill.files}


class CallPolicy:
    def __init__(
        self,
        options: KitPolicy,
        context: PolicyContext,
        skills: SkillAccess,
        work: SessionWork,
        programs: Callable[[], Programs],
        tool_names: Sequence[str],
        *,
        parent: CallPolicy | None = None,
    ) -> None:
        """Takes the context of calls that run no program, and the policy of the parent run."""
        self._options = options
        self._context = context
        self._parent = parent
        self._skills = skills
        self._work = work
        self._programs = programs
        self._tool_names = tool_names

    async def examine(self, call: ToolCall) -> CallFacts:
        """Finds the facts about a call. Raises an error if its skill or its workspace cannot be found."""
        skill = self._find_skill(call)
        context = await self._find_context(call)
        touched = () if skill is not None else self.find_touched(call)
        return CallFacts(call=call, skill=skill, touched=touched, context=context)

    async def examine_unloaded(self, call: ToolCall) -> CallFacts:
        """Finds the facts about a call whose skill would be loaded first. Its programs are not known yet."""
        entry = self._skills.catalog().get(call.args["skill"])
        skill = SkillIdentity(id=entry.id, source=entry.source, trusted=entry.trusted)
        context = await self._find_context(replace(call, args={}))
        declared = entry.controls.allowed_tools
        lists = {} if declared is None else {entry.id: parse_allowed(declared, known=self._tool_names)}
        return CallFacts(call=call, skill=skill, touched=(), context=context, lists=lists)

    def decide(self, query: PolicyQuery, facts: CallFacts) -> tuple[Decision, Sequence[ErrorRaised]]:
        """Asks the rules about a call or a capability, then the policy objects. Returns the decision and the mistakes
        of the objects. Rules are read each time: a person may change them meanwhile."""
        rules = self._options.rules()
        context = facts.context
        decision = decide(query, context, lists={**self._lists(), **facts.lists}, rules=rules)
        ceiling = self._ceiling()
        if ceiling:
            above = decide(query, context, lists=ceiling, rules=rules)
            decision = stricter(decision, above)
        if decision.verdict == "allow" and self._asks_unisolated(context):
            why = f"It would run without isolation. {decision.why}"
            decision = replace(decision, verdict="ask", why=why)
        objects = self._options.objects
        if not objects:
            return decision, ()
        call = facts.call
        return ask_policies(objects, query, decision, id=call.id, trigger=call.trigger)

    def is_asked_each_time(self, query: PolicyQuery, facts: CallFacts) -> bool:
        rules = self._options.rules()
        return is_asked_each_time(query, facts.context, rules)

    def find_touched(self, call: ToolCall) -> Sequence[SkillIdentity]:
        """Finds skills whose files a file tool would read. Rules about a skill also apply to its files."""
        if call.tool not in FILE_TOOLS:
            return ()
        path = call.args.get("file_name") or call.args.get("path") or "."
        from prowess.tools.files.paths import skills_read

        read = skills_read(str(path), self._work)
        return [identify(loaded.skill) for loaded in read]

    def _asks_unisolated(self, context: PolicyContext) -> bool:
        if context.isolation is None or not self._options.ask_unisolated:
            return False
        return not is_isolated(context.isolation)

    def _lists(self) -> Mapping[str, AllowedTools]:
        """`allowed-tools` of every skill loaded in this run. Unloading a skill does not lift its restriction."""
        found: dict[str, AllowedTools] = {}
        if not self._work.known:
            return found
        for id, loaded in self._work.known.items():
            declared = loaded.skill.entry.controls.allowed_tools
            if declared is not None:
                found[id] = parse_allowed(declared, known=self._tool_names)
        return found

    def _ceiling(self) -> Mapping[str, AllowedTools]:
        """Lists of all runs above this one."""
        above = self._parent
        if above is None:
            return {}
        return {**above._ceiling(), **above._lists()}

    async def _find_context(self, call: ToolCall) -> PolicyContext:
        """Returns the policy context of a call. For scripts and writes it includes the real isolation, for scripts also
        grants and programs."""
        if call.tool not in TOOLS_BY_ISOLATION:
            return self._context
        isolation = await self._work.backend.executor.isolation()
        if call.tool not in STEERING_TOOLS:
            return self._context._replace(isolation=isolation)
        grants = self._find_grants()
        context = self._context._replace(isolation=isolation, grants=grants)
        ref = call.args.get("skill")
        if call.tool not in COMMAND_TOOLS or not isinstance(ref, str):
            return context
        judges_programs = bool(grants) or self._allows_commands()
        if not judges_programs:
            return context
        find_program = await self._work.find_program(ref)
        return context._replace(find_program=find_program)

    def _find_grants(self) -> frozenset[str]:
        """Ids of skills whose `allowed-tools` may also grant permissions."""
        approvals = self._options.approvals
        if approvals is None:
            return frozenset()
        ids = [id for id, loaded in self._work.known.items() if approvals.grants(loaded.skill)]
        return frozenset(ids)

    def _allows_commands(self) -> bool:
        """True if a rule allows commands."""
        for rules in self._options.rules():
            for rule in rules.rules:
                if rule.verdict == "allow" and rule.commands:
                    return True
        return False

    def _find_skill(self, call: ToolCall) -> SkillIdentity | None:
        """Finds the skill that a call of our tools names, or whose program it steers."""
        if call.tool not in TOOLS:
            return None
        session = call.args.get("session_id")
        if isinstance(session, str):
            id = self._programs().get(session).skill
            return identify(self._work.known[id].skill)
        ref = call.args.get("skill")
        if not isinstance(ref, str):
            return None
        if call.tool not in NEVER_NARROWED:
            return self._identify_loaded(ref)
        if call.tool != "skill_load":
            try:
                return self._identify_loaded(ref)
            except SkillError:
                if not TOOLS[call.tool].takes_unloaded:
                    return None
        return self._find_entry(ref, call.args.get("source"))

    def _identify_loaded(self, ref: str) -> SkillIdentity:
        loaded = self._work.get(ref)
        return identify(loaded.skill)

    def _find_entry(self, ref: str, source: Any) -> SkillIdentity | None:
        try:
            entry = self._skills.catalog().get(ref, source=source)
        except SkillError:  # the tool reports the error, with similar names
            return None
        return SkillIdentity(id=entry.id, source=entry.source, trusted=entry.trusted)


def is_asked_each_time(query: PolicyQuery, context: PolicyContext, rules: Sequence[Rules]) -> bool:
    """True if no earlier approval counts: the tool, the configuration or a managed policy always asks about this call,
    or only the call names the packages to install."""
    if query.kind == "capability" and query.args.get("by") == "call":  # a yes to one package is no yes to another
        return True
    if query.tool in context.asking:
        return True
    for name in context.require_approval_for:
        if query.tool == name or query.tool in canonical_tools(name):
            return True
    for each in rules:
        if each.only_tightens and each.trusted:
            rule = find_rule(each, query, context.find_program)
            if rule is not None and rule.verdict == "ask":
                return True
    return False


def declared_env(skill: Skill) -> tuple[str, ...]:
    """Environment variables that a skill requires."""
    found: list[str] = []
    for kind, names in skill.entry.controls.requires:
        if kind == "env":
            found += names
    return tuple(found)


def identify(skill: Skill) -> SkillIdentity:
    entry = skill.entry
    return SkillIdentity(
        id=entry.id,
        source=entry.source,
        trusted=entry.trusted,
        env=declared_env(skill),
        digest=skill.digest,
        files=tuple(file.path for file in skill.files),
    )
