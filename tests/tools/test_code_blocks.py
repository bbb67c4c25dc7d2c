"""Fenced code in an answer becomes calls: shell and Python, in order, for a skill in use, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prowess.errors import ToolRetry
from prowess.tools.arguments import RunArguments
from prowess.tools.run.code_blocks import find_blocks, find_code_calls, find_code_notes
from prowess.tools.schema import parse_arguments


def calls(text: str) -> list[dict[str, Any]]:
    found = find_code_calls(text, skill="demo")
    for args in found:
        parse_arguments(RunArguments, args, "skill_run")  # every one is a call that can be made
        assert args.pop("skill") == "demo"
    return found


def test_shell_is_a_command_and_python_its_input() -> None:
    text = "Look:\n```bash\nls -l\npwd\n```\nand\n```Python title=x\nprint(1)\n```\n~~~sh\necho hi\n~~~\n"
    assert calls(text) == [
        {"command": "ls -l\npwd\n"},
        {"command": "python3 -", "stdin": "print(1)\n"},
        {"command": "echo hi\n"},
    ]
    assert find_code_notes(text, skill="demo") == []


@pytest.mark.parametrize(
    "text",
    [
        "no code",
        "```\nls\n```",
        "```json\n{}\n```",
        "```console\n$ ls\n```",
        "```bash\n\n   \n```",
        "`bash ls`",
        "```bash ls``` in a line\n",
        "> ```bash\n> ls\n> ```\n",
        "    ```bash\n    ls\n    ```\n",  # a quotation of code
        "\t```bash\n\tls\n\t```\n",
        "````markdown\n```bash\nrm -r x\n```\n````\n",  # code about code
        "~~~markdown\n```bash\nrm -r x\n```\n~~~\n",
        "```text\n~~~bash\nls\n~~~\n```",
    ],
)
def test_what_is_no_call(text: str) -> None:
    assert calls(text) == [] and find_code_notes(text, skill="demo") == []


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("````bash\necho '```'\n```\n````", "echo '```'\n```\n"),
        ("```bash\necho '~~~'\n~~~\n```", "echo '~~~'\n~~~\n"),
        ("   ```bash\n   a\n     b\n c\n   ```", "a\n  b\nc\n"),
        ("1. Do:\n\n   ```bash\n   a\n   ```\n", "a\n"),
        ("- x\n  - y\n\n    ```bash\n    a\n      b\n    ```\n", "a\n  b\n"),
        ("10. ```bash\n    a\n    ```\n", "a\n"),
        ("- ```sh\n  a\n  ```", "a\n"),
        ("```bash\r\na\r\nb\r\n```\r\n", "a\nb\n"),
        ("```bash\na\n`````", "a\n"),
        ("``` bash\na\n```", "a\n"),
        ("```bash\n\n\na\n```", "\n\na\n"),
        ("```bash\ncat <<E\n\tx\nE\n```", "cat <<E\n\tx\nE\n"),
        ("text right before\n```shell\na\n```right after\n```\n", "a\n```right after\n"),
    ],
)
def test_fences_as_they_come(text: str, command: str) -> None:
    assert calls(text) == [{"command": command}]


def test_a_block_without_an_end_is_said() -> None:
    text = "```bash\nls\n```\n\n```python\nprint(1)\n"
    assert calls(text) == [{"command": "ls\n"}]
    (note,) = find_code_notes(text, skill="demo")
    assert "python block at line 5" in note and "no end" in note


def test_without_a_skill_nothing_runs_and_that_is_said() -> None:
    text = "```bash\nls\n```\n```python\nprint(1)\n```"
    assert find_code_calls(text, skill=None) == []
    (note,) = find_code_notes(text, skill=None)
    assert "Load one first" in note and "not run" in note
    assert find_code_notes("```json\n{}\n```", skill=None) == []


@given(st.text(alphabet="`~ \n\t-1.ab", max_size=80))
def test_every_text_can_be_read_and_nothing_is_invented(text: str) -> None:
    for block in find_blocks(text):
        for line in block.code.splitlines():
            assert line.strip() in text


@given(st.text(alphabet=st.characters(exclude_characters="`\r\0", exclude_categories=["Cs"]), min_size=1, max_size=200))
def test_code_arrives_as_it_was_written(code: str) -> None:
    found = calls(f"Before.\n\n```bash\n{code}\n```\n\nAfter.")
    assert found == ([{"command": f"{code}\n"}] if code.strip() else [])


def test_what_no_program_can_be_given_is_refused_like_any_other_call() -> None:
    (args,) = find_code_calls("```bash\na\0b\n```", skill="demo")
    with pytest.raises(ToolRetry, match="NUL"):
        parse_arguments(RunArguments, args, "skill_run")


def test_a_long_answer_takes_no_long_time() -> None:
    assert calls("```" * 50_000) == [] and len(calls("```bash\na\n```\n" * 5000)) == 5000
    assert calls("- " * 30_000) == [] and calls(" " * 200_000 + "```bash") == []
