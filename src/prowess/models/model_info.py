"""What tokens cost, by the prices that a person configured: a list of prices in here would be out of date."""

from __future__ import annotations

from collections.abc import Mapping

from prowess.core.values import Usage

_MILLION = 1_000_000


def find_cost(usage: Usage, prices: Mapping[str, float]) -> float | None:
    """In the currency of the prices, which are for a million tokens: `input`, `output` and, where they differ from
    `input`, `cached` and `cache_written`. None when the price of input or output is not known."""
    if "input" not in prices or "output" not in prices:
        return None
    fresh = max(0, usage.input - usage.cached - usage.cache_written)
    total = fresh * prices["input"] + usage.output * prices["output"]
    total += usage.cached * prices.get("cached", prices["input"])
    total += usage.cache_written * prices.get("cache_written", prices["input"])
    return total / _MILLION
