"""Renders the text that a model reads about skills: the catalog within a token budget, a loaded skill, a doc.

The same input always gives the same bytes. Everything that comes from a skill is escaped or neutralised. So no
description can close Prowess' own tags, and no body can imitate them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple, TypedDict

from prowess._internal.text import strip_invisible
from prowess._internal.tokens import estimate
from prowess.core.catalog_values import CatalogPlan, TokenUse
from prowess.core.findings import visible
from prowess.errors import ConfigError
from prowess.skills.catalog import Catalog
from prowess.skills.skill import PRIORITY, Entry, Skill

Format = Literal["xml", "markdown", "json"]
FORMATS: tuple[Format, ...] = ("xml", "markdown", "json")
ShownName = tuple[str, str | None]  # the name, and the source if the name alone is ambiguous
Names = Mapping[str, ShownName]  # by id
MAX_LISTED_FILES = 50
_OURS = ("skill_content", "skill_resources", "skill_doc", "skill_arguments", "available_skills", r"note\b")
_OUR_TAGS = re.compile(rf"<(?=\s*+/?+\s*+(?:{'|'.join(_OURS)}))", re.IGNORECASE)


def render_catalog(
    catalog: Catalog,
    plan: CatalogPlan | None = None,
    *,
    format: Format = "xml",
    locations: bool = False,
    sources: bool = True,
) -> str:
    """Renders the catalog for a model; "" when there is nothing to show. Without a plan, every skill that the model may
    see is shown whole. Without `sources`, Markdown has the source only where a name is ambiguous, as XML has."""
    shown: list[Entry] = []
    name_only: list[Entry] = []
    more = 0
    if plan is None:
        shown += [entry for entry in catalog if catalog.visibility(entry).model_visible]
    else:
        entries = {entry.id: entry for entry in catalog}
        shown += [entries[id] for id in plan.shown]
        name_only += [entries[id] for id in plan.name_only]
        more = len(plan.searchable)
    if not shown and not name_only and not more:
        return ""
    names = shown_names(catalog, [*shown, *name_only])
    return render_entries(shown, name_only, more=more, names=names, format=format, locations=locations, sources=sources)


def render_entries(
    shown: Iterable[Entry],
    name_only: Iterable[Entry] = (),
    *,
    more: int = 0,
    names: Names,
    format: Format = "xml",
    locations: bool = False,
    sources: bool = True,
) -> str:
    if format not in FORMATS:
        hint = f"Use one of {', '.join(FORMATS)}."
        raise ConfigError(f"'{format}' is not a format.", code="format-unknown", hint=hint)
    if format == "json":
        return _render_json(shown, name_only, more, names, locations)
    if format == "markdown":
        lines = _markdown_lines(shown, name_only, names, locations, sources)
    else:
        lines = _xml_lines(shown, name_only, names, locations)
    if more:
        lines.append(more_line(more))
    return "\n".join(lines)


def _markdown_lines(
    shown: Iterable[Entry], name_only: Iterable[Entry], names: Names, locations: bool, sources: bool
) -> list[str]:
    lines: list[str] = []
    for entry in shown:
        name, source = names[entry.id]
        description = _one_line(strip_invisible(entry.description))
        where = [entry.source] if sources or source else []
        if locations:
            where.append(_one_line(entry.location))
        place = f" ({', '.join(where)})" if where else ""
        lines.append(f"- {_one_line(name)}: {description}{place}")
    for entry in name_only:
        name, _ = names[entry.id]
        lines.append(f"- {_one_line(name)}")
    return lines


def _xml_lines(shown: Iterable[Entry], name_only: Iterable[Entry], names: Names, locations: bool) -> list[str]:
    lines = ["<available_skills>"]
    for entry in shown:
        name = names[entry.id]
        lines.append(xml_entry(entry, name, location=locations))
    for entry in name_only:
        name = names[entry.id]
        lines.append(xml_entry(entry, name, location=locations, description=False))
    lines.append("</available_skills>")
    return lines


def more_line(count: int) -> str:
    skills = "1 more skill is" if count == 1 else f"{count} more skills are"
    return (
        f"{skills} installed and not listed here. Find one with skill_search(query) before you decide that none fits."
    )


def xml_entry(entry: Entry, name: ShownName, *, location: bool = False, description: bool = True) -> str:
    """Renders one skill like the reference library. Adds the source only when the name alone is ambiguous."""
    text, source = name
    lines = ["<skill>", "<name>", escape(text), "</name>"]
    if description:
        lines += ["<description>", escape(strip_invisible(entry.description)), "</description>"]
    if source:
        lines += ["<source>", source, "</source>"]
    if location:
        lines += ["<location>", escape(entry.location, quote=False), "</location>"]
    return "\n".join([*lines, "</skill>"])


def cost_in_catalog(entry: Entry, count: Callable[[str], int] = estimate) -> int:
    """Counts the tokens of the skill's catalog entry, under its own name."""
    name = (entry.name, None)
    text = xml_entry(entry, name)
    return count(text + "\n")


