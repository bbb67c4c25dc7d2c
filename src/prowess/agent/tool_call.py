"""act: turns one call into one outcome. Only this module decides calls, executes tools and redacts outcomes.

    repair -> normalise -> load its skill, if needed -> decide -> record both -> ask, if needed -> record -> execute
    -> redact -> record

A call and its decision are in the log before anything is done. If the log cannot be written, nothing more happens. A
denial and a failure are outcomes. Only a broken record and a cancellation are raised.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from prowess._internal.json_values import INVALID_JSON, describe_fault, find_invalid
from prowess._internal.own_line import describe_raised
from prowess.agent.approvals import EACH_TIME, ApprovalBook
from prowess.agent.call_outcomes import (
    APPROVED,
    MAX_CONTENT,
    NOT_BEGUN,
    add_files,
    decide_answered,
    make_failed,
    make_interrupted,
    make_invalid,
    make_raised,
    shorten,
)
from prowess.agent.call_policy import CallFacts, CallPolicy
from prowess.agent.call_repair import CallRepair
from prowess.agent.implicit_load import (
    CALL_AGAIN,
    ImplicitLoads,
    add_load,
    find_refusal,
    hide_text,
    reads_body,
    show_load,
)
from prowess.agent.recorder import EventWriter, SessionSecrets
from prowess.core.events import CallActed, CallDecided, CallPlanned, Event
from prowess.core.isolation import record_isolation
from prowess.core.ports import CallGrant, Toolset
from prowess.core.tool_context import ToolContext
from prowess.core.tool_table import COMMAND_TOOLS, LOADING_TOOLS, TOOLS
from prowess.core.values import Decision, Outcome, Spawn, ToolCall
from prowess.errors import ProwessError, StoreError, ToolFailed, ToolRetry
from prowess.policy.decision import find_risk, stricter
from prowess.policy.rules import PolicyQuery
from prowess.policy.secrets import build_environment
from prowess.tools.session_work import SessionWork
from prowess.tools.toolset import check_outcome, find_problem

Spawner = Callable[[Spawn, ToolCall], Awaitable[Outcome]]  # carries out a call in a child run
OnOutput = Callable[[str, bytes], None]
MakeContext = Callable[[asyncio.AbstractEventLoop, CallGrant], ToolContext[Any]]
BeforeEnd = Callable[[], Awaitable[object]]  # waits until an outcome may be recorded
WATCHER: ContextVar[OnOutput | None] = ContextVar("prowess-watcher", default=None)  # of the output of this call
_NEVER_SPAWNS = ("path", "nested")  # a file name starts no child run, and a nested load is in one already
_RECORD = ("record-broken", "session-conflict", "lease-lost", "event-invalid")


class ToolCallRunner:
    def __init__(
        self,
        tools: Toolset,
        policy: CallPolicy,
        approvals: ApprovalBook,
        record: EventWriter,
        secrets: SessionSecrets,
        work: SessionWork,
        *,
        repair: CallRepair,
        get_loads: Callable[[], ImplicitLoads],
        on_ask: Literal["wait", "deny"] = "wait",
        on_output: OnOutput | None = None,
        make_context: MakeContext | None = None,
    ) -> None:
        """Takes `on_ask`, the result of a question that nobody could answer."""
        self.tools = tools
        self.policy = policy
        self.approvals = approvals
        self.repair = repair
        self._get_loads = get_loads
        self._record = record
        self._secrets = secrets
        self._work = work
        self._on_ask: Literal["wait", "deny"] = on_ask
        self._on_output = on_output
        self._make_context = make_context
        self._spawners: dict[str, Spawner] = {}  # of calls that are being made, by id

    async def run(
        self,
        call: ToolCall,
        *,
        spawn: Spawner | None = None,
        before_end: BeforeEnd | None = None,
    ) -> Outcome:
        """Makes a call. Awaits `before_end` before it records the outcome, so that parallel calls end in order."""
        made, note = self.repair.route(call)
        outcome = await self._make(made, spawn, note, before_end)
        self.repair.note(call, outcome)
        return outcome

    async def run_first(self, call: ToolCall, grant: CallGrant) -> Outcome:
        """Makes a call that the call of this grant needs first. It may start a child run if that one may."""
        spawn = self._spawners.get(grant.call_id)
        return await self._make(call, spawn)

    async def _make(
        self,
        call: ToolCall,
        spawn: Spawner | None,
        note: str = "",
        before_end: BeforeEnd | None = None,
        *,
        is_implicit: bool = False,
    ) -> Outcome:
        tool = self.repair.find_tool(call.tool)
        if tool != call.tool:
            call = replace(call, tool=tool)
        invalid: Outcome | None = None
        try:
            call = self._normalise(call)
            planned = self._planned(call)
        except ToolRetry as error:
            invalid = make_invalid(self.repair.describe_invalid(call, error))
            planned = self._planned(replace(call, args={}))  # its arguments may not be storable
        unwritten: list[Event] = [planned]
        outcome = self.repair.refuse(call)
        if outcome is None and call.tool in LOADING_TOOLS:
            outcome = await self._attempt_loaded(call, unwritten, spawn, invalid)
        elif outcome is None:
            outcome = invalid or await self._attempt(call, unwritten, spawn)
        if is_implicit:
            outcome = hide_text(outcome)
        if before_end is not None:
            await before_end()
        if note:
            outcome = replace(outcome, content=f"{note}\n{outcome.content}")
        return await self.end(call, outcome, unwritten)

    def _normalise(self, call: ToolCall) -> ToolCall:
        invalid = find_invalid(call.args) if INVALID_JSON in call.args else None
        if invalid is not None:
            raise ToolRetry(f"The arguments are not valid JSON: {describe_fault(invalid)}.")
        return self.tools.normalise(call)

    def _prepare(self, call: ToolCall) -> ToolCall:
        call, _ = self.repair.route(call)
        tool = self.repair.find_tool(call.tool)
        return self._normalise(replace(call, tool=tool))

    def find_form(self, call: ToolCall) -> ToolCall:
        """Returns a call as it would be recorded."""
        try:
            call = self._renamed(self._prepare(call))
        except ToolRetry:
            call = replace(call, args={})
        return self._planned(call).call

    async def _attempt_loaded(
        self, call: ToolCall, unwritten: list[Event], spawn: Spawner | None, invalid: Outcome | None
    ) -> Outcome:
        """Decides and executes a call that names a skill, and loads the skill before if it is not loaded. A call with
        invalid arguments loads it too, because the skill's text says how to call."""
        load = await self._load_skill(call, spawn)
        refusal = find_refusal(call, load) if load else None
        if refusal is not None:
            return refusal
        if load and not invalid and reads_body(call):
            return show_load(load)
        outcome = invalid
        if outcome is None:
            call = self._rename(call, unwritten)
            may_ask = load is None and not self._get_loads().is_unread(call)
            outcome = await self._attempt(call, unwritten, spawn, may_ask=may_ask)
        return add_load(call, outcome, load) if load else outcome

    async def _load_skill(self, call: ToolCall, spawn: Spawner | None) -> Outcome | None:
        """Loads the skill of a call, and returns the outcome. None if it was loaded before."""
        loads = self._get_loads()
        async with loads.turn:
            wanted = loads.find_call(call)
            if wanted is None:
                return loads.find_earlier(call)
            return await self._make(wanted, spawn, is_implicit=True)

    def _rename(self, call: ToolCall, unwritten: list[Event]) -> ToolCall:
        """Names the skill by its id, and its file by its whole path, which needs the loaded skill."""
        renamed = self._renamed(call)
        if renamed.args != call.args:
            unwritten.clear()
            unwritten.append(self._planned(renamed))
        return renamed

    def _renamed(self, call: ToolCall) -> ToolCall:
        if call.tool not in LOADING_TOOLS:
            return call
        renamed = self._get_loads().rename(call)
        return self.tools.normalise(renamed) if call.tool == "skill_read" else renamed

    async def _attempt(
        self, call: ToolCall, unwritten: list[Event], spawn: Spawner | None, *, may_ask: bool = True
    ) -> Outcome:
        """Decides and executes a call. Events in `unwritten` are recorded together with the decision."""
        try:
            facts = await self.policy.examine(call)
            facts = facts._replace(may_ask=may_ask)
            decision = await self._decide(facts.query(), facts, unwritten)
            granted: set[str] = set()
            denied = self._denied(decision, facts) or await self._find_unmet(facts, granted)
        except ProwessError as error:
            self._check_record(error)
            return make_failed(error)
        except asyncio.CancelledError:
            if not self._record.broken:
                await self.end(call, NOT_BEGUN, unwritten)
            raise
        if denied is not None:
            return denied
        if spawn is not None:
            self._spawners[call.id] = spawn
        used = self.approvals.questions.use(call.id)  # before it acts: the same call beside it finds no answer
        try:
            outcome = await self._execute(facts, decision, granted, spawn)
        finally:
            self._spawners.pop(call.id, None)
        if outcome.status == "waiting":  # a child run, or a load, goes on under the same answer
            self.approvals.questions.put_back(used)
        return outcome

    # --- decide -----------------------------------------------------------------------------------------------------

    async def _decide(self, query: PolicyQuery, facts: CallFacts, unwritten: list[Event]) -> Decision:
        """Asks policy, and a person if policy says "ask". Then the person's answer is the verdict."""
        decision, problems = self.policy.decide(query, facts)
        if decision.verdict == "ask":
            about = await self._describe(query, facts)
            decision = replace(decision, about=about)
        for problem in problems:
            self._record.note_problem(problem.message)
        events = [*unwritten, *problems, self._decided(facts.call, decision)]
        unwritten.clear()
        await self._record.append(*events)
        if decision.verdict != "ask":
            return decision
        return await self._ask(query, facts, decision)

    async def _ask(self, query: PolicyQuery, facts: CallFacts, decision: Decision) -> Decision:
        """Returns the decision of a person, or the same question if nobody answered or may be asked."""
        if not facts.may_ask and self.approvals.foresee(query, facts, decision) is None:
            return decision
        answer, problem = await self.approvals.answer(query, facts, decision)
        if answer is None:
            why = decision.why
            if problem:
                why = f"{why} The approver gave no answer: {problem}"
            return Decision(verdict="ask", rule=decision.rule, why=why, limits=decision.limits)
        return decide_answered(query, decision, answer)

    async def foresee(self, call: ToolCall) -> Decision:
        """Decides a call and what it needs. Makes, records and asks nothing. A call that could only fail is denied."""
        try:
            call = self._prepare(call)
            if call.tool in LOADING_TOOLS:
                loads = self._get_loads()
                load = loads.find_call(call)
                if load is not None:
                    return await self._foresee_load(call, load)
                call = loads.rename(call)
            facts = await self.policy.examine(call)
            decision = await self._foresee(facts.query(), facts)
            needs = () if decision.verdict == "deny" else await self.tools.needs(call)
        except ToolRetry as error:
            return Decision(verdict="deny", rule="invalid-call", why=str(error))
        except ProwessError as error:
            why = f"{error.message} {error.hint or ''}".rstrip()
            return Decision(verdict="deny", rule=str(error.code), why=why)
        for need in needs:
            other = await self._foresee(facts.query_for(need), facts)
            decision = stricter(decision, other)
        return decision

    async def _foresee_load(self, call: ToolCall, load: ToolCall) -> Decision:
        """Decides a call and the load that it needs first. The stricter decision counts."""
        decision = await self.foresee(load)
        if decision.verdict == "deny":
            return decision
        facts = await self.policy.examine_unloaded(call)
        return stricter(decision, await self._foresee(facts.query(), facts))

    async def _foresee(self, query: PolicyQuery, facts: CallFacts) -> Decision:
        decision, _ = self.policy.decide(query, facts)  # mistakes of policy objects are in its reason
        if decision.verdict != "ask":
            return decision
        about = await self._describe(query, facts)
        decision = replace(decision, about=about)
        answer = self.approvals.foresee(query, facts, decision)
        return decision if answer is None else decide_answered(query, decision, answer)

    async def _describe(self, query: PolicyQuery, facts: CallFacts) -> dict[str, Any]:
        """Returns all facts that a person needs to approve this call."""
        about: dict[str, Any] = {"capability": query.tool, "risk": find_risk(query.tool)}
        skill = facts.skill
        if skill is not None:
            about["skill"] = skill.id
            about["source"] = skill.source
            about["digest"] = skill.digest
            about["trusted"] = skill.trusted
            changed = self.approvals.find_changes(facts, query.tool)
            if changed:
                about["changed"] = changed
        isolation = facts.context.isolation
        if isolation is not None:
            about["isolation"] = record_isolation(isolation)
        from prowess.tools.files.replace import preview_write

        diff = await preview_write(self._work, facts.call)
        if diff:
            about["diff"] = self._secrets.redact_text(diff)
        if self.policy.is_asked_each_time(query, facts):
            about[EACH_TIME] = True
        return about

    async def _find_unmet(self, facts: CallFacts, granted: set[str]) -> Outcome | None:
        """Decides each further capability that the call needs, in the same way. Returns the outcome of a denial. Adds
        to `granted` the capabilities that a person allowed when asked."""
        try:
            needs = await self.tools.needs(facts.call)
        except ToolRetry as error:
            return make_invalid(str(error))
        for need in needs:
            query = facts.query_for(need)
            decision = await self._decide(query, facts, [])
            denied = self._denied(decision, facts)
            if denied is not None:
                return denied
            if decision.rule == APPROVED:
                granted.add(need.capability)
        return None

    def _denied(self, decision: Decision, facts: CallFacts) -> Outcome | None:
        if decision.verdict == "allow":
            return None
        data: dict[str, Any] = {"rule": decision.rule}
        if decision.verdict == "ask" and not facts.may_ask:
            return replace(CALL_AGAIN, data=data)
        call = facts.call
        if decision.verdict == "deny":
            text = f"Denied: {decision.why}"
            hint = "Do it another way, or ask the person to allow it."
            return Outcome(status="denied", code="denied", content=text, hint=hint, data=data)
        data["call"] = {"tool": call.tool, "args": call.args}  # to make it again
        text = f"Not approved: {decision.why}"
        hint = "A person has to approve it; nobody could be asked."
        status = "denied" if self._on_ask == "deny" else "waiting"
        return Outcome(status=status, code="approval-needed", content=text, hint=hint, data=data)

    # --- execute ----------------------------------------------------------------------------------------------------

    async def _execute(
        self, facts: CallFacts, decision: Decision, granted: Collection[str], spawn: Spawner | None
    ) -> Outcome:
        """Executes the tool. Every failure becomes an outcome. A cancellation is recorded and raised again."""
        call = facts.call
        began = time.monotonic()
        try:
            grant = self._grant(facts, decision, granted, can_spawn=spawn is not None)
            result = await self.tools.call(call, grant)
            if not isinstance(result, Spawn):
                result = result if call.tool in TOOLS else check_outcome(call, result)
                if problem := find_problem(call, result):
                    self._record.note_problem(problem)
                return add_files(result, grant) if grant.made else result
            if spawn is None:
                raise ToolFailed("The tool asked for a child run, but child runs are disabled here.")
            return await spawn(result, call)
        except ToolRetry as error:
            hint = None if call.tool in TOOLS else "Call it again with other arguments."
            return make_invalid(str(error), hint)
        except ToolFailed as error:
            return Outcome(status="failed", code="tool-failed", content=str(error))
        except ProwessError as error:
            self._check_record(error)
            return make_failed(error)
        except Exception as error:  # noqa: BLE001 - a tool is foreign code, and its errors must not end the run
            self._record.note_problem(describe_raised(call.tool, error))
            return make_raised(call, error)
        except asyncio.CancelledError:
            if not self._record.broken:
                await self.end(call, make_interrupted(facts, time.monotonic() - began))
            raise

    def _grant(self, facts: CallFacts, decision: Decision, granted: Collection[str], *, can_spawn: bool) -> CallGrant:
        call = facts.call
        make_context = None
        if self._make_context is not None:
            make_context = partial(self._make_context, asyncio.get_running_loop())  # a tool may run in another loop
        return CallGrant(
            decision=decision,
            redaction=self._secrets.redactor,
            call_id=call.id,
            trigger=call.trigger,
            can_spawn=can_spawn and call.trigger not in _NEVER_SPAWNS,
            env=self._environment(facts),
            granted=frozenset(granted),
            on_output=WATCHER.get() or self._on_output,
            make_context=make_context,
        )

    def _environment(self, facts: CallFacts) -> dict[str, str]:
        """Environment of a run: variables that the skill declares or the model set, none of our own environment."""
        call = facts.call
        if call.tool not in COMMAND_TOOLS or facts.skill is None:
            return {}
        from_model = call.args.get("env") or {}
        return build_environment(facts.skill.env, self._secrets.values, from_model, {})

    # --- record -----------------------------------------------------------------------------------------------------

    async def end(self, call: ToolCall, outcome: Outcome, unwritten: Sequence[Event] = ()) -> Outcome:
        """Redacts and records an outcome. That of an interrupted call shows the skill that was loaded for it."""
        if "show" not in outcome.data and self.repair.find_tool(call.tool) in LOADING_TOOLS:
            load = self._get_loads().find_earlier(call)
            outcome = add_load(call, outcome, load) if load else outcome
        redactor = self._secrets.redactor
        content = redactor.redact_text(outcome.content)
        content = content.encode("utf-8", "replace").decode()
        if len(content) > MAX_CONTENT:
            content = await shorten(content, self._work, call.id)
        hint = outcome.hint
        if hint is not None:
            hint = redactor.redact_text(hint)
        clean = Outcome(
            status=outcome.status,
            content=content,
            code=outcome.code,
            hint=hint,
            data=redactor.redact_json(outcome.data),
            state_delta=redactor.redact_json(outcome.state_delta),
        )
        acted = CallActed(call_id=call.id, outcome=clean, state_delta=clean.state_delta)
        await self._record.append(*unwritten, acted)
        return clean

    def _planned(self, call: ToolCall) -> CallPlanned:
        """Returns the event of a call. Its arguments can hold a secret that the model was told by mistake."""
        args = self._secrets.redactor.redact_json(call.args)
        if args is not call.args:
            call = replace(call, args=args)
        return CallPlanned(call=call)

    def _decided(self, call: ToolCall, decision: Decision) -> CallDecided:
        redactor = self._secrets.redactor
        if redactor.is_needed:
            why = redactor.redact_text(decision.why)
            limits = redactor.redact_json(decision.limits)
            decision = replace(decision, why=why, limits=limits)
        return CallDecided(call_id=call.id, decision=decision)

    def _check_record(self, error: ProwessError) -> None:
        """Raises the error again if the record is broken, because then no outcome can be recorded."""
        if self._record.broken or (isinstance(error, StoreError) and error.code in _RECORD):
            raise error
