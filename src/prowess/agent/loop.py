"""Runs the agent loop: decide, act, observe, until an answer, a limit, a pause or a cancel. RunFinished says which.

    request -> [ compose -> model -> calls -> act ] -> … -> RunFinished

Every step is recorded as an event before the next step begins. A request to the model is retried when that can help. A
call that was decided is never made twice. Read-only calls that stand side by side are made at the same time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from prowess.agent.activation import find_requested_skills, names_in, skills_for_paths
from prowess.agent.agent import AgentSpec, Result, SkillRequest, Task, make_started, skill_requests_of
from prowess.agent.budget import Budget, is_near, render_partial
from prowess.agent.child_run import run_child
from prowess.agent.compaction import shorten
from prowess.agent.context.conversation import SHOWN_ONCE
from prowess.agent.context.render import render_note, render_outcome
from prowess.agent.model_call import RetryPolicy, ask, clean
from prowess.agent.toolkit import Toolkit
from prowess.core.events import (
    CallActed,
    CatalogPlanned,
    EpochStarted,
    ErrorRaised,
    Event,
    ModelReplied,
    ModelRequested,
    NoteAppended,
    RunFinished,
    SkillUnloaded,
    StopReason,
)
from prowess.core.values import Outcome, Plan, Spawn, ToolCall, Usage
from prowess.errors import ModelError, ModelMalformed, ProwessError, SkillDenied, StoreError
from prowess.tools.run.code_blocks import find_code_calls, find_code_notes


def make_groups(calls: Sequence[ToolCall], is_read_only: Callable[[ToolCall], bool]) -> list[list[ToolCall]]:
    """Groups calls: read-only neighbours form one group, every other call is its own group."""
    groups: list[list[ToolCall]] = []
    for call in calls:
        if groups and is_read_only(call) and is_read_only(groups[-1][-1]):
            groups[-1].append(call)
        else:
            groups.append([call])
    return groups


async def together(work: Sequence[Awaitable[Outcome]]) -> list[Outcome]:
    """Awaits all calls. If one raises (the record is broken), cancels the others and waits for their end first."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


_MOST_PIECES = 3  # of an answer that exceeds the length limit of a reply
_EMPTY_REPLIES = 2


async def run(agent: AgentSpec, kit: Toolkit, task: Task, *, retry_policy: RetryPolicy | None = None) -> Result:
    """Runs one request to its end. An error that ends the run is recorded and then raised."""
    resumed = kit.conversation.run if task.resume else None
    loop = _Loop(agent, kit, retry_policy or RetryPolicy())
    await kit.append(make_started(agent, task, resumed))
    kit.conversation.start_run(kit.recorder.run_id)
    try:
        finished = loop.redacted(await loop.go(task))
    except asyncio.CancelledError:
        cancelled = RunFinished(stop_reason="cancelled", text=loop.partial("it was cancelled"), usage=loop.usage)
        with suppress(StoreError):  # a closing event loop also cancels the write
            await loop.end(cancelled)
        raise
    except ProwessError as error:
        if kit.recorder.broken:
            raise
        reason: StopReason = "denied" if isinstance(error, SkillDenied) else "error"
        code, hint, text = str(error.code), error.hint, loop.partial(error.message.rstrip("."))
        await kit.append(
            ErrorRaised(code=code, message=error.message, hint=hint),
            RunFinished(stop_reason=reason, text=text, usage=loop.usage, code=code, hint=hint, prompts=loop.prompts),
        )
        raise
    await loop.end(finished)
    return loop.result(finished)


