"""act: turns one call into one outcome. Only this module decides calls, executes tools and redacts outcomes.

    route -> normalise -> record -> decide -> ask, if needed -> execute -> redact -> record

Every step is in the log before the next one begins. If the log cannot be written, nothing more happens. A denial and a
failure are outcomes. Only a broken record and a cancellation are raised.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from prowess.core.codec import to_json
from prowess.core.events import (
    Answer,
    ApprovalAnswered,
    ApprovalAsked,
    CallActed,
    CallDecided,
    CallPlanned,
    ErrorRaised,
    Event,
)
from prowess.core.ports import Approver, CallGrant, CapabilityRequest, Toolset
from prowess.core.values import Decision, Outcome, Spawn, ToolCall
from prowess.errors import ProwessError, StoreError, ToolFailed, ToolRetry, WorkspaceUnavailable
from prowess.policy.allowed_tools import COMMAND_TOOLS, TOOLS, AllowedTools, canonical_tools
from prowess.policy.decision import PolicyContext, decide, find_risk, is_isolated, stricter
from prowess.policy.rules import PolicyQuery, Rules, find_rule
from prowess.policy.secrets import Redactor, build_environment

Append = Callable[..., Awaitable[object]]
_YES: Mapping[str, Answer] = {"once": "once", "yes": "once", "run": "run", "always": "always"}
_NO = re.compile(r"no(?:[,;:. ]+(?:because )?(.*))?", re.IGNORECASE | re.DOTALL)
ANSWERED = "approval"  # rule of a decision that a person made when asked
MAX_CONTENT = 64 << 10  # most characters of an outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillIdentity:
    """Facts about the skill of a call that policy needs."""

    id: str
    source: Any = None
    trusted: bool = False
    env: tuple[str, ...] = ()  # variables that it declares
    digest: str = ""


@dataclass(slots=True, kw_only=True)
class Scene:
    """Everything that a call needs: tools, the record (`append`), input of policy, and callbacks."""

    tools: Toolset
    append: Append
    approver: Approver | None = None
    around: Callable[[ToolCall], Awaitable[PolicyContext]]
    named: Callable[[ToolCall], SkillIdentity | None]
    touched: Callable[[ToolCall], Sequence[SkillIdentity]] = lambda call: ()  # skills whose files it reads unnamed
    lists: Callable[[], Mapping[str, AllowedTools]] = dict
    rules: Callable[[], Sequence[Rules]] = tuple  # read at each decision: a person may change them meanwhile
    secrets: Mapping[str, str] = field(default_factory=dict)  # all known; a run gets those that its skill declares
    redactor: Redactor = field(default_factory=lambda: Redactor({}))
    on_output: Callable[[str, bytes], None] | None = None
    broken: Callable[[], bool] = lambda: False  # true if the record can no longer be written
    on_ask: Literal["wait", "deny"] = "wait"  # result if nobody could be asked
    ask_unisolated: bool = False  # ask about calls that policy allows to run without isolation
    ceiling: Callable[[], Mapping[str, AllowedTools]] = dict  # lists of the parent run: must allow it, too
    route: Callable[[ToolCall], tuple[ToolCall, str]] = lambda call: (call, "")  # repaired call, note for the model
    refuse: Callable[[ToolCall], Outcome | None] = lambda call: None  # outcome of a call that is not tried
    given: Callable[[str, str, bool], ApprovalAnswered | None] = lambda call_id, capability, isolated: None
    # `standing`: an earlier answer "always". `changed`: differences from content that was approved before.
    standing: Callable[[SkillIdentity, str], ApprovalAnswered | None] = lambda named, capability: None
    changed: Callable[[SkillIdentity, str], dict[str, Any]] = lambda named, capability: {}
    remember: Callable[[SkillIdentity, str], None] = lambda named, capability: None
    for_run: set[tuple[str, str]] = field(default_factory=set)  # (capability, skill) approved for this run
    preview: Callable[[ToolCall], Awaitable[str]] | None = None  # diff of the changes of a call
    spawn: Callable[[Spawn, ToolCall], Awaitable[Outcome]] | None = None  # carries out a call in a child run
    store_full_output: Callable[[ToolCall, str], Awaitable[str | None]] | None = (
        None  # stores a too long text, returns its ref
    )


async def act(call: ToolCall, scene: Scene, *, before_end: Callable[[], Awaitable[object]] | None = None) -> Outcome:
    """Makes a call. Awaits `before_end` before it records the outcome, so that parallel calls end in order."""
    call, word = scene.route(call)
    call = replace(call, tool=canonical_tools(call.tool)[0])
    try:
        call = scene.tools.normalise(call)
    except ToolRetry as error:
        safe = replace(call, args={})  # its arguments may not be storable
        unwritten = [_redacted(CallPlanned(call=safe), scene)]
        outcome = scene.refuse(call) or Outcome(status="failed", code="invalid-call", content=str(error))
    else:
        unwritten = [_redacted(CallPlanned(call=call), scene)]
        outcome = scene.refuse(call) or await _attempt(call, scene, unwritten)
    if before_end is not None:
        await before_end()
    outcome = replace(outcome, content=f"{word}\n{outcome.content}") if word else outcome
    return await _end(call, outcome, scene, unwritten)


async def _attempt(call: ToolCall, scene: Scene, unwritten: list[Event]) -> Outcome:
    """Decides and executes a call. Events in `unwritten` are recorded together with the decision."""
    try:
        named = scene.named(call)
        around = await scene.around(call)
        request = _request(call, named, scene.touched(call))
        decision = await _decide(request, call, named, around, scene, unwritten)
        granted: set[str] = set()
        denied = _denied(decision, call, scene) or await _unmet(call, named, around, scene, granted)
    except ProwessError as error:
        _let_through(error, scene)
        return _failed(error)
    except asyncio.CancelledError:
        not_begun = Outcome(status="interrupted", code="interrupted", content="It was not begun.")
        if not scene.broken():
            await _end(call, not_begun, scene, unwritten)
        raise
    return denied if denied is not None else await _execute(call, named, decision, around, scene, granted)


async def _decide(
    request: PolicyQuery,
    call: ToolCall,
    named: SkillIdentity | None,
    around: PolicyContext,
    scene: Scene,
    unwritten: list[Event],
) -> Decision:
    """Asks policy, and a person if policy says "ask". Then the person's answer is the verdict."""
    rules = scene.rules()
    decision = decide(request, around, lists=scene.lists(), rules=rules)
    if ceiling := scene.ceiling():
        decision = stricter(decision, decide(request, around, lists=ceiling, rules=rules))
    each_time = is_asked_each_time(request, around, rules)
    unisolated = around.isolation is not None and not is_isolated(around.isolation)
    if scene.ask_unisolated and unisolated and decision.verdict == "allow":
        decision = replace(decision, verdict="ask", why=f"It would run without isolation. {decision.why}")
    if decision.verdict == "ask":
        about = await _describe(request, call, named, around, scene)
        decision = replace(decision, about={**about, "each_time": True} if each_time else about)
    events, unwritten[:] = [*unwritten, _redacted(CallDecided(call_id=call.id, decision=decision), scene)], []
    await scene.append(*events)
    if decision.verdict != "ask":
        return decision
    answer = _answered_before(request, call, named, around, scene, each_time=each_time)
    if answer is None:
        why = scene.redactor.redact_text(decision.why)
        await scene.append(ApprovalAsked(call_id=call.id, why=why, capability=request.tool))
        about = call if request.kind == "call" else ToolCall(id=call.id, tool=request.tool, args=dict(request.args))
        answer, problem = await _ask(about, decision, scene)
        if problem:
            decision = replace(decision, why=f"{decision.why} The approver gave no answer: {problem}")
    if answer is None:
        return Decision(verdict="ask", rule=decision.rule, why=decision.why, limits=decision.limits)
    await scene.append(replace(answer, call_id=call.id, capability=request.tool, later=False))
    _keep_answer(answer, request, named, around, scene)
    if answer.answer == "no":
        packages = ", ".join(map(str, request.args.get("dependencies") or ())) if request.kind == "capability" else ""
        why = answer.why or (f"A person said no to installing {packages[:500]}." if packages else "A person said no.")
        return Decision(verdict="deny", rule=ANSWERED, why=why)
    rule = ANSWERED if answer.asked else "approval:given"
    return Decision(verdict="allow", rule=rule, why=f"Approved: {answer.answer}.", limits=decision.limits)


