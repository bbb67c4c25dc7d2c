"""Reads the policy in force: turns settings and policy files into the values that `policy` decides with."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

from prowess._internal.files import file_signature, read_regular
from prowess.core.catalog_values import Finding
from prowess.core.findings import Note, make_finding
from prowess.core.tool_table import (
    CAPABILITIES,
    ENDING_TOOLS,
    PATH_ARGUMENTS,
    RISKS,
    TOOLS,
    TOOLS_BY_ISOLATION,
    URL_ARGUMENTS,
    WRITING_TOOLS,
)
from prowess.errors import ConfigError
from prowess.policy.allowed_tools import canonical_tools, describe_unknown
from prowess.policy.decision import PolicyContext
from prowess.policy.rules import PolicyRule, Rules, allows_anything, parse_rules, skipped_options
from prowess.runtime.config import Config
from prowess.runtime.runtime import Runtime, rule_paths
from prowess.runtime.settings import WorkspaceConfig
from prowess.skills.catalog import Catalog
from prowess.skills.skill import Entry

_POLICY_BYTES = 1 << 20


def find_surroundings(config: Config) -> PolicyContext:
    """Returns the part of the configuration that counts in every decision."""
    workspace = config.workspace
    limits: dict[str, dict[str, Any]] = {}
    for tool in URL_ARGUMENTS:
        limits[tool] = {"hosts": list(workspace.network_allow), "max_bytes": 1_000_000, "timeout_s": 30}
    for tool in WRITING_TOOLS:
        limits[tool] = {"roots": list(workspace.host_roots)}
    enabled = enabled_tools(config.tools.enable)
    return PolicyContext(
        enabled=enabled,
        require_approval_for=config.execution.require_approval_for,
        commands_allow=workspace.commands_allow,
        commands_deny=workspace.commands_deny,
        require_isolation=workspace.require_isolation,
        limits=limits,
    )


def enabled_tools(names: Sequence[str]) -> frozenset[str]:
    """Returns the tools that are switched on and offered, by our names or those of other systems."""
    found: set[str] = set()
    for name in names:
        tools = canonical_tools(name)
        if tools[0] not in TOOLS:
            raise _no_such_tool(name)
        found.update(tools)
    return frozenset(found)


def _no_such_tool(name: str) -> ConfigError:
    near = difflib.get_close_matches(name, TOOLS, n=1)
    meant = f" Did you mean '{near[0]}'?" if near else ""
    message = f"tools.enable names '{name[:80]}', which is no tool.{meant}"
    known = ", ".join(TOOLS)
    return ConfigError(message, code="tool-unknown", hint=f"There are: {known}.")


class RuleFiles:
    """Policy files in their current state. They are read again when a file or trust changes.

    A revoked trust therefore counts from the next call on.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._seen: tuple[object, ...] | None = None
        self._rules: list[Rules] = []

    def current(self) -> Sequence[Rules]:
        runtime = self._runtime
        now = (runtime.still_trusted, *map(file_signature, rule_paths(runtime)))
        if now != self._seen:
            self._rules = load_rules(runtime)
            self._seen = now
        return self._rules


def load_rules(runtime: Runtime) -> list[Rules]:
    """Loads the managed file, which can only tighten, the project's, those that a program named, and the rules that
    follow from revoked trust.

    The project's file can only tighten until it is trusted. A file that a program named must exist.
    """
    return [*_load_files(runtime), *_taken_back(runtime)]


def _load_files(runtime: Runtime) -> list[Rules]:
    found: list[Rules] = []
    managed, path, *given = rule_paths(runtime)
    is_named = bool(runtime.environ.get("PROWESS_MANAGED_POLICY"))
    if is_named or _is_there(managed):
        rules = read_rules(managed)
        found.append(rules._replace(only_tightens=True))
    if _is_there(path):
        found.append(_of_project(runtime, path))
    found.extend(map(read_rules, given))
    return found


def find_denied_digests(runtime: Runtime) -> dict[str, str]:
    """Returns the path of the policy by each digest that it denies. A denial only tightens, so it counts without
    trust."""
    denied: dict[str, str] = {}
    for rules in _load_files(runtime):
        for digest in rules.denied_digests:
            denied.setdefault(digest, rules.path)
    return denied


