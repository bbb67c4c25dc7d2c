"""Scores of eval runs."""

from __future__ import annotations

import random

import pytest
from eval_records import run_record, trigger_run

from prowess.core.values import Usage
from prowess.evals.document import make_document
from prowess.evals.results import CheckResult
from prowess.evals.scores import score


def test_trigger_scores_count_per_skill_micro_and_macro() -> None:
    found = score(
        [
            trigger_run("1", "csv", "csv"),
            trigger_run("2", "csv", "csv pdf"),
            trigger_run("3", "csv", "xlsx"),
            trigger_run("4", "pdf", "pdf"),
            trigger_run("5", "", ""),
            trigger_run("6", "", "pdf"),
        ]
    ).main.trigger
    assert found is not None and found.choices == 6
    csv, pdf = found.labels["csv"], found.labels["pdf"]
    assert (csv.precision.passed, csv.precision.total, csv.recall.passed, csv.recall.total) == (2, 2, 2, 3)
    assert (csv.precision.rate, csv.recall.rate, csv.f1) == (1.0, pytest.approx(2 / 3), pytest.approx(0.8))
    assert (pdf.precision.passed, pdf.precision.total, pdf.recall.passed, pdf.recall.total) == (1, 3, 1, 1)
    assert (found.micro.precision.passed, found.micro.precision.total) == (3, 6)
    assert (found.micro.recall.passed, found.micro.recall.total) == (3, 4)
    assert found.micro.f1 == pytest.approx(0.6)
    assert found.macro.f1 == pytest.approx((0.8 + 0.5 + 0) / 3)
    assert found.macro.recall == pytest.approx((2 / 3 + 1) / 2)  # xlsx was never expected
    assert found.matrix == {
        "(none)": {"(none)": 1, "pdf": 1},
        "csv": {"csv": 2, "pdf": 1, "xlsx": 1},
        "pdf": {"pdf": 1},
    }


def test_a_case_that_only_forbids_says_nothing_about_other_skills() -> None:
    found = score([trigger_run("1", loaded="pdf", forbidden="csv"), trigger_run("2", loaded="csv", forbidden="csv")])
    assert found.main.trigger is not None
    assert set(found.main.trigger.labels) == {"csv"}
    assert found.main.trigger.matrix == {"(none)": {"(none)": 1, "csv": 1}}
    assert (found.main.trigger.labels["csv"].precision.total, found.main.trigger.labels["csv"].recall.total) == (1, 0)


@pytest.mark.parametrize("status", ["error", "skipped"])
def test_errors_are_never_not_triggered(status: str) -> None:
    """A suite that cannot reach its model must not pass the cases that expect no skill."""
    found = score([trigger_run("1", "", "", "csv", status=status), trigger_run("2", "csv", "csv")]).main
    assert found.trigger is not None and found.trigger.choices == 1
    assert (found.passed.passed, found.passed.total) == (1, 1)
    assert {name for name, count in found.runs.items() if count} == {status, "passed"}
    only = score([trigger_run("1", "", "", "csv", status=status)]).main
    assert only.trigger is None and only.passed.rate is None and only.pass_k == () and only.seconds_p50 is None


def test_checks_are_scored_by_kind() -> None:
    def check(kind: str, passed: bool | None, vacuous: bool = False) -> CheckResult:
        return CheckResult(kind=kind, name="n", passed=passed, vacuous=vacuous)  # type: ignore[arg-type]

    found = score(
        [
            run_record("1", checks=(check("steps", True), check("steps", True), check("output", True))),
            run_record("2", "failed", checks=(check("steps", True), check("steps", False), check("judge", None))),
            run_record("3", checks=(check("steps", True, vacuous=True),)),
            run_record("4", "error", checks=(check("steps", False),)),
        ]
    ).main.checks
    assert (found["steps"].passed, found["steps"].total) == (3, 4)
    assert found["judge"].rate is None and found["output"].rate == 1.0 and "files" not in found


def test_repeats_give_pass_at_k_and_flaky_cases() -> None:
    statuses = {"a": "passed passed passed", "b": "passed failed passed", "c": "passed error error"}
    records = [
        run_record(case, status, repeat=n)
        for case, line in statuses.items()
        for n, status in enumerate(line.split(), start=1)
    ]
    found = score(records).main
    assert found.flaky == ("b",)
    assert (found.cases_passed.passed, found.cases_passed.total) == (1, 2)
    assert [result.status for result in make_document("s", records).results] == ["passed", "failed", "error"]
    by_k = {one.k: one for one in found.pass_k}
    assert set(by_k) == {1, 2, 3}
    assert (by_k[1].pass_at_k, by_k[1].pass_hat_k) == pytest.approx((8 / 9, 8 / 9))
    assert (by_k[3].pass_at_k, by_k[3].pass_hat_k, by_k[3].cases) == (1.0, 0.5, 2)


def test_lift_is_paired_by_case_and_leaves_out_what_is_not_known() -> None:
    records = [run_record(f"c{n}", usage=900) for n in range(8)]
    records += [run_record(f"c{n}", "failed", arm="without_skill", usage=1000) for n in range(7)]
    records += [run_record("c7", "error", arm="without_skill", usage=5)]
    found = score(records)
    (other,) = found.others
    passed = other.lift["passed"]
    assert (found.main.arm, found.main.lift, other.arm, passed.cases) == ("with_skill", {}, "without_skill", 7)
    assert (passed.here, passed.there, passed.difference) == (1.0, 0.0, 1.0)
    assert passed.p == pytest.approx(2 / 2**7)
    assert passed.low is not None and 0.4 < passed.low < 1
    assert other.lift["tokens"].difference == -100
    assert "cost" not in other.lift


def test_costs_are_summed_and_unknown_ones_told() -> None:
    found = score(
        [
            run_record("1", usage=Usage(input=10, cached=4, output=2, cost=0.25), seconds=1.0, calls=2),
            run_record("2", usage=Usage(input=5, output=1, reasoning=1), seconds=3.0, calls=1, questions=1),
            run_record("3", "error", usage=Usage(input=1, cost=0.5), seconds=99.0),
        ]
    ).main
    assert found.usage == Usage(input=16, cached=4, output=3, reasoning=1, cost=0.75)
    assert (found.runs_without_cost, found.calls, found.questions) == (1, 3, 1)
    assert (found.seconds_p50, found.seconds_p95) == (2.0, pytest.approx(2.9))  # of runs that ended by themselves
    assert score([run_record("1")]).main.usage.cost is None


def test_a_canary_is_in_no_score() -> None:
    found = score([run_record("canary", "failed", canary=True), run_record("1")])
    assert found.canary == "failed"
    assert found.main.cases_passed.total == 1 and found.main.passed.rate == 1.0


def test_the_first_arm_is_the_main_one_without_with_skill() -> None:
    found = score([run_record("1", arm="old_skill=v1"), run_record("1", arm="without_skill")])
    assert found.main.arm == "old_skill=v1" and [one.arm for one in found.others] == ["without_skill"]
    assert score([]).main.cases_passed.total == 0


def test_thousands_of_records() -> None:
    draw = random.Random(3)
    names = [f"skill-{n}" for n in range(30)]
    records = [
        trigger_run(f"c{n}", draw.choice(names), draw.choice(names), arm=arm, repeat=repeat, seconds=draw.random())
        for n in range(1000)
        for arm in ("with_skill", "without_skill")
        for repeat in (1, 2)
    ]
    found = score(records)
    assert found.main.passed.total == 2000 and found.others[0].lift["passed"].cases == 1000
    assert found.main.trigger is not None and found.main.trigger.micro.recall.total == 2000
