"""Finds, loads and unloads the skills of a run, with their secrets and their record.

A skill can be activated without a tool call: named in the user's text, by the caller, or by a file name. `/name
arguments` at the start of a request activates a skill with arguments; `$name` anywhere activates a skill without
arguments. A skill with `paths` is activated when a matching file is given, read, written or created.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from prowess.agent.agent import SkillRequest
from prowess.agent.call_policy import declared_env
from prowess.agent.prompt import SkillOffer
from prowess.agent.recorder import EventWriter, SessionSecrets
from prowess.agent.toolkit_options import SkillAccess
from prowess.core.events import SkillLoaded, SkillUnloaded
from prowess.core.values import Outcome, ToolCall, Trigger
from prowess.errors import ProwessError, SkillError
from prowess.policy.globs import match_path
from prowess.policy.rules import Rules
from prowess.skills.catalog import Catalog
from prowess.skills.skill import Entry, Skill
from prowess.skills.spelling import near_names
from prowess.tools.session_work import LoadedSkill, SessionWork

_SLASH = re.compile(r"/(?P<name>[\w:-]+(?:/[\w:-]+)?)(?:\s+(?P<rest>.*))?", re.DOTALL)
_DOLLAR = re.compile(r"(?<![\w$\\])\$(?P<name>[a-z][a-z0-9]*(?:[-:/][a-z0-9]+)*)(?![\w(])")
_ARGUMENTS = ("file_name", "path", "script")
_PLACES = ("work/inputs/", "inputs/", "work/", "out/")


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


class LoadedContents:
    """Contents of all skills that were in use in a run, each pinned by its digest."""

    def __init__(self, skills: SkillAccess, work: SessionWork, rules: Callable[[], Sequence[Rules]]) -> None:
        self._skills, self._work, self._rules = skills, work, rules
        self._found: dict[tuple[str, str], LoadedSkill] = {}

    def add(self, loaded: LoadedSkill) -> None:
        self._found[loaded.skill.entry.id, loaded.skill.digest] = loaded

    def find(self, id: str, digest: str) -> LoadedSkill | None:
        """Finds a skill with exactly that content: from this run, or published before. None if policy denies it now."""
        if any(digest in rules.denied_digests for rules in self._rules()):
            return None
        found = self._found.get((id, digest))
        if found is None:
            skill = self._skills.pinned(id, digest)
            if skill is not None:
                found = self._found[id, digest] = self._work.restore(skill)
        return found


class SkillLoader:
    """Library of skills as the tools of a run see it. See `tools.skills.loaded.SkillLibrary`."""

    def __init__(
        self,
        skills: SkillAccess,
        work: SessionWork,
        contents: LoadedContents,
        offer: SkillOffer,
        record: EventWriter,
        secrets: SessionSecrets,
    ) -> None:
        self.error: ProwessError | None = None  # error of the last activation
        self._skills, self._work, self._contents, self._offer = skills, work, contents, offer
        self._record, self._secrets = record, secrets
        self._ranks: dict[str, int] = {}  # id -> rank in the search that last found it

    def forget_error(self) -> None:
        self.error = None

    async def activate(self, ref: str, source: str | None, trigger: Trigger, reason: str | None) -> LoadedSkill:
        try:
            skill = self._skills.load(ref, source, trigger)
            await self._secrets.learn(declared_env(skill))
        except ProwessError as error:
            self.error = error
            raise
        loaded = await self._work.load(skill)
        self._contents.add(loaded)
        id, rank = skill.entry.id, self._ranks.get(skill.entry.id)
        await self._record.append(
            SkillLoaded(id=id, name=skill.name, digest=skill.digest, trigger=trigger, rank=rank, reason=reason)
        )
        return loaded

    async def record_unloaded(self, loaded: LoadedSkill, reason: str) -> None:
        await self._record.append(SkillUnloaded(id=loaded.skill.entry.id, reason=reason))

    def find(self, ref: str, source: str | None) -> Entry:
        try:
            return self._skills.catalog().get(ref, source=source)
        except ProwessError as error:
            self.error = error
            raise

    def find_id_at(self, path: str) -> str | None:
        """Finds the id of the skill whose SKILL.md is at this path."""
        return next((entry.id for entry in self._skills.catalog() if entry.location == path), None)

    def find_name(self, text: str) -> str | None:
        """Finds the skill that a text names, if a model may load it."""
        name, catalog = text.strip(), self._skills.catalog()
        entry = catalog.find(name)
        return name if entry is not None and catalog.visibility(entry).model_visible else None

    def names(self) -> list[str]:
        """Names of the skills that a model may load."""
        catalog = self._skills.catalog()
        return [entry.name for entry in catalog if catalog.visibility(entry).model_visible]

    def search(self, query: str, limit: int) -> Sequence[tuple[Entry, float]]:
        found = self._skills.search(query, limit)
        self._ranks.update({entry.id: rank for rank, (entry, _) in enumerate(found, 1)})
        return found

    def look(self, ref: str, trigger: Trigger) -> Skill | None:
        """Reads a skill without loading it. None if it does not exist or may not be loaded."""
        try:
            skill = self._skills.load(ref, None, trigger)
        except SkillError:
            return None
        return None if skill.entry.id in self._offer.plan.hidden else skill
