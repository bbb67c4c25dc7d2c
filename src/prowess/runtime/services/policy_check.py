"""Explains the policy decision about a call without making it.

The decision comes from the same function, files and settings as when an agent makes the call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from prowess._internal.urls import NotAHost, parse_url_target
from prowess.agent.approvals import approval_keys
from prowess.agent.call_policy import is_asked_each_time
from prowess.agent.toolkit import Toolkit
from prowess.core.codec import to_json
from prowess.core.isolation import IsolationRecord, record_isolation
from prowess.core.tool_table import CAPABILITIES, TOOLS_BY_ISOLATION, URL_ARGUMENTS
from prowess.core.values import Decision, Isolation, ToolCall, Verdict
from prowess.errors import ConfigError, ProwessError, SkillError, in_one_line
from prowess.policy.allowed_tools import AllowedTools, parse_allowed
from prowess.policy.approvals import UserApprovals
from prowess.policy.commands.rules import FindProgram
from prowess.policy.decision import (
    Explained,
    PolicyContext,
    PolicyQuery,
    decide,
    explain,
    find_risk,
    is_isolated,
    stricter,
)
from prowess.policy.rules import PolicyRule, Rules, unlocated
from prowess.runtime.factories import make_executor
from prowess.runtime.kit_preview import preview_kit
from prowess.runtime.policy_files import find_surroundings, load_rules, unknown_tools
from prowess.runtime.runtime import Runtime
from prowess.runtime.services.checked_call import CheckedCall, known_tools, read_call, why_not_loadable
from prowess.runtime.services.documents import error_row
from prowess.runtime.services.policy_advice import explain_steps, how_to_change
from prowess.skills.skill import Entry, Skill
from prowess.tools.files.read import ReadFile
from prowess.workspace.network.host_rules import denial_reason, find_rule, parse_rules
from prowess.workspace.process.posix_client import open_processes

if TYPE_CHECKING:
    from prowess.runtime.documents.permissions import PolicyCheckDocument, PolicyLoad, PolicyPlace, PolicySkill

_RUNS = (*TOOLS_BY_ISOLATION, *sorted(CAPABILITIES))  # tools for which isolation matters


class _Executor(NamedTuple):
    """Answers of the executor. If it cannot be made, `error` says why."""

    isolation: Isolation | None = None
    find_program: FindProgram = unlocated
    error: ProwessError | None = None


class _Judged(NamedTuple):
    """Policy's answers about a call, and what they were made from."""

    query: PolicyQuery
    context: PolicyContext
    lists: Mapping[str, AllowedTools]
    rules: Sequence[Rules]
    found: Explained
    approved_by: str | None  # person who approved such a call for this content


class _Load(NamedTuple):
    """Skill that the call would load, because it reads its SKILL.md, and policy's decision about that."""

    entry: Entry
    decision: Decision


async def check_call(
    runtime: Runtime, tool: str, args: Mapping[str, Any], skills: Sequence[str], *, isolation: bool = False
) -> PolicyCheckDocument:
    """Returns the document of `prowess policy check`. `skills`: the one that the call names, then other loaded ones."""
    kit = preview_kit(runtime)
    checked = read_call(runtime, kit, tool, args, skills)
    executor = _Executor()
    if isolation or checked.call.tool in _RUNS:
        executor = await _ask_executor(runtime)
    judged = _judge(runtime, kit, checked, executor)
    load = _find_load(runtime, kit, checked.call, judged)
    notes = [*checked.notes, *_rule_notes(kit, judged), *_host_notes(checked.call, judged.found.decision)]
    effective, because = _find_effect(runtime, checked, judged, load, notes)
    if executor.error is not None and checked.call.tool in _RUNS:
        effective = "deny"
        because = f"Nothing can run here, whatever policy says: {executor.error.message}"
    if because is not None:
        others = [note for note in notes if note != because]
        notes = [because, *others]
    decision = judged.found.decision
    return {
        "schema": "prowess.policy-check/1",
        "tool": checked.call.tool,
        "called": tool,
        "kind": judged.query.kind,
        "args": to_json(judged.query.args),
        "skill": _skill_row(runtime, checked.named),
        "risk": find_risk(checked.call.tool),
        "verdict": decision.verdict,
        "effective": effective,
        "rule": decision.rule,
        "why": decision.why,
        "place": _place_row(judged.found.decided.rule),
        "steps": explain_steps(runtime, judged.found, judged.query, judged.lists, judged.rules),
        "loads": _load_row(load),
        "limits": to_json(decision.limits),
        "isolation": _isolation_row(executor.isolation),
        "isolation_error": error_row(executor.error) if executor.error else None,
        "change": how_to_change(runtime, judged.found, judged.query, checked.named),
        "notes": notes,
    }


