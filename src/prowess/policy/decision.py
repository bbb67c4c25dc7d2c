"""Makes one decision about each call, with the rule that made it and the reason. A pure function of its arguments.

Order: the configuration (tools switched off, command lists); `allowed-tools` of the skill that the call names, or of
all declaring skills together when it names none; the rules of the policy files; a person's grant for a skill, where the
table would ask; the table. `require_approval_for` asks even when everything else allows. Unknown facts count as the
worse case: unknown isolation is no isolation, and a skill not known to be trusted is untrusted.

`explain` is `decide` with every intermediate answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from prowess.core.isolation import was_isolated
from prowess.core.storage_values import USER_SCOPE
from prowess.core.tool_table import CAPABILITIES, COMMAND_TOOLS, ENDING_TOOLS, NEVER_NARROWED, WATCHING_TOOLS, find_risk
from prowess.core.values import Decision, Isolation, Verdict
from prowess.policy.allowed_tools import (
    AllowedTools,
    allows,
    allows_any,
    canonical_tools,
    command_words,
    granted_words,
    grants_all,
    is_own_folder,
)
from prowess.policy.commands.check import why_not_listed
from prowess.policy.commands.env_names import find_refusal, find_unlisted
from prowess.policy.commands.parse import NotSimple, split_command
from prowess.policy.commands.rules import FindProgram, Fit, certainly_fits, find_mentioned, name_wanted, read_call
from prowess.policy.commands.words import show
from prowess.policy.rules import PolicyQuery, PolicyRule, Rules, fit, unlocated

__all__ = [
    "Explained",
    "Explanation",
    "PolicyContext",
    "PolicyQuery",
    "asked_isolated",
    "decide",
    "explain",
    "is_isolated",
    "stricter",
]

LOCAL_TRUSTED = "table:local-trusted"
_STRICTNESS: tuple[Verdict, ...] = ("allow", "ask", "deny")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyContext:
    """Facts around a call: configuration, grants, and the isolation that the executor really enforces."""

    isolation: Isolation | None = None
    enabled: frozenset[str] = frozenset()  # high-risk tools that are switched on
    require_approval_for: tuple[str, ...] = ()  # Prowess names or aliases
    commands_allow: tuple[str, ...] = ()
    commands_deny: tuple[str, ...] = ()
    require_isolation: bool = False
    given: frozenset[str] = frozenset()  # tools that the caller added, and so wants to be called
    granted: frozenset[str] = frozenset()  # capabilities that a person granted for this request
    grants: frozenset[str] = frozenset()  # ids of skills whose list a person lets grant, for their current content
    limits: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # tool -> limits it must keep
    find_program: FindProgram = unlocated  # maps a name to the system file that the run would start


By = Literal["configuration", "allowed-tools", "policy", "grant", "table", "require_approval_for"]


class Explanation(NamedTuple):
    """Answer of one step about a call. No decision leaves it to the next step."""

    by: By
    decision: Decision | None = None
    path: str = ""  # path of the policy file
    rule: PolicyRule | None = None  # the rule of that file that matches
    tightens: bool = False  # can only make the decision stricter
    argv: tuple[str, ...] = ()  # the command that it allows to run
    missed: tuple[str, ...] = ()  # why a rule or list that could allow it does not


class Explained(NamedTuple):
    decision: Decision
    said: tuple[Explanation, ...]  # in the order of the steps
    decided: Explanation


def decide(
    request: PolicyQuery,
    around: PolicyContext,
    *,
    lists: Mapping[str, AllowedTools] | None = None,
    rules: Sequence[Rules] = (),
) -> Decision:
    """Decides about a call. `lists` maps skill ids to `allowed-tools`: of the skill that the call names and of every
    loaded skill that declares a list. `rules` are the policy files, most important first."""
    return explain(request, around, lists=lists, rules=rules).decision


def explain(
    request: PolicyQuery,
    around: PolicyContext,
    *,
    lists: Mapping[str, AllowedTools] | None = None,
    rules: Sequence[Rules] = (),
) -> Explained:
    """Decides, and keeps every answer. The first answer decides; later ones can only make it stricter."""
    said = (
        Explanation("configuration", _by_configuration(request, around)),
        Explanation("allowed-tools", _by_allowed_tools(request, lists or {})),
        *(_by_rules(request, each, around) for each in rules if not each.only_tightens),
        _by_grant(request, around, lists or {}),
        Explanation("table", _by_table(request, around)),
        *(_by_rules(request, each, around) for each in rules if each.only_tightens),
        Explanation("require_approval_for", _by_required_approval(request, around), tightens=True),
        *(Explanation("table", each, tightens=True) for each in _by_artifact_scope(request)),
        *(_by_digest(request, each) for each in rules if not each.denied_digests.isdisjoint(request.digests)),
    )
    decision, decided = next((each.decision, each) for each in said if each.decision and not each.tightens)
    for each in said:
        if each.tightens and each.decision and stricter(decision, each.decision) is not decision:
            decided, decision = each, each.decision
    limits = {**around.limits.get(request.tool, {}), **_argv_limit(request, around, decided)}
    return Explained(replace(decision, limits=limits), said, decided)


def is_isolated(isolation: Isolation | None) -> bool:
    return isolation is not None and isolation.is_isolated


def asked_isolated(decision: Decision) -> bool | None:
    """True when the program that a person is asked about runs isolated. None when no program starts."""
    told = decision.about.get("isolation")
    return was_isolated(told) if isinstance(told, dict) else None


def _by_configuration(request: PolicyQuery, around: PolicyContext) -> Decision | None:
    tool = request.tool
    if find_risk(tool) == "high" and tool not in around.enabled:
        return _deny(
            "config:tools.enable", f"{tool} is switched off. A person can enable it: tools.enable = ['{tool}']."
        )
    needs_isolation = tool in COMMAND_TOOLS or request.kind == "capability"
    if around.require_isolation and needs_isolation and not is_isolated(around.isolation):
        why = "The configuration requires real isolation for scripts, and here is none."
        return _deny("config:workspace.require_isolation", why)
    if tool in COMMAND_TOOLS:
        return _by_environment(request) or _by_command_lists(request, around)
    return None


def _by_environment(request: PolicyQuery) -> Decision | None:
    env = request.args.get("env") or {}
    if not isinstance(env, Mapping):
        return _deny("environment", "env is not a table of names and values.")
    for name, value in env.items():
        reason = find_refusal(str(name), str(value))
        if reason:
            return _deny("environment", f"The variable {ascii(str(name))[:80]} cannot be set for a run: {reason}.")
    return None


def _by_command_lists(request: PolicyQuery, around: PolicyContext) -> Decision | None:
    """Checks the command lists. A script can be started directly or by an interpreter: none of these may be denied, and
    one must be allowed."""
    allow, deny = around.commands_allow, around.commands_deny
    if not allow and not deny:
        return None
    why = _why_not_one(request) or _why_denied(request, deny)
    if allow and not why:
        why = _why_not_listed(request, allow) or find_unlisted(request.args.get("env") or {})
    return _deny("config:workspace.commands", why) if why else None


def _why_not_one(request: PolicyQuery) -> str:
    if command_words(request.args):
        return ""
    command = request.args.get("command")
    split = split_command(command) if isinstance(command, str) and request.args.get("script") is None else None
    why = split.why if isinstance(split, NotSimple) else "Say either command, or script and args."
    return f"With a command list only one plain command may run. {why}"


def _why_denied(request: PolicyQuery, deny: Sequence[str]) -> str:
    line = read_call(request.args)
    for name in deny:
        if found := find_mentioned(name_wanted(name), line):
            return f"'{show(found[0])}' is on the list of denied commands ({name})."
    if deny and request.args.get("script") is not None and len(command_words(request.args)) == 1:
        return "Its name does not say which program would run this script, so a list of denied ones cannot be kept."
    return line.unclear if deny else ""


def _why_not_listed(request: PolicyQuery, allow: Sequence[str]) -> str:
    written = command_words(request.args)
    cwd, program = request.args.get("cwd"), "" if request.args.get("script") is not None else written[0][0]
    if not is_own_folder(cwd) and "/" in program and not program.startswith("/"):
        return f"'{program[:80]}' in the folder '{str(cwd)[:80]}' is not the file that the list names."
    refused = [why_not_listed(words[0], allow) for words in written]
    return "" if "" in refused else refused[0]


def _argv_limit(request: PolicyQuery, around: PolicyContext, decided: Explanation) -> dict[str, Any]:
    """Returns the exact words that the tool must run without a shell, so that the approved command is the one that
    runs.

    Applies when there is a command list, or when a rule or grant allows exactly this command. For a script, the words
    begin with an allowed interpreter, or with the script when only that is allowed.
    """
    if request.tool not in COMMAND_TOOLS:
        return {}
    if decided.argv:
        return {"argv": list(decided.argv)}
    if not (around.commands_allow or around.commands_deny):
        return {}
    written, allow = command_words(request.args), around.commands_allow
    allowed = [words for words in (*written[1:], *written[:1]) if not allow or not why_not_listed(words[0], allow)]
    return {"argv": list(allowed[0])} if allowed else {}


def _by_allowed_tools(request: PolicyQuery, lists: Mapping[str, AllowedTools]) -> Decision | None:
    if request.kind == "capability" or request.tool in NEVER_NARROWED:
        return None
    if request.skill is not None:
        own = lists.get(request.skill)
        if own is None or allows(own, request.tool, request.args):
            return None
        entries = ", ".join(rule.entry for rule in own.rules)[:200] or "nothing"
        why = f"The skill '{request.skill}' allows itself {entries}, and this call is none of it."
        if request.tool in COMMAND_TOOLS and (variable := find_unlisted(request.args.get("env") or {})):
            why = f"{why} {variable}"
        return _deny(f"allowed-tools:{request.skill}", why)
    if allows_any(list(lists.values()), request.tool, request.args):
        return None
    names = sorted(lists)
    why = f"No skill in use allows this call; those with a list are {', '.join(names)[:200]}."
    return _deny(f"allowed-tools:{'+'.join(names)}", why)


def _by_rules(request: PolicyQuery, rules: Rules, around: PolicyContext) -> Explanation:
    missed: dict[str, list[int]] = {}  # reason -> numbers of the rules
    for rule in rules.rules:
        found = fit(rule, request, around.find_program)
        if found.fits:
            decision = Decision(verdict=rule.verdict, rule=rule.label, why=_why(rule, rules, found))
            return Explanation("policy", decision, rules.path, rule, rules.only_tightens, found.argv, _missed(missed))
        if found.why:
            missed.setdefault(found.why, []).append(rule.number)
    return Explanation("policy", path=rules.path, tightens=rules.only_tightens, missed=_missed(missed))


def _by_digest(request: PolicyQuery, rules: Rules) -> Explanation:
    """Denies a call with a skill that was loaded before its content was denied. It can always be ended."""
    if request.tool in ENDING_TOOLS:
        return Explanation("policy", path=rules.path, tightens=True)
    why = f"{rules.path} denies the content of this skill, under denied_digests."
    return Explanation("policy", _deny(f"denied_digests {rules.path}", why), rules.path, tightens=True)


def _missed(reasons: Mapping[str, Sequence[int]]) -> tuple[str, ...]:
    said = [(", ".join(map(str, numbers)), len(numbers) > 1, why) for why, numbers in reasons.items()]
    return tuple(f"{'Rules' if s else 'Rule'} {n} {'do' if s else 'does'} not allow it: {why}" for n, s, why in said)


def _why(rule: PolicyRule, rules: Rules, found: Fit) -> str:
    says = {"allow": "allows this", "ask": "asks before this", "deny": "forbids this"}[rule.verdict]
    why = rule.why or f"Rule {rule.number} of {rule.path} {says}."
    if not rules.trusted:  # an untrusted author's text must not reach the model or people
        why = f"Rule {rule.number} of {rule.path}, which is not trusted, {says}."
    return f"{why} {found.why}" if found.why else why


def _by_grant(request: PolicyQuery, around: PolicyContext, lists: Mapping[str, AllowedTools]) -> Explanation:
    """Applies a person's grant. It covers only one question of the table: a trusted skill that runs without
    isolation."""
    own = lists.get(request.skill) if request.skill in around.grants else None
    if own is None or request.kind != "call" or _by_table(request, around).rule != LOCAL_TRUSTED:
        return Explanation("grant")
    found = Fit(grants_all(own, request.tool))
    if not found.fits and request.tool in COMMAND_TOOLS:
        found = certainly_fits(granted_words(own, request.tool, request.args), request.args, around.find_program)
    if not found.fits:
        return Explanation("grant", missed=(f"The list does not grant it: {found.why}",) if found.why else ())
    why = f"A person lets the skill '{request.skill}', with the content that it has now, run what its list allows."
    return Explanation("grant", Decision(verdict="allow", rule="grant:allowed-tools", why=why), argv=found.argv)


def _by_required_approval(request: PolicyQuery, around: PolicyContext) -> Decision | None:
    asked = {tool for name in around.require_approval_for for tool in (name, *canonical_tools(name))}
    if request.tool not in asked:
        return None
    why = f"The configuration asks before every {request.tool}."
    return Decision(verdict="ask", rule="config:require_approval_for", why=why)


def _by_artifact_scope(request: PolicyQuery) -> Sequence[Decision]:
    """Asks before files are saved for the user, because every session sees them. No command rule covers that."""
    if request.tool not in COMMAND_TOOLS:
        return ()
    outputs = request.args.get("outputs")
    outputs = outputs if isinstance(outputs, Mapping) else {}
    saves = request.args.get("save_as_artifacts") or outputs.get("save")
    prefixes = (request.args.get("artifact_prefix"), outputs.get("name_template"))
    if not saves or not any(str(prefix).startswith(USER_SCOPE) for prefix in prefixes):
        return ()
    why = f"It would save files under '{USER_SCOPE}', where every session of the user finds them, so a person is asked."
    return (Decision(verdict="ask", rule="table:user-artifacts", why=why),)


def _by_table(request: PolicyQuery, around: PolicyContext) -> Decision:
    risk = find_risk(request.tool)
    if request.kind == "capability":
        return _by_capability(request, around)
    if risk == "low":
        return Decision(verdict="allow", rule="table:low-risk", why=f"{request.tool} only reads.")
    if risk == "high":
        why = f"{request.tool} changes or reaches what cannot be taken back, so a person is asked."
        return Decision(verdict="ask", rule="table:high-risk", why=why)
    if risk == "unknown" and request.tool in around.given:
        why = f"{request.tool} is a function of whoever runs this agent, who gave it to be called."
        return Decision(verdict="allow", rule="table:given-tool", why=why)
    if risk == "unknown":
        why = f"Nothing is known about {request.tool}, so a person is asked."
        return Decision(verdict="ask", rule="table:unknown-tool", why=why)
    if request.tool in WATCHING_TOOLS:
        why = "It watches or ends a program whose start was decided before."
        return Decision(verdict="allow", rule="table:session", why=why)
    if is_isolated(around.isolation):
        why = (
            f"It runs isolated ({around.isolation.executor}, {around.isolation.mechanism})." if around.isolation else ""
        )
        return Decision(verdict="allow", rule="table:isolated", why=why)
    if request.trusted:
        why = "It would run on this machine without isolation; its source is trusted, so a person is asked."
        return Decision(verdict="ask", rule=LOCAL_TRUSTED, why=why)
    why = "It would run on this machine without isolation, and its source is not trusted."
    return _deny("table:local-untrusted", why)


def _by_capability(request: PolicyQuery, around: PolicyContext) -> Decision:
    name = request.tool
    if name not in CAPABILITIES:
        return _deny("table:unknown-capability", f"There is no capability '{name}'.")
    if name in around.granted:
        return Decision(verdict="allow", rule=f"grant:{name}", why=f"A person has granted {name} for exactly this.")
    if not request.trusted and not is_isolated(around.isolation):
        return _deny("table:local-untrusted", f"{name} without isolation, for a source that is not trusted.")
    if request.args.get("by") == "configuration":
        why = "The configuration names these packages for this skill."
        return Decision(verdict="allow", rule="config:skills.dependencies", why=why)
    packages = ", ".join(map(str, request.args.get("dependencies") or ())) or "packages"
    why = (
        f"It would install {packages[:500]} for the skill '{request.skill}': wheels from your package index, into an "
        "environment in the workspace folder that only such runs use. A person is asked once for exactly this."
    )
    return Decision(verdict="ask", rule="table:capability", why=why)


def stricter(one: Decision, other: Decision) -> Decision:
    """Returns the second decision if it is stricter, else the first."""
    return other if _STRICTNESS.index(other.verdict) > _STRICTNESS.index(one.verdict) else one


def _deny(rule: str, why: str) -> Decision:
    return Decision(verdict="deny", rule=rule, why=why)
