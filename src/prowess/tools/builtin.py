"""Lists all built-in tools, always in the same order, and selects those that a model is told, because tools and schema
fields cost tokens in every request. A tool is imported and made when it is first called.

    default   load, list and select docs, read, run, read and write files
    lean      load, read, run, with the shortest schemas
    full      all tools with full schemas

Every tool and every argument is accepted, also when the profile does not advertise it; `tools.enable` adds tools to it.
"""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from prowess.core.ports import Asker
from prowess.core.tool_table import SWITCHED_TOOLS, TOOLS, Profile, ToolForm
from prowess.core.values import Plan, ToolSpec
from prowess.errors import ConfigError
from prowess.tools.toolset import Tools, no_tool

if TYPE_CHECKING:
    from prowess.tools.base import Tool
    from prowess.tools.files.read import Activate
    from prowess.tools.run.programs import Programs
    from prowess.tools.session_work import SessionWork
    from prowess.tools.skills.loaded import LoadedSkills


class ToolMaker(NamedTuple):
    """Name of a tool, its class as `module:class`, and the function that makes it from its class."""

    name: str
    place: str
    make: Callable[[Any], Tool] = lambda kind: kind()

    @property
    def kind(self) -> Any:
        """The class of the tool, imported now: most runs use few tools, and schemas take long to make."""
        module, _, name = self.place.partition(":")
        return getattr(import_module(f"prowess.tools.{module}"), name)


def late_spec(name: str, description: str, kind: str, fields: Sequence[str] = ()) -> Any:
    """Spec of a tool that is made when it is first read: making a schema takes longer than most calls. `kind` is the
    name of a class in `tools.arguments`, `fields` are those of its fields that a model is told."""
    return _LateSpec(name, description, kind, fields)


class _LateSpec:
    def __init__(self, name: str, description: str, kind: str, fields: Sequence[str]) -> None:
        self._name = name
        self._description = description
        self._kind = kind
        self._fields = fields

    def __get__(self, tool: object, owner: type) -> ToolSpec:
        return self._spec

    @cached_property
    def _spec(self) -> ToolSpec:
        arguments = import_module("prowess.tools.arguments")
        kind = getattr(arguments, self._kind)
        parameters = arguments.advertise(kind, *self._fields)
        return ToolSpec(name=self._name, description=self._description, parameters=parameters)


class BuiltinTools(Tools):
    """Toolset that imports and makes a tool when it is first called. A tool with a switch is there only if it is
    enabled."""

    def __init__(self, makers: Sequence[ToolMaker], enabled: Collection[str]) -> None:
        super().__init__()
        self._makers: dict[str, ToolMaker] = {}
        for maker in makers:
            if maker.name not in SWITCHED_TOOLS or maker.name in enabled:
                self._makers[maker.name] = maker

    def names(self) -> Sequence[str]:
        """Names of the tools. Unlike `specs`, they need no import."""
        return list(self._makers)

    def specs(self) -> Sequence[ToolSpec]:
        return [maker.kind.spec for maker in self._makers.values()]

    def _get(self, name: str) -> Tool:
        tool = self._tools.get(name)
        if tool is not None:
            return tool
        maker = self._makers.get(name)
        if maker is None:
            raise no_tool(name, self._makers)
        tool = maker.make(maker.kind)
        self._tools[name] = tool
        return tool


def make_programs() -> Programs:
    from prowess.tools.run.programs import Programs

    return Programs()


def make_tools(
    work: SessionWork,
    shelf: LoadedSkills,
    programs: Callable[[], Programs],
    *,
    get_plan: Callable[[], Plan | None],
    put_plan: Callable[[Plan], Awaitable[None]],
    plan_limits: Callable[[], Mapping[str, int]],
    asker: Asker | None,
    enabled: Collection[str],
    activate: Activate,
    skill_at: Callable[[str], str | None],
) -> BuiltinTools:
    """Returns the built-in tools. An enabled tool is not yet allowed: policy decides every call."""
    makers = [
        ToolMaker("skill_load", "skills.load:SkillLoad", lambda kind: kind(shelf)),
        ToolMaker("skill_list_docs", "skills.docs:SkillListDocs", lambda kind: kind(shelf)),
        ToolMaker("skill_select_docs", "skills.docs:SkillSelectDocs", lambda kind: kind(shelf)),
        ToolMaker("skill_read", "skills.read:SkillRead", lambda kind: kind(shelf)),
        ToolMaker("skill_run", "run.skill_run:SkillRun", lambda kind: kind(work)),
        ToolMaker("skill_exec", "run.terminals:SkillExec", lambda kind: kind(work, programs())),
        ToolMaker("skill_write_stdin", "run.terminals:SkillWriteStdin", lambda kind: kind(programs())),
        ToolMaker("skill_poll_session", "run.terminals:SkillPollSession", lambda kind: kind(programs())),
        ToolMaker("skill_kill_session", "run.terminals:SkillKillSession", lambda kind: kind(programs())),
        ToolMaker("skill_unload", "skills.unload:SkillUnload", lambda kind: kind(shelf)),
        ToolMaker("skill_search", "skills.search:SkillSearch", lambda kind: kind(shelf)),
        ToolMaker("update_plan", "plan:UpdatePlan", lambda kind: kind(get_plan, put_plan, limits=plan_limits)),
        ToolMaker("ask_user", "ask_user:AskUser", lambda kind: kind(asker)),
        ToolMaker("read_file", "files.read:ReadFile", lambda kind: kind(work, activate=activate, skill_at=skill_at)),
        ToolMaker("list_dir", "files.list:ListDir", lambda kind: kind(work)),
        ToolMaker("grep", "files.grep:Grep", lambda kind: kind(work)),
        ToolMaker("write_file", "files.write:WriteFile", lambda kind: kind(work)),
        ToolMaker("delete_file", "files.write:DeleteFile", lambda kind: kind(work)),
        ToolMaker("network_request", "network_request:NetworkRequest"),
    ]
    return BuiltinTools(makers, enabled)


# --- profiles ---------------------------------------------------------------------------------------------------------

PROFILES: tuple[Profile, ...] = get_args(Profile)


def advertised(
    profile: str, *, has_skills: bool, can_run: bool, needs_search: bool, enabled: Collection[str] = ()
) -> tuple[str, ...]:
    """Names of the advertised tools, always in this order. Tools in `enabled` are advertised in every profile."""
    known = _known(profile)
    met = {"always": True, "with-skills": has_skills}
    met["with-search"] = has_skills and needs_search
    met["with-executor"] = has_skills and can_run
    names: list[str] = []
    for each in TOOLS.values():
        is_in_profile = known in each.profiles and met[each.offered]
        is_enabled = each.name in enabled and (can_run or each.offered != "with-executor")
        if is_in_profile or is_enabled:
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
