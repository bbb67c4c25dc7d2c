"""Evals that ship with Prowess: every built-in and example skill has cases, and they pass, scripted and recorded."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prowess.evals.runner import EvalOptions, EvalRun, run_suite
from prowess.evals.suite import Suite, read_suite

ROOT = Path(__file__).resolve().parents[2]
SKILLS = sorted(
    folder.parent
    for home in (ROOT / "src/prowess/builtin_skills", ROOT / "examples/skills")
    for folder in home.glob("*/SKILL.md")
)
RECORDINGS = ROOT / "examples/evals/recordings"


def run(suite: Suite, **options: Any) -> EvalRun:
    return asyncio.run(run_suite(suite, EvalOptions(cwd=str(ROOT), approved=("skill_run",), **options)))


def test_every_skill_has_a_case_that_needs_it_and_one_that_does_not() -> None:
    for skill in SKILLS:
        cases = [each.case for each in read_suite([str(skill)], cwd=str(ROOT)).cases]
        expected = [case.expect.skills for case in cases]
        assert any(each and skill.name in each.load for each in expected), skill
        assert any(each and skill.name in each.not_load for each in expected), skill


@pytest.mark.parametrize("skill", SKILLS, ids=lambda skill: skill.name)
def test_scripted_cases_pass(skill: Path, tmp_path: Path) -> None:
    done = run(read_suite([str(skill)], cwd=str(ROOT)), model="scripted", keep_in=str(tmp_path))
    assert {record.key.case: record.error or record.status for record in done.records} == dict.fromkeys(
        (record.key.case for record in done.records), "passed"
    )


def test_recorded_runs_pass_without_a_model(tmp_path: Path) -> None:
    """After a change of skills, tools or guidance: make recordings"""
    suite = read_suite([str(path) for path in SKILLS], cwd=str(ROOT))
    recorded = [path.name.partition("--")[0] for path in RECORDINGS.iterdir()]
    suite = replace(suite, cases=tuple(each for each in suite.cases if each.case.id in recorded))
    assert {each.skill for each in suite.cases} == {skill.name for skill in SKILLS}
    done = run(suite, model="offline", replay=str(RECORDINGS), keep_in=str(tmp_path))
    wrong = {record.key.case: record.error or record.checks for record in done.records if record.status != "passed"}
    assert not wrong and all(record.replayed for record in done.records)


def test_cases_are_tests_of_pytest(tmp_path: Path) -> None:
    skill = tmp_path / "skills" / "meeting-notes"
    shutil.copytree(ROOT / "examples/skills/meeting-notes", skill)
    command = [sys.executable, "-m", "pytest", "-p", "prowess.testing", "-p", "no:cacheprovider", "-q", "skills"]
    passed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert passed.returncode == 0 and "2 passed" in passed.stdout
    cases = skill / "evals/cases.yaml"
    cases.write_text(cases.read_text(encoding="utf-8").replace("[Decisions,", "[Verdicts,"), encoding="utf-8")
    failed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert failed.returncode == 1 and "1 failed, 1 passed" in failed.stdout and "contains Verdicts" in failed.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["skills"]
