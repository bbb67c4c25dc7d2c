"""Makes one decision about each call, with the rule that made it and the reason. A pure function of its arguments.

Order: the configuration (tools switched off, command lists); `allowed-tools` of the skill that the call names, or of
all declaring skills together when it names none; the rules of the policy files; a person's grant for a skill, where the
table would ask; the table. `require_approval_for` asks even when everything else allows. Unknown facts count as the
worse case: unknown isolation is no isolation, and a skill not known to be trusted is untrusted.

`explain` is `decide` with every intermediate answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from prowess.core.isolation import was_isolated
from prowess.core.tool_table import (
    CAPABILITIES,
    COMMAND_TOOLS,
    ENDING_TOOLS,
    NEVER_NARROWED,
    RISKS,
    SWITCHED_TOOLS,
    WATCHING_TOOLS,
    WORKSPACE_WRITERS,
    Risk,
)
from prowess.core.values import USER_SCOPE, Decision, Isolation, Verdict
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
_SAYS: dict[Verdict, str] = {"allow": "allows this", "ask": "asks before this", "deny": "forbids this"}


class PolicyContext(NamedTuple):
    """Facts around a call: configuration, grants, and the isolation that the executor really enforces."""

    isolation: Isolation | None = None
    enabled: frozenset[str] = frozenset()  # high-risk tools that are switched on
    require_approval_for: tuple[str, ...] = ()  # Prowess names or aliases
    asking: frozenset[str] = frozenset()  # tools that the caller added with `requires_approval`
    commands_allow: tuple[str, ...] = ()
    commands_deny: tuple[str, ...] = ()
    require_isolation: bool = False
    given: frozenset[str] = frozenset()  # tools that the caller added, and so wants to be called
    granted: frozenset[str] = frozenset()  # capabilities that a person granted for this request
    grants: frozenset[str] = frozenset()  # ids of skills whose list a person lets grant, for their current content
    limits: Mapping[str, Mapping[str, Any]] = {}  # tool -> limits it must keep
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
    loaded skill that declares a list. `rules` are the policy files; where several have an answer, the strictest
    counts."""
    explained = explain(request, around, lists=lists, rules=rules)
    return explained.decision


def explain(
    request: PolicyQuery,
    around: PolicyContext,
    *,
    lists: Mapping[str, AllowedTools] | None = None,
    rules: Sequence[Rules] = (),
) -> Explained:
    """Decides, and keeps every answer. The first answer decides; later ones can only make it stricter."""
    said = tuple(_answers(request, around, lists or {}, rules))
    deciding = [(each, each.decision) for each in said if each.decision is not None and not each.tightens]
    decided, decision = deciding[0]  # the table always decides
    for each in said:
        if each.decision is None or not (each.tightens or each.by == "policy"):  # of several files the strictest counts
            continue
        if stricter(decision, each.decision) is not decision:
            decided = each
            decision = each.decision
    limits = dict(around.limits.get(request.tool, {}))
    limits |= _argv_limit(request, around, decided)
    return Explained(replace(decision, limits=limits), said, decided)


def _answers(
    request: PolicyQuery, around: PolicyContext, lists: Mapping[str, AllowedTools], rules: Sequence[Rules]
) -> Iterator[Explanation]:
    """Yields the answer of each step, in the order of the steps."""
    yield Explanation("configuration", _by_configuration(request, around))
    yield Explanation("allowed-tools", _by_allowed_tools(request, lists))
    for each in rules:
        if not each.only_tightens:
            yield _by_rules(request, each, around)
    yield _by_grant(request, around, lists)
    yield Explanation("table", _by_table(request, around))
    for each in rules:
        if each.only_tightens:
            yield _by_rules(request, each, around)
    yield Explanation("require_approval_for", _by_required_approval(request, around), tightens=True)
    for decision in _by_artifact_scope(request):
        yield Explanation("table", decision, tightens=True)
    for each in rules:
        if not each.denied_digests.isdisjoint(request.digests):
            yield _by_digest(request, each)


