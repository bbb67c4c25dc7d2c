"""Sends one request to a model, retries it when that can help, and makes the reply storable."""

from __future__ import annotations

import asyncio
import base64
import codecs
import json
import random
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from prowess.agent.agent import AgentSpec
from prowess.agent.context import ModelRequest
from prowess.agent.prompt import list_offer
from prowess.agent.toolkit import Toolkit
from prowess.core.events import CallDelta, ErrorRaised, ModelReplied, TextDelta
from prowess.core.ports import SkillsInRequest
from prowess.core.values import Message, Part, ToolCall
from prowess.errors import ModelError, ModelOverloaded
from prowess.policy.secrets import Redactor

MAX_PICTURE = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Retry policy: number of tries and waiting times. A provider's `Retry-After` wins."""

    tries: int = 5
    first_s: float = 0.5
    longest_s: float = 60.0
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    jitter: Callable[[], float] = random.SystemRandom().random


async def ask(
    agent: AgentSpec,
    request: ModelRequest,
    kit: Toolkit,
    retry_policy: RetryPolicy,
    seconds_left: Callable[[], float | None],
) -> ModelReplied:
    """Asks the model, with retries. Records every failure, also if a later try succeeds."""
    if agent.recording is not None:
        agent.recording.expect(request.sha256, request.size_bytes)
    shown = _Shown(kit)
    messages = request.messages
    if request.has_images:
        messages = [await _with_pictures(message, kit) for message in messages]
    for number in range(1, retry_policy.tries + 1):
        try:
            if agent.reader is not None:
                skills = _find_skills(kit)
                reply = await agent.reader.reply_with_skills(messages, request.tools, skills, on_delta=shown)
            else:
                reply = await agent.model.reply(messages, request.tools, on_delta=shown)
            shown.finish()
            return reply
        except ModelError as error:
            wait = _wait(error, number, retry_policy)
            left = seconds_left()
            if not error.retryable or number == retry_policy.tries or (left is not None and wait > left):
                raise
            if wait > retry_policy.longest_s:
                raise
            hint = f"Trying again in {wait:.1f} s ({number} of {retry_policy.tries - 1})."
            await kit.append(ErrorRaised(code=str(error.code), message=error.message, hint=hint))
            await retry_policy.sleep(wait)
    raise AssertionError("unreachable")


def _find_skills(kit: Toolkit) -> SkillsInRequest:
    talk = kit.conversation
    return SkillsInRequest(list_offer(kit.skills.catalog(), kit.plan), talk.shown.find_loaded(talk.contents))


class _Shown:
    """Shows pieces of a reply to observers, redacted. A piece that may start a secret waits for the rest."""

    def __init__(self, kit: Toolkit) -> None:
        self._show = kit.recorder.show
        self._secrets = kit.secrets
        self._redaction: Redactor | None = None  # most replies of an agent are calls without a text
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def __call__(self, delta: TextDelta | CallDelta) -> None:
        if isinstance(delta, CallDelta):
            self._show(replace(delta, args=""))  # arguments are shown, redacted, when the call is planned
            return
        if self._redaction is None:
            self._redaction = self._secrets.redactor.fresh()
        data = delta.text.encode("utf-8", "replace")
        self._show_text(self._redaction.feed(data))

    def finish(self) -> None:
        if self._redaction is not None:
            self._show_text(self._redaction.finish(), final=True)

    def _show_text(self, data: bytes, *, final: bool = False) -> None:
        text = self._decoder.decode(data, final)
        if text:
            self._show(TextDelta(text=text))


async def _with_pictures(message: Message, kit: Toolkit) -> Message:
    """Replaces refs of workspace images by their bytes, because providers cannot read our refs."""
    parts: list[Part] = []
    for part in message.parts:
        if part.kind != "image" or part.ref is None or not part.ref.startswith("workspace://"):
            parts.append(part)
            continue
        data = await kit.work.read_file(part.ref.removeprefix("workspace://"), MAX_PICTURE)
        if data is None:
            parts.append(Part(text=f"(The picture {part.ref} cannot be shown: it is gone, or too large.)"))
        else:
            ref = f"data:{part.mime_type};base64,{base64.b64encode(data).decode()}"
            parts.append(replace(part, ref=ref))
    return replace(message, parts=tuple(parts))


def _wait(error: ModelError, number: int, retry_policy: RetryPolicy) -> float:
    if isinstance(error, ModelOverloaded) and error.retry_after_s is not None:
        return error.retry_after_s
    return min(retry_policy.first_s * 2 ** (number - 1), retry_policy.longest_s) * (0.5 + retry_policy.jitter() / 2)


def clean(reply: ModelReplied, known: Collection[str]) -> ModelReplied:
    """Makes a reply storable as text and JSON, and makes call ids unique in the session."""
    seen = set(known)
    calls: list[ToolCall] = []
    for number, call in enumerate(reply.calls, 1):
        id = _text(call.id) or f"call-{number}"
        while id in seen:
            id = f"{id[:48]}-{len(seen)}"
        seen.add(id)
        calls.append(replace(call, id=id, tool=_text(call.tool), args=_json(call.args), trigger="model"))
    return replace(reply, text=_text(reply.text), calls=tuple(calls))


def _text(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _json(args: Any) -> dict[str, Any]:
    try:
        text = json.dumps(args, allow_nan=False, ensure_ascii=False, sort_keys=True)  # in the form of the log
        text.encode()
    except (ValueError, TypeError, RecursionError):  # UnicodeEncodeError is a ValueError
        return {"arguments": _text(repr(args)[:2000])}
    return json.loads(text) if isinstance(args, dict) else {"arguments": args}