class _Loop:
    def __init__(self, agent: AgentSpec, kit: Toolkit, retry_policy: RetryPolicy) -> None:
        self._agent, self._kit, self._retry_policy = agent, kit, retry_policy
        self._talk = kit.conversation
        self._spawner = self._spawn if len(kit.ancestry) < agent.depth else None
        self._budget = Budget(agent.limits, agent.prices, self._talk, time.monotonic)
        self._plan_shown: Plan | None = None
        self._planned = self._overflowed = False
        self._empty = 0
        self._pieces: list[str] = []
        self._notes: list[NoteAppended] = []
        self._files: dict[str, dict[str, Any]] = {}
        self._left_out: dict[str, None] = {}

    async def go(self, task: Task) -> RunFinished:
        keep_approvals = task.resume or task.parent is not None
        self._kit.start_run(self._budget.plan_limits(), keep_approvals=keep_approvals)
        try:
            async with asyncio.timeout(self._budget.seconds_left()):
                if task.resume and (waiting := await self._take_up()) is not None:
                    return waiting
                return await self._activate(self._not_yet_begun(task)) or await self._turns()
        except TimeoutError:
            return await self._stop("limit:seconds")

    # --- turns ------------------------------------------------------------------------------------------------------

    async def _turns(self) -> RunFinished:
        if (answer := self._talk.answer) is not None:  # resumed: the answer was recorded, but not the end of the run
            finished = await self._answer(answer)
            if finished is not None:
                return finished
        while True:
            if (limit := self._budget.reached()) is not None:
                return await self._stop(limit)
            reply = await self._decide()
            finished = await self._observe(reply)
            if finished is not None:
                return finished

    async def _decide(self) -> ModelReplied:
        """Records the request with its hash, asks the model, and records the reply."""
        agent, kit, talk = self._agent, self._kit, self._talk
        if is_near(agent, talk):
            await shorten(agent, kit, "near the context limit")
        while True:
            events = kit.redact([*self._epoch(), *self._notes, *self._over(), self._note()])
            self._notes = []
            for event in events:
                talk.apply(event)
            request = talk.request()
            await kit.recorder.append(*events, asked := ModelRequested(bytes=request.size_bytes, sha256=request.sha256))
            talk.apply(asked)
            try:
                reply = await ask(agent, request, kit, self._retry_policy, self._budget.seconds_left)
                break
            except ModelError as error:
                if error.code != "context-overflow" or self._overflowed:
                    raise
                self._overflowed = True
                talk.take_back_turn()
                await shorten(agent, kit, "the context overflowed", forced=True)
        reply = clean(self._budget.priced(reply), talk.call_ids)
        await kit.append(reply)
        kit.shelf.new_turn()
        for id in talk.turn_once:
            await kit.append(SkillUnloaded(id=id, reason=SHOWN_ONCE))
        return reply

    def _epoch(self) -> list[Event]:
        kit, talk = self._kit, self._talk
        if talk.stale is None:
            return []
        self._plan_shown = None
        system, tools = kit.instructions, tuple(kit.tools)
        talk.draft.keep_tools(tools)
        started = EpochStarted(
            why=talk.stale,
            first_changed=talk.first_change(system, tools),
            system=None if system == talk.draft.system else system,
            tools=None if tools == talk.draft.tools else tools,
        )
        if self._planned:
            return [started]
        self._planned = True
        return [started, CatalogPlanned(plan=kit.plan)]

    def _over(self) -> list[NoteAppended]:
        texts = [
            f"The skill {id} was to be shown once. Load it again when you need its text." for id in self._talk.over
        ]
        return [NoteAppended(kind="skill", text=f"<note>\n{text}\n</note>") for text in texts]

    def _note(self) -> NoteAppended:
        plan = self._talk.plan
        left = self._budget.left()
        if not self._kit.style.can_run:
            left.pop("scripts", None)
        text = render_note(plan, self._plan_shown, left)
        self._plan_shown = plan
        return NoteAppended(kind="budget", text=text)

    async def _observe(self, reply: ModelReplied) -> RunFinished | None:
        if not reply.calls:
            return await self._answered(reply)
        self._empty, self._pieces = 0, []
        stop = await self._act_all(reply.calls)
        if stop is not None:
            return stop
        if reply.finish == "stop" and reply.text:  # an answer together with a last plan update
            return RunFinished(stop_reason="answer", text=reply.text, usage=self.usage)
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
        if reply.finish == "length" and len(self._pieces) < _MOST_PIECES:
            self._pieces.append(reply.text)
            self._say("Your reply was cut off at its greatest length. Go on exactly where it stopped.")
            return None
        if not reply.text.strip() and not self._pieces:
            self._empty += 1
            if self._empty > _EMPTY_REPLIES:
                raise ModelMalformed(
                    f"The model gave {self._empty} empty replies.",
                    code="empty-reply",
                    hint="Try another model, or say more about what is wanted.",
                )
            self._say("Your reply was empty. Call a tool, or answer.")
            return None
        return await self._answer(reply.text)

    async def _answer(self, text: str) -> RunFinished | None:
        if self._agent.code_blocks:
            skill = self._last_skill()
            for note in find_code_notes(text, skill=skill):
                await self._kit.append(ErrorRaised(code="code-not-run", message=note))
            if found := find_code_calls(text, skill=skill):
                return await self._run_code(found)
        return RunFinished(stop_reason="answer", text="".join([*self._pieces, text]), usage=self.usage)

    def _say(self, text: str) -> None:
        self._notes.append(NoteAppended(kind="note", text=f"<note>\n{text}\n</note>"))

    # --- calls ------------------------------------------------------------------------------------------------------

    async def _act_all(self, calls: Sequence[ToolCall]) -> RunFinished | None:
        """Makes calls in order; read-only neighbours at the same time."""
        named: list[str] = []
        for group in make_groups(self._in_order(calls), self._is_read_only):
            for index, call in enumerate(group):
                if (limit := self._budget.reached_by(call, index)) is not None:
                    await self._act_group(group[:index], named)
                    return await self._stop(limit)
            outcomes = await self._act_group(group, named)
            if any(outcome.status == "waiting" for outcome in outcomes):
                return self._waiting()
        return await self._activate_for(named)

    async def _act_group(self, group: Sequence[ToolCall], named: list[str]) -> list[Outcome]:
        ends = [asyncio.Event() for _ in group]

        async def one(index: int, call: ToolCall) -> Outcome:
            try:
                before_end = ends[index - 1].wait if index else None
                return await self._kit.act(call, spawn=self._spawner, before_end=before_end)
            finally:
                ends[index].set()

        if len(group) == 1:
            outcomes = [await self._kit.act(group[0], spawn=self._spawner)]
        else:
            outcomes = await together([one(index, call) for index, call in enumerate(group)])
        for call, outcome in zip(group, outcomes, strict=True):
            named += names_in(call, outcome)
            self._keep_files(outcome)
        return outcomes

    def _keep_files(self, outcome: Outcome) -> None:
        """Collects the files that a call made, without their content, for the result of the run."""
        for file in outcome.data.get("output_files") or ():
            self._files[file["name"]] = {key: value for key, value in file.items() if key != "content"}
        self._left_out |= dict.fromkeys(outcome.data.get("left_out") or ())

    def _in_order(self, calls: Sequence[ToolCall]) -> list[ToolCall]:
        """Moves loads of coordinator skills first, so that the limit on bodies per turn cannot exclude them."""
        coordinators = [call for call in calls if self._coordinates(call)]
        if not coordinators:
            return list(calls)
        first = next(index for index, call in enumerate(calls) if call.tool == "skill_load")
        others = [call for call in calls if call not in coordinators]
        return [*others[:first], *coordinators, *others[first:]]

    def _coordinates(self, call: ToolCall) -> bool:
        ref = call.args.get("skill")
        if call.tool != "skill_load" or not isinstance(ref, str):
            return False
        entry = self._kit.skills.catalog().find(ref)
        return entry is not None and entry.controls.role == "coordinator"

    def _is_read_only(self, call: ToolCall) -> bool:
        return self._kit.is_read_only(call.tool)

    def _last_skill(self) -> str | None:
        loaded = list(self._kit.work.loaded)
        return loaded[-1] if loaded else None

    async def _run_code(self, found: Sequence[dict[str, Any]]) -> RunFinished | None:
        """Runs fenced code of an answer as normal calls, if that is enabled. Call ids come from the position of the
        block, so that a call that waited is found again."""
        place = f"code-{self._talk.number}-{self._talk.spent.turns}"
        for number, args in enumerate(found, 1):
            call = ToolCall(id=f"{place}-{number}", tool="skill_run", args=args)
            if self._talk.was_begun(call.id):
                await self._cut_off(call)
            outcome = self._talk.find_outcome(call.id)
            if outcome is None or outcome.status == "waiting":
                outcome = await self._kit.act(call, spawn=self._spawner)
            if outcome.status == "waiting":
                return self._waiting()
            self._keep_files(outcome)
            self._say(f"Code block {number} was run. What it said is data:\n{render_outcome(outcome)}")
        return None

    # --- skills that the model did not load --------------------------------------------------------------------------

    def _not_yet_begun(self, task: Task) -> Task:
        """Adds the requested skills and files again if the resumed run stopped before its first turn."""
        started = self._talk.first_started
        if not task.resume or self._talk.spent.turns or started is None:
            return task
        named = find_requested_skills(started.request, self._kit.skills.catalog())[0] if started.parent is None else []
        return replace(
            task,
            skills=(*skill_requests_of(started), *named, *task.skills),
            attachments=(*started.attachments, *task.attachments),
        )

    async def _activate(self, task: Task) -> RunFinished | None:
        """Activates the skills that the caller and the user named, then those for the given files. If one needs an
        approval, the others are loaded, and the run waits."""
        catalog = self._kit.skills.catalog()
        requests, unknown = find_requested_skills(task.text, catalog) if task.parent is None else ([], [])
        for name, hint in unknown:
            text = f"'{name}' is not a skill; it was taken as a part of the text."
            await self._kit.append(ErrorRaised(code="skill-not-found", message=text, hint=hint))
        waits = False
        for requested in [*task.skills, *requests]:
            entry, id = catalog.find(requested.ref), self._id_of(requested)
            if task.resume and id is None and entry is not None and entry.id in self._talk.loads:
                continue
            outcome = await self._kit.request_skill(
                requested.ref,
                source=requested.source,
                trigger=requested.trigger,
                arguments=requested.arguments,
                docs=requested.docs,
                id=id,
                spawn=self._spawner,
            )
            if outcome.status == "waiting":
                waits = True
            elif outcome.status != "ok" and not requested.firm:  # the name may be part of a pasted text
                error = self._kit.activation_error
                text = error.message if error else outcome.content
                await self._kit.append(ErrorRaised(code=str(outcome.code), message=text, hint=outcome.hint))
            elif outcome.status != "ok":
                decided = outcome.data.get("rule")  # the hint for a model does not help a person
                hint = f"What decided: {decided}. See: prowess policy check skill_load" if decided else outcome.hint
                raise self._kit.activation_error or SkillDenied(outcome.content, code=outcome.code, hint=hint)
        given = [part.text or "" for part in task.attachments if part.kind == "file"]
        return await self._activate_for([*given, *task.named]) or (self._waiting() if waits else None)

    def _id_of(self, requested: SkillRequest) -> str | None:
        """Id of an earlier call for the same skill request, so that its approval counts again."""
        wanted = (requested.ref, requested.source, requested.trigger)
        calls = self._talk.requested_loads.items()
        return next((id for id, c in calls if (c.args.get("skill"), c.args.get("source"), c.trigger) == wanted), None)

    async def _activate_for(self, names: Sequence[str]) -> RunFinished | None:
        if not names:
            return None
        ids = skills_for_paths(names, self._kit.skills.catalog(), self._kit.work.known)
        outcomes = [await self._kit.request_skill(id, trigger="path", spawn=self._spawner) for id in ids]
        return self._waiting() if any(outcome.status == "waiting" for outcome in outcomes) else None

    # --- child runs -------------------------------------------------------------------------------------------------

    async def _spawn(self, spawn: Spawn, call: ToolCall) -> Outcome:
        async def run_with_retries(agent: AgentSpec, kit: Toolkit, task: Task) -> Result:
            return await run(agent, kit, task, retry_policy=self._retry_policy)

        return await run_child(spawn, call, self._kit, self._agent, self._budget, run_with_retries)

    # --- the end ----------------------------------------------------------------------------------------------------

    @property
    def usage(self) -> Usage:
        return self._talk.spent.usage

    @property
    def prompts(self) -> int:
        return self._talk.spent.prompts

    def partial(self, why: str) -> str:
        return render_partial(self._talk, why)

    async def _stop(self, limit: StopReason) -> RunFinished:
        """Ends the run at a limit. Calls that were not made get an outcome, so that a later run knows."""
        for call, begun in self._talk.unfinished_calls():
            if not begun:
                why = f"It was not made: {self._budget.explain(limit)}"
                outcome = Outcome(status="denied", code=limit, content=why)
                await self._kit.append(CallActed(call_id=call.id, outcome=outcome))
        return RunFinished(stop_reason=limit, text=self.partial(self._budget.explain(limit)), usage=self.usage)

    def _waiting(self) -> RunFinished:
        calls = self._talk.waiting_calls()
        first = f"{calls[0].tool} has to be approved by a person" if calls else "a person has to be asked"
        return RunFinished(
            stop_reason="waiting", text=self.partial(f"{first}, and nobody could be asked"), usage=self.usage
        )

    async def _take_up(self) -> RunFinished | None:
        """Resumes calls: marks interrupted ones, and makes those that were not begun or waited for a person."""
        for call, begun in self._talk.unfinished_calls():
            if begun:
                await self._cut_off(call)
        calls = [call for call, _ in self._talk.unfinished_calls()]
        if not self._talk.spent.turns:  # _activate makes all skill requests again, with their ids
            calls = [call for call in calls if call.id not in self._talk.requested_loads]
        return await self._act_all(calls)

    async def _cut_off(self, call: ToolCall) -> None:
        outcome = Outcome(
            status="interrupted",
            code="interrupted",
            content="The process ended while this call was being made. It may have been done, in part or in whole, and "
            "was not repeated.",
            hint="Look at what is there before you do it again.",
        )
        await self._kit.append(CallActed(call_id=call.id, outcome=outcome))

    def redacted(self, finished: RunFinished) -> RunFinished:
        return replace(finished, text=self._kit.secrets.redact_text(finished.text))

    async def end(self, finished: RunFinished) -> None:
        finished = replace(finished, prompts=self.prompts)
        await self._kit.end_programs()
        if not self._kit.recorder.broken:
            await self._kit.append(finished)

    def result(self, finished: RunFinished) -> Result:
        return Result(
            text=finished.text,
            stop_reason=finished.stop_reason,
            usage=finished.usage,
            session=self._kit.recorder.key.session,
            run=self._kit.recorder.run_id,
            plan=self._talk.plan,
            files=tuple(self._files.values()),
            left_out=tuple(name for name in self._left_out if name not in self._files),
            waiting=tuple(self._talk.waiting_calls()) if finished.stop_reason == "waiting" else (),
            failed=sum(outcome.status in ("failed", "denied", "interrupted") for _, outcome in self._talk.outcomes()),
            state=dict(self._talk.state.values),
            code=finished.code,
        )