def _answered_before(
    request: PolicyQuery,
    call: ToolCall,
    named: SkillIdentity | None,
    around: PolicyContext,
    scene: Scene,
    *,
    each_time: bool,
) -> ApprovalAnswered | None:
    """Finds an earlier answer: for this call, for this run, or permanent. With `each_time`, only for this call."""
    isolated = is_isolated(around.isolation)
    given = scene.given(call.id, request.tool, isolated)
    if given is not None or each_time:
        return given
    keys = approval_keys(request.tool, isolated=isolated)
    if any((key, request.skill or "") in scene.for_run for key in keys):
        return ApprovalAnswered(call_id=call.id, answer="run", by="a person, for this run", asked=False)
    if named is None or not named.digest:
        return None
    found = next((found for key in keys if (found := scene.standing(named, key)) is not None), None)
    return None if found is None else replace(found, asked=False)


def approval_keys(capability: str, *, isolated: bool) -> tuple[str, ...]:
    """Names under which an approval is looked up; it is stored under the first. An approval with isolation does not
    count without isolation, but an approval without isolation counts for both."""
    return (f"{capability}@isolated", capability) if isolated else (capability,)


def is_asked_each_time(request: PolicyQuery, around: PolicyContext, rules: Sequence[Rules]) -> bool:
    """True if no earlier approval counts: the configuration or a managed policy always asks about this call, or only
    the call names the packages to install."""
    if request.kind == "capability" and request.args.get("by") == "call":  # a yes to one package is no yes to another
        return True
    if request.tool in {tool for name in around.require_approval_for for tool in (name, *canonical_tools(name))}:
        return True
    managed = [each for each in rules if each.only_tightens and each.trusted]
    asked = (find_rule(each, request, around.find_program) for each in managed)
    return any(rule is not None and rule.verdict == "ask" for rule in asked)


