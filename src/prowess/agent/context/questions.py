"""Tracks the approval questions of a session, and the answers that count when a call is made again."""

from __future__ import annotations

from prowess.core.events import ApprovalAnswered, ApprovalAsked, CallDecided
from prowess.policy.decision import asked_isolated


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