def find_risk(tool: str) -> Risk:
    return RISKS.get(tool, "unknown")


def is_isolated(isolation: Isolation | None) -> bool:
    return isolation is not None and isolation.is_isolated


def asked_isolated(decision: Decision) -> bool | None:
    """True when the program that a person is asked about runs isolated. None when no program starts."""
    told = decision.about.get("isolation")
    if not isinstance(told, dict):
        return None
    return was_isolated(told)


def _by_configuration(request: PolicyQuery, around: PolicyContext) -> Decision | None:
    tool = request.tool
    if tool in SWITCHED_TOOLS and tool not in around.enabled:
        why = f"{tool} is switched off. A person can enable it: tools.enable = ['{tool}']."
        return _deny("config:tools.enable", why)
    if tool in WORKSPACE_WRITERS and tool not in around.enabled and not _stays_in_workspace(request):
        why = f"{tool} writes below work/ and out/. A person can open other folders: tools.enable = ['{tool}']."
        return _deny("config:tools.enable", why)
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
            shown = ascii(str(name))[:80]
            return _deny("environment", f"The variable {shown} cannot be set for a run: {reason}.")
    return None


def _by_command_lists(request: PolicyQuery, around: PolicyContext) -> Decision | None:
    """Checks the command lists. A script can be started directly or by an interpreter: none of these may be denied, and
    one must be allowed."""
    allow = around.commands_allow
    deny = around.commands_deny
    if not allow and not deny:
        return None
    why = _why_not_one(request) or _why_denied(request, deny)
    if allow and not why:
        env = request.args.get("env") or {}
        why = _why_not_listed(request, allow) or find_unlisted(env)
    if not why:
        return None
    return _deny("config:workspace.commands", why)


def _why_not_one(request: PolicyQuery) -> str:
    if command_words(request.args):
        return ""
    why = "Say either command, or script and args."
    command = request.args.get("command")
    if isinstance(command, str) and request.args.get("script") is None:
        split = split_command(command)
        if isinstance(split, NotSimple):
            why = split.why
    return f"With a command list only one plain command may run. {why}"


def _why_denied(request: PolicyQuery, deny: Sequence[str]) -> str:
    if not deny:
        return ""
    line = read_call(request.args)
    for name in deny:
        found = find_mentioned(name_wanted(name), line)
        if found:
            return f"'{show(found[0])}' is on the list of denied commands ({name})."
    is_script = request.args.get("script") is not None
    if is_script and len(command_words(request.args)) == 1:
        return "Its name does not say which program would run this script, so a list of denied ones cannot be kept."
    return line.unclear


def _why_not_listed(request: PolicyQuery, allow: Sequence[str]) -> str:
    written = command_words(request.args)
    if request.args.get("script") is None:
        cwd = request.args.get("cwd")
        program = written[0][0]
        is_relative = "/" in program and not program.startswith("/")
        if is_relative and not is_own_folder(cwd):
            return f"'{program[:80]}' in the folder '{str(cwd)[:80]}' is not the file that the list names."
    refused = [why_not_listed(words[0], allow) for words in written]
    if "" in refused:
        return ""
    return refused[0]


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
    allow = around.commands_allow
    if not allow and not around.commands_deny:
        return {}
    written = command_words(request.args)
    for words in (*written[1:], *written[:1]):
        if not allow or not why_not_listed(words[0], allow):
            return {"argv": list(words)}
    return {}


def _by_allowed_tools(request: PolicyQuery, lists: Mapping[str, AllowedTools]) -> Decision | None:
    if not lists or request.kind == "capability" or request.tool in NEVER_NARROWED:
        return None
    if request.skill is not None:
        own = lists.get(request.skill)
        if own is None or allows(own, request.tool, request.args):
            return None
        return _deny(f"allowed-tools:{request.skill}", _why_not_own(request, own))
    if allows_any(lists.values(), request.tool, request.args):
        return None
    names = sorted(lists)
    shown = ", ".join(names)[:200]
    why = f"No skill in use allows this call; those with a list are {shown}."
    return _deny(f"allowed-tools:{'+'.join(names)}", why)