def note_denied(catalog: Catalog, denied: Mapping[str, str]) -> Catalog:
    """Returns the catalog with a note on each skill whose content is denied. Every skill is hashed."""
    noted: list[Entry] = []
    for entry in catalog:
        if entry.valid:
            entry = if_denied(entry, _digest_entry(catalog, entry), denied)
        noted.append(entry)
    return catalog.replacing(noted)


def _digest_entry(catalog: Catalog, entry: Entry) -> str:
    skill = catalog.memory_skill(entry)
    if skill is not None:
        return skill.digest
    from prowess.skills.file_list import digest_of, hash_files

    files, _ = hash_files(os.path.realpath(entry.real_path))
    return digest_of(files)


def if_denied(entry: Entry, digest: str, denied: Mapping[str, str]) -> Entry:
    """Returns the entry with a note if this content of it is denied, else the entry itself."""
    policy = denied.get(digest)
    if policy is None:
        return entry
    note = Note("digest-denied", None, {"policy": policy, "name": entry.name})
    return entry._replace(notes=(*entry.notes, note))


def read_rules(path: str) -> Rules:
    return parse_rules(read_policy(path), path)


def find_problems(runtime: Runtime) -> list[Finding]:
    """Returns faults in the policy of an untrusted folder, or rules of a trusted one that allow more than they seem."""
    _, path, *_ = rule_paths(runtime)
    if not _is_there(path):
        return []
    try:
        rules = _of_project(runtime, path)
    except ConfigError:  # raised again where the policy is needed
        return []
    if rules.problem is not None:
        return [rules.problem]
    if rules.only_tightens:
        return []
    found: list[Finding] = []
    for rule in rules.rules:
        for note in _loose_parts(rule):
            found.append(make_finding(note, path))
    return found


def _loose_parts(rule: PolicyRule) -> Iterator[Note]:
    """Yields a note for each command of a rule that allows more than it seems to."""
    for command in allows_anything(rule):
        yield Note("policy-allows-anything", rule.line, {"number": rule.number, "command": command})
    for command, rest in skipped_options(rule):
        yield Note("policy-option-skipped", rule.line, {"number": rule.number, "command": command, "rest": rest})


def _of_project(runtime: Runtime, path: str) -> Rules:
    """Reads the project's policy. A broken file in an untrusted folder is ignored, with a finding.

    A stranger's file must not stop all work, and it could only have tightened.
    """
    try:
        text = read_policy(path)
        rules = parse_rules(text, path)
    except ConfigError as error:
        if runtime.trusts_project:
            raise
        line = _find_line(error.message.removeprefix(path))
        note = Note("policy-ignored-untrusted", line, {"reason": error.message})
        problem = make_finding(note, path)
        return Rules(path=path, only_tightens=True, trusted=False, problem=problem)
    if runtime.accepts(path, text):
        return rules
    return rules._replace(only_tightens=True, trusted=False)


def _find_line(message: str) -> int | None:
    found = re.search(r":(\d+): |at line (\d+)", message)
    if found is None:
        return None
    return int(found[1] or found[2])


