"""Planner that works without a key: it finds a skill, runs one command written in it, and reports the result.

It is no language model and says so. It gets the skills as values, and remembers nothing between two replies. A turn
begins with the last request of a person. docs/offline.md has the grammar of the commands that it runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
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

Tell = Callable[[TextDelta | CallDelta], None] | None
Schema = Mapping[str, Any] | None
_Calls = Sequence[tuple[str, dict[str, Any]]]
_LATER_STEPS = (("run", "Run the command that fits"), ("answer", "Report the result"))


class Decided(NamedTuple):
    code: str | None = None  # of a failure: the run ends as an error
    text: str = ""
    calls: _Calls = ()


class OfflineModel:
    name = "offline"
    protocol: ClassVar = "tools"
    notes: ClassVar[tuple[str, ...]] = (
        "offline planner: no language model is at work; it follows commands written in skills, and nothing else",
    )

    async def reply(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, on_delta: Tell = None, schema: Schema = None
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
        on_delta: Tell = None,
    ) -> ModelReplied:
        try:
            decided = _Turn(messages, skills, [tool.name for tool in tools]).decide()
        except ProwessError as error:  # SQLite of this Python has no full-text search
            raise ModelError(error.message, code=str(error.code), hint=error.hint) from error
        calls: list[ToolCall] = []
        tell = on_delta or (lambda _: None)
        if decided.text:
            tell(TextDelta(text=decided.text))
        # Ids from a hash of all messages, so that an id is unique in a session and the same in a replay.
        seen = json.dumps([to_json(message) for message in messages]) if decided.calls else ""
        mark = blake2b(seen.encode(), digest_size=6).hexdigest()
        for at, (tool, args) in enumerate(decided.calls):
            call = ToolCall(id=f"offline-{mark}-{at}", tool=tool, args=args)
            calls.append(call)
            tell(CallDelta(index=at, tool=tool, args=json.dumps(args, ensure_ascii=False)))
        finish = "stop" if decided.text else "calls"
        return ModelReplied(text=decided.text, calls=tuple(calls), finish=finish, model="offline", code=decided.code)


class _Turn:
    """Messages since the last request, and what follows from them."""

    def __init__(self, messages: Sequence[Message], skills: SkillsInRequest, tools: Collection[str]) -> None:
        self._listed, self._loaded, self._results = skills.listed, skills.loaded, skills.results
        self._tools = tools
        requests = [_find_request(message) for message in messages]
        start = max((at for at, request in enumerate(requests) if request), default=0)
        replies = [at for at, message in enumerate(messages[:start]) if message.role == "assistant"]
        fresh = [message for message in messages[max(replies, default=-1) + 1 :] if message.role in ("system", "user")]
        self._active = [skill for message in fresh for skill in self._shown(message)]
        now = messages[start:]
        self._answers = {message.call_id: message for message in now if message.role == "tool"}
        self._calls = {call.tool: call for message in now for call in message.calls if call.id in self._answers}
        notes = [part.text or "" for message in messages for part in message.parts if part.ref == "note:files"]
        lines = "\n".join(notes).splitlines()
        given = [line[2:] for line in lines if line.startswith("- ") and "inputs/" in line]
        self._said = parse_request("".join(requests[start : start + 1]), given)

    def decide(self) -> Decided:
        tools, said = self._tools, self._said
        if "skill_run" in self._calls:
            return self._report()
        if "skill_load" in self._calls:
            return self._after_load()
        if self._active:  # named by the user or the caller, so there is no plan to update
            return self._follow(self._active, [])
        fitting, near = rank_skills(said, self._listed)
        if "skill_load" in tools and fitting:
            name = fitting[0].name
            load = ("skill_load", {"skill": name})
            if "update_plan" not in tools:
                return Decided(calls=[load])
            goal = " ".join(said.text.split())
            titles = (("load", f"Load the skill {name}"), *_LATER_STEPS)
            steps = [{"id": id, "title": title, "status": "pending"} for id, title in titles]
            steps[0]["status"] = "in_progress"
            plan = {"goal": goal[:200], "steps": steps}
            return Decided(calls=[("update_plan", {"plan": plan}), load])
        installed = bool(self._listed) and "skill_load" in tools
        return Decided("no-skill-fits", answer.render_no_skill([*fitting, *near], installed=installed))

    def _update_plan(self, **steps: str) -> _Calls:
        patch = {"set": {id: {"status": status} for id, status in steps.items()}}
        return [("update_plan", {"patch": patch})] if "update_plan" in self._tools else []

    def _after_load(self) -> Decided:
        call = self._calls["skill_load"]
        shown = self._shown(self._answers[call.id])
        name, text = str(call.args.get("skill")), self._text("skill_load")
        if not shown and answer.FAILURE.match(text):
            return Decided("call-refused", answer.render_refusal(f"The skill '{name}' did not come into view:", text))
        shown += [skill for skill in self._loaded.values() if skill.name in (name, re.split("[:/]", name)[-1])]
        if not shown:
            return Decided(text=text)  # the skill ran as a child run, and this is its answer
        return self._follow([shown[0]._replace(name=name)], self._update_plan(load="completed", run="in_progress"))

    def _follow(self, skills: Sequence[ShownSkill], plan: _Calls) -> Decided:
        """Runs the first of these skills that has a command for the request; the one that fits best comes first."""
        fitting, near = rank_skills(self._said, skills)
        choices = [(skill, *choose(skill, self._said)) for skill in dict.fromkeys([*fitting, *near, *skills])]
        skill, filled, refusals = next((each for each in choices if each[1] and each[1].ready), choices[0])
        if filled is None:
            return Decided("no-command", answer.render_no_command(skill, refusals))
        if filled.missing:
            return Decided("value-missing", answer.render_missing(skill, filled, self._said.given))
        if "skill_run" not in self._tools:
            what = f"Nothing can be run here. With a workspace it would have been this command of '{skill.name}':"
            return Decided("no-command", answer.render_refusal(what, f"    {filled.command}"))
        outputs = {"output_files": filled.outputs} if filled.outputs else {}
        return Decided(calls=[*plan, ("skill_run", {"skill": skill.name, "command": filled.command, **outputs})])

    def _report(self) -> Decided:
        call, text, said = self._calls["skill_run"], self._text("skill_run"), self._said
        skill, command = str(call.args.get("skill")), str(call.args.get("command"))
        result = self._results.get(call.id, {})
        if "exit_code" not in result:
            what = f"This command of the skill '{skill}' did not run:\n\n    {command}"
            return Decided("call-refused", answer.render_refusal(what, text))
        not_given = [path for path in said.all("file") if path not in said.given and base_name(path) in command]
        text = answer.render_result(result, skill=skill, command=command, not_given=not_given)
        if not answer.is_success(result):
            return Decided("command-failed", text)
        if "update_plan" not in self._calls:
            return Decided(text=text)
        return Decided(text=text, calls=self._update_plan(run="completed", answer="completed"))

    def _shown(self, message: Message) -> list[ShownSkill]:
        return [self._loaded[part.ref] for part in message.parts if part.ref and part.ref in self._loaded]

    def _text(self, tool: str) -> str:
        """Text of the result of the last call of a tool."""
        result = self._answers[self._calls[tool].id]
        return "\n".join(part.text or "" for part in result.parts if part.ref is None)


def _find_request(message: Message) -> str:
    """Returns the words of the person, without what the runtime added."""
    own = [part.text or "" for part in message.parts if part.ref is None and part.kind == "text"]
    return own[0] if message.role == "user" and own else ""