def _why_not_own(request: PolicyQuery, own: AllowedTools) -> str:
    """Returns why the list of the skill that the call names does not allow it."""
    entries = ", ".join(rule.entry for rule in own.rules)
    shown = entries[:200] or "nothing"
    why = f"The skill '{request.skill}' allows itself {shown}, and this call is none of it."
    if request.tool in COMMAND_TOOLS:
        variable = find_unlisted(request.args.get("env") or {})
        if variable:
            return f"{why} {variable}"
    return why


def _by_rules(request: PolicyQuery, rules: Rules, around: PolicyContext) -> Explanation:
    answer = Explanation("policy", path=rules.path, tightens=rules.only_tightens)
    missed: dict[str, list[int]] = {}  # reason -> numbers of the rules
    for rule in rules.rules:
        found = fit(rule, request, around.find_program)
        if found.fits:
            why = _why(rule, rules, found)
            decision = Decision(verdict=rule.verdict, rule=rule.label, why=why)
            answer = answer._replace(decision=decision, rule=rule, argv=found.argv)
            break
        if found.why:
            missed.setdefault(found.why, []).append(rule.number)
    return answer._replace(missed=_missed(missed))


def _by_digest(request: PolicyQuery, rules: Rules) -> Explanation:
    """Denies a call with a skill that was loaded before its content was denied. It can always be ended."""
    if request.tool in ENDING_TOOLS:
        return Explanation("policy", path=rules.path, tightens=True)
    why = f"{rules.path} denies the content of this skill, under denied_digests."
    decision = _deny(f"denied_digests {rules.path}", why)
    return Explanation("policy", decision, rules.path, tightens=True)


def _missed(reasons: Mapping[str, Sequence[int]]) -> tuple[str, ...]:
    said: list[str] = []
    for why, numbers in reasons.items():
        named = ", ".join(map(str, numbers))
        if len(numbers) == 1:
            said.append(f"Rule {named} does not allow it: {why}")
        else:
            said.append(f"Rules {named} do not allow it: {why}")
    return tuple(said)


def _why(rule: PolicyRule, rules: Rules, found: Fit) -> str:
    says = _SAYS[rule.verdict]
    why = rule.why or f"Rule {rule.number} of {rule.path} {says}."
    if not rules.trusted:  # an untrusted author's text must not reach the model or people
        why = f"Rule {rule.number} of {rule.path}, which is not trusted, {says}."
    if not found.why:
        return why
    return f"{why} {found.why}"


def _by_grant(request: PolicyQuery, around: PolicyContext, lists: Mapping[str, AllowedTools]) -> Explanation:
    """Applies a person's grant. It covers only one question of the table: a trusted skill that runs without
    isolation."""
    if request.kind != "call" or request.skill not in around.grants:
        return Explanation("grant")
    own = lists.get(request.skill)
    if own is None or _by_table(request, around).rule != LOCAL_TRUSTED:
        return Explanation("grant")
    found = Fit(grants_all(own, request.tool))
    if not found.fits and request.tool in COMMAND_TOOLS:
        granted = granted_words(own, request.tool, request.args)
        found = certainly_fits(granted, request.args, around.find_program, files=request.files)
    if found.fits:
        why = f"A person lets the skill '{request.skill}', with the content that it has now, run what its list allows."
        decision = Decision(verdict="allow", rule="grant:allowed-tools", why=why)
        return Explanation("grant", decision, argv=found.argv)
    if found.why:
        return Explanation("grant", missed=(f"The list does not grant it: {found.why}",))
    return Explanation("grant")


def _by_required_approval(request: PolicyQuery, around: PolicyContext) -> Decision | None:
    asked = set(around.require_approval_for)
    for name in around.require_approval_for:
        asked.update(canonical_tools(name))
    if request.tool in around.asking:
        why = f"Whoever gave {request.tool} to this agent wants a person to be asked before every call of it."
        return Decision(verdict="ask", rule="tool:requires_approval", why=why)
    if request.tool not in asked:
        return None
    why = f"The configuration asks before every {request.tool}."
    return Decision(verdict="ask", rule="config:require_approval_for", why=why)


