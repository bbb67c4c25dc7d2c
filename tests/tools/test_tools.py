"""Arguments as models write them, in their many ways, become one normal form; what is wrong is said so that the next
try is right."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prowess.errors import ToolRetry
from prowess.tools.arguments import ExecArguments, OutputArguments, ReadArguments, RunArguments, WriteArguments
from prowess.tools.run.programs import MAX_LINES, LastLines, guess_interaction
from prowess.tools.schema import parse_arguments, render_schema


def normal(kind: Any = RunArguments, **args: Any) -> dict[str, Any]:
    return parse_arguments(kind, args, "skill_run").normal()


@pytest.mark.parametrize(
    ("args", "wanted"),
    [
        ({"skill": "a", "command": "ls"}, {"skill": "a", "command": "ls"}),
        ({"skill_name": "a", "command": "ls"}, {"skill": "a", "command": "ls"}),
        ({"skill": "a", "skill_name": "b", "command": "ls"}, {"skill": "a", "command": "ls"}),
        (
            {"skill": "a", "relative_path": "s.py", "args": [1, True, "x"]},
            {"skill": "a", "script": "s.py", "args": ["1", "true", "x"]},
        ),
        (
            {"skill": "a", "command": "x", "output_files": "out/*"},
            {"skill": "a", "command": "x", "output_files": ["out/*"]},
        ),
        (
            {"skill": "a", "command": "x", "env": {"N": 1, "B": False}},
            {"skill": "a", "command": "x", "env": {"N": "1", "B": "false"}},
        ),
        ({"skill": "a", "command": "x", "timeout": "30"}, {"skill": "a", "command": "x", "timeout": 30.0}),
        ({"skill": "a", "command": "x", "timeout": 0}, {"skill": "a", "command": "x"}),
        ({"skill": "a", "command": "x", "timeout_sec": 5}, {"skill": "a", "command": "x", "timeout": 5.0}),
        (
            {"skill": "a", "command": "x", "inputs": [{"src": "host:///a", "dst": "work/a"}]},
            {"skill": "a", "command": "x", "inputs": [{"from": "host:///a", "to": "work/a"}]},
        ),
        (
            {"skill": "a", "command": "x", "inputs": ["skill://a/b"]},
            {"skill": "a", "command": "x", "inputs": [{"from": "skill://a/b"}]},
        ),
        (
            {
                "skill": "a",
                "command": "x",
                "outputs": {"Globs": ["out/*"], "Inline": True, "MaxFiles": 3, "NameTemplate": "p/"},
            },
            {
                "skill": "a",
                "command": "x",
                "outputs": {"globs": ["out/*"], "inline": True, "max_files": 3, "name_template": "p/"},
            },
        ),
        ({"skill": "a", "command": "x.py", "args": ["b c", 3]}, {"skill": "a", "command": "x.py 'b c' 3"}),
        ({"skill": "a", "command": "x '|' \"$A\" \\ ", "args": ["y"]}, {"skill": "a", "command": "x '|' \"$A\" \\  y"}),
        ({"skill": "a", "command": "x", "args": ["; rm -r ."]}, {"skill": "a", "command": "x '; rm -r .'"}),
        ({"skill": "a", "command": " bash -c 'x | y' "}, {"skill": "a", "command": "x | y"}),
        ({"skill": "a", "command": "bash -lc \"bash -c 'x'\""}, {"skill": "a", "command": "x"}),
        ({"skill": "a", "command": "bash -c 'x' | y"}, {"skill": "a", "command": "bash -c 'x' | y"}),
        ({"skill": "a", "command": "bash -c 'x' y"}, {"skill": "a", "command": "bash -c 'x' y"}),
        ({"skill": "a", "command": 'bash -c "x $A"'}, {"skill": "a", "command": 'bash -c "x $A"'}),
        ({"skill": "a", "command": ["bash", "-c", "x 'y'"]}, {"skill": "a", "command": "x 'y'"}),
        ({"skill": "a", "command": ["x", "a b"]}, {"skill": "a", "command": "x 'a b'"}),
        (
            {"skill": "a", "command": "x", "outputs": {"MaxFiles": 9, "max_files": 2}},
            {"skill": "a", "command": "x", "outputs": {"max_files": 2}},
        ),
    ],
)
def test_the_many_ways_to_write_a_run(args: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert normal(**args) == wanted
    assert normal(**wanted) == wanted, "the normal form is its own normal form"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({}, "'skill' is required"),
        ({"skill": ""}, "skill"),
        ({"skill": "a"}, "either command, or script"),
        ({"skill": "a", "command": "  "}, "either command, or script"),
        ({"skill": "a", "command": "x", "script": "y"}, "either command, or script"),
        ({"skill": "a", "command": "x | y", "args": ["z"]}, "args belong to a script"),
        ({"skill": "a", "command": "x > y", "args": ["z"]}, "args belong to a script"),
        ({"skill": "a", "command": "x 'y", "args": ["z"]}, "args belong to a script"),
        ({"skill": "a", "command": "x # y", "args": ["z"]}, "args belong to a script"),
        ({"skill": "a", "command": "x\ny", "args": ["z"]}, "args belong to a script"),
        ({"skill": "a", "comand": "x"}, "did you mean 'command'?"),
        ({"skill": "a", "command": "x\0y"}, "NUL"),
        ({"skill": "a", "command": "x", "timeout": -1}, "between 0 and"),
        ({"skill": "a", "command": "x", "timeout": 1e9}, "between 0 and"),
        ({"skill": "a", "command": "x", "inputs": [{"to": "y"}]}, "'inputs.0.from' is required"),
        ({"skill": "a", "command": "x", "inputs": [{"from": "y", "mode": "move"}]}, "copy"),
        ({"skill": "a", "command": "x", "outputs": {"max_files": -1}}, "max_files"),
        ({"skill": "a", "command": "x", "outputs": {"globs": ["out/*"] * 33}}, "at most 32 patterns of"),
        ({"skill": "a", "command": "x", "output_files": ["out/*"] * 33}, "at most 32 patterns of"),
        ({"skill": "a", "command": "x", "output_files": ["**/" * 400]}, "at most 32 patterns of"),
        ({"skill": "a", "command": ["ls", 1]}, "command"),
        ({"skill": "a", "command": "x", "env": ["A=1"]}, "env"),
    ],
)
def test_what_is_wrong_is_named(args: dict[str, Any], words: str) -> None:
    with pytest.raises(ToolRetry) as refused:
        normal(**args)
    assert words in str(refused.value)
    unknown = args == {} or "'inputs.0.from' is required" in words
    assert ("Its arguments: skill, command" in str(refused.value)) == unknown, "where they help"


PIECES = st.sampled_from(
    ["'a b'", '"x $HOME"', "\\ ", "$HOME", '"\\""', "a", "=", "~", "{a,b}", "*", "!", "#", "|", "\n", "$'", ">"]
)
SHELL_WORDS = st.lists(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1, max_size=4
)


@given(st.lists(PIECES, max_size=4), SHELL_WORDS)
def test_words_beside_a_command_arrive_as_they_are(pieces: list[str], words: list[str]) -> None:
    command = " ".join(["printf '%s\\0' :", *pieces])
    try:
        line = normal(skill="a", command=command, args=words)
    except ToolRetry:
        return  # it would be no longer one program with these words
    assert line.keys() == {"skill", "command"}
    ran = subprocess.run(["bash", "-c", line["command"]], capture_output=True, check=True)
    assert ran.stdout.decode().split("\0")[-1 - len(words) : -1] == words


BASH = st.sampled_from(["bash", "-c", "-lc", "'", '"', " ", "x", "$A", "\\", "'x y'", '"x"', "bash -c 'x'", ";"])


@given(st.lists(BASH, max_size=8).map("".join) | st.lists(BASH, max_size=4).map(" ".join), st.lists(BASH, max_size=3))
def test_the_form_that_policy_judges_is_its_own_form(command: str, words: list[str]) -> None:
    try:
        line = normal(skill="a", command=command, args=words)
    except ToolRetry:
        return
    assert normal(**line) == line


def test_a_long_command_is_read_in_one_pass() -> None:
    for command in ("a " * 100_000 + "|", "'a'" * 100_000 + "'", "\\a" * 100_000 + ";", "bash -c '" + "x" * 500_000):
        began = time.process_time()
        with pytest.raises(ToolRetry):
            normal(skill="a", command=command, args=["x"])
        assert time.process_time() - began < 2


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*RunArguments.model_fields, "x"]), json_values))
def test_whatever_a_model_sends_is_taken_or_refused(args: dict[str, Any]) -> None:
    try:
        found = normal(**args)
    except ToolRetry:
        return
    assert normal(**found) == found
    json.dumps(found)


@pytest.mark.parametrize("kind", [RunArguments, ExecArguments, WriteArguments, ReadArguments])
def test_a_schema_has_no_ornaments_and_accepts_what_we_accept(kind: Any) -> None:
    import jsonschema

    schema = render_schema(kind)
    text = json.dumps(schema)
    assert not any(word in text for word in ('"title"', "$ref", "$defs", '"null"', '"default"'))
    assert schema == render_schema(kind)
    jsonschema.Draft202012Validator.check_schema(schema)
    if kind is RunArguments:
        payload = {"skill": "a", "command": "x", "inputs": [{"from": "host:///a"}], "outputs": {"globs": ["out/*"]}}
        jsonschema.validate(payload, schema)


def test_zero_means_the_usual_limit() -> None:
    assert OutputArguments.model_validate({"max_files": 0, "max_file_bytes": 7}).limits == (100, 7, 64 << 20)


# --- what programs say ------------------------------------------------------------------------------------------------


def lines_of(*pieces: bytes) -> LastLines:
    async def feed() -> LastLines:
        lines = LastLines()
        for piece in pieces:
            lines.feed(piece)
        return lines

    return asyncio.run(feed())


def test_lines_are_counted_and_the_oldest_go() -> None:
    lines = lines_of(b"a\nb", b"c\nd")
    assert lines.since(0, 40) == (0, "a\nbc\nd") and lines.next == 2
    assert lines.since(2, 40) == (2, "d"), "a line that was not ended is given, and again when it grows"
    many = lines_of("".join(f"{number}\n" for number in range(MAX_LINES + 5)).encode())
    assert many.since(0, 3)[0] == MAX_LINES + 2 and many.since(0, MAX_LINES * 2)[0] == 5


@given(st.lists(st.binary(max_size=6), max_size=8))
def test_any_bytes_become_text_without_a_way_to_move_a_cursor(pieces: list[bytes]) -> None:
    _, text = lines_of(*pieces, b"\n").since(0, MAX_LINES)
    assert not any(ord(char) < 32 and char not in "\n\t" for char in text)


def test_a_character_in_two_pieces_and_colours_and_bars() -> None:
    assert lines_of("é\n".encode()[:1], "é\n".encode()[1:]).since(0, 9)[1] == "é\n"
    assert lines_of(b"\x1b[31mred\x1b[0m \x1b]0;title\x07x\n").since(0, 9)[1] == "red x\n"
    assert lines_of(b"10%\r50%\r100%\r\n").since(0, 9)[1] == "100%\n"


@pytest.mark.parametrize(
    ("tail", "kind"),
    [
        (["Name:"], "prompt"),
        (["Continue? "], "prompt"),
        (["press enter to go on"], "prompt"),
        (["1) red", "2) blue", "Which?"], "selection"),
        (["Enter the number of your choice"], "selection"),
        (["working on it"], None),
        ([], None),
    ],
)
def test_whether_somebody_is_asked(tail: list[str], kind: str | None) -> None:
    found = guess_interaction(tail)
    assert found["needs_input"] == (kind is not None) and found.get("kind") == kind