def _is_there(path: str) -> bool:
    """True when something is at the path. A broken link and a folder without access are not the same as no file."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        pass
    return True


def read_policy(path: str) -> str:
    """Returns the text of a policy. Raises ConfigError when it cannot be read."""
    try:
        data = read_regular(path, _POLICY_BYTES, follow=True)
        if len(data) > _POLICY_BYTES:
            raise OSError(f"it has more than {_POLICY_BYTES} bytes")
        return data.decode()
    except (OSError, UnicodeDecodeError) as error:
        if "\n" in path:
            hint = "Write the rules to a file, and name the file."
            message = "The policy is a text of several lines, not the path of a file."
            raise ConfigError(message, code="policy-unreadable", hint=hint) from None
        message = f"The policy {path} cannot be read: {_reason(error, path)}."
        raise ConfigError(message, code="policy-unreadable", hint="Nothing runs without it.") from None


def _reason(error: OSError | UnicodeDecodeError, path: str) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    if isinstance(error, FileNotFoundError) and os.path.islink(path):
        target = os.readlink(path)
        return f"it is a link to {target[:200]}, which is not there"
    if error.strerror:
        return error.strerror.lower()
    return str(error).partition(": ")[0]


def unknown_tools(rules: Sequence[Rules], known: Sequence[str]) -> list[str]:
    """Lists rules about tools that do not exist: they match nothing, and a typing mistake would not be noticed."""
    names = {*TOOLS, *CAPABILITIES, *known}
    found: list[str] = []
    for each in rules:
        for rule in each.rules:
            for tool in rule.tools:
                if tool in names or _may_match_later(tool):
                    continue
                what = describe_unknown(tool, known=known)
                found.append(f"Rule {rule.number} of {rule.path} names a tool that is not known here: {what}.")
    return found


def _may_match_later(tool: str) -> bool:
    """True for a pattern, and for a tool of an MCP server."""
    return "*" in tool or "?" in tool or tool.startswith("mcp__")


# --- trust that was revoked during a run ------------------------------------------------------------------------------

_RUNNING = (*TOOLS_BY_ISOLATION, *sorted(CAPABILITIES))
# Settings of an open workspace cannot be changed, so nothing more runs in it.
_OPENED_WITH = (*(f"workspace.{name}" for name in WorkspaceConfig._fields), "secrets")


def _taken_back(runtime: Runtime) -> list[Rules]:
    """Returns rules that deny work with skills and settings whose trust was revoked. They can only tighten."""
    if runtime.still_trusted is runtime.trust:
        return []
    path = runtime.trust_file.path
    findings = runtime.still_trusted.findings
    why = findings[0].message if findings else "Trust in it was taken back."
    rules = _about_skills(runtime, f"The place that this skill comes from is not trusted any more. {why}")
    rules += _about_settings(runtime, f"{runtime.places.project} is not trusted any more. {why}")
    if not rules:
        return []
    numbered: list[PolicyRule] = []
    for number, rule in enumerate(rules, 1):
        numbered.append(rule._replace(number=number, path=path))
    return [Rules(tuple(numbered), path, only_tightens=True)]


def _about_skills(runtime: Runtime, why: str) -> list[PolicyRule]:
    before = _trusted_ids(runtime.library.catalog)
    lost = before - _trusted_ids(runtime.catalog)
    if not lost:
        return []
    denial = PolicyRule(0, "", None, "deny", why, ids=lost)
    ending = denial._replace(verdict="allow", tools=ENDING_TOOLS)
    return [ending, denial]


def _trusted_ids(catalog: Catalog) -> frozenset[str]:
    return frozenset(entry.id for entry in catalog if entry.trusted)


def _about_settings(runtime: Runtime, why: str) -> list[PolicyRule]:
    """Returns rules for settings that are stricter without the revoked file.

    These are tools that it switched on, questions that it left out, and everything that was opened with its settings.
    """
    used = runtime.config
    now = runtime.trusted_config

    def deny(name: str, *tools: str, **more: Any) -> PolicyRule:
        reason = f"{why} Its configuration set {name}; begin a new run."
        return PolicyRule(0, "", None, "deny", reason, tools=tools, **more)

    rules: list[PolicyRule] = []
    for name in _OPENED_WITH:
        read = attrgetter(name)
        if read(used) != read(now):
            rules.append(deny(name, *_RUNNING))
    if used.workspace.host_roots != now.workspace.host_roots:
        rules.append(deny("workspace.host_roots", *PATH_ARGUMENTS, paths=("/**", "host:/**")))
    if used.workspace.network_allow != now.workspace.network_allow:
        rules.append(deny("workspace.network_allow", *URL_ARGUMENTS))
    switched = enabled_tools(used.tools.enable) - enabled_tools(now.tools.enable)
    off = [tool for tool in switched if RISKS[tool] == "high"]
    if off:
        rules.append(deny("tools.enable", *sorted(off)))
    asked = {*now.execution.require_approval_for} - {*used.execution.require_approval_for}
    if asked:
        tools: list[str] = []
        for name in sorted(asked):
            tools.extend((name, *canonical_tools(name)))
        rules.append(PolicyRule(0, "", None, "ask", why, tools=tuple(tools)))
    return rules
