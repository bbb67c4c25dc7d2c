"""Defines structured actions: one JSON document with the next action and changes of the plan.

    {"plan"?: Plan, "plan_update"?: Patch, "action": {"type": "select_skills" | "load_resource" | …}}

`parse_document` reads small deviations as the model meant them; its ValueError is written for the model.
`render_schema` returns the JSON Schema, kept small, with only the actions that the offered tools allow.
"""

from __future__ import annotations

import difflib
import json
import typing
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from prowess.core.values import Source


class _Read(BaseModel):
    """Base of all actions. Ignores unknown fields, unless one looks like a misspelt field that is missing."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _check_spelling(cls, value: Any) -> Any:
        return _without_misspelt(value, cls.model_fields)


def _without_misspelt(value: Any, fields: Collection[str]) -> Any:
    if isinstance(value, Mapping):
        for name in value:
            if name not in fields:
                near = difflib.get_close_matches(str(name)[:64], fields, n=1, cutoff=0.8)
                if near and near[0] not in value:
                    raise ValueError(f"there is no field '{name}', did you mean '{near[0]}'?")
    return value


def _named(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, (str, Mapping)) else value


def _word(value: Any) -> Any:
    """Converts a value to a text as a shell would write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (int, float)) else value


def _text(value: Any) -> Any:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class SkillName(_Read):
    name: str = Field(min_length=1)
    source: Annotated[Source | None, BeforeValidator(lambda value: value or None)] = None

    @property
    def ref(self) -> str:
        """Reference that the tools take: the name, or the id when the source is given."""
        if self.source is None or self.name.startswith(f"{self.source}:"):
            return self.name
        return f"{self.source}:{self.name}"


_Skill = Annotated[SkillName, BeforeValidator(_named)]


class SelectSkills(_Read):
    type: Literal["select_skills"] = "select_skills"
    skills: Annotated[list[_Skill], BeforeValidator(_listed)] = Field(min_length=1)
    reason: str | None = None


class LoadResource(_Read):
    type: Literal["load_resource"] = "load_resource"
    skill: _Skill
    relative_path: str = Field(min_length=1)
    section_hint: str | None = None


class RunScript(_Read):
    type: Literal["run_script"] = "run_script"
    skill: _Skill
    relative_path: str = Field(min_length=1)
    args: Annotated[list[Annotated[str, BeforeValidator(_word)]], BeforeValidator(_listed)] = []


class CallTool(_Read):
    type: Literal["call_tool"] = "call_tool"
    tool: str = Field(min_length=1)
    args: dict[str, Any] = {}


class FinalAnswer(_Read):
    type: Literal["final_answer"] = "final_answer"
    content: Annotated[str, BeforeValidator(_text)]


Action = SelectSkills | LoadResource | RunScript | CallTool | FinalAnswer
ACTIONS: dict[str, type[_Read]] = {kind.model_fields["type"].default: kind for kind in typing.get_args(Action)}
_DOCUMENT = ("plan", "plan_update", "action")


class ActionDocument(NamedTuple):
    action: Action
    plan: dict[str, Any] | None = None
    plan_update: dict[str, Any] | None = None


def is_document(data: Any) -> bool:
    """True when the data is meant as a document, valid or not. An action alone counts as a document without a plan."""
    return isinstance(data, Mapping) and ("action" in data or isinstance(data.get("type"), str))


def parse_document(data: Any, tools: Collection[str] = ()) -> ActionDocument:
    if not isinstance(data, Mapping):
        raise ValueError("the reply must be one JSON object with the field 'action'")
    if "action" not in data and isinstance(data.get("type"), str):
        return ActionDocument(_parse_action(data, tools))
    _without_misspelt(data, _DOCUMENT)
    if "action" not in data:
        raise ValueError("the field 'action' is missing")
    plans: list[dict[str, Any] | None] = []
    for name in ("plan", "plan_update"):
        value = data.get(name)
        if value is not None and not isinstance(value, dict):
            raise ValueError(f"'{name}' must be an object")
        plans.append(value or None)
    return ActionDocument(_parse_action(data["action"], tools), *plans)


