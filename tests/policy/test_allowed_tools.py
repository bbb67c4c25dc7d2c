"""A list narrows: what it says is allowed, what it does not say is not, and what is unclear is not either."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prowess.core.tool_table import ALIASES, NEVER_NARROWED, TOOLS
from prowess.policy.allowed_tools import allows, allows_any, canonical_tools, find_host, parse_allowed
from prowess.policy.commands.parse import ShellCommand, split_command
from prowess.policy.globs import match_anything, match_path, match_word
from prowess.skills.metadata import split_tools


def _run(command: str) -> tuple[str, dict[str, Any]]:
    return "skill_run", {"skill": "x", "command": command}


def _script(script: str, *args: str) -> tuple[str, dict[str, Any]]:
    return "skill_run", {"skill": "x", "script": script, "args": list(args)}


@pytest.mark.parametrize(
    ("entry", "call"),
    [
        ("Bash", _run("ls; rm -rf x | y")),
        ("bash", _run("ls")),
        ("Bash(*)", _run("ls && pwd")),
        ("Bash(:*)", _run("ls && pwd")),
        ("Bash(*:*)", _run("ls && pwd")),
        ("Bash", ("skill_exec", {"command": "ls"})),
        ("Bash", ("skill_write_stdin", {"session_id": "1"})),
        ("Bash(git:*)", ("skill_poll_session", {"session_id": "1"})),
        ("skill_run", _run("ls | wc")),
        ("run_script", _script("scripts/x.py")),
        ("Bash(git:*)", _run("git")),
        ("Bash(git:*)", _run("git status")),
        ("Bash(git:*)", _run("/usr/bin/git status")),
        ("Bash(git:*)", _run("git commit -m 'a; b && c'")),
        ("Bash(git *)", _run("git status")),
        ("Bash(git add:*)", _run("git add x")),
        ("Bash(npm run test:*)", _run("npm run test -- --fast")),
        ("Bash(ls -la)", _run("ls -la")),
        ("Bash(ls -la)", _run("ls  '-la'")),
        ("Bash(python3:*)", _run("python3 -c 'import os; print(1)'")),
        ("Bash(python3:*)", _script("scripts/x.py", "a")),
        ("Bash(python:*)", _script("scripts/x.py", "a")),
        ("Bash(python scripts/x.py:*)", _script("scripts/x.py", "a")),
        ("Bash(scripts/x.py:*)", _script("scripts/x.py", "a; b")),
        ("Bash(./scripts/x.py:*)", _run("scripts/x.py a")),
        ("run_script(scripts/*.py)", _script("scripts/x.py", "a", "b")),
        ("run_script(x.py)", _script("x.py", "a")),
        ("run_script(*.py)", _script("x.py", "a")),
        ("Bash(env:*)", _run("env rm x")),  # who allows env allows what it starts
        ("Bash(git:*)", ("skill_run", {"command": "git status", "env": {"LANG": "C"}})),
        ("Bash(find . -delete)", _run("find . -delete")),
        ("Bash(git diff *.md)", _run("git diff a.md")),
        ("skill_*", _run("ls")),
        ("*", ("write_file", {"path": "x"})),
        ("*", ("some_tool", {})),
        ("mcp__*", ("mcp__github__issue", {})),
        ("mcp__github__issue", ("mcp__github__issue", {})),
        ("my_tool", ("my_tool", {"a": 1})),
        ("Read", ("read_file", {"file_name": "/any/where"})),
        ("Read(docs/**)", ("read_file", {"file_name": "docs/a/b.md"})),
        ("Read(docs/**)", ("read_file", {"file_name": "./docs//a.md"})),
        ("Read(./docs/)", ("read_file", {"file_name": "docs/a/b.md"})),
        ("Read(docs/*.md)", ("read_file", {"file_name": "workspace://docs/a.md"})),
        ("Read(**/*.md)", ("read_file", {"file_name": "a.md"})),
        ("Read(/data/**)", ("read_file", {"file_name": "/data/x"})),
        ("Edit(out/**)", ("write_file", {"path": "out/x"})),
        ("LS", ("list_dir", {"path": "x"})),
        ("Glob", ("list_dir", {"path": "x"})),
        ("Grep", ("grep", {"pattern": "x"})),
        ("Grep(**)", ("grep", {"pattern": "x"})),
        ("Grep(src/**)", ("grep", {"pattern": "x", "path": "src/a"})),
        ("WebFetch", ("network_request", {"url": "https://x.y"})),
        ("network", ("network_request", {"url": "https://x.y"})),
        ("WebFetch(domain:example.com)", ("network_request", {"url": "https://EXAMPLE.com:8443/x?y"})),
        ("WebFetch(domain:*.example.com)", ("network_request", {"url": "https://a.b.example.com/"})),
    ],
)
def test_an_entry_allows(entry: str, call: tuple[str, dict[str, Any]]) -> None:
    allowed = parse_allowed([entry], known=["my_tool"])
    assert allowed.unknown == ()
    assert allows(allowed, *call)


@pytest.mark.parametrize(
    ("entries", "call"),
    [
        ("", _run("ls")),
        ("Read", _run("ls")),
        ("Bash", ("read_file", {"file_name": "x"})),
        ("skill_run", ("skill_exec", {"command": "ls"})),
        ("Read", ("skill_poll_session", {})),
        ("Bash(git:*)", _run("gitx status")),
        ("Bash(git:*)", _run("./git status")),
        ("Bash(git:*)", _run("/tmp/git status")),
        ("Bash(git:*)", _run("git status; rm -rf /")),
        ("Bash(git:*)", _run("git status && rm x")),
        ("Bash(git:*)", _run("git status | sh")),
        ("Bash(git:*)", _run("git status & rm x")),
        ("Bash(git:*)", _run("git status\nrm x")),
        ("Bash(git:*)", _run("git $(rm x)")),
        ("Bash(git:*)", _run('git "$(rm x)"')),
        ("Bash(git:*)", _run("git `rm x`")),
        ("Bash(git:*)", _run("git log > ~/.bashrc")),
        ("Bash(git:*)", _run("A=1 git status")),
        ("Bash(git:*)", _run("PATH=. git status")),
        ("Bash(git:*)", _run("env git status")),
        ("Bash(git:*)", _run("git $X")),
        ("Bash(git:*)", _run("git {a,b}")),
        ("Bash(git:*)", _run("")),
        ("Bash(git:*)", ("skill_run", {})),
        ("Bash(git:*)", ("skill_run", {"command": ["git", "status"]})),
        ("Bash(git:*)", ("skill_run", {"command": "git status", "script": "evil.py"})),
        ("Bash(git:*)", _script("scripts/x.py")),
        ("Bash(git:*)", _script("./git", "status")),
        ("Bash(git:*)", _script("git", "status")),
        ("Bash(git:*)", ("skill_run", {"command": "git status", "env": {"GIT_SSH": "x"}})),
        ("Bash(rg:*)", ("skill_run", {"command": "rg x", "env": {"RIPGREP_CONFIG_PATH": "work/x"}})),
        ("Bash(git add:*)", _run("git push")),
        ("Bash(git add:*)", _run("git -C x add y")),
        ("Bash(git add:*)", _run("git 'add x'")),
        ("Bash(npm run test:*)", _run("npm run testevil")),
        ("Bash(ls -la)", _run("ls -la /")),
        ("Bash(ls -la)", _run("ls")),
        ("Bash(git diff *.md)", _run("git diff ../x.md")),
        ("Bash(cat docs/*)", _run("cat docs/..")),
        ("Bash(cat docs/*)", _run("cat docs/a/b")),
        ("run_script(scripts/*.py)", _script("scripts/../evil.py")),
        ("run_script(scripts/*.py)", _script("scripts/a/evil.py")),
        ("run_script(scripts/*.py)", _script("../scripts/x.py")),
        ("Bash()", _run("ls")),
        ("Bash(ls && rm:*)", _run("ls")),
        ("skill_*", ("write_file", {"path": "x"})),
        ("mcp__*", _run("ls")),
        ("mcp__*(x)", ("mcp__a", {})),
        ("Read(docs/**)", ("read_file", {"file_name": "docs/../secret"})),
        ("Read(docs/**)", ("read_file", {"file_name": "docs/..\\secret"})),
        ("Read(docs/**)", ("read_file", {"file_name": "/docs/a"})),
        ("Read(docs/**)", ("read_file", {"file_name": "workspace://docs/../x"})),
        ("Read(docs/**)", ("read_file", {"file_name": "host://docs/x"})),
        ("Read(docs/**)", ("read_file", {"file_name": "docs/a\0b"})),
        ("Read(docs/**)", ("read_file", {"path": "docs/x"})),
        ("Read(docs/**)", ("read_file", {"file_name": ["docs/x"]})),
        ("Read(docs/*.md)", ("read_file", {"file_name": "docs/a/b.md"})),
        ("Read(docs/**)", ("write_file", {"path": "docs/x"})),
        ("Grep(src/**)", ("grep", {"pattern": "x"})),
        ("WebFetch(domain:example.com)", ("network_request", {"url": "https://example.com.evil.io"})),
        ("WebFetch(domain:example.com)", ("network_request", {"url": "https://example.com@evil.io"})),
        ("WebFetch(domain:example.com)", ("network_request", {"url": "https://evil.io#example.com"})),
        ("WebFetch(domain:example.com)", ("network_request", {"url": "https://evil.io\\@example.com"})),
        ("WebFetch(domain:example.com)", ("network_request", {"url": "file://example.com/etc"})),
        ("WebFetch(domain:example.com)", ("network_request", {"url": "https://www.example.com"})),
        ("WebFetch(domain:example.com)", ("network_request", {"url": "https://ｅxample.com"})),
        ("WebFetch(domain:*.example.com)", ("network_request", {"url": "https://example.com"})),
        ("WebFetch(domain:*.example.com)", ("network_request", {"url": "https://evilexample.com"})),
        ("WebFetch(https://example.com/*)", ("network_request", {"url": "https://example.com/x"})),
        ("WebSearch", ("network_request", {"url": "https://x.y"})),
    ],
)
def test_an_entry_does_not_allow(entries: str, call: tuple[str, dict[str, Any]]) -> None:
    assert not allows(parse_allowed(split_tools(entries)), *call)


@pytest.mark.parametrize("tool", sorted(NEVER_NARROWED))
def test_reading_skills_is_never_narrowed(tool: str) -> None:
    assert allows(parse_allowed([]), tool, {})


@pytest.mark.parametrize(
    "entry",
    ["WebSearch", "Task", "Bash()", "Bash(a && b:*)", "no_such_tool", "Web*", "x y", "", "mcp__*(x)", "Fetch(x)"],
)
def test_what_names_no_tool_is_reported(entry: str) -> None:
    assert parse_allowed(["Read", entry, entry]).unknown == (entry,)


def test_a_union_allows_what_one_list_allows() -> None:
    git, read = parse_allowed(["Bash(git:*)"]), parse_allowed(["Read"])
    assert allows_any([git, read], *_run("git status"))
    assert allows_any([git, read], "read_file", {"file_name": "x"})
    assert not allows_any([git, read], *_run("ls"))
    assert not allows_any([parse_allowed([])], *_run("ls"))


def test_the_alias_table_names_tools_that_there_are() -> None:
    for alias, tools in ALIASES.items():
        assert set(tools) <= TOOLS.keys(), alias
        assert canonical_tools(alias) == canonical_tools(alias.lower()) == tools
    assert canonical_tools("read_file") == ("read_file",)
    assert canonical_tools("what") == ("what",)


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("a*c", "abc", True),
        ("a*c", "ab/c", False),
        ("a**c", "ab/c", True),
        ("**/c", "c", True),
        ("**/c", "a/b/c", True),
        ("**/c", "abc", False),
        ("a/**/c", "a/c", True),
        ("a/**/c", "a/b/d/c", True),
        ("?", "a", True),
        ("?", "/", False),
        ("?", "", False),
        ("*", "", True),
        ("[a]", "a", False),
        ("**/a*b", "x/a/q/ab", True),
    ],
)
def test_patterns(pattern: str, text: str, fits: bool) -> None:
    assert match_word(pattern, text) is fits


def test_a_pattern_takes_no_more_than_its_time() -> None:
    started = time.process_time()
    assert not match_word("*a" * 200, "a" * 5000 + "b")
    assert not match_path("**a" * 200, "a" * 5000 + "b")
    assert time.process_time() - started < 10


def test_where_a_slash_is_like_other_characters() -> None:
    assert match_anything("https://*/x", "https://a/b/x")
    assert match_anything("*a*", "b/a/c")
    assert not match_anything("a*", "ba")


@given(st.text(max_size=40))
def test_nothing_that_is_no_address_has_a_host(text: str) -> None:
    host = find_host(text)
    assert host is None or host in text.lower()


@given(
    st.lists(st.text(alphabet="Bash(git:*) Readskill_run", max_size=14), max_size=4),
    st.text(alphabet="git ;|&$`\n'\"ad", max_size=20),
)
def test_no_list_makes_the_reader_fall_over(entries: list[str], command: str) -> None:
    allowed = parse_allowed(entries)
    assert allows(allowed, *_run(command)) in (True, False)


@given(st.text(alphabet="git status;&|<>$`()\n '\"", max_size=30))
def test_a_prefix_is_about_one_simple_command_only(text: str) -> None:
    if allows(parse_allowed(["Bash(git:*)"]), *_run(text)):
        command = split_command(text)
        assert isinstance(command, ShellCommand)
        assert command.argv[0] == "git"
