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
    met = {
        "always": True,
        "with-skills": has_skills,
        "with-search": has_skills and needs_search,
        "with-executor": has_skills and can_run,
    }
    return tuple(each.name for each in TOOLS.values() if known in each.profiles and met[each.offered])


def slim(spec: ToolSpec, profile: str) -> ToolSpec:
    """Returns the spec for this profile: the same tool with fewer fields and a shorter description. It is made once for
    a spec, because every request needs it."""
    known = _known(profile)
    if known == "full":
        return spec
    made = _SLIM.get((spec.name, known))
    if made is None or made[0] is not spec:
        made = _SLIM[spec.name, known] = (spec, _slim(spec, known))
    return made[1]


_SLIM: dict[tuple[str, Profile], tuple[ToolSpec, ToolSpec]] = {}


def _slim(spec: ToolSpec, known: Profile) -> ToolSpec:
    traits = TOOLS.get(spec.name)
    form = traits.forms.get(known, _UNCHANGED) if traits else _UNCHANGED
    short = traits.short_schemas if traits else {}
    properties: Mapping[str, Any] = spec.parameters.get("properties", {})
    kept: dict[str, Any] = {}
    for name, value in properties.items():
        if not form.fields or name in form.fields:
            kept[name] = short.get(name) or _bare(value)
    parameters: dict[str, Any] = {"type": "object", "properties": kept}
    if required := spec.parameters.get("required"):
        parameters["required"] = required
    return replace(spec, description=form.text or spec.description, parameters=parameters)


_UNCHANGED = ToolForm()


def _bare(node: Any) -> Any:
    """Removes bounds from a schema. A value out of bounds gets an error message when it is sent."""
    if isinstance(node, list):
        return [_bare(item) for item in node]
    if not isinstance(node, Mapping):
        return node
    return {name: _bare(value) for name, value in node.items() if name not in _BOUNDS}


_BOUNDS = ("additionalProperties", "minimum", "maximum", "minItems", "maxItems")


def _known(profile: str) -> Profile:
    for each in PROFILES:
        if each == profile:
            return each
    near = difflib.get_close_matches(profile, PROFILES, n=1)
    meant = f"Did you mean '{near[0]}'? " if near else ""
    raise ConfigError(
        f"There is no tool profile '{profile[:80]}'.",
        code="profile-unknown",
        hint=f"{meant}Use one of {', '.join(PROFILES)}.",
    )
