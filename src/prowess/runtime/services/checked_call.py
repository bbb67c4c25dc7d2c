"""Reads a call that a person wrote for `prowess policy check` as the agent would read it.

The tool and its arguments get our names, and the skills that the call is about are found.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple

from prowess.agent.toolkit import Toolkit
from prowess.core.tool_table import CAPABILITIES, NEVER_NARROWED, SESSION_TOOLS, TOOLS
from prowess.core.values import ToolCall, ToolSpec
from prowess.errors import ConfigError, ToolRetry
from prowess.policy.allowed_tools import canonical_tools, describe_unknown
from prowess.runtime.runtime import Runtime
from prowess.skills.skill import Entry

_NAMES_OF_SKILL = frozenset(("skill", "skill_name", "name", "skills"))


class CheckedCall(NamedTuple):
    call: ToolCall
    named: Entry | None  # the skill that the call names
    entries: list[Entry]  # all skills that count as loaded
    notes: list[str]


def read_call(runtime: Runtime, kit: Toolkit, tool: str, args: Mapping[str, Any], skills: Sequence[str]) -> CheckedCall:
    """Returns the call as policy judges it. `skills`: the one that the call names, then other loaded ones."""
    notes: list[str] = []
    is_given = bool(args)
    written = ToolCall(id="check", tool=tool, args=dict(args))
    call = _named_as_ours(kit, written, notes)
    call = _with_skill(runtime, kit, call, skills)
    call = _normalised(kit, call, given=is_given, notes=notes)
    named, entries = _find_skills(runtime, kit, call, skills, notes)
    return CheckedCall(call, named, entries, notes)


def known_tools(kit: Toolkit) -> list[str]:
    """Returns the names of the tools that an agent would have here."""
    specs = kit.calls.tools.specs()
    return [spec.name for spec in specs]


def why_not_loadable(runtime: Runtime, entry: Entry) -> str | None:
    """Returns the reason why no model can load a skill, or None when a model can."""
    seen = runtime.catalog.visibility(entry)
    if seen.model_visible:
        return None
    reasons = "; ".join(seen.reasons)
    return f"No model can load {entry.id} now: {reasons or seen.status}."


def _named_as_ours(kit: Toolkit, call: ToolCall, notes: list[str]) -> ToolCall:
    """Replaces the name of another system by ours. A note says so."""
    if call.tool in CAPABILITIES:
        return call
    routed, word = kit.calls.repair.route(call)
    if word:
        notes.append(word)
    ours, *others = canonical_tools(routed.tool)
    known = known_tools(kit)
    is_known = ours in TOOLS or ours in known or ours.startswith("mcp__")
    if not is_known:
        near = describe_unknown(ours, known=known)
        notes.append(f"No tool of that name is known here: {near}.")
    if ours != routed.tool.casefold():
        also = ""
        if others:
            also = f"; the name also stands for {', '.join(others)}"
        notes.append(f"{routed.tool} is another name for {ours}{also}.")
    return ToolCall(id=call.id, tool=ours, args=routed.args)


# --- its skills -----------------------------------------------------------------------------------------------------


def _with_skill(runtime: Runtime, kit: Toolkit, call: ToolCall, skills: Sequence[str]) -> ToolCall:
    """Adds the first of the skills to a call that names none. A call that names another skill is an error."""
    if not skills or not _takes_skill(kit, call.tool):
        return call
    if not _names_skill(call):
        return replace(call, args={**call.args, "skill": skills[0]})
    said = _read_skill_name(kit, call)
    if not isinstance(said, str):
        return call
    entry = _get_named(runtime, call, said)
    given = [runtime.catalog.get(skill).id for skill in skills]
    if entry.id in given:
        return call
    shown = said[:80]
    problem = f"The call names the skill '{shown}', and --skill does not."
    hint = f"Leave --skill out, or say --skill {shlex.quote(shown)} as well."
    raise ConfigError(problem, code="usage", hint=hint)


def _takes_skill(kit: Toolkit, tool: str) -> bool:
    spec = _find_spec(kit, tool)
    if spec is None:
        return False
    return "skill" in spec.parameters.get("properties", {})


def _find_spec(kit: Toolkit, tool: str) -> ToolSpec | None:
    for spec in kit.calls.tools.specs():
        if spec.name == tool:
            return spec
    return None


def _names_skill(call: ToolCall) -> bool:
    """True when the call names a skill, by any of the names for that argument."""
    said = [call.args.get(name) for name in _NAMES_OF_SKILL]
    return any(value not in (None, "") for value in said)


def _read_skill_name(kit: Toolkit, call: ToolCall) -> object:
    """Returns the argument `skill` of a call that may use other names for its arguments."""
    try:
        return kit.calls.tools.normalise(call).args.get("skill")
    except ToolRetry:  # reported later, when the arguments are checked
        pass
    completed = _completed(kit, call)
    if completed is None:
        return None
    whole, _ = completed
    return whole.args.get("skill")


def _find_skills(
    runtime: Runtime, kit: Toolkit, call: ToolCall, skills: Sequence[str], notes: list[str]
) -> tuple[Entry | None, list[Entry]]:
    """Returns the skill that the call names, and all skills that count as loaded."""
    found: dict[str, Entry] = {}
    said = call.args.get("skill")
    if isinstance(said, str) and said:
        entry = _get_named(runtime, call, said)
        found[entry.id] = entry
    for skill in skills:
        entry = runtime.catalog.get(skill)
        found[entry.id] = entry
    entries = list(found.values())
    for entry in entries:
        reason = why_not_loadable(runtime, entry)
        if reason is not None:
            notes.append(reason)
    names_one = _takes_skill(kit, call.tool) or call.tool in SESSION_TOOLS or call.tool in CAPABILITIES
    if not names_one:
        return None, entries
    if entries:
        return entries[0], entries
    if call.tool not in NEVER_NARROWED:
        notes.append("Such a call names a skill, and none was given (--skill): its source counts as not trusted.")
    return None, entries


def _get_named(runtime: Runtime, call: ToolCall, said: str) -> Entry:
    """Returns the skill that the call names. Only a skill_load can say of which source."""
    source = None
    if call.tool == "skill_load":
        source = call.args.get("source")
    if not isinstance(source, str):
        source = None
    return runtime.catalog.get(said, source=source)


# --- its arguments --------------------------------------------------------------------------------------------------


def _normalised(kit: Toolkit, call: ToolCall, *, given: bool, notes: list[str]) -> ToolCall:
    """Returns the call with our own argument names, as policy gets them."""
    if call.tool in CAPABILITIES:
        return call
    if not given and call.tool not in NEVER_NARROWED:
        notes.append("No arguments were given: what depends on them is decided as the worse case.")
        return call
    if _find_spec(kit, call.tool) is None:
        return call  # switched off, or a caller's tool: its arguments are not known here
    try:
        return kit.calls.tools.normalise(call)
    except ToolRetry as error:
        completed = _completed(kit, call)
        if completed is None:
            notes.append(f"With these arguments it would fail before policy is asked: {error}")
            return call
    call, missing = completed
    unsaid = [name for name in missing if name != "skill"]  # a missing skill has its own note
    if unsaid:
        names = " and ".join(unsaid)
        notes.append(f"A real call also says {names}; what is not said here fits no rule about it.")
    return call


def _completed(kit: Toolkit, call: ToolCall) -> tuple[ToolCall, Sequence[str]] | None:
    """Returns a call that only lacks required arguments, in the form that policy judges, and the names it lacks."""
    for missing in _possibly_missing(kit, call):
        placeholders = dict.fromkeys(missing, "x")
        complete = replace(call, args={**call.args, **placeholders})
        try:
            whole = kit.calls.tools.normalise(complete)
        except ToolRetry:
            continue
        args = {name: value for name, value in whole.args.items() if name not in missing}
        return replace(whole, args=args), missing
    return None


def _possibly_missing(kit: Toolkit, call: ToolCall) -> Iterator[tuple[str, ...]]:
    """Yields combinations of the required arguments that the call does not have, from few to many."""
    spec = _find_spec(kit, call.tool)
    assert spec is not None
    said = set(call.args)
    if _names_skill(call):
        said.add("skill")
    required = spec.parameters.get("required", ())
    unsaid = [name for name in required if name not in said]
    for number in range(1, len(unsaid) + 1):
        yield from combinations(unsaid, number)
