"""Converts structured actions to tool calls, and tool calls back to actions.

    select_skills -> one skill_load for each      load_resource -> skill_read      run_script -> skill_run
    plan, plan_update -> update_plan, first       call_tool -> that tool           final_answer -> the text

`render_documents` is deterministic, and reading its output gives the same calls again.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from prowess.core.events import Finish
from prowess.core.values import Source, ToolCall
from prowess.models.actions.schema import (
    NEEDS,
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
    text: str
    calls: tuple[ToolCall, ...]
    finish: Finish


def translate(document: ActionDocument, ids: Iterator[str]) -> Translated:
    action = document.action
    text = action.content if isinstance(action, FinalAnswer) else ""
    planned = [(PLANNING, args) for args in _plan_args(document)]
    calls = tuple(ToolCall(id=next(ids), tool=tool, args=args) for tool, args in [*planned, *_calls(document)])
    return Translated(text, calls, "stop" if isinstance(action, FinalAnswer) else "calls")


def _plan_args(document: ActionDocument) -> Iterator[dict[str, Any]]:
    if document.plan is not None:
        yield {"plan": document.plan}
    if document.plan_update is not None:
        yield {"plan" if document.plan_update.keys() & {"goal", "steps"} else "patch": document.plan_update}


def _calls(document: ActionDocument) -> Iterable[tuple[str, dict[str, Any]]]:
    match document.action:
        case SelectSkills(skills=skills, reason=reason):
            refs = dict.fromkeys(skill.ref for skill in skills)
            return [("skill_load", _said(skill=ref, reason=reason)) for ref in refs]
        case LoadResource(skill=skill, relative_path=path, section_hint=hint):
            return [("skill_read", _said(skill=skill.ref, path=path, section_hint=hint))]
        case RunScript(skill=skill, relative_path=path, args=args):
            return [("skill_run", {"skill": skill.ref, "script": path, "args": list(args)})]
        case CallTool(tool=tool, args=args):
            return [(tool, dict(args))]
        case FinalAnswer():
            return []


def _said(**args: str | None) -> dict[str, Any]:
    return {name: value for name, value in args.items() if value}


def tool_of(action_type: str) -> str:
    """Returns the tool behind a type of action, or "" when the action names the tool or needs none."""
    return NEEDS.get(action_type, "")


# --- calls to actions ------------------------------------------------------------------------------------------------


def render_documents(text: str, calls: Sequence[ToolCall]) -> str:
    """Renders an assistant's text and calls as the documents that it would have written: one per line, one action each.

    Several documents are needed only for calls of several actions, as a model with its own tools makes them.
    """
    plan, rest = _split_plan(calls)
    if calls and not rest and not text:  # a document needs an action, so a plan alone becomes a call
        plan, rest = {}, list(calls)
    if not rest:
        return _dump({**plan, "action": {"type": "final_answer", "content": text}})
    actions = [_action_of(group) for _, group in groupby(rest, key=_kin)]
    lines = [_dump({**(plan if not at else {}), "action": action}) for at, action in enumerate(actions)]
    return "\n".join([text, *lines] if text else lines)


def name_action(call: ToolCall) -> str:
    """Returns the name by which the model knows the call: the action, or the tool that it called."""
    kind = _action_of([call])["type"]
    return NOT_TOOLS.get(call.tool, call.tool if kind == "call_tool" else kind)


def _split_plan(calls: Sequence[ToolCall]) -> tuple[dict[str, Any], list[ToolCall]]:
    plan: dict[str, Any] = {}
    rest = list(calls)
    for argument, field in (("plan", "plan"), ("patch", "plan_update")):
        value = rest[0].args.get(argument) if rest and rest[0].tool == PLANNING and len(rest[0].args) == 1 else None
        if isinstance(value, dict) and value and not (argument == "patch" and value.keys() & {"goal", "steps"}):
            plan[field] = value
            rest = rest[1:]
    return plan, rest


def _kin(call: ToolCall) -> object:
    """Returns the group key of a call: skills selected for one reason are one action, other calls stand alone."""
    return ("select_skills", call.args.get("reason")) if _is_selection(call) else id(call)


def _action_of(group: Iterable[ToolCall]) -> dict[str, Any]:
    calls = list(group)
    call = calls[0]
    args = call.args
    if _is_selection(call):
        skills = [_skill(each.args["skill"]) for each in calls]
        return {"type": "select_skills", "skills": skills, **_said(reason=args.get("reason"))}
    if call.tool == "skill_read" and _fits(args, ("skill", "path"), ("section_hint",)):
        hint = _said(section_hint=args.get("section_hint"))
        return {"type": "load_resource", "skill": _skill(args["skill"]), "relative_path": args["path"], **hint}
    words = args.get("args", [])
    named = {name: value for name, value in args.items() if name != "args"}
    if call.tool == "skill_run" and _fits(named, ("skill", "script")) and _are_texts(words):
        return {"type": "run_script", "skill": _skill(args["skill"]), "relative_path": args["script"], "args": words}
    return {"type": "call_tool", "tool": call.tool, "args": args}


def _is_selection(call: ToolCall) -> bool:
    return call.tool == "skill_load" and _fits(call.args, ("skill",), ("reason",))


def _fits(args: Mapping[str, Any], required: Sequence[str], optional: Sequence[str] = ()) -> bool:
    """True when there are only these arguments, and each is a non-empty text."""
    names = args.keys()
    return (
        names >= set(required)
        and names <= {*required, *optional}
        and all(isinstance(value, str) and value for value in args.values())
    )


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _skill(ref: str) -> dict[str, str]:
    source, colon, name = ref.partition(":")
    if colon and name and source in typing.get_args(Source) and not name.startswith(f"{source}:"):
        return {"name": name, "source": source}
    return {"name": ref}


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