def _parse_action(data: Any, tools: Collection[str]) -> Action:
    kinds = ", ".join(ACTIONS)
    if not isinstance(data, Mapping) or not isinstance(data.get("type"), str):
        raise ValueError(f"'action' must be an object with a 'type', one of {kinds}")
    kind = ACTIONS.get(data["type"])
    if kind is None:
        name = data["type"][:64]
        near = difflib.get_close_matches(name, ACTIONS, n=1)
        meant = f" Did you mean '{near[0]}'?" if near else ""
        if name in tools:
            meant = f' It is a tool: {{"type": "call_tool", "tool": "{name}", "args": {{…}}}}.'
        raise ValueError(f"there is no action type '{name}'.{meant} There are: {kinds}")
    try:
        return typing.cast(Action, kind.model_validate(data))
    except ValidationError as error:
        problems = "; ".join(_problem(each) for each in error.errors()[:5])
        raise ValueError(f"action {data['type']}: {problems}") from None


def _problem(error: Any) -> str:
    place = ".".join(map(str, error["loc"])) or "action"
    return f"'{place}' is missing" if error["type"] == "missing" else f"'{place}': {_without_prefix(error['msg'])}"


def _without_prefix(message: str) -> str:
    return message.removeprefix("Value error, ")


# --- the schema ------------------------------------------------------------------------------------------------------

_STRING: dict[str, Any] = {"type": "string"}
NEEDS = {"select_skills": "skill_load", "load_resource": "skill_read", "run_script": "skill_run"}
PLANNING = "update_plan"
NOT_TOOLS = {NEEDS["select_skills"]: "select_skills", PLANNING: "plan"}  # not for call_tool -> name in a document


def _object(fields: Mapping[str, Any], *optional: str) -> dict[str, Any]:
    required = [name for name in fields if name not in optional]
    return {"type": "object", "properties": dict(fields), "required": required, "additionalProperties": False}


def _action(kind: str, fields: Mapping[str, Any], *optional: str) -> dict[str, Any]:
    return _object({"type": {"const": kind}, **fields}, *optional)


def _list(items: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def offered_actions(tools: Collection[str]) -> list[str]:
    """Returns the actions that the tools allow."""
    by_name = bool(callable_tools(tools))
    return [kind for kind in ACTIONS if NEEDS.get(kind) in {None, *tools} and (kind != "call_tool" or by_name)]


def callable_tools(tools: Collection[str]) -> list[str]:
    """Returns the tools for `call_tool`. The others have their own action or field."""
    return [name for name in tools if name not in NOT_TOOLS]


def constraints(tools: Collection[str]) -> list[str]:
    """Returns the limits that a plan can tighten here."""
    return ["max_turns", "max_tool_calls", *(["max_script_runs"] if NEEDS["run_script"] in tools else [])]


def render_schema(tools: Collection[str], answer: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Renders the schema for constrained output. `answer` is the schema of the answer itself, if there is one."""
    answer = dict(answer or _STRING)
    defs: dict[str, Any] = answer.pop("$defs", {})  # references start at the root, so the definitions move there
    skill = _object({"name": _STRING, "source": {"enum": list(typing.get_args(Source))}}, "source")
    ref = {"$ref": "#/$defs/skill"}
    actions = {
        "select_skills": _action("select_skills", {"skills": _list(ref), "reason": _STRING}),
        "load_resource": _action(
            "load_resource", {"skill": ref, "relative_path": _STRING, "section_hint": _STRING}, "section_hint"
        ),
        "run_script": _action("run_script", {"skill": ref, "relative_path": _STRING, "args": _list(_STRING)}),
        "call_tool": _action("call_tool", {"tool": {"enum": callable_tools(tools)}, "args": {"type": "object"}}),
        "final_answer": _action("final_answer", {"content": answer}),
    }
    offered = offered_actions(tools)
    fields: dict[str, Any] = {"action": {"anyOf": [actions[kind] for kind in offered]}}
    if PLANNING in tools:
        status = {"enum": ["pending", "in_progress", "completed"]}
        step = _object({"id": _STRING, "title": _STRING, "status": status})
        more = {"assumptions": _list(_STRING), "constraints": {"type": "object"}}
        plan = _object({"goal": _STRING, "steps": _list(step), **more}, *more)
        fields = {"plan": plan, "plan_update": {"type": "object"}} | fields
    schema = _object(fields, "plan", "plan_update")
    if NEEDS.keys() & set(offered):
        defs = {**defs, "skill": skill}
    return {**schema, "$defs": defs} if defs else schema
