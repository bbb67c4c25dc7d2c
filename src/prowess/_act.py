"""act: one call becomes one outcome. The only place where policy is asked, a tool is executed, a secret is taken out.

    normal form -> written down -> decided -> asked, if need be -> executed -> redacted -> written down

Every step is in the log before the next one begins; when it cannot be written, nothing more happens. A denial and a
failure are outcomes. Only a broken record, and being cancelled, leave this function in another way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prowess.errors import ProwessError, StoreError, ToolFailed, ToolRetry, WorkspaceUnavailable
from prowess.events import ApprovalAnswered, ApprovalAsked, CallActed, CallDecided, CallPlanned, ErrorRaised, Event
from prowess.policy.allowed_tools import COMMAND_TOOLS, AllowedTools, canonical_tools
from prowess.policy.decision import Surroundings, decide
from prowess.policy.rules import Request, Rules
from prowess.policy.secrets import Redactor, build_environment
from prowess.ports import Approver, Need, Toolset, Within
from prowess.values import Decision, Outcome, ToolCall

Append = Callable[..., Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """The skill that a call is about, as far as policy asks."""

    id: str
    source: Any = None
    trusted: bool = False
    env: tuple[str, ...] = ()  # the names that it declares


@dataclass(slots=True, kw_only=True)
class Scene:
    """What a call is made in. `append` writes events; the rest is what policy looks at and what a tool is given."""

    tools: Toolset
    append: Append
    approver: Approver | None = None
    around: Callable[[ToolCall], Awaitable[Surroundings]]
    named: Callable[[ToolCall], Named | None]
    lists: Callable[[], Mapping[str, AllowedTools]] = dict
    rules: Sequence[Rules] = ()
    secrets: Mapping[str, str] = field(default_factory=dict)  # every value there is; a run gets what its skill declares
    redactor: Redactor = field(default_factory=lambda: Redactor({}))
    on_output: Callable[[str, bytes], None] | None = None


async def act(call: ToolCall, scene: Scene) -> Outcome:
    call = ToolCall(id=call.id, tool=canonical_tools(call.tool)[0], args=call.args)
    try:
        call = scene.tools.normalise(call)
    except ToolRetry as error:
        safe = ToolCall(id=call.id, tool=call.tool, args={})  # whatever else it held cannot be written down
        await scene.append(_redacted(CallPlanned(call=safe), scene))
        return await _end(call, Outcome(status="failed", code="invalid-call", content=str(error)), scene)
    await scene.append(_redacted(CallPlanned(call=call), scene))
    try:
        named = scene.named(call)
        around = await scene.around(call)
        decision = await _decide(_request(call, named), call, around, scene)
        denied = _denied(decision) or await _unmet(call, named, around, scene)
    except ProwessError as error:
        _let_through(error)
        return await _end(call, _failed(error), scene)
    except asyncio.CancelledError:
        await _end(call, Outcome(status="interrupted", code="interrupted", content="It was not begun."), scene)
        raise
    if denied is not None:
        return await _end(call, denied, scene)
    return await _end(call, await _execute(call, named, decision, scene), scene)


async def _decide(request: Request, call: ToolCall, around: Surroundings, scene: Scene) -> Decision:
    """Policy's answer, and a person's where policy wants one: then the verdict is theirs."""
    decision = decide(request, around, lists=scene.lists(), rules=scene.rules)
    await scene.append(_redacted(CallDecided(call_id=call.id, decision=decision), scene))
    if decision.verdict != "ask":
        return decision
    await scene.append(ApprovalAsked(call_id=call.id, why=scene.redactor.redact_text(decision.why)))
    about = call if request.kind == "call" else ToolCall(id=call.id, tool=request.tool, args=dict(request.args))
    answer = await _ask(about, decision, scene)
    if answer is None:
        return Decision(verdict="ask", rule=decision.rule, why=decision.why, limits=decision.limits)
    await scene.append(answer)
    if answer.answer == "no":
        why = answer.why or "A person said no."
        return Decision(verdict="deny", rule="approval", why=why)
    return Decision(verdict="allow", rule="approval", why=f"Approved: {answer.answer}.", limits=decision.limits)


async def _ask(call: ToolCall, decision: Decision, scene: Scene) -> ApprovalAnswered | None:
    """An approver that fails, or says something that is no answer, has not answered: that is never a yes."""
    if scene.approver is None:
        return None
    try:
        answer: object = await scene.approver(call, decision)
    except Exception as error:  # noqa: BLE001 - it is anybody's code
        await scene.append(ErrorRaised(code="approver-failed", message=f"{type(error).__name__}: {error}"[:500]))
        return None
    return answer if isinstance(answer, ApprovalAnswered) else None


async def _unmet(call: ToolCall, named: Named | None, around: Surroundings, scene: Scene) -> Outcome | None:
    """What else has to be granted is decided in the same way, need by need."""
    try:
        needs = await scene.tools.needs(call)
    except ToolRetry as error:
        return Outcome(status="failed", code="invalid-call", content=str(error))
    for need in needs:
        denied = _denied(await _decide(_request_for(need, named), call, around, scene))
        if denied is not None:
            return denied
    return None


async def _execute(call: ToolCall, named: Named | None, decision: Decision, scene: Scene) -> Outcome:
    """A tool may fail in any way that it names; that it was cancelled is written down before it goes on."""
    try:
        env = _environment(call, named, scene)
        within = Within(decision=decision, redaction=scene.redactor, env=env, on_output=scene.on_output)
        return await scene.tools.call(call, within)
    except ToolRetry as error:
        return Outcome(status="failed", code="invalid-call", content=str(error))
    except ToolFailed as error:
        return Outcome(status="failed", code="tool-failed", content=str(error))
    except ProwessError as error:
        _let_through(error)
        return _failed(error)
    except Exception as error:  # noqa: BLE001 - a tool is anybody's code, and its mistakes must not end the run
        hint = "This is a mistake in the tool, not in the call."
        text = f"{type(error).__name__}: {error}"[:2000]
        return Outcome(status="failed", code="tool-raised", content=text, hint=hint)
    except asyncio.CancelledError:
        interrupted = Outcome(status="interrupted", code="interrupted", content="It was interrupted and has ended.")
        await _end(call, interrupted, scene)
        raise


async def _end(call: ToolCall, outcome: Outcome, scene: Scene) -> Outcome:
    redact = scene.redactor.redact_json
    clean = Outcome(
        status=outcome.status,
        content=scene.redactor.redact_text(outcome.content),
        code=outcome.code,
        hint=None if outcome.hint is None else scene.redactor.redact_text(outcome.hint),
        data=redact(outcome.data),
        state_delta=redact(outcome.state_delta),
    )
    await scene.append(CallActed(call_id=call.id, outcome=clean, state_delta=clean.state_delta))
    return clean


def _request(call: ToolCall, named: Named | None) -> Request:
    if named is None:
        return Request(tool=call.tool, args=call.args)
    return Request(tool=call.tool, args=call.args, skill=named.id, source=named.source, trusted=named.trusted)


def _request_for(need: Need, named: Named | None) -> Request:
    about = {} if named is None else {"skill": named.id, "source": named.source, "trusted": named.trusted}
    return Request(tool=need.capability, args=need.args, kind="capability", **about)


def _environment(call: ToolCall, named: Named | None, scene: Scene) -> dict[str, str]:
    """Declared names only, and what the model set; nothing of our own environment."""
    if call.tool not in COMMAND_TOOLS or named is None:
        return {}
    return build_environment(named.env, scene.secrets, call.args.get("env") or {}, {})


def _denied(decision: Decision) -> Outcome | None:
    if decision.verdict == "allow":
        return None
    if decision.verdict == "ask":
        hint = "A person has to approve it; nobody could be asked."
        text = f"Not approved: {decision.why}"
        return Outcome(status="waiting", code="approval-needed", content=text, hint=hint, data={"rule": decision.rule})
    text = f"Denied: {decision.why}"
    hint = "Do it in another way, or ask the person to allow it."
    return Outcome(status="denied", code="denied", content=text, hint=hint, data={"rule": decision.rule})


def _failed(error: ProwessError) -> Outcome:
    data = {"unavailable": True} if isinstance(error, WorkspaceUnavailable) else {}
    return Outcome(status="failed", code=str(error.code), content=error.message, hint=error.hint, data=data)


def _let_through(error: ProwessError) -> None:
    """When the record is broken there is nowhere to write an outcome to."""
    if isinstance(error, StoreError) and error.code in _RECORD:
        raise error


_RECORD = ("record-broken", "session-conflict", "lease-lost", "event-invalid")


def _redacted(event: Event, scene: Scene) -> Event:
    """Arguments and decisions can hold a secret that the model was told by mistake."""
    redact = scene.redactor.redact_json
    if isinstance(event, CallPlanned):
        return CallPlanned(call=ToolCall(id=event.call.id, tool=event.call.tool, args=redact(event.call.args)))
    if isinstance(event, CallDecided):
        decision = event.decision
        limits, why = redact(decision.limits), scene.redactor.redact_text(decision.why)
        clean = Decision(verdict=decision.verdict, rule=decision.rule, why=why, limits=limits)
        return CallDecided(call_id=event.call_id, decision=clean)
    return event
