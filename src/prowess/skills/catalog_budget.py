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
        why = f"2 % of {CONTEXT_WINDOW}: the window of {model} is not known"
        return CatalogBudget(int(CONTEXT_WINDOW * SHARE), why)
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
    budget = budget_tokens
    if budget is None:
        budget = int(context_window * SHARE)
    visible, hidden = _split(catalog)
    costs = _costs(catalog, visible, count)
    fixed = count(_FRAME) if visible else 0
    used = fixed + sum(costs.values())
    kept = visible
    if used > budget:
        longest_line = count(more_line(len(visible)))
        kept = _fitting(catalog, visible, costs, budget - fixed - longest_line)
        line = count(more_line(len(visible) - len(kept)))
        used = fixed + line + sum(costs[entry.id] for entry in kept)
    if not visible:
        used = 0
    shown: list[str] = []
    name_only: list[str] = []
    for entry in kept:
        chosen = name_only if _is_name_only(catalog, entry) else shown
        chosen.append(entry.id)
    listed = {*shown, *name_only}
    searchable = [entry.id for entry in visible if entry.id not in listed]
    return CatalogPlan(
        shown=tuple(shown),
        name_only=tuple(name_only),
        searchable=tuple(searchable),
        hidden=tuple(entry.id for entry in hidden),
        tokens=TokenUse(budget=budget, used=used, exact=exact),
    )


def _split(catalog: Catalog) -> tuple[list[Entry], list[Entry]]:
    """Returns the skills that the model may see, in order, and the others."""
    visible: list[Entry] = []
    hidden: list[Entry] = []
    pinned: set[str] = set()
    for entry in catalog:
        seen = catalog.visibility(entry)
        if not seen.model_visible:
            hidden.append(entry)
            continue
        visible.append(entry)
        if seen.mode == "pin":
            pinned.add(entry.id)

    def order(entry: Entry) -> tuple[bool, int, str, str]:
        id = entry.id
        return id not in pinned, PRIORITY.index(entry.source), entry.name, id

    visible.sort(key=order)
    return visible, hidden


def _costs(catalog: Catalog, visible: list[Entry], count: Callable[[str], int]) -> dict[str, int]:
    """Returns the tokens of each skill's entry, by id."""
    names = shown_names(catalog, visible)
    costs: dict[str, int] = {}
    for entry in visible:
        name = names[entry.id]
        is_name_only = _is_name_only(catalog, entry)
        is_usual = name == (entry.name, None) and not is_name_only
        if is_usual and count is estimate and entry.catalog_tokens:
            costs[entry.id] = entry.catalog_tokens
            continue
        text = xml_entry(entry, name, description=not is_name_only)
        costs[entry.id] = count(text + "\n")
    return costs


def _fitting(catalog: Catalog, visible: list[Entry], costs: dict[str, int], room: int) -> list[Entry]:
    """Returns the skills that fit, in order. A skill that is too long is skipped; later ones may still fit. Pinned
    skills are shown even above the budget."""
    kept: list[Entry] = []
    for entry in visible:
        cost = costs[entry.id]
        if cost <= room or catalog.visibility(entry).mode == "pin":
            room -= cost
            kept.append(entry)
    return kept


def _is_name_only(catalog: Catalog, entry: Entry) -> bool:
    seen = catalog.visibility(entry)
    return seen.mode == "name-only"
