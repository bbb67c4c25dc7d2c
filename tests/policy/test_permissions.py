"""Every tool against everything that has a say in it, compared with an oracle that knows the sentences of the
documentation and nothing of the code. test_permissions_kit has the same through the kit, on every isolation tier.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from permission_oracle import (
    EVERY_TOOL,
    HIGH,
    NEVER_NARROWED,
    ORDER,
    SAYS,
    STARTS,
    TALKS,
    Case,
    oracle,
)
from prowess.core.tool_table import ALIASES
from prowess.core.values import Isolation, Located
from prowess.policy.allowed_tools import AllowedTools, canonical_tools, parse_allowed
from prowess.policy.decision import PolicyContext, PolicyQuery, decide, explain
from prowess.policy.rules import Rules, parse_rules
from prowess.runtime.config import Config
from prowess.runtime.policy_files import find_surroundings

ROOT = Path(__file__).resolve().parents[2]

ISOLATION = {
    "sandbox": Isolation(executor="sandbox", mechanism="bwrap+seccomp", network="none", kind="sandbox"),
    "container": Isolation(executor="container", mechanism="docker", network="none", kind="container"),
    "local": Isolation(executor="local", mechanism="none", network="host", kind="process"),
    "unknown": None,
}
WHOSE = {
    "off": r"config:tools\.enable",
    "list": r"allowed-tools:.*",
    "rule": r"rule:1 trusted:1",
    "tightening": r"rule:1 tightening:1",
    "required": r"config:require_approval_for",
    "grant": r"grant:allowed-tools",
    "table": r"table:.*",
}


def lists(who: str, tool: str) -> dict[str, AllowedTools]:
    yes, no = parse_allowed(["nothing_else", tool]), parse_allowed(["nothing_else"])
    return {
        "named-without": {},
        "named-allows": {"project:mine": yes, "user:other": no},
        "named-forbids": {"project:mine": no, "user:other": yes},
        "ambient-without": {},
        "ambient-one": {"project:mine": no, "user:other": yes},
        "ambient-none": {"project:mine": no, "user:other": no},
    }[who]


def policy(verdict: str | None, path: str, tool: str) -> list[Rules]:
    if verdict is None:
        return []
    rules = parse_rules(f'[[rule]]\ntool = "{tool}"\nverdict = "{verdict}"\n', path)
    return [rules._replace(only_tightens=path == "tightening")]


WHO = ("named-without", "named-allows", "named-forbids", "ambient-without", "ambient-one", "ambient-none")
ARGS = {"command": "ls", "file_name": "x", "path": "x", "url": "https://a.b", "pattern": "x", "session_id": "1"}


def cases(tool: str) -> Iterator[Case]:
    flags = (True, False)
    inside = flags if tool == "write_file" else (False,)
    for parts in itertools.product(flags, flags, WHO, SAYS, SAYS, ISOLATION, flags, flags, inside):
        yield Case(tool, *parts)


@pytest.mark.parametrize("tool", [*EVERY_TOOL, "mcp__x"])
def test_every_tool_against_everything_that_has_a_say(tool: str) -> None:
    seen: set[tuple[str, str]] = set()
    files = {(says, path): policy(says, path, tool) for says in SAYS for path in ("trusted", "tightening")}
    declared = {who: lists(who, tool) for who in WHO}
    for case in cases(tool):
        named = case.who.startswith("named")
        args = {**ARGS, "path": "out/x"} if case.inside else ARGS
        request = PolicyQuery(
            tool=tool, args=args, skill="project:mine" if named else None, trusted=case.trusted and named
        )
        around = PolicyContext(
            isolation=ISOLATION[case.isolation],
            enabled=frozenset([tool] if case.enabled else []),
            require_approval_for=(tool,) if case.required else (),
            grants=frozenset(["project:mine"] if case.granted else []),
        )
        rules = [*files[case.tightening, "tightening"], *files[case.rule, "trusted"]]
        decision = decide(request, around, lists=declared[case.who], rules=rules)
        wanted = oracle(case)
        assert decision.verdict == wanted[0], (case, decision)
        assert re.fullmatch(WHOSE[wanted[1]], decision.rule), (case, decision)
        seen.add(wanted)
    low = tool in NEVER_NARROWED.split()
    assert {verdict for verdict, _ in seen} == set(ORDER), "each verdict was reached"
    assert ("deny", "list") in seen or low, "a list narrows it, unless nothing may"


def test_the_table_of_scripts_alone() -> None:
    """The one table that people remember: isolated runs, local and trusted asks, local and untrusted does not."""
    wanted = {
        (where, trusted): "allow" if where in ("sandbox", "container") else "ask" if trusted else "deny"
        for where in ISOLATION
        for trusted in (True, False)
    }
    found = {
        (where, trusted): decide(
            PolicyQuery(tool="skill_run", args={"command": "ls"}, skill="project:mine", trusted=trusted),
            PolicyContext(isolation=ISOLATION[where]),
        ).verdict
        for where, trusted in wanted
    }
    assert found == wanted


@pytest.mark.parametrize("tool", sorted(STARTS))
@pytest.mark.parametrize("rule", SAYS)
def test_what_the_configuration_forbids_of_commands_no_rule_and_no_list_allows(tool: str, rule: str | None) -> None:
    for where, require, allow, deny, command in itertools.product(
        ISOLATION, (True, False), ((), ("git",), ("ls",)), ((), ("ls",)), ("ls", "git status", "ls; git status")
    ):
        around = PolicyContext(
            isolation=ISOLATION[where], require_isolation=require, commands_allow=allow, commands_deny=deny
        )
        request = PolicyQuery(tool=tool, args={"command": command}, skill="project:mine", trusted=True)
        decision = decide(request, around, lists=lists("named-allows", tool), rules=policy(rule, "trusted", tool))
        program = command.split()[0]
        off = (require and where in ("local", "unknown")) or (
            bool(allow or deny) and (";" in command or program in deny or (bool(allow) and program not in allow))
        )
        usual = "allow" if where in ("sandbox", "container") else "ask"
        assert decision.verdict == ("deny" if off else rule or usual), (around, command, decision)
        if off:
            assert decision.rule.startswith("config:workspace."), decision


# --- properties -------------------------------------------------------------------------------------------------------

_TOOLS = st.sampled_from([*EVERY_TOOL, "mcp__x", "install_dependencies"])
_COMMANDS = st.sampled_from(["git status", "git push", "ls", "git status; ls", "env git push", "python3 x.py", ""])
_ENTRIES = st.lists(st.sampled_from(["Bash", "Bash(git:*)", "Read", "Write", "*", "mcp__*", "Nonsense", "Bash("]))
_RULE = st.builds(
    lambda verdict, about: f'[[rule]]\nverdict = "{verdict}"\n{about}\n',
    st.sampled_from(ORDER),
    st.sampled_from(['tool = "*"', 'tool = "Bash"', 'command = "git push"', 'skill = "mine"', 'source = "user"']),
)
_FILE = st.builds(
    lambda rules, tightens: parse_rules("".join(rules), "file")._replace(only_tightens=tightens),
    st.lists(_RULE, max_size=3),
    st.booleans(),
)
_REQUEST = st.builds(
    PolicyQuery,
    tool=_TOOLS,
    args=st.builds(lambda command, cwd: {"command": command, **cwd}, _COMMANDS, st.sampled_from([{}, {"cwd": "x"}])),
    skill=st.sampled_from([None, "project:mine", "user:other"]),
    source=st.sampled_from([None, "project", "user"]),
    trusted=st.booleans(),
    kind=st.sampled_from(["call", "capability"]),
)
_LISTS = st.dictionaries(st.sampled_from(["project:mine", "user:other"]), st.builds(parse_allowed, _ENTRIES))
_AROUND = st.builds(
    lambda **given: PolicyContext(**given),  # hypothesis would make up the other fields of a named tuple
    isolation=st.sampled_from(list(ISOLATION.values())),
    enabled=st.frozensets(st.sampled_from(sorted(HIGH))),
    require_approval_for=st.lists(st.sampled_from(["Bash", "skill_run", "Read"]), max_size=1).map(tuple),
    commands_allow=st.sampled_from([(), ("git",)]),
    require_isolation=st.booleans(),
    grants=st.frozensets(st.sampled_from(["project:mine", "user:other"]), min_size=1),
)


def _without_grants(around: PolicyContext) -> PolicyContext:
    return around._replace(grants=frozenset())


@example(
    PolicyQuery(tool="skill_write_stdin", skill="user:other", trusted=True),
    PolicyContext(isolation=ISOLATION["local"], require_approval_for=("Bash",), grants=frozenset({"user:other"})),
    {"user:other": parse_allowed(["Bash"])},
    [],
)
@given(_REQUEST, _AROUND, _LISTS, st.lists(_FILE, max_size=2))
def test_a_grant_changes_nothing_but_what_the_table_asks_of_a_trusted_skill(
    request: PolicyQuery, around: PolicyContext, declared: dict[str, AllowedTools], rules: list[Rules]
) -> None:
    with_it = decide(request, around, lists=declared, rules=rules)
    without = decide(request, _without_grants(around), lists=declared, rules=rules)
    if without.verdict == "deny" or not without.rule.startswith("table:"):
        assert (with_it.verdict, with_it.rule) == (without.verdict, without.rule)
    elif with_it.rule != without.rule:
        asked_anyway = with_it.rule == "config:require_approval_for" and with_it.verdict == "ask"
        assert (with_it.rule == "grant:allowed-tools" or asked_anyway) and without.rule == "table:local-trusted"
        assert request.skill in declared and request.skill in around.grants and request.trusted
        assert request.tool in STARTS | TALKS
    assert with_it.limits == without.limits


@given(_REQUEST, _AROUND, _LISTS, st.lists(_FILE, max_size=2), _FILE)
def test_a_file_that_only_tightens_never_loosens(
    request: PolicyQuery, around: PolicyContext, declared: dict[str, AllowedTools], rules: list[Rules], more: Rules
) -> None:
    before = decide(request, around, lists=declared, rules=rules)
    tight = more._replace(only_tightens=True)
    for order in ([tight, *rules], [*rules, tight]):
        after = decide(request, around, lists=declared, rules=order)
        assert ORDER.index(after.verdict) >= ORDER.index(before.verdict)


@given(_REQUEST, _AROUND, _LISTS, st.lists(_FILE, max_size=2))
def test_a_list_never_grants_by_itself(
    request: PolicyQuery, around: PolicyContext, declared: dict[str, AllowedTools], rules: list[Rules]
) -> None:
    around = _without_grants(around)
    narrowed = decide(request, around, lists=declared, rules=rules)
    free = decide(request, around, rules=rules)
    assert ORDER.index(narrowed.verdict) >= ORDER.index(free.verdict)


@given(_REQUEST, _AROUND, _LISTS, st.lists(_FILE, max_size=2))
def test_an_explanation_is_the_decision(
    request: PolicyQuery, around: PolicyContext, declared: dict[str, AllowedTools], rules: list[Rules]
) -> None:
    found = explain(request, around, lists=declared, rules=rules)
    assert found.decision == decide(request, around, lists=declared, rules=rules)
    assert found.decided in found.said and found.decided.decision is not None
    assert found.decided.decision.rule == found.decision.rule
    assert sum(each.by == "policy" for each in found.said) == len(rules), "every file was asked"


# --- grants, by example -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entries", "tool", "args", "verdict"),
    [
        ("Bash(git:*)", "skill_run", {"command": "git status"}, "allow"),
        ("Bash(git:*)", "skill_exec", {"command": "git status"}, "allow"),
        ("Bash(lua:*)", "skill_run", {"command": "lua x"}, "ask"),
        ("Bash(git:*)", "skill_run", {"command": "git add *"}, "ask"),
        ("Bash", "skill_run", {"command": "ls | wc", "cwd": "work"}, "allow"),
        ("Bash", "skill_write_stdin", {"session_id": "1"}, "allow"),
        # The same words start another program in a folder that the model has chosen, and may have written to.
        ("Bash(scripts/x.py:*)", "skill_run", {"command": "scripts/x.py", "cwd": "work"}, "ask"),
        # What a program is told while it runs, nobody has read before.
        ("Bash(git:*)", "skill_write_stdin", {"session_id": "1"}, "ask"),
        ("Bash(git:*)", "skill_run", {"command": "git status; ls"}, "deny"),
        ("*", "write_file", {"path": "x"}, "ask"),
        ("*", "mcp__x", {}, "ask"),
    ],
)
def test_what_a_grant_covers(entries: str, tool: str, args: dict[str, Any], verdict: str) -> None:
    around = PolicyContext(
        isolation=ISOLATION["local"],
        grants=frozenset(["project:mine"]),
        enabled=frozenset(["write_file"]),
        find_program=lambda name: Located(f"/usr/bin/{name}") if name == "git" else Located(reason="no"),
    )
    declared = {"project:mine": parse_allowed(entries.split("|"))}
    request = PolicyQuery(tool=tool, args=args, skill="project:mine", trusted=True)
    assert decide(request, around, lists=declared).verdict == verdict
    other = PolicyQuery(tool=tool, args=args, skill="user:other", trusted=True)
    assert decide(other, around, lists=declared).verdict == "ask", "the grant is another skill's"
    if verdict == "allow":
        untrusted = PolicyQuery(tool=tool, args=args, skill="project:mine")
        assert decide(untrusted, around, lists=declared).verdict == "deny", "nobody trusts its source any more"


# --- limits arrive ----------------------------------------------------------------------------------------------------


def test_limits_of_the_configuration_travel_with_the_decision() -> None:
    config = Config()
    workspace = config.workspace._replace(network_allow=("a.b",), host_roots=("/data",))
    around = find_surroundings(config._replace(workspace=workspace))
    hosts = decide(PolicyQuery(tool="network_request", args={"url": "https://a.b"}), around).limits
    assert hosts["hosts"] == ["a.b"] and hosts["max_bytes"] > 0 and hosts["timeout_s"] > 0
    for tool in ("write_file", "delete_file"):
        assert decide(PolicyQuery(tool=tool, args={"path": "x"}), around).limits == {"roots": ["/data"]}


# --- the page ---------------------------------------------------------------------------------------------------------


def test_the_alias_table_of_the_page_is_the_one_in_force() -> None:
    page = (ROOT / "docs" / "permissions.md").read_text(encoding="utf-8")
    table = page.partition("| name | is |")[2].partition("\n\n")[0]
    rows = [re.findall(r"`([^`]+)`", line) for line in table.splitlines() if line.startswith("| `")]
    told: Mapping[str, tuple[str, ...]] = {
        name: tuple(tools.split(", ")) for line in table.splitlines()[2:] for name, tools in _row(line)
    }
    assert rows and told == ALIASES
    for name, tools in told.items():
        assert canonical_tools(name.upper()) == tools, "in any case"


def _row(line: str) -> Iterator[tuple[str, str]]:
    names, tools = (re.findall(r"`([^`]+)`", cell) for cell in line.strip("| ").split(" | "))
    for name in names:
        yield name, ", ".join(tools)
