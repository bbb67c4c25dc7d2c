"""A policy file is ordered rules; the first that fits decides, and a rule that breaks its own example is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prowess.errors import ConfigError
from prowess.policy.rules import Request, Rules, find_rule, parse_rules, tightened

PATH = ".agent/policy.toml"


def _run(command: str, **more: Any) -> Request:
    return Request(tool="skill_run", args={"command": command}, **more)


def _one(text: str) -> Rules:
    return parse_rules(f"[[rule]]\n{text}\n", PATH)


def test_rules_are_read_in_order_with_their_lines() -> None:
    rules = parse_rules(
        'schema = "prowess.policy/1"\n\n[[rule]]\ntool = "Bash"\ncommand = "git push"\nverdict = "ask"\n'
        'why = "A push cannot be taken back."\nmatches = ["git push origin main"]\nmisses = ["git status"]\n\n'
        '[[rule]]\ntool = "Bash"\ncommand = ["git", "ls"]\nverdict = "allow"\n',
        PATH,
    )
    assert [(rule.number, rule.line, rule.verdict) for rule in rules.rules] == [(1, 3, "ask"), (2, 11, "allow")]
    push = find_rule(rules, _run("git push"))
    assert push and push.label == "rule:1 .agent/policy.toml:3"
    status = find_rule(rules, _run("git status"))
    assert status and status.verdict == "allow"
    assert find_rule(rules, _run("rm x")) is None
    assert find_rule(rules, Request(tool="read_file", args={"file_name": "x"})) is None
    assert parse_rules("", PATH) == Rules((), PATH)


@pytest.mark.parametrize(
    "command",
    [
        "git push",
        "git push -f",
        "/usr/bin/git push",
        "./git push",
        "git -C x push",
        "env git push",
        "timeout 5 nice git push",
        "cd x && git push",
        "ls; git push",
        "ls | git push",
        "git status\ngit push",
        "2>x git push",
        "(git push)",
        "$X push",
        "g`x`it push",
        "if true; then git push; fi",
        "cat <<E\ngit push\nE",
        "bash -c 'git push'",
        "bash -c 'x | git push'",
        "eval git push",
        "find . -exec git push {} +",
        "xargs git push",
        "git -c a=b push",
        "gi''t push",
        "git 'push'",
    ],
)
def test_what_denies_fits_whatever_may_be_it_and_what_allows_only_what_is(command: str) -> None:
    deny = _one('command = "git push"\nverdict = "deny"')
    assert find_rule(deny, _run(command))
    allow = _one('command = "git push"\nverdict = "allow"')
    plain = command in ("git push", "git push -f", "/usr/bin/git push", "gi''t push", "git 'push'")
    assert bool(find_rule(allow, _run(command))) is plain


@pytest.mark.parametrize("command", ["git status", "ls; pwd", "echo a > b", "python3 x.py", "git log | head"])
def test_what_denies_misses_the_rest(command: str) -> None:
    assert not find_rule(_one('command = "git push"\nverdict = "deny"'), _run(command))


def test_scripts_are_commands_too() -> None:
    request = Request(tool="skill_run", args={"script": "scripts/x.py", "args": ["a"]})
    assert find_rule(_one('command = "scripts/x.py"\nverdict = "allow"'), request)
    assert find_rule(_one('command = "python3 scripts/x.py"\nverdict = "allow"'), request)
    assert find_rule(_one('command = "python3"\nverdict = "deny"'), request)
    assert not find_rule(_one('command = "bash"\nverdict = "deny"'), request)
    assert find_rule(_one('command = "bash"\nverdict = "deny"'), Request(tool="skill_run", args={}))


@pytest.mark.parametrize(
    ("rule", "request_", "fits"),
    [
        ('tool = "Read"\nverdict = "deny"', Request(tool="read_file"), True),
        ('tool = "mcp__*"\nverdict = "deny"', Request(tool="mcp__a__b"), True),
        ('tool = "*"\nverdict = "ask"', Request(tool="anything"), True),
        ('tool = ["Read", "Grep"]\nverdict = "deny"', Request(tool="grep"), True),
        ('tool = "Read"\nverdict = "deny"', Request(tool="grep"), False),
        ('skill = "project:pdf"\nverdict = "allow"', Request(tool="x", skill="project:pdf"), True),
        ('skill = "pdf"\nverdict = "allow"', Request(tool="x", skill="project:pdf"), True),
        ('skill = "acme/*"\nverdict = "allow"', Request(tool="x", skill="user:acme/pdf"), True),
        ('skill = "pdf"\nverdict = "allow"', Request(tool="x", skill="project:pdfs"), False),
        ('skill = "*"\nverdict = "deny"', Request(tool="x"), False),
        ('source = ["url", "mcp"]\nverdict = "deny"', Request(tool="x", source="url"), True),
        ('source = "url"\nverdict = "deny"', Request(tool="x", source="user"), False),
        ('source = "url"\nverdict = "deny"', Request(tool="x"), False),
        ('args = {url = "https://a.b/*"}\nverdict = "allow"', Request(tool="x", args={"url": "https://a.b/c/d"}), True),
        ('args = {url = "https://a.b/*"}\nverdict = "allow"', Request(tool="x", args={}), False),
        ('args = {n = "5"}\nverdict = "allow"', Request(tool="x", args={"n": 5}), True),
        ('args = {tty = "true"}\nverdict = "deny"', Request(tool="x", args={"tty": True}), True),
        ('args = {a = "x*"}\nverdict = "deny"', Request(tool="x", args={"a": ["b", "xy"]}), True),
        ('args = {a = "x*"}\nverdict = "allow"', Request(tool="x", args={"a": ["b", "xy"]}), False),
        ('args = {a = "x*"}\nverdict = "deny"', Request(tool="x", args={"a": {"b": 1}}), True),
        ('args = {a = "x*"}\nverdict = "allow"', Request(tool="x", args={"a": {"b": 1}}), False),
        ('path = "out/**"\nverdict = "allow"', Request(tool="write_file", args={"path": "out/a/b"}), True),
        ('path = "out/**"\nverdict = "allow"', Request(tool="write_file", args={"path": "out/../b"}), False),
        ('path = "secret/**"\nverdict = "deny"', Request(tool="write_file", args={"path": "out/../secret/b"}), True),
        ('path = "secret/**"\nverdict = "deny"', Request(tool="read_file", args={"file_name": "./secret//b"}), True),
        ('path = "secret/**"\nverdict = "deny"', Request(tool="read_file", args={"file_name": 5}), True),
        ('path = "secret/**"\nverdict = "deny"', Request(tool="skill_run", args={"path": "secret/x"}), False),
    ],
)
def test_criteria(rule: str, request_: Request, fits: bool) -> None:
    assert bool(find_rule(_one(rule), request_)) is fits


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("[[rule]\n", "policy-invalid", "not TOML"),
        ("rules = 1", "policy-invalid", "Did you mean 'rule'?"),
        ("rule = 1", "policy-invalid", "not a list"),
        ('schema = "x"', "policy-invalid", "schema"),
        ('[[rule]]\ntool = "Bash"', "policy-invalid", f"{PATH}:1: rule 1 has no verdict"),
        ('[[rule]]\nverdict = "allow"', "policy-invalid", "no criterion"),
        ('[[rule]]\ntool = "x"\nverdict = "maybe"', "policy-invalid", "no verdict"),
        ('[[rule]]\ntol = "x"\nverdict = "ask"', "policy-invalid", "Did you mean 'tool'?"),
        ('\n\n[[rule]]\ncomand = "x"\nverdict = "ask"', "policy-invalid", f"{PATH}:3: unknown key 'comand'"),
        ('[[rule]]\ntool = 5\nverdict = "ask"', "policy-invalid", "neither a text"),
        ('[[rule]]\ntool = []\nverdict = "ask"', "policy-invalid", "empty"),
        ('[[rule]]\nsource = "here"\nverdict = "ask"', "policy-invalid", "unknown source"),
        ('[[rule]]\ncommand = "a && b"\nverdict = "ask"', "policy-invalid", "only one command"),
        ('[[rule]]\nargs = 5\nverdict = "ask"', "policy-invalid", "not a table"),
        ('[[rule]]\nargs = {a = 5}\nverdict = "ask"', "policy-invalid", "neither a text"),
        ('[[rule]]\ntool = "x"\nwhy = 5\nverdict = "ask"', "policy-invalid", "why"),
        ('[[rule]]\ntool = "x"\nmatches = "y"\nverdict = "ask"', "policy-invalid", "not a list"),
        ('[[rule]]\ntool = "x"\nmatches = [5]\nverdict = "ask"', "policy-invalid", "not a text or a table"),
        ('[[rule]]\ntool = "x"\nmatches = [{tol = 1}]\nverdict = "ask"', "policy-invalid", "Did you mean 'tool'?"),
        (
            '[[rule]]\ntool = "x"\nverdict = "ask"\n[[rule]]\ncommand = "git"\nmatches = ["ls"]\nverdict = "allow"',
            "policy-example",
            f"{PATH}:4: rule 2 misses its own example",
        ),
        ('[[rule]]\ncommand = "git"\nmisses = ["env git x"]\nverdict = "deny"', "policy-example", "matches its own"),
        ('[[rule]]\npath = "a/*"\nmatches = ["a/b/c"]\nverdict = "allow"', "policy-example", "misses its own"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_line(text: str, code: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_rules(text, PATH)
    assert refused.value.code == code
    assert PATH in refused.value.message
    assert says in str(refused.value)
    assert refused.value.message.isprintable() or "not TOML" in refused.value.message


def test_examples_are_texts_or_tables() -> None:
    _one(
        'tool = "WebFetch"\nargs = {url = "https://a.b/*"}\nverdict = "allow"\n'
        'matches = [{args = {url = "https://a.b/x"}}]\nmisses = [{args = {url = "https://c.d"}}, "Read"]'
    )
    _one('path = "docs/**"\nverdict = "allow"\nmatches = ["docs/x"]\nmisses = [{tool = "Write", path = "x"}]')
    who = 'command = "git"\nskill = "a"\nverdict = "deny"\n'
    _one(who + 'matches = ["git x"]\nmisses = [{skill = "b", command = "git"}]')


def test_tightened_rules_never_allow() -> None:
    rules = parse_rules(
        '[[rule]]\ntool = "a"\nverdict = "allow"\n[[rule]]\ntool = "b"\nverdict = "ask"\n'
        '[[rule]]\ntool = "c"\nverdict = "deny"\n',
        PATH,
    )
    tight = tightened(rules)
    assert [(rule.number, rule.verdict) for rule in tight.rules] == [(2, "ask"), (3, "deny")]
    assert tight.only_tightens and not rules.only_tightens


@given(st.text(alphabet='[]rule=tolverdict"ask \n{}*', max_size=60))
def test_no_text_makes_the_reader_fall_over(text: str) -> None:
    try:
        parse_rules(text, PATH)
    except ConfigError as error:
        assert error.code in ("policy-invalid", "policy-example")


@given(st.text(alphabet="git push;&|<>$`()'\"\\\n x", max_size=30))
def test_a_command_that_is_allowed_is_one_that_would_be_denied(command: str) -> None:
    if find_rule(_one('command = "git push"\nverdict = "allow"'), _run(command)):
        assert find_rule(_one('command = "git push"\nverdict = "deny"'), _run(command))
