"""Scores of chosen labels: precision, recall and F1 per label, micro and macro, and the confusion matrix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from prowess._internal.statistics import Rate, mean_known, wilson

NO_LABEL = "(none)"  # row and column of the matrix


class LabelChoice(NamedTuple):
    """Labels that were expected and chosen. `judged` is None when every label is right or wrong."""

    expected: Collection[str]
    chosen: Collection[str]
    judged: Collection[str] | None = None


@dataclass(frozen=True, slots=True)
class LabelScore:
    """Score of a label: `precision` is of the choices that have it, `recall` of those that should."""

    precision: Rate
    recall: Rate
    f1: float | None


@dataclass(frozen=True, slots=True)
class MeanScore:
    """Three rates without their intervals."""

    precision: float | None
    recall: float | None
    f1: float | None


@dataclass(frozen=True, slots=True)
class LabelScores:
    """Scores of all labels. `micro` counts every choice, `macro` are means over labels. `matrix[expected][chosen]`
    counts the choices that expected the one and chose the other."""

    choices: int
    labels: dict[str, LabelScore]
    micro: LabelScore
    macro: MeanScore
    matrix: dict[str, dict[str, int]]


def score_labels(choices: Sequence[LabelChoice]) -> LabelScores:
    every = _all_labels(choices)
    counts: dict[str, Counter[tuple[bool, bool]]] = {name: Counter() for name in every}
    matrix: dict[str, Counter[str]] = {}
    for expected, chosen, judged in choices:
        names = every if judged is None else judged
        for name in names:
            counts[name][name in expected, name in chosen] += 1
        found = [name for name in chosen if name in names]
        for wanted in expected or (NO_LABEL,):
            row = matrix.setdefault(wanted, Counter())
            row.update(found or (NO_LABEL,))
    labels = {name: _score(found) for name, found in counts.items() if found}
    together = sum(counts.values(), Counter())
    return LabelScores(
        choices=len(choices),
        labels=labels,
        micro=_score(together),
        macro=_mean_scores(labels.values()),
        matrix={wanted: dict(sorted(found.items())) for wanted, found in sorted(matrix.items())},
    )


def _all_labels(choices: Sequence[LabelChoice]) -> list[str]:
    """Returns the labels that any choice names, sorted."""
    found: set[str] = set()
    for choice in choices:
        found.update(choice.expected)
        found.update(choice.chosen)
        found.update(choice.judged or ())
    return sorted(found)


def _mean_scores(scores: Collection[LabelScore]) -> MeanScore:
    precision = mean_known(score.precision.rate for score in scores)
    recall = mean_known(score.recall.rate for score in scores)
    f1 = mean_known(score.f1 for score in scores)
    return MeanScore(precision, recall, f1)


def _score(counts: Counter[tuple[bool, bool]]) -> LabelScore:
    """Counts by (expected, chosen)."""
    right = counts[True, True]
    wrong = counts[False, True]
    missed = counts[True, False]
    f1 = None
    if right + wrong + missed:
        f1 = 2 * right / (2 * right + wrong + missed)
    precision = wilson(right, right + wrong)
    recall = wilson(right, right + missed)
    return LabelScore(precision, recall, f1)
