"""Every call has one decision with a rule and a reason, and what is unclear is decided as the worse case."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from prowess.core.tool_table import NEVER_NARROWED, RISKS, TOOLS
from prowess.core.values import Decision, Isolation, Located
from prowess.policy.allowed_tools import parse_allowed
from prowess.policy.decision import PolicyContext, PolicyQuery, decide, find_risk, is_isolated
from prowess.policy.rules import parse_rules, tightened

SANDBOX = Isolation(executor="sandbox", mechanism="bwrap+seccomp", network="none", kind="sandbox")
LOCAL = Isolation(executor="local", mechanism="none", kind="process")
SESSION = {"skill_write_stdin", "skill_poll_session", "skill_kill_session"}


def _run(command: str = "ls", **more: Any) -> PolicyQuery:
    return PolicyQuery(tool="skill_run", args={"skill": "pdf", "command": command}, skill="project:pdf", **more)


def _is(decision: Decision, verdict: str, rule: str) -> None:
    assert (decision.verdict, decision.rule) == (verdict, rule)
    assert decision.why.endswith(".") and decision.why.isprintable()


def test_every_tool_has_a_risk() -> None:
    assert set(RISKS) == set(TOOLS)
    assert find_risk("read_file") == "low"
    assert find_risk("skill_exec") == "medium"
    assert find_risk("network_request") == "high"
    assert find_risk("mcp__x") == "unknown"


@pytest.mark.parametrize(
    ("tool", "isolation", "trusted", "enabled"),
    list(itertools.product(sorted((*TOOLS, "mcp__x")), [None, LOCAL, SANDBOX], [True, False], [True, False])),
)
def test_the_table(tool: str, isolation: Isolation | None, trusted: bool, enabled: bool) -> None:
    request = PolicyQuery(tool=tool, args={"command": "ls"}, skill="project:pdf", trusted=trusted)
    around = PolicyContext(isolation=isolation, enabled=frozenset([tool] if enabled else []))
    decision = decide(request, around)
    risk = find_risk(tool)
    if risk == "low":
        _is(decision, "allow", "table:low-risk")
    elif risk == "high":
        _is(decision, *(("ask", "table:high-risk") if enabled else ("deny", "config:tools.enable")))
    elif risk == "unknown":
        _is(decision, "ask", "table:unknown-tool")
    elif tool in ("skill_poll_session", "skill_kill_session"):
        _is(decision, "allow", "table:session")
    elif isolation is SANDBOX:
        _is(decision, "allow", "table:isolated")
    elif trusted:
        _is(decision, "ask", "table:local-trusted")
    else:
        _is(decision, "deny", "table:local-untrusted")


@pytest.mark.parametrize(
    ("isolation", "held"),
    [
        (None, False),
        (LOCAL, False),
        (SANDBOX, True),
        (Isolation(executor="container", mechanism="docker", network="none", kind="container"), True),
        (Isolation(executor="sandbox", mechanism="landlock+seccomp", network="proxy", kind="sandbox"), True),
        (Isolation(executor="sandbox", mechanism="", network="none", kind="sandbox"), False),
        (Isolation(executor="sandbox", mechanism="none", network="none", kind="sandbox"), False),
        (Isolation(executor="sandbox", mechanism="bwrap", kind="sandbox"), False),
        (Isolation(executor="mine", mechanism="magic", network="none"), False),
        (Isolation(executor="", mechanism="bwrap", network="none"), False),
        (Isolation(executor="mine", mechanism="magic", network="none", kind="sandbox"), True),
        (Isolation(executor="mine", mechanism="magic", network="none", kind="process"), False),
        (Isolation(executor="sandbox", mechanism="bwrap", network="none"), False),
    ],
)
def test_isolation_that_is_not_known_is_none(isolation: Isolation | None, held: bool) -> None:
    assert is_isolated(isolation) is held


def test_what_the_configuration_asks_about_is_always_asked() -> None:
    around = PolicyContext(isolation=SANDBOX, require_approval_for=("run_script", "read_file"))
    _is(decide(_run(), around), "ask", "config:require_approval_for")
    _is(decide(PolicyQuery(tool="read_file"), around), "ask", "config:require_approval_for")
    _is(decide(PolicyQuery(tool="grep"), around), "allow", "table:low-risk")
    rules = parse_rules('[[rule]]\ntool = "Bash"\nverdict = "allow"', "p")
    _is(decide(_run(), around, rules=[rules]), "ask", "config:require_approval_for")
    local = PolicyContext(isolation=LOCAL, require_approval_for=("run_script",))
    _is(decide(_run(), local), "deny", "table:local-untrusted")


def test_required_isolation_beats_every_rule() -> None:
    rules = parse_rules('[[rule]]\ntool = "*"\nverdict = "allow"', "p")
    around = PolicyContext(isolation=LOCAL, require_isolation=True)
    _is(decide(_run(trusted=True), around, rules=[rules]), "deny", "config:workspace.require_isolation")
    _is(decide(_run(), PolicyContext(isolation=SANDBOX, require_isolation=True)), "allow", "table:isolated")


def test_the_list_of_the_skill_that_a_call_names_counts() -> None:
    around = PolicyContext(isolation=SANDBOX)
    lists = {"project:pdf": parse_allowed(["Bash(git:*)"]), "user:all": parse_allowed(["*"])}
    _is(decide(_run("git status"), around, lists=lists), "allow", "table:isolated")
    refused = decide(_run("ls"), around, lists=lists)
    _is(refused, "deny", "allowed-tools:project:pdf")
    assert "Bash(git:*)" in refused.why
    _is(decide(_run("ls"), around, lists={"user:other": parse_allowed([])}), "allow", "table:isolated")


def test_an_ambient_call_needs_one_list_that_allows_it() -> None:
    around = PolicyContext(isolation=SANDBOX)
    lists = {"user:b": parse_allowed(["Grep"]), "project:a": parse_allowed([])}
    _is(decide(PolicyQuery(tool="grep"), around, lists=lists), "allow", "table:low-risk")
    _is(decide(PolicyQuery(tool="read_file"), around, lists=lists), "deny", "allowed-tools:project:a+user:b")
    _is(decide(PolicyQuery(tool="read_file"), around), "allow", "table:low-risk")
    for tool in NEVER_NARROWED:
        _is(decide(PolicyQuery(tool=tool), around, lists=lists), "allow", "table:low-risk")


def test_a_list_narrows_and_never_grants() -> None:
    lists = {"project:pdf": parse_allowed(["*"])}
    write = PolicyQuery(tool="write_file", args={"path": "x"}, skill="project:pdf")
    _is(decide(write, PolicyContext(), lists=lists), "deny", "config:tools.enable")
    _is(decide(_run(), PolicyContext(isolation=LOCAL), lists=lists), "deny", "table:local-untrusted")


def test_rules_come_before_the_table_and_after_the_lists() -> None:
    allow = parse_rules('[[rule]]\ncommand = "git"\nverdict = "allow"\nwhy = "We trust git."', ".agent/policy.toml")
    around = PolicyContext(isolation=LOCAL, find_program=Located)
    decision = decide(_run("git status"), around, rules=[allow])
    _is(decision, "allow", "rule:1 .agent/policy.toml:1")
    assert decision.why == "We trust git."
    _is(decide(_run("ls"), around, rules=[allow]), "deny", "table:local-untrusted")
    lists = {"project:pdf": parse_allowed(["Read"])}
    _is(decide(_run("git status"), around, rules=[allow], lists=lists), "deny", "allowed-tools:project:pdf")
    write = PolicyQuery(tool="write_file", args={"path": "out/x"})
    anything = parse_rules('[[rule]]\ntool = "*"\nverdict = "allow"', "p")
    delete = PolicyQuery(tool="delete_file", args={"path": "out/x"})
    _is(decide(delete, around, rules=[anything]), "deny", "config:tools.enable")
    enabled = PolicyContext(enabled=frozenset(["delete_file"]))
    _is(decide(delete, enabled, rules=[anything]), "allow", "rule:1 p:1")
    _is(decide(write, around, rules=[anything]), "allow", "rule:1 p:1")
    refuse = parse_rules('[[rule]]\ntool = "write_file"\nverdict = "deny"', "p")
    _is(decide(write, PolicyContext(isolation=SANDBOX), rules=[refuse]), "deny", "rule:1 p:1")


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize(
    ("path", "inside"),
    [
        *[(path, True) for path in ("out/x", "work/a/b.py", "out/.hidden", "work/..x")],
        *[(path, False) for path in ("x", "out", "out/", "", ".", "outx/y", "runs/x", "skills/demo/x", "OUT/x")],
        *[(path, False) for path in ("out/../x", "work/a/../../x", "out//x", "./out/x", "out/./x", "out/x/..")],
        *[(path, False) for path in ("/out/x", "/etc/x", "~/out/x", "host:///out/x", "workspace://out/x", "$OUT/x")],
        *[(path, False) for path in ("artifact://out/x", "skill://out/x", None, 7, ["out/x"])],
    ],
)
def test_writing_is_allowed_below_work_and_out_where_isolation_holds(path: Any, inside: bool, enabled: bool) -> None:
    """Policy sees the one spelling that the tool makes of a path, and any other is not inside."""
    write = PolicyQuery(tool="write_file", args={"path": path, "content": "x"})
    for isolation in (None, LOCAL, SANDBOX):
        around = PolicyContext(isolation=isolation, enabled=frozenset(["write_file"] if enabled else []))
        decision = decide(write, around)
        if inside and isolation is SANDBOX:
            _is(decision, "allow", "table:isolated-write")
        elif inside or enabled:
            _is(decision, "ask", "table:high-risk")
        else:
            _is(decision, "deny", "config:tools.enable")
        asked = around._replace(require_approval_for=("Write",))
        assert decide(write, asked).verdict == ("ask" if inside or enabled else "deny")


def test_the_strictest_file_decides_and_a_tightening_one_can_only_tighten() -> None:
    around = PolicyContext(isolation=SANDBOX, find_program=Located)
    ask = parse_rules('[[rule]]\ncommand = "git"\nverdict = "ask"', "user")
    allow = parse_rules('[[rule]]\ncommand = "git"\nverdict = "allow"', "project")
    deny = tightened(parse_rules('[[rule]]\ncommand = "git push"\nverdict = "deny"\n' * 1, "managed"))
    mild = tightened(parse_rules('[[rule]]\ncommand = "rm"\nverdict = "ask"', "managed"))
    _is(decide(_run("git status"), around, rules=[ask, allow]), "ask", "rule:1 user:1")
    _is(decide(_run("git status"), around, rules=[allow, ask]), "ask", "rule:1 user:1")
    for order in ([deny, allow], [allow, deny]):
        _is(decide(_run("git push"), around, rules=order), "deny", "rule:1 managed:1")
        _is(decide(_run("git status"), around, rules=order), "allow", "rule:1 project:1")
    _is(decide(_run("rm x"), PolicyContext(isolation=LOCAL), rules=[mild]), "deny", "table:local-untrusted")


def test_command_lists_are_part_of_the_configuration() -> None:
    around = PolicyContext(isolation=SANDBOX, commands_allow=("python3", "git"), commands_deny=("curl",))
    allowed = decide(_run("git commit -m 'a b'"), around)
    _is(allowed, "allow", "table:isolated")
    assert allowed.limits == {"argv": ["git", "commit", "-m", "a b"]}
    _is(decide(_run("ls"), around), "deny", "config:workspace.commands")
    refused = decide(_run("git status; ls"), around)
    _is(refused, "deny", "config:workspace.commands")
    assert "one plain command" in refused.why
    assert refused.limits == {}
    _is(decide(PolicyQuery(tool="skill_exec", args={"command": "curl x"}), around), "deny", "config:workspace.commands")
    _is(decide(PolicyQuery(tool="skill_run", args={}), around), "deny", "config:workspace.commands")


def test_a_script_is_judged_as_itself_and_as_what_runs_it() -> None:
    script = PolicyQuery(tool="skill_run", args={"script": "scripts/x.py", "args": ["a"]}, skill="project:pdf")
    for allow, words in (("python3", ["python3"]), ("python", ["python"]), ("scripts/x.py", [])):
        around = PolicyContext(isolation=SANDBOX, commands_allow=(allow,))
        _is(decide(script, around), "allow", "table:isolated")
        assert decide(script, around).limits == {"argv": [*words, "scripts/x.py", "a"]}, "what was judged is what runs"
    _is(decide(script, PolicyContext(isolation=SANDBOX, commands_allow=("bash",))), "deny", "config:workspace.commands")
    for deny in ("python3", "python", "x.py"):
        around = PolicyContext(isolation=SANDBOX, commands_allow=("python3", "python"), commands_deny=(deny,))
        _is(decide(script, around), "deny", "config:workspace.commands")
    _is(decide(script, PolicyContext(isolation=SANDBOX, commands_deny=("rm",))), "allow", "table:isolated")
    plain = PolicyQuery(tool="skill_run", args={"script": "scripts/run"}, skill="project:pdf")
    _is(decide(plain, PolicyContext(isolation=SANDBOX, commands_deny=("bash",))), "deny", "config:workspace.commands")
    _is(decide(plain, PolicyContext(isolation=SANDBOX, commands_allow=("scripts/run",))), "allow", "table:isolated")


@pytest.mark.parametrize(("cwd", "verdict"), [(None, "allow"), (".", "allow"), ("evil", "deny"), ("work", "deny")])
def test_a_listed_file_is_that_of_the_skills_own_folder(cwd: str | None, verdict: Any) -> None:
    around = PolicyContext(isolation=SANDBOX, commands_allow=("scripts/run", "git"))
    args = {"command": "scripts/run x", **({"cwd": cwd} if cwd else {})}
    decision = decide(PolicyQuery(tool="skill_run", args=args, skill="project:pdf"), around)
    assert decision.verdict == verdict, decision
    named = PolicyQuery(tool="skill_run", args={**args, "command": "git status"}, skill="project:pdf")
    assert decide(named, around).verdict == "allow", "a program that is found by its name is the same everywhere"


def test_a_variable_that_changes_what_starts_is_refused() -> None:
    around = PolicyContext(isolation=SANDBOX)
    bad = PolicyQuery(tool="skill_run", args={"command": "ls", "env": {"LD_PRELOAD": "x"}})
    _is(decide(bad, around), "deny", "environment")
    _is(decide(PolicyQuery(tool="skill_run", args={"command": "ls", "env": "A=1"}), around), "deny", "environment")
    _is(
        decide(PolicyQuery(tool="skill_run", args={"command": "ls", "env": {"A": "1"}}), around),
        "allow",
        "table:isolated",
    )


def test_a_capability_is_asked_once_and_never_without_trust_or_isolation() -> None:
    def install(trusted: bool = False, tool: str = "install_dependencies") -> PolicyQuery:
        return PolicyQuery(tool=tool, kind="capability", args={"packages": ["x"]}, skill="project:pdf", trusted=trusted)

    lists = {"project:pdf": parse_allowed([])}
    _is(decide(install(), PolicyContext(isolation=SANDBOX), lists=lists), "ask", "table:capability")
    _is(decide(install(trusted=True), PolicyContext(isolation=LOCAL)), "ask", "table:capability")
    _is(decide(install(), PolicyContext(isolation=LOCAL)), "deny", "table:local-untrusted")
    granted = PolicyContext(isolation=SANDBOX, granted=frozenset(["install_dependencies"]))
    _is(decide(install(), granted), "allow", "grant:install_dependencies")
    _is(decide(install(tool="fly"), granted), "deny", "table:unknown-capability")
    no = parse_rules('[[rule]]\ntool = "install_dependencies"\nverdict = "deny"', "p")
    _is(decide(install(), granted, rules=[no]), "deny", "rule:1 p:1")


def test_limits_of_the_tool_travel_with_the_decision() -> None:
    around = PolicyContext(
        enabled=frozenset(["network_request"]), limits={"network_request": {"hosts": ["a.b"]}, "x": {"y": 1}}
    )
    decision = decide(PolicyQuery(tool="network_request", args={"url": "https://a.b"}), around)
    assert decision.limits == {"hosts": ["a.b"]}


def test_a_decision_is_the_same_every_time() -> None:
    around = PolicyContext(isolation=SANDBOX, commands_allow=("ls",))
    assert decide(_run(), around) == decide(_run(), around)