def _by_artifact_scope(request: PolicyQuery) -> Sequence[Decision]:
    """Asks before files are saved for the user, because every session sees them. No command rule covers that."""
    if request.tool not in COMMAND_TOOLS:
        return ()
    outputs = request.args.get("outputs")
    if not isinstance(outputs, Mapping):
        outputs = {}
    saves = request.args.get("save_as_artifacts") or outputs.get("save")
    if not saves:
        return ()
    prefixes = (request.args.get("artifact_prefix"), outputs.get("name_template"))
    if not any(str(prefix).startswith(USER_SCOPE) for prefix in prefixes):
        return ()
    why = f"It would save files under '{USER_SCOPE}', where every session of the user finds them, so a person is asked."
    return (Decision(verdict="ask", rule="table:user-artifacts", why=why),)


def _by_table(request: PolicyQuery, around: PolicyContext) -> Decision:
    risk = find_risk(request.tool)
    if request.kind == "capability":
        return _by_capability(request, around)
    if risk == "low":
        return Decision(verdict="allow", rule="table:low-risk", why=f"{request.tool} only reads.")
    if request.tool in WORKSPACE_WRITERS and _stays_in_workspace(request) and is_isolated(around.isolation):
        why = "It writes into the workspace, where programs run isolated."
        return Decision(verdict="allow", rule="table:isolated-write", why=why)
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
    isolation = around.isolation
    if isolation is not None and isolation.is_isolated:
        why = f"It runs isolated ({isolation.executor}, {isolation.mechanism})."
        return Decision(verdict="allow", rule="table:isolated", why=why)
    if request.trusted:
        why = "It would run on this machine without isolation; its source is trusted, so a person is asked."
        return Decision(verdict="ask", rule=LOCAL_TRUSTED, why=why)
    why = "It would run on this machine without isolation, and its source is not trusted."
    return _deny("table:local-untrusted", why)


def _stays_in_workspace(request: PolicyQuery) -> bool:
    """True when the path is certainly below work/ or out/: spelled plainly, as the tool normalises it."""
    path = request.args.get("path")
    if not isinstance(path, str):
        return False
    top, *below = path.split("/")
    if top not in ("out", "work") or not below:
        return False
    return _NOT_PLAIN.isdisjoint(below)


_NOT_PLAIN = frozenset(("", ".", ".."))


def _by_capability(request: PolicyQuery, around: PolicyContext) -> Decision:
    name = request.tool
    if name not in CAPABILITIES:
        return _deny("table:unknown-capability", f"There is no capability '{name}'.")
    if name in around.granted:
        why = f"A person has granted {name} for exactly this."
        return Decision(verdict="allow", rule=f"grant:{name}", why=why)
    if not request.trusted and not is_isolated(around.isolation):
        return _deny("table:local-untrusted", f"{name} without isolation, for a source that is not trusted.")
    if request.args.get("by") == "configuration":
        why = "The configuration names these packages for this skill."
        return Decision(verdict="allow", rule="config:skills.dependencies", why=why)
    dependencies = request.args.get("dependencies") or ()
    packages = ", ".join(map(str, dependencies)) or "packages"
    why = (
        f"It would install {packages[:500]} for the skill '{request.skill}': wheels from your package index, into an "
        "environment in the workspace folder that only such runs use. A person is asked once for exactly this."
    )
    return Decision(verdict="ask", rule="table:capability", why=why)


def stricter(one: Decision, other: Decision) -> Decision:
    """Returns the second decision if it is stricter, else the first."""
    if _STRICTNESS.index(other.verdict) > _STRICTNESS.index(one.verdict):
        return other
    return one


def _deny(rule: str, why: str) -> Decision:
    return Decision(verdict="deny", rule=rule, why=why)
