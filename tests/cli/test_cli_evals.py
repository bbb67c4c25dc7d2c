"""prowess eval, evals and batch: what people and programs see, exit codes, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from command_lines import Cli
from prowess.cli.commands.schema import FOLDER
from prowess.testing import skill_dir

LOADS = [{"calls": [{"tool": "skill_load", "args": {"skill": "demo"}}]}, {"text": "Done: 42."}]
CASES = {
    "version": 1,
    "name": "demo",
    "skill": "demo",
    "cases": [
        {
            "id": "fires",
            "prompt": "Do the demo.",
            "expect": {"skills": {"load": "demo"}, "output": {"matches": ["\\b42\\b"]}},
            "script": LOADS,
        },
        {"id": "stays-quiet", "prompt": "Hello", "expect": {"skills": {}}, "script": [{"text": "Hello."}]},
    ],
}


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, skill: Path) -> Cli:
    monkeypatch.chdir(skill.parent.parent)
    return Cli(capsys)


@pytest.fixture
def skill(tmp_path: Path) -> Path:
    folder = skill_dir(tmp_path / "work" / "skills", "demo", "Say 42.")
    write(folder)
    return folder


def write(skill: Path, **changed: object) -> None:
    """Writes the cases; `changed` replaces fields of the first."""
    first, *others = CASES["cases"]
    file = skill / "evals" / "cases.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({**CASES, "cases": [{**first, **changed}, *others]}), encoding="utf-8")


def document(cli: Cli, *words: str, code: int = 0) -> dict:
    found = json.loads(cli(*words, "--json", code=code))
    name = found["schema"].removeprefix("prowess.").split("/")[0]
    jsonschema.validate(found, json.loads(Path(FOLDER, f"{name}.json").read_text(encoding="utf-8")))
    return found


def test_a_suite_that_passes(cli: Cli) -> None:
    out = cli("eval", "skills/demo")
    assert "demo · scripted" in out and "2 of 2 passed" in out
    assert "trigger" in out and "recall 1.00" in out
    found = document(cli, "eval", "skills/demo")
    assert [found[name] for name in ("cases", "passed", "failed", "errors")] == [2, 2, 0, 0]
    assert [(result["id"], result["status"]) for result in found["results"]] == [
        ("fires", "passed"),
        ("stays-quiet", "passed"),
    ]


def test_a_case_that_fails_says_why_and_ends_with_1(cli: Cli, skill: Path) -> None:
    write(skill, script=[{"text": "No idea."}])
    out = cli("eval", "skills/demo", code=1)
    assert "failed  fires" in out
    assert "not: loads demo (loaded: no skill)" in out
    write(skill, script=[{"text": "No idea."}], gate="soft")
    assert "1 failed" in cli("eval", "skills/demo")


@pytest.mark.parametrize("changed", [{"expect": {}}, {"expects": {}, "expect": {"judge": ["It is nice."]}}])
def test_a_suite_that_decides_nothing_is_no_pass(cli: Cli, skill: Path, changed: dict) -> None:
    write(skill, **changed)
    assert "1 of 2 passed, 1 skipped" in cli("eval", "skills/demo")
    assert "0 of 1 passed, 1 skipped" in cli("eval", "skills/demo", "--case", "fires", code=1)


def test_a_run_that_breaks_is_an_error_and_not_a_failure(cli: Cli, skill: Path) -> None:
    write(skill, script=LOADS[:1])  # the model has no more to say
    found = document(cli, "eval", "skills/demo", code=1)
    assert found["errors"] == 1 and found["failed"] == 0
    assert found["results"][0]["runs"][0]["error"]["code"] == "script-exhausted"
    assert found["scores"]["main"]["trigger"]["choices"] == 1  # the error is in no rate


def test_a_baseline_decides(cli: Cli, skill: Path) -> None:
    cli("eval", "skills/demo", "--report", "json=before.json")
    assert "Against the baseline: same" in cli("eval", "skills/demo", "--baseline", "before.json")
    write(skill, script=[{"text": "No idea."}])
    out = cli("eval", "skills/demo", "--baseline", "before.json", code=1)
    assert "Against the baseline: worse" in out and "broken: fires" in out
    assert "worse" in cli("evals", "diff", "before.json", "latest", code=1)
    assert "better" in cli("evals", "diff", "latest", "before.json")
    assert document(cli, "evals", "show", "latest")["failed"] == 1
    listed = document(cli, "evals", "list")
    assert len(listed["runs"]) == 3 and listed["runs"][0]["suite"] == "demo"


def test_a_baseline_of_another_suite_is_refused_before_the_first_run(cli: Cli, skill: Path) -> None:
    cli("eval", "skills/demo", "--report", "json=before.json")
    case = {"id": "other", "prompt": "Hello", "expect": {"skills": {}}, "script": [{"text": "Hello."}]}
    for name, id in (("demo", "other"), ("other", "fires")):  # another case, and another name with the same case
        suite = {"name": name, "cases": [{**case, "id": id}]}
        (skill / "evals" / "cases.json").write_text(json.dumps(suite), encoding="utf-8")
        refused = json.loads(cli("eval", "skills/demo", "--baseline", "before.json", "--json", code=2))
        assert refused["error"]["code"] == "baseline-other-suite"
    assert len(document(cli, "evals", "list")["runs"]) == 1


def test_a_failure_that_the_baseline_does_not_have_ends_with_1(cli: Cli, skill: Path) -> None:
    cli("eval", "skills/demo", "--report", "json=before.json")
    write(skill, expect={"output": {"contains": "43"}})
    assert "Against the baseline: inconclusive" in cli("eval", "skills/demo", "--baseline", "before.json", code=1)
    write(skill, id="new", script=[{"text": "No idea."}])
    cli("eval", "skills/demo", "--baseline", "before.json", code=1)


def test_a_suite_in_which_nothing_was_decided_ends_with_1(cli: Cli) -> None:
    case = {"id": "judged", "prompt": "Hi.", "expect": {"judge": "It is kind."}, "script": [{"text": "Hello."}]}
    Path("cases.json").write_text(json.dumps({"cases": [case]}), encoding="utf-8")
    assert "1 skipped" in cli("eval", "cases.json", code=1)


def test_a_report_of_others_cannot_change_the_terminal_or_break_the_command(cli: Cli) -> None:
    cli("eval", "skills/demo", "--report", "json=report.json")
    text = Path("report.json").read_text(encoding="utf-8")
    found = json.loads(text)
    run = found["results"][0]["runs"][0]
    found["results"][0]["status"] = run["status"] = "error"
    run["error"] = {"code": "a\x1b[2J", "message": "m", "hint": None, "retryable": False}
    score = {"cases": 1, "here": 1, "there": 1, "difference": 0, "low": None, "high": None, "p": 1}
    metric = {"name": "b\x1b[2J", "verdict": "worse", "decides": True, "score": score, "p": None}
    lists = {"broken": [], "fixed": [], "notes": []}
    found["gate"] = {"verdict": "same", "metrics": [metric], "compared": 1, **lists}
    found["results"][0]["means"] = {}
    Path("hostile.json").write_text(json.dumps(found), encoding="utf-8")
    assert "\x1b" not in cli("evals", "show", "hostile.json")
    for name, value in (
        ("runs", []),
        ("runs", [{**run, "seconds": float("nan")}]),
        ("runs", [{**run, "seconds": 1e999}]),
    ):
        found["results"][0][name] = value
        Path("broken.json").write_text(json.dumps(found), encoding="utf-8")
        cli("evals", "diff", "report.json", "broken.json", code=2)


def test_reports_are_written(cli: Cli) -> None:
    kinds = {"html": "<!doctype html>", "junit": "<testsuites", "markdown": "### Evals of", "json": '"prowess.eval/1"'}
    words = [word for kind in kinds for word in ("--report", f"{kind}=out.{kind}")]
    cli("eval", "skills/demo", *words)
    for kind, begin in kinds.items():
        assert begin in Path(f"out.{kind}").read_text(encoding="utf-8")
    error = json.loads(cli("eval", "skills/demo", "--report", "json=skills", "--json", code=2))["error"]
    assert error["code"] == "file-exists" and "skills is a folder" in error["message"]


def test_one_case_is_chosen_and_repeated(cli: Cli) -> None:
    found = document(cli, "eval", "skills/demo", "--case", "fi*", "--repeats", "3")
    assert found["cases"] == 1 and found["scores"]["main"]["runs"]["passed"] == 3


def test_recorded_runs_are_played_without_a_model(cli: Cli, skill: Path) -> None:
    words = ["eval", "cases.json", "--root", "skills"]  # cases in a skill are part of its digest
    (skill / "evals" / "cases.json").rename("cases.json")
    cli(*words, "--record", "recordings")
    assert "demo · replay" in cli(*words, "--replay", "recordings")
    Path("recordings", "fires--with_skill-1.jsonl").unlink()  # recorded again by the same model
    assert "demo · scripted" in cli(*words, "--replay", "recordings", "--record", "recordings")
    without = {**CASES, "cases": [{**case, "script": None} for case in CASES["cases"]]}
    Path("cases.json").write_text(json.dumps(without), encoding="utf-8")
    found = document(cli, *words, "--replay", "recordings")
    assert found["passed"] == 2 and all(run["replayed"] for result in found["results"] for run in result["runs"])
    (skill / "SKILL.md").write_text("---\nname: demo\ndescription: Another. Use when demo.\n---\nSay 43.\n")
    found = document(cli, *words, "--replay", "recordings", code=1)
    assert found["results"][0]["runs"][0]["error"]["code"] == "cassette-miss"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["eval", "nosuch"], 1, "skill-not-found"),
        (["eval", "./nosuch"], 2, "evals-not-found"),
        (["eval", "skills/demo", "--report", "pdf=x"], 2, "report-unknown"),
        (["eval", "skills/demo", "--report", "html"], 2, "usage"),
        (["eval", "skills/demo", "--case", "zzz"], 2, "usage"),
        (["eval", "skills/demo", "--address", "x:1"], 2, "usage"),
        (["eval", "skills/demo", "--arms", "with_skil"], 2, "arm"),
        (["eval", "skills/demo", "--baseline", "nosuch"], 2, "eval-run-unknown"),
        (["eval", "skills/demo", "--baseline", "skills/demo/SKILL.md"], 2, "baseline-invalid"),
        (["eval", "skills/demo", "--resume", "nosuch"], 2, "eval-run-unknown"),
        (["eval", "skills/demo", "--model", "opnai:x"], 2, "model"),
        (["evals", "show", "nosuch"], 2, "eval-run-unknown"),
        (["evals", "init", "skills"], 2, "evals"),
        (["batch", "nosuch.jsonl", "-o", "out.jsonl"], 2, "batch"),
    ],
)
def test_what_cannot_be_used_is_an_error_before_anything_runs(cli: Cli, words: list[str], code: int, said: str) -> None:
    error = json.loads(cli(*words, "--json", code=code))["error"]
    assert said in error["code"] and error["message"] and error["hint"]
    assert not Path(".agent").exists()


def test_starter_cases_pass(cli: Cli, skill: Path) -> None:
    skill_dir(skill.parent, "fresh", "Do it.")
    found = document(cli, "evals", "init", "skills/fresh")
    assert Path(found["file"]).is_file()
    assert document(cli, "eval", "skills/fresh")["passed"] == 2
    assert json.loads(cli("evals", "init", "skills/fresh", "--json", code=2))["error"]["code"] == "evals-exist"


def test_a_batch_answers_in_order_and_goes_on(cli: Cli) -> None:
    requests = [{"id": "one", "request": "What are the first ten Fibonacci numbers?"}, {"request": "Tell me a joke"}]
    Path("in.jsonl").write_text("\n".join(map(json.dumps, requests)), encoding="utf-8")
    words = ["batch", "in.jsonl", "-o", "out.jsonl", "--model", "offline", "--executor", "none"]
    found = document(cli, *words, code=1)
    assert found["total"] == 2
    results = [json.loads(line) for line in Path("out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [result["id"] for result in results] == ["one", "2"]
    error = json.loads(cli(*words, "--json", code=2))["error"]
    assert "exists" in error["code"] or "exist" in error["message"]


def test_a_skill_that_no_model_can_load_is_told_before_anything_runs(cli: Cli, skill: Path) -> None:
    project = skill.parent.parent / ".agent" / "skills"
    project.parent.mkdir()
    skill.parent.rename(project)
    error = json.loads(cli("eval", "demo", "--json", code=2))["error"]
    assert error["code"] == "eval-skill-unusable" and "it is untrusted" in error["message"]
    cli("trust", "--yes")
    assert "2 of 2 passed" in cli("eval", "demo")
