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

import re
from collections.abc import Mapping, Sequence
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
from prowess.policy.globs import match_anything, match_some_word
from prowess.policy.path_match import fits_path
from prowess.policy.rule_texts import (
    count_texts,
    is_list_of_digests,
    place,
    printable,
    read_texts,
    refuse,
    refuse_key,
    shown,
)

SCHEMA = "prowess.policy/1"
_FILE_KEYS = ("rule", "schema", "denied_digests")
_KEYS = ("tool", "args", "skill", "source", "path", "command", "verdict", "why", "matches", "misses")
_CRITERIA = ("tool", "args", "skill", "source", "path", "command")
_TEXT_KEYS = ("tool", "skill", "source", "path", "command")
_EXAMPLE_KEYS = ("tool", "args", "skill", "source", "command", "path")
_HEADER = re.compile(r"^[ \t]*\[\[[ \t]*[\"']?rule[\"']?[ \t]*\]\]", re.MULTILINE)
# Limits: the file may come from anyone, and every call is checked against all of it.
_MOST_RULES = 1_000
_MOST_TEXTS = 10_000


class PolicyQuery(NamedTuple):
    """Question to the policy: one call of a tool, or a capability such as `install_dependencies`."""

    tool: str
    args: Mapping[str, Any] = {}
    skill: str | None = None  # id of the skill that the call names; None: it names none
    source: Source | None = None
    trusted: bool = False  # the skill's source is trusted
    touches: tuple[tuple[str, str | None], ...] = ()  # skills (id, source) whose files it reads without naming them
    digests: tuple[str, ...] = ()  # content of the loaded skills that it names or reads
    files: tuple[str, ...] = ()  # paths of the files of the skill
    kind: Literal["call", "capability"] = "call"


class PolicyRule(NamedTuple):
    number: int  # starts at 1
    path: str
    line: int | None
    verdict: Verdict
    why: str
    tools: tuple[str, ...] = ()
    aliases: frozenset[str] = frozenset()  # names of `tools` in other systems, as written, in lower case
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
    table = _parse_table(text, path)
    found = table.get("rule", [])
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        refuse(path, _find_line(text, "rule"), "rule is not a list of tables", "Write [[rule]] above each one.")
    if len(found) > _MOST_RULES:
        refuse(path, None, f"there are more than {_MOST_RULES} rules", "Use patterns.")
    if count_texts(found) > _MOST_TEXTS:
        refuse(path, None, f"the rules have more than {_MOST_TEXTS} texts", "Use patterns that fit more.")
    denied = table.get("denied_digests", [])
    if not is_list_of_digests(denied):
        line = _find_line(text, "denied_digests")
        refuse(path, line, "denied_digests is not a list of digests", 'Write "sha256:" and 64 hexadecimal digits.')
    lines = _find_lines(text, len(found))
    rules: list[PolicyRule] = []
    for number, item in enumerate(found, 1):
        rule = _parse_rule(item, number, path, lines[number - 1])
        rules.append(rule)
    return Rules(tuple(rules), path, denied_digests=frozenset(denied))


def _parse_table(text: str, path: str) -> dict[str, Any]:
    try:
        table = parse_toml(text)
    except (RecursionError, ValueError) as error:
        problem = f"{path} is not TOML: {error}."
        hint = "Correct the line named in the message."
        raise ConfigError(problem[:300], code="policy-invalid", hint=hint) from error
    for name in table:
        if name not in _FILE_KEYS:
            refuse_key(name, _FILE_KEYS, path, _find_line(text, name))
    if table.get("schema", SCHEMA) != SCHEMA:
        line = _find_line(text, "schema")
        refuse(path, line, f'schema is not "{SCHEMA}"', "This version cannot read it.")
    return table


def _find_lines(text: str, count: int) -> Sequence[int | None]:
    """Returns the line of each rule; for rules that are not written below headers, the line of the first mention."""
    headers = [_line_at(text, header.start()) for header in _HEADER.finditer(text)]
    if len(headers) == count:
        return headers
    return [_find_line(text, "rule")] * count


