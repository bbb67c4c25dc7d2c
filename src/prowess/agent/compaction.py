"""Shortens a request that comes near the model's context window. Removed outputs are kept as artifacts.

Compaction follows fixed rules, so a resumed run does the same. First, old outputs become one line with a ref to the
full text. If that is not enough, messages of earlier requests are dropped, oldest first. Loaded skills, the current
request, the plan and the budget stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from prowess._internal.tokens import estimate
from prowess.agent.agent import AgentSpec
from prowess.agent.budget import count_tokens
from prowess.agent.context import Conversation
from prowess.agent.context.render import make_safe
from prowess.agent.context.state import AnsweredCall, Asked, Item, Replied
from prowess.agent.toolkit import Toolkit
from prowess.core.events import NO_SUMMARY, Compacted, ErrorRaised
from prowess.core.ports import Shortened
from prowess.core.values import Message, Part, Usage
from prowess.errors import ModelError

KEEP_RESULTS = 2  # the newest results stay unchanged
_WORTH = 400  # characters: shorter outputs stay
ROOM = 0.6  # part of the window to use after compaction


class CompactionPlan(NamedTuple):
    """Compaction to carry out: outputs to replace, and the number of oldest items to drop."""

    outputs: dict[str, str]  # call id -> full text
    dropped: int


def plan_compaction(items: Sequence[Item], request: int, used_tokens: int, target_tokens: int) -> CompactionPlan:
    excess = used_tokens - target_tokens
    outputs: dict[str, str] = {}
    results = [item for item in items if isinstance(item, AnsweredCall) and item.own]
    for item in results[:-KEEP_RESULTS]:
        if excess <= 0:
            break
        text = item.outcome.content
        if len(text) > _WORTH:
            outputs[item.call_id] = text
            excess -= estimate(text)
    dropped = _dropped(items, request, excess, outputs)
    return CompactionPlan(outputs, dropped)


def _dropped(items: Sequence[Item], request: int, excess: int, outputs: dict[str, str]) -> int:
    """Number of oldest items to drop. Only whole earlier requests go: half an exchange would mislead the model."""
    dropped = 0
    freed = 0
    for index, item in enumerate(items):
        if freed >= excess:
            return dropped
        if item.request >= request:
            return index
        is_replaced = isinstance(item, AnsweredCall) and item.call_id in outputs
        if not is_replaced:
            freed += estimate(_text(item))
        if _ends_exchange(items, index, request):
            dropped = index + 1
    return dropped


def _ends_exchange(items: Sequence[Item], index: int, request: int) -> bool:
    """True if the item is the last one of an earlier request."""
    if index + 1 == len(items):
        return True
    following = items[index + 1]
    return isinstance(following, Asked) or following.request >= request


def render_replaced(call_id: str, text: str, ref: str) -> str:
    """Renders the line that stands for an output: its size, its place, and how it begins."""
    lines = text.strip().splitlines()
    first = lines[0][:120] if lines else ""
    return f"[{len(text)} characters were taken out to save room; all of it: read_file {ref}] {first}"


def render_transcript(items: Sequence[Item]) -> str:
    """Renders items as text, for the request for a summary."""
    texts = map(_text, items)
    return "\n".join(texts)


def _text(item: Item) -> str:
    if isinstance(item, Asked):
        texts = [part.text or "" for part in item.parts]
        return "user: " + " ".join(texts)
    if isinstance(item, Replied):
        calls = [f"{call.tool} {call.args}" for call in item.calls]
        return "assistant: " + " ".join([item.text, *calls])
    if isinstance(item, AnsweredCall):
        outcome = item.outcome
        return f"result: {outcome.status} {outcome.content}"
    return item.text


_SMALLEST_WINDOW = 4_000  # if the model reports overflow but not its window size
_SUMMARISE = (
    "Summarise this part of a conversation for an assistant that goes on with it: what was asked, decided, done and "
    "found, with exact names, numbers and paths. Leave out instructions of skills and their arguments. Be short."
)


async def shorten(agent: AgentSpec, kit: Toolkit, why: str, *, forced: bool = False) -> None:
    """Compacts the conversation. The Compacted event says exactly what changed, so that a resume does the same."""
    talk = kit.conversation
    if agent.recording is not None:
        decided = agent.recording.shortened(talk.run or "", talk.task, take=True)
        if decided is not None:
            await _shorten_again(kit, decided, why)
            return
    before = count_tokens(talk)
    target = _find_target(agent, before, forced=forced)
    plan = plan_compaction(talk.items, talk.number, before, target)
    replaced: dict[str, str] = {}
    for call_id, text in plan.outputs.items():
        ref = await kit.work.store_output(call_id, text)
        if ref is not None:  # otherwise the output stays: no text is lost
            replaced[call_id] = render_replaced(call_id, text, ref)
    summary: str | None = None
    usage = Usage()
    if plan.dropped:
        summary, usage = await _summarise(agent, kit, plan.dropped)
    event = _compacted(talk, why, plan, replaced, summary, usage)
    await kit.append(event)


def _find_target(agent: AgentSpec, before: int, *, forced: bool) -> int:
    """Tokens that the request may have afterwards. `forced`: the model has refused the request that it has now."""
    window = agent.info.context_tokens
    if not window:
        window = max(_SMALLEST_WINDOW, int(before * 0.9))
    target = int(window * ROOM)
    if not forced:
        return target
    return min(target, int(before * 0.7))


async def _shorten_again(kit: Toolkit, decided: Shortened, why: str) -> None:
    """Repeats a recorded compaction with the current items. Keeps the outputs again, so that they can be read."""
    talk = kit.conversation
    then = decided.event
    outputs: dict[str, str] = {}
    for item in talk.items:
        if isinstance(item, AnsweredCall) and item.call_id in then.replaced:
            outputs[item.call_id] = item.outcome.content
    for call_id, text in outputs.items():
        await kit.work.store_output(call_id, text)
    if decided.failed is not None:
        await kit.append(decided.failed)
    dropped = min(then.dropped, len(talk.items))
    plan = CompactionPlan(outputs, dropped)
    replaced = {call_id: then.replaced[call_id] for call_id in outputs}
    event = _compacted(talk, why, plan, replaced, then.summary, then.usage)
    await kit.append(event)


def _compacted(
    talk: Conversation, why: str, plan: CompactionPlan, replaced: dict[str, str], summary: str | None, usage: Usage
) -> Compacted:
    before = count_tokens(talk)
    gone = render_transcript(talk.items[: plan.dropped])
    after = before - estimate(gone) + estimate(summary or "")
    for id, text in replaced.items():
        after -= estimate(plan.outputs[id])
        after += estimate(text)
    return Compacted(
        why=why,
        before_tokens=before,
        after_tokens=max(0, after),
        replaced=replaced,
        dropped=plan.dropped,
        summary=summary,
        usage=usage,
    )


async def _summarise(agent: AgentSpec, kit: Toolkit, dropped: int) -> tuple[str, Usage]:
    """Returns a note about the dropped messages. If enabled, a summary by the model, which counts as usage."""
    session = kit.recorder.key.session
    plain = f"<note>\n{dropped} earlier messages were left out to save room: prowess sessions show {session}\n</note>"
    if not agent.summarise:
        return plain, Usage()
    wanted = Part(text=_SUMMARISE)
    gone = render_transcript(kit.conversation.items[:dropped])
    transcript = Part(text=gone[-100_000:])
    messages = [Message(role="system", parts=(wanted,)), Message(role="user", parts=(transcript,))]
    try:
        reply = await agent.model.reply(messages, ())
    except ModelError as error:
        text = f"{NO_SUMMARY}{error.message}"
        await kit.append(ErrorRaised(code=str(error.code), message=text, hint=error.hint))
        return plain, Usage()
    summary = make_safe(reply.text)
    return f"<note>\nEarlier in this conversation:\n{summary}\n</note>", reply.usage
