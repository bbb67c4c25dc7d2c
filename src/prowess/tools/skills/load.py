"""skill_load takes a skill into use and puts its instructions into view.

The stored result is a stub, `loaded: NAME`. Its data says which texts belong to it: `show` lists the texts to put into
view ("" is the body, any other name is a doc), and `above` lists the texts that were in view before. If those are gone
later, the model is told `stub` instead. A missing doc adds a line to the result and is no failure.

Instructions that are in view are not shown again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from prowess.core.ports import CallGrant
from prowess.core.values import Outcome, Spawn
from prowess.errors import ResourceNotFound, SkillNotFound
from prowess.skills.skill import Entry
from prowess.tools.builtin import late_spec
from prowess.tools.plain_arguments import LoadRequest, read_load
from prowess.tools.session_work import LoadedSkill
from prowess.tools.skills.loaded import LoadedSkills, ShelfTool, body_ref, describe, docs_text, shown_name, shown_names
from prowess.tools.skills.state import ALL

MOST_NAMED = 30


def _itself(loaded: LoadedSkill) -> tuple[str, ...]:
    """Names in `docs` that are no doc: "*", or the skill itself, because small models repeat its name there."""
    entry = loaded.skill.entry
    return (ALL, "", entry.name, entry.qualified, entry.id, entry.file)


INLINE = "It asks to be run by a child agent, which is not possible here: it is loaded into this conversation."


class SkillLoad(ShelfTool):
    spec = late_spec(
        "skill_load",
        "Load a skill's instructions, and docs of it by name.",
        "LoadArguments",
        fields=("skill", "docs", "include_all_docs"),
    )

    def __init__(self, shelf: LoadedSkills) -> None:
        super().__init__(shelf)
        self._turn = asyncio.Lock()  # one at a time: each load counts the skills that others have loaded

    def normalise(self, args: Mapping[str, Any]) -> dict[str, Any]:
        return read_load(args)

    async def call(self, args: Mapping[str, Any], within: CallGrant) -> Outcome | Spawn:
        wanted = read_load(args).parsed
        async with self._turn:
            return await self._load(wanted, within)

    async def _load(self, wanted: LoadRequest, within: CallGrant) -> Outcome | Spawn:
        shelf = self._shelf
        library = shelf.library
        try:
            entry = library.find(wanted.skill, wanted.source)
            if self._is_for_child(entry, within):
                return Spawn(skill=entry.id, request=wanted.arguments or "")
            if within.trigger == "model":
                refused = self._too_many(entry)
                if refused is not None:
                    return refused
            known = dict(shelf.work.known)
            used = set(shelf.work.loaded)
            loaded = await library.activate(wanted.skill, wanted.source, within.trigger, wanted.reason)
        except SkillNotFound as error:
            if error.code != "skill-not-found":  # the error itself says that the skill was removed or is ambiguous
                raise
            return self._not_found(wanted.skill, error)
        id = loaded.skill.entry.id
        before = known.get(id)
        changed = before is not None and before.skill.digest != loaded.skill.digest
        in_use = id in used and shelf.is_loaded(loaded)
        return await self._outcome(loaded, wanted, within, changed=changed, in_use=in_use)

    def _is_for_child(self, entry: Entry, within: CallGrant) -> bool:
        """True if a child run loads the skill. None starts for a skill that the caller may not load: loading it here
        gives the reason."""
        if entry.controls.run_mode != "subagent" or not within.can_spawn:
            return False
        return within.trigger != "model" or entry.name in self._shelf.library.names()

    async def _outcome(
        self,
        loaded: LoadedSkill,
        wanted: LoadRequest,
        within: CallGrant,
        *,
        changed: bool,
        in_use: bool,
    ) -> Outcome:
        shelf = self._shelf
        skill = loaded.skill
        name = shown_name(skill.name)
        added, missing = self._choose(loaded, wanted.docs)
        all_docs = wanted.include_all_docs or ALL in wanted.docs or shelf.is_all(loaded)
        docs = list(skill.docs)
        if not all_docs:
            docs = list(dict.fromkeys([*shelf.selected(loaded), *added]))
        seen = shelf.in_view(body_ref(loaded))
        show = shelf.unseen(loaded, docs)
        if not seen:
            show.insert(0, "")
            if within.trigger == "model":
                shelf.bodies.append(skill.name)
        content = _loaded_text(name, seen=seen, changed=changed, in_use=in_use)
        delta = shelf.delta_loaded(loaded)
        if docs or shelf.has_selection(loaded):
            delta |= shelf.delta_docs(loaded, docs, all=all_docs)
        data = describe(skill)
        data["show"] = show
        data["docs"] = docs
        if seen:
            data["above"] = [""]
            data["stub"] = f"loaded: {name}"
        if docs:
            content += f"; docs: {shown_names(docs)}"
        evicted = await self._evict(loaded, delta)
        if evicted:
            names = [each.skill.name for each in evicted]
            content += f"; unloaded to make room: {shown_names(names)}"
            data["unloaded"] = [each.skill.entry.id for each in evicted]
        if wanted.arguments:
            data["arguments"] = wanted.arguments
        if skill.entry.controls.run_mode == "subagent" and within.trigger != "nested":
            content += f"\n{INLINE}"
            data["warnings"] = [INLINE]
        if missing:
            content += f"\n{name} has no doc {shown_names(missing)}. {docs_text(skill, missing)}"
            data["missing_docs"] = missing
        return Outcome(status="ok", content=content, data=data, state_delta=delta)

    def _choose(self, loaded: LoadedSkill, docs: Sequence[str]) -> tuple[list[str], list[str]]:
        """Returns the chosen docs, and the names that match no doc."""
        chosen: list[str] = []
        missing: list[str] = []
        for doc in docs:
            if doc in _itself(loaded):
                continue
            try:
                chosen += self._shelf.choose(loaded, [doc])
            except ResourceNotFound:
                missing.append(doc)
        return chosen, missing

    async def _evict(self, loaded: LoadedSkill, delta: dict[str, Any]) -> list[LoadedSkill]:
        """Unloads the least recently used skills until at most `max_loaded` are in use."""
        shelf = self._shelf
        most = shelf.max_loaded
        if most is None:
            return []
        kept = loaded.skill.entry.id
        others = [each for id, each in shelf.work.loaded.items() if id != kept]
        too_many = len(others) + 1 - max(1, most)
        evicted = others[: max(0, too_many)]
        for each in evicted:
            delta |= await shelf.drop(each, f"evicted: at most {most} skills in use")
        return evicted

    def _too_many(self, entry: Entry) -> Outcome | None:
        """Refuses a load that exceeds `max_bodies_per_turn`. A body that is already in view does not count."""
        shelf = self._shelf
        most = shelf.max_bodies_per_turn
        if len(shelf.bodies) < most:
            return None
        known = shelf.work.known.get(entry.id)
        if known is not None and shelf.in_view(body_ref(known)):
            return None
        content = f"At most {most} skills can be loaded in one turn."
        first = f"Loaded in this turn: {shown_names(shelf.bodies)}. Follow them first"
        hint = f"{first}, and load {shown_name(entry.name)} in the next turn if it is still needed."
        return Outcome(status="failed", code="too-many-bodies", content=content, hint=hint)

    def _not_found(self, ref: str, error: SkillNotFound) -> Outcome:
        """Outcome for an unknown skill. Lists similar names, or all names, of skills that the model may load."""
        failure = "skill-not-found"
        names = list(self._shelf.library.names())
        message = f"No skill '{shown_name(ref[:100])}'."
        if not names:
            return Outcome(status="failed", code=failure, content=f"{message} No skills are installed.")
        near = [name for name in error.near if name in names]
        if near:
            meant = f"Did you mean: {shown_names(near)}?"
        elif len(names) <= MOST_NAMED:
            meant = f"There are: {shown_names(names, MOST_NAMED)}."
        else:
            meant = f"There are {len(names)} others: skill_search finds them."
        hint = "Load one of them, or answer without a skill."
        return Outcome(status="failed", code=failure, content=f"{message} {meant}", hint=hint, data={"near": near})


def _loaded_text(name: str, *, seen: bool, changed: bool, in_use: bool) -> str:
    """First line of the outcome. `seen`: the instructions are in view already."""
    if seen and changed:
        return f"loaded: {name} (its content is as it was before: follow the older instructions above)"
    if seen and in_use:
        return f"{name} is already loaded: its instructions are above."
    if seen:
        return f"loaded: {name} (its instructions are above: follow them again)"
    if changed:
        return f"loaded: {name} (its content changed since it was loaded before)"
    return f"loaded: {name}"
