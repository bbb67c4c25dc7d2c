"""Planner that works without a key: it finds a skill, runs one command written in it, and reports the result.

It is no language model and says so. Each reply depends only on the messages, so the same conversation always gets the
same reply. It runs a line of a skill with quoted values of the request. docs/offline.md has the grammar of such lines.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, ClassVar, NamedTuple

from prowess.core.codec import to_json
from prowess.core.events import CallDelta, ModelReplied, TextDelta
from prowess.core.values import Message, ToolCall, ToolSpec
from prowess.errors import ModelError, ProwessError
from prowess.models.offline import answer
from prowess.models.offline.choose import Choice, choose
from prowess.models.offline.ranking import ListedSkill, Ranked, rank_skills
from prowess.models.offline.request_values import RequestValues, parse_request
from prowess.models.offline.transcript import Body, CallWithOutcome, OfflineTranscript, parse_hits, read_transcript

_Calls = list[tuple[str, dict[str, Any]]]


class Failed(NamedTuple):
    """Report of a failed request. The run ends as an error with this code."""

    code: str
    text: str


_Decided = str | Failed | _Calls


class OfflineModel:
    name = "offline"
    protocol: ClassVar = "tools"
    context_tokens: ClassVar[int | None] = None
    notes: ClassVar[tuple[str, ...]] = (
        "offline planner: no language model is at work; it follows commands written in skills, and nothing else",
    )

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        on_delta: Callable[[TextDelta | CallDelta], None] | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> ModelReplied:
        if schema is not None:
            hint = "Use it with `--protocol tools`, or choose a language model."
            message = "The offline planner cannot answer in the form of a schema."
            raise ModelError(message, code="model-no-schema", hint=hint)
        try:
            transcript = read_transcript(messages)
            decided = _decide(transcript, frozenset(tool.name for tool in tools))
        except ProwessError as error:  # SQLite of this Python has no full-text search
            raise ModelError(error.message, code=str(error.code), hint=error.hint) from error
        return _reply(decided, messages, on_delta, closing=_closing(transcript))


def _decide(transcript: OfflineTranscript, tools: frozenset[str]) -> _Decided:
    """Returns the next calls, or the answer."""
    said = parse_request(transcript.request, transcript.given)
    if ran := transcript.last("skill_run"):
        return _report(ran, transcript, said)
    if loaded := transcript.last("skill_load"):
        return _after_load(loaded, transcript, said, tools)
    if transcript.active:  # named by the user or the caller, so there is no plan to update
        return _follow(_by_rank(transcript, said), said, tools - {"update_plan"})
    if searched := transcript.last("skill_search"):
        return _after_search(searched, transcript, said, tools)
    ranked = rank_skills(said, transcript.listed)
    if "skill_load" in tools and ranked and ranked[0].fits:
        return _load(ranked[0], transcript.request, tools)
    if "skill_search" in tools and transcript.request.strip():
        return [("skill_search", {"query": transcript.request[:1000]})]
    installed = bool(transcript.listed) and "skill_load" in tools
    return Failed("no-skill-fits", answer.render_no_skill(ranked, installed=installed))


def _load(best: Ranked, request: str, tools: frozenset[str]) -> _Calls:
    goal = " ".join(request.split())[:200]
    steps = [
        {"id": "load", "title": f"Load the skill {best.skill.name}", "status": "in_progress"},
        {"id": "run", "title": "Run the command that fits the request", "status": "pending"},
        {"id": "answer", "title": "Report what came of it", "status": "pending"},
    ]
    plan: _Calls = [("update_plan", {"plan": {"goal": goal, "steps": steps}})] if "update_plan" in tools else []
    return [*plan, ("skill_load", {"skill": best.skill.name})]


def _after_search(
    searched: CallWithOutcome, transcript: OfflineTranscript, said: RequestValues, tools: frozenset[str]
) -> _Decided:
    try:
        hits = parse_hits(json.loads(searched.text or ""))
    except ValueError:
        hits = []
    listed = {skill.name: skill for skill in (*transcript.listed, *hits)}
    ranked = rank_skills(said, list(listed.values()))
    if "skill_load" in tools and ranked and ranked[0].fits:
        return _load(ranked[0], transcript.request, tools)
    near = ranked or [Ranked(hit, 0.0, False) for hit in hits]
    return Failed("no-skill-fits", answer.render_no_skill(near, installed=True))


def _after_load(
    loaded: CallWithOutcome, transcript: OfflineTranscript, said: RequestValues, tools: frozenset[str]
) -> _Decided:
    name = str(loaded.call.args.get("skill") or "")
    body = loaded.bodies[-1] if loaded.bodies else transcript.body(name)
    if body is None and loaded.text and not answer.is_failure(loaded.text):
        return loaded.text  # the skill ran as a child run, and this is its answer
    if body is None:
        what = f"The skill '{name}' did not come into view:"
        return Failed("call-refused", answer.render_refusal(what, loaded.text or ""))
    return _follow([(name, body)], said, tools)


def _by_rank(transcript: OfflineTranscript, said: RequestValues) -> list[tuple[str, Body]]:
    """Returns the activated skills; the one that fits the request best comes first."""
    described = {skill.name: skill for skill in transcript.listed}
    listed = [described.get(body.name, ListedSkill(body.name)) for body in transcript.active]
    order = [each.skill.name for each in rank_skills(said, listed)]
    bodies = {body.name: body for body in transcript.active}
    return [(name, bodies[name]) for name in dict.fromkeys([*order, *bodies]) if name in bodies]


def _follow(bodies: Sequence[tuple[str, Body]], said: RequestValues, tools: frozenset[str]) -> _Decided:
    """Runs the first of these skills that has a command for the request."""
    choices: list[tuple[str, Body, Choice]] = [(name, body, choose(body, said)) for name, body in bodies]
    name, body, choice = next((each for each in choices if each[2].filled), choices[0])
    if choice.filled is None:
        if choice.missing:
            return Failed("value-missing", answer.render_missing(body, choice.command, choice.missing, said.given))
        return Failed("no-command", answer.render_no_command(body, choice.refusals))
    if "skill_run" not in tools:
        return Failed("no-command", answer.render_cannot_run(body, choice.filled.command))
    plan: _Calls = []
    if "update_plan" in tools:
        steps = {"load": {"status": "completed"}, "run": {"status": "in_progress"}}
        plan = [("update_plan", {"patch": {"set": steps}})]
    run: dict[str, Any] = {"skill": name, "command": choice.filled.command}
    if choice.outputs:
        run["output_files"] = list(choice.outputs)
    return [*plan, ("skill_run", run)]


def _report(ran: CallWithOutcome, transcript: OfflineTranscript, said: RequestValues) -> str | Failed:
    skill, command = str(ran.call.args.get("skill") or ""), str(ran.call.args.get("command") or "")
    result = answer.parse_result(ran.text or "")
    if result is None:
        what = f"This command of the skill '{skill}' did not run:\n\n    {command}"
        return Failed("call-refused", answer.render_refusal(what, ran.text or ""))
    not_given = [path for path in said.files if path not in said.given and path.split("/")[-1] in command]
    body = transcript.body(skill)
    text = answer.render_result(result, skill=skill, command=command, body=body, not_given=not_given)
    return text if answer.is_success(result) else Failed("command-failed", text)


def _closing(transcript: OfflineTranscript) -> _Calls:
    """Returns the calls of the last reply: completes the plan, if there is one and the command succeeded."""
    ran = transcript.last("skill_run")
    result = answer.parse_result(ran.text or "") if ran else None
    if result is None or not answer.is_success(result) or transcript.last("update_plan") is None:
        return []
    steps = {"run": {"status": "completed"}, "answer": {"status": "completed"}}
    return [("update_plan", {"patch": {"set": steps}})]


def _reply(
    decided: _Decided,
    messages: Sequence[Message],
    on_delta: Callable[[TextDelta | CallDelta], None] | None,
    *,
    closing: _Calls,
) -> ModelReplied:
    code, text = decided if isinstance(decided, Failed) else (None, decided if isinstance(decided, str) else "")
    if text and on_delta:
        on_delta(TextDelta(text=text))
    wanted = decided if isinstance(decided, list) else closing
    if not wanted:
        return ModelReplied(text=text, finish="stop", model="offline", code=code)
    # Hash of all messages, so that an id is unique in a session and the same in a replay.
    seen = json.dumps([to_json(message) for message in messages], ensure_ascii=True).encode()
    mark = blake2b(seen, digest_size=6).hexdigest()
    calls = tuple(ToolCall(id=f"offline-{mark}-{at}", tool=tool, args=args) for at, (tool, args) in enumerate(wanted))
    if on_delta:
        for at, call in enumerate(calls):
            on_delta(CallDelta(index=at, tool=call.tool, args=json.dumps(call.args, ensure_ascii=False)))
    return ModelReplied(text=text, calls=calls, finish="stop" if text else "calls", model="offline")
