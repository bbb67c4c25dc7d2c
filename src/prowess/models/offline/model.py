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

from prowess.core.events import CallDelta, ModelReplied, TextDelta
from prowess.core.ports import ShownSkill, SkillsInRequest
from prowess.core.values import Message, ToolCall, ToolSpec, to_json
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
        code, text = decided if isinstance(decided, Failed) else (None, decided if isinstance(decided, str) else "")
        wanted = decided if isinstance(decided, list) else turn.close() if code is None else []
        # Hash of all messages, so that an id is unique in a session and the same in a replay.
        seen = json.dumps([to_json(message) for message in messages]).encode() if wanted else b""
        mark = blake2b(seen, digest_size=6).hexdigest()
        calls = [ToolCall(id=f"offline-{mark}-{at}", tool=tool, args=args) for at, (tool, args) in enumerate(wanted)]
        if on_delta and text:
            on_delta(TextDelta(text=text))
        for at, call in enumerate(calls):
            if on_delta:
                on_delta(CallDelta(index=at, tool=call.tool, args=json.dumps(call.args, ensure_ascii=False)))
        return ModelReplied(
            text=text, calls=tuple(calls), finish="stop" if text else "calls", model="offline", code=code
        )


class _Turn:
    """Messages since the last request, and what follows from them."""

    def __init__(self, messages: Sequence[Message], skills: SkillsInRequest, tools: frozenset[str]) -> None:
        self._listed, self._loaded, self._tools = skills.listed, skills.loaded, tools
        requests = [(at, text) for at, message in enumerate(messages) if (text := _find_request(message)) is not None]
        start, self._request = requests[-1] if requests else (0, "")
        replies = [at for at, message in enumerate(messages[:start]) if message.role == "assistant"]
        fresh = messages[replies[-1] + 1 if replies else 0 :]
        self._active = [skill for message in fresh if message.role in ("system", "user") for skill in self._shown(message)]
        self._answers = {message.call_id: message for message in messages[start:] if message.role == "tool"}
        self._calls = {call.tool: call for message in messages[start:] for call in message.calls if call.id in self._answers}
        self._said = parse_request(self._request, [path for message in messages for path in _find_given(message)])

    def decide(self) -> str | Failed | _Calls:
        """Returns the next calls, or the answer."""
        if "skill_run" in self._calls:
            return self._report()
        if "skill_load" in self._calls:
            return self._after_load()
        if self._active:  # named by the user or the caller, so there is no plan to update
            return self._follow(self._active, with_plan=False)
        listed = {skill.name: skill for skill in (*self._listed, *self._find_hits())}
        ranked = rank_skills(self._said, list(listed.values()))
        if "skill_load" in self._tools and ranked and ranked[0].fits:
            return self._load(ranked[0].skill)
        if "skill_search" in self._tools and "skill_search" not in self._calls and self._request.strip():
            return [("skill_search", {"query": self._request[:1000]})]
        installed = "skill_load" in self._tools and bool(listed or "skill_search" in self._calls)
        return Failed("no-skill-fits", answer.render_no_skill(ranked, installed=installed))

    def close(self) -> _Calls:
        """Returns the calls of the last reply: completes the plan, if there is one and the command was run."""
        steps = {"run": {"status": "completed"}, "answer": {"status": "completed"}}
        planned = "update_plan" in self._calls and "skill_run" in self._calls
        return [("update_plan", {"patch": {"set": steps}})] if planned else []

    def _load(self, skill: ShownSkill) -> _Calls:
        goal = " ".join(self._request.split())[:200]
        steps = [
            {"id": "load", "title": f"Load the skill {skill.name}", "status": "in_progress"},
            {"id": "run", "title": "Run the command that fits the request", "status": "pending"},
            {"id": "answer", "title": "Report what came of it", "status": "pending"},
        ]
        plan: _Calls = [("update_plan", {"plan": {"goal": goal, "steps": steps}})]
        return [*(plan if "update_plan" in self._tools else []), ("skill_load", {"skill": skill.name})]

    def _after_load(self) -> str | Failed | _Calls:
        name, text = self._argument("skill_load", "skill"), self._text("skill_load")
        shown = list(self._shown(self._answers[self._calls["skill_load"].id]))
        if not shown and answer.is_failure(text):
            return Failed("call-refused", answer.render_refusal(f"The skill '{name}' did not come into view:", text))
        bare = re.split("[:/]", name)[-1]
        shown += [skill for skill in self._loaded.values() if skill.name in (name, bare)]
        if not shown:
            return text  # the skill ran as a child run, and this is its answer
        return self._follow([shown[0]._replace(name=name)], with_plan="update_plan" in self._tools)

    def _follow(self, skills: Sequence[ShownSkill], *, with_plan: bool) -> Failed | _Calls:
        """Runs the first of these skills that has a command for the request; the one that fits best comes first."""
        order = [each.skill for each in rank_skills(self._said, skills)]
        choices = [(skill, *choose(skill, self._said)) for skill in dict.fromkeys([*order, *skills])]
        ready = [each for each in choices if each[1] and each[1].ready]
        skill, filled, refusals = (ready or choices)[0]
        if filled is None:
            return Failed("no-command", answer.render_no_command(skill, refusals))
        if filled.missing:
            return Failed("value-missing", answer.render_missing(skill, filled, self._said.given))
        if "skill_run" not in self._tools:
            return Failed("no-command", answer.render_cannot_run(skill, filled.command))
        steps = {"load": {"status": "completed"}, "run": {"status": "in_progress"}}
        plan: _Calls = [("update_plan", {"patch": {"set": steps}})] if with_plan else []
        outputs = {"output_files": filled.outputs} if filled.outputs else {}
        return [*plan, ("skill_run", {"skill": skill.name, "command": filled.command, **outputs})]

    def _report(self) -> str | Failed:
        skill, command = self._argument("skill_run", "skill"), self._argument("skill_run", "command")
        result = answer.parse_result(self._text("skill_run"))
        if result is None:
            what = f"This command of the skill '{skill}' did not run:\n\n    {command}"
            return Failed("call-refused", answer.render_refusal(what, self._text("skill_run")))
        said = self._said
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
        call = self._calls.get(tool)
        parts = self._answers[call.id].parts if call else ()
        return "\n".join(part.text or "" for part in parts if part.ref is None)


def _find_request(message: Message) -> str | None:
    """Returns the words of the person, without what the runtime added."""
    own = [part.text for part in message.parts if part.ref is None and part.kind == "text" and part.text]
    return own[0] if message.role == "user" and own else None


def _find_given(message: Message) -> Iterator[str]:
    for part in message.parts:
        if part.ref == "note:files":
            lines = (part.text or "").splitlines()
            yield from (line.removeprefix("- ") for line in lines if line.startswith("- ") and "inputs/" in line)
