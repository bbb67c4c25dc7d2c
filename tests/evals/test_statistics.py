"""Statistics of evals, compared with brute force and with published values."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prowess._internal.statistics import (
    Rate,
    holm,
    mean_difference,
    percentile,
    rate_difference,
    score_pass_k,
    sign_flip,
    sign_flips,
    wilson,
)


@pytest.mark.parametrize(
    ("passed", "total", "expected"),
    [(18, 20, (0.9, 0.6990, 0.9721)), (60, 60, (1.0, 0.9398, 1.0)), (0, 10, (0.0, 0.0, 0.2775))],
)
def test_wilson_has_the_published_values(passed: int, total: int, expected: tuple[float, ...]) -> None:
    found = wilson(passed, total)
    assert (found.rate, found.low, found.high) == pytest.approx(expected, abs=1e-4)


def test_a_rate_of_nothing_is_unknown() -> None:
    assert wilson(0, 0) == Rate(0, 0, None, None, None)


@given(st.integers(1, 400).flatmap(lambda total: st.tuples(st.integers(0, total), st.just(total))))
def test_wilson_contains_the_rate_and_stays_within_0_and_1(counts: tuple[int, int]) -> None:
    found = wilson(*counts)
    assert found.rate is not None and found.low is not None and found.high is not None
    assert 0 <= found.low <= found.rate <= found.high <= 1


def test_sign_flip_has_the_published_values_of_mcnemar() -> None:
    assert sign_flip([-1] * 5).two_sided == pytest.approx(0.0625)
    assert sign_flip([-1] * 5).lower == pytest.approx(0.03125)
    assert sign_flip([-1] * 6).two_sided == pytest.approx(0.03125)
    assert sign_flip([0] * 9).two_sided == 1.0
    assert sign_flip([-1] * 2 + [1] * 9).two_sided == pytest.approx(0.06543, abs=1e-5)


def mcnemar(broken: int, fixed: int) -> tuple[float, float]:
    """One-sided p-values of the exact test: a binomial distribution of the pairs that differ."""
    pairs = broken + fixed
    tails = [sum(math.comb(pairs, i) for i in range(least, pairs + 1)) / 2**pairs for least in (broken, fixed)]
    return tails[0], tails[1]


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40))
def test_sign_flip_of_passed_and_failed_is_mcnemar(broken: int, fixed: int, same: int) -> None:
    found = sign_flip([-1.0] * broken + [0.0] * same + [1.0] * fixed)
    assert found == pytest.approx(mcnemar(broken, fixed))


@given(st.lists(st.integers(-5, 5), max_size=9))
def test_sign_flip_counts_all_choices_of_signs(values: list[int]) -> None:
    """Fifths of one are on the grid, so that the result is exact."""
    differences = [5, *values] if values else []
    sums = [sum(v * s for v, s in zip(differences, signs, strict=True)) for signs in _signs(len(differences))]
    found = sign_flip([value / 5 for value in differences])
    assert found.higher == pytest.approx(sum(one >= sum(differences) for one in sums) / len(sums))
    assert found.lower == pytest.approx(sum(one <= sum(differences) for one in sums) / len(sums))


def _signs(count: int) -> list[tuple[int, ...]]:
    return list(itertools.product((-1, 1), repeat=count))


@given(st.lists(st.floats(-1e6, 1e6), max_size=60))
@settings(max_examples=60)
def test_sign_flip_treats_both_directions_alike(differences: list[float]) -> None:
    there, back = sign_flip(differences), sign_flip([-value for value in differences])
    assert (there.lower, there.higher) == (back.higher, back.lower)
    assert 0 < there.two_sided <= 1


def test_exact_and_normal_agree_where_they_meet() -> None:
    draw = random.Random(1)
    differences = [draw.gauss(0.1, 1) for _ in range(200)]
    exact, normal = sign_flip(differences), sign_flip([*differences, 1e-2, -1e-2])
    assert exact == pytest.approx(normal, rel=0.1)


def pass_k(runs: int, passed: int, k: int) -> tuple[float, float]:
    (found,) = [one for one in score_pass_k([(runs, passed)]) if one.k == k]
    return found.pass_at_k, found.pass_hat_k


def test_unbiased_pass_at_k_and_pass_hat_k() -> None:
    assert pass_k(3, 2, 3) == (1.0, 0.0)  # (2/3)^3 = 0.30 would be the biased one
    assert pass_k(4, 1, 2) == pytest.approx((0.5, 0.0))
    assert pass_k(4, 3, 2) == pytest.approx((1.0, 0.5))
    assert [(one.k, one.cases) for one in score_pass_k([(2, 2), (1, 0)])] == [(1, 2), (2, 1)]


@given(st.integers(1, 7).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))))
def test_pass_at_k_is_the_share_of_all_choices_of_k_runs(counts: tuple[int, int]) -> None:
    runs, passed = counts
    for one in score_pass_k([(runs, passed)]):
        choices = list(itertools.combinations([index < passed for index in range(runs)], one.k))
        assert one.pass_at_k == pytest.approx(sum(map(any, choices)) / len(choices))
        assert one.pass_hat_k == pytest.approx(sum(map(all, choices)) / len(choices))


def test_holm_has_the_published_values() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_raises_and_keeps_the_order(p_values: list[float]) -> None:
    corrected = holm(p_values)
    assert all(p <= c <= 1 for p, c in zip(p_values, corrected, strict=True))
    assert [c for _, c in sorted(zip(p_values, corrected, strict=True))] == sorted(corrected)


def test_mean_difference_uses_the_quantiles_of_t() -> None:
    for count, quantile in ((2, 12.7062), (3, 4.3027), (4, 3.1824), (5, 2.7764), (11, 2.2281), (31, 2.0423)):
        values = [0.0] * (count - 1) + [1.0]
        found = mean_difference(values)
        error = math.sqrt(sum((v - 1 / count) ** 2 for v in values) / (count - 1) / count)
        assert found and (found.high - found.low) / 2 / error == pytest.approx(quantile, rel=0.01)
    assert mean_difference([1.0]) is None


def test_equal_pairs_are_not_certain_when_they_are_few() -> None:
    few, many = rate_difference([0.0] * 10), rate_difference([0.0] * 1000)
    assert few.high > 0.15 and many.high < 0.01


@pytest.mark.parametrize("rates", [(0.5, 0.5), (0.9, 0.9), (0.9, 0.7), (0.95, 0.95)])
@pytest.mark.parametrize("cases", [10, 40])
def test_interval_of_a_rate_difference_covers_what_it_promises(rates: tuple[float, float], cases: int) -> None:
    draw, covered, rounds = random.Random(7), 0, 1000
    for _ in range(rounds):
        found = rate_difference([(draw.random() < rates[1]) - (draw.random() < rates[0]) for _ in range(cases)])
        covered += found.low <= rates[1] - rates[0] <= found.high
    assert covered / rounds > 0.93


def test_percentiles() -> None:
    assert percentile([], 50) is None
    assert percentile([3.0], 95) == 3.0
    assert percentile([float(value) for value in range(101)], 95) == 95.0


def test_several_measures_are_corrected_and_equal_ones_are_one_test() -> None:
    worse, same = [(0.0, 1.0)] * 6, [(1.0, 1.0)] * 6
    alone, twice, beside = sign_flips([worse]), sign_flips([worse, worse]), sign_flips([worse, same])
    assert alone[0].lower == twice[0].lower == twice[1].lower == pytest.approx(1 / 64)
    assert beside[0].lower == pytest.approx(2 / 64) and beside[1] == (1.0, 1.0)
    assert sign_flips([]) == []