async def _ask_executor(runtime: Runtime) -> _Executor:
    """Asks the executor for its isolation and its programs, as before every command."""
    try:
        async with open_processes() as processes:
            executor = make_executor(runtime.config, runtime.places, processes, runtime.environ)
            try:
                isolation = await executor.isolation()
                programs = await executor.programs()
            finally:
                await executor.aclose()
    except ProwessError as error:
        return _Executor(error=error)
    return _Executor(isolation, programs)


# --- the decision ---------------------------------------------------------------------------------------------------


def _judge(runtime: Runtime, kit: Toolkit, checked: CheckedCall, executor: _Executor) -> _Judged:
    """Asks policy about a call, in the context of an agent that would make it."""
    isolated = is_isolated(executor.isolation)
    query = _make_query(runtime, kit, checked)
    keys = approval_keys(query.tool, isolated=isolated)
    grants, approved_by = _approvals(runtime, checked.named, keys)
    context = find_surroundings(runtime.config)
    context = context._replace(isolation=executor.isolation, find_program=executor.find_program, grants=grants)
    rules = load_rules(runtime)
    lists = _declared_lists(kit, checked.entries)
    found = explain(query, context, lists=lists, rules=rules)
    return _Judged(query, context, lists, rules, found, approved_by)


def _make_query(runtime: Runtime, kit: Toolkit, checked: CheckedCall) -> PolicyQuery:
    """Returns the question to policy: with the skill that the call names, or else with those whose files it reads."""
    call = checked.call
    named = checked.named
    kind = "capability" if call.tool in CAPABILITIES else "call"
    query = PolicyQuery(tool=call.tool, args=call.args, kind=kind)
    if named is not None:
        skill = _find_content(runtime, named)
        files = () if skill is None else tuple(file.path for file in skill.files)
        return query._replace(skill=named.id, source=named.source, trusted=named.trusted, files=files)
    _take_up(runtime, kit, checked.entries)
    touched = kit.calls.policy.find_touched(call)
    touches = tuple((each.id, each.source) for each in touched)
    return query._replace(touches=touches)


def _take_up(runtime: Runtime, kit: Toolkit, entries: Sequence[Entry]) -> None:
    """Marks skills as loaded, so that a file tool can reach their files."""
    for entry in entries:
        skill = _find_content(runtime, entry)
        if skill is not None:
            restored = kit.work.restore(skill)
            kit.work.adopt(restored, in_use=True)


def _find_content(runtime: Runtime, entry: Entry) -> Skill | None:
    """Loads a skill. None if it cannot be loaded."""
    try:
        return runtime.load_entry(entry)
    except SkillError:  # it cannot be loaded
        return None


def _approvals(runtime: Runtime, named: Entry | None, keys: Sequence[str]) -> tuple[frozenset[str], str | None]:
    """Returns the skills whose lists may grant, and the person who approved such a call for this content."""
    nothing: frozenset[str] = frozenset()
    if named is None:
        return nothing, None
    skill = _find_content(runtime, named)
    if skill is None:  # no content, so nothing was approved
        return nothing, None
    approvals = UserApprovals(runtime.places.state_dir, by="")
    approved_by = None
    for key in keys:
        given = approvals.find(skill, key)
        if given is not None:
            approved_by = given.by
            break
    if approvals.grants(skill):
        return frozenset((named.id,)), approved_by
    return nothing, approved_by


def _declared_lists(kit: Toolkit, entries: Sequence[Entry]) -> dict[str, AllowedTools]:
    """Returns `allowed-tools` of the skills that declare it, by id."""
    known = known_tools(kit)
    lists: dict[str, AllowedTools] = {}
    for entry in entries:
        declared = entry.controls.allowed_tools
        if declared is not None:
            lists[entry.id] = parse_allowed(declared, known=known)
    return lists


