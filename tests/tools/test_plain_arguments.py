"""Plain arguments are read without pydantic, and the reading is that of pydantic."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prowess.errors import ToolRetry
from prowess.tools.arguments import LoadArguments, RunArguments
from prowess.tools.plain_arguments import NormalArguments, read_load, read_run
from prowess.tools.schema import Arguments, parse_arguments

texts = st.sampled_from(["", " ", "a", " a ", "[]", '{"name": "b"}', "x\0y", "é"]) | st.text(max_size=3)
words = st.lists(texts | st.integers(), max_size=2)
values = st.none() | st.booleans() | st.sampled_from([0, 1, {}, {"A": "1"}]) | texts | words
RUN_NAMES = [*RunArguments.model_fields, "name", "timeout_s", "description", "x"]
LOAD_NAMES = [*LoadArguments.model_fields, "name", "skills", "args", "x"]


def by_pydantic(kind: Any, args: dict[str, Any], tool: str) -> NormalArguments[Any] | str:
    try:
        parsed = parse_arguments(kind, args, tool)
    except ToolRetry as error:
        return str(error)
    return NormalArguments(parsed.normal(), parsed.request)


def check_both(kind: type[Arguments], read: Any, args: dict[str, Any], tool: str) -> None:
    wanted = by_pydantic(kind, args, tool)
    try:
        found = read(args)
    except ToolRetry as error:
        assert str(error) == wanted
        return
    assert isinstance(wanted, NormalArguments)
    assert list(found.items()) == list(wanted.items()), "in the same order, too: it is recorded"
    assert shown(found.parsed) == shown(wanted.parsed)
    assert read(found) is found, "it is read once for a call"


def shown(request: Any) -> str:
    return str(request).replace("()", "[]")


@given(st.dictionaries(st.sampled_from(["skill", "command", "script", "args", "omit_inline_content"]), values))
@example({"skill": "a", "script": "s.py", "args": ["x", "y"], "omit_inline_content": True})
@example({"skill": "a", "command": "x", "script": "y"})
@example({"skill": "a", "command": "x", "args": ["y"]})
@example({"skill": "a", "command": "x", "inputs": [], "output_files": [], "install": [], "env": {}})
def test_a_run_is_read_as_pydantic_reads_it(args: dict[str, Any]) -> None:
    check_both(RunArguments, read_run, args, "skill_run")


@given(st.dictionaries(st.sampled_from(RUN_NAMES), values), st.sampled_from(["command", "script"]), texts)
def test_so_is_a_run_with_anything_else(args: dict[str, Any], way: str, text: str) -> None:
    check_both(RunArguments, read_run, {"skill": "a", **args, way: text}, "skill_run")


@given(st.dictionaries(st.sampled_from(["skill", "source"]), values))
@example({"skill": " a ", "source": "user"})
def test_a_load_is_read_as_pydantic_reads_it(args: dict[str, Any]) -> None:
    check_both(LoadArguments, read_load, args, "skill_load")


@given(st.dictionaries(st.sampled_from(LOAD_NAMES), values), texts)
def test_so_is_a_load_with_anything_else(args: dict[str, Any], skill: str) -> None:
    check_both(LoadArguments, read_load, {**args, "skill": skill}, "skill_load")


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("run", {"skill": "a", "script": "s.py", "args": ["8"], "inputs": [], "env": {}, "omit_inline_content": True}),
        ("run", {"skill": "a", "command": "python3 scripts/fib.py 10", "output_files": []}),
        ("load", {"skill": "a"}),
        ("load", {"skill": "a", "source": "builtin"}),
    ],
)
def test_plain_arguments_import_no_pydantic(tool: str, args: dict[str, Any]) -> None:
    code = (
        f"import json, sys; from prowess.tools.plain_arguments import read_{tool}; "
        f"read_{tool}(json.loads(sys.argv[1])); print([name for name in sys.modules if 'pydantic' in name])"
    )
    command = [sys.executable, "-c", code, json.dumps(args)]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "[]\n"
