"""Reads a skill's `allowed-tools`. The list restricts calls while the skill is in use; it grants nothing.

An entry is the name of a Prowess tool, an alias from another system, a name with `*`, or a name with a pattern in
parentheses: `Bash(git add:*)`, `Read(docs/**)`, `WebFetch(domain:example.com)`. An entry that names no known tool
allows nothing and is reported. A call that does not match for certain is not allowed.
"""

from __future__ import annotations

import difflib
import posixpath
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

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
from prowess.policy.globs import match_path, match_some_word, match_word

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
    tools: tuple[str, ...]  # Prowess or foreign names; a name with `*` is a pattern. The last one is as written
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
    unknown: dict[str, None] = {}
    for entry in patterns:
        rule = _parse_entry(entry.strip())
        if rule is not None:
            rules.append(rule)
        if rule is None or not _names_a_tool(rule, known):
            unknown[entry] = None
    return AllowedTools(tuple(rules), tuple(unknown))


def allows(allowed: AllowedTools, tool: str, args: Mapping[str, Any]) -> bool:
    """True when the list allows this call. `tool` is the Prowess name: aliases are already resolved."""
    if tool in NEVER_NARROWED:
        return True
    rules = [rule for rule in allowed.rules if match_some_word(rule.tools, tool)]
    if any(rule.kind == "any" for rule in rules):
        return True
    if tool in COMMAND_TOOLS:
        return _allows_command(rules, args)
    if tool in SESSION_TOOLS:  # a session exists only if its command was allowed
        return bool(rules)
    if tool in PATH_ARGUMENTS:
        name = PATH_ARGUMENTS[tool]
        path = args.get(name, TOOLS[tool].arguments[name].default)
        return _allows_path(rules, path)
    if tool in URL_ARGUMENTS:
        url = args.get(URL_ARGUMENTS[tool])
        return _allows_url(rules, url)
    return False


def grants_all(allowed: AllowedTools, tool: str) -> bool:
    """True when the list names the tool without a pattern."""
    without_pattern = [rule for rule in allowed.rules if rule.kind == "any"]
    return any(match_some_word(rule.tools, tool) for rule in without_pattern)