def _find_line(text: str, name: str) -> int | None:
    """Returns the line on which a key or a table with this name begins."""
    found = re.search(rf"^[ \t]*+\[*+[ \t]*+[\"']?{re.escape(name)}\b", text, re.MULTILINE)
    if not found:
        return None
    return _line_at(text, found.start())


def _line_at(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def unlocated(name: str) -> Located:
    """Default for `find_program`: programs were not looked up, so no rule allows them."""
    return Located(reason=f"Nobody has looked which file '{name[:80]}' leads to.")


def find_rule(rules: Rules, request: PolicyQuery, find_program: FindProgram = unlocated) -> PolicyRule | None:
    """Returns the first rule that matches. `find_program` maps a name to the system file that the run would start."""
    for rule in rules.rules:
        if fits(rule, request, find_program):
            return rule
    return None


def allows_anything(rule: PolicyRule) -> list[str]:
    """Lists what a rule allows that may start any program: such commands, or a tool that runs commands without further
    criteria."""
    if rule.verdict != "allow":
        return []
    found: list[str] = []
    for command in rule.commands:
        if starts_anything(command):
            words = " ".join(command.words)
            found.append(f"'{words}'")
    if rule.args or rule.skills or rule.sources or rule.paths or rule.commands:
        return found
    tools = [tool for tool in COMMAND_TOOLS if match_some_word(rule.tools, tool)]
    if tools:
        found.append(f"every command of {' and '.join(tools)}")
    return found


def skipped_options(rule: PolicyRule) -> list[tuple[str, str]]:
    """Returns (command, command without options) where the options are ignored: in rules that ask or deny."""
    if rule.verdict == "allow":
        return []
    skipped: list[tuple[str, str]] = []
    for command in rule.commands:
        rest = without_options(command.words)
        if rest != command.words:
            skipped.append((" ".join(command.words), " ".join(rest)))
    return skipped


def tightened(rules: Rules) -> Rules:
    """Keeps only rules that ask or deny: a managed file or an untrusted folder may set no others."""
    kept = [rule for rule in rules.rules if rule.verdict != "allow"]
    return rules._replace(rules=tuple(kept), only_tightens=True)


def _is_about(rule: PolicyRule, id: str | None, source: str | None) -> bool:
    """True when the rule is about this skill, or about no skill in particular."""
    if rule.sources and source not in rule.sources:
        return False
    if rule.ids and id not in rule.ids:
        return False
    if not rule.skills:
        return True
    return any(_fits_skill(pattern, id) for pattern in rule.skills)


def _is_about_one(rule: PolicyRule, request: PolicyQuery) -> bool:
    """True when the rule is about the skill that the call names. A rule that asks or denies may also be about a skill
    whose files the call reads."""
    if _is_about(rule, request.skill, request.source):
        return True
    if rule.verdict == "allow":
        return False
    return any(_is_about(rule, id, source) for id, source in request.touches)


def fits(rule: PolicyRule, request: PolicyQuery, find_program: FindProgram = unlocated) -> bool:
    return fit(rule, request, find_program).fits


def fit(rule: PolicyRule, request: PolicyQuery, find_program: FindProgram = unlocated) -> Fit:
    """Matches every criterion. An unclear case matches a rule that asks or denies, and never one that allows."""
    strict = rule.verdict == "allow"
    is_callers = request.tool.casefold() in rule.aliases  # our own tools were renamed before
    if rule.tools and not is_callers and not match_some_word(rule.tools, request.tool):
        return Fit(False)
    if not _is_about_one(rule, request):
        return Fit(False)
    for name, patterns in rule.args:
        value = _said(request, name)
        if not _fits_argument(name, patterns, value, strict):
            return Fit(False)
    if is_callers and (rule.paths or rule.commands):
        return Fit(not strict, f"{request.tool} is a tool of the caller, so its path or command cannot be read.")
    if rule.paths and not fits_path(rule.paths, request.tool, request.args, strict=strict):
        return Fit(False)
    if not rule.commands or request.tool not in COMMAND_TOOLS:
        return Fit(not rule.commands)
    if not strict:
        return may_fit(rule.commands, request.args)
    names_folder = any(name == "cwd" for name, _ in rule.args)
    words = [each.words for each in rule.commands]
    return certainly_fits(words, request.args, find_program, names_folder=names_folder, files=request.files)


def _fits_skill(pattern: str, skill: str | None) -> bool:
    if skill is None:
        return False
    name = skill.partition(":")[2]
    return match_anything(pattern, skill) or match_anything(pattern, name)


def _said(request: PolicyQuery, name: str) -> Any:
    """Returns the argument of the call, or its default: a request without a method is a GET."""
    value = request.args.get(name)
    if value is None:
        return find_default(request.tool, name)
    return value


def _fits_argument(name: str, patterns: Sequence[str], value: Any, strict: bool) -> bool:
    if isinstance(value, (list, tuple)):
        each = [_fits_argument(name, patterns, item, strict) for item in value]
        if strict:
            return bool(each) and all(each)
        return any(each)
    if value is None:
        return False
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, (str, int, float)):
        text = str(value)
    else:
        return not strict  # a table: it may be what the rule means
    if name == "url":
        from prowess.policy.url_match import fits_url

        return fits_url(patterns, text, strict=strict)
    return any(match_anything(pattern, text) for pattern in patterns)


