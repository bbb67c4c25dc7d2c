"""Runs the agent loop: decide, act, observe, until an answer, a limit, a pause or a cancel. RunFinished says which.

    request -> [ compose -> model -> calls -> act ] -> … -> RunFinished

Every step is recorded as an event before the next step begins. A request to the model is retried when that can help. A
call that was decided is never made twice. Read-only calls that stand side by side are made at the same time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from prowess.agent.activation import SkillActivator, names_in
from prowess.agent.agent import AgentSpec, Result, Task, make_requested, make_started
from prowess.agent.budget import Budget, is_near, render_partial
from prowess.agent.call_groups import act_together, make_groups
from prowess.agent.child_run import run_child
from prowess.agent.compaction import shorten
from prowess.agent.context import ModelRequest
from prowess.agent.context.render import render_outcome
from prowess.agent.context.state import SHOWN_ONCE
from prowess.agent.model_call import RetryPolicy, ShownReply, ask, clean
from prowess.agent.notes import Notes
from prowess.agent.output import NOTE_KIND
from prowess.agent.output_check import OutputCheck
from prowess.agent.tool_call import BeforeEnd
from prowess.agent.toolkit import Toolkit
from prowess.core.events import (
    CatalogPlanned,
    EpochStarted,
    ErrorRaised,
    Event,
    ModelReplied,
    ModelRequested,
    RunFinished,
    SkillUnloaded,
    StopReason,
)
from prowess.core.values import Outcome, Spawn, ToolCall, Usage
from prowess.errors import ModelError, ModelMalformed, ProwessError, SkillDenied, StoreError
from prowess.tools.run.code_blocks import find_code_calls, find_code_notes

if TYPE_CHECKING:
    from prowess.workspace.run_file import RunFile

_MOST_PIECES = 3  # of an answer that exceeds the length limit of a reply
_EMPTY_REPLIES = 2
_FAILED = ("failed", "denied", "interrupted")
_INTERRUPTED = Outcome(
    status="interrupted",
    code="interrupted",
    content="The process ended while this call was being made. It may have been done, in part or in whole, and "
    "was not repeated.",
    hint="Look at what is there before you do it again.",
)


async def run(agent: AgentSpec, kit: Toolkit, task: Task, *, retry_policy: RetryPolicy | None = None) -> Result[Any]:
    """Runs one request to its end. An error that ends the run is recorded and then raised."""
    resumed = kit.conversation.run if task.resume else None
    loop = _Loop(agent, kit, retry_policy or RetryPolicy())
    started = make_started(agent, task, resumed)
    await kit.append(started, *make_requested(agent))
    kit.conversation.start_run(kit.recorder.run_id)
    try:
        finished = await loop.go(task)
    except asyncio.CancelledError:
        await loop.cancel()
        raise
    except ProwessError as error:
        if not kit.recorder.broken:
            await loop.fail(error)
        raise
    finished = loop.redacted(finished)
    await loop.end(finished)
    return loop.result(finished)


class _Loop:
    def __init__(self, agent: AgentSpec, kit: Toolkit, retry_policy: RetryPolicy) -> None:
        self._agent = agent
        self._kit = kit
        self._retry_policy = retry_policy
        self._talk = kit.conversation
        self._output = None if agent.output is None else OutputCheck(agent, agent.output, kit)
        may_spawn = len(kit.ancestry) < agent.depth
        self._spawner = self._spawn if may_spawn else None
        self._skills = SkillActivator(kit, self._spawner)
        self._budget = Budget(agent.limits, agent.prices, self._talk, time.monotonic)
        self._notes = Notes(kit, self._budget)
        self._planned = False
        self._overflowed = False
        self._empty = 0
        self._pieces: list[str] = []
        self._unfinished: ShownReply | None = None  # reply that the model has begun
        self._files: dict[str, RunFile] = {}
        self._left_out: dict[str, None] = {}

    async def go(self, task: Task) -> RunFinished:
        keep_approvals = task.resume or task.parent is not None
        self._kit.start_run(self._budget.plan_limits(), keep_approvals=keep_approvals)
        try:
            async with asyncio.timeout(self._budget.seconds_left()):
                return await self._begin(task) or await self._turns()
        except TimeoutError:
            return await self._stop("limit:seconds")

    async def _begin(self, task: Task) -> RunFinished | None:
        """Makes the calls that a resumed run left, and activates the requested skills."""
        if task.resume:
            waiting = await self._take_up()
            if waiting is not None:
                return waiting
        waits = await self._skills.activate(task)
        return self._waiting() if waits else None

    # --- turns ------------------------------------------------------------------------------------------------------

    async def _turns(self) -> RunFinished:
        answer = self._talk.answer
        if answer is not None:  # resumed: the answer was recorded, but not the end of the run
            finished = await self._answer(answer)
            if finished is not None:
                return finished
        while True:
            limit = self._budget.reached()
            if limit is not None:
                return await self._stop(limit)
            reply = await self._decide()
            finished = await self._observe(reply)
            if finished is not None:
                return finished

    async def _decide(self) -> ModelReplied:
        """Records the request with its hash, asks the model, and records the reply."""
        kit = self._kit
        if is_near(self._agent, self._talk):
            await shorten(self._agent, kit, "near the context limit")
        reply: ModelReplied | None = None
        while reply is None:
            request = await self._compose()
            reply = await self._ask(request)
        reply = self._budget.priced(reply)
        reply = clean(reply, self._talk.call_ids)
        await kit.append(reply)
        self._unfinished = None
        kit.shelf.new_turn()
        for id in self._talk.turn_once:
            await kit.append(SkillUnloaded(id=id, reason=SHOWN_ONCE))
        return reply

    async def _compose(self) -> ModelRequest:
        """Completes the request, and records it."""
        kit = self._kit
        talk = self._talk
        epoch = self._epoch()
        notes = self._find_notes(epoch)
        events = kit.redact([*self._begin_epoch(epoch), *notes])
        for event in events:
            talk.apply(event)
        request = talk.request()
        asked = ModelRequested(bytes=request.size_bytes, sha256=request.sha256)
        await kit.recorder.append(*events, asked)
        talk.apply(asked)
        return request

    def _find_notes(self, epoch: EpochStarted | None) -> Sequence[Event]:
        """Notes for the next request. Of an old recording they are repeated, because today's are others."""
        recording = self._agent.recording
        if recording is None or not self._agent.is_old_recording:
            return self._notes.find(epoch)
        run = self._talk.run or ""
        return recording.recorded_notes(run, self._talk.task)

    async def _ask(self, request: ModelRequest) -> ModelReplied | None:
        """Asks the model. If the request is too long for it, once in a run, shortens it and returns None."""
        shown = self._unfinished = ShownReply(self._kit)
        try:
            return await ask(self._agent, request, self._kit, self._retry_policy, self._budget.seconds_left, shown)
        except ModelError as error:
            if error.code != "context-overflow" or self._overflowed:
                raise
            self._overflowed = True
            self._talk.take_back_turn()
            await shorten(self._agent, self._kit, "the context overflowed", forced=True)
            return None

    def _epoch(self) -> EpochStarted | None:
        """Event that begins an epoch, if there is a reason for one."""
        talk = self._talk
        if talk.stale is None:
            return None
        system = self._kit.instructions
        if self._output is not None:
            system = self._output.add_to(system)
        tools = tuple(self._kit.tools)
        talk.draft.keep_tools(tools)
        return EpochStarted(
            why=talk.stale,
            first_changed=talk.first_change(system, tools),
            system=None if system == talk.draft.system else system,
            tools=None if tools == talk.draft.tools else tools,
        )

    def _begin_epoch(self, started: EpochStarted | None) -> list[Event]:
        """Events of an epoch: the catalog at the first one of a run and when it changed, and problems with policy."""
        if started is None:
            return []
        plan = self._kit.plan
        problems = self._kit.offer.take_problems()
        if self._planned and plan == self._talk.catalog:
            return [started, *problems]
        self._planned = True
        return [started, CatalogPlanned(plan=plan), *problems]

    async def _observe(self, reply: ModelReplied) -> RunFinished | None:
        if not reply.calls:
            return await self._answered(reply)
        self._empty, self._pieces = 0, []
        stop = await self._act_all(reply.calls)
        if stop is not None:
            return stop
        if reply.finish == "stop" and reply.text:  # an answer together with a last plan update
            return await self._end_with(reply.text)
        return None

    async def _answered(self, reply: ModelReplied) -> RunFinished | None:
        """Handles a reply without calls: the answer, unless it is cut off, empty, a failure, or code to run."""
        if reply.finish == "filter":
            raise ModelError(
                "The provider withheld the model's reply.",
                code="model-filtered",
                hint="Ask in another way, or ask another model.",
            )
        if reply.code is not None:
            return RunFinished(stop_reason="error", text=reply.text, usage=self.usage, code=reply.code)
        can_go_on = self._agent.native_schema is None  # a provider would begin the document again
        if reply.finish == "length" and can_go_on and len(self._pieces) < _MOST_PIECES:
            self._pieces.append(reply.text)
            self._notes.say("Your reply was cut off at its greatest length. Go on exactly where it stopped.")
            return None
        if not reply.text.strip() and not self._pieces:
            self._empty += 1
            if self._empty > _EMPTY_REPLIES:
                raise ModelMalformed(
                    f"The model gave {self._empty} empty replies.",
                    code="empty-reply",
                    hint="Try another model, or say more about what is wanted.",
                )
            self._notes.say("Your reply was empty. Call a tool, or answer.")
            return None
        return await self._answer(reply.text)

    async def _answer(self, text: str) -> RunFinished | None:
        if self._agent.code_blocks:
            skill = self._last_skill()
            for note in find_code_notes(text, skill=skill):
                await self._kit.append(ErrorRaised(code="code-not-run", message=note))
            found = find_code_calls(text, skill=skill)
            if found:
                return await self._run_code(found)
        answer = "".join([*self._pieces, text])
        return await self._end_with(answer)

    async def _end_with(self, answer: str) -> RunFinished | None:
        """Ends the run with an answer, unless it does not fit the form that the caller wants."""
        if self._output is None:
            return RunFinished(stop_reason="answer", text=answer, usage=self.usage)
        checked = await self._output.check(answer)
        if isinstance(checked, RunFinished):
            return checked
        self._pieces = []
        self._notes.say(checked, NOTE_KIND)
        return None

    # --- calls ------------------------------------------------------------------------------------------------------

    async def _act_all(self, calls: Sequence[ToolCall]) -> RunFinished | None:
        """Makes calls in order; read-only neighbours at the same time."""
        named: list[str] = []
        ordered = self._in_order(calls)
        for group in make_groups(ordered, self._kit.is_read_only):
            for index, call in enumerate(group):
                limit = self._budget.reached_by(call, index)
                if limit is not None:
                    await self._act_group(group[:index], named)
                    return await self._stop(limit)
            outcomes = await self._act_group(group, named)
            if any(outcome.status == "waiting" for outcome in outcomes):
                return self._waiting()
        waits = await self._skills.activate_for(named)
        return self._waiting() if waits else None

    async def _act_group(self, group: Sequence[ToolCall], named: list[str]) -> list[Outcome]:
        """Makes calls at the same time. Adds the file names in them to `named`."""
        if len(group) == 1:
            outcomes = [await self._act(group[0])]
        else:
            outcomes = await act_together(group, self._act)
        for call, outcome in zip(group, outcomes, strict=True):
            named += names_in(call, outcome)
            self._keep_files(outcome)
        return outcomes

    async def _act(self, call: ToolCall, before_end: BeforeEnd | None = None) -> Outcome:
        return await self._kit.act(call, spawn=self._spawner, before_end=before_end)

    def _keep_files(self, outcome: Outcome) -> None:
        """Collects the files that a call made, for the result of the run."""
        data = outcome.data
        for file in data.get("output_files") or ():
            self._files[file["name"]] = self._kit.work.find_output(file)
        for name in data.get("left_out") or ():
            self._left_out[name] = None

    def _in_order(self, calls: Sequence[ToolCall]) -> list[ToolCall]:
        """Moves loads of coordinator skills first, so that the limit on bodies per turn cannot exclude them."""
        coordinators = [call for call in calls if self._coordinates(call)]
        if not coordinators:
            return list(calls)
        tools = [call.tool for call in calls]
        first = tools.index("skill_load")
        others = [call for call in calls if call not in coordinators]
        return [*others[:first], *coordinators, *others[first:]]

    def _coordinates(self, call: ToolCall) -> bool:
        if call.tool != "skill_load":
            return False
        ref = call.args.get("skill")
        if not isinstance(ref, str):
            return False
        entry = self._kit.skills.catalog().find(ref)
        return entry is not None and entry.controls.role == "coordinator"

    def _last_skill(self) -> str | None:
        loaded = list(self._kit.work.loaded)
        if not loaded:
            return None
        return loaded[-1]

    async def _run_code(self, found: Sequence[dict[str, Any]]) -> RunFinished | None:
        """Runs fenced code of an answer as normal calls, if that is enabled. Call ids come from the position of the
        block, so that a call that waited is found again."""
        talk = self._talk
        place = f"code-{talk.number}-{talk.spent.turns}"
        for number, args in enumerate(found, 1):
            call = ToolCall(id=f"{place}-{number}", tool="skill_run", args=args)
            if talk.was_begun(call.id):
                await self._cut_off(call)
            outcome = talk.find_outcome(call.id)
            if outcome is None or outcome.status == "waiting":
                outcome = await self._act(call)
            if outcome.status == "waiting":
                return self._waiting()
            self._keep_files(outcome)
            said = render_outcome(outcome)
            self._notes.say(f"Code block {number} was run. What it said is data:\n{said}")
        return None

    # --- child runs -------------------------------------------------------------------------------------------------

    async def _spawn(self, spawn: Spawn, call: ToolCall) -> Outcome:
        """Carries out a call in a child run, with the same retry policy."""
        run_again = partial(run, retry_policy=self._retry_policy)
        return await run_child(spawn, call, self._kit, self._agent, self._budget, run_again)

    # --- the end ----------------------------------------------------------------------------------------------------

    @property
    def usage(self) -> Usage:
        return self._talk.spent.usage

    @property
    def prompts(self) -> int:
        return self._talk.spent.prompts

    def partial(self, why: str) -> str:
        """Reports an unfinished run, with the text of a reply that was cut off."""
        said = self._unfinished.cut_off() if self._unfinished else ""
        return render_partial(self._talk, why, said)

    async def _stop(self, limit: StopReason) -> RunFinished:
        """Ends the run at a limit. Calls that were not made get an outcome, so that a later run knows."""
        why = self._budget.explain(limit)
        outcome = Outcome(status="denied", code=limit, content=f"It was not made: {why}")
        for call, begun in self._talk.unfinished_calls():
            if not begun:
                await self._kit.calls.end(call, outcome)
        return RunFinished(stop_reason=limit, text=self.partial(why), usage=self.usage)

    def _waiting(self) -> RunFinished:
        calls = self._talk.waiting_calls()
        what = "a person has to be asked"
        if calls:
            what = f"{calls[0].tool} has to be approved by a person"
        text = self.partial(f"{what}, and nobody could be asked")
        return RunFinished(stop_reason="waiting", text=text, usage=self.usage)

    async def _take_up(self) -> RunFinished | None:
        """Resumes calls: marks interrupted ones, and makes those that were not begun or waited for a person."""
        talk = self._talk
        for call, begun in talk.unfinished_calls():
            if begun:
                await self._cut_off(call)
        calls = [call for call, _ in talk.unfinished_calls()]
        if not talk.spent.turns:  # _activate makes all skill requests again, with their ids
            calls = [call for call in calls if call.id not in talk.requested_loads]
        return await self._act_all(calls)

    async def _cut_off(self, call: ToolCall) -> None:
        """Records that a call was interrupted."""
        await self._kit.calls.end(call, _INTERRUPTED)

    async def cancel(self) -> None:
        """Records that the run was cancelled."""
        text = self.partial("it was cancelled")
        with suppress(StoreError):  # a closing event loop also cancels the write
            await self.end(RunFinished(stop_reason="cancelled", text=text, usage=self.usage))

    async def fail(self, error: ProwessError) -> None:
        """Records the error that ends the run."""
        code = str(error.code)
        text = self.partial(error.message.rstrip("."))
        raised = ErrorRaised(code=code, message=error.message, hint=error.hint)
        finished = RunFinished(
            stop_reason="denied" if isinstance(error, SkillDenied) else "error",
            text=text,
            usage=self.usage,
            code=code,
            hint=error.hint,
            prompts=self.prompts,
        )
        await self._kit.append(raised, finished)

    def redacted(self, finished: RunFinished) -> RunFinished:
        text = self._kit.secrets.redact_text(finished.text)
        return replace(finished, text=text)

    async def end(self, finished: RunFinished) -> None:
        finished = replace(finished, prompts=self.prompts)
        await self._kit.end_programs()
        if not self._kit.recorder.broken:
            await self._kit.append(finished)

    def result(self, finished: RunFinished) -> Result[Any]:
        talk = self._talk
        waiting = talk.waiting_calls() if finished.stop_reason == "waiting" else []
        failed = [tool for tool, outcome in talk.outcomes() if outcome.status in _FAILED]
        left_out = [name for name in self._left_out if name not in self._files]
        text = finished.text
        if finished.stop_reason not in ("answer", "error"):  # the recorded text is a report, not of the model
            text = talk.last_text
        return Result(
            text=text,
            report=finished.text,
            problems=tuple(self._kit.recorder.problems),
            stop_reason=finished.stop_reason,
            usage=finished.usage,
            session=self._kit.recorder.key.session,
            run=self._kit.recorder.run_id,
            plan=talk.plan,
            files=tuple(self._files.values()),
            left_out=tuple(left_out),
            waiting=tuple(waiting),
            failed=len(failed),
            state=dict(talk.state.values),
            code=finished.code,
            value=finished.text if self._output is None else self._output.value,
        )
