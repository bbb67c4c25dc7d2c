"""Finds skills to activate without a tool call: named in the user's text, by the caller, or by a file name.

`/name arguments` at the start of a request activates a skill with arguments; `$name` anywhere activates a skill without
arguments. A skill with `paths` is activated when a matching file is given, read, written or created.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from prowess.core.values import Outcome, ToolCall, Trigger
from prowess.policy.globs import match_path
from prowess.skills.catalog import Catalog
from prowess.skills.skill import Entry
from prowess.skills.spelling import near_names

_SLASH = re.compile(r"/(?P<name>[\w:-]+(?:/[\w:-]+)?)(?:\s+(?P<rest>.*))?", re.DOTALL)
_DOLLAR = re.compile(r"(?<![\w$\\])\$(?P<name>[a-z][a-z0-9]*(?:[-:/][a-z0-9]+)*)(?![\w(])")
_ARGUMENTS = ("file_name", "path", "script")
_PLACES = ("work/inputs/", "inputs/", "work/", "out/")


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillRequest:
    """Request to activate a skill, and its origin."""

    ref: str
    source: str | None = None
    trigger: Trigger = "caller"
    arguments: str = ""
    docs: tuple[str, ...] = ()
    firm: bool = True  # the run fails without it


def find_requested_skills(text: str, catalog: Catalog) -> tuple[list[SkillRequest], list[tuple[str, str | None]]]:
    """Returns the skills that a user's text names, and unknown /names with a hint."""
    requests: list[SkillRequest] = []
    unknown: list[tuple[str, str | None]] = []
    slash = _SLASH.fullmatch(text.strip())
    if slash is not None:
        if _find(slash["name"], catalog) is not None:
            requests.append(SkillRequest(ref=slash["name"], trigger="user", arguments=(slash["rest"] or "").strip()))
        elif "/" not in slash["name"]:
            unknown.append((f"/{slash['name']}", _near(slash["name"], catalog)))
    for found in _DOLLAR.finditer(text):
        name = found["name"]
        if _find(name, catalog) is not None and all(requested.ref != name for requested in requests):
            requests.append(SkillRequest(ref=name, trigger="user", firm=False))
    return requests, unknown


def _find(name: str, catalog: Catalog) -> Entry | None:
    return catalog.find(name)


def _near(name: str, catalog: Catalog) -> str | None:
    near = near_names(name, [entry.name for entry in catalog])
    return f"Did you mean /{near[0]}?" if near else "See: prowess list"


def names_in(call: ToolCall, outcome: Outcome) -> list[str]:
    """Returns every file name in the arguments and the outcome of a call."""
    args, data = call.args, outcome.data
    found = [value for name in _ARGUMENTS if isinstance(value := args.get(name), str)]
    for each in args.get("inputs") or ():
        found += [str(each.get(side) or "") for side in ("from", "to")] if isinstance(each, dict) else [str(each)]
    found += _texts(data.get("paths"))
    for key in ("output_files", "staged_inputs", "artifact_files"):
        for each in data.get(key) or ():
            found.append(str(each.get("name") or each.get("to") or "") if isinstance(each, dict) else str(each))
    return [name for name in found if name]


def _texts(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def skills_for_paths(names: Sequence[str], catalog: Catalog, loaded: Collection[str]) -> list[str]:
    """Ids of skills whose `paths` match a file name and that are not loaded yet."""
    wanting = [entry for entry in catalog if entry.controls.paths and entry.id not in loaded]
    if not wanting:
        return []
    written = {form for name in names for form in _forms(name)}
    fitting = [entry for entry in wanting if _fits(entry.controls.paths, written)]
    return [entry.id for entry in fitting if catalog.visibility(entry).model_visible]


def _forms(name: str) -> Iterable[str]:
    """Yields forms of a file name for matching: `work/inputs/a/b.csv` is also `a/b.csv`."""
    plain = name.partition("://")[2] or name
    yield plain
    for place in _PLACES:
        if plain.startswith(place):
            yield plain.removeprefix(place)


def _fits(patterns: Sequence[str], names: Iterable[str]) -> bool:
    return any(
        match_path(pattern, name) or ("/" not in pattern and match_path(pattern, posixpath.basename(name)))
        for pattern in patterns
        for name in names
    )
