"""Adds up the usage of a request: turns, calls, script runs, questions, tokens and cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from prowess.core.values import USAGE_COUNTS, Usage, add_usage


@dataclass(slots=True)
class UsageTotals:
    """Usage of the current request so far."""

    turns: int = 0
    calls: int = 0
    scripts: int = 0
    prompts: int = 0  # questions to a person
    usage: Usage = field(default_factory=Usage)

    def add(self, other: UsageTotals) -> None:
        """Adds the usage of a child run, except its turns."""
        self.calls += other.calls
        self.scripts += other.scripts
        self.prompts += other.prompts
        self.usage = add_usage(self.usage, other.usage)

    def less(self, other: UsageTotals) -> UsageTotals:
        return UsageTotals(
            calls=self.calls - other.calls,
            scripts=self.scripts - other.scripts,
            prompts=self.prompts - other.prompts,
            usage=add_usage(self.usage, other.usage, sign=-1),
        )


def render_spent(spent: UsageTotals) -> dict[str, Any]:
    """Counts for the outcome of a call that a child run carried out. Its usage stands beside them."""
    return {"calls": spent.calls, "scripts": spent.scripts, "prompts": spent.prompts}


def parse_spent(data: Mapping[str, Any]) -> UsageTotals:
    """Parses the usage in such an outcome. Missing or invalid values count as zero."""
    usage, counts = data.get("usage"), data.get("spent")
    used = usage if isinstance(usage, dict) else {}
    told = counts if isinstance(counts, dict) else {}
    cost = used.get("cost")
    return UsageTotals(
        **{name: int(told.get(name) or 0) for name in ("calls", "scripts", "prompts")},
        usage=Usage(
            **{name: int(used.get(name) or 0) for name in USAGE_COUNTS},
            cost=float(cost) if isinstance(cost, (int, float)) else None,
        ),
    )
