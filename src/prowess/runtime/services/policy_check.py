"""Explains the policy decision about a call without making it.

The decision comes from the same function, files and settings as when an agent makes the call.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from prowess._internal.urls import NotAHost, parse_url_target
from prowess.agent.approvals import approval_keys
from prowess.agent.call_policy import is_asked_each_time
from prowess.agent.toolkit import Toolkit
from prowess.core.codec import to_json
from prowess.core.isolation import record_isolation
from prowess.core.tool_table import (
    CAPABILITIES,
    COMMAND_TOOLS,
    NEVER_NARROWED,
    RISKS,
    SESSION_TOOLS,
    STEERING_TOOLS,
    TOOLS,
    URL_ARGUMENTS,
    find_risk,
)
from prowess.core.values import Decision, Isolation, ToolCall
from prowess.errors import ConfigError, ProwessError, SkillError, ToolRetry
from prowess.policy.allowed_tools import (
    AllowedTools,
    allows,
    canonical_tools,
    describe_unknown,
    parse_allowed,
)
from prowess.policy.approvals import UserApprovals
from prowess.policy.commands.rules import FindProgram
from prowess.policy.decision import (
    Explained,
    Explanation,
    PolicyQuery,
    decide,
    explain,
    is_isolated,
    stricter,
)
from prowess.policy.rules import Rules, unlocated
from prowess.runtime.factories import make_executor, preview_kit
from prowess.runtime.policy_files import find_surroundings, load_rules, unknown_tools
from prowess.runtime.runtime import Runtime
from prowess.skills.skill import Entry, Skill
from prowess.tools.files.read import ReadFile
from prowess.workspace.network.host_rules import denial_reason, find_rule, parse_rules
from prowess.workspace.process.posix_client import open_processes

_NAMES_OF_SKILL = frozenset(("skill", "skill_name", "name", "skills"))
_RUNS = (*STEERING_TOOLS, *sorted(CAPABILITIES))  # tools for which isolation matters


async def check_call(
    runtime: Runtime, tool: str, args: Mapping[str, Any], skills: Sequence[str], *, isolation: bool = False
) -> dict[str, Any]:
    """Returns the document of `prowess policy check`. `skills`: the one that the call names, then other loaded ones."""
    kit, notes = preview_kit(runtime), []
    call = _named_as_ours(kit, ToolCall(id="check", tool=tool, args=dict(args)), notes)
    call = _with_skill(runtime, kit, call, skills)
    call = _normalised(kit, call, given=bool(args), notes=notes)
    named, entries = _find_skills(runtime, kit, call, skills, notes)
    if named is None:
        _take_up(runtime, kit, entries)
        touched = kit.calls.policy.find_touched(call)
        about: dict[str, Any] = {"touches": tuple((each.id, each.source) for each in touched)}
    else:
        about = {"skill": named.id, "source": named.source, "trusted": named.trusted}
    kind = "capability" if call.tool in CAPABILITIES else "call"
    request = PolicyQuery(tool=call.tool, args=call.args, kind=kind, **about)
    held, find_program, error = await _isolation(runtime) if isolation or call.tool in _RUNS else _NOT_ASKED
    granted, standing = _approvals(runtime, named, approval_keys(call.tool, isolated=is_isolated(held)))
    around = replace(find_surroundings(runtime.config), isolation=held, grants=granted, find_program=find_program)
    rules = load_rules(runtime)
    known = [spec.name for spec in kit.calls.tools.specs()]
    lists = {
        entry.id: parse_allowed(declared, known=known)
        for entry in entries
        if (declared := entry.controls.allowed_tools) is not None
    }
    notes += [
        *(f"{each.problem.message} {each.problem.hint}" for each in rules if each.problem),
        *unknown_tools(rules, known),
    ]
    found = explain(request, around, lists=lists, rules=rules)
    url = call.args.get(URL_ARGUMENTS.get(call.tool, ""))
    if url is not None and found.decision.verdict != "deny":
        notes += _unreachable(url, found.decision.limits.get("hosts", ()))
    loads = _find_load(runtime, kit, call)
    loading = None if loads is None else decide(loads, around, rules=rules)
    effective, because = found.decision.verdict, None
    if effective == "ask" and standing is not None and not is_asked_each_time(request, around, rules):
        because = f"Nobody would be asked, because it was approved for this content: {standing}."
        effective = "allow"
    if loads is not None and loading is not None and effective != "deny":
        text = f"Reading that file is loading {loads.skill}, which is decided about as well: {loading.verdict}."
        notes.append(f"{text} {loading.why}")
        if stricter(found.decision, loading) is loading:
            effective, because = loading.verdict, notes.pop()
    needed = runtime.catalog.find(loads.skill) if loads is not None and loads.skill else named
    if needed is not None and (hidden := _hidden(runtime, needed)):
        effective, because = "deny", hidden  # a skill that cannot be loaded cannot be called
    if error is not None and call.tool in _RUNS:
        effective, because = "deny", f"Nothing can run here, whatever policy says: {error['message']}"
    if because is not None:
        notes = [because, *(note for note in notes if note != because)]
    rule = found.decided.rule
    return {
        "schema": "prowess.policy-check/1",
        "tool": call.tool,
        "called": tool,
        "kind": kind,
        "args": to_json(request.args),
        "skill": None if named is None else _skill_row(runtime, named),
        "risk": find_risk(call.tool),
        "verdict": found.decision.verdict,
        "effective": effective,
        "rule": found.decision.rule,
        "why": found.decision.why,
        "place": None if rule is None else {"path": rule.path, "line": rule.line, "number": rule.number},
        "steps": [_step(runtime, each, found, request, lists, rules) for each in found.said],
        "loads": None if loads is None or loading is None else _load_row(loads, loading),
        "limits": to_json(found.decision.limits),
        "isolation": None if held is None else record_isolation(held),
        "isolation_error": error,
        "change": _how_to_change(runtime, found, request, named),
        "notes": notes,
    }


def _named_as_ours(kit: Toolkit, call: ToolCall, notes: list[str]) -> ToolCall:
    if call.tool in CAPABILITIES:
        return call
    routed, word = kit.calls.repair.route(call)
    if word:
        notes.append(word)
    ours = canonical_tools(routed.tool)
    known = [spec.name for spec in kit.calls.tools.specs()]
    if ours[0] not in (*TOOLS, *known) and not ours[0].startswith("mcp__"):
        near = describe_unknown(ours[0], known=known)
        notes.append(f"No tool of that name is known here: {near}.")
    if ours[0] != routed.tool.casefold():
        others = f"; the name also stands for {', '.join(ours[1:])}" if ours[1:] else ""
        notes.append(f"{routed.tool} is another name for {ours[0]}{others}.")
    return ToolCall(id=call.id, tool=ours[0], args=routed.args)


def _takes_skill(kit: Toolkit, tool: str) -> bool:
    spec = next((spec for spec in kit.calls.tools.specs() if spec.name == tool), None)
    return spec is not None and "skill" in spec.parameters.get("properties", {})


def _find_skills(
    runtime: Runtime, kit: Toolkit, call: ToolCall, skills: Sequence[str], notes: list[str]
) -> tuple[Entry | None, list[Entry]]:
    """Returns the skill that the call names, and all skills that count as loaded."""
    said = call.args.get("skill")
    first = [_get_named(runtime, call, said)] if isinstance(said, str) and said else []
    entries = list({entry.id: entry for entry in (*first, *map(runtime.catalog.get, skills))}.values())
    notes += [hidden for entry in entries if (hidden := _hidden(runtime, entry))]
    names_one = _takes_skill(kit, call.tool) or call.tool in (*SESSION_TOOLS, *CAPABILITIES)
    if not names_one:
        return None, entries
    if not entries and call.tool not in NEVER_NARROWED:
        notes.append("Such a call names a skill, and none was given (--skill): its source counts as not trusted.")
    return (entries[0] if entries else None), entries


def _with_skill(runtime: Runtime, kit: Toolkit, call: ToolCall, skills: Sequence[str]) -> ToolCall:
    """Adds the first of the skills to a call that names none. A call that names another skill is an error."""
    if not skills or not _takes_skill(kit, call.tool):
        return call
    if not _names_skill(call):
        return replace(call, args={**call.args, "skill": skills[0]})
    try:
        said = kit.calls.tools.normalise(call).args.get("skill")
    except ToolRetry:  # reported later, when the arguments are checked
        completed = _completed(kit, call)
        said = None if completed is None else completed[0].args.get("skill")
    if isinstance(said, str) and _get_named(runtime, call, said).id not in [runtime.catalog.get(s).id for s in skills]:
        raise ConfigError(
            f"The call names the skill '{said[:80]}', and --skill does not.",
            code="usage",
            hint=f"Leave --skill out, or say --skill {shlex.quote(said[:80])} as well.",
        )
    return call


def _names_skill(call: ToolCall) -> bool:
    return any(call.args.get(name) not in (None, "") for name in _NAMES_OF_SKILL)


def _get_named(runtime: Runtime, call: ToolCall, said: str) -> Entry:
    source = call.args.get("source") if call.tool == "skill_load" else None
    return runtime.catalog.get(said, source=source if isinstance(source, str) else None)


def _hidden(runtime: Runtime, entry: Entry) -> str | None:
    seen = runtime.catalog.visibility(entry)
    if seen.model_visible:
        return None
    return f"No model can load {entry.id} now: {'; '.join(seen.reasons) or seen.status}."


def _find_load(runtime: Runtime, kit: Toolkit, call: ToolCall) -> PolicyQuery | None:
    """Returns the query of a skill_load, when the call reads a SKILL.md: reading it loads the skill."""
    if call.tool != "read_file" or not isinstance(path := call.args.get("file_name"), str):
        return None
    at = {entry.location: entry.id for entry in runtime.catalog}
    ref = ReadFile(kit.work, skill_at=at.get).find_skill(path)
    entry = None if ref is None else runtime.catalog.find(ref)
    if ref is None or entry is None:
        return None
    args = kit.calls.tools.normalise(ToolCall(id="load", tool="skill_load", args={"skill": ref})).args
    return PolicyQuery(tool="skill_load", args=args, skill=entry.id, source=entry.source, trusted=entry.trusted)


def _load_row(loads: PolicyQuery, loading: Decision) -> dict[str, Any]:
    return {"skill": loads.skill, "verdict": loading.verdict, "rule": loading.rule, "why": loading.why}


def _normalised(kit: Toolkit, call: ToolCall, *, given: bool, notes: list[str]) -> ToolCall:
    """Returns the call with our own argument names, as policy gets them."""
    if call.tool in CAPABILITIES:
        return call
    if not given and call.tool not in NEVER_NARROWED:
        notes.append("No arguments were given: what depends on them is decided as the worse case.")
        return call
    if not any(spec.name == call.tool for spec in kit.calls.tools.specs()):
        return call  # switched off, or a caller's tool: its arguments are not known here
    try:
        return kit.calls.tools.normalise(call)
    except ToolRetry as error:
        completed = _completed(kit, call)
        if completed is None:
            notes.append(f"With these arguments it would fail before policy is asked: {error}")
            return call
        call, missing = completed
        if unsaid := [name for name in missing if name != "skill"]:  # a missing skill has its own note
            notes.append(f"A real call also says {' and '.join(unsaid)}; what is not said here fits no rule about it.")
        return call


def _completed(kit: Toolkit, call: ToolCall) -> tuple[ToolCall, Sequence[str]] | None:
    """Returns a call that only lacks required arguments, in the form that policy judges, and the names it lacks."""
    (spec,) = [spec for spec in kit.calls.tools.specs() if spec.name == call.tool]
    said = {*call.args, *(("skill",) if _names_skill(call) else ())}
    required = [name for name in spec.parameters.get("required", ()) if name not in said]
    for missing in (names for number in range(1, len(required) + 1) for names in combinations(required, number)):
        try:
            whole = kit.calls.tools.normalise(replace(call, args={**call.args, **dict.fromkeys(missing, "x")}))
        except ToolRetry:
            continue
        return replace(whole, args={name: whole.args[name] for name in whole.args if name not in missing}), missing
    return None


def _unreachable(url: Any, hosts: Sequence[str]) -> list[str]:
    """Returns notes for a URL that policy allows but the listed hosts do not."""
    try:
        target = parse_url_target(str(url))
    except NotAHost as error:
        return [f"It would be refused all the same: the URL names no host for certain ({error}). Write https://…"]
    try:
        listed = parse_rules(hosts)
    except ConfigError as error:
        return [f"It would be refused all the same: {error}"]
    if find_rule(listed, target) is not None:
        return []
    return [f"It would be refused all the same: {denial_reason(listed, target)} (workspace.network_allow)."]


_NOT_ASKED = (None, unlocated, None)


async def _isolation(runtime: Runtime) -> tuple[Isolation | None, FindProgram, dict[str, Any] | None]:
    """Asks the executor for its isolation and its programs, as before every command."""
    try:
        async with open_processes() as processes:
            executor = make_executor(runtime.config, runtime.places, processes, runtime.environ)
            try:
                return await executor.isolation(), await executor.programs(), None
            finally:
                await executor.aclose()
    except ProwessError as error:
        return None, unlocated, error.to_json()


def _approvals(runtime: Runtime, named: Entry | None, keys: Sequence[str]) -> tuple[frozenset[str], str | None]:
    """Returns the skills whose lists may grant, and the person who approved such a call for this content."""
    if named is None:
        return frozenset(), None
    approvals, skill = UserApprovals(runtime.places.state_dir, by=""), _find_content(runtime, named)
    if skill is None:  # no content, so nothing was approved
        return frozenset(), None
    given = next((found for key in keys if (found := approvals.find(skill, key)) is not None), None)
    return frozenset([named.id] if approvals.grants(skill) else []), None if given is None else given.by


def _take_up(runtime: Runtime, kit: Toolkit, entries: Sequence[Entry]) -> None:
    """Marks skills as loaded, so that a file tool can reach their files."""
    for entry in entries:
        if (skill := _find_content(runtime, entry)) is not None:
            kit.work.adopt(kit.work.restore(skill), in_use=True)


def _find_content(runtime: Runtime, entry: Entry) -> Skill | None:
    try:
        return runtime.load_entry(entry)
    except SkillError:  # it cannot be loaded
        return None


def _skill_row(runtime: Runtime, entry: Entry) -> dict[str, Any]:
    status = runtime.catalog.visibility(entry).status
    return {"id": entry.id, "source": entry.source, "trusted": entry.trusted, "status": status}


# --- the steps of the decision --------------------------------------------------------------------------------------


def _step(
    runtime: Runtime,
    said: Explanation,
    found: Explained,
    request: PolicyQuery,
    lists: Mapping[str, AllowedTools],
    rules: Sequence[Rules],
) -> dict[str, Any]:
    decision = said.decision
    return {
        "by": said.by,
        "path": said.path or None,
        "tightens": said.tightens,
        "verdict": None if decision is None else decision.verdict,
        "rule": None if decision is None else decision.rule,
        "why": None if decision is None else decision.why,
        "looked_at": _looked_at(runtime, said, request, lists, rules),
        "decided": said is found.decided,
    }


def _looked_at(
    runtime: Runtime, said: Explanation, request: PolicyQuery, lists: Mapping[str, AllowedTools], rules: Sequence[Rules]
) -> list[str]:
    if said.by == "configuration":
        return [_setting(runtime, name) for name in _settings_for(request)]
    if said.by == "require_approval_for":
        return [_setting(runtime, "execution.require_approval_for")]
    if said.by == "allowed-tools":
        return _lists_said(request, lists)
    if said.by == "policy":
        of = next(each for each in rules if each.path == said.path)
        if of.problem is not None:
            return ["it is broken, so that nothing in it is in force"]
        number = len(of.rules)
        fits = f"{number} {'rule' if number == 1 else 'rules'}, of which {'one' if said.rule else 'none'} fits"
        return [fits, *said.missed]
    return list(said.missed)


def _settings_for(request: PolicyQuery) -> list[str]:
    names = ["tools.enable"] if find_risk(request.tool) == "high" else []
    if request.tool in COMMAND_TOOLS or request.kind == "capability":
        names.append("workspace.require_isolation")
    if request.tool in COMMAND_TOOLS:
        names += ["workspace.commands_allow", "workspace.commands_deny"]
    return names


def _setting(runtime: Runtime, name: str) -> str:
    section, _, field = name.partition(".")
    value = getattr(getattr(runtime.config, section), field)
    origin = runtime.loaded.origins.get(name, "default")
    return f"{name} = {json.dumps(to_json(value), ensure_ascii=False)} ({origin})"


def _lists_said(request: PolicyQuery, lists: Mapping[str, AllowedTools]) -> list[str]:
    if request.kind == "capability" or request.tool in NEVER_NARROWED:
        return [f"{request.tool} is narrowed by no list"]
    if request.skill is not None:
        lists = {request.skill: lists[request.skill]} if request.skill in lists else {}
        if not lists:
            return [f"{request.skill} declares no list"]
    if not lists:
        return ["no list is declared"]
    return [
        f"{id} {'allows it' if allows(own, request.tool, request.args) else 'does not allow it'}: "
        f"{', '.join(rule.entry for rule in own.rules) or 'nothing'}"
        for id, own in lists.items()
    ]


# --- how to change the verdict --------------------------------------------------------------------------------------


def _how_to_change(runtime: Runtime, found: Explained, request: PolicyQuery, named: Entry | None) -> list[str]:
    """Returns advice for a person. A setting in an untrusted file can only make things stricter."""
    tool, rule = request.tool, found.decision.rule
    if found.decision.verdict == "allow":
        return [f'execution.require_approval_for = ["{tool}"] would ask each time; a rule can ask or deny.']
    yes = [f"--yes {tool} approves it for one run."] if tool in RISKS or tool in CAPABILITIES else []
    policy = f"A rule of {os.path.join(runtime.places.project, '.agent', 'policy.toml')} can allow it."
    isolated = "With --executor sandbox or container it would run isolated, without a question."
    if found.decided.rule is not None:
        each = found.decided.rule
        only = " It can only tighten, so no other file lifts it." if found.decided.tightens else ""
        change = f"Change rule {each.number}: {each.path}:{each.line}.{only}"
        return [*yes, change] if found.decision.verdict == "ask" else [change]
    return {
        "config:tools.enable": [f'tools.enable = ["{tool}"] switches it on; then a person is asked.'],
        "config:workspace.require_isolation": [
            "An executor that isolates: --executor sandbox or container; prowess doctor --workspace says what works.",
            f"{_origin(runtime, 'workspace.require_isolation')} sets workspace.require_isolation.",
        ],
        "config:workspace.commands": [
            f"workspace.commands_allow (from {_origin(runtime, 'workspace.commands_allow')}) and "
            f"workspace.commands_deny (from {_origin(runtime, 'workspace.commands_deny')}) hold the lists.",
        ],
        "config:require_approval_for": [
            *yes,
            f"{_origin(runtime, 'execution.require_approval_for')} sets execution.require_approval_for.",
        ],
        "environment": ["Leave that variable out: nothing allows it."],
        "table:high-risk": [*yes, policy],
        "table:local-trusted": [*yes, isolated, policy],
        "table:local-untrusted": [
            isolated,
            f"Trust its source, then a person is asked: prowess trust {_trust_target(runtime, named)}".rstrip(),
        ],
        "table:capability": [*yes, policy],
        "table:unknown-tool": [policy],
    }.get(rule) or _of_a_list(rule, named)


def _of_a_list(rule: str, named: Entry | None) -> list[str]:
    if not rule.startswith("allowed-tools:"):
        return []
    place = f" of {named.location}" if named is not None else ""
    return [f"Only the author's list{place} can name it: allowed-tools. No setting and no --yes lifts it."]


def _origin(runtime: Runtime, name: str) -> str:
    return runtime.loaded.origins.get(name, "default")


def _trust_target(runtime: Runtime, named: Entry | None) -> str:
    return shlex.quote(runtime.places.project if named is None or named.source == "project" else named.root)