def _keep_answer(
    answer: ApprovalAnswered, request: PolicyQuery, named: SkillIdentity | None, around: PolicyContext, scene: Scene
) -> None:
    """Stores an approval for the run, or permanently for this content of a skill."""
    key = approval_keys(request.tool, isolated=is_isolated(around.isolation))[0]
    if answer.answer == "always" and named is not None and named.digest:
        scene.remember(named, key)  # looked up at each call, so that a revocation counts at once
    elif answer.answer in ("run", "always"):
        scene.for_run.add((key, request.skill or ""))


async def _describe(
    request: PolicyQuery, call: ToolCall, named: SkillIdentity | None, around: PolicyContext, scene: Scene
) -> dict[str, Any]:
    """Returns all facts that a person needs to approve this call."""
    about: dict[str, Any] = {"capability": request.tool, "risk": find_risk(request.tool)}
    if named is not None:
        about |= {"skill": named.id, "source": named.source, "digest": named.digest, "trusted": named.trusted}
        if changed := scene.changed(named, request.tool):
            about["changed"] = changed
    if around.isolation is not None:
        about["isolation"] = to_json(around.isolation)
    if scene.preview is not None and (diff := await scene.preview(call)):
        about["diff"] = scene.redactor.redact_text(diff)
    return about


async def _ask(call: ToolCall, decision: Decision, scene: Scene) -> tuple[ApprovalAnswered | None, str]:
    """Asks the approver. Returns the answer, or the problem. An approver that fails or returns an invalid answer has
    not answered; that never counts as yes."""
    if scene.approver is None:
        return None, ""
    try:
        said: object = scene.approver(call, decision)
        if inspect.isawaitable(said):
            said = await said
    except Exception as error:  # noqa: BLE001 - an approver is foreign code
        problem = f"{type(error).__name__}: {error}"
    else:
        answer = _parse_answer(call, said)
        if answer is not None or said is None:
            return answer, ""
        problem = f"It said {said!r}, which is none of: once, run, always, no."
    problem = scene.redactor.redact_text(problem)[:500]
    await scene.append(ErrorRaised(code="approver-failed", message=problem))
    return None, problem


