"""Defines the items of a conversation. `request` numbers the user's requests of a session, to tell old items apart."""

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