def granted_words(allowed: AllowedTools, tool: str, args: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Returns the words of each entry that describes this command: what the list grants when a person lets it grant.

    Session tools get nothing here: a pattern says nothing about the input of a running program.
    """
    written = command_words(args)
    granted: list[tuple[str, ...]] = []
    for rule in allowed.rules:
        if rule.kind == "command" and tool in rule.tools and _describes_one(rule, written):
            granted.append(rule.words)
    return granted


def describe_unknown(entry: str, *, known: Collection[str] = ()) -> str:
    """Returns the entry with a suggestion: the nearest name, or the right form of its pattern."""
    name, parenthesis, _ = entry.partition("(")
    name = name.strip()
    ours = canonical_tools(name)[0]
    if parenthesis and ours in TOOLS:
        example = _WRITTEN[_pattern_kind(ours)]
        return f"{entry} (write {example.format(name)})"
    names = {each.casefold(): each for each in (*known, *sorted(TOOLS), *ALIASES)}
    near = difflib.get_close_matches(name.casefold(), names, n=1, cutoff=0.6)
    if not near:
        return entry
    return f"{entry} (nearest: {names[near[0]]})"


def _pattern_kind(tool: str) -> str:
    if tool in COMMAND_TOOLS:
        return "command"
    if tool in PATH_ARGUMENTS:
        return "path"
    return "host"


def allows_any(lists: Iterable[AllowedTools], tool: str, args: Mapping[str, Any]) -> bool:
    """True when one of the lists allows the call."""
    return any(allows(allowed, tool, args) for allowed in lists)


def canonical_tools(name: str) -> tuple[str, ...]:
    """Returns the Prowess tools for a name; a call becomes the first one. A name that is no alias is returned as it
    is."""
    if name in TOOLS:
        return (name,)
    return _BY_FOLDED_NAME.get(name.casefold(), (name,))


def match_host(pattern: str, host: str) -> bool:
    """True when a pattern fits a host: `example.com` is that host, `*.example.com` every host below it, `*` every
    host."""
    pattern = pattern.lower()
    if pattern == "*":
        return True
    if not pattern.startswith("*."):
        return host == pattern
    ending = pattern[1:]
    return host.endswith(ending) and host != ending


def find_host(url: Any) -> str | None:
    """Returns the host that a request really goes to, or None when URL parsers could disagree about it."""
    if not isinstance(url, str):
        return None
    from prowess._internal.urls import NotAHost, parse_url_target

    try:
        return parse_url_target(url).host
    except NotAHost:
        return None


def command_words(args: Mapping[str, Any], *, plain: bool = False) -> list[tuple[str, ...]]:
    """Returns the ways to write a skill_run call as one simple command; [] when it is none. `plain` also refuses words
    that a shell would expand."""
    script = args.get("script")
    command = args.get("command")
    if isinstance(command, str) and script is None:
        return _words_of_command(command, plain=plain)
    more = args.get("args") or ()
    if isinstance(script, str) and command is None and isinstance(more, (list, tuple)):
        return _words_of_script(script, more)
    return []


def _words_of_command(command: str, *, plain: bool) -> list[tuple[str, ...]]:
    split = split_command(command)
    if isinstance(split, NotSimple):
        return []
    if plain and split.notes:
        return []
    return [split.argv]


def _words_of_script(script: str, more: Sequence[object]) -> list[tuple[str, ...]]:
    """Returns the script started directly, and by each interpreter for its suffix."""
    # A file of the skill is never looked up on the PATH.
    program = script if "/" in script else f"./{script}"
    words = (program, *map(str, more))
    suffix = posixpath.splitext(script)[1]
    written = [words]
    for interpreter in _INTERPRETERS.get(suffix, ()):
        written.append((interpreter, *words))
    return written


def _parse_entry(entry: str) -> AllowRule | None:
    found = _ENTRY.fullmatch(entry)
    if not found:
        return None
    name = found[1]
    ours = canonical_tools(name)
    tools = tuple(dict.fromkeys((*ours, name)))  # the caller may have given a tool of this name
    if found[2] is None or set(ours) <= NEVER_NARROWED:
        return AllowRule(entry, tools)
    pattern = found[2].strip()
    if pattern == "*":
        return AllowRule(entry, tools)
    if not pattern or "*" in name:
        return None
    if tools[0] in COMMAND_TOOLS:
        is_script = name.casefold() == "run_script"
        return _parse_command(entry, tools, pattern, is_script=is_script)
    if tools[0] in PATH_ARGUMENTS:
        return AllowRule(entry, tools, "path", pattern=pattern)
    if tools[0] in URL_ARGUMENTS and pattern.startswith("domain:"):
        host = pattern.removeprefix("domain:").strip()
        return AllowRule(entry, tools, "host", pattern=host)
    return None


def _parse_command(entry: str, tools: tuple[str, ...], pattern: str, *, is_script: bool) -> AllowRule | None:
    """Parses a command pattern. `git add:*` and `git add *` match the beginning of a command, word by word; `git add`
    matches only the whole command."""
    begins = pattern.endswith((":*", " *"))
    text = pattern[:-2] if begins else pattern
    if begins and text in ("", "*"):
        return AllowRule(entry, tools)
    command = split_command(text)
    if isinstance(command, NotSimple):
        return None
    words = command.argv
    if is_script and "/" not in words[0]:
        words = (f"./{words[0]}", *words[1:])
    return AllowRule(entry, tools, "command", words=words, prefix=is_script or begins)


def _names_a_tool(rule: AllowRule, known: Collection[str]) -> bool:
    for name in rule.tools:
        if name.startswith("mcp__"):
            return True
        if any(match_word(name, tool) for tool in (*TOOLS, *known)):
            return True
    return False


def is_own_folder(cwd: Any) -> bool:
    """True when a command starts in its skill's own folder."""
    if not cwd:
        return True
    return isinstance(cwd, str) and posixpath.normpath(cwd) == "."


def _allows_command(rules: Sequence[AllowRule], args: Mapping[str, Any]) -> bool:
    """True when an entry describes the command and the call sets no risky variable. A list restricts by name only: a
    program with that name which the skill installed itself is allowed too."""
    if find_unlisted(args.get("env") or {}):
        return False
    written = command_words(args)
    of_commands = [rule for rule in rules if rule.kind == "command"]
    return any(_describes_one(rule, written) for rule in of_commands)


def _allows_path(rules: Sequence[AllowRule], path: Any) -> bool:
    if not isinstance(path, str):
        return False
    patterns = [rule.pattern for rule in rules if rule.kind == "path"]
    return any(match_path(pattern, path) for pattern in patterns)


def _allows_url(rules: Sequence[AllowRule], url: Any) -> bool:
    host = find_host(url)
    if host is None:
        return False
    patterns = [rule.pattern for rule in rules if rule.kind == "host"]
    return any(match_host(pattern, host) for pattern in patterns)


def _describes_one(rule: AllowRule, written: Sequence[tuple[str, ...]]) -> bool:
    """True when the entry describes one of the ways to write a command."""
    return any(_describes(rule, words) for words in written)


def _describes(rule: AllowRule, words: tuple[str, ...]) -> bool:
    if not begins_with(words, rule.words):
        return False
    return rule.prefix or len(words) == len(rule.words)
