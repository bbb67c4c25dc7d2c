"""Finds what the model has to be told with the next request, such as a limit that is near.

A note says something new, once, and stays where it was told: in the last tool result, or else in the user message. What
was told is found in the conversation, so that a resumed run tells nothing twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from prowess._internal.text import one_line
from prowess.agent.budget import Budget
from prowess.agent.context.render import one_safe_line, render_note, render_plan
from prowess.agent.context.state import Noted, find_new_notes, find_notes
from prowess.agent.toolkit import Toolkit
from prowess.core.events import EpochStarted, ErrorRaised, Event, NoteAppended
from prowess.core.values import CatalogPlan
from prowess.errors import ProwessError
from prowess.skills.render import shown_names

HITS = "hits"
_MOST_HITS = 5
_LONGEST_QUERY = 1_000  # characters
_LONGEST_DESCRIPTION = 200
_MOST_NAMES = 10


class Notes:
    """Notes of one run."""

    def __init__(self, kit: Toolkit, budget: Budget) -> None:
        self._kit = kit
        self._talk = kit.conversation
        self._budget = budget
        self._said: list[tuple[str, str]] = []

    def say(self, text: str, kind: str = "note") -> None:
        """Adds a note to the next request."""
        self._said.append((kind, text))

    def find(self, epoch: EpochStarted | None) -> list[Event]:
        """Returns the events of all notes for the next request. `epoch`: it begins a new epoch."""
        place = self._talk.place
        events: list[Event] = []
        self._say_went()
        if epoch is not None:
            self._say_changes()
        if epoch is not None and epoch.why == "compacted":
            self._say_plan()
        try:
            self._say_hits()
        except ProwessError as error:  # the search is broken; the model can go on without its hits
            problem = ErrorRaised(code=str(error.code), message=error.message, hint=error.hint)
            events.append(problem)
        self._say_limits()
        last = self._talk.draft.lines.last
        if not self._said and last is not None and last.role == "assistant":
            self.say("Go on.")  # the run was resumed after its end
        return events + self._take(place)

    def _take(self, place: str) -> list[Event]:
        """Returns the events of all notes that were not told since the last reply."""
        told: set[tuple[str, str]] = set()
        for note in find_new_notes(self._talk.items):
            told.add((note.kind, note.text))
        events: list[Event] = []
        for kind, text in self._said:
            shown = render_note(text)
            if (kind, shown) not in told:
                event = NoteAppended(kind=kind, text=shown, call_id=place)
                events.append(event)
        self._said = []
        return events

    def _say_went(self) -> None:
        """Says which skills the model can no longer follow."""
        went = self._talk.went
        for id in went.shown_once():
            name = _name(id)
            self.say(f"{name} was shown once. Load it again if you need it.", "skill")
        for id in went.others():
            name = _name(id)
            self.say(f"{name} was unloaded. Do not follow it any more.", "skill")

    def _say_changes(self) -> None:
        """Says which skills and tools came or went since the epoch before."""
        before = self._talk.catalog
        if before is None:
            return
        tools = [tool.name for tool in self._talk.draft.tools]
        texts = _render_changes("Skills", _listed(before), _listed(self._kit.plan))
        texts += _render_changes("Tools", tools, self._kit.offered_names())
        if texts:
            text = " ".join(texts)
            self.say(text, "catalog")

    def _say_plan(self) -> None:
        """Says the plan, which is far above now, unless it was told and did not change since."""
        plan = self._talk.plan
        if plan is None:
            return
        text = render_plan(plan)
        told = ""
        for note in self._notes():
            if note.kind == "plan":
                told = note.text
        if told != render_note(text):
            self.say(text, "plan")

    def _say_hits(self) -> None:
        """Says which skills search finds for a new request, if the catalog does not show all. Not if somebody chose
        one."""
        talk = self._talk
        is_new = not talk.spent.turns and not talk.loads
        if not is_new or HITS in self._kinds() or not self._kit.plan.searchable:
            return
        words = talk.task[:_LONGEST_QUERY].split()
        query = " ".join(words)
        hits = self._kit.search(query, _MOST_HITS) if query else ()
        if not hits:
            return
        entries = [entry for entry, _ in hits]
        names = shown_names(self._kit.skills.catalog(), entries)
        lines = ["Skills that may fit this request. Load one if it does:"]
        for entry in entries:
            name, _ = names[entry.id]
            description = one_line(entry.description, _LONGEST_DESCRIPTION)
            line = one_safe_line(f"{name}: {description}")
            lines.append(f"- {line}")
        text = "\n".join(lines)
        self.say(text, HITS)

    def _say_limits(self) -> None:
        """Says which limits are near, each once in a request."""
        told = self._kinds()
        warnings = self._budget.warnings(can_run=self._kit.style.can_run)
        for kind, text in warnings.items():
            if kind not in told:
                self.say(text, kind)

    def _notes(self) -> list[Noted]:
        """Notes that the current request has."""
        talk = self._talk
        return find_notes(talk.items, talk.number)

    def _kinds(self) -> set[str]:
        return {note.kind for note in self._notes()}


def _name(id: str) -> str:
    """Name of a skill as the catalog shows it."""
    _, _, name = id.partition(":")
    return one_safe_line(name)


def _listed(plan: CatalogPlan) -> list[str]:
    ids = (*plan.shown, *plan.name_only, *plan.searchable)
    return list(map(_name, ids))


def _render_changes(what: str, before: Sequence[str], after: Sequence[str]) -> list[str]:
    texts: list[str] = []
    new = _without(after, before)
    gone = _without(before, after)
    if new:
        texts.append(f"{what} new: {new}.")
    if gone:
        texts.append(f"{what} gone: {gone}.")
    return texts


def _without(names: Sequence[str], others: Sequence[str]) -> str:
    """Some of the names that are not among the others, as text."""
    known = set(others)
    found = [name for name in names if name not in known]
    return ", ".join(found[:_MOST_NAMES])
