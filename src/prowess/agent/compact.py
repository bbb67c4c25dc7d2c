"""When a request comes near the model's window: what can be said shorter without losing anything is said shorter.

By rule, and so the same again when it is resumed: old outputs become one line that says where the whole text is; when
that is not enough, messages of earlier requests go, the oldest first. Loaded skills, the request itself, the plan and
the budget stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from prowess._internal.tokens import estimate
from prowess.agent.context.items import Answered, Asked, Item, Noted, Replied

KEEP_RESULTS = 2  # the newest stay as they are
_WORTH = 400  # characters: shorter outputs are left alone
ROOM = 0.6  # of the window, after compaction
NEAR = 0.85  # of the window, before it


class Shorter(NamedTuple):
    """What to do: outputs to replace, with their text, and how many items to leave out from the oldest on."""

    outputs: dict[str, str]  # call id -> full text
    dropped: int


def plan_compaction(items: Sequence[Item], request: int, used_tokens: int, target_tokens: int) -> Shorter:
    excess = used_tokens - target_tokens
    outputs: dict[str, str] = {}
    results = [item for item in items if isinstance(item, Answered) and item.own]
    for item in results[: max(0, len(results) - KEEP_RESULTS)]:
        if excess <= 0:
            break
        text = item.outcome.content
        if len(text) > _WORTH:
            outputs[item.call_id] = text
            excess -= estimate(text)
    return Shorter(outputs, _dropped(items, request, excess, outputs))


def _dropped(items: Sequence[Item], request: int, excess: int, outputs: dict[str, str]) -> int:
    """Whole earlier requests only: half an exchange would be misunderstood."""
    dropped = freed = 0
    for index, item in enumerate(items):
        if freed >= excess:
            break
        if item.request >= request:
            dropped = index if excess > 0 else dropped
            break
        freed += estimate(_text(item)) if not (isinstance(item, Answered) and item.call_id in outputs) else 0
        following = items[index + 1] if index + 1 < len(items) else None
        if following is None or isinstance(following, Asked) or following.request >= request:
            dropped = index + 1
    return dropped


def render_replaced(call_id: str, text: str, ref: str) -> str:
    first = text.strip().splitlines()[0][:120] if text.strip() else ""
    return f"[{len(text)} characters were taken out to save room; all of it: read_file {ref}] {first}"


def render_transcript(items: Sequence[Item]) -> str:
    """For the one who is asked for a summary."""
    return "\n".join(_text(item) for item in items)


def _text(item: Item) -> str:
    match item:
        case Asked(_, parts):
            return "user: " + " ".join(part.text or "" for part in parts)
        case Replied(_, text, calls, _):
            return "assistant: " + " ".join([text, *(f"{call.tool} {call.args}" for call in calls)])
        case Answered(_, _, outcome, _):
            return f"result: {outcome.status} {outcome.content}"
        case Noted(_, _, text):
            return text