def _parse_answer(call: ToolCall, said: object) -> ApprovalAnswered | None:
    """Parses an answer: `once`, `yes`, `run`, `always`, `no`, `no, because …`, True or False. None if invalid."""
    if isinstance(said, ApprovalAnswered):
        why = said.why
        return said if said.answer in get_args(Answer) and (why is None or isinstance(why, str)) else None
    if isinstance(said, bool):
        said = "once" if said else "no"
    if not isinstance(said, str):
        return None
    if (refused := _NO.fullmatch(said.strip())) is not None:
        return ApprovalAnswered(call_id=call.id, answer="no", why=refused[1] or None, by="approver")
    answer = _YES.get(said.strip().lower())
    return None if answer is None else ApprovalAnswered(call_id=call.id, answer=answer, by="approver")


async def _unmet(
    call: ToolCall, named: SkillIdentity | None, around: PolicyContext, scene: Scene, granted: set[str]
) -> Outcome | None:
    """Decides each further capability that the call needs, in the same way. Returns the outcome of a denial. Adds to
    `granted` the capabilities that a person allowed when asked."""
    try:
        needs = await scene.tools.needs(call)
    except ToolRetry as error:
        return Outcome(status="failed", code="invalid-call", content=str(error))
    for need in needs:
        decision = await _decide(_request_for(need, named), call, named, around, scene, [])
        if (denied := _denied(decision, call, scene)) is not None:
            return denied
        granted.update([need.capability] if decision.rule == ANSWERED else ())
    return None


async def _execute(
    call: ToolCall,
    named: SkillIdentity | None,
    decision: Decision,
    around: PolicyContext,
    scene: Scene,
    granted: Collection[str],
) -> Outcome:
    """Executes the tool. Every failure becomes an outcome. A cancellation is recorded and raised again."""
    began = time.monotonic()
    try:
        env = _environment(call, named, scene)
        within = CallGrant(
            decision=decision,
            redaction=scene.redactor,
            call_id=call.id,
            trigger=call.trigger,
            can_spawn=scene.spawn is not None and call.trigger not in _NEVER_SPAWNS,
            env=env,
            granted=frozenset(granted),
            on_output=scene.on_output,
        )
        result = await scene.tools.call(call, within)
        if not isinstance(result, Spawn):
            return result
        if scene.spawn is None:
            raise ToolFailed("It wants a child run, and here is nobody who could make one.")
        return await scene.spawn(result, call)
    except ToolRetry as error:
        return Outcome(status="failed", code="invalid-call", content=str(error))
    except ToolFailed as error:
        return Outcome(status="failed", code="tool-failed", content=str(error))
    except ProwessError as error:
        _let_through(error, scene)
        return _failed(error)
    except Exception as error:  # noqa: BLE001 - a tool is foreign code, and its errors must not end the run
        hint = "This is a mistake in the tool, not in the call."
        text = f"{type(error).__name__}: {error}"[:2000]
        return Outcome(status="failed", code="tool-raised", content=text, hint=hint)
    except asyncio.CancelledError:
        ours = "It was interrupted and has ended."
        theirs = "It was given up, and what it does may still go on."  # a thread cannot be killed
        content = ours if call.tool in TOOLS else theirs
        data: dict[str, Any] = {}
        if around.isolation is not None:  # a program: record its duration and isolation
            took_ms = round(1000 * (time.monotonic() - began))
            data = {"isolation": to_json(around.isolation), "duration_ms": took_ms}
        interrupted = Outcome(status="interrupted", code="interrupted", content=content, data=data)
        if not scene.broken():
            await _end(call, interrupted, scene)
        raise


