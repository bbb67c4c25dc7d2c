"""Patterns of calls: their forms, their errors, and the calls that they match."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prowess.core.tool_table import ALIASES, TOOLS
from prowess.errors import in_one_line
from prowess.policy.call_patterns import parse_call_pattern
from prowess.records.trajectory import CallStep


def step(tool: str, skill: str = "", **args: Any) -> CallStep:
    return CallStep(index=0, tool=tool, skill=skill, args=args, status="ok")


def fits(pattern: str, found: CallStep) -> bool:
    return parse_call_pattern(pattern).fits(found, lambda expression, text: re.search(expression, text) is not None)


RUN = step("skill_run", "csv-report", command="rm -rf /, (now)", timeout=30, save_as_artifacts=True, args=["--all"])


@pytest.mark.parametrize(
    "pattern",
    [
        "*",
        "skill_run",
        " skill_run ",
        "skill_*",
        "Bash",
        "run_script",
        "skill_run(*)",
        "skill_run(csv-report)",
        "skill_run(builtin:csv-report)",
        "skill_run(csv-*)",
        "*(csv-report)",
        "skill_run(*, command=~'rm -rf')",
        "skill_run(csv-report,command=~'rm')",
        "skill_run(command='rm -rf /, (now)')",
        'skill_run( * , command = "rm -rf /, (now)", timeout=30, save_as_artifacts=true )',
        r"skill_run(command=~'\(now\)$')",
        "skill_run(args=~'--all')",
    ],
)
def test_a_pattern_that_fits(pattern: str) -> None:
    assert fits(pattern, RUN)


@pytest.mark.parametrize(
    "pattern",
    [
        "skill_load",
        "web_fetch",
        "skill_run(csv)",
        "skill_run(*, command=~'^-rf')",
        "skill_run(*, command='rm')",
        "skill_run(*, script=~'')",
        "skill_run(csv-report, timeout=3)",
        "skill_run(*, command=~'rm', timeout=1)",
    ],
)
def test_a_pattern_that_does_not_fit(pattern: str) -> None:
    assert not fits(pattern, RUN)


def test_an_argument_that_is_not_given() -> None:
    assert not fits("skill_run(command=~'')", step("skill_run", command=None))
    assert not fits("skill_run(command=null)", step("skill_run", command=None))


def test_a_quote_in_a_value() -> None:
    assert fits(r"skill_run(command=~'it\'s')", step("skill_run", command="it's here"))
    assert fits(r"skill_run(command=~'\\d \d')", step("skill_run", command=r"\d 4"))


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("", "does not begin with the name of a tool"),
        ("(x)", "does not begin with the name of a tool"),
        ("skil_run", "there is no tool 'skil_run'; did you mean 'skill_run'?"),
        ("frobnicate", "there is no tool 'frobnicate'"),
        ("skill_run(", "expected SKILL, NAME=VALUE or NAME=~'PATTERN' at character 11"),
        ("skill_run()", "at character 11"),
        ("skill_run(a,)", "at character 13"),
        ("skill_run(a", "at character 11"),
        ("skill_run(a) b", "'b' at character 13 is too much"),
        ("skill_run(a))", "')' at character 13 is too much"),
        ("skill_run(a, b)", "only the first value is a skill"),
        ("skill_run(*, comand=x)", "skill_run has no argument 'comand'; did you mean 'command'?"),
        ("skill_run(*, command=~'x)", "at character 13"),
        ("skill_run(*, command=~)", "at character 13"),
        ("x" * 3000, "at most 2000 characters"),
        ("skill_\x1b[31m", r"there is no tool 'skill_\u{1b}[31m'"),
    ],
)
def test_errors_say_what_and_where(pattern: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_call_pattern(pattern)


@given(name=st.sampled_from(sorted([*TOOLS, *ALIASES])))
def test_every_name_of_a_tool_is_accepted(name: str) -> None:
    assert set(parse_call_pattern(name).tools) <= TOOLS.keys()
    assert parse_call_pattern(name.upper() if name in ALIASES else name).tools == parse_call_pattern(name).tools


@given(st.text() | st.text("skil_run(*,=~'\"\\) \n", max_size=40).map("skill_run({}".format))
def test_every_text_is_a_pattern_or_a_clear_error(text: str) -> None:
    try:
        parse_call_pattern(text)
    except ValueError as error:
        assert in_one_line(error).isprintable()


_VALUES = st.text(min_size=1).filter(lambda text: not text.endswith("\\") and "\\'" not in text)


@given(skill=st.from_regex(r"[a-z0-9][a-z0-9-]{0,20}", fullmatch=True), value=_VALUES)
def test_what_is_quoted_is_compared_as_it_is(skill: str, value: str) -> None:
    quoted = value.replace("'", "\\'")
    assert fits(f"skill_run({skill}, command='{quoted}')", step("skill_run", skill, command=value))
    assert not fits(f"skill_run({skill}, command='{quoted}')", step("skill_run", skill, command=value + "x"))
