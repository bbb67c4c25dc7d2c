"""Writes the events of a run to the record, and only then applies them to the conversation."""

from __future__ import annotations

from collections.abc import Sequence

from prowess.agent.context import Conversation
from prowess.agent.recorder import Recorder, RecorderPart, redact_event
from prowess.agent.session_secrets import SessionSecrets
from prowess.core.events import Event, UnknownEvent


class EventWriter:
    def __init__(self, recorder: Recorder | RecorderPart, conversation: Conversation, secrets: SessionSecrets) -> None:
        self._recorder, self._conversation, self._secrets = recorder, conversation, secrets

    @property
    def broken(self) -> bool:
        """True if the record can no longer be written."""
        return self._recorder.broken

    def redact(self, events: Sequence[Event]) -> list[Event | UnknownEvent]:
        redactor = self._secrets.redactor
        return [redact_event(event, redactor) for event in events]

    async def append(self, *events: Event) -> None:
        """Redacts and records events, then applies them to the conversation."""
        clean = self.redact(events)
        await self._recorder.append(*clean)
        for event in clean:
            self._conversation.apply(event)
