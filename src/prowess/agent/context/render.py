"""Renders events for the model: a request with its files, outcomes of calls, and the note with plan and budget.

Text from tools and files is data: it cannot open or close our tags, and invisible characters are removed. The note
stands at the end of every request.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from prowess._internal.text import strip_invisible
from prowess.agent.context.items import AnsweredCall, Item
from prowess.core.events import RunStarted
from prowess.core.findings import visible
from prowess.core.values import Message, Outcome, Part, Plan
from prowess.skills.render import neutralise


def render_outcome(outcome: Outcome) -> str:
    """Renders an outcome for the model. A failure has its code and a hint. Content is made safe, except framed content,
    which is safe already."""
    if outcome.status == "ok":
        return outcome.content if outcome.data.get("framed") is True else make_safe(outcome.content)
    shown_code = f" [{outcome.code}]" if outcome.code else ""
    hint = f"\n{outcome.hint}" if outcome.hint else ""
    return make_safe(f"{outcome.status}{shown_code}: {outcome.content}{hint}")


def make_safe(text: str) -> str:
    return neutralise(strip_invisible(text))


def asked_parts(event: RunStarted) -> tuple[Part, ...]:
    files = [part for part in event.attachments if part.kind == "file"]
    others = [part for part in event.attachments if part.kind != "file"]
    listed = "Files given:\n" + "\n".join(f"- {make_safe(visible(part.text or part.ref or ''))}" for part in files)
    notes = [Part(text=listed, ref="note:files")] if files else []
    return (Part(text=event.request), *others, *notes)


def shows(outcome: Outcome) -> list[str]:
    show = outcome.data.get("show")
    if not isinstance(show, list) or not isinstance(outcome.data.get("digest"), str):
        return []
    return [path for path in show if isinstance(path, str)]


def without_above(item: AnsweredCall, told: Collection[tuple[str, str, str]]) -> AnsweredCall:
    """Replaces a result that points to texts above by its stub, if these texts are no longer in the request."""
    data = item.outcome.data
    above, stub = data.get("above"), data.get("stub")
    if not isinstance(above, list) or not isinstance(stub, str):
        return item
    if all((data.get("skill"), data.get("digest"), path) in told for path in above):
        return item
    return replace(item, outcome=replace(item.outcome, content=stub))


def shortened(item: Item, replaced: dict[str, str]) -> Item:
    if not isinstance(item, AnsweredCall) or item.call_id not in replaced:
        return item
    return replace(item, outcome=replace(item.outcome, content=replaced[item.call_id]))


def paired(messages: list[Message]) -> list[Message]:
    """Removes results without a call, and adds results to calls without one, because providers refuse both."""
    calls = {call.id for message in messages for call in message.calls}
    results = {message.call_id for message in messages if message.role == "tool"}
    kept: list[Message] = []
    for message in messages:
        if message.role == "tool" and message.call_id not in calls:
            continue
        lost = [call for call in message.calls if call.id not in results]
        kept.append(message)
        kept += [Message(role="tool", call_id=call.id, parts=(Part(text="(no result)"),)) for call in lost]
    return kept


_MARKS = {"completed": "[x]", "in_progress": "[>]", "pending": "[ ]"}
_LONGEST = 1_500


def render_note(plan: Plan | None, shown: Plan | None, left: Mapping[str, float]) -> str:
    """Renders plan and budget. `shown` is the plan that the model has seen; if it is the same, one line is enough."""
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
    """Makes text of a model safe: one line, no tags of ours. A file may have told the model what to write."""
    return make_safe(" ".join(text.split()))


def render_left(left: Mapping[str, float]) -> str:
    parts = [f"{_number(value)} {name}" for name, value in left.items()]
    last = " This is the last turn: answer now, with what you have." if left.get("turns") == 0 else ""
    return f"Left: {', '.join(parts)}.{last}" if parts else "Left: no bound."


def _number(value: float) -> str:
    return f"{value:.4g}" if isinstance(value, float) and value < 10 else f"{value:.0f}"
