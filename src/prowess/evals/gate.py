"""Gate: compares a run with a baseline of the same suite.

Scripted, offline and replayed runs are deterministic: a case that passed and now fails is a regression. Live runs vary:
they are worse only if chance explains the difference in fewer than 5 of 100 suites, over all metrics together (Holm).
What neither passed nor failed is not compared; if it may hide a regression, or a case is gone or has other checks, the
runs are neither the same nor better. Tokens, seconds, calls and cost are told, and do not decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Literal, NamedTuple

from prowess._internal.statistics import PairedScore, score_pairs, sign_flips
from prowess._internal.text import name_some
from prowess.core.findings import visible
from prowess.errors import EvalError
from prowess.evals.results import EvalRecord, RunRecord, Status
from prowess.evals.scores import MEASURES, Cases, Measure, by_case, case_status, is_decided, main_arm, pair_cases

LEVEL = 0.05
_SAME_RATE, _SAME_SHARE = 0.05, 0.10  # differences that do not matter: of a rate, and of the mean of a cost
_COSTS = {name: measure for name, measure in MEASURES.items() if name != "passed"}
_DETERMINISTIC = ("scripted", "mock", "offline", "replay")

Verdict = Literal["better", "worse", "inconclusive", "same"]
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
        runs = self.now + self.before
        is_hard = all(run.replayed or run.key.model.startswith(_DETERMINISTIC) for run in runs)
        return "hard" if is_hard else "live"


def compare(
    now: Sequence[RunRecord], baseline: Sequence[RunRecord], *, suite: str = "", baseline_suite: str = ""
) -> GateReport:
    """Compares the main arm of a run with the same arm of a baseline. Cases are matched by id. The verdict is the
    gravest of a metric that decides; soft cases alone are never worse or better."""
    pairs, told, notes = _match(now, baseline, suite, baseline_suite)
    hard, live, soft = ([pair for pair in pairs if pair.gate == gate] for gate in ("hard", "live", "soft"))
    if unknown := _with_verdict(pairs, "inconclusive"):
        notes.append(f"Not compared, because a run had an error or was skipped: {_names(unknown)}.")
    if soft_broken := _with_verdict(soft, "worse"):
        notes.append(f"Soft cases that fail now: {_names(soft_broken)}.")
    metrics = [GateMetric(name="cases", verdict=_gravest(pair.verdict for pair in hard), decides=True)] if hard else []
    metrics += _test(live, decides=True)
    verdicts: list[Verdict] = [metric.verdict for metric in metrics]
    is_doubtful = unknown or told[_GONE] or told[_CHANGED] or (not verdicts and any(p.verdict != "same" for p in pairs))
    verdict = _gravest([*verdicts, "inconclusive" if is_doubtful else "same"])
    return GateReport(
        verdict="inconclusive" if is_doubtful and verdict == "better" else verdict,
        metrics=(*metrics, *_test(pairs, decides=False)),
        compared=len(pairs) - len(unknown),
        broken=_with_verdict(hard + live, "worse"),
        fixed=_with_verdict(hard + live, "better"),
        not_compared=(*told[_NEW], *told[_CHANGED]),
        notes=tuple(notes),
    )


def _with_verdict(pairs: Sequence[_Pair], verdict: Verdict) -> tuple[str, ...]:
    return tuple(pair.case for pair in pairs if pair.verdict == verdict)


def _gravest(verdicts: Iterable[Verdict]) -> Verdict:
    return min(verdicts, key=_GRAVEST_FIRST.index)


def _names(names: Iterable[str]) -> str:
    return name_some([visible(name) for name in names])


def _match(
    now: Sequence[RunRecord], baseline: Sequence[RunRecord], suite: str, baseline_suite: str
) -> tuple[list[_Pair], dict[str, list[str]], list[str]]:
    """Pairs cases, and says which were not paired. EvalError if the baseline is of another suite."""
    arm = main_arm(now)
    here, there = _runs_of_arm(now, arm), _runs_of_arm(baseline, arm)
    shared = [name for name in here if name in there]
    is_same = {run.key.suite for run in now} == {run.key.suite for run in baseline}
    what = None if shared else f"It has no case of this suite in arm {visible(arm)!r}."
    if suite and baseline_suite and suite != baseline_suite and not is_same:
        what = f"It is of {visible(baseline_suite)!r}, not of {visible(suite)!r}."
    if what:
        hint = "Give a baseline that was made from the same cases."
        raise EvalError(f"The baseline is of another suite. {what}", code="baseline-other-suite", hint=hint)
    changed = [] if is_same else [name for name in shared if _is_changed(here[name], there[name])]
    told = {_NEW: sorted(here.keys() - there.keys()), _GONE: sorted(there.keys() - here.keys()), _CHANGED: changed}
    notes = [f"{what}: {_names(names)}." for what, names in told.items() if names]
    models, before = ({run.key.model for runs in cases.values() for run in runs} for cases in (here, there))
    if models != before:
        notes.append(f"The models differ: {_names(sorted(before))} before, {_names(sorted(models))} now.")
    pairs: list[_Pair] = []
    for name in shared:
        verdict = _verdict(case_status(there[name]), case_status(here[name]))
        if verdict and name not in changed:
            pairs.append(_Pair(name, here[name], there[name], verdict))
    return pairs, told, notes


def _verdict(before: Status, now: Status) -> Verdict | None:
    """Returns None when there is nothing to compare, and no regression that could be hidden."""
    if {before, now} <= {"passed", "failed"}:
        return "same" if before == now else "better" if now == "passed" else "worse"
    return None if now == "passed" or before == now == "skipped" else "inconclusive"


def _runs_of_arm(runs: Sequence[RunRecord], arm: str) -> Cases:
    """Runs by case. An error in one repeat leaves the other repeats."""
    cases = by_case(run for run in runs if run.key.arm == arm and not run.canary)
    return {name: [run for run in found if is_decided(run)] or found for name, found in cases.items()}


def _is_changed(now: Sequence[RunRecord], before: Sequence[RunRecord]) -> bool:
    """True when the runs were checked for different things. A run with an error may be checked for nothing."""
    here, there = ({(check.kind, check.name) for run in runs for check in run.checks} for runs in (now, before))
    return bool(here and there) and here != there


def _test(pairs: Sequence[_Pair], *, decides: bool) -> list[GateMetric]:
    """Tests one family of metrics: quality, where more is better, or costs."""
    here, there = {pair.case: pair.now for pair in pairs}, {pair.case: pair.before for pair in pairs}
    values = pair_cases(here, there, _quality(here) if decides else _COSTS)
    metrics: list[GateMetric] = []
    for (name, found), test in zip(values.items(), sign_flips([*values.values()]), strict=True):
        score = score_pairs(found, are_rates=decides)
        margin = _SAME_RATE if decides else _SAME_SHARE * abs(score.there)
        verdict: Verdict = "same" if score.is_within(margin) else "inconclusive"
        if min(test) <= LEVEL:
            verdict = "worse" if (test.lower <= LEVEL) == decides else "better"
        metrics.append(GateMetric(name=name, verdict=verdict, decides=decides, score=score, p=min(test)))
    return metrics


def _quality(cases: Cases) -> dict[str, Measure]:
    named = {skill for runs in cases.values() for skill in (*runs[0].expected_skills, *runs[0].forbidden_skills)}
    triggers = {f"trigger:{skill}": partial(_chose_right, skill) for skill in sorted(named)}
    return {"passed": MEASURES["passed"], **triggers}


def _chose_right(skill: str, run: RunRecord) -> float | None:
    if skill not in (*run.expected_skills, *run.forbidden_skills):
        return None
    return float((skill in run.expected_skills) == (skill in run.loaded_skills))
