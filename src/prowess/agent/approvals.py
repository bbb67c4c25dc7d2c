"""Finds a person's answer to a call that policy asks about: an earlier answer, or one that the approver gives now."""

from __future__ import annotations

import inspect
import re
import reprlib
from collections.abc import Mapping
from contextvars import copy_context
from dataclasses import replace
from typing import Any, Protocol, get_args, runtime_checkable

from prowess._internal.own_line import describe_error, describe_raised
from prowess._internal.worker_thread import OneThread, without_stop_iteration
from prowess.agent.call_policy import CallFacts, SkillIdentity
from prowess.agent.context.state import ApprovalQuestions
from prowess.agent.recorder import EventWriter, SessionSecrets
from prowess.agent.toolkit_options import StandingApprovals
from prowess.core.events import Answer, ApprovalAnswered, ApprovalAsked, ErrorRaised
from prowess.core.ports import Approver
from prowess.core.values import Decision, ToolCall
from prowess.policy.rules import PolicyQuery
from prowess.skills.skill import Skill
from prowess.tools.session_work import SessionWork

_YES: Mapping[str, Answer] = {"once": "once", "yes": "once", "run": "run", "always": "always"}
_NO = re.compile(r"no(?:[,;:. ]+(?:because )?(.*))?", re.IGNORECASE | re.DOTALL)
EACH_TIME = "each_time"  # in `Decision.about`: no earlier approval counts, except an answer to this call


@runtime_checkable
class NamedTools(Protocol):
    """Approver that approves these tools, and no others."""

    tools: frozenset[str]


class ApprovalBook:
    """Approvals of a session. A child run shares those that were given for the run of its parent."""

    def __init__(
        self,
        record: EventWriter,
        questions: ApprovalQuestions,
        secrets: SessionSecrets,
        work: SessionWork,
        *,
        approver: Approver | None = None,
        standing: StandingApprovals | None = None,
        parent: ApprovalBook | None = None,
    ) -> None:
        self._record = record
        self.questions = questions
        self._secrets = secrets
        self._work = work
        self._approver = approver
        self._standing = standing
        self._for_run: set[tuple[str, str]] = set()  # (capability, skill)
        if parent is not None:
            self._for_run = parent._for_run

    def start_run(self) -> None:
        """Forgets the approvals that were given for the run before."""
        self._for_run.clear()

    async def answer(
        self, query: PolicyQuery, facts: CallFacts, decision: Decision
    ) -> tuple[ApprovalAnswered | None, str]:
        """Returns the answer, which is recorded and kept, or None and the problem with the approver, if any."""
        problem = ""
        answer = self._find_earlier(query, facts, each_time=EACH_TIME in decision.about)
        if answer is None:
            answer, problem = await self._ask(query, facts.call, decision)
        if answer is not None:
            event = replace(answer, call_id=facts.call.id, capability=query.tool, later=False)
            await self._record.append(event)
            self._keep(answer, query, facts)
        return answer, problem

    def foresee(self, query: PolicyQuery, facts: CallFacts, decision: Decision) -> ApprovalAnswered | None:
        """Returns the answer that is known before anybody is asked. Records and keeps nothing."""
        call = facts.call
        clean = replace(call, args=self._secrets.redactor.redact_json(call.args))
        each_time = EACH_TIME in decision.about
        if not self.questions.fits(clean):
            facts = facts._replace(call=replace(call, id=""))
        answer = self._find_earlier(query, facts, each_time=each_time)
        if answer is None and isinstance(self._approver, NamedTools) and query.tool in self._approver.tools:
            return ApprovalAnswered(call_id=call.id, answer="once", asked=False)
        return answer

    def find_changes(self, facts: CallFacts, capability: str) -> dict[str, Any]:
        """Returns differences from content of this skill that a person approved before."""
        skill = self._find_skill(facts.skill)
        if skill is None or self._standing is None:
            return {}
        return self._standing.changed(skill, capability)

    def _find_earlier(self, query: PolicyQuery, facts: CallFacts, *, each_time: bool) -> ApprovalAnswered | None:
        """Finds an earlier answer: for this call, for this run, or permanent. With `each_time`, only for this call."""
        call_id = facts.call.id
        isolated = facts.isolated
        answer = self.questions.find(call_id, query.tool, isolated=isolated)
        if answer is not None or each_time:
            return answer
        keys = approval_keys(query.tool, isolated=isolated)
        for key in keys:
            if (key, query.skill or "") in self._for_run:
                return ApprovalAnswered(call_id=call_id, answer="run", by="a person, for this run", asked=False)
        return self._find_standing(facts.skill, keys)

    def _find_standing(self, named: SkillIdentity | None, keys: tuple[str, ...]) -> ApprovalAnswered | None:
        skill = self._find_skill(named)
        if self._standing is None or skill is None or not skill.digest:
            return None
        for key in keys:
            found = self._standing.find(skill, key)
            if found is not None:
                return replace(found, asked=False)
        return None

    async def _ask(self, query: PolicyQuery, call: ToolCall, decision: Decision) -> tuple[ApprovalAnswered | None, str]:
        """Asks the approver. An approver that fails or returns an invalid answer has not answered; that never counts
        as yes."""
        why = self._secrets.redact_text(decision.why)
        asked = ApprovalAsked(call_id=call.id, why=why, capability=query.tool)
        await self._record.append(asked)
        if self._approver is None:
            return None, ""
        if query.kind != "call":
            call = ToolCall(id=call.id, tool=query.tool, args=dict(query.args))
        try:
            said: object = await _call(self._approver, call, decision)
        except Exception as error:  # noqa: BLE001 - an approver is foreign code
            problem = describe_error(error)
            self._record.note_problem(describe_raised("approve", error))
        else:
            answer = parse_answer(call.id, said)
            if answer is not None or said is None:
                return answer, ""
            problem = f"It said {reprlib.repr(said)}, which is none of: once, run, always, no."
            self._record.note_problem(f"approve gave no answer. {problem}")
        problem = self._secrets.redact_text(problem)
        problem = problem[:500]
        failed = ErrorRaised(code="approver-failed", message=problem)
        await self._record.append(failed)
        return None, problem

    def _keep(self, answer: ApprovalAnswered, query: PolicyQuery, facts: CallFacts) -> None:
        """Stores an approval for the run, or permanently for this content of a skill."""
        if answer.answer not in ("run", "always"):
            return
        key = approval_keys(query.tool, isolated=facts.isolated)[0]
        named = facts.skill
        if answer.answer == "run" or named is None or not named.digest:
            self._for_run.add((key, query.skill or ""))
            return
        skill = self._find_skill(named)
        if skill is not None and self._standing is not None:
            self._standing.remember(skill, key)  # looked up at each call, so that a revocation counts at once

    def _find_skill(self, named: SkillIdentity | None) -> Skill | None:
        if named is None:
            return None
        loaded = self._work.known.get(named.id)
        if loaded is None:
            return None
        return loaded.skill


