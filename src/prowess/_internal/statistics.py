"""Statistics of evals, on the standard library: intervals, paired tests and their correction.

All of them are exact or closed-form, so that one set of records always gives one result. Nothing here draws random
numbers. A case is the unit: repeats of a case are averaged first, because they are not independent of each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, quantiles, stdev
from typing import NamedTuple

_Z = NormalDist().inv_cdf(0.975)  # of 95 %, two-sided
_KS = (1, 2, 3, 5, 10)
_EXACT_PAIRS = 200  # more pairs than this are tested by the normal distribution
_GRID = 120  # steps between zero and the largest difference; divisible by 2, 3, 4, 5, 6, 8, 10 and 12

Pairs = Sequence[tuple[float, float]]  # values of a case, here and there


@dataclass(frozen=True, slots=True)
class Rate:
    """Share of what passed, with its 95 % interval of Wilson. It is None when there was nothing."""

    passed: int
    total: int
    rate: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class PassScore:
    """Chances that one of k runs passes, and that all do; means over the cases with at least k runs."""

    k: int
    pass_at_k: float
    pass_hat_k: float
    cases: int


@dataclass(frozen=True, slots=True)
class PairedScore:
    """Means of one measure here and there, over cases that have both. `p` is two-sided, and not corrected."""

    cases: int
    here: float
    there: float
    difference: float
    low: float | None
    high: float | None
    p: float

    def is_within(self, margin: float) -> bool:
        """True when the whole interval of the difference is."""
        if self.low is None or self.high is None:
            return False
        return -margin <= self.low <= self.high <= margin


class Interval(NamedTuple):
    """Lower and upper bound of an estimate."""

    low: float
    high: float


class PairedTest(NamedTuple):
    """One-sided p-values of "lower than the baseline" and "higher than the baseline"."""

    lower: float
    higher: float

    @property
    def two_sided(self) -> float:
        return min(1.0, 2 * min(self))


def wilson(passed: int, total: int) -> Rate:
    """Returns a rate with its Wilson score interval."""
    if not total:
        return Rate(passed, total)
    rate = passed / total
    variance = rate * (1 - rate) / total + _Z * _Z / (4 * total * total)
    spread = _Z * math.sqrt(variance)
    middle = rate + _Z * _Z / (2 * total)
    scale = 1 + _Z * _Z / total
    low = (middle - spread) / scale if passed else 0.0
    high = (middle + spread) / scale if passed < total else 1.0
    return Rate(passed, total, rate, low, high)


def score_pairs(pairs: Pairs, *, are_rates: bool) -> PairedScore:
    """Compares pairs. Rates, which are 0 to 1, have an interval of their own."""
    differences = [here - there for here, there in pairs]
    interval = rate_difference(differences) if are_rates else mean_difference(differences)
    low = high = None
    if interval:
        low, high = interval
    return PairedScore(
        cases=len(pairs),
        here=fmean(here for here, _ in pairs),
        there=fmean(there for _, there in pairs),
        difference=fmean(differences),
        low=low,
        high=high,
        p=sign_flip(differences).two_sided,
    )


def sign_flip(differences: Sequence[float]) -> PairedTest:
    """Tests whether paired differences are zero on average, by giving each of them both signs.

    It is the exact permutation test; for differences of -1, 0 and 1 it equals McNemar's. Other values are rounded to a
    grid first. Rounding keeps the test valid, because it treats both signs alike.
    """
    largest = max(map(abs, differences), default=0.0)
    if not largest:
        return PairedTest(1.0, 1.0)
    steps = [round(value / largest * _GRID) for value in differences]
    steps = [step for step in steps if step]
    unit = math.gcd(*steps)
    steps = [step // unit for step in steps]
    total = sum(steps)
    if len(steps) > _EXACT_PAIRS:
        squares = sum(step * step for step in steps)
        spread = NormalDist(0, math.sqrt(squares))
        return PairedTest(spread.cdf(total + 0.5), spread.cdf(0.5 - total))
    return PairedTest(_tail(steps, -total), _tail(steps, total))


def sign_flips(measures: Sequence[Pairs]) -> list[PairedTest]:
    """Tests several measures of the same cases, corrected by Holm in each direction. Measures with the same values are
    one test, not several."""
    family = list(dict.fromkeys(map(tuple, measures)))
    tests: list[PairedTest] = []
    for pairs in family:
        differences = [here - there for here, there in pairs]
        tests.append(sign_flip(differences))
    lower = holm([test.lower for test in tests])
    higher = holm([test.higher for test in tests])
    corrected = map(PairedTest, lower, higher)
    found = dict(zip(family, corrected, strict=True))
    return [found[tuple(pairs)] for pairs in measures]


def _tail(steps: Sequence[int], least: int) -> float:
    """Share of all sign choices whose sum is `least` or more.

    The number of choices for each sum is one field of a large integer: adding the integer to a shifted copy of itself
    counts both signs of a step at once.
    """
    width = len(steps) // 8 + 1  # bytes of a field
    counts = 1
    reach = 0
    for step in map(abs, steps):
        counts += counts << (16 * step * width)
        reach += step
    data = counts.to_bytes((2 * reach + 1) * width, "little")
    choices = 0
    for at in range((least + reach) * width, len(data), width):
        choices += int.from_bytes(data[at : at + width], "little")
    return choices / 2 ** len(steps)


def rate_difference(differences: Sequence[float]) -> Interval:
    """Returns the 95 % interval of Agresti and Min for the mean difference of paired rates, each -1 to 1. Half a pair
    of each outcome is added, so that a few equal pairs do not look certain."""
    count = len(differences) + 2
    mean = sum(differences) / count
    squares = sum(value * value for value in differences)
    square = (squares + 1) / count
    variance = max(0.0, square - mean * mean)
    spread = _Z * math.sqrt(variance / count)
    return Interval(max(-1.0, mean - spread), min(1.0, mean + spread))


def mean_difference(differences: Sequence[float]) -> Interval | None:
    """Returns the 95 % t interval of the mean of paired differences; None for fewer than two."""
    count = len(differences)
    if count < 2:
        return None
    mean = fmean(differences)
    spread = _t(count - 1) * stdev(differences, mean) / math.sqrt(count)
    return Interval(mean - spread, mean + spread)


def score_pass_k(cases: Sequence[tuple[int, int]]) -> tuple[PassScore, ...]:
    """Returns pass@k and pass^k, estimated without bias, of (runs, passed) of each case, for every k that has cases."""
    scores: list[PassScore] = []
    for k in _KS:
        ones: list[float] = []
        alls: list[float] = []
        for runs, passed in cases:
            if runs >= k:
                choices = math.comb(runs, k)
                ones.append(1 - math.comb(runs - passed, k) / choices)
                alls.append(math.comb(passed, k) / choices)
        if ones:
            scores.append(PassScore(k, fmean(ones), fmean(alls), len(ones)))
    return tuple(scores)


def holm(p_values: Sequence[float]) -> list[float]:
    """Corrects the p-values of several tests, so that the chance of any false alarm stays below the level."""
    count = len(p_values)
    corrected = [1.0] * count
    highest = 0.0
    smallest_first = sorted(range(count), key=p_values.__getitem__)
    for place, index in enumerate(smallest_first):
        p = (count - place) * p_values[index]
        highest = max(highest, min(1.0, p))
        corrected[index] = highest
    return corrected


def mean_known(values: Iterable[float | None]) -> float | None:
    """Returns the mean of the values that are not None."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return fmean(known)


def percentile(values: Sequence[float], percent: int) -> float | None:
    if len(values) < 2:
        return values[0] if values else None
    return quantiles(values, n=100, method="inclusive")[percent - 1]


def _t(freedom: int) -> float:
    """Quantile of Student's t for 95 %: exact for 1 and 2 degrees of freedom, else within 1 % (Cornish and Fisher)."""
    if freedom <= 2:
        return (12.7062, 4.3027)[freedom - 1]
    first = (_Z**3 + _Z) / 4
    second = (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / 96
    third = (3 * _Z**7 + 19 * _Z**5 + 17 * _Z**3 - 15 * _Z) / 384
    return _Z + first / freedom + second / freedom**2 + third / freedom**3
