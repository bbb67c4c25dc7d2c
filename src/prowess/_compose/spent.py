"""What a request has used so far, and how usage adds up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from prowess.values import Usage


@dataclass(slots=True)
class Spent:
    """What the request that is being worked on has used."""

    turns: int = 0
    calls: int = 0
    scripts: int = 0
    prompts: int = 0  # how often a person was asked
    usage: Usage = field(default_factory=Usage)


def add_usage(one: Usage, other: Usage) -> Usage:
    cost = None if one.cost is None and other.cost is None else (one.cost or 0.0) + (other.cost or 0.0)
    return Usage(
        input=one.input + other.input,
        cached=one.cached + other.cached,
        output=one.output + other.output,
        reasoning=one.reasoning + other.reasoning,
        cache_written=one.cache_written + other.cache_written,
        requests=one.requests + other.requests,
        cost=cost,
    )


def parse_usage(data: dict[str, Any]) -> Usage:
    names = ("input", "cached", "output", "reasoning", "cache_written", "requests")
    cost = data.get("cost")
    return Usage(
        **{name: int(data.get(name) or 0) for name in names},
        cost=float(cost) if isinstance(cost, (int, float)) else None,
    )
