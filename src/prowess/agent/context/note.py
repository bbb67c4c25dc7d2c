"""What every decision is shown at the tail: the plan as it stands, and what is left of the budget."""

from __future__ import annotations

from collections.abc import Mapping

from prowess.agent.context.render import make_safe
from prowess.core.values import Plan

_MARKS = {"completed": "[x]", "in_progress": "[>]", "pending": "[ ]"}
_LONGEST = 1_500


def render_note(plan: Plan | None, shown: Plan | None, left: Mapping[str, float]) -> str:
    """`shown` is the plan that the model has seen; when it is the same, one line is enough."""
    return f"<note>\n{_plan(plan, shown)}\n{render_left(left)}\n</note>"


def _plan(plan: Plan | None, shown: Plan | None) -> str:
    if plan is None:
        return "Plan: none yet."
    done = sum(step.status == "completed" for step in plan.steps)
    if plan == shown:
        return f"Plan: as before, {done} of {len(plan.steps)} done."
    steps = (f"{_MARKS[step.status]} {_line(f'{step.id} {step.title}')}" for step in plan.steps)
    return "\n".join((f"Plan: {_line(plan.goal)}", *steps))[:_LONGEST]


def _line(text: str) -> str:
    """What a model wrote may be what a file told it to write: it stays on its line, and closes no tag of ours."""
    return make_safe(" ".join(text.split()))


def render_left(left: Mapping[str, float]) -> str:
    parts = [f"{_number(value)} {name}" for name, value in left.items()]
    last = " This is the last turn: answer now, with what you have." if left.get("turns") == 0 else ""
    return f"Left: {', '.join(parts)}.{last}" if parts else "Left: no bound."


def _number(value: float) -> str:
    return f"{value:.4g}" if isinstance(value, float) and value < 10 else f"{value:.0f}"
