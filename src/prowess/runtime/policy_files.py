"""Reads the policy in force: turns settings and policy files into the values that `policy` decides with."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from prowess._internal.files import read_regular
from prowess._internal.json_file import file_signature
from prowess.core.catalog_values import Finding
from prowess.core.findings import Note, make_finding
from prowess.core.tool_table import (
    CAPABILITIES,
    ENDING_TOOLS,
    PATH_ARGUMENTS,
    STEERING_TOOLS,
    SWITCHED_TOOLS,
    TOOLS,
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
from prowess.skills.file_list import digest_of, hash_files
from prowess.skills.skill import Entry

_POLICY_BYTES = 1 << 20


def find_surroundings(config: Config) -> PolicyContext:
    """Returns the part of the configuration that counts in every decision."""
    workspace = config.workspace
    network = {"hosts": list(workspace.network_allow), "max_bytes": 1_000_000, "timeout_s": 30}
    return PolicyContext(
        enabled=enabled_tools(config.tools.enable),
        require_approval_for=config.execution.require_approval_for,
        commands_allow=workspace.commands_allow,
        commands_deny=workspace.commands_deny,
        require_isolation=workspace.require_isolation,
        limits={
            **{tool: dict(network) for tool in URL_ARGUMENTS},
            **{tool: {"roots": list(workspace.host_roots)} for tool in WRITING_TOOLS},
        },
    )


def enabled_tools(names: Sequence[str]) -> frozenset[str]:
    """Returns the high-risk tools that are switched on, by our names or those of other systems.

    Other tools need no switch, and a name that fits no high-risk tool is an error.
    """
    found = {tool for name in names for tool in canonical_tools(name)}
    wrong = [name for name in names if canonical_tools(name)[0] not in SWITCHED_TOOLS]
    if wrong:
        near = difflib.get_close_matches(wrong[0], SWITCHED_TOOLS, n=1)
        meant = f" Did you mean '{near[0]}'?" if near else ""
        raise ConfigError(
            f"tools.enable names '{wrong[0][:80]}', which is no tool that can be switched on.{meant}",
            code="tool-unknown",
            hint=f"There are: {', '.join(SWITCHED_TOOLS)}.",
        )
    return frozenset(found)


class RuleFiles:
    """Policy files in their current state. They are read again when a file or trust changes.

    A revoked trust therefore counts from the next call on.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._seen: tuple[object, ...] | None = None
        self._rules: list[Rules] = []

    def current(self) -> Sequence[Rules]:
        now = (self._runtime.still_trusted, *map(file_signature, rule_paths(self._runtime)))
        if now != self._seen:
            self._rules = load_rules(self._runtime)
            self._seen = now
        return self._rules


def load_rules(runtime: Runtime) -> list[Rules]:
    """Loads the managed file, which can only tighten, the project's, and the rules that follow from revoked trust.

    The project's file can only tighten until it is trusted.
    """
    return [*_load_files(runtime), *_taken_back(runtime)]


def _load_files(runtime: Runtime) -> list[Rules]:
    found: list[Rules] = []
    managed, path = rule_paths(runtime)
    if runtime.environ.get("PROWESS_MANAGED_POLICY") or _is_there(managed):
        found.append(read_rules(managed)._replace(only_tightens=True))
    if _is_there(path):
        found.append(_of_project(runtime, path))
    return found


def find_denied_digests(runtime: Runtime) -> dict[str, str]:
    """Returns the path of the policy by each digest that it denies. A denial only tightens, so it counts without
    trust."""
    return {digest: rules.path for rules in reversed(_load_files(runtime)) for digest in rules.denied_digests}


def note_denied(catalog: Catalog, denied: Mapping[str, str]) -> Catalog:
    """Returns the catalog with a note on each skill whose content is denied. Every skill is hashed."""

    def digest(entry: Entry) -> str:
        skill = catalog.memory_skill(entry)
        return skill.digest if skill else digest_of(hash_files(os.path.realpath(entry.real_path))[0])

    return catalog.replacing(if_denied(entry, digest(entry), denied) if entry.valid else entry for entry in catalog)


def if_denied(entry: Entry, digest: str, denied: Mapping[str, str]) -> Entry:
    """Returns the entry with a note if this content of it is denied, else the entry itself."""
    if digest not in denied:
        return entry
    note = Note("digest-denied", None, {"policy": denied[digest], "name": entry.name})
    return entry._replace(notes=(*entry.notes, note))


def read_rules(path: str) -> Rules:
    return parse_rules(_text(path), path)


def find_problems(runtime: Runtime) -> list[Finding]:
    """Returns faults in the policy of an untrusted folder, or rules of a trusted one that allow more than they seem."""
    path = rule_paths(runtime)[1]
    try:
        rules = _of_project(runtime, path) if _is_there(path) else Rules()
    except ConfigError:  # raised again where the policy is needed
        return []
    if rules.problem is not None or rules.only_tightens:
        return [] if rules.problem is None else [rules.problem]
    found: list[Finding] = []
    for rule in rules.rules:
        notes = [("policy-allows-anything", {"command": command}) for command in allows_anything(rule)]
        notes += [("policy-option-skipped", {"command": each, "rest": rest}) for each, rest in skipped_options(rule)]
        found += [make_finding(Note(code, rule.line, {"number": rule.number, **said}), path) for code, said in notes]
    return found


