"""Explains a policy decision to a person: what each step looked at, and what would change the decision."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from prowess.core.codec import to_json
from prowess.core.tool_table import CAPABILITIES, COMMAND_TOOLS, NEVER_NARROWED, RISKS
from prowess.policy.allowed_tools import AllowedTools, allows
from prowess.policy.decision import Explained, Explanation, PolicyQuery, find_risk
from prowess.policy.rules import PolicyRule, Rules
from prowess.runtime.runtime import Runtime
from prowess.skills.skill import Entry

if TYPE_CHECKING:
    from prowess.runtime.documents.permissions import PolicyStep

_ISOLATED = "With --executor sandbox or container it would run isolated, without a question."
_ISOLATORS = "An executor that isolates: --executor sandbox or container; prowess doctor --workspace says what works."


def explain_steps(
    runtime: Runtime,
    found: Explained,
    request: PolicyQuery,
    lists: Mapping[str, AllowedTools],
    rules: Sequence[Rules],
) -> list[PolicyStep]:
    """Returns the rows of the steps, in the order in which they were asked."""
    rows: list[PolicyStep] = []
    for said in found.said:
        row = _step_row(said)
        row["looked_at"] = _looked_at(runtime, said, request, lists, rules)
        row["decided"] = said is found.decided
        rows.append(row)
    return rows


def _step_row(said: Explanation) -> PolicyStep:
    """Returns the row of a step, without what it looked at."""
    row: PolicyStep = {
        "by": said.by,
        "path": said.path or None,
        "tightens": said.tightens,
        "verdict": None,
        "rule": None,
        "why": None,
        "looked_at": [],
        "decided": False,
    }
    decision = said.decision
    if decision is not None:
        row["verdict"] = decision.verdict
        row["rule"] = decision.rule
        row["why"] = decision.why
    return row


def _looked_at(
    runtime: Runtime, said: Explanation, request: PolicyQuery, lists: Mapping[str, AllowedTools], rules: Sequence[Rules]
) -> list[str]:
    """Returns what a step looked at: settings, lists or rules."""
    if said.by == "configuration":
        names = _settings_for(request)
        return [_setting(runtime, name) for name in names]
    if said.by == "require_approval_for":
        return [_setting(runtime, "execution.require_approval_for")]
    if said.by == "allowed-tools":
        return _lists_said(request, lists)
    if said.by == "policy":
        return _rules_said(said, rules)
    return list(said.missed)


def _settings_for(request: PolicyQuery) -> list[str]:
    """Returns the settings that can forbid such a call."""
    names: list[str] = []
    if find_risk(request.tool) == "high":
        names.append("tools.enable")
    if request.tool in COMMAND_TOOLS or request.kind == "capability":
        names.append("workspace.require_isolation")
    if request.tool in COMMAND_TOOLS:
        names += ["workspace.commands_allow", "workspace.commands_deny"]
    return names


def _setting(runtime: Runtime, name: str) -> str:
    """Renders a setting with its value and its origin."""
    section, _, field = name.partition(".")
    settings = getattr(runtime.config, section)
    value = to_json(getattr(settings, field))
    shown = json.dumps(value, ensure_ascii=False)
    origin = _origin(runtime, name)
    return f"{name} = {shown} ({origin})"


def _lists_said(request: PolicyQuery, lists: Mapping[str, AllowedTools]) -> list[str]:
    if request.kind == "capability" or request.tool in NEVER_NARROWED:
        return [f"{request.tool} is narrowed by no list"]
    if request.skill is not None:
        own = lists.get(request.skill)
        if own is None:
            return [f"{request.skill} declares no list"]
        return [_list_said(request.skill, own, request)]
    if not lists:
        return ["no list is declared"]
    return [_list_said(skill, own, request) for skill, own in lists.items()]


def _list_said(skill: str, own: AllowedTools, request: PolicyQuery) -> str:
    """Says whether the list of a skill allows the call."""
    entries = ", ".join(rule.entry for rule in own.rules)
    says = "does not allow it"
    if allows(own, request.tool, request.args):
        says = "allows it"
    return f"{skill} {says}: {entries or 'nothing'}"


def _rules_said(said: Explanation, rules: Sequence[Rules]) -> list[str]:
    """Says how many rules a policy file has, and whether one fits."""
    asked = next(each for each in rules if each.path == said.path)
    if asked.problem is not None:
        return ["it is broken, so that nothing in it is in force"]
    number = len(asked.rules)
    noun = "rule" if number == 1 else "rules"
    fitting = "one" if said.rule else "none"
    return [f"{number} {noun}, of which {fitting} fits", *said.missed]


# --- how to change the decision -------------------------------------------------------------------------------------


def how_to_change(runtime: Runtime, found: Explained, request: PolicyQuery, named: Entry | None) -> list[str]:
    """Returns advice for a person. A setting in an untrusted file can only make things stricter."""
    if found.decision.verdict == "allow":
        return [f'execution.require_approval_for = ["{request.tool}"] would ask each time; a rule can ask or deny.']
    yes: list[str] = []
    if request.tool in RISKS or request.tool in CAPABILITIES:
        yes.append(f"--yes {request.tool} approves it for one run.")
    if found.decided.rule is not None:
        change = _change_rule(found.decided.rule, tightens=found.decided.tightens)
        if found.decision.verdict == "ask":
            return [*yes, change]
        return [change]
    by, _, which = found.decision.rule.partition(":")
    if by == "config":
        return _change_setting(runtime, which, request.tool, yes)
    if by == "table":
        return _change_table(runtime, which, named, yes)
    if by == "allowed-tools":
        return [_change_list(named)]
    if by == "environment":
        return ["Leave that variable out: nothing allows it."]
    return []


def _change_rule(rule: PolicyRule, *, tightens: bool) -> str:
    change = f"Change rule {rule.number}: {rule.path}:{rule.line}."
    if tightens:
        change += " It can only tighten, so no other file lifts it."
    return change


def _change_setting(runtime: Runtime, name: str, tool: str, yes: list[str]) -> list[str]:
    """Returns advice about a setting. `yes` is the advice to approve the call for one run."""
    if name == "tools.enable":
        return [f'tools.enable = ["{tool}"] switches it on; then a person is asked.']
    if name == "workspace.require_isolation":
        origin = _origin(runtime, name)
        return [_ISOLATORS, f"{origin} sets workspace.require_isolation."]
    if name == "workspace.commands":
        allow = _origin(runtime, "workspace.commands_allow")
        deny = _origin(runtime, "workspace.commands_deny")
        lists = f"workspace.commands_allow (from {allow}) and workspace.commands_deny (from {deny}) hold the lists."
        return [lists]
    if name == "require_approval_for":
        origin = _origin(runtime, "execution.require_approval_for")
        return [*yes, f"{origin} sets execution.require_approval_for."]
    return []


def _change_table(runtime: Runtime, row: str, named: Entry | None, yes: list[str]) -> list[str]:
    """Returns advice about a row of the table. `yes` is the advice to approve the call for one run."""
    file = os.path.join(runtime.places.project, ".agent", "policy.toml")
    policy = f"A rule of {file} can allow it."
    if row in ("high-risk", "capability"):
        return [*yes, policy]
    if row == "local-trusted":
        return [*yes, _ISOLATED, policy]
    if row == "local-untrusted":
        target = _trust_target(runtime, named)
        return [_ISOLATED, f"Trust its source, then a person is asked: prowess trust {target}"]
    if row == "unknown-tool":
        return [policy]
    return []


def _change_list(named: Entry | None) -> str:
    place = ""
    if named is not None:
        place = f" of {named.location}"
    return f"Only the author's list{place} can name it: allowed-tools. No setting and no --yes lifts it."


def _origin(runtime: Runtime, name: str) -> str:
    """Returns the file, variable or flag that sets a setting."""
    return runtime.loaded.origins.get(name, "default")


def _trust_target(runtime: Runtime, named: Entry | None) -> str:
    """Returns the folder or URL to trust, as a word of a shell."""
    if named is None or named.source == "project":
        return shlex.quote(runtime.places.project)
    return shlex.quote(named.root)
