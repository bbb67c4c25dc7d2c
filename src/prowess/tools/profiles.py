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
from typing import Any, Literal, get_args

from prowess.core.values import ToolSpec
from prowess.errors import ConfigError

Profile = Literal["default", "lean", "full"]
PROFILES: tuple[Profile, ...] = get_args(Profile)

_RUNNING = ("skill_run", "skill_exec", "skill_write_stdin", "skill_poll_session", "skill_kill_session")
_TOOLS: Mapping[str, tuple[str, ...]] = {
    "lean": ("skill_load", "skill_read", "skill_run", "update_plan"),
    "default": ("skill_load", "skill_list_docs", "skill_select_docs", "skill_read", "skill_run", "update_plan"),
    "full": (
        "skill_load",
        "skill_list_docs",
        "skill_select_docs",
        "skill_read",
        "skill_unload",
        *_RUNNING,
        "update_plan",
        "ask_user",
    ),
}


def advertised(profile: str, *, has_skills: bool, can_run: bool, needs_search: bool) -> tuple[str, ...]:
    """Names of the advertised tools, always in this order. Without skills, only update_plan."""
    names = _TOOLS[_known(profile)]
    if not has_skills:
        return ("update_plan",)
    if not can_run:
        names = tuple(name for name in names if name not in _RUNNING)
    return (*names[:1], "skill_search", *names[1:]) if needs_search else names


def slim(spec: ToolSpec, profile: str) -> ToolSpec:
    """Returns the spec for this profile: the same tool with fewer fields and a shorter description."""
    if _known(profile) == "full":
        return spec
    short = _SHORT.get(spec.name, {})
    fields = _FIELDS[profile].get(spec.name)
    properties: Mapping[str, Any] = spec.parameters.get("properties", {})
    kept = {name: short.get(name) or _bare(value) for name, value in properties.items() if not fields or name in fields}
    parameters: dict[str, Any] = {"type": "object", "properties": kept}
    if required := spec.parameters.get("required"):
        parameters["required"] = required
    return replace(spec, description=_TEXTS.get((profile, spec.name), spec.description), parameters=parameters)


_TEXTS = {
    ("default", "update_plan"): "Keep the plan of a task with several steps.",
    ("lean", "update_plan"): "Keep the plan of a task with several steps.",
    ("lean", "skill_read"): "Read a file of a loaded skill, or a section of it.",
    **dict.fromkeys(
        (("default", "skill_run"), ("lean", "skill_run")),
        "Run a command or script that a loaded skill documents, isolated; results belong in out/.",
    ),
}
_TEXT_LIST = {"type": "array", "items": {"type": "string"}}
_SHORT: Mapping[str, Mapping[str, dict[str, Any]]] = {
    "skill_run": {
        "command": {"type": "string", "description": "for bash -c"},
        "script": {"type": "string", "description": "instead: a file of the skill"},
        "args": _TEXT_LIST,
        "cwd": {"type": "string", "description": "in the skill, or $WORK_DIR"},
        "env": {"type": "object", "additionalProperties": {"type": "string"}},
        "inputs": {
            "type": "array",
            "items": {"type": "object"},
            "description": "{from: workspace://path, artifact://name[@version], skill://name/path or host:///path; "
            "to?: work/path; mode?: copy|link; pin?: bool}",
        },
        "outputs": {
            "type": "object",
            "description": "{globs: [], inline?: bool, save?: bool, name_template?, "
            "max_files?, max_file_bytes?, max_total_bytes?}",
        },
        "output_files": {**_TEXT_LIST, "description": "globs, such as out/*.txt"},
        "timeout": {"type": "number", "description": "seconds"},
    },
}
# Tools that are not listed here keep all fields.
_FIELDS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "default": {
        "skill_run": (
            "skill",
            "command",
            "script",
            "args",
            "cwd",
            "env",
            "inputs",
            "outputs",
            "output_files",
            "timeout",
            "save_as_artifacts",
            "omit_inline_content",
            "artifact_prefix",
        ),
        "skill_search": ("query",),
    },
    "lean": {
        "skill_load": ("skill", "docs"),
        "skill_read": ("skill", "path", "section"),
        "skill_run": ("skill", "command", "script", "args", "output_files"),
        "update_plan": ("plan",),
        "skill_search": ("query",),
    },
}


def _bare(node: Any) -> Any:
    """Removes bounds from a schema. A value out of bounds gets an error message when it is sent."""
    if isinstance(node, list):
        return [_bare(item) for item in node]
    if not isinstance(node, Mapping):
        return node
    return {name: _bare(value) for name, value in node.items() if name not in _BOUNDS}


_BOUNDS = ("additionalProperties", "minimum", "maximum", "minItems", "maxItems")


def _known(profile: str) -> str:
    if profile in PROFILES:
        return profile
    near = difflib.get_close_matches(profile, PROFILES, n=1)
    meant = f"Did you mean '{near[0]}'? " if near else ""
    raise ConfigError(
        f"There is no tool profile '{profile[:80]}'.",
        code="profile-unknown",
        hint=f"{meant}Use one of {', '.join(PROFILES)}.",
    )
