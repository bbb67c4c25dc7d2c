"""Converts structured actions to tool calls, and tool calls back to actions.

    select_skills -> one skill_load for each      load_resource -> skill_read      run_script -> skill_run
    plan, plan_update -> update_plan, first       call_tool -> that tool           final_answer -> the text

`render_documents` is deterministic, and reading its output gives the same calls again.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from prowess._internal.json_values import JsonObject
from prowess.core.events import Finish
from prowess.core.values import Source, ToolCall
from prowess.models.actions.schema import (
    NOT_TOOLS,
    PLANNING,
    ActionDocument,
    CallTool,
    FinalAnswer,
    LoadResource,
    RunScript,
    SelectSkills,
)


class Translated(NamedTuple):
    """Parts of a reply that come from a document."""

    text: str
    calls: tuple[ToolCall, ...]
    finish: Finish


def translate(document: ActionDocument, ids: Iterator[str]) -> Translated:
    """Returns the calls of a document, the plan first, and its answer."""
    wanted = [*_plan_calls(document), *_action_calls(document)]
    calls: list[ToolCall] = []
    for tool, args in wanted:
        call = ToolCall(id=next(ids), tool=tool, args=args)
        calls.append(call)
    action = document.action
    if isinstance(action, FinalAnswer):
        return Translated(action.content, tuple(calls), "stop")
    return Translated("", tuple(calls), "calls")


def _plan_calls(document: ActionDocument) -> Iterator[tuple[str, JsonObject]]:
    if document.plan is not None:
        yield PLANNING, {"plan": document.plan}
    update = document.plan_update
    if update is None:
        return
    argument = "plan" if _is_plan(update) else "patch"
    yield PLANNING, {argument: update}


def _is_plan(update: Mapping[str, Any]) -> bool:
    """True for a whole plan in place of a patch."""
    return "goal" in update or "steps" in update


def _action_calls(document: ActionDocument) -> Iterator[tuple[str, JsonObject]]:
    match document.action:
        case SelectSkills(skills=skills, reason=reason):
            refs = [skill.ref for skill in skills]
            for ref in dict.fromkeys(refs):
                yield "skill_load", _said(skill=ref, reason=reason)
        case LoadResource(skill=skill, relative_path=path, section_hint=hint):
            args = _said(skill=skill.ref, path=path, section_hint=hint)
            yield "skill_read", args
        case RunScript(skill=skill, relative_path=path, args=args):
            yield "skill_run", {"skill": skill.ref, "script": path, "args": list(args)}
        case CallTool(tool=tool, args=args):
            yield tool, dict(args)
        case FinalAnswer():
            pass


def _said(**args: str | None) -> JsonObject:
    """Returns the arguments that are not empty."""
    return {name: value for name, value in args.items() if value}


# --- calls to actions ------------------------------------------------------------------------------------------------


def render_documents(text: str, calls: Sequence[ToolCall]) -> str:
    """Renders an assistant's text and calls as the documents that it would have written: one per line, one action each.

    Several documents are needed only for calls of several actions, as a model with its own tools makes them.
    """
    plan, rest = _split_plan(calls)
    if calls and not rest and not text:  # a document needs an action, so a plan alone becomes a call
        plan, rest = {}, list(calls)
    if not rest:
        answer = {"type": "final_answer", "content": text}
        return _dump({**plan, "action": answer})
    lines = [text] if text else []
    for _, group in groupby(rest, key=_kin):
        action = _action_of(list(group))
        document = _dump({**plan, "action": action})
        lines.append(document)
        plan = {}  # only the first document has it
    return "\n".join(lines)


def name_action(call: ToolCall) -> str:
    """Returns the name by which the model knows the call: the action, or the tool that it called."""
    if call.tool in NOT_TOOLS:
        return NOT_TOOLS[call.tool]
    kind = _action_of([call])["type"]
    return call.tool if kind == "call_tool" else kind


def _split_plan(calls: Sequence[ToolCall]) -> tuple[JsonObject, list[ToolCall]]:
    """Returns the fields of the plan, and the calls that stay calls."""
    plan: JsonObject = {}
    rest = list(calls)
    for argument, field in (("plan", "plan"), ("patch", "plan_update")):
        value = _find_plan(rest[0], argument) if rest else None
        if value:
            plan[field] = value
            rest.pop(0)
    return plan, rest


def _find_plan(call: ToolCall, argument: str) -> JsonObject | None:
    """Returns the only argument of a call, if the document has a field for it."""
    if call.tool != PLANNING or len(call.args) != 1:
        return None
    value = call.args.get(argument)
    if not isinstance(value, dict) or (argument == "patch" and _is_plan(value)):
        return None
    return value


def _kin(call: ToolCall) -> object:
    """Returns the group key of a call: skills selected for one reason are one action, other calls stand alone."""
    if _is_selection(call):
        return "select_skills", call.args.get("reason")
    return id(call)


def _action_of(calls: Sequence[ToolCall]) -> JsonObject:
    """Returns the action of one call, or of several that select skills."""
    call = calls[0]
    args = call.args
    if _is_selection(call):
        skills = [_skill(each.args["skill"]) for each in calls]
        action = {"type": "select_skills", "skills": skills}
        return action | _said(reason=args.get("reason"))
    if call.tool == "skill_read" and _fits(args, {"skill", "path"}, {"section_hint"}):
        skill = _skill(args["skill"])
        action = {"type": "load_resource", "skill": skill, "relative_path": args["path"]}
        return action | _said(section_hint=args.get("section_hint"))
    if call.tool == "skill_run" and _is_script(args):
        skill = _skill(args["skill"])
        words = args.get("args", [])
        return {"type": "run_script", "skill": skill, "relative_path": args["script"], "args": words}
    return {"type": "call_tool", "tool": call.tool, "args": args}


def _is_selection(call: ToolCall) -> bool:
    if call.tool != "skill_load":
        return False
    return _fits(call.args, {"skill"}, {"reason"})


def _is_script(args: Mapping[str, Any]) -> bool:
    """True for the arguments of a script, not of a command."""
    named = dict(args)
    words = named.pop("args", [])
    return _are_texts(words) and _fits(named, {"skill", "script"}, set())


def _fits(args: Mapping[str, Any], required: set[str], optional: set[str]) -> bool:
    """True when there are only these arguments, and each is a non-empty text."""
    allowed = required | optional
    if not required <= set(args) <= allowed:
        return False
    values = list(args.values())
    return _are_texts(values) and all(values)


def _are_texts(value: Any) -> bool:
    if not isinstance(value, list):
        return False
    return all(isinstance(item, str) for item in value)


def _skill(ref: str) -> dict[str, str]:
    """Returns a reference as the model writes it; `SkillName.ref` is the way back."""
    source, _, name = ref.partition(":")
    if not name or source not in typing.get_args(Source):
        return {"name": ref}
    if name.startswith(f"{source}:"):  # SkillName.ref adds no second source
        return {"name": ref}
    return {"name": name, "source": source}


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