def _of_project(runtime: Runtime, path: str) -> Rules:
    """Reads the project's policy. A broken file in an untrusted folder is ignored, with a finding.

    A stranger's file must not stop all work, and it could only have tightened.
    """
    try:
        text = _text(path)
        rules = parse_rules(text, path)
    except ConfigError as error:
        if runtime.trusts_project:
            raise
        line = re.search(r":(\d+): |at line (\d+)", error.message.removeprefix(path))
        note = Note("policy-ignored-untrusted", int(line[1] or line[2]) if line else None, {"reason": error.message})
        return Rules(path=path, only_tightens=True, trusted=False, problem=make_finding(note, path))
    return rules if runtime.accepts(path, text) else rules._replace(only_tightens=True, trusted=False)


def _is_there(path: str) -> bool:
    """True when something is at the path. A broken link and a folder without access are not the same as no file."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        pass
    return True


def _text(path: str) -> str:
    try:
        data = read_regular(path, _POLICY_BYTES, follow=True)
        if len(data) > _POLICY_BYTES:
            raise OSError(f"it has more than {_POLICY_BYTES} bytes")
        return data.decode()
    except (OSError, UnicodeDecodeError) as error:
        why = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else _reason(error, path)
        raise ConfigError(
            f"The policy {path} cannot be read: {why}.", code="policy-unreadable", hint="Nothing runs without it."
        ) from error


def _reason(error: OSError, path: str) -> str:
    if isinstance(error, FileNotFoundError) and os.path.islink(path):
        return f"it is a link to {os.readlink(path)[:200]}, which is not there"
    return error.strerror.lower() if error.strerror else str(error).partition(": ")[0]


def unknown_tools(rules: Sequence[Rules], known: Sequence[str]) -> list[str]:
    """Lists rules about tools that do not exist: they match nothing, and a typing mistake would not be noticed."""
    names = {*TOOLS, *CAPABILITIES, *known}
    return [
        f"Rule {rule.number} of {rule.path} names a tool that is not known here: {describe_unknown(tool, known=known)}."
        for each in rules
        for rule in each.rules
        for tool in rule.tools
        if tool not in names and "*" not in tool and "?" not in tool and not tool.startswith("mcp__")
    ]


# --- trust that was revoked during a run ------------------------------------------------------------------------------

_RUNNING = (*STEERING_TOOLS, *sorted(CAPABILITIES))
# Settings of an open workspace cannot be changed, so nothing more runs in it.
_OPENED_WITH = (*(f"workspace.{name}" for name in WorkspaceConfig._fields), "secrets")


def _taken_back(runtime: Runtime) -> list[Rules]:
    """Returns rules that deny work with skills and settings whose trust was revoked. They can only tighten."""
    if runtime.still_trusted is runtime.trust:
        return []
    path, store = runtime.trust_file.path, runtime.still_trusted.findings
    why = store[0].message if store else "Trust in it was taken back."
    rules = [
        *_about_skills(runtime, f"The place that this skill comes from is not trusted any more. {why}"),
        *_about_settings(runtime, f"{runtime.places.project} is not trusted any more. {why}"),
    ]
    numbered = tuple(rule._replace(number=number, path=path) for number, rule in enumerate(rules, 1))
    return [Rules(numbered, path, only_tightens=True)] if rules else []


def _about_skills(runtime: Runtime, why: str) -> list[PolicyRule]:
    before = {entry.id for entry in runtime.library.catalog if entry.trusted}
    ids = before - {entry.id for entry in runtime.catalog if entry.trusted}
    lost = PolicyRule(0, "", None, "deny", why, ids=frozenset(ids))
    return [lost._replace(verdict="allow", tools=ENDING_TOOLS), lost] if ids else []


def _about_settings(runtime: Runtime, why: str) -> list[PolicyRule]:
    """Returns rules for settings that are stricter without the revoked file.

    These are tools that it switched on, questions that it left out, and everything that was opened with its settings.
    """
    used, now = runtime.config, runtime.trusted_config

    def deny(name: str, *tools: str, **more: Any) -> PolicyRule:
        return PolicyRule(
            0, "", None, "deny", f"{why} Its configuration set {name}; begin a new run.", tools=tools, **more
        )

    rules = [deny(name, *_RUNNING) for name in _OPENED_WITH if attrgetter(name)(used) != attrgetter(name)(now)]
    if used.workspace.host_roots != now.workspace.host_roots:
        rules.append(deny("workspace.host_roots", *PATH_ARGUMENTS, paths=("/**", "host:/**")))
    if used.workspace.network_allow != now.workspace.network_allow:
        rules.append(deny("workspace.network_allow", *URL_ARGUMENTS))
    if off := enabled_tools(used.tools.enable) - enabled_tools(now.tools.enable):
        rules.append(deny("tools.enable", *sorted(off)))
    if asked := {*now.execution.require_approval_for} - {*used.execution.require_approval_for}:
        tools = tuple(tool for name in sorted(asked) for tool in canonical_tools(name))
        rules.append(PolicyRule(0, "", None, "ask", why, tools=tools))
    return rules
