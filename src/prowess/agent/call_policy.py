"""Gathers the facts about a call that policy needs: its skill, its context, and earlier approvals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from prowess.agent.context import Conversation
from prowess.agent.tool_call import SkillIdentity
from prowess.agent.toolkit_options import KitPolicy, SkillAccess
from prowess.core.events import ApprovalAnswered
from prowess.core.tool_table import COMMAND_TOOLS, FILE_TOOLS, NEVER_NARROWED, STEERING_TOOLS, TOOLS
from prowess.core.values import ToolCall
from prowess.errors import SkillError
from prowess.policy.allowed_tools import AllowedTools, parse_allowed
from prowess.policy.decision import PolicyContext
from prowess.skills.skill import Skill
from prowess.tools.files.paths import skills_read
from prowess.tools.run.terminals import Programs
from prowess.tools.session_work import SessionWork


class Facts:
    def __init__(
        self,
        policy: KitPolicy,
        skills: SkillAccess,
        work: SessionWork,
        programs: Programs,
        talk: Conversation,
        *,
        given: frozenset[str],
        tools: Callable[[], Sequence[str]],
    ) -> None:
        """Takes `given`, the names of tools from toolsets, and `tools`, which returns the names of all tools."""
        self.surroundings = replace(policy.surroundings, given=given)
        self._policy, self._skills, self._work = policy, skills, work
        self._programs, self._talk, self._tools = programs, talk, tools

    async def around(self, call: ToolCall) -> PolicyContext:
        """Returns the policy context of a call. For scripts it includes the real isolation, grants and programs."""
        if call.tool not in STEERING_TOOLS:
            return self.surroundings
        approvals = self._policy.approvals
        known = self._work.known.items()
        grants = frozenset(id for id, each in known if approvals is not None and approvals.grants(each.skill))
        around = replace(self.surroundings, isolation=await self._work.executor.isolation(), grants=grants)
        allows = any(rule.verdict == "allow" and rule.commands for each in self._policy.rules() for rule in each.rules)
        if call.tool in COMMAND_TOOLS and (allows or grants) and isinstance(ref := call.args.get("skill"), str):
            return replace(around, find_program=await self._work.find_program(ref))
        return around

    def named(self, call: ToolCall) -> SkillIdentity | None:
        if isinstance(session := call.args.get("session_id"), str):
            return name_of(self._work.known[self._programs.get(session).skill].skill)
        if not isinstance(ref := call.args.get("skill"), str):
            return None
        if call.tool not in NEVER_NARROWED:
            return name_of(self._work.get(ref).skill)
        try:
            if call.tool != "skill_load":
                return name_of(self._work.get(ref).skill)
        except SkillError:
            if not TOOLS[call.tool].takes_unloaded:
                return None
        try:
            entry = self._skills.catalog().get(ref, source=call.args.get("source"))
        except SkillError:  # the tool reports the error, with similar names
            return None
        return SkillIdentity(id=entry.id, source=entry.source, trusted=entry.trusted)

    def touched(self, call: ToolCall) -> Sequence[SkillIdentity]:
        """Skills whose files a file tool would read. Rules about a skill also apply to its files."""
        if call.tool not in FILE_TOOLS:
            return ()
        path = call.args.get("file_name") or call.args.get("path") or "."
        return [name_of(loaded.skill) for loaded in skills_read(str(path), self._work)]

    def given(self, call_id: str, capability: str, isolated: bool) -> ApprovalAnswered | None:
        """Finds an earlier answer for a call. An approval inside a sandbox does not count without one."""
        asked_isolated = self._talk.asked_isolated.get(call_id, False)
        return None if asked_isolated and not isolated else self._talk.find_answer(call_id, capability)

    def standing(self, named: SkillIdentity, capability: str) -> ApprovalAnswered | None:
        approvals, loaded = self._policy.approvals, self._work.known.get(named.id)
        return None if approvals is None or loaded is None else approvals.find(loaded.skill, capability)

    def changed(self, named: SkillIdentity, capability: str) -> dict[str, Any]:
        approvals, loaded = self._policy.approvals, self._work.known.get(named.id)
        return {} if approvals is None or loaded is None else approvals.changed(loaded.skill, capability)

    def remember(self, named: SkillIdentity, capability: str) -> None:
        approvals, loaded = self._policy.approvals, self._work.known.get(named.id)
        if approvals is not None and loaded is not None:
            approvals.remember(loaded.skill, capability)

    def lists(self) -> Mapping[str, AllowedTools]:
        """`allowed-tools` of every skill loaded in this run. Unloading a skill does not lift its restriction."""
        known = self._tools()
        return {
            id: parse_allowed(declared, known=known)
            for id, each in self._work.known.items()
            if (declared := each.skill.entry.controls.allowed_tools) is not None
        }


def declared_env(skill: Skill) -> tuple[str, ...]:
    return tuple(name for kind, names in skill.entry.controls.requires if kind == "env" for name in names)


def name_of(skill: Skill) -> SkillIdentity:
    entry = skill.entry
    return SkillIdentity(
        id=entry.id,
        source=entry.source,
        trusted=entry.trusted,
        env=declared_env(skill),
        digest=skill.digest,
    )
