"""Reads a skill's `allowed-tools`. The list restricts calls while the skill is in use; it grants nothing.

An entry is the name of a Prowess tool, an alias from another system, a name with `*`, or a name with a pattern in
parentheses: `Bash(git add:*)`, `Read(docs/**)`, `WebFetch(domain:example.com)`. An entry that names no known tool
allows nothing and is reported. A call that does not match for certain is not allowed.
"""

from __future__ import annotations

import difflib
import posixpath
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from prowess._internal.urls import NotAHost, parse_url_target
from prowess.core.tool_table import (
    ALIASES,
    COMMAND_TOOLS,
    NEVER_NARROWED,
    PATH_ARGUMENTS,
    SESSION_TOOLS,
    TOOLS,
    URL_ARGUMENTS,
)
from prowess.policy.commands.check import begins_with
from prowess.policy.commands.env_names import find_unlisted
from prowess.policy.commands.parse import NotSimple, split_command
from prowess.policy.globs import match_path, match_word

_BY_FOLDED_NAME = {name.casefold(): tools for name, tools in ALIASES.items()}
_WRITTEN = {"command": "{}(git status:*)", "path": "{}(docs/**)", "host": "{}(domain:example.com)"}
_ENTRY = re.compile(r"([^()\s]+)(?:\((.*)\))?", re.DOTALL)
# Interpreters with which a script of the skill may be written as a command.
_INTERPRETERS = {
    ".py": ("python3", "python"),
    ".sh": ("bash", "sh"),
    ".bash": ("bash",),
    ".js": ("node",),
    ".mjs": ("node",),
    ".cjs": ("node",),
    ".rb": ("ruby",),
    ".pl": ("perl",),
    ".php": ("php",),
    ".lua": ("lua",),
    ".r": ("Rscript",),
    ".R": ("Rscript",),
    **dict.fromkeys((".ts", ".mts", ".cts"), ("node", "tsx", "bun", "deno")),
    ".ps1": ("pwsh",),
}


class AllowRule(NamedTuple):
    """Parsed entry: its tools, and a pattern for their calls."""

    entry: str
    tools: tuple[str, ...]  # Prowess or foreign names; a name with `*` is a pattern
    kind: Literal["any", "command", "path", "host"] = "any"
    words: tuple[str, ...] = ()  # the words of a command
    prefix: bool = False  # more words may follow
    pattern: str = ""  # for a path or a host


class AllowedTools(NamedTuple):
    """Parsed list. `unknown` holds the entries that name no known tool; they allow no Prowess tool."""

    rules: tuple[AllowRule, ...] = ()
    unknown: tuple[str, ...] = ()


def parse_allowed(patterns: Sequence[str], *, known: Collection[str] = ()) -> AllowedTools:
    """Parses a list. `known` are further tools, from MCP servers and plugins, which are not reported as unknown."""
    rules: list[AllowRule] = []
    unknown: list[str] = []
    for entry in patterns:
        rule = _parse_entry(entry.strip())
        if rule is not None:
            rules.append(rule)
        if rule is None or not _names_a_tool(rule, known):
            unknown.append(entry)
    return AllowedTools(tuple(rules), tuple(dict.fromkeys(unknown)))


def allows(allowed: AllowedTools, tool: str, args: Mapping[str, Any]) -> bool:
    """True when the list allows this call. `tool` is the Prowess name: aliases are already resolved."""
    if tool in NEVER_NARROWED:
        return True
    rules = [rule for rule in allowed.rules if any(match_word(name, tool) for name in rule.tools)]
    if any(rule.kind == "any" for rule in rules):
        return True
    if tool in COMMAND_TOOLS:
        return _allows_command([rule for rule in rules if rule.kind == "command"], args)
    if tool in SESSION_TOOLS:  # a session exists only if its command was allowed
        return bool(rules)
    if tool in PATH_ARGUMENTS:
        name = PATH_ARGUMENTS[tool]
        path = args.get(name, TOOLS[tool].arguments[name].default)
        return isinstance(path, str) and any(match_path(rule.pattern, path) for rule in rules if rule.kind == "path")
    if tool in URL_ARGUMENTS:
        host = find_host(args.get(URL_ARGUMENTS[tool]))
        return host is not None and any(match_host(rule.pattern, host) for rule in rules if rule.kind == "host")
    return False


def grants_all(allowed: AllowedTools, tool: str) -> bool:
    """True when the list names the tool without a pattern."""
    return any(rule.kind == "any" and any(match_word(name, tool) for name in rule.tools) for rule in allowed.rules)


