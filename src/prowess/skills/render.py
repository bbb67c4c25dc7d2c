"""Renders the text that a model reads about skills: the catalog, a loaded skill, a doc.

The same input always gives the same bytes. Everything that comes from a skill is escaped or neutralised. So no
description can close Prowess' own tags, and no body can imitate them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, TypedDict

from prowess._internal.text import strip_invisible
from prowess._internal.tokens import estimate
from prowess.core.catalog_values import CatalogPlan
from prowess.core.findings import visible
from prowess.errors import ConfigError
from prowess.skills.catalog import Catalog
from prowess.skills.skill import Entry, Skill

Format = Literal["xml", "markdown", "json"]
FORMATS: tuple[Format, ...] = ("xml", "markdown", "json")
MAX_LISTED_FILES = 50
_OURS = ("skill_content", "skill_resources", "skill_doc", "skill_arguments", "available_skills", r"note\b")
_OUR_TAGS = re.compile(rf"<(?=\s*+/?+\s*+(?:{'|'.join(_OURS)}))", re.IGNORECASE)


def render_catalog(
    catalog: Catalog, plan: CatalogPlan | None = None, *, format: Format = "xml", locations: bool = False
) -> str:
    """Renders the catalog for a model; "" when there is nothing to show. Without a plan, every skill that the model may
    see is shown whole."""
    entries = {entry.id: entry for entry in catalog}
    if plan is None:
        shown = [entry for entry in catalog if catalog.visibility(entry).model_visible]
        name_only: list[Entry] = []
    else:
        shown = [entries[id] for id in plan.shown]
        name_only = [entries[id] for id in plan.name_only]
    more = len(plan.searchable) if plan else 0
    if not shown and not name_only and not more:
        return ""
    names = shown_names(catalog, [*shown, *name_only])
    return render_entries(shown, name_only, more=more, names=names, format=format, locations=locations)


def render_entries(
    shown: Iterable[Entry],
    name_only: Iterable[Entry] = (),
    *,
    more: int = 0,
    names: Mapping[str, tuple[str, str | None]],
    format: Format = "xml",
    locations: bool = False,
) -> str:
    if format not in FORMATS:
        raise ConfigError(
            f"'{format}' is not a format.", code="format-unknown", hint=f"Use one of {', '.join(FORMATS)}."
        )
    if format == "json":
        return _render_json(shown, name_only, more, names, locations)
    if format == "markdown":
        lines = [_markdown_line(entry, names, locations) for entry in shown]
        lines += [f"- {_one_line(names[entry.id][0])}" for entry in name_only]
    else:
        lines = ["<available_skills>"]
        lines += [xml_entry(entry, names[entry.id], location=locations) for entry in shown]
        lines += [xml_entry(entry, names[entry.id], location=locations, description=False) for entry in name_only]
        lines.append("</available_skills>")
    if more:
        lines.append(more_line(more))
    return "\n".join(lines)


def more_line(count: int) -> str:
    skills = "1 more skill is" if count == 1 else f"{count} more skills are"
    return (
        f"{skills} installed and not listed here. Find one with skill_search(query) before you decide that none fits."
    )


def xml_entry(entry: Entry, name: tuple[str, str | None], *, location: bool = False, description: bool = True) -> str:
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
    return count(xml_entry(entry, (entry.name, None)) + "\n")


class RowTokens(TypedDict):
    """Tokens of a skill in a JSON document."""

    catalog: int
    body: int
    exact: bool


def skill_tokens(skill: Skill, count: Callable[[str], int] = estimate) -> RowTokens:
    """Returns the tokens of a skill: of its entry in the catalog, and of the text that a load adds."""
    return {"catalog": cost_in_catalog(skill.entry, count), "body": count(render_skill(skill)), "exact": False}


def escape(text: str, *, quote: bool = True) -> str:
    """Escapes like html.escape, without importing html and its large entity table."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace('"', "&quot;").replace("'", "&#x27;") if quote else text


def shown_names(catalog: Catalog, entries: Iterable[Entry]) -> dict[str, tuple[str, str | None]]:
    """Maps an id to the name to show, and to the source if the name is ambiguous. Every shown name can be resolved."""
    entries = list(entries)
    count: dict[str, int] = {}
    for entry in entries:
        count[entry.name] = count.get(entry.name, 0) + 1
    names: dict[str, tuple[str, str | None]] = {}
    for entry in entries:
        name = entry.name if count[entry.name] == 1 and catalog.find(entry.name) is entry else entry.qualified
        if catalog.find(name) is entry:
            names[entry.id] = (strip_invisible(name), None)
        else:
            names[entry.id] = (strip_invisible(entry.id), entry.source)
    return names


def _markdown_line(entry: Entry, names: Mapping[str, tuple[str, str | None]], locations: bool) -> str:
    where = f", {entry.location}" if locations else ""
    description = _one_line(strip_invisible(entry.description))
    return f"- {_one_line(names[entry.id][0])}: {description} ({entry.source}{where})"


def _one_line(text: str) -> str:
    """Returns the text as one line, with angle brackets escaped so they are not read as tags."""
    return escape(" ".join(text.split()), quote=False)


def _render_json(
    shown: Iterable[Entry],
    name_only: Iterable[Entry],
    more: int,
    names: Mapping[str, tuple[str, str | None]],
    locations: bool,
) -> str:
    rows = [
        {
            "name": names[entry.id][0],
            "description": strip_invisible(entry.description),
            "source": entry.source,
            **({"location": entry.location} if locations else {}),
        }
        for entry in shown
    ]
    rows += [{"name": names[entry.id][0], "source": entry.source} for entry in name_only]
    document: dict[str, object] = {"skills": rows}
    if more:
        document["more"] = more
        document["note"] = more_line(more)
    return json.dumps(document, ensure_ascii=False)


# --- a loaded skill -------------------------------------------------------------------------------------------------


def render_skill(skill: Skill, *, directory: str | None = None) -> str:
    """Renders a loaded skill for the model: the body, its folder, its files, and what to do now."""
    place = directory or skill.directory
    lines = [
        f'<skill_content name="{escape(visible(skill.name))}" source="{skill.entry.source}">',
        neutralise(strip_invisible(skill.body)).strip("\n"),
        "",
    ]
    if place:
        lines += [f"Skill directory: {escape(visible(place), quote=False)}"]
        lines += ["Relative paths in this skill are relative to the skill directory."]
    others = skill.resources
    if others:
        lines.append("<skill_resources>")
        lines += [f"  <file>{escape(visible(path))}</file>" for path in others[:MAX_LISTED_FILES]]
        if len(others) > MAX_LISTED_FILES:
            lines.append(f"  <!-- and {len(others) - MAX_LISTED_FILES} more files -->")
        lines.append("</skill_resources>")
    lines += [
        f"Follow these instructions now to do what was asked, with what the skill {_quoted(skill.name)} tells you."
    ]
    return "\n".join([*lines, "</skill_content>"])


def render_doc(skill: Skill, path: str, data: bytes) -> str:
    text = neutralise(strip_invisible(data.decode("utf-8", "replace"))).strip("\n")
    name, doc = escape(visible(skill.name)), escape(visible(path))
    return f'<skill_doc skill="{name}" path="{doc}">\n{text}\n</skill_doc>'


def neutralise(text: str) -> str:
    """Escapes Prowess' own tags: a body can quote them, but cannot open or close one."""
    return _OUR_TAGS.sub("&lt;", text)


def _quoted(name: str) -> str:
    return "'" + escape(visible(name), quote=False) + "'"
