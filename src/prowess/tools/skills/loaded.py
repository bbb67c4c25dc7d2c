"""Tracks the skills in use, their selected docs, and the texts that the model can see now.

The selection is in the session state, under the keys of `tools.skills.state`. A tool reads the state and returns a
delta for it. The state does not say which texts are in view: `in_view` always asks the current request.
"""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

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

LoadFirst = Callable[[Mapping[str, Any], CallGrant], Awaitable[Outcome]]


class SkillLibrary(Protocol):
    """Skills that the tools of a run can load, find and search."""

    async def activate(self, ref: str, source: str | None, trigger: Trigger, reason: str | None) -> LoadedSkill:
        """Loads a skill with its secrets and its record."""
        ...

    async def record_unloaded(self, loaded: LoadedSkill, reason: str) -> None: ...

    def find(self, ref: str, source: str | None) -> Entry:
        """Returns the catalog entry of a skill."""
        ...

    def search(self, query: str, limit: int) -> Sequence[tuple[Entry, float]]:
        """Ranks the skills that the model may see."""
        ...

    def names(self) -> Sequence[str]:
        """Lists the skills that the model may load."""
        ...

    def look(self, ref: str, trigger: Trigger) -> Skill | None:
        """Reads a skill without loading it."""
        ...


def body_ref(loaded: LoadedSkill) -> str:
    skill = loaded.skill
    return part_ref(skill.entry.id, skill.digest)


def doc_ref(loaded: LoadedSkill, doc: str) -> str:
    skill = loaded.skill
    return part_ref(skill.entry.id, skill.digest, doc)


class LoadedSkills:
    """Skills in use. `load_first` makes a call of skill_load, which policy decides like any other."""

    def __init__(
        self,
        work: SessionWork,
        library: SkillLibrary,
        *,
        load_first: LoadFirst,
        max_loaded: int | None = None,
        max_bodies_per_turn: int = 2,
        state: dict[str, Any] | None = None,
    ) -> None:
        self.work = work
        self.library = library
        self.load_first = load_first
        self.max_loaded = max_loaded
        self.max_bodies_per_turn = max_bodies_per_turn
        self.state: dict[str, Any] = {} if state is None else state
        self.in_view: Callable[[str], bool] = lambda ref: False
        self.bodies: list[str] = []  # skills that the model loaded in this turn

    def start_run(self, in_view: Callable[[str], bool]) -> None:
        """Begins a run of our own loop, whose request shows which texts are in view."""
        self.in_view = in_view
        self.new_turn()

    def new_turn(self) -> None:
        self.bodies.clear()

    def key(self, loaded: LoadedSkill) -> str:
        """Key of a skill in the state: its name. Of several skills with one name, only the first loaded has it."""
        name = loaded.skill.name
        id = loaded.skill.entry.id
        for other, each in self.work.known.items():
            if each.skill.name == name:
                return name if other == id else id
        return name

    def find_loaded(self, ref: str) -> LoadedSkill | None:
        """Finds a skill in use. None if it is not loaded."""
        try:
            return self.work.get(ref)
        except SkillError as error:
            if error.code != "skill-not-loaded":
                raise
            return None

    def look(self, ref: str, loaded: LoadedSkill | None, within: CallGrant) -> Skill | None:
        """Returns the skill as it was loaded, or reads it without loading it."""
        if loaded is not None:
            return loaded.skill
        return self.library.look(ref, within.trigger)

    # --- docs ---------------------------------------------------------------------------------------------------------

    def choose(self, loaded: LoadedSkill, docs: Iterable[str]) -> list[str]:
        """Returns the docs that match the names and patterns. If a name matches none, the error lists all docs."""
        chosen: dict[str, None] = {}  # each once, in order
        for given in docs:
            doc = find_path(loaded.skill.docs, given)
            if doc in loaded.skill.docs:
                chosen[doc] = None
                continue
            try:
                found = select_docs(loaded.skill, [doc])
            except ResourceNotFound as error:
                hint = error.hint or ""
                if len(hint) > _MAX_HINT:
                    hint = f"{hint[:_MAX_HINT]} …"
                raise ResourceNotFound(error.message, code=str(error.code), hint=visible(hint)) from None
            chosen |= dict.fromkeys(found)
        return list(chosen)

    def _loaded_key(self, loaded: LoadedSkill) -> str:
        return LOADED_KEY + self.key(loaded)

    def _docs_key(self, loaded: LoadedSkill) -> str:
        return DOCS_KEY + self.key(loaded)

    def is_loaded(self, loaded: LoadedSkill) -> bool:
        return self._loaded_key(loaded) in self.state

    def has_selection(self, loaded: LoadedSkill) -> bool:
        return self._docs_key(loaded) in self.state

    def is_all(self, loaded: LoadedSkill) -> bool:
        """True if all docs are selected, also those that the skill gets later."""
        selection = self.state.get(self._docs_key(loaded))
        return selection == ALL

    def selected(self, loaded: LoadedSkill) -> list[str]:
        """Selected docs from the state, without docs that the skill no longer has."""
        selection = self.state.get(self._docs_key(loaded))
        named = parse_docs(selection)
        if named is None:
            return list(loaded.skill.docs)
        real = set(loaded.skill.docs)
        return [doc for doc in dict.fromkeys(named) if doc in real]

    def unseen(self, loaded: LoadedSkill, docs: Iterable[str]) -> list[str]:
        """Docs that are not in view."""
        unseen: list[str] = []
        for doc in docs:
            if not self.in_view(doc_ref(loaded, doc)):
                unseen.append(doc)
        return unseen

    # --- state deltas -------------------------------------------------------------------------------------------------

    def delta_loaded(self, loaded: LoadedSkill) -> dict[str, Any]:
        key = self._loaded_key(loaded)
        return {key: "1"}

    def delta_docs(self, loaded: LoadedSkill, docs: Sequence[str], *, all: bool = False) -> dict[str, Any]:
        """Delta for the selected docs. An empty selection removes the key."""
        key = self._docs_key(loaded)
        if all:
            return {key: ALL}
        return {key: render_docs(docs)}

    async def drop(self, loaded: LoadedSkill, reason: str) -> dict[str, Any]:
        """Unloads a skill, records that, and returns the state delta."""
        self.work.unload(loaded.skill.entry.id)
        await self.library.record_unloaded(loaded, reason)
        delta = self.delta_docs(loaded, ())
        key = self._loaded_key(loaded)
        return {key: None, **delta}


