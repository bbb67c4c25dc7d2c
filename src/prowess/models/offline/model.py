"""Planner that works without a key: it finds a skill, runs one command written in it, and reports the result.

It is no language model and says so. It gets the skills as values, and remembers nothing between two replies: the same
conversation always gets the same reply. A turn begins with the last request of a person. docs/offline.md has the
grammar of the commands that it runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, ClassVar, NamedTuple

from prowess.core.codec import to_json
from prowess.core.events import CallDelta, ModelReplied, TextDelta
from prowess.core.ports import ShownSkill, SkillsInRequest
from prowess.core.values import Message, ToolCall, ToolSpec
from prowess.errors import ModelError, ProwessError
from prowess.models.offline import answer
from prowess.models.offline.fill import choose
from prowess.models.offline.ranking import rank_skills
from prowess.models.offline.request_values import base_name, parse_request

_OnDelta = Callable[[TextDelta | CallDelta], None]
_Calls = list[tuple[str, dict[str, Any]]]


class Failed(NamedTuple):
    """Report of a failed request. The run ends as an error with this code."""

    code: str
    text: str


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
        on_delta: _OnDelta | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> ModelReplied:
        if schema is not None:
            hint = "Use it with `--protocol tools`, or choose a language model."
            message = "The offline planner cannot answer in the form of a schema."
            raise ModelError(message, code="model-no-schema", hint=hint)
        return await self.reply_with_skills(messages, tools, SkillsInRequest(), on_delta=on_delta)

    async def reply_with_skills(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        skills: SkillsInRequest,
        *,
        on_delta: _OnDelta | None = None,
    ) -> ModelReplied:
        turn = _Turn(messages, skills, frozenset(tool.name for tool in tools))
        try:
            decided = turn.decide()
        except ProwessError as error:  # SQLite of this Python has no full-text search
            raise ModelError(error.message, code=str(error.code), hint=error.hint) from error
        if isinstance(decided, Failed):
            reply = ModelReplied(text=decided.text, finish="stop", model="offline", code=decided.code)
        elif isinstance(decided, str):
            calls = _number(turn.end_plan(), messages)
            reply = ModelReplied(text=decided, calls=calls, finish="stop", model="offline")
        else:
            reply = ModelReplied(calls=_number(decided, messages), finish="calls", model="offline")
        if on_delta and reply.text:
            on_delta(TextDelta(text=reply.text))
        for at, call in enumerate(reply.calls):
            if on_delta:
                on_delta(CallDelta(index=at, tool=call.tool, args=json.dumps(call.args, ensure_ascii=False)))
        return reply


def _number(calls: _Calls, messages: Sequence[Message]) -> tuple[ToolCall, ...]:
    """Gives ids from a hash of all messages, so that an id is unique in a session and the same in a replay."""
    seen = json.dumps([to_json(message) for message in messages]).encode()
    mark = blake2b(seen, digest_size=6).hexdigest()
    return tuple(ToolCall(id=f"offline-{mark}-{at}", tool=tool, args=args) for at, (tool, args) in enumerate(calls))


class _Turn:
    """Messages since the last request, and what follows from them."""

    def __init__(self, messages: Sequence[Message], skills: SkillsInRequest, tools: frozenset[str]) -> None:
        self._listed, self._loaded, self._tools = skills.listed, skills.loaded, tools
        start = max((at for at, message in enumerate(messages) if _find_request(message)), default=0)
        replies = [at for at, message in enumerate(messages[:start]) if message.role == "assistant"]
        fresh = [message for message in messages[max(replies, default=-1) + 1 :] if message.role in ("system", "user")]
        self._active = [skill for message in fresh for skill in self._shown(message)]
        now = messages[start:]
        self._answers = {message.call_id: message for message in now if message.role == "tool"}
        self._calls = {call.tool: call for message in now for call in message.calls if call.id in self._answers}
        given = [line[2:] for message in messages for line in _find_files(message)]
        self._said = parse_request(_find_request(messages[start]) if messages else "", given)

    def decide(self) -> str | Failed | _Calls:
        """Returns the next calls, or the answer."""
        tools, said = self._tools, self._said
        if "skill_run" in self._calls:
            return self._report()
        if "skill_load" in self._calls:
            return self._after_load()
        if self._active:  # named by the user or the caller, so there is no plan to update
            return self._follow(self._active, [])
        listed = {skill.name: skill for skill in (*self._listed, *self._find_hits())}
        ranked = rank_skills(said, list(listed.values()))
        if "skill_load" in tools and ranked and ranked[0].fits:
            name = ranked[0].skill.name
            steps = {
                "load": f"Load the skill {name}",
                "run": "Run the command that fits",
                "answer": "Report the result",
            }
            plan = [{"id": id, "title": title, "status": "pending"} for id, title in steps.items()]
            plan[0]["status"] = "in_progress"
            goal = " ".join(said.text.split())[:200]
            return [*self._plan({"plan": {"goal": goal, "steps": plan}}), ("skill_load", {"skill": name})]
        if "skill_search" in tools and "skill_search" not in self._calls and said.text.strip():
            return [("skill_search", {"query": said.text[:1000]})]
        installed = "skill_load" in tools and bool(listed or "skill_search" in self._calls)
        return Failed("no-skill-fits", answer.render_no_skill(ranked, installed=installed))

    def end_plan(self) -> _Calls:
        """Completes the plan together with the answer, if there is a plan and the command was run."""
        is_open = {"update_plan", "skill_run"} <= self._calls.keys()
        return self._plan_steps(run="completed", answer="completed") if is_open else []

    def _plan_steps(self, **steps: str) -> _Calls:
        return self._plan({"patch": {"set": {id: {"status": status} for id, status in steps.items()}}})

    def _plan(self, args: dict[str, Any]) -> _Calls:
        return [("update_plan", args)] if "update_plan" in self._tools else []

    def _after_load(self) -> str | Failed | _Calls:
        name, text = self._argument("skill_load", "skill"), self._text("skill_load")
        shown = list(self._shown(self._answers[self._calls["skill_load"].id]))
        if not shown and answer.FAILURE.match(text):
            return Failed("call-refused", answer.render_refusal(f"The skill '{name}' did not come into view:", text))
        shown += [skill for skill in self._loaded.values() if skill.name in (name, re.split("[:/]", name)[-1])]
        if not shown:
            return text  # the skill ran as a child run, and this is its answer
        return self._follow([shown[0]._replace(name=name)], self._plan_steps(load="completed", run="in_progress"))

    def _follow(self, skills: Sequence[ShownSkill], plan: _Calls) -> Failed | _Calls:
        """Runs the first of these skills that has a command for the request; the one that fits best comes first."""
        order = [each.skill for each in rank_skills(self._said, skills)]
        choices = [(skill, *choose(skill, self._said)) for skill in dict.fromkeys([*order, *skills])]
        skill, filled, refusals = next((each for each in choices if each[1] and each[1].ready), choices[0])
        if filled is None:
            return Failed("no-command", answer.render_no_command(skill, refusals))
        if filled.missing:
            return Failed("value-missing", answer.render_missing(skill, filled, self._said.given))
        if "skill_run" not in self._tools:
            what = f"Nothing can be run here. With a workspace it would have been this command of '{skill.name}':"
            return Failed("no-command", answer.render_refusal(what, f"    {filled.command}"))
        outputs = filled.find_outputs()
        args = {"skill": skill.name, "command": filled.command}
        return [*plan, ("skill_run", {**args, "output_files": outputs} if outputs else args)]

    def _report(self) -> str | Failed:
        skill, command = self._argument("skill_run", "skill"), self._argument("skill_run", "command")
        text, said = self._text("skill_run"), self._said
        result = answer.parse_result(text)
        if result is None:
            what = f"This command of the skill '{skill}' did not run:\n\n    {command}"
            return Failed("call-refused", answer.render_refusal(what, text))
        not_given = [path for path in said.all("file") if path not in said.given and base_name(path) in command]
        text = answer.render_result(result, skill=skill, command=command, not_given=not_given)
        return text if answer.is_success(result) else Failed("command-failed", text)

    def _find_hits(self) -> list[ShownSkill]:
        """Returns the skills that skill_search found."""
        try:
            hits = json.loads(self._text("skill_search"))
        except ValueError:
            return []
        rows = [hit for hit in hits if isinstance(hit, dict) and hit.get("name")] if isinstance(hits, list) else []
        return [ShownSkill(str(hit["name"]), str(hit.get("description") or "")) for hit in rows]

    def _shown(self, message: Message) -> Iterator[ShownSkill]:
        return (self._loaded[part.ref] for part in message.parts if part.ref and part.ref in self._loaded)

    def _argument(self, tool: str, name: str) -> str:
        return str(self._calls[tool].args.get(name) or "")

    def _text(self, tool: str) -> str:
        """Text of the result of the last call of a tool."""
        parts = self._answers[self._calls[tool].id].parts if tool in self._calls else ()
        return "\n".join(part.text or "" for part in parts if part.ref is None)


def _find_request(message: Message) -> str:
    """Returns the words of the person, without what the runtime added."""
    own = [part.text or "" for part in message.parts if part.ref is None and part.kind == "text"]
    return own[0] if message.role == "user" and own else ""


def _find_files(message: Message) -> list[str]:
    """Returns the lines that name given files."""
    lines = [line for part in message.parts if part.ref == "note:files" for line in (part.text or "").splitlines()]
    return [line for line in lines if line.startswith("- ") and "inputs/" in line]
