"""Loads, finds and unloads the skills of a run, with their secrets and their record."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prowess.agent.call_policy import declared_env
from prowess.agent.prompt import SkillOffer
from prowess.agent.recorder import EventWriter, SessionSecrets
from prowess.agent.toolkit_options import SkillAccess
from prowess.core.events import SkillLoaded, SkillUnloaded
from prowess.core.values import Trigger
from prowess.errors import ConfigError, ProwessError, SkillError
from prowess.policy.rules import Rules
from prowess.skills.skill import Entry, Skill
from prowess.tools.session_work import LoadedSkill, SessionWork


class LoadedContents:
    """Contents of all skills that were in use in a run, each pinned by its digest."""

    def __init__(self, skills: SkillAccess, work: SessionWork, rules: Callable[[], Sequence[Rules]]) -> None:
        self._skills = skills
        self._work = work
        self._rules = rules
        self._found: dict[tuple[str, str], LoadedSkill] = {}

    def add(self, loaded: LoadedSkill) -> None:
        skill = loaded.skill
        self._found[skill.entry.id, skill.digest] = loaded

    def find(self, id: str, digest: str) -> LoadedSkill | None:
        """Finds a skill with exactly that content: from this run, or published before. None if policy denies it now."""
        for rules in self._rules():
            if digest in rules.denied_digests:
                return None
        found = self._found.get((id, digest))
        if found is not None:
            return found
        skill = self._skills.pinned(id, digest)
        if skill is None:
            return None
        restored = self._work.restore(skill)
        self._found[id, digest] = restored
        return restored


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
        self._skills = skills
        self._work = work
        self._contents = contents
        self._offer = offer
        self._record = record
        self._secrets = secrets
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
        for name in self._secrets.unredacted:
            self._record.note_problem(f"The secret '{name}' is too short to be hidden from what is shown and recorded.")
        loaded = await self._work.load(skill)
        self._contents.add(loaded)
        id = skill.entry.id
        event = SkillLoaded(
            id=id,
            name=skill.name,
            digest=skill.digest,
            trigger=trigger,
            rank=self._ranks.get(id),
            reason=reason,
        )
        await self._record.append(event)
        return loaded

    async def record_unloaded(self, loaded: LoadedSkill, reason: str) -> None:
        id = loaded.skill.entry.id
        event = SkillUnloaded(id=id, reason=reason)
        await self._record.append(event)

    def find(self, ref: str, source: str | None) -> Entry:
        try:
            return self._skills.catalog().get(ref, source=source)
        except ProwessError as error:
            self.error = error
            raise

    def find_id_at(self, path: str) -> str | None:
        """Finds the id of the skill whose SKILL.md is at this path."""
        for entry in self._skills.catalog():
            if entry.location == path:
                return entry.id
        return None

    def find_name(self, text: str) -> str | None:
        """Finds the skill that a text names, if a model may load it."""
        name = text.strip()
        catalog = self._skills.catalog()
        entry = catalog.find(name)
        if entry is None or entry.id in self._hidden():
            return None
        return name

    def names(self) -> list[str]:
        """Names of the skills that a model may load."""
        hidden = self._hidden()
        return [entry.name for entry in self._skills.catalog() if entry.id not in hidden]

    def search(self, query: str, limit: int) -> Sequence[tuple[Entry, float]]:
        hidden = self._hidden()
        found = [hit for hit in self._skills.search(query, limit) if hit[0].id not in hidden]
        for rank, (entry, _) in enumerate(found, 1):
            self._ranks[entry.id] = rank
        return found

    def look(self, ref: str, trigger: Trigger) -> Skill | None:
        """Reads a skill without loading it. None if it does not exist or may not be loaded."""
        try:
            skill = self._skills.load(ref, None, trigger)
        except SkillError:
            return None
        if skill.entry.id in self._offer.plan.hidden:
            return None
        return skill

    def _hidden(self) -> Sequence[str]:
        """Ids of the skills that a model may not see. A policy that cannot be read is an error of the call itself."""
        try:
            return self._offer.plan.hidden
        except ConfigError:
            return self._skills.plan().hidden
