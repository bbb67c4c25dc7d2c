"""Loads, finds and unloads the skills of a run, with their secrets and their record."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prowess.agent.call_policy import declared_env
from prowess.agent.prompt import SkillOffer
from prowess.agent.recorder import EventWriter, SessionSecrets
from prowess.agent.toolkit_options import SkillAccess
from prowess.core.events import SkillLoaded, SkillUnloaded
from prowess.core.values import Trigger
from prowess.errors import ProwessError, SkillError
from prowess.policy.rules import Rules
from prowess.skills.skill import Entry, Skill
from prowess.tools.session_work import LoadedSkill, SessionWork


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