def granted_words(allowed: AllowedTools, tool: str, args: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Returns the words of each entry that describes this command: what the list grants when a person lets it grant.

    Session tools get nothing here: a pattern says nothing about the input of a running program.
    """
    rules = [rule for rule in allowed.rules if rule.kind == "command" and tool in rule.tools]
    return [rule.words for rule in rules if any(_describes(rule, words) for words in command_words(args))]


def describe_unknown(entry: str, *, known: Collection[str] = ()) -> str:
    """Returns the entry with a suggestion: the nearest name, or the right form of its pattern."""
    name, parenthesis, _ = entry.partition("(")
    ours = canonical_tools(name.strip())[0]
    if parenthesis and ours in TOOLS:
        kind = "command" if ours in COMMAND_TOOLS else "path" if ours in PATH_ARGUMENTS else "host"
        return f"{entry} (write {_WRITTEN[kind].format(name.strip())})"
    names = {each.casefold(): each for each in (*known, *sorted(TOOLS), *ALIASES)}
    near = difflib.get_close_matches(name.strip().casefold(), names, n=1, cutoff=0.6)
    return f"{entry} (nearest: {names[near[0]]})" if near else entry


def allows_any(lists: Sequence[AllowedTools], tool: str, args: Mapping[str, Any]) -> bool:
    """True when one of the lists allows the call, or when there are no lists."""
    return not lists or any(allows(allowed, tool, args) for allowed in lists)


def canonical_tools(name: str) -> tuple[str, ...]:
    """Returns the Prowess tools for a name; a call becomes the first one. A name that is no alias is returned as it
    is."""
    return (name,) if name in TOOLS else _BY_FOLDED_NAME.get(name.casefold(), (name,))


def match_host(pattern: str, host: str) -> bool:
    """True when a pattern fits a host: `example.com` is that host, `*.example.com` every host below it, `*` every
    host."""
    pattern = pattern.lower()
    if pattern == "*":
        return True
    return host.endswith(pattern[1:]) and host != pattern[1:] if pattern.startswith("*.") else host == pattern


def find_host(url: Any) -> str | None:
    """Returns the host that a request really goes to, or None when URL parsers could disagree about it."""
    try:
        return parse_url_target(url).host if isinstance(url, str) else None
    except NotAHost:
        return None


def command_words(args: Mapping[str, Any], *, plain: bool = False) -> list[tuple[str, ...]]:
    """Returns the ways to write a skill_run call as one simple command; [] when it is none. `plain` also refuses words
    that a shell would expand."""
    script, command = args.get("script"), args.get("command")
    if isinstance(command, str) and script is None:
        split = split_command(command)
        return [] if isinstance(split, NotSimple) or (plain and split.notes) else [split.argv]
    more = args.get("args") or ()
    if not isinstance(script, str) or command is not None or not isinstance(more, (list, tuple)):
        return []
    # A file of the skill is never looked up on the PATH.
    words = (script if "/" in script else f"./{script}", *map(str, more))
    interpreters = _INTERPRETERS.get(posixpath.splitext(script)[1], ())
    return [words, *((interpreter, *words) for interpreter in interpreters)]


def _parse_entry(entry: str) -> AllowRule | None:
    found = _ENTRY.fullmatch(entry)
    if not found:
        return None
    name, pattern = found[1], found[2]
    tools = canonical_tools(name)
    if pattern is None or pattern.strip() == "*" or set(tools) <= NEVER_NARROWED:
        return AllowRule(entry, tools)
    pattern = pattern.strip()
    if not pattern or "*" in name:
        return None
    if tools[0] in COMMAND_TOOLS:
        return _parse_command(entry, tools, pattern, is_script=name.casefold() == "run_script")
    if tools[0] in PATH_ARGUMENTS:
        return AllowRule(entry, tools, "path", pattern=pattern)
    if tools[0] in URL_ARGUMENTS and pattern.startswith("domain:"):
        return AllowRule(entry, tools, "host", pattern=pattern.removeprefix("domain:").strip())
    return None


def _parse_command(entry: str, tools: tuple[str, ...], pattern: str, *, is_script: bool) -> AllowRule | None:
    """Parses a command pattern. `git add:*` and `git add *` match the beginning of a command, word by word; `git add`
    matches only the whole command."""
    text = next((pattern.removesuffix(end) for end in (":*", " *") if pattern.endswith(end)), None)
    if text in ("", "*"):
        return AllowRule(entry, tools)
    command = split_command(pattern if text is None else text)
    if isinstance(command, NotSimple):
        return None
    words = command.argv if not is_script or "/" in command.argv[0] else (f"./{command.argv[0]}", *command.argv[1:])
    return AllowRule(entry, tools, "command", words=words, prefix=is_script or text is not None)


def _names_a_tool(rule: AllowRule, known: Collection[str]) -> bool:
    return any(
        name.startswith("mcp__") or any(match_word(name, tool) for tool in (*TOOLS, *known)) for name in rule.tools
    )


def is_own_folder(cwd: Any) -> bool:
    """True when a command starts in its skill's own folder."""
    return not cwd or (isinstance(cwd, str) and posixpath.normpath(cwd) == ".")


def _allows_command(rules: Sequence[AllowRule], args: Mapping[str, Any]) -> bool:
    """True when an entry describes the command and the call sets no risky variable. A list restricts by name only: a
    program with that name which the skill installed itself is allowed too."""
    fits = any(_describes(rule, words) for words in command_words(args) for rule in rules)
    return fits and not find_unlisted(args.get("env") or {})


def _describes(rule: AllowRule, words: tuple[str, ...]) -> bool:
    return begins_with(words, rule.words) and (rule.prefix or len(words) == len(rule.words))
