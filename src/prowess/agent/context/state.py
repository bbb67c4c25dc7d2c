"""Defines what a conversation keeps: its items, the session state, approval questions, and the usage of a request."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from prowess.core.codec import from_json
from prowess.core.events import ApprovalAnswered, ApprovalAsked, CallDecided, SkillUnloaded
from prowess.core.values import USAGE_COUNTS, Outcome, Part, ToolCall, Usage, add_usage
from prowess.policy.decision import asked_isolated
from prowess.tools.skills.state import DOCS_KEY, LOADED_KEY, parse_docs


class Asked(NamedTuple):
    """Request of the user."""

    request: int
    parts: tuple[Part, ...]


class Replied(NamedTuple):
    """Reply of the model."""

    request: int
    text: str
    calls: tuple[ToolCall, ...]
    final: bool = False  # the model's final answer
    ours: bool = False  # text of Prowess at the end of a run, not of the model


class AnsweredCall(NamedTuple):
    """Outcome of a call. If the model did not make the call, it is shown as context, not as a tool result."""

    request: int
    call_id: str
    outcome: Outcome
    own: bool  # the model made the call


class Noted(NamedTuple):
    """Note of the runtime."""

    request: int
    kind: str
    text: str
    stays: bool = True  # False for a note of an older record, which went with its epoch


Item = Asked | Replied | AnsweredCall | Noted


def find_task(items: Sequence[Item]) -> str:
    """Text of the last request, without texts that were added to it."""
    for item in reversed(items):
        if isinstance(item, Asked):
            texts = [part.text or "" for part in item.parts if part.ref is None]
            return "\n".join(texts)
    return ""


def find_last_text(items: Sequence[Item], request: int) -> str:
    """Last text of the model for a request."""
    for item in reversed(items):
        if not isinstance(item, Replied) or item.ours:
            continue
        if item.text and item.request == request:
            return item.text
    return ""


def find_answer(items: Sequence[Item]) -> str | None:
    """Final answer of the model, if it is the last item, apart from outcomes of code in that answer, and from notes
    for the request that asks for it again. A note of kind "note" says that the model has to go on."""
    for item in reversed(items):
        if isinstance(item, AnsweredCall) and not item.own:
            continue
        if isinstance(item, Noted) and item.kind != "note":
            continue
        if isinstance(item, Replied) and item.final:
            return item.text
        return None
    return None


def find_outcomes(items: Sequence[Item], request: int) -> list[AnsweredCall]:
    """Answered calls of a request, in order."""
    found: list[AnsweredCall] = []
    for item in items:
        if isinstance(item, AnsweredCall) and item.request == request:
            found.append(item)
    return found


def find_place(items: Sequence[Item]) -> str:
    """Call whose result gets the next note: the last one since the last reply. "" if there is none."""
    for item in reversed(items):
        if isinstance(item, AnsweredCall) and item.own:
            return item.call_id
        if isinstance(item, Asked | Replied):
            return ""
    return ""


def find_result_place(items: Sequence[Item], call_id: str) -> int:
    """Index at which the result of a call belongs: after the other results of the same reply."""
    place = len(items)
    ids: set[str] = set()
    for index, item in enumerate(items):
        if isinstance(item, Replied):
            ids = {call.id for call in item.calls}
        if call_id not in ids:
            continue
        is_result = isinstance(item, AnsweredCall) and item.call_id in ids
        if is_result or isinstance(item, Replied):
            place = index + 1
    return place


def find_notes(items: Sequence[Item], request: int) -> list[Noted]:
    """Notes of a request, in order."""
    found: list[Noted] = []
    for item in items:
        if isinstance(item, Noted) and item.request == request:
            found.append(item)
    return found


def find_new_notes(items: Sequence[Item]) -> list[Noted]:
    """Notes since the last reply."""
    found: list[Noted] = []
    for item in reversed(items):
        if isinstance(item, Replied):
            break
        if isinstance(item, Noted):
            found.append(item)
    return found


def find_waiting(outcomes: Mapping[str, Outcome]) -> list[ToolCall]:
    """Calls that wait for a person, by outcomes of calls. For a call in a child run, the waiting calls of the child."""
    waiting: dict[str, Mapping[str, Any]] = {}
    for id, outcome in outcomes.items():
        if outcome.status == "waiting":
            waiting[id] = outcome.data
    found: list[ToolCall] = []
    for id, data in waiting.items():
        inner = data.get("waiting")
        call = data.get("call")
        if isinstance(inner, list):
            found += [from_json(ToolCall, each) for each in inner]
        elif isinstance(call, dict) and f"{id}-load" not in waiting:
            found.append(ToolCall(id=id, tool=call["tool"], args=call["args"]))
    return found


def find_tools(items: Sequence[Item]) -> dict[str, str]:
    """Tool of each call that the model made, by call id."""
    found: dict[str, str] = {}
    for item in items:
        if isinstance(item, Replied):
            for call in item.calls:
                found[call.id] = call.tool
    return found


class InUse(NamedTuple):
    id: str
    digest: str


class WantedText(NamedTuple):
    """Texts of a skill that belong into the next request."""

    body: bool
    docs: list[str] | None  # None means all docs


class State:
    """State of a session. None in a delta removes a key. Docs of a skill can be selected without its body."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self._means: dict[str, InUse] = {}  # by the name in the key

    @property
    def skills(self) -> dict[str, InUse]:
        """Loaded skills, by the name in their key."""
        found: dict[str, InUse] = {}
        for name, each in self._means.items():
            if f"{LOADED_KEY}{name}" in self.values:
                found[name] = each
        return found

    @property
    def ids(self) -> list[str]:
        """Ids of skills with a body or docs in use."""
        return [each.id for each in self._means.values()]

    def merge(self, delta: Mapping[str, Any], data: Mapping[str, Any]) -> None:
        """Applies a delta. `data` of the outcome has the id and digest of the skill that the keys mean."""
        id = data.get("skill")
        digest = data.get("digest")
        meant = InUse(id, digest) if isinstance(id, str) and isinstance(digest, str) else None
        for key, value in delta.items():
            if value is None:
                self.values.pop(key, None)
                continue
            self.values[key] = value
            name = _name_in(key)
            if name != key and meant is not None:
                self._means[name] = meant
        self._tidy()

    def unload(self, id: str) -> None:
        """Removes body and docs of a skill."""
        for name, each in self._means.items():
            if each.id == id:
                self.values.pop(f"{LOADED_KEY}{name}", None)
                self.values.pop(f"{DOCS_KEY}{name}", None)
        self._tidy()

    def clear_temporary(self) -> None:
        """Removes the values that last for one request."""
        temporary = [key for key in self.values if key.startswith("temp:")]
        for key in temporary:
            del self.values[key]  # in place, because tools share this dict
        self._tidy()

    def _tidy(self) -> None:
        """Forgets the meaning of names that no key has any more."""
        kept = set(map(_name_in, self.values))
        for name in list(self._means):
            if name not in kept:
                del self._means[name]

    def wanted(self) -> dict[InUse, WantedText]:
        """Texts of each skill in use that belong into the next request."""
        found: dict[InUse, WantedText] = {}
        for name, each in self._means.items():
            has_body = f"{LOADED_KEY}{name}" in self.values
            selected = self.values.get(f"{DOCS_KEY}{name}")
            docs = parse_docs(selected)
            found[each] = WantedText(has_body, docs)
        return found