class ShelfTool(PlainTool):
    """Base of the tools that work on the loaded skills."""

    def __init__(self, shelf: LoadedSkills) -> None:
        self._shelf = shelf


def find_path(paths: Sequence[str], path: str) -> str:
    """Returns the only one of these paths that has the name of `path`, if `path` is none of them. Else `path`. A path
    that leads elsewhere, or to a SKILL.md, means no other file."""
    path = path.removeprefix("./")
    leads_out = path.startswith(("/", "~")) or ".." in path.split("/")
    if path in paths or leads_out or _base(path) == "skill.md":
        return path
    named = [each for each in paths if _base(each) == _base(path)]
    return named[0] if len(named) == 1 else path


def _base(path: str) -> str:
    _, _, name = path.rpartition("/")
    return name.casefold()


def describe(skill: Skill) -> dict[str, Any]:
    """Data that every outcome about a skill contains."""
    return {"skill": skill.entry.id, "name": skill.name, "digest": skill.digest}


def shown_name(name: str) -> str:
    """Foreign name made safe to show: one short line, without our tags."""
    if len(name) > _MAX_NAME:
        name = f"{name[:_MAX_NAME]}…"
    return neutralise(visible(name))


def shown_names(names: Sequence[str], most: int = _MAX_NAMES) -> str:
    """First names of the list, and the number of the others."""
    first = names[:most]
    listed = ", ".join(map(shown_name, first))
    more = len(names) - len(first)
    if more:
        return f"{listed} and {more} more"
    return listed


def docs_text(skill: Skill, wanted: Sequence[str] = ()) -> str:
    """Sentence that names the docs of a skill: those with names near to the wanted ones, or all."""
    if not skill.docs:
        return "It has no docs."
    near: dict[str, None] = {}
    for name in wanted[:_MAX_NAMES]:
        near |= dict.fromkeys(difflib.get_close_matches(name[:_MAX_NAME], skill.docs, n=3))
    if near:
        return f"Did you mean: {shown_names(list(near))}?"
    return f"Its docs: {shown_names(skill.docs)}."
