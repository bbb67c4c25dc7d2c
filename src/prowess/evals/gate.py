"""Gate: compares a run with a baseline of the same suite. Scripted, offline and replayed runs are deterministic: a case
that passed and now fails is a regression. Live runs vary: they are worse only if chance explains the difference in less
than 5 of 100 suites, over all metrics together (Holm). What neither passed nor failed is not compared; if it may hide a
regression, or a case is gone or has other checks, the runs are neither the same nor better. Costs do not decide."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Literal, NamedTuple

from prowess._internal.statistics import PairedScore, score_pairs, sign_flips
from prowess._internal.text import name_some
from prowess.core.findings import visible
from prowess.errors import EvalError
from prowess.evals.results import EvalRecord, RunKey, RunRecord, Status
from prowess.evals.scores import MEASURES, Cases, Measure, Runs, by_case, case_status, is_decided, main_arm, pair_cases

LEVEL = 0.05
_SAME_RATE, _SAME_SHARE = 0.05, 0.10  # differences that do not matter: of a rate, and of the mean of a cost
_COSTS = {name: measure for name, measure in MEASURES.items() if name != "passed"}
_DETERMINISTIC = ("scripted", "mock", "offline", "replay")

Verdict = Literal["better", "worse", "inconclusive", "same"]
_Told = dict[str, list[str]]  # cases that are not compared, by the reason
_NEW, _GONE = "Cases that the baseline does not have", "Cases that only the baseline has"
_CHANGED = "Cases whose checks changed, not compared"
_GRAVEST_FIRST: tuple[Verdict, ...] = ("worse", "better", "inconclusive", "same")


class GateMetric(EvalRecord):
    """Verdict about one metric. `p` is one-sided, for the direction of the difference, and corrected."""

    name: str  # cases (the hard gate), passed, trigger:SKILL, tokens, seconds, calls, cost
    verdict: Verdict
    decides: bool
    score: PairedScore | None = None
    p: float | None = None


class GateReport(EvalRecord):
    """Comparison of two runs. `broken` passed and fail now, `fixed` failed and pass now; soft cases are in `notes`.
    `not_compared` are new, or have other checks than before."""

    verdict: Verdict
    metrics: tuple[GateMetric, ...]
    compared: int  # cases
    broken: tuple[str, ...]
    fixed: tuple[str, ...]
    not_compared: tuple[str, ...] = ()
    notes: tuple[str, ...]


class _Pair(NamedTuple):
    """Runs of one case, now and before. The verdict is inconclusive when an error may hide a regression."""

    case: str
    now: list[RunRecord]
    before: list[RunRecord]
    verdict: Verdict

    @property
    def gate(self) -> Literal["hard", "live", "soft"]:
        if self.now[0].gate == "soft":
            return "soft"
        for run in self.now + self.before:
            if not run.replayed and not run.key.model.startswith(_DETERMINISTIC):
                return "live"
        return "hard"


def compare(now: Runs, baseline: Runs, *, suite: str = "", baseline_suite: str = "") -> GateReport:
    """Compares the main arm of a run with that of a baseline, by the ids of cases. Soft cases decide nothing."""
    pairs, told, notes = _match(now, baseline, suite, baseline_suite)
    if unknown := _with_verdict(pairs, "inconclusive"):
        notes.append(f"Not compared, because a run had an error or was skipped: {_names(unknown)}.")
    if soft_broken := _with_verdict([pair for pair in pairs if pair.gate == "soft"], "worse"):
        notes.append(f"Soft cases that fail now: {_names(soft_broken)}.")
    hard = [pair for pair in pairs if pair.gate == "hard"]
    live = [pair for pair in pairs if pair.gate == "live"]
    metrics = _test(live, decides=True)
    if hard:
        metrics.insert(0, GateMetric(name="cases", verdict=_gravest([pair.verdict for pair in hard]), decides=True))
    verdicts: list[Verdict] = [metric.verdict for metric in metrics]
    is_doubtful = bool(unknown or told[_GONE] or told[_CHANGED])
    if not verdicts:  # only soft cases
        is_doubtful |= any(pair.verdict != "same" for pair in pairs)
    verdicts.append("inconclusive" if is_doubtful else "same")
    verdict = _gravest(verdicts)
    if is_doubtful and verdict == "better":
        verdict = "inconclusive"
    every = (*metrics, *_test(pairs, decides=False))
    compared = len(pairs) - len(unknown)
    broken = _with_verdict(hard + live, "worse")
    fixed = _with_verdict(hard + live, "better")
    left = (*told[_NEW], *told[_CHANGED])
    told_all = tuple(notes)
    return GateReport(
        verdict=verdict, metrics=every, compared=compared, broken=broken, fixed=fixed, not_compared=left, notes=told_all
    )


def _with_verdict(pairs: Sequence[_Pair], verdict: Verdict) -> tuple[str, ...]:
    return tuple(pair.case for pair in pairs if pair.verdict == verdict)


def _gravest(verdicts: Sequence[Verdict]) -> Verdict:
    return min(verdicts, key=_GRAVEST_FIRST.index)


def _names(names: Iterable[str]) -> str:
    return name_some([visible(name) for name in names])


def _match(now: Runs, baseline: Runs, suite: str, old_suite: str) -> tuple[list[_Pair], _Told, list[str]]:
    """Pairs cases, and says which were not paired. EvalError if the baseline is of another suite."""
    keys = [run.key for run in now if not run.canary]
    old_keys = [run.key for run in baseline if not run.canary]
    is_same = check_suite(keys, old_keys, suite, old_suite)
    arm = main_arm(keys)
    here = _runs_of_arm(now, arm)
    there = _runs_of_arm(baseline, arm)
    told: _Told = {_NEW: sorted(here.keys() - there.keys()), _GONE: sorted(there.keys() - here.keys()), _CHANGED: []}
    pairs: list[_Pair] = []
    for name in here:
        if name not in there:
            continue
        verdict = _verdict(case_status(there[name]), case_status(here[name]))
        if not is_same and _is_changed(here[name], there[name]):
            told[_CHANGED].append(name)
        elif verdict:
            pairs.append(_Pair(name, here[name], there[name], verdict))
    notes = [f"{what}: {_names(names)}." for what, names in told.items() if names]
    models = {run.key.model for runs in here.values() for run in runs}
    old_models = {run.key.model for runs in there.values() for run in runs}
    if models != old_models:
        notes.append(f"The models differ: {_names(sorted(old_models))} before, {_names(sorted(models))} now.")
    return pairs, told, notes


def check_suite(keys: Sequence[RunKey], old_keys: Sequence[RunKey], suite: str, old_suite: str) -> bool:
    """Refuses a baseline of another suite. Returns True if nothing has changed that decides about a result."""
    what = ""
    arm = main_arm(keys)
    old_cases = {key.case for key in old_keys if key.arm == arm}
    if old_cases.isdisjoint(key.case for key in keys if key.arm == arm):
        what = f"It has no case of this suite in arm {visible(arm)!r}."
    is_same = {key.suite for key in keys} == {key.suite for key in old_keys}
    if suite and old_suite and suite != old_suite and not is_same:
        what = f"It is of {visible(old_suite)!r}, not of {visible(suite)!r}."
    if what:
        hint = "Give a baseline that was made from the same cases."
        raise EvalError(f"The baseline is of another suite. {what}", code="baseline-other-suite", hint=hint)
    return is_same


def _verdict(before: Status, now: Status) -> Verdict | None:
    """Returns None when there is nothing to compare, and no regression that could be hidden."""
    if {before, now} <= {"passed", "failed"}:
        if before == now:
            return "same"
        return "better" if now == "passed" else "worse"
    return None if now == "passed" or before == now == "skipped" else "inconclusive"


def _runs_of_arm(runs: Runs, arm: str) -> Cases:
    """Runs by case. An error in one repeat leaves the other repeats."""
    cases = by_case(run for run in runs if run.key.arm == arm and not run.canary)
    return {name: [run for run in found if is_decided(run)] or found for name, found in cases.items()}


def _is_changed(now: Runs, before: Runs) -> bool:
    """True when the runs were checked for different things. A run with an error may be checked for nothing."""
    here = {(check.kind, check.name) for run in now for check in run.checks}
    there = {(check.kind, check.name) for run in before for check in run.checks}
    return bool(here and there) and here != there


def _test(pairs: Sequence[_Pair], *, decides: bool) -> list[GateMetric]:
    """Tests one family of metrics: quality, where more is better, or costs."""
    here = {pair.case: pair.now for pair in pairs}
    there = {pair.case: pair.before for pair in pairs}
    values = pair_cases(here, there, _quality(here) if decides else _COSTS)
    tests = sign_flips(list(values.values()))
    metrics: list[GateMetric] = []
    for (name, found), test in zip(values.items(), tests, strict=True):
        score = score_pairs(found, are_rates=decides)
        margin = _SAME_RATE if decides else _SAME_SHARE * abs(score.there)
        verdict: Verdict = "same" if score.is_within(margin) else "inconclusive"
        if min(test) <= LEVEL:
            verdict = "worse" if (test.lower <= LEVEL) == decides else "better"
        metrics.append(GateMetric(name=name, verdict=verdict, decides=decides, score=score, p=min(test)))
    return metrics


def _quality(cases: Cases) -> dict[str, Measure]:
    named: set[str] = set()
    for first, *_ in cases.values():
        named.update(first.expected_skills, first.forbidden_skills)
    triggers = {f"trigger:{skill}": partial(_chose_right, skill) for skill in sorted(named)}
    return {"passed": MEASURES["passed"], **triggers}


def _chose_right(skill: str, run: RunRecord) -> float | None:
    is_expected = skill in run.expected_skills
    if not is_expected and skill not in run.forbidden_skills:
        return None
    return float(is_expected == (skill in run.loaded_skills))
