"""Compaction, carried out: what is taken out of the request is kept as an artifact first, and read again by its ref."""

from __future__ import annotations

from prowess._internal.tokens import estimate
from prowess.agent.agent import Agent
from prowess.agent.compact import NEAR, ROOM, Shorter, plan_compaction, render_replaced, render_transcript
from prowess.agent.context import Conversation
from prowess.agent.context.items import Answered
from prowess.agent.context.render import make_safe
from prowess.agent.toolkit import Kit
from prowess.core.events import Compacted, ErrorRaised
from prowess.core.ports import Model
from prowess.core.values import Message, Part, ToolCall, Usage
from prowess.errors import ModelError
from prowess.models.replay import NO_SUMMARY, Shortened

_SMALLEST_WINDOW = 4_000  # for a model that does not say, when it says that it is full
_SUMMARISE = (
    "Summarise this part of a conversation for an assistant that goes on with it: what was asked, decided, done and "
    "found, with exact names, numbers and paths. Leave out instructions of skills and their arguments. Be short."
)


def is_near(model: Model, talk: Conversation) -> bool:
    """Whether the next request would come near the model's window. Cheap as long as it is far away. A recording knows
    where it came near to that of the model that was recorded."""
    shortened = getattr(model, "shortened", None)
    if shortened is not None:
        return shortened(talk.run or "", talk.task) is not None
    window = getattr(model, "context_tokens", None)
    if not window or talk.request().size_bytes < window * NEAR:  # a token is at least one byte
        return False
    return count_tokens(talk) > window * NEAR


def count_tokens(talk: Conversation) -> int:
    request = talk.request()
    texts = [part.text or "" for message in request.messages for part in message.parts]
    calls = [str(call.args) for message in request.messages for call in message.calls]
    return estimate("\n".join([*texts, *calls])) + sum(estimate(str(tool.parameters)) for tool in request.tools)


async def shorten(agent: Agent, kit: Kit, why: str, *, forced: bool = False) -> None:
    """Nothing is shortened without a Compacted event, which says exactly what, so that a resume does the same."""
    talk = kit.conversation
    shortened = getattr(agent.model, "shortened", None)
    if shortened is not None and (decided := shortened(talk.run or "", talk.task, take=True)) is not None:
        await _shorten_again(kit, decided, why)
        return
    before = count_tokens(talk)
    window = getattr(agent.model, "context_tokens", None) or max(_SMALLEST_WINDOW, int(before * 0.9))
    target = int(window * ROOM)
    plan = plan_compaction(talk.items, talk.number, before, min(target, int(before * 0.7)) if forced else target)
    replaced: dict[str, str] = {}
    for call_id, text in plan.outputs.items():
        ref = await kit.keep(ToolCall(id=call_id, tool=""), text)
        if ref is not None:  # otherwise it stays: nothing is thrown away
            replaced[call_id] = render_replaced(call_id, text, ref)
    summary, usage = None, Usage()
    if plan.dropped:
        summary, usage = await _summarise(agent, kit, plan.dropped)
    await kit.append(_compacted(talk, why, plan, replaced, summary, usage))


async def _shorten_again(kit: Kit, decided: Shortened, why: str) -> None:
    """As it was decided then, with what is there now: the outputs are kept again, so that they can be read again."""
    talk, then = kit.conversation, decided.event
    answered = [item for item in talk.items if isinstance(item, Answered) and item.call_id in then.replaced]
    outputs = {item.call_id: item.outcome.content for item in answered}
    for call_id, text in outputs.items():
        await kit.keep(ToolCall(id=call_id, tool=""), text)
    if decided.failed is not None:
        await kit.append(decided.failed)
    plan = Shorter(outputs, min(then.dropped, len(talk.items)))
    replaced = {call_id: then.replaced[call_id] for call_id in outputs}
    await kit.append(_compacted(talk, why, plan, replaced, then.summary, then.usage))


def _compacted(
    talk: Conversation, why: str, plan: Shorter, replaced: dict[str, str], summary: str | None, usage: Usage
) -> Compacted:
    before = count_tokens(talk)
    saved = sum(estimate(plan.outputs[id]) - estimate(text) for id, text in replaced.items())
    saved += estimate(render_transcript(talk.items[: plan.dropped])) - estimate(summary or "")
    return Compacted(
        why=why,
        before_tokens=before,
        after_tokens=max(0, before - saved),
        replaced=replaced,
        dropped=plan.dropped,
        summary=summary,
        usage=usage,
    )


async def _summarise(agent: Agent, kit: Kit, dropped: int) -> tuple[str, Usage]:
    """What goes is named; and, where that is switched on, told in short by one call to the model, which counts."""
    gone = kit.conversation.items[:dropped]
    session = kit.recorder.key.session
    plain = f"<note>\n{dropped} earlier messages were left out to save room: prowess sessions show {session}\n</note>"
    if not agent.summarise:
        return plain, Usage()
    messages = [
        Message(role="system", parts=(Part(text=_SUMMARISE),)),
        Message(role="user", parts=(Part(text=render_transcript(gone)[-100_000:]),)),
    ]
    try:
        reply = await agent.model.reply(messages, ())
    except ModelError as error:
        await kit.append(ErrorRaised(code=str(error.code), message=f"{NO_SUMMARY}{error.message}", hint=error.hint))
        return plain, Usage()
    return f"<note>\nEarlier in this conversation:\n{make_safe(reply.text)}\n</note>", reply.usage
