"""Sends one request to a model, retries it when that can help, and makes the reply storable."""

from __future__ import annotations

import asyncio
import base64
import codecs
import json
import random
import reprlib
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from prowess._internal.json_values import INVALID_JSON, find_invalid, parse_object
from prowess.agent.agent import AgentSpec
from prowess.agent.context import ModelRequest
from prowess.agent.context.state import AnsweredCall
from prowess.agent.prompt import list_offer
from prowess.agent.toolkit import Toolkit
from prowess.core.codec import from_json, to_json
from prowess.core.events import CallDelta, ModelReplied, ModelRetried, TextDelta
from prowess.core.ports import SkillsInRequest
from prowess.core.values import Message, Part, ToolCall
from prowess.errors import ModelError, ModelMalformed, ModelOverloaded
from prowess.policy.secrets import Redactor

MAX_PICTURE = 8 << 20

_FOREIGN = "This is a mistake in the object given as model=."
_MOST_BRACKETS = 100  # fewer cannot be nested too deeply


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
    shown: ShownReply,
) -> ModelReplied:
    """Asks the model, with retries. Records every failure, also if a later try succeeds. `shown` has the pieces of an
    unfinished reply."""
    if agent.recording is not None:
        agent.recording.expect(request.sha256, request.size_bytes)
    if request.has_images:
        messages = [await _with_pictures(message, kit) for message in request.messages]
        request = request._replace(messages=tuple(messages))
    number = 0
    while True:
        number += 1
        shown.start()
        try:
            reply: object = await _reply(agent, request, kit, shown)
            if not isinstance(reply, ModelReplied):
                raise ModelMalformed(f"The model returned an object of {type(reply).__name__}.", hint=_FOREIGN)
            shown.finish()
            return reply
        except ModelError as error:
            wait = _wait(error, number, retry_policy)
            if not error.retryable or number >= retry_policy.tries or wait > retry_policy.longest_s:
                raise
            left = seconds_left()
            if left is not None and wait > left:
                raise
            code = str(error.code)
            tries = retry_policy.tries
            retried = ModelRetried(attempt=number, tries=tries, code=code, message=error.message, wait_s=wait)
            await kit.append(retried)
            await retry_policy.sleep(wait)


async def _reply(agent: AgentSpec, request: ModelRequest, kit: Toolkit, shown: ShownReply) -> ModelReplied:
    if agent.reader is None:
        schema = agent.native_schema
        options = {} if schema is None else {"schema": schema}
        return await agent.model.reply(request.messages, request.tools, on_delta=shown, **options)
    skills = _find_skills(kit)
    return await agent.reader.reply_with_skills(request.messages, request.tools, skills, on_delta=shown)


def _find_skills(kit: Toolkit) -> SkillsInRequest:
    talk = kit.conversation
    offered = list_offer(kit.skills.catalog(), kit.plan)
    loaded = talk.shown.find_loaded(talk.contents)
    results = {item.call_id: item.outcome.data for item in talk.items if isinstance(item, AnsweredCall)}
    return SkillsInRequest(offered, loaded, results)


class ShownReply:
    """Shows pieces of a reply to observers, redacted. A piece that may start a secret waits for the rest."""

    def __init__(self, kit: Toolkit) -> None:
        self._show = kit.recorder.show
        self._secrets = kit.secrets
        self._redaction: Redactor | None = None  # most replies of an agent are calls without a text
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pieces: list[str] = []

    def start(self) -> None:
        """Begins a reply, or another try of one."""
        self._pieces = []
        self._redaction = None
        self._decoder.reset()

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

    def cut_off(self) -> str:
        """Ends a reply that is not complete, and returns its text. What may be the start of a secret is left out."""
        if self._redaction is not None:
            self._show_text(self._redaction.flush(), final=True)
        return "".join(self._pieces)

    def _show_text(self, data: bytes, *, final: bool = False) -> None:
        text = self._decoder.decode(data, final)
        if text:
            self._pieces.append(text)
            self._show(TextDelta(text=text))


async def _with_pictures(message: Message, kit: Toolkit) -> Message:
    """Replaces refs of workspace images by their bytes, because providers cannot read our refs."""
    parts: list[Part] = []
    for part in message.parts:
        ref = part.ref or ""
        if part.kind == "image" and ref.startswith("workspace://"):
            part = await _read_picture(part, ref, kit)
        parts.append(part)
    return replace(message, parts=tuple(parts))


async def _read_picture(part: Part, ref: str, kit: Toolkit) -> Part:
    path = ref.removeprefix("workspace://")
    data = await kit.work.read_file(path, MAX_PICTURE)
    if data is None:
        return Part(text=f"(The picture {ref} cannot be shown: it is gone, or too large.)")
    encoded = base64.b64encode(data).decode()
    return replace(part, ref=f"data:{part.mime_type};base64,{encoded}")


def _wait(error: ModelError, number: int, retry_policy: RetryPolicy) -> float:
    """Seconds to wait before the next try: twice as long each time, and a random part of it."""
    if isinstance(error, ModelOverloaded) and error.retry_after_s is not None:
        return error.retry_after_s
    doubled = retry_policy.first_s * 2 ** (number - 1)
    longest = min(doubled, retry_policy.longest_s)
    return longest * (0.5 + retry_policy.jitter() / 2)


def clean(reply: ModelReplied, known: Collection[str]) -> ModelReplied:
    """Makes a reply storable as text and JSON, and makes call ids unique in the session. ModelMalformed if it has a
    value of another type, which no record could hold: a model may be foreign code."""
    try:
        return from_json(ModelReplied, to_json(_clean(reply, known)))
    except (AttributeError, TypeError, ValueError) as error:
        message = f"The reply of the model cannot be recorded: {error}"
        raise ModelMalformed(message[:500], hint=_FOREIGN) from error


def _clean(reply: ModelReplied, known: Collection[str]) -> ModelReplied:
    seen = set(known)
    calls: list[ToolCall] = []
    for number, call in enumerate(reply.calls, 1):
        id = _text(call.id) or f"call-{number}"
        while id in seen or id.endswith("-load"):  # the load that another call needs first has such an id
            id = f"{id[:48]}-{len(seen)}"
        seen.add(id)
        tool = _text(call.tool)
        args = _json(call.args)
        calls.append(ToolCall(id=id, tool=tool, args=args))
    return replace(reply, text=_text(reply.text), calls=tuple(calls))


def _text(text: str) -> str:
    """Replaces halves of surrogate pairs, which cannot be stored."""
    return text.encode("utf-8", "replace").decode()


def _json(args: Any) -> dict[str, Any]:
    """Copies arguments as the log stores them. Anything but a storable object becomes the argument INVALID_JSON, with
    the text that was sent."""
    try:
        text = json.dumps(args, allow_nan=False, ensure_ascii=False, sort_keys=True)
        text.encode()
    except (ValueError, TypeError, RecursionError):  # UnicodeEncodeError is a ValueError
        return _keep_text(args)
    is_deep = text.count("[") + text.count("{") > _MOST_BRACKETS
    if is_deep or not isinstance(args, dict):
        return _keep_text(args)
    return json.loads(text)


def _keep_text(args: Any) -> dict[str, Any]:
    sent = find_invalid(args) if isinstance(args, dict) else None
    if sent is not None:
        return {INVALID_JSON: _text(sent)}
    try:
        text = json.dumps(args)
    except (ValueError, TypeError, RecursionError):
        text = reprlib.repr(args)
    return parse_object(text)
