"""The skills in use, the docs that are selected of each, and what of them the model can see now.

What is selected is in the session's state, under the keys of `skill_state`. A tool reads the state and returns what
should change in it. What is in view is never concluded from it: that is always asked of the request as it is now.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from prowess.core.findings import visible
from prowess.core.ports import CallGrant
from prowess.core.values import Outcome, Trigger
from prowess.errors import ResourceNotFound, SkillError
from prowess.skills.load import select_docs
from prowess.skills.render import neutralise
from prowess.skills.skill import Entry, Skill
from prowess.tools.base import PlainTool
from prowess.tools.session_work import LoadedSkill, SessionWork
from prowess.tools.skills.state import ALL, DOCS_KEY, LOADED_KEY, parse_docs, part_ref, render_docs

_MAX_NAMES = 20
_MAX_NAME = 200
_MAX_HINT = 2000

Activate = Callable[[str, str | None, Trigger, str | None], Awaitable[LoadedSkill]]


def body_ref(loaded: LoadedSkill) -> str:
    return part_ref(loaded.skill.entry.id, loaded.skill.digest)


def doc_ref(loaded: LoadedSkill, doc: str) -> str:
    return part_ref(loaded.skill.entry.id, loaded.skill.digest, doc)


class LoadedSkills:
    """`activate` loads a skill with everything that belongs to it, `find` only says which one is meant, `unloaded`
    writes down that one is gone, `search` ranks what the model may see, `names` are those it may load. `look` reads a
    skill that may be loaded, and leaves it as it is; `load_first` makes a call of skill_load, decided as any other."""

    def __init__(
        self,
        work: SessionWork,
        *,
        activate: Activate,
        find: Callable[[str, str | None], Entry],
        unloaded: Callable[[LoadedSkill, str], Awaitable[None]],
        search: Callable[[str, int], Sequence[tuple[Entry, float]]],
        names: Callable[[], Sequence[str]],
        look: Callable[[str, Trigger], Skill | None],
        load_first: Callable[[Mapping[str, Any], CallGrant], Awaitable[Outcome]],
        max_loaded: int | None = None,
        max_bodies_per_turn: int = 2,
    ) -> None:
        self.work = work
        self.activate, self.find, self.search, self.names = activate, find, search, names
        self.look, self.load_first = look, load_first
        self.max_loaded = max_loaded
        self.max_bodies_per_turn = max_bodies_per_turn
        self.state: dict[str, Any] = {}
        self.in_view: Callable[[str], bool] = lambda ref: False
        self.bodies: list[str] = []  # what the model loaded in this turn
        self._unloaded = unloaded

    def new_turn(self) -> None:
        self.bodies.clear()

    def key(self, loaded: LoadedSkill) -> str:
        """Its name; of several skills of one name, only the first that was loaded has it, and the others their ids."""
        name, id = loaded.skill.name, loaded.skill.entry.id
        first = next((other for other, each in self.work.known.items() if each.skill.name == name), id)
        return name if first == id else id

    def find_loaded(self, ref: str) -> LoadedSkill | None:
        """The skill in use that is meant; None when it has to be loaded first."""
        try:
            return self.work.get(ref)
        except SkillError as error:
            if error.code != "skill-not-loaded":
                raise
            return None

    # --- docs ---------------------------------------------------------------------------------------------------------

    def choose(self, loaded: LoadedSkill, docs: Iterable[str]) -> list[str]:
        """The docs that names and patterns mean. What means none is an error that lists the real ones."""
        chosen: list[str] = []
        for given in docs:
            doc = given.removeprefix("./")
            try:
                found = [doc] if doc in loaded.skill.docs else select_docs(loaded.skill, [doc])
            except ResourceNotFound as error:
                hint = error.hint or ""
                short = hint if len(hint) <= _MAX_HINT else f"{hint[:_MAX_HINT]} …"
                raise ResourceNotFound(error.message, code=str(error.code), hint=visible(short)) from None
            chosen += [each for each in found if each not in chosen]
        return chosen

    def is_loaded(self, loaded: LoadedSkill) -> bool:
        return LOADED_KEY + self.key(loaded) in self.state

    def has_selection(self, loaded: LoadedSkill) -> bool:
        return DOCS_KEY + self.key(loaded) in self.state

    def is_all(self, loaded: LoadedSkill) -> bool:
        return self.state.get(DOCS_KEY + self.key(loaded)) == ALL

    def selected(self, loaded: LoadedSkill) -> list[str]:
        """As the state says; a doc that the skill does not have any more is not among them."""
        named = parse_docs(self.state.get(DOCS_KEY + self.key(loaded)))
        if named is None:
            return list(loaded.skill.docs)
        real = set(loaded.skill.docs)
        return [doc for doc in dict.fromkeys(named) if doc in real]

    def unseen(self, loaded: LoadedSkill, docs: Iterable[str]) -> list[str]:
        return [doc for doc in docs if not self.in_view(doc_ref(loaded, doc))]

    # --- what should change in the state ------------------------------------------------------------------------------

    def delta_loaded(self, loaded: LoadedSkill) -> dict[str, Any]:
        return {LOADED_KEY + self.key(loaded): "1"}

    def delta_docs(self, loaded: LoadedSkill, docs: Sequence[str], *, all: bool = False) -> dict[str, Any]:
        """Nothing selected removes the key."""
        return {DOCS_KEY + self.key(loaded): ALL if all else render_docs(docs)}

    async def drop(self, loaded: LoadedSkill, reason: str) -> dict[str, Any]:
        """It is no longer in use, and that is written down."""
        self.work.unload(loaded.skill.entry.id)
        await self._unloaded(loaded, reason)
        return {LOADED_KEY + self.key(loaded): None, **self.delta_docs(loaded, ())}


class ShelfTool(PlainTool):
    """A tool of knowledge."""

    def __init__(self, shelf: LoadedSkills) -> None:
        self._shelf = shelf


def describe(skill: Skill) -> dict[str, Any]:
    """What every outcome about a skill has among its data."""
    return {"skill": skill.entry.id, "name": skill.name, "digest": skill.digest}


def shown_name(name: str) -> str:
    """A name that somebody else gave, on one short line and without our tags."""
    return neutralise(visible(name if len(name) <= _MAX_NAME else f"{name[:_MAX_NAME]}…"))


def shown_names(names: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    more = len(names) - _MAX_NAMES
    listed = ", ".join(map(shown_name, names[:_MAX_NAMES]))
    return f"{listed} and {more} more" if more > 0 else listed
