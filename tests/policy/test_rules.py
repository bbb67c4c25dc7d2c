"""A policy file is ordered rules; the first that fits decides, and a rule that breaks its own example is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prowess.core.values import Located
from prowess.errors import ConfigError
from prowess.policy.rules import PolicyQuery, PolicyRule, Rules, allows_anything, parse_rules, tightened
from prowess.policy.rules import find_rule as find_rule_there

PATH = ".agent/policy.toml"


def _run(command: str, **more: Any) -> PolicyQuery:
    return PolicyQuery(tool="skill_run", args={"command": command}, **more)


def find_rule(rules: Rules, request: PolicyQuery) -> PolicyRule | None:
    """On a machine that has every program."""
    return find_rule_there(rules, request, Located)


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
    assert find_rule(rules, PolicyQuery(tool="read_file", args={"file_name": "x"})) is None
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


@pytest.mark.parametrize(
    ("rule", "command"),
    [
        ("rm -rf", "rm -fr x"),
        ("rm -rf", "rm -r -f x"),
        ("rm -rf", "rm --recursive --force x"),
        ("rm -rf", "rm x"),
        ("git push --force", "git push -f"),
        ("git push --force", "git push origin +main"),
        ("curl -o", "curl --output x y"),
        ("curl --output=x", "curl -ox y"),
    ],
)
def test_what_denies_skips_options_on_both_sides_and_what_allows_none(rule: str, command: str) -> None:
    for verdict in ("ask", "deny"):
        assert find_rule(_one(f'command = "{rule}"\nverdict = "{verdict}"'), _run(command))
    assert not find_rule(_one(f'command = "{rule}"\nverdict = "allow"'), _run(command))


@pytest.mark.parametrize("command", ["git status", "ls; pwd", "echo a > b", "python3 x.py", "git log | head"])
def test_what_denies_misses_the_rest(command: str) -> None:
    assert not find_rule(_one('command = "git push"\nverdict = "deny"'), _run(command))


@pytest.mark.parametrize(
    ("rule", "command", "fits"),
    [
        ("*", "ls", True),
        ("py*", "python3 x", True),
        ("py*", "/opt/x/python3 x", True),
        ("py*", "ruby x", False),
        ("l?", "ls", True),
        ("l?", "less x", False),
        ("* push", "git push", True),
        ("* push", "git status", False),
        ("scripts/*.py", "scripts/x.py", True),
        ("scripts/*.py", "./scripts/../scripts/x.py", True),
        ("scripts/*.py", "python3 -u scripts/x.py --all", True),
        ("scripts/*.py", "cat scripts/x.py", True),
        ("scripts/*.py", "cat scripts/x.md", False),
        ("scripts/*", "bash scripts/x.sh", True),
        ("scripts/*", "/w/skills/a/scripts/x.sh", True),
        ("scripts/*", "../a/scripts/x.sh", True),
        ("scripts/*", "ls scripts", True),
        ("scripts/*", "ls script", False),
        ("/usr/bin/*", "ls", True),
        ("scripts/x.py", "python3 scripts/x.py", True),
        ("scripts/x.py upload", "python3 scripts/x.py upload", True),
        ("scripts/x.py upload", "python3 scripts/x.py list", False),
        ("scripts/x.sh", "timeout 5 bash -e scripts/x.sh", True),
        ("scripts/x.sh", "bash scripts/y.sh", False),
    ],
)
def test_a_program_may_be_a_pattern_and_a_file_that_is_run_is_one(rule: str, command: str, fits: bool) -> None:
    assert bool(find_rule(_one(f'command = "{rule}"\nverdict = "deny"'), _run(command))) is fits


@pytest.mark.parametrize("program", ["l?", "l*", "*"])
def test_a_pattern_allows_what_a_pattern_denies(program: str) -> None:
    assert find_rule(_one(f'command = "{program}"\nverdict = "allow"'), _run("ls -l"))
    assert not find_rule(_one(f'command = "{program}"\nverdict = "allow"'), _run("./ls; ls"))


@pytest.mark.parametrize(
    ("rule", "anything"),
    [
        ('command = "*"', ["'*'"]),
        ('command = ["g*", "git", "l?", "/usr/bin/*", "**/*"]', ["'g*'", "'l?'", "'/usr/bin/*'", "'**/*'"]),
        ('command = ["timeout 60", "env ?*", "timeout 60 git fetch"]', ["'timeout 60'", "'env ?*'"]),
        ('command = ["scripts/*.py", "python3 scripts/*.py", "* --version x"]', []),
        ('tool = "Bash"', ["every command of skill_run and skill_exec"]),
        ('tool = ["skill_run", "Read"]', ["every command of skill_run"]),
        ('tool = "*"', ["every command of skill_run and skill_exec"]),
        ('tool = "Bash"\ncommand = "git status"', []),
        ('tool = "Bash"\nskill = "release"', []),
        ('tool = "Read"', []),
    ],
)
def test_what_allows_whatever_is_started_is_known(rule: str, anything: list[str]) -> None:
    assert allows_anything(_one(f'{rule}\nverdict = "allow"').rules[0]) == anything
    assert allows_anything(_one(f'{rule}\nverdict = "ask"').rules[0]) == []


def test_scripts_are_commands_too() -> None:
    request = PolicyQuery(tool="skill_run", args={"script": "scripts/x.py", "args": ["a"]})
    assert find_rule(_one('command = "scripts/x.py"\nverdict = "allow"'), request)
    assert find_rule(_one('command = "python3 scripts/x.py"\nverdict = "allow"'), request)
    assert find_rule(_one('command = "python3"\nverdict = "deny"'), request)
    assert not find_rule(_one('command = "bash"\nverdict = "deny"'), request)
    assert find_rule(_one('command = "bash"\nverdict = "deny"'), PolicyQuery(tool="skill_run", args={}))


@pytest.mark.parametrize(
    ("rule", "request_", "fits"),
    [
        ('tool = "Read"\nverdict = "deny"', PolicyQuery(tool="read_file"), True),
        ('tool = "mcp__*"\nverdict = "deny"', PolicyQuery(tool="mcp__a__b"), True),
        ('tool = "*"\nverdict = "ask"', PolicyQuery(tool="anything"), True),
        ('tool = ["Read", "Grep"]\nverdict = "deny"', PolicyQuery(tool="grep"), True),
        ('tool = "Read"\nverdict = "deny"', PolicyQuery(tool="grep"), False),
        ('skill = "project:pdf"\nverdict = "allow"', PolicyQuery(tool="x", skill="project:pdf"), True),
        ('skill = "pdf"\nverdict = "allow"', PolicyQuery(tool="x", skill="project:pdf"), True),
        ('skill = "acme/*"\nverdict = "allow"', PolicyQuery(tool="x", skill="user:acme/pdf"), True),
        ('skill = "pdf"\nverdict = "allow"', PolicyQuery(tool="x", skill="project:pdfs"), False),
        ('skill = "*"\nverdict = "deny"', PolicyQuery(tool="x"), False),
        ('source = ["url", "mcp"]\nverdict = "deny"', PolicyQuery(tool="x", source="url"), True),
        ('source = "url"\nverdict = "deny"', PolicyQuery(tool="x", source="user"), False),
        ('source = "url"\nverdict = "deny"', PolicyQuery(tool="x"), False),
        (
            'args = {url = "https://a.b/*"}\nverdict = "allow"',
            PolicyQuery(tool="x", args={"url": "https://a.b/c/d"}),
            True,
        ),
        ('args = {url = "https://a.b/*"}\nverdict = "allow"', PolicyQuery(tool="x", args={}), False),
        ('args = {n = "5"}\nverdict = "allow"', PolicyQuery(tool="x", args={"n": 5}), True),
        ('args = {tty = "true"}\nverdict = "deny"', PolicyQuery(tool="x", args={"tty": True}), True),
        ('args = {a = "x*"}\nverdict = "deny"', PolicyQuery(tool="x", args={"a": ["b", "xy"]}), True),
        ('args = {a = "x*"}\nverdict = "allow"', PolicyQuery(tool="x", args={"a": ["b", "xy"]}), False),
        ('args = {a = "x*"}\nverdict = "deny"', PolicyQuery(tool="x", args={"a": {"b": 1}}), True),
        ('args = {a = "x*"}\nverdict = "allow"', PolicyQuery(tool="x", args={"a": {"b": 1}}), False),
        ('args = {method = "GET"}\nverdict = "allow"', PolicyQuery(tool="network_request", args={"url": "x"}), True),
        (
            'args = {method = "GET"}\nverdict = "deny"',
            PolicyQuery(tool="network_request", args={"method": "PUT"}),
            False,
        ),
        ('args = {method = "GET"}\nverdict = "allow"', PolicyQuery(tool="somebodys", args={}), False),
        ('args = {tty = "false"}\nverdict = "ask"', PolicyQuery(tool="skill_exec", args={}), True),
        ('path = "out/**"\nverdict = "allow"', PolicyQuery(tool="write_file", args={"path": "out/a/b"}), True),
        ('path = "out/**"\nverdict = "allow"', PolicyQuery(tool="write_file", args={"path": "out/../b"}), False),
        (
            'path = "secret/**"\nverdict = "deny"',
            PolicyQuery(tool="write_file", args={"path": "out/../secret/b"}),
            True,
        ),
        (
            'path = "secret/**"\nverdict = "deny"',
            PolicyQuery(tool="read_file", args={"file_name": "./secret//b"}),
            True,
        ),
        ('path = "secret/**"\nverdict = "deny"', PolicyQuery(tool="read_file", args={"file_name": 5}), True),
        ('path = "secret/**"\nverdict = "deny"', PolicyQuery(tool="skill_run", args={"path": "secret/x"}), False),
    ],
)
def test_criteria(rule: str, request_: PolicyQuery, fits: bool) -> None:
    assert bool(find_rule(_one(rule), request_)) is fits


@pytest.mark.parametrize(
    ("pattern", "path", "asks", "allows"),
    [
        ("work/inputs/**", "work/inputs/a", True, True),
        ("work/inputs/**", "work/inputs", True, True),
        ("work/inputs/", "work/inputs/", True, True),
        ("work/inputs/**", "work", True, False),
        ("work/inputs/**", "./work//", True, False),
        ("work/inputs/**", ".", True, False),
        ("work/inputs/**", None, True, False),
        ("work/inputs/**", "/workspace", True, False),
        ("work/inputs/**", "work/../work", True, False),
        ("work/inputs/**", "work/in", False, False),
        ("work/inputs/**", "work/inputs2", False, False),
        ("work/inputs/**", "out", False, False),
        ("work/*/a?.txt", "work/x", True, False),
        ("work/*/a?.txt", "work/x/y", False, False),
        ("work/*/a?.txt", "work/x/ab.txt", True, True),
        ("work/**/keys/x", "work/a/b", True, False),
        ("work/**/keys/x", "out/a", False, False),
        ("**/x", "out", True, False),
        ("/etc/**", "work", False, False),
        ("/etc/**", ".", False, False),
        ("/etc/**", "/etc", True, True),
        ("/etc/**", "/", True, False),
        ("skills/demo/**", "skill://demo", True, False),
        ("skills/demo/**", "skills", True, False),
        ("*.sh", "out", True, False),
        ("*", "work", True, True),
        ("*", ".", True, False),
        ("**", ".", True, True),
        (".", ".", True, True),
        (".", "work", False, False),
        ("out", "out/out2", True, False),
    ],
)
@pytest.mark.parametrize("tool", ["grep", "list_dir"])
def test_a_search_comes_to_what_lies_below(tool: str, pattern: str, path: str | None, asks: bool, allows: bool) -> None:
    request = PolicyQuery(tool=tool, args={} if path is None else {"path": path})
    for verdict, fits in [("deny", asks), ("ask", asks), ("allow", allows)]:
        assert bool(find_rule(_one(f'path = "{pattern}"\nverdict = "{verdict}"'), request)) is fits, verdict


@pytest.mark.parametrize(
    ("pattern", "path", "denies", "allows"),
    [
        ("*.sh", "out/x.sh", True, False),
        ("*.sh", "work/a/b/x.sh", True, False),
        ("./*.sh", "out/x.sh", True, False),
        ("*.sh", "x.sh", True, True),
        ("*.sh", "out/x.sh/y", False, False),
        ("*.sh", "out/xsh", False, False),
        ("id_rsa", "work/.ssh/id_rsa", True, False),
        ("id_rsa", "work/not_id_rsa", False, False),
        ("out/*.sh", "out/a/x.sh", False, False),
        (".", "out/x", False, False),
        ("skills/demo/**", "skill://demo/SKILL.md", True, False),
    ],
)
def test_a_name_is_denied_at_any_depth_and_allowed_where_it_says(
    pattern: str, path: str, denies: bool, allows: bool
) -> None:
    request = PolicyQuery(tool="read_file", args={"file_name": path})
    for verdict, fits in [("deny", denies), ("ask", denies), ("allow", allows)]:
        assert bool(find_rule(_one(f'path = "{pattern}"\nverdict = "{verdict}"'), request)) is fits, verdict


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("[[rule]\n", "policy-invalid", "not TOML"),
        (f"{'a.' * 400_000}a = 1", "policy-invalid", "dots in one line"),
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
        (f'[[rule]]\ntool = "{"x" * 1001}"\nverdict = "ask"', "policy-invalid", "longer than 1000 characters"),
        (f'[[rule]]\nargs = {{a = ["{"x" * 1001}"]}}\nverdict = "ask"', "policy-invalid", "longer than 1000"),
        (f"[[rule]]\npath = {['x'] * 10_000}\nverdict = 'ask'", "policy-invalid", "more than 10000 texts"),
        ('[[rule]]\ntool = "x"\nverdict = "ask"\n' * 1_001, "policy-invalid", "more than 1000 rules"),
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


def test_a_long_policy_that_a_person_can_have_is_read() -> None:
    rule = (
        '[[rule]]\ntool = "Bash"\ncommand = ["git push", "git tag"]\nverdict = "ask"\nwhy = "Because."\n'
        'matches = ["git push x"]\nmisses = ["git status", "ls"]\n'
    )
    assert len(parse_rules(rule * 1_000, PATH).rules) == 1_000


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
        assert error.code in ("policy-invalid", "policy-example", "rule-unreachable")


@given(st.text(alphabet="git push;&|<>$`()'\"\\\n x", max_size=30))
def test_a_command_that_is_allowed_is_one_that_would_be_denied(command: str) -> None:
    if find_rule(_one('command = "git push"\nverdict = "allow"'), _run(command)):
        assert find_rule(_one('command = "git push"\nverdict = "deny"'), _run(command))


def test_denied_digests() -> None:
    digest = f"sha256:{'a' * 64}"
    assert parse_rules(f'denied_digests = ["{digest}"]\n', "p").denied_digests == {digest}
    for wrong in (
        f'"{digest}"',
        "[3]",
        '["sha256:aa"]',
        f'["{digest}\\n"]',
        f'["{digest.upper()}"]',
        f'[["{digest}"]]',
    ):
        with pytest.raises(ConfigError) as caught:
            parse_rules(f"# a comment\ndenied_digests = {wrong}\n", "p")
        assert "p:2" in caught.value.message and "64 hexadecimal digits" in str(caught.value.hint)
