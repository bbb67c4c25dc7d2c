"""Chooses the skills that the model is shown, within a token budget.

Within the budget every skill is shown whole. Above it, skills are taken in this order: pinned ones, then by source
priority, then by name. Those that fit get their whole description; a description is never cut. The rest is found by
search, and one line tells the model how many there are and how to find them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from prowess._internal.tokens import estimate
from prowess.core.catalog_values import CatalogPlan, TokenUse
from prowess.skills.catalog import Catalog
from prowess.skills.render import more_line, shown_names, xml_entry
from prowess.skills.skill import PRIORITY, Entry

CONTEXT_WINDOW = 200_000
SHARE = 0.02
LEAST = 400  # tokens: 2 % of a small window would be one skill, or none
_FRAME = "<available_skills>\n</available_skills>\n"


class CatalogBudget(NamedTuple):
    """Tokens that the catalog may take, and the reason."""

    tokens: int
    why: str


def find_budget(model: str, window: int | None) -> CatalogBudget:
    """Returns the share of the model's window, or of a common window when the model's is not known."""
    if window is None:
        return CatalogBudget(
            int(CONTEXT_WINDOW * SHARE), f"2 % of {CONTEXT_WINDOW}: the window of {model} is not known"
        )
    share = int(window * SHARE)
    if share < LEAST:
        return CatalogBudget(LEAST, f"the least; 2 % of {window}, the window of {model}, are {share}")
    return CatalogBudget(share, f"2 % of {window}, the window of {model}")


def plan_catalog(
    catalog: Catalog,
    *,
    budget_tokens: int | None = None,
    context_window: int = CONTEXT_WINDOW,
    count: Callable[[str], int] = estimate,
    exact: bool = False,
) -> CatalogPlan:
    """Puts every skill of the catalog into exactly one list: shown, name_only, searchable or hidden."""
    budget = int(context_window * SHARE) if budget_tokens is None else budget_tokens
    visible, hidden = _split(catalog)
    costs = _costs(catalog, visible, count)
    fixed = count(_FRAME) if visible else 0
    total = fixed + sum(costs.values())
    if total <= budget:
        kept = visible
    else:
        kept = _fitting(catalog, visible, costs, budget - fixed - count(more_line(len(visible))))
        total = fixed + count(more_line(len(visible) - len(kept))) + sum(costs[entry.id] for entry in kept)
    chosen = {entry.id for entry in kept}
    return CatalogPlan(
        shown=tuple(e.id for e in kept if not _is_name_only(catalog, e)),
        name_only=tuple(e.id for e in kept if _is_name_only(catalog, e)),
        searchable=tuple(e.id for e in visible if e.id not in chosen),
        hidden=tuple(e.id for e in hidden),
        tokens=TokenUse(budget=budget, used=total if visible else 0, exact=exact),
    )


def _split(catalog: Catalog) -> tuple[list[Entry], list[Entry]]:
    visible: list[tuple[tuple[bool, int, str, str], Entry]] = []
    hidden: list[Entry] = []
    for entry in catalog:
        seen = catalog.visibility(entry)
        if seen.model_visible:
            order = (seen.mode != "pin", PRIORITY.index(entry.source), entry.name, entry.id)
            visible.append((order, entry))
        else:
            hidden.append(entry)
    return [entry for _, entry in sorted(visible, key=lambda pair: pair[0])], hidden


def _costs(catalog: Catalog, visible: list[Entry], count: Callable[[str], int]) -> dict[str, int]:
    names = shown_names(catalog, visible)

    def cost(entry: Entry) -> int:
        name, name_only = names[entry.id], _is_name_only(catalog, entry)
        if count is estimate and name == (entry.name, None) and not name_only and entry.catalog_tokens:
            return entry.catalog_tokens
        return count(xml_entry(entry, name, description=not name_only) + "\n")

    return {entry.id: cost(entry) for entry in visible}


def _fitting(catalog: Catalog, visible: list[Entry], costs: dict[str, int], room: int) -> list[Entry]:
    """Returns the skills that fit, in order. A skill that is too long is skipped; later ones may still fit. Pinned
    skills are shown even above the budget."""
    kept: list[Entry] = []
    for entry in visible:
        if costs[entry.id] <= room or catalog.visibility(entry).mode == "pin":
            room -= costs[entry.id]
            kept.append(entry)
    return kept


def _is_name_only(catalog: Catalog, entry: Entry) -> bool:
    return catalog.visibility(entry).mode == "name-only"
