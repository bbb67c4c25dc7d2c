"""Scores of an eval run, from its records alone. A run that failed with an error, timed out or was skipped says nothing
about a skill: no rate contains it. Canary cases are in no score: they only say whether the others can be trusted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import get_args

from prowess._internal import statistics
from prowess._internal.label_scores import LabelChoice, LabelScores, score_labels
from prowess._internal.statistics import PairedScore, Pairs, PassScore, Rate
from prowess.core.values import Usage, add_usage
from prowess.evals.results import CheckKind, EvalRecord, RunKey, RunRecord, Status

Measure = Callable[[RunRecord], float | None]
Runs = Sequence[RunRecord]
Cases = dict[str, list[RunRecord]]

MEASURES: Mapping[str, Measure] = {
    "passed": lambda record: float(record.status == "passed"),
    "tokens": lambda record: float(record.usage.input + record.usage.output),
    "seconds": lambda record: record.seconds,
    "calls": lambda record: float(record.calls),
    "cost": lambda record: record.usage.cost,
}


class ArmScores(EvalRecord):
    """Scores of all runs of one arm. A flaky case passed in some of its runs. `lift` is the main arm against this one,
    paired by case."""

    arm: str
    runs: dict[Status, int]
    passed: Rate  # of runs
    cases_passed: Rate
    trigger: LabelScores | None
    checks: dict[CheckKind, Rate]  # that were decided, and had something to judge
    pass_k: tuple[PassScore, ...]
    flaky: tuple[str, ...]
    usage: Usage
    runs_without_cost: int
    seconds_p50: float | None
    seconds_p95: float | None
    calls: int
    questions: int
    lift: dict[str, PairedScore]


class Scores(EvalRecord):
    """Scores of an eval run. `canary` is None when no canary case ran; if it is not passed, doubt all the rest."""

    main: ArmScores
    others: tuple[ArmScores, ...]
    canary: Status | None


def score(records: Runs) -> Scores:
    """Scores records. The main arm is `with_skill`, or the first that there is."""
    keys = [record.key for record in records if not record.canary]
    arms: Cases = {main_arm(keys): []}
    for record in records:
        if not record.canary:
            arms.setdefault(record.key.arm, []).append(record)
    (main, here), *others = arms.items()
    canaries = [record for record in records if record.canary]
    compared = tuple(_score_arm(arm, there, _lift(here, there)) for arm, there in others)
    return Scores(main=_score_arm(main, here, {}), others=compared, canary=case_status(canaries) if canaries else None)


def main_arm(keys: Iterable[RunKey]) -> str:
    """Returns `with_skill`, or the first arm if no run is of that one."""
    arms = [key.arm for key in keys]
    return "with_skill" if "with_skill" in arms or not arms else arms[0]


def _score_arm(arm: str, records: Runs, lift: dict[str, PairedScore]) -> ArmScores:
    runs = Counter(record.status for record in records)
    cases = Counter(case_status(runs) for runs in by_case(records).values())
    decided = [record for record in records if is_decided(record)]
    choices = [_choice(record) for record in decided if record.is_trigger_case]
    seconds = [record.seconds for record in decided]
    without_cost = [record for record in records if record.status != "skipped" and record.usage.cost is None]
    passed = {name: [run.status == "passed" for run in found] for name, found in by_case(decided).items()}
    flaky = [name for name, found in passed.items() if any(found) and not all(found)]
    return ArmScores(
        arm=arm,
        runs={status: runs[status] for status in get_args(Status)},
        passed=statistics.wilson(runs["passed"], len(decided)),
        cases_passed=statistics.wilson(cases["passed"], cases["passed"] + cases["failed"]),
        trigger=score_labels(choices) if choices else None,
        checks=_score_checks(decided),
        pass_k=statistics.score_pass_k([(len(found), sum(found)) for found in passed.values()]),
        flaky=tuple(flaky),
        usage=total_usage(records),
        runs_without_cost=len(without_cost),
        seconds_p50=statistics.percentile(seconds, 50),
        seconds_p95=statistics.percentile(seconds, 95),
        calls=sum(record.calls for record in records),
        questions=sum(record.questions for record in records),
        lift=lift,
    )


def total_usage(records: Iterable[RunRecord]) -> Usage:
    return reduce(add_usage, (record.usage for record in records), Usage())


def by_case(records: Iterable[RunRecord]) -> Cases:
    """Runs of each case, in the order of the records."""
    cases: Cases = {}
    for record in records:
        cases.setdefault(record.key.case, []).append(record)
    return cases


def case_status(runs: Iterable[RunRecord]) -> Status:
    """A failure is known whatever the other runs say; an error only says that too little is known."""
    order: tuple[Status, ...] = ("failed", "error", "passed", "skipped")
    places = [order.index(run.status) for run in runs]
    return order[min(places, default=-1)]


def is_decided(record: RunRecord) -> bool:
    return record.status in ("passed", "failed")


def _choice(run: RunRecord) -> LabelChoice:
    """A case that only forbids skills says nothing about the others."""
    only_forbids = run.forbidden_skills and not run.expected_skills
    return LabelChoice(run.expected_skills, run.loaded_skills, run.forbidden_skills if only_forbids else None)


def _score_checks(runs: Runs) -> dict[CheckKind, Rate]:
    scores: dict[CheckKind, Rate] = {}
    for kind in get_args(CheckKind):
        checks = [check for run in runs for check in run.checks if check.kind == kind]
        counted = [check.passed for check in checks if check.passed is not None and not check.vacuous]
        if checks:
            scores[kind] = statistics.wilson(sum(counted), len(counted))
    return scores


def case_mean(runs: Iterable[RunRecord], measure: Measure) -> float | None:
    """Mean over the runs that passed or failed."""
    return statistics.mean_known(measure(run) for run in runs if is_decided(run))


def pair_cases(here: Cases, there: Cases, measures: Mapping[str, Measure]) -> dict[str, Pairs]:
    """Means of each case here and there, for the cases and the measures that have both."""
    shared = [(runs, there[name]) for name, runs in here.items() if name in there]
    found: dict[str, Pairs] = {}
    for name, measure in measures.items():
        means = [(case_mean(ours, measure), case_mean(theirs, measure)) for ours, theirs in shared]
        known = [(ours, theirs) for ours, theirs in means if ours is not None and theirs is not None]
        if known:
            found[name] = known
    return found


def _lift(here: Runs, there: Runs) -> dict[str, PairedScore]:
    pairs = pair_cases(by_case(here), by_case(there), MEASURES)
    return {name: statistics.score_pairs(found, are_rates=name == "passed") for name, found in pairs.items()}
