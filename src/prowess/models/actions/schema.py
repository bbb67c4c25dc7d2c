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

from prowess._internal.json_values import JsonObject, describe_fault, find_invalid, parse_object
from prowess.core.values import Source


class _Read(BaseModel):
    """Base of all actions. Ignores unknown fields, unless one looks like a misspelt field that is missing."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _check_fields(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            _check_spelling(value, cls.model_fields)
        return value


def _check_spelling(data: Mapping[str, Any], fields: Collection[str]) -> None:
    """Refuses an unknown field that looks like a missing one."""
    for name in data:
        if name in fields:
            continue
        written = str(name)[:64]
        for near in difflib.get_close_matches(written, fields, n=1, cutoff=0.8):
            if near not in data:
                raise ValueError(f"there is no field '{name}', did you mean '{near}'?")


def _named(value: Any) -> Any:
    """Takes a text for the name of a skill."""
    return {"name": value} if isinstance(value, str) else value


def _listed(value: Any) -> Any:
    """Takes one item for a list of one."""
    return [value] if isinstance(value, (str, Mapping)) else value


def _word(value: Any) -> Any:
    """Converts a value to a text as a shell would write it."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (int, float)) else value


def _text(value: Any) -> str:
    """Takes the JSON of an answer under a schema for its text."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def _object_of(value: Any) -> Any:
    """Takes the JSON text of an object for the object."""
    if not isinstance(value, str):
        return value
    args = parse_object(value)
    if find_invalid(args) is not None:
        raise ValueError(f"not valid JSON: {describe_fault(value)}")
    return args


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
    args: Annotated[JsonObject, BeforeValidator(_object_of)] = {}


class FinalAnswer(_Read):
    type: Literal["final_answer"] = "final_answer"
    content: Annotated[str, BeforeValidator(_text)]


Action = SelectSkills | LoadResource | RunScript | CallTool | FinalAnswer
ACTIONS: dict[str, type[_Read]] = {kind.model_fields["type"].default: kind for kind in typing.get_args(Action)}
_KINDS = ", ".join(ACTIONS)


class ActionDocument(NamedTuple):
    action: Action
    plan: JsonObject | None = None
    plan_update: JsonObject | None = None


def is_document(data: Any) -> bool:
    """True when the data is meant as a document, valid or not. An action alone counts as a document without a plan."""
    if not isinstance(data, Mapping):
        return False
    return "action" in data or isinstance(data.get("type"), str)


def find_action(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the action of a document, valid or not."""
    action = data.get("action")
    if isinstance(action, dict):
        return action
    return data


def parse_document(data: Any, tools: Collection[str] = ()) -> ActionDocument:
    if not isinstance(data, Mapping):
        raise ValueError("the reply must be one JSON object with the field 'action'")
    if "action" not in data and is_document(data):
        return ActionDocument(_parse_action(data, tools))
    _check_spelling(data, ActionDocument._fields)
    if "action" not in data:
        raise ValueError("the field 'action' is missing")
    plan = _parse_plan(data, "plan")
    update = _parse_plan(data, "plan_update")
    return ActionDocument(_parse_action(data["action"], tools), plan, update)


def _parse_plan(data: Mapping[str, Any], field: str) -> JsonObject | None:
    value = data.get(field)
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ValueError(f"'{field}' must be an object")
    return value or None


def _parse_action(data: Any, tools: Collection[str]) -> Action:
    name = data.get("type") if isinstance(data, Mapping) else None
    if not isinstance(name, str):
        raise ValueError(f"'action' must be an object with a 'type', one of {_KINDS}")
    kind = ACTIONS.get(name)
    if kind is None:
        raise ValueError(_no_action(name[:64], tools))
    try:
        return typing.cast(Action, kind.model_validate(data))
    except ValidationError as error:
        first = error.errors()[:5]
        problems = "; ".join(map(_problem, first))
        raise ValueError(f"action {name}: {problems}") from None


