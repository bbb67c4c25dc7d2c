"""--yes takes the names that people know a tool by; what is of high risk is approved by its name alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agents import call
from prowess.cli.main import main
from prowess.core.tool_table import ALIASES, CAPABILITIES, RISKS
from prowess.errors import ConfigError
from prowess.runtime.services.preapproved import parse_yes


@pytest.mark.parametrize("name", sorted(ALIASES))
@pytest.mark.parametrize("spelled", [str, str.upper, str.lower])
def test_a_name_of_another_system_names_all_tools_behind_it(name: str, spelled: Any) -> None:
    assert parse_yes([spelled(name)]) == dict.fromkeys(ALIASES[name], spelled(name))


@pytest.mark.parametrize("name", [*RISKS, *CAPABILITIES])
def test_our_own_names_are_themselves(name: str) -> None:
    assert parse_yes([name]) == {name: name}


@pytest.mark.parametrize("name", ["low", "medium"])
def test_a_class_may_be_written_in_any_case(name: str) -> None:
    assert parse_yes([name.upper()]) == parse_yes([name.title()]) == parse_yes([name]) != {}


def test_nothing_of_high_risk_comes_with_something_else() -> None:
    high = {tool for tool, risk in RISKS.items() if risk == "high"}
    approving = {word: parse_yes([word]).keys() & high for word in (*ALIASES, *RISKS, "low", "medium")}
    assert all(len(parse_yes([word])) == 1 for word, tools in approving.items() if tools)
    assert {word for word in ("low", "medium", "Bash", "Shell") if approving[word]} == set()
    assert {tool for tools in approving.values() for tool in tools} == high


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("Bsh", "Did you mean --yes Bash?"),
        ("wrte_file", "Did you mean --yes write_file?"),
        ("Medum", "Did you mean --yes medium?"),
        ("skill_*", "There are no wildcards here: name each tool. There are: low, medium"),
        ("Bash*(git)", "no wildcards"),
        ("Bash(git:*)", "takes no pattern"),
        ("Bash(git:*)", "Did you mean --yes Bash?"),
        ("high", "Name the tool: write_file"),
        ("HIGH", "Name the tool: write_file"),
        ("mcp__x__y", "install_dependencies"),
        ("", "There are: low, medium"),
        ("*", "There are: low, medium"),
    ],
)
def test_what_is_no_tool_is_an_error_with_a_near_name(word: str, hint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_yes([word])
    assert refused.value.code == "usage" and hint in str(refused.value.hint)


@pytest.mark.parametrize(("word", "code"), [("Bash", 0), ("run_script", 0), ("Read", 4), ("Write", 4)])
def test_a_run_is_approved_by_the_name_that_people_know(
    tmp_path: Path, make_skill: Any, monkeypatch: pytest.MonkeyPatch, capfd: Any, word: str, code: int
) -> None:
    make_skill(tmp_path / "skills/demo", files={"scripts/a.sh": "echo ran\n"})
    steps = [call("skill_load", skill="demo"), call("skill_run", skill="demo", command="bash scripts/a.sh")]
    (tmp_path / "s.json").write_text(json.dumps([*steps, *([{"text": "done"}] if code == 0 else [])]), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    words = ["run", "go", "--model", "scripted:s.json", "--root", "skills", "--executor", "local", "--json"]
    assert main([*words, "--yes", word]) == code
    events = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    answers = [event["by"] for event in events if event.get("type") == "approval_answered"]
    assert answers == ([f"--yes {word}"] if code == 0 else [])
    ended = next(event for event in events if event.get("type") == "run_finished")
    assert main(["runs", "show", ended["run"], "--json"]) == 0
    asked = json.loads(capfd.readouterr().out)["prompts"]["asked"]
    assert ended["prompts"] == asked == (1 if code else 0), "what was answered before was asked of nobody"


@pytest.mark.parametrize("managed", [False, True])
@pytest.mark.parametrize("allowed", [False, True])
@pytest.mark.parametrize(
    ("words", "code"), [(("medium",), 4), (("Medium",), 4), (("Bash",), 0), (("medium", "skill_run"), 0)]
)
def test_what_is_named_to_be_asked_about_is_answered_by_its_name_alone(
    tmp_path: Path,
    make_skill: Any,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    code: int,
    allowed: bool,
    managed: bool,
) -> None:
    make_skill(tmp_path / "skills/demo")
    (tmp_path / ".agent").mkdir()
    if allowed:  # else the table asks as well
        rule = '[[rule]]\ntool = "Bash"\nverdict = "allow"\n'
        (tmp_path / ".agent/policy.toml").write_text(rule, encoding="utf-8")
    if managed:
        (tmp_path / "managed.toml").write_text('[[rule]]\ntool = "Bash"\nverdict = "ask"\n', encoding="utf-8")
        monkeypatch.setenv("PROWESS_MANAGED_POLICY", str(tmp_path / "managed.toml"))
    else:
        config = '[execution]\nrequire_approval_for = ["Bash"]\n'
        (tmp_path / ".agent/config.toml").write_text(config, encoding="utf-8")
    monkeypatch.setenv("PROWESS_TRUST", "1")
    monkeypatch.chdir(tmp_path)
    assert _run_script(tmp_path, code, words) == code


def _run_script(folder: Path, code: int, words: tuple[str, ...]) -> int:
    steps = [call("skill_load", skill="demo"), call("skill_run", skill="demo", command="echo ran")]
    script = json.dumps([*steps, *([{"text": "done"}] if code == 0 else [])])
    (folder / "s.json").write_text(script, encoding="utf-8")
    options = ["--model", "scripted:s.json", "--root", "skills", "--executor", "local", "--json"]
    return main(["run", "go", *options, *(each for word in words for each in ("--yes", word))])