def _name_in(key: str) -> str:
    """Name of the skill in a key of the state. Another key is returned as it is."""
    return key.removeprefix(LOADED_KEY).removeprefix(DOCS_KEY)


SHOWN_ONCE = "shown once"  # reason of an unload


class UnloadedSkills:
    """Ids of skills that were unloaded since the last reply, and that the model was not told of by a result."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._once: dict[str, None] = {}
        self._others: dict[str, None] = {}

    def add(self, event: SkillUnloaded) -> None:
        ids = self._once if event.reason == SHOWN_ONCE else self._others
        ids[event.id] = None

    def note_told(self, outcome: Outcome) -> None:
        """Notes the result of a call of the model, which says what it unloaded."""
        unloaded = outcome.data.get("unloaded")
        skill = outcome.data.get("skill")
        told = list(unloaded) if isinstance(unloaded, list) else []
        told.append(skill)
        for id in told:
            if isinstance(id, str):
                self._others.pop(id, None)

    def start_request(self) -> None:
        self._once = {}

    def clear(self) -> None:
        self._once = {}
        self._others = {}

    def shown_once(self) -> list[str]:
        """Ids of skills that were shown once, and not loaded again since."""
        return self._not_loaded(self._once)

    def others(self) -> list[str]:
        """Ids of the others that were not loaded again since."""
        return self._not_loaded(self._others)

    def _not_loaded(self, ids: Collection[str]) -> list[str]:
        if not ids:
            return []
        loaded = {each.id for each in self._state.skills.values()}
        return [id for id in ids if id not in loaded]


class ApprovalQuestions:
    def __init__(self) -> None:
        self._open: set[tuple[str, str]] = set()  # unanswered questions: call, capability
        self._isolated: dict[str, bool] = {}  # call -> isolated, from its last decision
        self._asked_isolated: dict[str, bool] = {}  # call -> isolated, when a person was asked
        self._answers: dict[tuple[str, str], ApprovalAnswered] = {}
        self._calls: dict[str, ToolCall] = {}  # call id -> the call that was last made under it

    def plan(self, call: ToolCall) -> None:
        """Notes a call as it is recorded. Answers about another call under the same id do not count for it."""
        if not self.fits(call):
            self.end(call.id)
        self._calls[call.id] = call

    def fits(self, call: ToolCall) -> bool:
        """True if no other call was made under this id."""
        before = self._calls.get(call.id, call)
        return (before.tool, before.args) == (call.tool, call.args)

    def find(self, call_id: str, capability: str, *, isolated: bool) -> ApprovalAnswered | None:
        """Finds a person's answer for a call that waited. An approval inside a sandbox does not count without one."""
        if self._asked_isolated.get(call_id, False) and not isolated:
            return None
        for named in (capability, ""):
            answer = self._answers.get((call_id, named))
            if answer is not None:
                return answer
        return None

    def note_decision(self, event: CallDecided) -> None:
        """Notes if the program that a person may be asked about runs isolated."""
        isolated = asked_isolated(event.decision)
        if isolated is not None:
            self._isolated[event.call_id] = isolated

    def ask(self, event: ApprovalAsked) -> None:
        """Notes a new question about a call. Answers to older questions no longer count."""
        call_id = event.call_id
        key = (call_id, event.capability)
        self._open.add(key)
        self._asked_isolated[call_id] = self._isolated.get(call_id, False)
        self._answers.pop((call_id, ""), None)
        self._answers.pop(key, None)

    def answer(self, event: ApprovalAnswered) -> bool:
        """Notes an answer. True if it answers an open question."""
        key = (event.call_id, event.capability)
        self._answers[key] = event
        was_open = key in self._open
        self._open.discard(key)
        return was_open

    def forget(self, event: ApprovalAnswered) -> None:
        """Drops an answer that does not count."""
        key = (event.call_id, event.capability)
        del self._answers[key]

    def forget_all(self) -> None:
        """Drops all answers, because somebody else gave them."""
        self._answers.clear()

    def waiting(self) -> dict[str, ToolCall]:
        """Calls that wait for an answer, or have one that no call has used yet. A call waits with its load, too."""
        ids = {id for id, _ in (*self._open, *self._answers)}
        ids |= {id.removesuffix("-load") for id in ids}
        return {id: self._calls[id] for id in ids if id in self._calls}

    def end(self, call_id: str) -> None:
        """Drops questions and answers for a call that is made, because an answer is valid for one call only."""
        self._open = {key for key in self._open if key[0] != call_id}
        self.use(call_id)

    def end_begun(self, was_begun: Callable[[str], bool]) -> None:
        """Drops those for calls that were begun when their process ended."""
        for id in self.waiting():
            if was_begun(id):
                self.end(id)

    def use(self, call_id: str) -> dict[tuple[str, str], ApprovalAnswered]:
        """Uses up the answers for a call, and returns them."""
        used = {key: answer for key, answer in self._answers.items() if key[0] == call_id}
        for key in used:
            del self._answers[key]
        return used

    def put_back(self, used: Mapping[tuple[str, str], ApprovalAnswered]) -> None:
        """Keeps answers for a call that was not made after all."""
        self._answers.update(used)