def _no_action(name: str, tools: Collection[str]) -> str:
    meant = ""
    for near in difflib.get_close_matches(name, ACTIONS, n=1):
        meant = f" Did you mean '{near}'?"
    if name in tools:
        meant = f' It is a tool: {{"type": "call_tool", "tool": "{name}", "args": {{…}}}}.'
    return f"there is no action type '{name}'.{meant} There are: {_KINDS}"


def _problem(error: Any) -> str:
    """Renders an error of pydantic for the model."""
    place = ".".join(map(str, error["loc"])) or "action"
    if error["type"] == "missing":
        return f"'{place}' is missing"
    message = error["msg"].removeprefix("Value error, ")
    return f"'{place}': {message}"


# --- the schema ------------------------------------------------------------------------------------------------------

NEEDS = {"select_skills": "skill_load", "load_resource": "skill_read", "run_script": "skill_run"}
PLANNING = "update_plan"
NOT_TOOLS = {NEEDS["select_skills"]: "select_skills", PLANNING: "plan"}  # not for call_tool -> name in a document


def offered_actions(tools: Collection[str]) -> list[str]:
    """Returns the actions that the tools allow."""
    offered = [kind for kind, tool in NEEDS.items() if tool in tools]
    if callable_tools(tools):
        offered.append("call_tool")
    return [*offered, "final_answer"]


def callable_tools(tools: Collection[str]) -> list[str]:
    """Returns the tools for `call_tool`. The others have their own action or field."""
    return [name for name in tools if name not in NOT_TOOLS]


def render_schema(tools: Collection[str], answer: Mapping[str, Any] | None = None) -> JsonObject:
    """Renders the schema for constrained output. `answer` is the schema of the answer itself, if there is one."""
    content = dict(answer or _STRING)
    defs = dict(content.pop("$defs", {}))  # references start at the root, so the definitions move there
    named_tool = {"enum": callable_tools(tools)}
    shapes = dict(_SHAPES)
    shapes["call_tool"] = {"tool": named_tool, "args": _ANY}
    shapes["final_answer"] = {"content": content}
    actions: list[JsonObject] = []
    for kind in offered_actions(tools):
        shape = {"type": {"const": kind}, **shapes[kind]}
        action = _object(shape, "section_hint")
        actions.append(action)
        if kind in NEEDS:
            defs["skill"] = _SKILL
    fields: JsonObject = {"action": {"anyOf": actions}}
    if PLANNING in tools:
        fields = {"plan": _PLAN, "plan_update": _ANY, **fields}
    schema = _object(fields, "plan", "plan_update")
    return {**schema, "$defs": defs} if defs else schema


def _object(fields: Mapping[str, Any], *optional: str) -> JsonObject:
    """Returns the schema of an object that has these fields and no others."""
    required = [name for name in fields if name not in optional]
    return {"type": "object", "properties": fields, "required": required, "additionalProperties": False}


def _list(items: Mapping[str, Any]) -> JsonObject:
    return {"type": "array", "items": items}


_ANY = {"type": "object"}
_STRING = {"type": "string"}
_REF = {"$ref": "#/$defs/skill"}
_SKILL = _object({"name": _STRING, "source": {"enum": list(typing.get_args(Source))}}, "source")
_SHAPES: dict[str, JsonObject] = {
    "select_skills": {"skills": _list(_REF), "reason": _STRING},
    "load_resource": {"skill": _REF, "relative_path": _STRING, "section_hint": _STRING},
    "run_script": {"skill": _REF, "relative_path": _STRING, "args": _list(_STRING)},
}
_STATUS = {"enum": ["pending", "in_progress", "completed"]}
_STEP = _object({"id": _STRING, "title": _STRING, "status": _STATUS})
_LIMITED = {"assumptions": _list(_STRING), "constraints": _ANY}
_PLAN = _object({"goal": _STRING, "steps": _list(_STEP), **_LIMITED}, *_LIMITED)
