"""Gate: comparison of a run with a baseline, and its error rates over simulated suites."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from eval_records import run_record, trigger_run

from prowess.errors import EvalError
from prowess.evals.gate import compare
from prowess.evals.results import CheckResult, RunRecord


def runs(statuses: str, **more: Any) -> list[RunRecord]:
    """Runs of cases c0, c1, …: P passed, F failed, E error, S skipped."""
    names = {"P": "passed", "F": "failed", "E": "error", "S": "skipped"}
    return [run_record(f"c{n}", names[one], **more) for n, one in enumerate(statuses)]


@pytest.mark.parametrize(
    ("before", "now", "verdict"),
    [
        ("PPPP", "PPPP", "same"),
        ("PPPP", "PPPF", "worse"),
        ("PPFF", "PPPF", "better"),
        ("PPFF", "PFPP", "worse"),  # fixes do not pay for a regression
        ("PPPF", "PPPE", "inconclusive"),
        ("PPPP", "PPFE", "worse"),
        ("FFFF", "FFFF", "same"),
        ("PPPS", "PPPS", "same"),  # a case without a script is no doubt about the others
        ("PPPE", "PPPP", "same"),
        ("PPPE", "PPPF", "inconclusive"),
        ("PPPP", "PPPS", "inconclusive"),
        ("PPPF", "PPEP", "inconclusive"),  # an error may hide a regression
        ("PPPP", "PPP", "inconclusive"),  # a case is gone
        ("PPFP", "PPP", "inconclusive"),
        ("PPP", "PPPP", "same"),
    ],
)
@pytest.mark.parametrize("how", [{"model": "scripted"}, {"model": "offline"}, {"replayed": True}])
def test_deterministic_runs_have_a_hard_gate(before: str, now: str, verdict: str, how: dict[str, Any]) -> None:
    found = compare(runs(now, **how), runs(before, **how))
    assert found.verdict == verdict
    assert {metric.name for metric in found.metrics if metric.decides} == {"cases"}


def test_one_case_of_a_live_run_is_no_regression_and_many_are() -> None:
    one = compare(runs("P" * 19 + "F"), runs("P" * 20))
    assert (one.verdict, one.broken) == ("inconclusive", ("c19",))
    assert compare(runs("P" * 13 + "F" * 7), runs("P" * 20)).verdict == "worse"
    assert compare(runs("P" * 20), runs("P" * 13 + "F" * 7)).verdict == "better"
    assert compare(runs("P" * 20), runs("P" * 20)).verdict == "inconclusive"  # 20 cases cannot exclude 5 %
    assert compare(runs("P" * 150), runs("P" * 150)).verdict == "same"


def test_errors_of_a_live_run_are_never_the_same() -> None:
    assert compare(runs("E" * 20), runs("P" * 20)).verdict == "inconclusive"
    assert compare(runs("P" * 150 + "E"), runs("P" * 151)).verdict == "inconclusive"
    assert compare(runs("F" * 20 + "E"), runs("P" * 21)).verdict == "worse"


def test_a_recorded_suite_in_which_one_case_is_live_keeps_its_hard_gate() -> None:
    before = [*runs("PPPP", replayed=True), run_record("live")]
    now = [*runs("PPPF", replayed=True), run_record("live")]
    found = compare(now, before)
    assert found.verdict == "worse" and found.broken == ("c3",)
    assert {m.name: m.verdict for m in found.metrics if m.decides} == {"cases": "worse", "passed": "inconclusive"}


def test_soft_cases_are_told_and_do_not_decide() -> None:
    before = [*runs("PP", model="scripted"), run_record("soft", gate="soft", model="scripted")]
    now = [*runs("PP", model="scripted"), run_record("soft", "failed", gate="soft", model="scripted")]
    found = compare(now, before)
    assert found.verdict == "same" and found.broken == ()
    assert found.notes == ("Soft cases that fail now: 'soft'.",)
    assert compare(now[2:], before[2:]).verdict == "inconclusive"  # nothing decides
    assert compare(before[2:], before[2:]).verdict == "same"


def test_costs_are_told_and_do_not_decide() -> None:
    before = [run_record(f"c{n}", usage=1000 + n, model="scripted") for n in range(10)]
    now = [run_record(f"c{n}", usage=1500 + 2 * n, model="scripted") for n in range(10)]
    found = compare(now, before)
    tokens = next(metric for metric in found.metrics if metric.name == "tokens")
    assert (found.verdict, tokens.verdict, tokens.decides) == ("same", "worse", False)
    assert compare(before, now).metrics[1].verdict == "better"


def test_metrics_are_tested_per_skill() -> None:
    before = [trigger_run(f"a{n}", "csv", "csv") for n in range(12)]
    before += [trigger_run(f"b{n}", "pdf", "pdf") for n in range(12)]
    now = [trigger_run(f"a{n}", "csv", "") for n in range(12)] + before[12:]
    found = {metric.name: metric.verdict for metric in compare(now, before).metrics if metric.decides}
    assert found == {"passed": "worse", "trigger:csv": "worse", "trigger:pdf": "inconclusive"}


def test_a_baseline_of_another_suite_is_an_error() -> None:
    with pytest.raises(EvalError, match="no case of this suite") as caught:
        compare([run_record("a")], [run_record("b")])
    assert caught.value.code == "baseline-other-suite"
    with pytest.raises(EvalError, match=r"another suite\. It is of 'pdf', not of 'csv'") as caught:
        compare([run_record("1")], [run_record("1", suite="t" * 64)], suite="csv", baseline_suite="pdf")
    assert caught.value.code == "baseline-other-suite"
    with pytest.raises(EvalError):
        compare([run_record("a")], [run_record("a", arm="without_skill")])
    assert compare([run_record("1")], [run_record("1")], suite="csv", baseline_suite="renamed").compared == 1


def test_changed_cases_are_told_and_not_compared() -> None:
    def checked(case: str, status: str, check: str, **more: Any) -> RunRecord:
        result = CheckResult(kind="output", name=check, passed=status == "passed")
        return run_record(case, status, checks=(result,), model="scripted", **more)

    before = [checked("a", "passed", "has x", suite="t" * 64), checked("b", "passed", "has x", suite="t" * 64)]
    now = [checked("a", "failed", "has y"), checked("b", "passed", "has x"), checked("c", "failed", "has x")]
    before.append(run_record("d", "error", suite="t" * 64, model="scripted"))  # it was checked for nothing
    now.append(checked("d", "passed", "has x"))
    found = compare(now, [*before, run_record("gone", suite="t" * 64, model="scripted")])
    assert (found.verdict, found.compared, found.not_compared) == ("inconclusive", 1, ("c", "a"))
    assert found.notes == (
        "Cases that the baseline does not have: 'c'.",
        "Cases that only the baseline has: 'gone'.",
        "Cases whose checks changed, not compared: 'a'.",
    )


def test_an_error_in_one_repeat_leaves_the_other_repeats_of_a_live_case() -> None:
    now = [run_record("a", "error", repeat=1), run_record("a", "failed", repeat=2), run_record("b", "error")]
    found = compare(now, [run_record("a"), run_record("b")])
    assert found.compared == 1 and found.notes[0].endswith("skipped: 'b'.")


def test_errors_and_other_models_are_told() -> None:
    found = compare(runs("PPE", model="openai:b"), runs("PPP", model="openai:a"))
    assert found.notes == (
        "The models differ: 'openai:a' before, 'openai:b' now.",
        "Not compared, because a run had an error or was skipped: 'c2'.",
    )
    assert found.compared == 2


SKILLS, CASES, REPEATS = ("csv", "pdf", "sql", "git"), 32, 3
POOL = {  # records are immutable, so that all simulated suites share them
    (case, repeat, right): trigger_run(f"c{case}", skill, skill if right else "other", repeat=repeat)
    for case, skill in enumerate(SKILLS * (CASES // len(SKILLS)))
    for repeat in range(REPEATS)
    for right in (True, False)
}


def simulate(draw: random.Random, rates: Sequence[float]) -> list[RunRecord]:
    return [POOL[case, n, draw.random() < rate] for case, rate in enumerate(rates) for n in range(REPEATS)]


def verdicts(effect: float, suites: int) -> dict[str, float]:
    """Shares of verdicts over simulated suites. Cases differ in how hard they are, with a mean rate of 0.8."""
    draw, counts = random.Random(20), dict.fromkeys(("better", "worse", "inconclusive", "same"), 0)
    for _ in range(suites):
        rates = [draw.betavariate(4, 1) for _ in range(CASES)]
        changed = [min(1.0, max(0.0, rate + effect)) for rate in rates]
        counts[compare(simulate(draw, changed), simulate(draw, rates)).verdict] += 1
    return {verdict: count / suites for verdict, count in counts.items()}


def test_gate_keeps_its_error_rates_without_an_effect() -> None:
    """The promise is 5 %, over all metrics. Without the correction, 6 % are called worse and 6 % better."""
    found = verdicts(0.0, 1000)
    assert found["worse"] <= 0.05 and found["better"] <= 0.05


def test_gate_finds_a_true_effect() -> None:
    """The rates are those of 32 cases with 3 repeats each, corrected over five metrics."""
    worse, better = verdicts(-0.25, 500), verdicts(0.15, 500)
    assert worse["worse"] > 0.8 and worse["better"] == 0
    assert better["better"] > 0.3 and better["worse"] == 0
