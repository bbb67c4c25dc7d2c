"""Carries out a call in a child run: another conversation, the same workspace, at most the same permissions.

A child run that waited for a person or was interrupted continues when the call is made again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from prowess.agent.agent import AgentSpec, Result, SkillRequest, Task
from prowess.agent.budget import Budget
from prowess.agent.context.state import render_spent
from prowess.agent.recorder import new_run
from prowess.agent.toolkit import Toolkit
from prowess.core.codec import to_json
from prowess.core.events import RunStarted
from prowess.core.values import Outcome, Spawn, ToolCall
from prowess.errors import ProwessError, StoreError
from prowess.tools.session_work import ChildWork

Run = Callable[[AgentSpec, Toolkit, Task], Awaitable[Result]]


async def run_child(
    spawn: Spawn, call: ToolCall, parent: Toolkit, agent: AgentSpec, budget: Budget, run: Run
) -> Outcome:
    if spawn.skill in parent.ancestry:
        return Outcome(
            status="failed",
            code="self-recursion",
            content=f"The skill {spawn.skill} is already being done by this run.",
            hint="Do the work yourself, with the instructions that you have.",
        )
    talk = parent.conversation
    work = ChildWork(parent.work)
    kit = parent.make_child(work, new_run(), spawn.skill)
    before = talk.children.get(call.id)
    if before is None:
        task = _make_task(spawn, call, parent)
    else:
        await _take_up(kit, before)
        task = Task(resume=True, parent=parent.recorder.run_id, call=call.id)
    talk.children[call.id] = kit.recorder.run_id
    counted = talk.counted.get(call.id)
    agent = replace(agent, limits=budget.share(counted), output=None)
    try:
        result = await run(agent, kit, task)
    except StoreError:
        raise
    except ProwessError as error:
        data = {"child": kit.recorder.run_id, **_used(kit)}
        return Outcome(status="failed", code=str(error.code), content=error.message, hint=error.hint, data=data)
    finally:
        await kit.end_programs()
    data = {"child": result.run, "skill": spawn.skill, "stop_reason": result.stop_reason, **_used(kit)}
    return _outcome(result, data)


def _make_task(spawn: Spawn, call: ToolCall, parent: Toolkit) -> Task:
    talk = parent.conversation
    requested = SkillRequest(ref=spawn.skill, trigger="nested")
    return Task(
        text=spawn.request or talk.task,
        attachments=talk.attachments,
        skills=(requested,),
        parent=parent.recorder.run_id,
        call=call.id,
    )


def _outcome(result: Result, data: dict[str, object]) -> Outcome:
    """Outcome of the call that a child run carried out."""
    text = result.report
    if result.ok:
        return Outcome(status="ok", content=text, data=data)
    if result.stop_reason == "waiting":
        data["waiting"] = to_json(result.waiting)
        return Outcome(status="waiting", code="approval-needed", content=text, data=data)
    code = result.code or result.stop_reason
    return Outcome(status="failed", code=code, content=text, data=data)


def _used(kit: Toolkit) -> dict[str, object]:
    spent = kit.conversation.spent
    return {"usage": to_json(spent.usage), "spent": render_spent(spent)}


async def _take_up(kit: Toolkit, last: str) -> None:
    """Restores the conversation of a child run from the log, including the runs that it resumed."""
    envelopes = [envelope async for envelope in kit.recorder.read()]
    resumed: dict[str, str | None] = {}
    for envelope in envelopes:
        if isinstance(envelope.event, RunStarted):
            resumed[envelope.run] = envelope.event.resumes
    chain: set[str] = set()
    run: str | None = last
    while run is not None and run not in chain:
        chain.add(run)
        run = resumed.get(run)
    kit.conversation.take_up(envelopes, chain)
    kit.take_up_skills()
