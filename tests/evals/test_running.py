"""Running cases and suites: statuses, arms, recordings, the store, the cost cap."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from prowess.errors import ConfigError, EvalError
from prowess.evals.runner import EvalOptions, EvalProgress, EvalRun, run_suite
from prowess.evals.suite import Suite, read_suite
from prowess.testing import skill_dir
from state_places import state_of

LOAD = {"calls": [{"tool": "skill_load", "args": {"skill": "greeter"}}]}
HELLO = {"text": "Hello, Ada."}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Project with one skill; nothing of this machine's user is in sight."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PROWESS_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "project"
    (folder / ".agent").mkdir(parents=True)
    skill_dir(folder / "skills", "greeter", "# Greet\nSay hello by name.", description="Greets people by name.")
    skill_dir(folder / "skills", "counter", "# Count\n", description="Counts words.")
    return folder


def write_cases(project: Path, cases: Sequence[dict[str, Any]], **top: Any) -> Suite:
    file = project / "cases.json"
    file.write_text(json.dumps({"cases": list(cases), **top}), encoding="utf-8")
    return read_suite([str(file)], cwd=str(project))


def run(project: Path, suite: Suite, told: list[EvalProgress] | None = None, **options: Any) -> EvalRun:
    given = {"cwd": str(project), "roots": (str(project / "skills"),), "model": "scripted", **options}
    return asyncio.run(run_suite(suite, EvalOptions(**given), on_progress=None if told is None else told.append))


def case(id: str = "hello", **fields: Any) -> dict[str, Any]:
    return {
        "id": id,
        "prompt": "Greet Ada.",
        "expect": {"skills": {"load": ["greeter"]}, "output": {"contains": "Ada"}},
        "script": [LOAD, HELLO],
        **fields,
    }


def test_a_case_passes_fails_or_is_skipped(project: Path) -> None:
    suite = write_cases(
        project,
        [
            case("good"),
            case("wrong answer", script=[LOAD, {"text": "No."}]),
            case("not loaded", script=[HELLO]),
            {**case("no script"), "script": None},
            case("script too short", script=[LOAD]),
            case("script too long", script=[LOAD, HELLO, HELLO]),
        ],
    )
    records = {record.key.case: record for record in run(project, suite).records}
    assert {name: record.status for name, record in records.items()} == {
        "good": "passed",
        "wrong answer": "failed",
        "not loaded": "failed",
        "no script": "skipped",
        "script too short": "error",
        "script too long": "error",
    }
    codes = {name: record.error.code for name, record in records.items() if record.error}
    assert codes == {
        "no script": "no-script",
        "script too short": "script-exhausted",
        "script too long": "script-unused",
    }
    good = records["good"]
    assert (good.loaded_skills, good.calls_by_tool, good.turns, good.stop_reason, good.text) == (
        ("greeter",),
        {"skill_load": 1},
        2,
        "answer",
        "Hello, Ada.",
    )
    assert good.is_trigger_case and good.expected_skills == ("greeter",) and good.usage.requests == 2


def test_records_are_in_order_and_progress_tells_all_of_them(project: Path) -> None:
    suite = write_cases(project, [case(f"c{n}") for n in range(5)])
    told: list[EvalProgress] = []
    done = run(project, suite, told, repeats=2)
    assert [(record.key.case, record.key.repeat) for record in done.records] == [
        (f"c{n}", repeat) for n in range(5) for repeat in (1, 2)
    ]
    assert [each.done for each in told] == list(range(1, 11)) and {each.total for each in told} == {10}
    assert told[-1].remaining_s == 0 and told[-1].rate > 0


def test_turns_are_one_conversation_and_files_are_checked(project: Path) -> None:
    (project / "names.txt").write_text("Ada\n", encoding="utf-8")
    suite = write_cases(
        project,
        [
            {
                "id": "two turns",
                "turns": ["Who is in names.txt?", "And now greet her."],
                "files": ["names.txt"],
                "expect": {
                    "output": {"contains": "Hello"},
                    "files": [{"path": "work/inputs/*.txt", "contains": "Ada"}],
                },
                "script": [
                    {"calls": [{"tool": "read_file", "args": {"file_name": "work/inputs/names.txt"}}]},
                    {"text": "Ada."},
                    HELLO,
                ],
            }
        ],
    )
    (record,) = run(project, suite, record="tapes").records
    assert record.status == "passed", record
    (replayed,) = run(project, suite, replay="tapes").records
    assert (replayed.status, replayed.replayed) == ("passed", True), replayed.error
    assert (record.turns, record.text, record.calls_by_tool) == (3, "Hello, Ada.", {"read_file": 1})
    assert list((project.parent / "cache").rglob("names.txt")) == []  # the workspace is gone


def test_a_limit_of_the_case_is_a_failed_check_and_not_an_error(project: Path) -> None:
    suite = write_cases(project, [case(constraints={"max_turns": 1})])
    (record,) = run(project, suite).records
    assert (record.status, record.error, record.stop_reason) == ("failed", None, "limit:turns")
    assert [check.passed for check in record.checks if check.kind == "constraints"] == [False]


def test_a_limit_of_time_that_the_case_does_not_set_is_an_error(project: Path) -> None:
    suite = write_cases(project, [case(), case("own", constraints={"max_seconds": 0.000001})])
    first, own = run(project, suite, settings={"limits.seconds": 0.000001}).records
    assert (first.status, first.error and first.error.code) == ("error", "run-timeout")
    assert (own.status, own.error) == ("failed", None)


def test_arms_with_and_without_the_skill(project: Path) -> None:
    steps = [{"requires": "skill_load(greeter)"}, {"never": "delete_file"}]
    given = case(arms=["with_skill", "without_skill"])
    given["expect"]["steps"] = steps
    with_skill, without = run(project, write_cases(project, [given], skill="greeter")).records
    assert (with_skill.key.arm, with_skill.status, with_skill.loaded_skills) == ("with_skill", "passed", ("greeter",))
    assert (without.key.arm, without.status, without.loaded_skills) == ("without_skill", "passed", ())
    assert [check.kind for check in without.checks] == ["steps", "output"]  # nothing is expected of the absent skill
    assert with_skill.key.skills != without.key.skills


def test_rules_about_another_skill_hold_without_the_skill(project: Path) -> None:
    skill_dir(project / "skills", "greeter-two")
    given = case(arms=["without_skill"], script=[HELLO])
    given["expect"]["steps"] = [{"never": "skill_load( 'greeter' )"}, {"never": "skill_load(greeter-two)"}]
    [record] = run(project, write_cases(project, [given], skill="greeter")).records
    assert [check.name for check in record.checks if check.kind == "steps"] == ["never skill_load(greeter-two)"]


@pytest.mark.parametrize("rule", [{"never": "skill_load(greter)"}, {"before": ["skill_load(greter)", "skill_run"]}])
def test_a_rule_about_a_skill_that_is_not_there_is_refused(project: Path, rule: dict[str, Any]) -> None:
    with pytest.raises(EvalError, match=r"cases.json:1: case 'hello': no skill 'greter'\.\nDid you mean 'greeter'"):
        run(project, write_cases(project, [case(expect={"steps": [rule, {"never": "skill_load(g*)"}]})]))


def test_a_call_that_failed_tells_why(project: Path) -> None:
    calls = {"calls": [{"tool": "delete_file", "args": {"path": "out/a.txt"}}]}
    rules = [{"requires": "delete_file"}, {"count": "delete_file", "min": 1}, {"never": "delete_file"}]
    [record] = run(project, write_cases(project, [case(expect={"steps": rules}, script=[calls, HELLO])])).records
    assert [check.passed for check in record.checks] == [False, False, False]
    assert all("(failed: delete_file is switched off. A person can" in check.evidence for check in record.checks)


def test_an_arm_needs_a_name_and_a_skill(project: Path) -> None:
    with pytest.raises(
        EvalError, match=r"cases.json:1: case 'hello': There is no arm 'witout_skill'\.\nDid you mean without_skill"
    ):
        run(project, write_cases(project, [case(arms=["witout_skill"])]))
    plain = {"id": "plain", "prompt": "Hi.", "expect": {"output": {"contains": "x"}}, "arms": ["without_skill"]}
    with pytest.raises(EvalError, match=r"cases.json:\d+: case 'plain' \(without_skill\): none is named"):
        run(project, write_cases(project, [plain]))


def test_a_case_without_a_skill_is_left_out_of_arms_that_need_one(project: Path) -> None:
    plain = {"id": "plain", "prompt": "Hi.", "expect": {"output": {"contains": "Ada"}}, "script": [HELLO]}
    done = run(project, write_cases(project, [case(), plain]), arms=("with_skill", "without_skill"))
    assert [(record.key.case, record.key.arm) for record in done.records] == [
        ("hello", "with_skill"),
        ("hello", "without_skill"),
        ("plain", "with_skill"),
    ]
    assert len(done.notes) == 1 and "case 'plain' (without_skill)" in done.notes[0]


def test_an_old_version_comes_from_git_without_its_filters(project: Path) -> None:
    skill = project / "skills" / "greeter"
    _git(project, "init", "-q")
    (project / ".gitattributes").write_text("*.md filter=evil\n", encoding="utf-8")
    _git(project, "add", "skills", ".gitattributes")
    _git(project, "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "one")
    _git(project, "config", "filter.evil.smudge", f"touch {project}/ran; cat")
    old = (skill / "SKILL.md").read_text(encoding="utf-8")
    (skill / "SKILL.md").write_text(old.replace("Say hello", "Say good-bye"), encoding="utf-8")
    suite = write_cases(project, [case(arms=["with_skill", "old_skill=HEAD"])], skill="greeter")
    done = run(project, suite)
    assert [(record.key.arm, record.status) for record in done.records] == [
        ("with_skill", "passed"),
        ("old_skill=HEAD", "passed"),
    ]
    exported = Path(done.folder, "old-skill-1", "greeter", "SKILL.md").read_text(encoding="utf-8")
    assert exported == old and not (project / "ran").exists()
    assert len({record.key.skills for record in done.records}) == 2
    for ref in ("no-such-tag", "--output=x"):
        with pytest.raises(EvalError, match="There is no version"):
            run(project, suite, arms=(f"old_skill={ref}",))


def test_a_repository_that_lacks_a_file_of_the_old_version_is_told(project: Path) -> None:
    def git(*words: str) -> str:
        names = ("-c", "user.name=x", "-c", "user.email=x@example.com")
        return subprocess.run(["git", *names, *words], cwd=project, check=True, capture_output=True, text=True).stdout

    git("init", "-q")
    git("add", "skills")
    git("commit", "-qm", "a")
    blob = git("rev-parse", "HEAD:skills/greeter/SKILL.md").strip()
    (project / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(EvalError, match=r"no content of SKILL\.md") as caught:
        run(project, write_cases(project, [case()], skill="greeter"), arms=("old_skill=HEAD",))
    assert caught.value.code == "git-incomplete"


def test_an_old_version_comes_from_a_pack(project: Path) -> None:
    import zipfile

    with zipfile.ZipFile(project / "old.zip", "w") as pack:
        pack.writestr("greeter/SKILL.md", "---\nname: greeter\ndescription: Greets.\n---\nOld.\n")
    suite = write_cases(project, [case()], skill="greeter")
    done = run(project, suite, arms=("old_skill=old.zip",))
    assert [record.status for record in done.records] == ["passed"]
    assert Path(done.folder, "old-skill-1", "greeter", "SKILL.md").is_file()


def test_a_pack_that_a_case_of_an_untrusted_project_names_is_refused(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import zipfile

    with zipfile.ZipFile(project / "old.zip", "w") as pack:
        pack.writestr("greeter/SKILL.md", "---\nname: greeter\ndescription: Greets.\n---\nOld.\n")
    suite = write_cases(project, [case(arms=["old_skill=old.zip"])], skill="greeter")
    with pytest.raises(EvalError, match="this project is not trusted") as caught:
        run(project, suite)
    assert caught.value.code == "old-skill-untrusted"
    monkeypatch.setenv("PROWESS_TRUST", "1")
    assert [record.status for record in run(project, suite).records] == ["passed"]


def test_the_folder_of_a_project_is_no_skill_of_its_cases(project: Path) -> None:
    (project / ".agent" / "evals").mkdir()
    (project / ".agent" / "SKILL.md").write_text("---\nname: agent\ndescription: Evil.\n---\nEvil.\n", encoding="utf-8")
    load = {"calls": [{"tool": "skill_load", "args": {"skill": ".agent"}}]}
    cases = [case(expect={"output": {"contains": "Ada"}}, script=[load, HELLO])]
    (project / ".agent" / "evals" / "cases.json").write_text(json.dumps({"cases": cases}), encoding="utf-8")
    (record,) = run(project, read_suite([str(project)], cwd=str(project))).records
    assert record.loaded_skills == ()


def test_without_a_skill_only_the_rules_that_name_it_are_left_out(project: Path) -> None:
    names = ["skill_load(explicit:greeter)", "skill_load(skill=greeter)", "skill_load(counter)"]
    rules = [{"count": name, "max": 9} for name in names]
    suite = write_cases(project, [case(expect={"steps": rules}, script=[HELLO])], skill="greeter")
    (record,) = run(project, suite, arms=("without_skill",)).records
    assert [check.name for check in record.checks] == ["count skill_load(counter): max 9"]


def test_a_catalog_of_a_case_leaves_out_the_other_skills(project: Path) -> None:
    wanted = {"catalog": {"skills": ["counter"]}, "expect": {"skills": {"load": []}, "output": {"contains": "Ada"}}}
    suite = write_cases(project, [case(**wanted)])
    (record,) = run(project, suite).records
    assert (record.status, record.loaded_skills) == ("passed", ())  # greeter cannot be loaded


def test_distractors_stand_beside_the_installed_skills(project: Path) -> None:
    suite = write_cases(project, [case(catalog={"distractors": 12, "seed": 3}), case("plain")])
    crowded, plain = run(project, suite, record="tapes").records
    assert (crowded.status, plain.status) == ("passed", "passed") and crowded.key.skills != plain.key.skills
    tape = next((project / "tapes").glob("hello-*")).read_text(encoding="utf-8")
    shown = next(json.loads(line) for line in tape.splitlines() if '"catalog_planned"' in line)["plan"]["shown"]
    assert len(shown) == 14 and {"explicit:greeter", "explicit:counter"} < set(shown)


def test_unknown_names_are_told_before_anything_runs(project: Path) -> None:
    misspelt = case(expect={"skills": {"load": ["greter"]}})
    with pytest.raises(EvalError, match=r"cases.json:\d+: case 'hello': no skill 'greter'\.\nDid you mean 'greeter'"):
        run(project, write_cases(project, [misspelt]))
    with pytest.raises(ConfigError, match="approve names 'skil_run'"):
        run(project, write_cases(project, [case()]), approved=("skil_run",))
    with pytest.raises(ConfigError, match="There is no model 'ofline'"):
        run(project, write_cases(project, [case()]), model="ofline")


def test_a_skill_that_no_root_has_is_there_for_its_own_cases(project: Path, tmp_path: Path) -> None:
    skill = skill_dir(tmp_path / "elsewhere", "waver", "# Wave\n", description="Waves.")
    (skill / "evals").mkdir()
    load = {"calls": [{"tool": "skill_load", "args": {"skill": "waver"}}]}
    own = {"id": "wave", "prompt": "Wave.", "expect": {"skills": {"load": ["waver"]}}, "script": [load, HELLO]}
    (skill / "evals" / "cases.json").write_text(json.dumps({"cases": [own]}), encoding="utf-8")
    (record,) = run(project, read_suite([str(skill)], cwd=str(project))).records
    assert (record.status, record.loaded_skills) == ("passed", ("waver",))


def _git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=folder, check=True, env={"PATH": os.environ["PATH"], "HOME": str(folder)})


# --- recordings ------------------------------------------------------------------------------------------------------


def test_a_recorded_run_is_replayed(project: Path) -> None:
    suite = write_cases(project, [case()])
    run(project, suite, record="tapes")
    (tape,) = (project / "tapes").iterdir()
    assert tape.name.startswith("hello--with_skill-")
    without_script = write_cases(project, [{**case(), "script": None}])
    (record,) = run(project, without_script, replay="tapes").records
    assert (record.status, record.replayed, record.loaded_skills) == ("passed", True, ("greeter",))


def test_a_script_runs_again_in_a_replay(project: Path) -> None:
    command = {"tool": "skill_run", "args": {"skill": "greeter", "command": "date > out/when.txt; date +%s"}}
    made = {"output": {"contains": "Ada"}, "files": [{"path": "out/when.txt"}]}
    suite = write_cases(project, [case(expect=made, script=[LOAD, {"calls": [command]}, HELLO])])
    options = {"settings": {"workspace.executor": "local"}, "approved": ("skill_run",)}
    (record,) = run(project, suite, record="tapes", **options).records
    assert (record.status, [file.name for file in record.files]) == ("passed", ["out/when.txt"]), record
    (record,) = run(project, suite, replay="tapes", **options).records
    assert (record.status, record.replayed) == ("passed", True), record.error


COMMAND = {"tool": "skill_run", "args": {"skill": "greeter", "command": "pwd; echo $WORK_DIR; id -u; echo hi > out/a"}}
READ = {"tool": "read_file", "args": {"file_name": "out/a"}}


def test_a_recording_is_replayed_after_the_project_was_moved(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = [case(expect={"output": {"contains": "Ada"}}, script=[LOAD, {"calls": [COMMAND]}, {"calls": [READ]}, HELLO])]
    options = {"settings": {"workspace.executor": "local"}, "approved": ("skill_run",)}
    (record,) = run(project, write_cases(project, told), record="tapes", **options).records
    assert record.status == "passed", record.error
    moved = project.rename(project.parent / "elsewhere")
    monkeypatch.setenv("PROWESS_CACHE_DIR", str(project.parent / "other-cache"))
    (record,) = run(moved, write_cases(moved, told), replay="tapes", **options).records
    assert (record.status, record.replayed) == ("passed", True), record.error
    (tape,) = (moved / "tapes").iterdir()
    tape.write_text(tape.read_text(encoding="utf-8").replace("pwd; echo", "exit 3; echo"), encoding="utf-8")
    (record,) = run(moved, write_cases(moved, told), replay="tapes", **options).records
    assert record.error and record.error.code == "cassette-miss" and "call_acted, outcome" in record.error.message


@pytest.mark.needs("isolation")
def test_a_recording_of_one_executor_is_replayed_with_another(project: Path) -> None:
    told = [case(expect={"output": {"contains": "Ada"}}, script=[LOAD, {"calls": [COMMAND]}, {"calls": [READ]}, HELLO])]
    suite = write_cases(project, told)
    for first, second in (("sandbox", "local"), ("local", "sandbox")):
        settings = {"workspace.executor": first}
        run(project, suite, record=first, settings=settings, approved=("skill_run",))
        settings = {"workspace.executor": second}
        (record,) = run(project, suite, replay=first, settings=settings, approved=("skill_run",)).records
        assert (record.status, record.replayed) == ("passed", True), record.error


def test_a_replay_that_differs_is_an_error_with_the_first_difference(project: Path) -> None:
    run(project, write_cases(project, [case()]), record="tapes")
    changed = write_cases(project, [case(prompt="Greet Bob.")])
    (record,) = run(project, changed, replay="tapes").records
    assert (record.status, record.error and record.error.code) == ("error", "cassette-miss")
    assert record.error and "recorded Greet Ada.; now Greet Bob." in record.error.message
    (record,) = run(project, write_cases(project, [case("other")]), replay="tapes").records
    assert record.error and record.error.code == "cassette-miss" and "There is no recording" in record.error.message


def test_a_changed_skill_is_a_cassette_miss(project: Path) -> None:
    suite = write_cases(project, [case()])
    run(project, suite, record="tapes")
    file = project / "skills" / "greeter" / "SKILL.md"
    file.write_text(file.read_text(encoding="utf-8") + "\nMore.\n", encoding="utf-8")
    (record,) = run(project, suite, replay="tapes").records
    assert record.error and record.error.code == "cassette-miss" and "digest" in record.error.message


def test_auto_replays_what_is_there_and_records_what_is_not(project: Path) -> None:
    run(project, write_cases(project, [case("a")]), record="tapes")
    done = run(project, write_cases(project, [case("a"), case("b")]), record="tapes", replay="tapes")
    assert [(record.status, record.replayed) for record in done.records] == [("passed", True), ("passed", False)]
    assert len(list((project / "tapes").iterdir())) == 2


def test_secrets_are_not_written_into_recordings_or_results(project: Path) -> None:
    suite = write_cases(project, [case(script=[LOAD, {"text": "Hello Ada, the key is tok-4711-secret."}])])
    done = run(project, suite, record="tapes", settings={"redact": ["tok-[0-9]+-secret"]})
    written = [path.read_bytes() for path in (*(project / "tapes").iterdir(), *Path(done.folder).iterdir())]
    assert len(written) == 2 and all(b"Hello Ada" in each and b"tok-4711" not in each for each in written)


def test_a_check_of_a_file_shows_no_secret(project: Path) -> None:
    script = project / "skills" / "greeter" / "scripts" / "make.py"
    script.parent.mkdir()
    script.write_text("open('out/a.txt', 'w').write('tok-4711-secret')", encoding="utf-8")
    made = {"calls": [{"tool": "skill_run", "args": {"skill": "greeter", "script": "scripts/make.py"}}]}
    expect = {"files": [{"path": "out/*.txt", "contains": "Ada"}]}
    suite = write_cases(project, [case(expect=expect, script=[LOAD, made, HELLO])])
    settings = {"redact": ["tok-[0-9]+-secret"], "workspace.executor": "local"}
    (record,) = run(project, suite, approved=("skill_run",), settings=settings).records
    assert record.status == "failed" and "out/a.txt" in record.checks[0].evidence
    assert "tok-4711" not in record.model_dump_json()  # a digest may have 4711


# --- the store -------------------------------------------------------------------------------------------------------


def test_a_resumed_run_repeats_only_errors_and_what_is_missing(project: Path) -> None:
    suite = write_cases(project, [case("a"), case("b", script=[LOAD]), case("c")])
    done = run(project, suite, concurrency=1)
    file = Path(done.folder, "results.jsonl")
    lines = file.read_bytes().splitlines(keepends=True)
    assert len(lines) == 4 and json.loads(lines[0])["schema"] == "prowess.eval-run/1"
    file.write_bytes(b"".join(lines)[:-20])  # killed while it wrote the last one
    told: list[EvalProgress] = []
    again = run(project, suite, told, resume="latest")
    assert again.id == done.id and [record.key.case for record in again.records] == ["a", "b", "c"]
    assert sorted(each.record.key.case for each in told if each.record) == ["b", "c"]  # b was an error
    assert any("cut off" in note for note in again.notes)


def test_a_killed_run_is_resumed(project: Path) -> None:
    suite = write_cases(project, [case(f"c{n}") for n in range(6)])
    done = subprocess.run([sys.executable, "-c", KILLED, str(project)], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    told: list[EvalProgress] = []
    again = run(project, suite, told, resume="latest")
    assert [record.status for record in again.records] == ["passed"] * 6 and 2 <= len(told) <= 4


KILLED = """
import asyncio, os, signal, sys
from prowess.evals.runner import EvalOptions, run_suite
from prowess.evals.suite import read_suite
project = sys.argv[1]
options = EvalOptions(cwd=project, roots=(f"{project}/skills",), model="scripted", concurrency=1)
kill = lambda progress: progress.done == 3 and os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(run_suite(read_suite(["cases.json"], cwd=project), options, on_progress=kill))
"""


def test_a_resumed_run_needs_the_same_suite(project: Path) -> None:
    run(project, write_cases(project, [case("a")]))
    with pytest.raises(EvalError, match="of another suite"):
        run(project, write_cases(project, [case("b")]), resume="latest")
    with pytest.raises(EvalError, match="There is no eval run 'nothing'"):
        run(project, write_cases(project, [case("a")]), resume="nothing")


def test_eval_runs_lie_in_the_state_folder(project: Path) -> None:
    done = run(project, write_cases(project, [case()]))
    assert Path(done.folder).parent == state_of(project) / "eval-runs"
    assert not (project / ".agent" / "eval-runs").exists()


@pytest.mark.parametrize("link", ["file", "folder"])
def test_a_resumed_run_follows_no_link_to_another_place(project: Path, tmp_path: Path, link: str) -> None:
    suite = write_cases(project, [case()])
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "results.jsonl").write_text("mine", encoding="utf-8")
    planted = state_of(project) / "eval-runs" / "99991231T235959.000Z-aaaaaa"
    planted.parent.mkdir(parents=True)
    if link == "folder":
        planted.symlink_to(outside)
    else:
        planted.mkdir()
        (planted / "results.jsonl").symlink_to(outside / "results.jsonl")
    with pytest.raises(EvalError) as caught:
        run(project, suite, resume="latest")
    assert caught.value.code == "eval-run-unwritable"
    assert (outside / "results.jsonl").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("link", ["old-skill-1", "old-skill-1/greeter", "old-skill-1/greeter/SKILL.md"])
def test_an_old_version_is_planted_nowhere_else(project: Path, tmp_path: Path, link: str) -> None:
    """A shipped run is gone on with, and in its folder a link leads to the skills of the person."""
    _git(project, "init", "-q")
    _git(project, "add", "skills")
    _git(project, "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "one")
    suite = write_cases(project, [case(arms=["old_skill=HEAD"])], skill="greeter")
    done = Path(run(project, suite).folder)
    outside = tmp_path / "outside"
    (outside / "own").mkdir(parents=True)
    for file in ("SKILL.md", "own/SKILL.md"):
        (outside / file).write_text("mine", encoding="utf-8")
    before = sorted(outside.rglob("*"))
    place = done / link
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink()
    place.symlink_to(outside / "SKILL.md" if link.endswith(".md") else outside)
    again = run(project, suite, resume="latest")
    assert [record.status for record in again.records] == ["passed"]
    assert sorted(outside.rglob("*")) == before
    assert {path.read_text(encoding="utf-8") for path in outside.rglob("SKILL.md")} == {"mine"}
    exported = done / "old-skill-1" / "greeter" / "SKILL.md"
    assert not place.is_symlink() and "Say hello" in exported.read_text(encoding="utf-8")


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_named_run_that_is_a_link_is_not_gone_on_with(project: Path, tmp_path: Path, slash: str) -> None:
    suite = write_cases(project, [case()])
    done = run(project, suite, keep_in=str(tmp_path / "elsewhere"))
    (project / "shipped").symlink_to(done.folder)
    before = Path(done.folder, "results.jsonl").read_bytes()
    with pytest.raises(EvalError) as caught:
        run(project, suite, resume=f"./shipped{slash}")
    assert caught.value.code == "eval-run-unwritable"
    assert Path(done.folder, "results.jsonl").read_bytes() == before


def test_a_resumed_run_plays_its_recordings_again(project: Path) -> None:
    suite = write_cases(project, [case()])
    run(project, suite, record="rec")
    assert run(project, suite, replay="rec").records[0].status == "passed"
    for file in (project / "rec").iterdir():
        file.unlink()
    assert run(project, suite, replay="rec", resume="latest").records[0].status == "error"


def test_a_suite_has_a_limit_of_runs(project: Path) -> None:
    many = write_cases(project, [case(f"c{number}", repeats=1000) for number in range(101)])
    with pytest.raises(EvalError, match="at most 100000 runs"):
        run(project, many)
    with pytest.raises(EvalError, match="less than or equal to 1000"):
        write_cases(project, [case(repeats=10**9)])


def test_a_run_that_was_stopped_does_not_pass(project: Path) -> None:
    expect = {"skills": {"not_load": ["counter"]}}
    suite = write_cases(
        project, [{**case(expect=expect, script=[LOAD, HELLO, HELLO]), "prompt": None, "turns": ["a", "b"]}]
    )
    assert run(project, suite).records[0].status == "passed"
    (record,) = run(project, suite, settings={"limits.turns": 1}).records
    assert record.error and (record.status, record.error.code) == ("failed", "run-stopped")
