"""An event as it may be written down: without the values of secrets, and without what the configured patterns match."""

from __future__ import annotations

from dataclasses import replace

from prowess.core.events import (
    ApprovalAnswered,
    Compacted,
    EpochStarted,
    ErrorRaised,
    Event,
    ModelReplied,
    NoteAppended,
    PlanChanged,
    RunFinished,
    RunStarted,
    SkillLoaded,
    UnknownEvent,
)
from prowess.core.values import Plan
from prowess.policy.secrets import Redactor


def redact_event(event: Event | UnknownEvent, redactor: Redactor) -> Event | UnknownEvent:
    """Texts of people and models; what names a thing stays. Calls, decisions and outcomes are `act`'s to redact."""
    if not redactor.is_needed:
        return event
    text = redactor.redact_text

    def some(value: str | None) -> str | None:
        return None if value is None else text(value)

    match event:
        case RunStarted():
            wishes = tuple(redactor.redact_json(wish) for wish in event.wishes)
            return replace(event, request=text(event.request), wishes=wishes, again=tuple(map(text, event.again)))
        case EpochStarted():
            return replace(event, system=some(event.system))
        case ModelReplied():
            calls = tuple(replace(call, args=redactor.redact_json(call.args)) for call in event.calls)
            return replace(event, text=text(event.text), calls=calls)
        case PlanChanged():
            return replace(event, plan=_plan(event.plan, redactor))
        case NoteAppended():
            return replace(event, text=text(event.text))
        case ErrorRaised():
            return replace(event, message=text(event.message), hint=some(event.hint))
        case SkillLoaded():
            return replace(event, reason=some(event.reason))
        case ApprovalAnswered():
            return replace(event, why=some(event.why))
        case Compacted():
            return replace(event, summary=some(event.summary))
        case RunFinished():
            return replace(event, text=text(event.text), hint=some(event.hint))
        case _:
            return event


def _plan(plan: Plan, redactor: Redactor) -> Plan:
    steps = tuple(replace(step, title=redactor.redact_text(step.title)) for step in plan.steps)
    assumptions = tuple(map(redactor.redact_text, plan.assumptions))
    return replace(plan, goal=redactor.redact_text(plan.goal), steps=steps, assumptions=assumptions)