def _find_load(runtime: Runtime, kit: Toolkit, call: ToolCall, judged: _Judged) -> _Load | None:
    """Decides about the skill_load that a call is when it reads a SKILL.md: reading it loads the skill."""
    path = call.args.get("file_name")
    if call.tool != "read_file" or not isinstance(path, str):
        return None
    at = {entry.location: entry.id for entry in runtime.catalog}
    reader = ReadFile(kit.work, skill_at=at.get)
    ref = reader.find_skill(path)
    if ref is None:
        return None
    entry = runtime.catalog.find(ref)
    if entry is None:
        return None
    loading = ToolCall(id="load", tool="skill_load", args={"skill": ref})
    args = kit.calls.tools.normalise(loading).args
    query = PolicyQuery(tool="skill_load", args=args)
    query = query._replace(skill=entry.id, source=entry.source, trusted=entry.trusted)
    decision = decide(query, judged.context, rules=judged.rules)
    return _Load(entry, decision)


def _find_effect(
    runtime: Runtime, checked: CheckedCall, judged: _Judged, load: _Load | None, notes: list[str]
) -> tuple[Verdict, str | None]:
    """Returns the verdict that the call would meet, and the reason where it is not policy's own."""
    decision = judged.found.decision
    effective = decision.verdict
    because = None
    if effective == "ask" and _is_approved(judged):
        effective = "allow"
        because = f"Nobody would be asked, because it was approved for this content: {judged.approved_by}."
    if load is not None and effective != "deny":
        verdict = load.decision.verdict
        text = f"Reading that file is loading {load.entry.id}, which is decided about as well: {verdict}."
        text = f"{text} {load.decision.why}"
        if stricter(decision, load.decision) is load.decision:
            effective = verdict
            because = text
        else:
            notes.append(text)
    needed = checked.named if load is None else load.entry
    if needed is None:
        return effective, because
    hidden = why_not_loadable(runtime, needed)
    if hidden is not None:
        return "deny", hidden  # a skill that cannot be loaded cannot be called
    return effective, because


def _is_approved(judged: _Judged) -> bool:
    if judged.approved_by is None:
        return False
    return not is_asked_each_time(judged.query, judged.context, judged.rules)


# --- notes ----------------------------------------------------------------------------------------------------------


def _rule_notes(kit: Toolkit, judged: _Judged) -> Iterator[str]:
    """Yields notes about broken policy files, and about rules for unknown tools."""
    for rules in judged.rules:
        if rules.problem:
            yield f"{rules.problem.message} {rules.problem.hint}"
    yield from unknown_tools(judged.rules, known_tools(kit))


def _host_notes(call: ToolCall, decision: Decision) -> Iterator[str]:
    """Yields a note for a URL that policy allows but the listed hosts do not."""
    name = URL_ARGUMENTS.get(call.tool, "")
    url = call.args.get(name)
    if url is None or decision.verdict == "deny":
        return
    refusal = _find_refusal(str(url), decision.limits.get("hosts", ()))
    if refusal is not None:
        yield f"It would be refused all the same: {refusal}"


def _find_refusal(url: str, hosts: Sequence[str]) -> str | None:
    """Returns why a request to this URL would be refused. None if it would not."""
    try:
        target = parse_url_target(url)
    except NotAHost as error:
        return f"the URL names no host for certain ({error}). Write https://…"
    try:
        listed = parse_rules(hosts)
    except ConfigError as error:
        return in_one_line(error)
    if find_rule(listed, target) is not None:
        return None
    reason = denial_reason(listed, target)
    return f"{reason} (workspace.network_allow)."


# --- parts of the document ------------------------------------------------------------------------------------------


def _skill_row(runtime: Runtime, entry: Entry | None) -> PolicySkill | None:
    if entry is None:
        return None
    status = runtime.catalog.visibility(entry).status
    return {"id": entry.id, "source": entry.source, "trusted": entry.trusted, "status": status}


def _place_row(rule: PolicyRule | None) -> PolicyPlace | None:
    if rule is None:
        return None
    return {"path": rule.path, "line": rule.line, "number": rule.number}


def _load_row(load: _Load | None) -> PolicyLoad | None:
    if load is None:
        return None
    decision = load.decision
    return {"skill": load.entry.id, "verdict": decision.verdict, "rule": decision.rule, "why": decision.why}


def _isolation_row(isolation: Isolation | None) -> IsolationRecord | None:
    if isolation is None:
        return None
    return record_isolation(isolation)