async def _end(call: ToolCall, outcome: Outcome, scene: Scene, unwritten: Sequence[Event] = ()) -> Outcome:
    redact = scene.redactor.redact_json
    clean = Outcome(
        status=outcome.status,
        content=await _fitting(call, scene.redactor.redact_text(outcome.content), scene),
        code=outcome.code,
        hint=None if outcome.hint is None else scene.redactor.redact_text(outcome.hint),
        data=redact(outcome.data),
        state_delta=redact(outcome.state_delta),
    )
    await scene.append(*unwritten, CallActed(call_id=call.id, outcome=clean, state_delta=clean.state_delta))
    return clean


async def _fitting(call: ToolCall, text: str, scene: Scene) -> str:
    """Shortens content to MAX_CONTENT. The cut says where the full text is."""
    text = text.encode("utf-8", "replace").decode()
    if len(text) <= MAX_CONTENT:
        return text
    ref = None if scene.store_full_output is None else await scene.store_full_output(call, text)
    where = f"all of it: read_file {ref}" if ref else "the rest was not kept"
    half = MAX_CONTENT // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters were left out here; {where} …]\n{text[-half:]}"


def _request(call: ToolCall, named: SkillIdentity | None, touched: Sequence[SkillIdentity]) -> PolicyQuery:
    if named is None:
        touches, digests = tuple((each.id, each.source) for each in touched), tuple(each.digest for each in touched)
        return PolicyQuery(tool=call.tool, args=call.args, touches=touches, digests=digests)
    return PolicyQuery(tool=call.tool, args=call.args, **_about(named))


def _request_for(need: CapabilityRequest, named: SkillIdentity | None) -> PolicyQuery:
    about = {} if named is None else _about(named)
    return PolicyQuery(tool=need.capability, args=need.args, kind="capability", **about)


def _about(named: SkillIdentity) -> dict[str, Any]:
    return {"skill": named.id, "source": named.source, "trusted": named.trusted, "digests": (named.digest,)}


def _environment(call: ToolCall, named: SkillIdentity | None, scene: Scene) -> dict[str, str]:
    """Environment of a run: variables that the skill declares or the model set, none of our own environment."""
    if call.tool not in COMMAND_TOOLS or named is None:
        return {}
    return build_environment(named.env, scene.secrets, call.args.get("env") or {}, {})


def _denied(decision: Decision, call: ToolCall, scene: Scene) -> Outcome | None:
    if decision.verdict == "allow":
        return None
    if decision.verdict == "ask":
        text = f"Not approved: {decision.why}"
        hint = "A person has to approve it; nobody could be asked."
        data = {"rule": decision.rule, "call": {"tool": call.tool, "args": call.args}}  # so that it can be made again
        if scene.on_ask == "deny":
            return Outcome(status="denied", code="approval-needed", content=text, hint=hint, data=data)
        return Outcome(status="waiting", code="approval-needed", content=text, hint=hint, data=data)
    text = f"Denied: {decision.why}"
    hint = "Do it in another way, or ask the person to allow it."
    return Outcome(status="denied", code="denied", content=text, hint=hint, data={"rule": decision.rule})


def _failed(error: ProwessError) -> Outcome:
    data = {"unavailable": True} if isinstance(error, WorkspaceUnavailable) else {}
    return Outcome(status="failed", code=str(error.code), content=error.message, hint=error.hint, data=data)


def _let_through(error: ProwessError, scene: Scene) -> None:
    """Raises the error again if the record is broken, because then no outcome can be recorded."""
    if scene.broken() or (isinstance(error, StoreError) and error.code in _RECORD):
        raise error


_NEVER_SPAWNS = ("path", "nested")  # a file name starts no child run, and a nested load is in one already
_RECORD = ("record-broken", "session-conflict", "lease-lost", "event-invalid")


def _redacted(event: Event, scene: Scene) -> Event:
    """Redacts arguments and decisions, which can hold a secret that the model was told by mistake."""
    redact = scene.redactor.redact_json
    if isinstance(event, CallPlanned):
        return CallPlanned(call=replace(event.call, args=redact(event.call.args)))
    if isinstance(event, CallDecided):
        decision = event.decision
        limits, why = redact(decision.limits), scene.redactor.redact_text(decision.why)
        clean = replace(decision, why=why, limits=limits)
        return CallDecided(call_id=event.call_id, decision=clean)
    return event
