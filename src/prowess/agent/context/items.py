"""What a conversation is made of, in the order in which it happened. `request` counts the requests of the session, so
that an item can be told from those of earlier ones."""

from __future__ import annotations

from dataclasses import dataclass

from prowess.core.values import Outcome, Part, ToolCall


@dataclass(frozen=True, slots=True)
class Asked:
    request: int
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Replied:
    request: int
    text: str
    calls: tuple[ToolCall, ...]
    final: bool = False  # the model gave it as its answer
    ours: bool = False  # it is what we said at the end of a run, not the model


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    """What came of a call. One that the model did not make has no place of its own: it is told as context."""

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