# --- reading one rule -----------------------------------------------------------------------------------------------


def _parse_rule(item: Mapping[str, Any], number: int, path: str, line: int | None) -> PolicyRule:
    _check_verdict(item, number, path, line)
    texts = {name: read_texts(item, name, number, path, line) for name in _TEXT_KEYS}
    for source in texts["source"]:
        if source not in get_args(Source):
            hint = f"Use {', '.join(get_args(Source))}."
            refuse(path, line, f"rule {number} has the unknown source '{source}'", hint)
    arguments = item.get("args", {})
    if not isinstance(arguments, dict):
        refuse(path, line, f"args of rule {number} is not a table", 'Write: args = {url = "https://…*"}.')
    why = item.get("why", "")
    if not isinstance(why, str):
        refuse(path, line, f"why of rule {number} is not a text", "Write one sentence.")
    commands: list[CommandRule] = []
    for text in texts["command"]:
        command = parse_command_rule(text)
        if isinstance(command, str):
            refuse(path, line, f"command '{text[:60]}' of rule {number}: {command}", "Write how the command begins.")
        commands.append(command)
    tools: dict[str, None] = {}
    aliases: set[str] = set()
    for name in texts["tool"]:
        ours = canonical_tools(name)
        tools.update(dict.fromkeys(ours))
        if name not in ours:
            aliases.add(name.casefold())
    args: list[tuple[str, tuple[str, ...]]] = []
    for name in arguments:
        patterns = read_texts(arguments, name, number, path, line)
        args.append((name, patterns))
    rule = PolicyRule(
        number=number,
        path=path,
        line=line,
        verdict=item["verdict"],
        why=why.strip(),
        tools=tuple(tools),
        aliases=frozenset(aliases),
        args=tuple(args),
        skills=texts["skill"],
        sources=texts["source"],
        paths=texts["path"],
        commands=tuple(commands),
    )
    _check_reachable(rule, texts["tool"])
    _check_examples(rule, item)
    return rule


def _check_verdict(item: Mapping[str, Any], number: int, path: str, line: int | None) -> None:
    """Refuses unknown keys, a missing or unknown verdict, and a rule without criteria."""
    for name in item:
        if name not in _KEYS:
            refuse_key(name, _KEYS, path, line)
    if item.get("verdict") not in get_args(Verdict):
        said = "has no verdict"
        if "verdict" in item:
            said = f"has {item['verdict']!r}, which is no verdict"
        refuse(path, line, f"rule {number} {said[:80]}", "Write: verdict = allow, ask or deny.")
    if not any(name in item for name in _CRITERIA):
        refuse(path, line, f"rule {number} has no criterion", f"Add one of {', '.join(_CRITERIA)}.")


def _check_reachable(rule: PolicyRule, named: Sequence[str]) -> None:
    misfit = _find_misfit(rule, named)
    if misfit is None:
        return
    where = place(rule.path, rule.line)
    raise ConfigError(
        f"{where}: rule {rule.number} can never fit: {printable(misfit.problem)}.",
        code="rule-unreachable",
        hint=printable(misfit.hint),
    )


