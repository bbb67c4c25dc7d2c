"""Benchmarks still start: nobody runs them with the tests, and what they call changes."""

from __future__ import annotations

import importlib
import math
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("bench_*.py")))
def test_a_benchmark_can_be_imported(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    assert callable(importlib.import_module(name).measure)


def test_appends_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    module = importlib.import_module("bench_log")
    monkeypatch.setattr(module, "APPENDS", 10)
    rows = module.measure()
    assert len(rows) == 6 and all(math.isfinite(ratio) for _, ratio, _ in rows)


@pytest.mark.needs("isolation")
def test_results_have_few_tokens_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    rows = importlib.import_module("bench_wire").measure()
    assert len(rows) > 25 and not [row for row in rows if math.isnan(row[1])]
    assert not [(title, tokens) for title, tokens, limit in rows if limit is not None and tokens > limit]
