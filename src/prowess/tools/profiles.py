"""Selects the tools and schema fields that a model is told, because they cost tokens in every request.

    default   load, list and select docs, read, run, plan
    lean      load, read, run, plan, with the shortest schemas
    full      all tools with full schemas

Every tool and every argument is accepted, also when the profile does not advertise it.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args

from prowess.core.tool_table import TOOLS, Profile, ToolForm
from prowess.core.values import ToolSpec
from prowess.errors import ConfigError

PROFILES: tuple[Profile, ...] = get_args(Profile)


def advertised(profile: str, *, has_skills: bool, can_run: bool, needs_search: bool) -> tuple[str, ...]:
    """Names of the advertised tools, always in this order. Without skills, only update_plan."""
    known = _known(profile)
    met = {"always": True, "with-skills": has_skills}
    met["with-search"] = has_skills and needs_search
    met["with-executor"] = has_skills and can_run
    names: list[str] = []
    for each in TOOLS.values():
        if known in each.profiles and met[each.offered]:
            names.append(each.name)
    return tuple(names)


def slim(spec: ToolSpec, profile: str) -> ToolSpec:
    """Returns the spec for this profile: the same tool with fewer fields and a shorter description. It is made once for
    a spec, because every request needs it."""
    known = _known(profile)
    if known == "full":
        return spec
    key = (spec.name, known)
    full, short = _SLIM.get(key, (None, spec))
    if full is not spec:
        short = _slim(spec, known)
        _SLIM[key] = (spec, short)
    return short


_SLIM: dict[tuple[str, Profile], tuple[ToolSpec, ToolSpec]] = {}


def _slim(spec: ToolSpec, known: Profile) -> ToolSpec:
    form = _UNCHANGED
    short: Mapping[str, Any] = {}
    traits = TOOLS.get(spec.name)
    if traits is not None:
        form = traits.forms.get(known, _UNCHANGED)
        short = traits.short_schemas
    properties: Mapping[str, Any] = spec.parameters.get("properties", {})
    kept: dict[str, Any] = {}
    for name, value in properties.items():
        if not form.fields or name in form.fields:
            kept[name] = short.get(name) or _bare(value)
    parameters: dict[str, Any] = {"type": "object", "properties": kept}
    required = spec.parameters.get("required")
    if required:
        parameters["required"] = required
    description = form.text or spec.description
    return replace(spec, description=description, parameters=parameters)


_UNCHANGED = ToolForm()


def _bare(node: Any) -> Any:
    """Removes bounds from a schema. A value out of bounds gets an error message when it is sent."""
    if isinstance(node, list):
        return [_bare(item) for item in node]
    if not isinstance(node, Mapping):
        return node
    bare: dict[str, Any] = {}
    for name, value in node.items():
        if name not in _BOUNDS:
            bare[name] = _bare(value)
    return bare


_BOUNDS = ("additionalProperties", "minimum", "maximum", "minItems", "maxItems")


def _known(profile: str) -> Profile:
    for each in PROFILES:
        if each == profile:
            return each
    message = f"There is no tool profile '{profile[:80]}'."
    names = ", ".join(PROFILES)
    hint = f"Use one of {names}."
    near = difflib.get_close_matches(profile, PROFILES, n=1)
    if near:
        hint = f"Did you mean '{near[0]}'? {hint}"
    raise ConfigError(message, code="profile-unknown", hint=hint)