async def _call(approver: Approver, call: ToolCall, decision: Decision) -> object:
    """Asks the approver. A plain function may wait for a person, so it gets a thread of its own: other runs go on, and
    one that never answers keeps no process from ending."""
    if inspect.iscoroutinefunction(approver) or inspect.iscoroutinefunction(type(approver).__call__):
        return await approver(call, decision)
    context = copy_context()
    thread = OneThread("prowess-approve")
    try:
        said: object = await thread.ask(lambda: context.run(without_stop_iteration, approver, call, decision))
    finally:
        thread.end()
    return await said if inspect.isawaitable(said) else said


def approval_keys(capability: str, *, isolated: bool) -> tuple[str, ...]:
    """Names under which an approval is looked up; it is stored under the first. An approval with isolation does not
    count without isolation, but an approval without isolation counts for both."""
    if not isolated:
        return (capability,)
    return f"{capability}@isolated", capability


def parse_answer(call_id: str, said: object) -> ApprovalAnswered | None:
    """Parses an answer: `once`, `yes`, `run`, `always`, `no`, `no, because …`, True or False. None if invalid."""
    if isinstance(said, ApprovalAnswered):
        is_known = said.answer in get_args(Answer) and isinstance(said.asked, bool)
        return said if is_known and isinstance(said.why, str | None) and isinstance(said.by, str | None) else None
    if isinstance(said, bool):
        said = "once" if said else "no"
    if not isinstance(said, str):
        return None
    text = said.strip()
    refused = _NO.fullmatch(text)
    if refused is not None:
        return ApprovalAnswered(call_id=call_id, answer="no", why=refused[1] or None, by="approver")
    answer = _YES.get(text.lower())
    if answer is None:
        return None
    return ApprovalAnswered(call_id=call_id, answer=answer, by="approver")