@dataclass(slots=True)
class UsageTotals:
    """Usage of the current request so far."""

    turns: int = 0
    calls: int = 0
    scripts: int = 0
    prompts: int = 0  # questions to a person
    usage: Usage = field(default_factory=Usage)

    def add(self, other: UsageTotals) -> None:
        """Adds the usage of a child run, except its turns."""
        self.calls += other.calls
        self.scripts += other.scripts
        self.prompts += other.prompts
        self.usage = add_usage(self.usage, other.usage)

    def less(self, other: UsageTotals) -> UsageTotals:
        """Usage without that of `other`, and without turns."""
        rest = UsageTotals()
        rest.calls = self.calls - other.calls
        rest.scripts = self.scripts - other.scripts
        rest.prompts = self.prompts - other.prompts
        rest.usage = add_usage(self.usage, other.usage, sign=-1)
        return rest


def render_spent(spent: UsageTotals) -> dict[str, Any]:
    """Counts for the outcome of a call that a child run carried out. Its usage stands beside them."""
    return {"calls": spent.calls, "scripts": spent.scripts, "prompts": spent.prompts}


def parse_spent(data: Mapping[str, Any]) -> UsageTotals:
    """Parses the usage in such an outcome. Missing or invalid values count as zero."""
    told = data.get("spent")
    counts = told if isinstance(told, dict) else {}
    spent = UsageTotals()
    spent.calls = _parse_count(counts, "calls")
    spent.scripts = _parse_count(counts, "scripts")
    spent.prompts = _parse_count(counts, "prompts")
    spent.usage = _parse_usage(data.get("usage"))
    return spent


def _parse_usage(told: Any) -> Usage:
    if not isinstance(told, dict):
        return Usage()
    counts = {name: _parse_count(told, name) for name in USAGE_COUNTS}
    cost = told.get("cost")
    if isinstance(cost, (int, float)):
        return Usage(**counts, cost=float(cost))
    return Usage(**counts)


def _parse_count(told: Mapping[str, Any], name: str) -> int:
    return int(told.get(name) or 0)