class RowTokens(TypedDict):
    """Tokens of a skill in a JSON document."""

    catalog: int
    body: int
    exact: bool


def skill_tokens(skill: Skill, count: Callable[[str], int] = estimate) -> RowTokens:
    """Returns the tokens of a skill: of its entry in the catalog, and of the text that a load adds."""
    in_catalog = cost_in_catalog(skill.entry, count)
    body = count(render_skill(skill))
    return {"catalog": in_catalog, "body": body, "exact": False}


def escape(text: str, *, quote: bool = True) -> str:
    """Escapes like html.escape, without importing html and its large entity table."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    if quote:
        text = text.replace('"', "&quot;").replace("'", "&#x27;")
    return text


def shown_names(catalog: Catalog, entries: Iterable[Entry]) -> dict[str, ShownName]:
    """Maps an id to the name to show, and to the source if the name is ambiguous. Every shown name can be resolved."""
    entries = list(entries)
    count: dict[str, int] = {}
    for entry in entries:
        count[entry.name] = count.get(entry.name, 0) + 1
    names: dict[str, ShownName] = {}
    for entry in entries:
        name = entry.name
        if count[name] > 1 or catalog.find(name) is not entry:
            name = entry.qualified
        if catalog.find(name) is entry:
            names[entry.id] = (strip_invisible(name), None)
        else:
            names[entry.id] = (strip_invisible(entry.id), entry.source)
    return names


def _one_line(text: str) -> str:
    """Returns the text as one line, with angle brackets escaped so they are not read as tags."""
    return escape(" ".join(text.split()), quote=False)


def _render_json(shown: Iterable[Entry], name_only: Iterable[Entry], more: int, names: Names, locations: bool) -> str:
    rows: list[dict[str, str]] = []
    for entry in shown:
        name, _ = names[entry.id]
        row: dict[str, str] = {"name": name, "description": strip_invisible(entry.description), "source": entry.source}
        if locations:
            row["location"] = entry.location
        rows.append(row)
    for entry in name_only:
        name, _ = names[entry.id]
        rows.append({"name": name, "source": entry.source})
    document: dict[str, object] = {"skills": rows}
    if more:
        document["more"] = more
        document["note"] = more_line(more)
    return json.dumps(document, ensure_ascii=False)


# --- a loaded skill -------------------------------------------------------------------------------------------------


def render_skill(skill: Skill, *, directory: str | None = None) -> str:
    """Renders a loaded skill for the model: the body, its folder, its files, and what to do now."""
    name = visible(skill.name)
    body = neutralise(strip_invisible(skill.body))
    lines = [f'<skill_content name="{escape(name)}" source="{skill.entry.source}">', body.strip("\n"), ""]
    place = directory or skill.directory
    if place:
        lines.append(f"Skill directory: {escape(visible(place), quote=False)} (relative paths start there)")
    if skill.resources:
        lines.append(_list_files(skill.resources))
    lines.append("Follow these instructions now to do what was asked.")
    lines.append("</skill_content>")
    return "\n".join(lines)


def _list_files(paths: tuple[str, ...]) -> str:
    shown = [escape(visible(path), quote=False) for path in paths[:MAX_LISTED_FILES]]
    listed = ", ".join(shown)
    unlisted = len(paths) - MAX_LISTED_FILES
    if unlisted > 0:
        return f"Files: {listed} and {unlisted} more"
    return f"Files: {listed}"


def render_doc(skill: Skill, path: str, data: bytes) -> str:
    text = strip_invisible(data.decode("utf-8", "replace"))
    text = neutralise(text).strip("\n")
    name = escape(visible(skill.name))
    doc = escape(visible(path))
    return f'<skill_doc skill="{name}" path="{doc}">\n{text}\n</skill_doc>'


def neutralise(text: str) -> str:
    """Escapes Prowess' own tags: a body can quote them, but cannot open or close one."""
    return _OUR_TAGS.sub("&lt;", text)


# --- within a token budget --------------------------------------------------------------------------------------------
#
# Within the budget every skill is shown whole. Above it, skills are taken in this order: pinned ones, then by source
# priority, then by name. Those that fit get their whole description; a description is never cut. The rest is found by
# search, and one line tells the model how many there are and how to find them.

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
