"""A rule that no call can fit is refused, with file and line; and every rule that is accepted fits some call."""

from __future__ import annotations

import itertools
import json
import posixpath
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kits import with_kit
from prowess.agent.toolkit import Toolkit
from prowess.core.tool_table import ALIASES, ARGUMENTS, CAPABILITIES, RISKS, Argument
from prowess.core.values import Located, ToolCall
from prowess.errors import ConfigError, ToolRetry
from prowess.policy.rules import PolicyQuery, PolicyRule, parse_rules
from prowess.policy.rules import fits as fits_there

PATH = ".agent/policy.toml"
EVERY = sorted(ARGUMENTS)
RUNS = {"skill_run", "skill_exec"}
FILES = {"read_file", "list_dir", "grep", "write_file", "delete_file"}
WRITES = {"write_file", "delete_file"}
OF_NO_SKILL = {*FILES, "network_request", "update_plan", "ask_user", "skill_search"}


def read(text: str) -> PolicyRule:
    return parse_rules(f"[[rule]]\n{text}\n", PATH).rules[0]


def fits(rule: PolicyRule, request: PolicyQuery) -> bool:
    """On a machine that has every program."""
    return fits_there(rule, request, Located)


def refused(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as error:
        read(text)
    assert error.value.code == "rule-unreachable"
    assert error.value.message.startswith(f"{PATH}:1: rule 1 can never fit: ") and error.value.hint
    return error.value


# --- the table is what the tools have ---------------------------------------------------------------------------------


@pytest.fixture
def kit(tmp_path: Path, make_skill: Any) -> Iterator[Toolkit]:
    """Looked at after it was closed: normal forms need nothing that is open."""
    make_skill(tmp_path / "demo")
    found: list[Toolkit] = []

    async def keep(kit: Toolkit) -> None:
        found.append(kit)

    with_kit(tmp_path, keep, settings={"tools.enable": ["write_file", "delete_file", "network_request"]}, load=None)
    yield found[0]


def normal(kit: Toolkit, tool: str, args: dict[str, Any]) -> dict[str, Any]:
    return dict(kit.calls.tools.normalise(ToolCall(id="x", tool=tool, args=args)).args)


_LEAST = {
    **{tool: {"skill": "demo", "command": "ls"} for tool in RUNS},
    **{tool: {"session_id": "p-1"} for tool in ("skill_write_stdin", "skill_poll_session", "skill_kill_session")},
    "skill_read": {"skill": "demo", "path": "x"},
    "skill_search": {"query": "x"},
    "update_plan": {"plan": {"goal": "g", "steps": [{"title": "s"}]}},
    "ask_user": {"question": "q"},
    "read_file": {"file_name": "x"},
    "list_dir": {},
    "grep": {"pattern": "x"},
    "write_file": {"path": "out/x", "content": "x"},
    "delete_file": {"path": "out/x"},
    "network_request": {"url": "https://example.com/"},
}


def test_every_tool_is_in_it_with_its_own_arguments(kit: Toolkit) -> None:
    specs = {spec.name for spec in kit.calls.tools.specs()}
    assert specs == ARGUMENTS.keys() - CAPABILITIES == RISKS.keys()
    for tool in specs:
        with pytest.raises(ToolRetry) as said:
            normal(kit, tool, {"no_such_argument": 1})
        named = re.search(r"Its arguments: (.*)\.$", str(said.value))
        assert named and set(named[1].split(", ")) == set(ARGUMENTS[tool]), tool


@pytest.mark.parametrize("tool", sorted(RISKS))
def test_values_and_defaults_are_the_tools_own(kit: Toolkit, tool: str) -> None:
    """A value fits itself and no other, in the form in which a real call is judged; what is not said is the default."""
    least = _LEAST.get(tool, {"skill": "demo"})

    def fitting(name: str, args: dict[str, Any], values: Iterable[str]) -> list[str]:
        judged = PolicyQuery(tool=tool, args=normal(kit, tool, args))
        rule = f'tool = "{tool}"\nargs = {{{name} = %s}}\nverdict = "allow"'
        return [value for value in values if fits(read(rule % json.dumps(value)), judged)]

    for name, argument in ARGUMENTS[tool].items():
        for value in argument.only:
            typed = {"true": True, "false": False}.get(value, value)
            assert fitting(name, {**least, name: typed}, argument.only) == [value]
        if argument.only:
            with pytest.raises(ToolRetry):
                normal(kit, tool, {**least, name: "never"})
        if argument.default is not None:
            assert fitting(name, least, [argument.default]) == [argument.default], name
            typed = {"true": True, "false": False}.get(argument.default, argument.default)
            assert normal(kit, tool, {**least, name: typed}) == normal(kit, tool, least), name


def test_tables_are_tables(kit: Toolkit) -> None:
    for tool, name, value in [
        ("skill_run", "env", {"A": "b"}),
        ("skill_run", "inputs", ["workspace://x"]),
        ("skill_exec", "outputs", ["out/*"]),
        ("network_request", "headers", {"Accept": "x"}),
        ("update_plan", "plan", {"goal": "g", "steps": [{"title": "s"}]}),
    ]:
        given = {**_LEAST[tool], name: value}
        judged = PolicyQuery(tool=tool, args=normal(kit, tool, given))
        assert fits(read(f'tool = "{tool}"\nargs = {{{name} = "nothing like it"}}\nverdict = "deny"'), judged)
        assert "is a table" in refused(f'tool = "{tool}"\nargs = {{{name} = "*"}}\nverdict = "allow"').message


def test_a_capability_has_the_arguments_of_its_need(tmp_path: Path, make_skill: Any) -> None:
    script = '# /// script\n# dependencies = ["nothing"]\n# ///\n'
    make_skill(tmp_path / "demo", files={"scripts/x.py": script})

    async def work(kit: Toolkit) -> None:
        call = ToolCall(id="x", tool="skill_run", args={"skill": "demo", "script": "scripts/x.py"})
        (need,) = await kit.calls.tools.needs(call)
        assert need.args.keys() == ARGUMENTS[need.capability].keys()

    with_kit(tmp_path, work, executor="local")


# --- each criterion with each tool ------------------------------------------------------------------------------------


@pytest.mark.parametrize("verdict", ["allow", "ask", "deny"])
@pytest.mark.parametrize("tool", EVERY)
def test_which_criteria_fit_which_tool(tool: str, verdict: str) -> None:
    for criterion, can in [
        ('command = "git status"', tool in RUNS),
        ('path = "docs/**"', tool in FILES),
        ('skill = "release*"', tool not in OF_NO_SKILL),
        ('source = "user"', tool not in OF_NO_SKILL),
        ('args = {url = "https://example.com/*"}', tool == "network_request"),
        ('args = {host = "example.com"}', False),
    ]:
        rule = f'tool = "{tool}"\n{criterion}\nverdict = "{verdict}"'
        assert read(rule) if can else refused(rule), criterion


@pytest.mark.parametrize("name", sorted(ALIASES))
def test_a_name_of_another_system_is_what_it_stands_for(name: str) -> None:
    ours = {*ALIASES[name]}
    for criterion, can in [('command = "ls"', ours & RUNS), ('path = "x"', ours & FILES)]:
        rule = f'tool = "{name}"\n{criterion}\nverdict = "deny"'
        assert read(rule) if can else refused(rule), criterion


@pytest.mark.parametrize(
    "rule",
    [
        'tool = ["Read", "Bash"]\ncommand = "git"',
        'tool = ["mcp__x", "Grep"]\npath = "x"',
        'tool = "*"\ncommand = "git"\nskill = "x"\nsource = "user"',
        'tool = "skill_*"\ncommand = "git"',
        'tool = "*_file"\npath = "out/x"\nargs = {content = "*"}',
        'tool = ["Read", "Write"]\npath = "*.md"',
        'tool = "Write"\npath = ["*.md", "out/*.md"]',
        'tool = "Write"\npath = "**"',
        'tool = "WebFetch"\nargs = {url = ["https://user@a.b/*", "https://a.b/*"]}',
        'tool = "WebFetch"\nargs = {url = "*://*.example.com:*/a?c=%2*"}',
        'tool = "WebFetch"\nargs = {url = "HTTPS://Example.com.:443"}',
        'tool = "WebFetch"\nargs = {url = "*"}',
        'tool = "skill_*"\nargs = {of_somebody = "x"}',
        'tool = "mcp__files__*"\nargs = {path = "x"}\nskill = "a"',
        'args = {url = "x", pattern = "y"}',
        'command = "git"\nargs = {tty = "true", cwd = "x"}',
        'path = "out/**"\nargs = {content = "*"}',
        'skill = ["project:x", "user:y"]\nsource = "user"',
        'skill = "x"\nsource = "url"',
        'tool = "WebFetch"\nargs = {method = ["P*", "nothing"]}',
        'tool = "Write"\nargs = {path = "out/x"}\npath = "out/x"',
    ],
)
def test_one_tool_that_fits_is_enough(rule: str) -> None:
    assert read(f'{rule}\nverdict = "allow"') and read(f'{rule}\nverdict = "deny"')


@pytest.mark.parametrize(
    ("rule", "says", "hint"),
    [
        ('tool = "Bash"\npath = "x"', "path fits nothing, because Bash has no path", "command"),
        ('tool = ["Read", "Grep"]\ncommand = "x"', "command fits nothing, because Read, Grep", 'tool = "Bash"'),
        ('tool = "mcp__*"\ncommand = "git"', "mcp__* runs no command", 'tool = "Bash"'),
        ('command = "git"\npath = "x"', "command and path fit no call together", "two rules"),
        ('tool = ["Bash", "Read"]\ncommand = "git"\npath = "x"', "command and path fit no call together", "two rules"),
        ('command = "git"\nargs = {url = "x"}', "command and args.url fit no call together", "two rules"),
        ('path = "x"\nskill = "y"', "path and skill fit no call together", "two rules"),
        ('tool = "Write"\nargs = {file_path = "x"}', "Write has no argument 'file_path'", "Did you mean 'path'?"),
        ('tool = "WebFetch"\nargs = {host = "x"}', "WebFetch has no argument 'host'", "There are: body, headers"),
        ('tool = "WebFetch"\nargs = {method = "get"}', "'method' is never that", "DELETE, GET"),
        ('tool = "skill_exec"\nargs = {tty = "yes"}', "'tty' is never that", "false, true"),
        ('tool = "Grep"\nskill = "x"', "a call of Grep names no skill", "skill_run"),
        ('skill = "project:x"\nsource = ["user", "url"]', "skill and source", "begins with its source"),
    ],
)
@pytest.mark.parametrize("verdict", ["allow", "deny"])
def test_what_does_not_fit_is_said(rule: str, says: str, hint: str, verdict: str) -> None:
    error = refused(f'{rule}\nverdict = "{verdict}"')
    assert says in error.message and hint in str(error.hint)


@pytest.mark.parametrize(
    "criterion",
    [
        'path = "../x"',
        "path = 'a\\b'",
        'path = "a/../b"',
        'args = {url = "https://a.b/c/../d"}',
        'args = {url = "https://a.b/c//d"}',
        'args = {url = "https://a.b/%2e%2e/*"}',
        'args = {url = "https://a.b/%61"}',
        'args = {url = "https://user@a.b/*"}',
        'args = {url = "https://a.b/c#d"}',
        'command = "../x"',
        'command = "work/x.sh"',
        'command = ".venv/bin/git"',
    ],
)
def test_what_is_never_certain_can_be_asked_about_and_not_allowed(criterion: str) -> None:
    assert "has to be certain" in refused(f'{criterion}\nverdict = "allow"').message
    assert read(f'{criterion}\nverdict = "ask"') and read(f'{criterion}\nverdict = "deny"')


@pytest.mark.parametrize("tool", ["Write", "Edit", "Delete"])
@pytest.mark.parametrize("path", ["*.md", "x", "*", "out", "./x.md", "workspace://x.md"])
def test_nothing_is_written_at_the_top_of_a_workspace(tool: str, path: str) -> None:
    rule = f'tool = "{tool}"\npath = "{path}"\nverdict = '
    error = refused(f'{rule}"allow"')
    assert f"{tool} goes below work/ and out/ only" in error.message and "out/**/" in str(error.hint)
    assert read(f'{rule}"ask"') and read(f'{rule}"deny"')


def test_a_name_cannot_write_on_the_terminal() -> None:
    error = refused('tool = "Read"\nargs = {"\\u001b[2Jx" = "y"}\nverdict = "deny"')
    assert error.message.isprintable() and str(error.hint).isprintable()


# --- every accepted rule fits something -------------------------------------------------------------------------------

_WILD = st.sampled_from(["x", "x*", "*", "**", "a?c", "docs/**", "**/x", "x/", "./y", "a b"])
_TOOL = st.sampled_from([*EVERY, *ALIASES, "*", "skill_*", "*_file", "mcp__*", "mcp__x__y", "somebodys"])
_VALUE = st.sampled_from(["x*", "*", "true", "f*", "GET", "P?T", "5"])
_NAMES = sorted({name for arguments in ARGUMENTS.values() for name in arguments} | {"of_nobody"})
_RULES = st.fixed_dictionaries(
    {"verdict": st.sampled_from(["allow", "ask", "deny"])},
    optional={
        "tool": st.lists(_TOOL, min_size=1, max_size=3),
        "command": st.lists(st.sampled_from(["git", "git push", "scripts/*.py", "*", "l?", "ls *"]), min_size=1),
        "path": st.lists(_WILD, min_size=1, max_size=2),
        "skill": st.lists(st.sampled_from(["x", "x*", "project:x", "user:*"]), min_size=1, max_size=2),
        "source": st.lists(st.sampled_from(["project", "user"]), min_size=1, max_size=2, unique=True),
        "args": st.dictionaries(st.sampled_from(_NAMES), _VALUE, min_size=1, max_size=2),
    },
)
# What is said about one argument in two ways may contradict itself, and nothing looks for that.
_TWICE = {"command": {"command", "script", "args"}, "path": {"path", "file_name"}, "skill": {"skill"}}


def calls_like(rule: dict[str, Any]) -> Iterator[PolicyQuery]:
    """Calls that somebody would make who reads the rule: every tool, with what the rule names."""

    def filled(pattern: str) -> str:
        return re.sub(r"\*+|\?", "a", pattern.replace("**/", ""))

    skills = ["project:x", "user:x", "user:xa"] if rule.keys() & {"skill", "source"} else [None]
    named = [filled(pattern) for pattern in rule.get("path", ["x"])]
    paths = [each for name in named for each in (name, f"{name}a", f"out/{name}")]
    commands = [filled(pattern) for pattern in rule.get("command", ["ls"])]
    for tool in (*EVERY, "mcp__a", "mcp__x__y", "skill_a", "a_file", "somebodys"):
        values = {
            name: [{"a": "b"}] if argument.is_table else argument.only or [filled(pattern)]
            for name, pattern in rule.get("args", {}).items()
            if (argument := ARGUMENTS.get(tool, {name: Argument()}).get(name)) is not None
        }
        for skill, path, command in itertools.product(skills, paths, commands):
            if skill is not None and tool in OF_NO_SKILL:
                continue
            if tool in WRITES and "/" not in posixpath.normpath(path):
                continue  # the tool refuses it
            about: dict[str, Any] = {} if skill is None else {"skill": skill, "source": skill.partition(":")[0]}
            args = {"command": command} if tool in RUNS else {}
            if tool in FILES:
                args["file_name" if tool == "read_file" else "path"] = path
            for chosen in itertools.product(*values.values()):
                yield PolicyQuery(tool=tool, args={**args, **dict(zip(values, chosen, strict=True))}, **about)


@given(_RULES)
def test_a_rule_is_accepted_exactly_when_some_call_fits_it(rule: dict[str, Any]) -> None:
    said = rule.get("args", {})
    if rule.keys() == {"verdict"} or any(name in rule and said.keys() & twice for name, twice in _TWICE.items()):
        return
    try:
        found = read(render(rule))
        accepted = True
    except ConfigError as error:
        assert error.code == "rule-unreachable", error
        found, accepted = put_together(rule), False
    assert any(fits(found, request) for request in calls_like(rule)) is accepted


def render(rule: dict[str, Any]) -> str:
    args = ", ".join(f"{name} = {json.dumps(value)}" for name, value in rule.get("args", {}).items())
    lines = [f"{name} = {json.dumps(value)}" for name, value in rule.items() if name != "args"]
    return "\n".join([*lines, *([f"args = {{{args}}}"] if args else [])])


def put_together(rule: dict[str, Any]) -> PolicyRule:
    """The rule as if it had been let through: each criterion alone is never refused."""
    whole = read(render({"tool": "*", "verdict": rule["verdict"]}))._replace(tools=())
    for name, field in [
        ("tool", "tools"),
        ("path", "paths"),
        ("command", "commands"),
        ("skill", "skills"),
        ("source", "sources"),
    ]:
        if name in rule:
            alone = read(render({name: rule[name], "verdict": rule["verdict"]}))
            whole = whole._replace(**{field: getattr(alone, field)})
    return whole._replace(args=tuple((name, (value,)) for name, value in rule.get("args", {}).items()))
