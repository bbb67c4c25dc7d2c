"""Defines what a conversation keeps: its items, the session state, approval questions, and the usage of a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from prowess.core.events import ApprovalAnswered, ApprovalAsked, CallDecided
from prowess.core.values import USAGE_COUNTS, Outcome, Part, ToolCall, Usage, add_usage
from prowess.policy.decision import asked_isolated
from prowess.tools.skills.state import DOCS_KEY, LOADED_KEY, parse_docs


@dataclass(frozen=True, slots=True)
class Asked:
    request: int
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Replied:
    request: int
    text: str
    calls: tuple[ToolCall, ...]
    final: bool = False  # the model's final answer
    ours: bool = False  # text of Prowess at the end of a run, not of the model


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    """Outcome of a call. If the model did not make the call, it is shown as context, not as a tool result."""

    request: int
    call_id: str
    outcome: Outcome
    own: bool  # the model made the call


@dataclass(frozen=True, slots=True)
class Noted:
    request: int
    kind: str
    text: str


Item = Asked | Replied | AnsweredCall | Noted


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
        return {name: each for name, each in self._means.items() if f"{LOADED_KEY}{name}" in self.values}

    @property
    def ids(self) -> list[str]:
        """Ids of skills with a body or docs in use."""
        return [each.id for each in self._means.values()]

    def merge(self, delta: Mapping[str, Any], data: Mapping[str, Any]) -> None:
        """Applies a delta. `data` of the outcome has the id and digest of the skill that the keys mean."""
        id, digest = data.get("skill"), data.get("digest")
        for key, value in delta.items():
            if value is None:
                self.values.pop(key, None)
            else:
                self.values[key] = value
            name = key.removeprefix(LOADED_KEY).removeprefix(DOCS_KEY)
            if name != key and value is not None and isinstance(id, str) and isinstance(digest, str):
                self._means[name] = InUse(id, digest)
        self._tidy()

    def unload(self, id: str) -> None:
        for name in [name for name, each in self._means.items() if each.id == id]:
            self.values.pop(f"{LOADED_KEY}{name}", None)
            self.values.pop(f"{DOCS_KEY}{name}", None)
        self._tidy()

    def clear_temporary(self) -> None:
        for key in [key for key in self.values if key.startswith("temp:")]:
            del self.values[key]  # in place, because tools share this dict
        self._tidy()

    def _tidy(self) -> None:
        kept = {key.removeprefix(LOADED_KEY).removeprefix(DOCS_KEY) for key in self.values}
        self._means = {name: each for name, each in self._means.items() if name in kept}

    def wanted(self) -> dict[InUse, WantedText]:
        return {
            each: WantedText(f"{LOADED_KEY}{name}" in self.values, parse_docs(self.values.get(f"{DOCS_KEY}{name}")))
            for name, each in self._means.items()
        }


class ApprovalQuestions:
    def __init__(self) -> None:
        self._open: set[tuple[str, str]] = set()  # unanswered questions: call, capability
        self._isolated: dict[str, bool] = {}  # call -> isolated, from its last decision
        self._asked_isolated: dict[str, bool] = {}  # call -> isolated, when a person was asked
        self._answers: dict[tuple[str, str], ApprovalAnswered] = {}

    def find(self, call_id: str, capability: str, *, isolated: bool) -> ApprovalAnswered | None:
        """Finds a person's answer for a call that waited. An approval inside a sandbox does not count without one."""
        if self._asked_isolated.get(call_id, False) and not isolated:
            return None
        return self._answers.get((call_id, capability)) or self._answers.get((call_id, ""))

    def note_decision(self, event: CallDecided) -> None:
        isolated = asked_isolated(event.decision)
        if isolated is not None:
            self._isolated[event.call_id] = isolated

    def ask(self, event: ApprovalAsked) -> None:
        """Notes a new question about a call. Answers to older questions no longer count."""
        self._open.add((event.call_id, event.capability))
        self._asked_isolated[event.call_id] = self._isolated.get(event.call_id, False)
        self._answers.pop((event.call_id, ""), None)
        self._answers.pop((event.call_id, event.capability), None)

    def answer(self, event: ApprovalAnswered) -> bool:
        """Notes an answer. True if it answers an open question."""
        key = (event.call_id, event.capability)
        self._answers[key] = event
        was_open = key in self._open
        self._open.discard(key)
        return was_open

    def forget(self, event: ApprovalAnswered) -> None:
        """Drops an answer that does not count."""
        del self._answers[event.call_id, event.capability]

    def end(self, call_id: str) -> None:
        """Drops the answers for a call that was made, because an answer is valid for one call only."""
        for key in [key for key in self._answers if key[0] == call_id]:
            del self._answers[key]


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
        return UsageTotals(
            calls=self.calls - other.calls,
            scripts=self.scripts - other.scripts,
            prompts=self.prompts - other.prompts,
            usage=add_usage(self.usage, other.usage, sign=-1),
        )


def render_spent(spent: UsageTotals) -> dict[str, Any]:
    """Counts for the outcome of a call that a child run carried out. Its usage stands beside them."""
    return {"calls": spent.calls, "scripts": spent.scripts, "prompts": spent.prompts}


def parse_spent(data: Mapping[str, Any]) -> UsageTotals:
    """Parses the usage in such an outcome. Missing or invalid values count as zero."""
    usage, counts = data.get("usage"), data.get("spent")
    used = usage if isinstance(usage, dict) else {}
    told = counts if isinstance(counts, dict) else {}
    cost = used.get("cost")
    return UsageTotals(
        **{name: int(told.get(name) or 0) for name in ("calls", "scripts", "prompts")},
        usage=Usage(
            **{name: int(used.get(name) or 0) for name in USAGE_COUNTS},
            cost=float(cost) if isinstance(cost, (int, float)) else None,
        ),
    )
