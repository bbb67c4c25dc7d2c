"""Renders the JSON Schema of a tool's arguments, and parses the arguments that a model sends.

Parsing is tolerant: a text instead of a list with one item, a number as text, and the argument names of other systems
are accepted. If parsing fails, the error lists every wrong field, and the valid ones if that helps.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, ClassVar, Self, TypeVar
from weakref import WeakKeyDictionary

from pydantic import BaseModel, ConfigDict, ValidationError

from prowess.tools.base import InvalidCall
from prowess.tools.plain_arguments import NormalArguments

T = TypeVar("T", bound="Arguments")


class Arguments(BaseModel):
    """Arguments of one tool. `ALIASES` maps names of other systems to ours."""

    # defer_build: a validator takes milliseconds, and most runs use few tools
    model_config = ConfigDict(
        extra="forbid", frozen=True, populate_by_name=True, str_max_length=4 << 20, defer_build=True
    )
    ALIASES: ClassVar[Mapping[str, str]] = {}

    def normal(self) -> dict[str, Any]:
        """Arguments as they are recorded and judged: under our names, without defaults."""
        return NormalArguments(self.plain(), self)

    def plain(self) -> dict[str, Any]:
        """The normal form as JSON values."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude_none=True)

    @classmethod
    def parse(cls, given: Mapping[str, Any], tool: str) -> Self:
        """`parse_arguments`, for modules that are imported before this one is needed."""
        return parse_arguments(cls, given, tool)


def parse_arguments(kind: type[T], given: Mapping[str, Any], tool: str) -> T:
    if isinstance(given, NormalArguments) and type(given.parsed) is kind:
        return given.parsed
    ours = by_our_names(kind, given)
    try:
        return kind.model_validate(ours)
    except ValidationError as error:
        first = error.errors()[:5]
        problems = "; ".join(_problem(kind, each) for each in first)
        names = _names(kind) if any(_lacks_name(kind, each) for each in first) else ()
        raise InvalidCall(f"{tool}: {problems}.", "Its arguments", names) from error


def by_our_names(kind: type[Arguments], given: Mapping[str, Any]) -> dict[str, Any]:
    """Renames aliases to our names, except where our own name is given as well."""
    aliases = kind.ALIASES
    ours: dict[str, Any] = {}
    for name, value in given.items():
        own = aliases.get(name, name)
        if own == name or own not in given:
            ours[own] = value
    return ours


def render_schema(kind: type[Arguments]) -> dict[str, Any]:
    """Returns the smallest JSON Schema: no titles, no references, no null beside a type. All callers share it."""
    if kind not in _RENDERED:  # cached: it takes milliseconds, and every session needs it
        schema = kind.model_json_schema(by_alias=True)
        defs = schema.get("$defs", {})
        _RENDERED[kind] = _plain(schema, defs)
    return _RENDERED[kind]


_RENDERED: WeakKeyDictionary[type[Arguments], dict[str, Any]] = WeakKeyDictionary()  # functions bring their own classes


def _plain(node: Any, defs: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_plain(item, defs) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        _, _, name = node["$ref"].rpartition("/")
        node = _replaced(node, "$ref", defs[name])
    choices = [choice for choice in node.get("anyOf", ()) if choice.get("type") != "null"]
    if len(choices) == 1:
        only = _replaced(node, "anyOf", choices[0])
        return _plain(only, defs)
    kept: dict[str, Any] = {}
    for key, value in node.items():
        if key not in _ORNAMENTS and key != "properties":
            kept[key] = _plain(value, defs)
    if "properties" in node:  # separately, because a property may be called `title`
        kept.pop("description", None)
        properties = node["properties"]
        kept["properties"] = {name: _plain(value, defs) for name, value in properties.items()}
    return kept


def _replaced(node: Mapping[str, Any], key: str, target: Mapping[str, Any]) -> dict[str, Any]:
    """Puts the target in the place of a key. Other keys of the node win over those of the target."""
    others = dict(node)
    del others[key]
    return {**target, **others}


_ORNAMENTS = ("title", "default", "minLength", "maxLength", "propertyNames", "$defs")


def _problem(kind: type[Arguments], error: Any) -> str:
    """Renders one error of pydantic for the model."""
    path = [str(part) for part in error["loc"]]
    place = ".".join(path)
    if error["type"] == "missing":
        return f"'{place}' is required"
    if error["type"] == "extra_forbidden":
        near = _near(kind, path[-1])
        if near:
            return f"there is no '{place}' (did you mean '{near}'?)"
        return f"there is no '{place}'"
    reason = str(error["msg"]).removeprefix("Value error, ")
    return f"'{place}': {reason}" if path else reason


def _lacks_name(kind: type[Arguments], error: Any) -> bool:
    """True if the names of all arguments help: one is missing, or is not there and near to none."""
    if error["type"] == "extra_forbidden":
        return not _near(kind, str(error["loc"][-1]))
    return error["type"] == "missing"


def _near(kind: type[Arguments], name: str) -> str:
    """Argument of nearly this name; "" if there is none."""
    near = difflib.get_close_matches(name, _names(kind), n=1)
    return near[0] if near else ""


def _names(kind: type[Arguments]) -> list[str]:
    """Names of the fields, as a model sends them."""
    fields = kind.model_fields
    return [field.alias or name for name, field in fields.items()]
