"""What a model reads about skills: the catalog, and a loaded skill. The same input always gives the same bytes.

Everything that comes from a skill is escaped or neutralised, so no description can close our tags and no body can
pretend to be us.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

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
    """The catalog as a model is shown it; nothing at all when there is nothing to show. Without a plan, everything the
    model may see is shown whole."""
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
    """One skill as the reference library renders it; a source is added only where the name alone is ambiguous."""
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
    """Tokens of the skill's entry in the catalog, under its own name."""
    return count(xml_entry(entry, (entry.name, None)) + "\n")


def escape(text: str, *, quote: bool = True) -> str:
    """As html.escape does it, whose module brings a table of all entities along."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace('"', "&quot;").replace("'", "&#x27;") if quote else text


def shown_names(catalog: Catalog, entries: Iterable[Entry]) -> dict[str, tuple[str, str | None]]:
    """id -> the name to show, and the source if that name is not enough. A name that is shown always resolves."""
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
    """One line, whose angle brackets cannot be taken for tags."""
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
    """What loading a skill tells the model: the body, where its files are, which there are, and what to do with it."""
    place = directory or skill.directory
    lines = [
        f'<skill_content name="{escape(visible(skill.name))}" source="{skill.entry.source}">',
        neutralise(strip_invisible(skill.body)).strip("\n"),
        "",
    ]
    if place:
        lines += [f"Skill directory: {escape(visible(place), quote=False)}"]
        lines += ["Relative paths in this skill are relative to the skill directory."]
    others = [file.path for file in skill.files if file.path != skill.entry.file]
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
    """The text with our own tags made harmless: a body can quote them, and cannot close or open one."""
    return _OUR_TAGS.sub("&lt;", text)


def _quoted(name: str) -> str:
    return "'" + escape(visible(name), quote=False) + "'"