def _find_misfit(rule: PolicyRule, named: Sequence[str]) -> Misfit | None:
    """Returns the reason why no call can match the rule, or None. Such a rule would have no effect."""
    allows = rule.verdict == "allow"
    arguments = dict(rule.args)
    about_skill: list[str] = []
    if rule.skills:
        about_skill.append("skill")
    if rule.sources:
        about_skill.append("source")
    found = find_misfit(
        named,
        rule.tools,
        arguments,
        command=bool(rule.commands),
        paths=rule.paths,
        about_skill=about_skill,
        allows=allows,
    )
    if found is not None:
        return found
    if _contradict(rule.skills, rule.sources):
        return Misfit("skill and source fit no call together", "The id of a skill begins with its source.")
    if not allows:
        return None
    from prowess.policy.rule_samples import find_uncertain

    return find_uncertain(rule.paths, arguments.get("url", ()), rule.commands)


def _contradict(skills: Sequence[str], sources: Sequence[str]) -> bool:
    """True when every skill is written with a source, and none of these is among the sources of the rule."""
    if not skills or not sources:
        return False
    others = {*get_args(Source)} - {*sources}
    for pattern in skills:
        source, colon, _ = pattern.partition(":")
        if not colon or source not in others:
            return False
    return True


def _check_examples(rule: PolicyRule, item: Mapping[str, Any]) -> None:
    from prowess.policy.rule_samples import locate_anywhere

    for key, wanted in (("matches", True), ("misses", False)):
        examples = item.get(key, [])
        if not isinstance(examples, list):
            refuse(rule.path, rule.line, f"{key} of rule {rule.number} is not a list", "Put the examples in brackets.")
        for example in examples:
            request = _example_request(rule, example)
            if fits(rule, request, locate_anywhere) is not wanted:
                _refuse_example(rule, key, example)


def _refuse_example(rule: PolicyRule, key: str, example: object) -> NoReturn:
    does = "misses" if key == "matches" else "matches"
    hint = "Correct the rule or the example; until then the rule does not do what it says."
    if skipped_options(rule):
        hint += " Options in a rule that asks or denies are skipped."
    raise ConfigError(
        f"{place(rule.path, rule.line)}: rule {rule.number} {does} its own example of what it {key}: {shown(example)}.",
        code="policy-example",
        hint=hint,
    )


def _example_request(rule: PolicyRule, example: Any) -> PolicyQuery:
    """Makes a call from an example. A text is a command if the rule has commands, a path if it has paths, else the name
    of a tool. Missing parts are taken from the rule where it states them without wildcards."""
    given = _example_table(rule, example)
    tool = canonical_tools(_example_tool(rule, given))[0]
    args: dict[str, Any] = {}
    if isinstance(given.get("args"), dict):
        args.update(given["args"])
    if "command" in given:
        args["command"] = given["command"]
    if "path" in given:
        name = PATH_ARGUMENTS.get(tool, "path")
        args[name] = given["path"]
    skill = given.get("skill")
    if not skill:
        plain = [name for name in rule.skills if "*" not in name and "?" not in name]
        skill = plain[0] if plain else None
    source: Any = given.get("source")
    if not source:
        source = rule.sources[0] if rule.sources else None
    return PolicyQuery(tool=tool, args=args, skill=skill, source=source)


def _example_table(rule: PolicyRule, example: Any) -> dict[str, Any]:
    if isinstance(example, str):
        if rule.commands:
            return {"command": example}
        return {"path" if rule.paths else "tool": example}
    if not isinstance(example, dict):
        refuse(rule.path, rule.line, f"an example of rule {rule.number} is not a text or a table", "Use one of them.")
    for name in example:
        if name not in _EXAMPLE_KEYS:
            refuse_key(name, _EXAMPLE_KEYS, rule.path, rule.line)
    return example


def _example_tool(rule: PolicyRule, given: Mapping[str, Any]) -> str:
    if given.get("tool"):
        return str(given["tool"])
    for name in rule.tools:
        if "*" not in name:
            return name
    if rule.paths and not rule.commands:
        return "read_file"
    return "skill_run"
