"""Parses `.agent/policy.toml` and matches its rules: the first rule that matches decides.

    [[rule]]
    tool = "Bash"                      # a Prowess tool or an alias, `*` allowed; or a list
    command = ["git push", "git tag"]  # beginnings of commands
    skill = "release*"                 # by id or name
    source = "project"
    verdict = "ask"                    # allow | ask | deny
    why = "A push cannot be taken back."
    matches = ["git push origin main"]
    misses = ["git status"]

A rule that allows matches only what is certain: one simple command, a plain path. A rule that asks or denies also
matches what is possible: a line that mentions its words, or a text that cannot be read for certain. Each rule is
checked against its own examples. A rule that fails them, or that no call can match, is refused.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, NoReturn, get_args

from prowess._internal.toml_lines import parse_toml
from prowess.core.catalog_values import Finding
from prowess.core.tool_table import COMMAND_TOOLS, PATH_ARGUMENTS
from prowess.core.values import Located, Source, Verdict
from prowess.errors import ConfigError
from prowess.policy.allowed_tools import canonical_tools
from prowess.policy.call_arguments import Misfit, find_default, find_misfit
from prowess.policy.commands.rules import (
    CommandRule,
    FindProgram,
    Fit,
    certainly_fits,
    may_fit,
    parse_command_rule,
    starts_anything,
    without_options,
)
from prowess.policy.globs import match_anything, match_path, match_word
from prowess.policy.path_match import fits_path
from prowess.policy.url_match import fits_url, urls_like

SCHEMA = "prowess.policy/1"
_KEYS = ("tool", "args", "skill", "source", "path", "command", "verdict", "why", "matches", "misses")
_CRITERIA = ("tool", "args", "skill", "source", "path", "command")
_EXAMPLE_KEYS = ("tool", "args", "skill", "source", "command", "path")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_HEADER = re.compile(r"^[ \t]*\[\[[ \t]*[\"']?rule[\"']?[ \t]*\]\]", re.MULTILINE)
# Limits: the file may come from anyone, and every call is checked against all of it.
_MOST_RULES, _MOST_TEXTS, _LONGEST = 1_000, 10_000, 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyQuery:
    """Question to the policy: one call of a tool, or a capability such as `install_dependencies`."""

    tool: str
    args: Mapping[str, Any] = field(default_factory=dict)
    skill: str | None = None  # id of the skill that the call names; None: it names none
    source: Source | None = None
    trusted: bool = False  # the skill's source is trusted
    touches: tuple[tuple[str, str | None], ...] = ()  # skills (id, source) whose files it reads without naming them
    digests: tuple[str, ...] = ()  # content of the loaded skills that it names or reads
    kind: Literal["call", "capability"] = "call"


class PolicyRule(NamedTuple):
    number: int  # starts at 1
    path: str
    line: int | None
    verdict: Verdict
    why: str
    tools: tuple[str, ...] = ()
    args: tuple[tuple[str, tuple[str, ...]], ...] = ()
    skills: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    commands: tuple[CommandRule, ...] = ()
    ids: frozenset[str] = frozenset()  # exactly these skills, any number of them; only in rules made by Prowess itself

    @property
    def label(self) -> str:
        """Label of the rule in decisions: `rule:3 .agent/policy.toml:12`."""
        return f"rule:{self.number} {self.path}" + (f":{self.line}" if self.line else "")


class Rules(NamedTuple):
    """Rules of one file. With `only_tightens` they can only make a decision stricter."""

    rules: tuple[PolicyRule, ...] = ()
    path: str = ""
    only_tightens: bool = False
    trusted: bool = True  # False: from an untrusted folder, so its texts are not shown
    problem: Finding | None = None  # why no rule of an untrusted file is in force
    denied_digests: frozenset[str] = frozenset()  # content of skills that is neither installed, loaded nor run


def parse_rules(text: str, path: str) -> Rules:
    """Parses the rules of a file and checks each against its own examples. Raises ConfigError with file and line."""
    try:
        table = parse_toml(text)
    except (RecursionError, ValueError) as error:
        raise ConfigError(
            f"{path} is not TOML: {error}."[:300], code="policy-invalid", hint="Correct the line named in the message."
        ) from error
    for name in table:
        if name not in ("rule", "schema", "denied_digests"):
            _check_key(name, ("rule", "schema", "denied_digests"), path, _find_line(text, name))
    if table.get("schema", SCHEMA) != SCHEMA:
        _refuse(path, _find_line(text, "schema"), f'schema is not "{SCHEMA}"', "This version cannot read it.")
    found = table.get("rule", [])
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        _refuse(path, _find_line(text, "rule"), "rule is not a list of tables", "Write [[rule]] above each one.")
    if len(found) > _MOST_RULES:
        _refuse(path, None, f"there are more than {_MOST_RULES} rules", "Use patterns.")
    if _count(found) > _MOST_TEXTS:
        _refuse(path, None, f"the rules have more than {_MOST_TEXTS} texts", "Use patterns that fit more.")
    headers = [text.count("\n", 0, header.start()) + 1 for header in _HEADER.finditer(text)]
    lines = headers if len(headers) == len(found) else [_find_line(text, "rule")] * len(found)
    denied = table.get("denied_digests", [])
    if not isinstance(denied, list) or not all(isinstance(item, str) and _DIGEST.fullmatch(item) for item in denied):
        line = _find_line(text, "denied_digests")
        _refuse(path, line, "denied_digests is not a list of digests", 'Write "sha256:" and 64 hexadecimal digits.')
    rules = tuple(_parse_rule(item, n, path, lines[n - 1]) for n, item in enumerate(found, 1))
    return Rules(rules, path, denied_digests=frozenset(denied))


def unlocated(name: str) -> Located:
    """Default for `find_program`: programs were not looked up, so no rule allows them."""
    return Located(reason=f"Nobody has looked which file '{name[:80]}' leads to.")


def find_rule(rules: Rules, request: PolicyQuery, find_program: FindProgram = unlocated) -> PolicyRule | None:
    """Returns the first rule that matches. `find_program` maps a name to the system file that the run would start."""
    return next((rule for rule in rules.rules if fits(rule, request, find_program)), None)


def allows_anything(rule: PolicyRule) -> list[str]:
    """Lists what a rule allows that may start any program: such commands, or a tool that runs commands without further
    criteria."""
    if rule.verdict != "allow":
        return []
    said = (rule.args, rule.skills, rule.sources, rule.paths, rule.commands)
    tools = [] if any(said) else [tool for tool in COMMAND_TOOLS if any(match_word(name, tool) for name in rule.tools)]
    commands = [f"'{' '.join(each.words)}'" for each in rule.commands if starts_anything(each)]
    return [*commands, *([f"every command of {' and '.join(tools)}"] if tools else [])]


def skipped_options(rule: PolicyRule) -> list[tuple[str, str]]:
    """Returns (command, command without options) where the options are ignored: in rules that ask or deny."""
    if rule.verdict == "allow":
        return []
    left = [(each.words, without_options(each.words)) for each in rule.commands]
    return [(" ".join(words), " ".join(rest)) for words, rest in left if words != rest]


def tightened(rules: Rules) -> Rules:
    """Keeps only rules that ask or deny: a managed file or an untrusted folder may set no others."""
    return rules._replace(rules=tuple(r for r in rules.rules if r.verdict != "allow"), only_tightens=True)


def _is_about(rule: PolicyRule, id: str | None, source: str | None) -> bool:
    """True when the rule is about this skill, or about no skill in particular."""
    if (rule.sources and source not in rule.sources) or (rule.ids and id not in rule.ids):
        return False
    return not rule.skills or any(_fits_skill(pattern, id) for pattern in rule.skills)


def fits(rule: PolicyRule, request: PolicyQuery, find_program: FindProgram = unlocated) -> bool:
    return fit(rule, request, find_program).fits


def fit(rule: PolicyRule, request: PolicyQuery, find_program: FindProgram = unlocated) -> Fit:
    """Matches every criterion. An unclear case matches a rule that asks or denies, and never one that allows."""
    strict = rule.verdict == "allow"
    if rule.tools and not any(match_word(name, request.tool) for name in rule.tools):
        return Fit(False)
    touched = () if strict else request.touches
    if not any(_is_about(rule, id, source) for id, source in ((request.skill, request.source), *touched)):
        return Fit(False)
    if not all(_fits_argument(name, patterns, _said(request, name), strict) for name, patterns in rule.args):
        return Fit(False)
    if rule.paths and not fits_path(rule.paths, request.tool, request.args, strict=strict):
        return Fit(False)
    if not rule.commands or request.tool not in COMMAND_TOOLS:
        return Fit(not rule.commands)
    if not strict:
        return may_fit(rule.commands, request.args)
    names_folder = any(name == "cwd" for name, _ in rule.args)
    words = [each.words for each in rule.commands]
    return certainly_fits(words, request.args, find_program, names_folder=names_folder)


def _fits_skill(pattern: str, skill: str | None) -> bool:
    if skill is None:
        return False
    return match_anything(pattern, skill) or match_anything(pattern, skill.partition(":")[2])


def _said(request: PolicyQuery, name: str) -> Any:
    """Returns the argument of the call, or its default: a request without a method is a GET."""
    value = request.args.get(name)
    return find_default(request.tool, name) if value is None else value


def _fits_argument(name: str, patterns: Sequence[str], value: Any, strict: bool) -> bool:
    if isinstance(value, (list, tuple)):
        each = [_fits_argument(name, patterns, item, strict) for item in value]
        return bool(each) and (all(each) if strict else any(each))
    if isinstance(value, bool):
        value = "true" if value else "false"
    if not isinstance(value, (str, int, float)):
        return value is not None and not strict  # a table: it may be what the rule means
    if name == "url":
        return fits_url(patterns, str(value), strict=strict)
    return any(match_anything(pattern, str(value)) for pattern in patterns)


# --- reading one rule -----------------------------------------------------------------------------------------------


def _parse_rule(item: Mapping[str, Any], number: int, path: str, line: int | None) -> PolicyRule:
    for name in item:
        if name not in _KEYS:
            _check_key(name, _KEYS, path, line)
    if item.get("verdict") not in get_args(Verdict):
        said = f"has {item['verdict']!r}, which is no verdict" if "verdict" in item else "has no verdict"
        _refuse(path, line, f"rule {number} {said[:80]}", "Write: verdict = allow, ask or deny.")
    if not any(name in item for name in _CRITERIA):
        _refuse(path, line, f"rule {number} has no criterion", f"Add one of {', '.join(_CRITERIA)}.")
    texts = {n: _texts(item, n, number, path, line) for n in ("tool", "skill", "source", "path", "command")}
    for source in texts["source"]:
        if source not in get_args(Source):
            _refuse(
                path, line, f"rule {number} has the unknown source '{source}'", f"Use {', '.join(get_args(Source))}."
            )
    arguments = item.get("args", {})
    if not isinstance(arguments, dict):
        _refuse(path, line, f"args of rule {number} is not a table", 'Write: args = {url = "https://…*"}.')
    why = item.get("why", "")
    if not isinstance(why, str):
        _refuse(path, line, f"why of rule {number} is not a text", "Write one sentence.")
    commands = []
    for text in texts["command"]:
        command = parse_command_rule(text)
        if isinstance(command, str):
            _refuse(path, line, f"command '{text[:60]}' of rule {number}: {command}", "Write how the command begins.")
        commands.append(command)
    rule = PolicyRule(
        number=number,
        path=path,
        line=line,
        verdict=item["verdict"],
        why=why.strip(),
        tools=tuple(dict.fromkeys(tool for name in texts["tool"] for tool in canonical_tools(name))),
        args=tuple((name, _texts(arguments, name, number, path, line)) for name in arguments),
        skills=texts["skill"],
        sources=texts["source"],
        paths=texts["path"],
        commands=tuple(commands),
    )
    if misfit := _find_misfit(rule, texts["tool"]):
        raise ConfigError(
            f"{_place(path, line)}: rule {number} can never fit: {_printable(misfit.problem)}.",
            code="rule-unreachable",
            hint=_printable(misfit.hint),
        )
    _check_examples(rule, item)
    return rule


def _find_misfit(rule: PolicyRule, named: Sequence[str]) -> Misfit | None:
    """Returns the reason why no call can match the rule, or None. Such a rule would have no effect."""
    found = find_misfit(
        named,
        rule.tools,
        dict(rule.args),
        command=bool(rule.commands),
        paths=rule.paths,
        about_skill=[name for name, asked in (("skill", rule.skills), ("source", rule.sources)) if asked],
        allows=rule.verdict == "allow",
    )
    of = {pattern.partition(":")[0] if ":" in pattern else "" for pattern in rule.skills}
    if found is None and rule.sources and of and of <= {*get_args(Source)} - {*rule.sources}:
        return Misfit("skill and source fit no call together", "The id of a skill begins with its source.")
    if found is not None or rule.verdict != "allow":
        return found
    if rule.paths and not any(match_path(pattern, path) for pattern in rule.paths for path in _paths_like(pattern)):
        hint = "Write it without '..', backslashes and control characters."
        return Misfit("what allows has to be certain, and no plain path is like that", hint)
    urls = dict(rule.args).get("url", ())
    if urls and not any(fits_url(urls, text, strict=True) for url in urls for text in urls_like(url)):
        hint = "Write it as it is asked for: without a user, '..', '//', '#', and nothing encoded that need not be."
        return Misfit("what allows has to be certain, and no plain URL is like that", hint)
    if rule.commands and not any(
        certainly_fits([each.words], {"command": text}, _anywhere).fits
        for each in rule.commands
        for text in _commands_like(each)
    ):
        hint = "Name a program of the system, or a file of the skill below its folder that no run can change."
        return Misfit("what allows has to be certain, and no such command is", hint)
    return None


def _anywhere(name: str) -> Located:
    """Locates every program: rules and examples are independent of the machine."""
    return Located(name)


def _paths_like(pattern: str) -> tuple[str, ...]:
    return _filled(pattern), f"{_filled(pattern)}a", "."  # `docs/` means everything below it


def _commands_like(command: CommandRule) -> Iterator[str]:
    text = shlex.join(map(_filled, command.words))
    yield from (text, f"{text} a", f"{text} {text}", shlex.join(command.words))


def _filled(pattern: str) -> str:
    """Returns a text that the pattern matches, in the usual case."""
    return re.sub(r"\*+|\?", "a", re.sub(r"(?<!\*)\*\*++/", "", pattern))


def _check_examples(rule: PolicyRule, item: Mapping[str, Any]) -> None:
    for key, wanted in (("matches", True), ("misses", False)):
        examples = item.get(key, [])
        if not isinstance(examples, list):
            _refuse(rule.path, rule.line, f"{key} of rule {rule.number} is not a list", "Put the examples in brackets.")
        for example in examples:
            request = _example_request(rule, example)
            if fits(rule, request, _anywhere) is not wanted:
                raise ConfigError(
                    f"{_place(rule.path, rule.line)}: rule {rule.number} {'misses' if wanted else 'matches'} its own "
                    f"example of what it {key}: {_shown(example)}.",
                    code="policy-example",
                    hint="Correct the rule or the example; until then the rule does not do what it says."
                    + (" Options in a rule that asks or denies are skipped." if skipped_options(rule) else ""),
                )


def _example_request(rule: PolicyRule, example: Any) -> PolicyQuery:
    """Makes a call from an example. A text is a command if the rule has commands, a path if it has paths, else the name
    of a tool. Missing parts are taken from the rule where it states them without wildcards."""
    given: dict[str, Any] = dict(example) if isinstance(example, dict) else {}
    if isinstance(example, str):
        given["command" if rule.commands else "path" if rule.paths else "tool"] = example
    elif not isinstance(example, dict):
        _refuse(rule.path, rule.line, f"an example of rule {rule.number} is not a text or a table", "Use one of them.")
    for name in given:
        if name not in _EXAMPLE_KEYS:
            _check_key(name, _EXAMPLE_KEYS, rule.path, rule.line)
    usual = "skill_run" if rule.commands else "read_file" if rule.paths else "skill_run"
    plain = [name for name in rule.tools if "*" not in name]
    tool = canonical_tools(str(given.get("tool") or (plain[0] if plain else usual)))[0]
    args = dict(given["args"]) if isinstance(given.get("args"), dict) else {}
    if "command" in given:
        args["command"] = given["command"]
    if "path" in given:
        args[PATH_ARGUMENTS.get(tool, "path")] = given["path"]
    skill = given.get("skill") or next((name for name in rule.skills if "*" not in name and "?" not in name), None)
    source: Any = given.get("source") or (rule.sources[0] if rule.sources else None)
    return PolicyQuery(tool=tool, args=args, skill=skill, source=source)


def _texts(item: Mapping[str, Any], name: str, number: int, path: str, line: int | None) -> tuple[str, ...]:
    value = item.get(name, [])
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
        _refuse(path, line, f"{name} of rule {number} is neither a text nor a list of texts", f'Write: {name} = "…".')
    if any(len(text) > _LONGEST for text in texts):
        _refuse(path, line, f"{name} of rule {number} is longer than {_LONGEST} characters", "Use a pattern.")
    if name in item and not texts:
        _refuse(path, line, f"{name} of rule {number} is empty", "Remove it, or say what fits.")
    return tuple(texts)


def _count(value: Any) -> int:
    """Counts texts and numbers at any depth."""
    items = value.values() if isinstance(value, dict) else value
    return sum(map(_count, items)) if isinstance(value, (dict, list)) else 1


def _find_line(text: str, name: str) -> int | None:
    found = re.search(rf"^[ \t]*+\[*+[ \t]*+[\"']?{re.escape(name)}\b", text, re.MULTILINE)
    return text.count("\n", 0, found.start()) + 1 if found else None


def _check_key(name: str, known: Sequence[str], path: str, line: int | None) -> NoReturn:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"Did you mean '{near[0]}'?" if near else f"There are: {', '.join(known)}."
    _refuse(path, line, f"unknown key '{name[:60]}'", hint)


def _refuse(path: str, line: int | None, problem: str, hint: str) -> NoReturn:
    raise ConfigError(f"{_place(path, line)}: {_printable(problem)}.", code="policy-invalid", hint=hint)


def _place(path: str, line: int | None) -> str:
    return f"{path}:{line}" if line else path


def _shown(example: Any) -> str:
    text = _printable(str(example))
    return text if len(text) <= 120 else text[:117] + "…"


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)
