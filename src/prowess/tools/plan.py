"""update_plan: the plan of the task, made, replaced or patched; it is written down each time it changes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from prowess.core.ports import Need, Within
from prowess.core.values import Outcome, Plan, ToolSpec, to_json
from prowess.tools.knowledge_arguments import PlanArguments
from prowess.tools.plan_patch import STATUSES, change_plan, parse_plan
from prowess.tools.schema import parse_arguments

_STEP = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "string", "enum": list(STATUSES)},
    },
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "plan": {
            "type": "object",
            "properties": {"goal": {"type": "string"}, "steps": {"type": "array", "items": _STEP}},
        },
        "patch": {
            "type": "object",
            "description": "set {id: {title, status}}, add [steps], remove [ids], order [ids]",
        },
    },
}


class UpdatePlan:
    """`limits` are those of the run, under the names of a plan's constraints: a plan cannot widen them."""

    spec = ToolSpec(
        name="update_plan",
        description="Keep the plan of a task with several steps: all of it, or a patch.",
        parameters=SCHEMA,
    )

    def __init__(
        self,
        get: Callable[[], Plan | None],
        put: Callable[[Plan], Awaitable[None]],
        *,
        limits: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._get, self._put, self._limits = get, put, limits

    def normalise(self, args: Mapping[str, Any]) -> dict[str, Any]:
        given = parse_arguments(PlanArguments, args, self.spec.name)
        normal: dict[str, Any] = {}
        if given.plan is not None:
            plan = to_json(parse_plan(given.plan))
            normal["plan"] = {name: value for name, value in plan.items() if value or name == "steps"}
        if given.patch is not None:
            normal["patch"] = given.patch
        return normal

    async def needs(self, args: Mapping[str, Any]) -> Sequence[Need]:
        return ()

    async def call(self, args: Mapping[str, Any], within: Within) -> Outcome:
        given = parse_arguments(PlanArguments, args, self.spec.name)
        before = self._get()
        plan, notes = change_plan(before, plan=given.plan, patch=given.patch, limits=self._limits())
        if plan != before:
            await self._put(plan)
        data: dict[str, Any] = {"plan": to_json(plan)}
        if notes:
            data["warnings"] = list(notes)
        return Outcome(status="ok", content="; ".join((render_progress(plan), *notes)), data=data)


def render_progress(plan: Plan) -> str:
    """`plan: 1 of 3 done; next: s2 Read the table`."""
    if not plan.steps:
        return "plan: no steps"
    done = sum(step.status == "completed" for step in plan.steps)
    line = f"plan: {done} of {len(plan.steps)} done"
    left = sorted((step for step in plan.steps if step.status != "completed"), key=lambda step: step.status)
    return f"{line}; next: {left[0].id} {left[0].title}" if left else line  # "in_progress" sorts before "pending"
