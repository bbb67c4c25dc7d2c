"""Form of the answer of a recorded run. Its type is not known, but the record says which answers did not fit."""

from __future__ import annotations

import json
from collections.abc import Sequence

from prowess._internal.json_values import JsonObject
from prowess.agent.output import MISFIT, OutputForm, OutputMismatch
from prowess.core.events import Envelope, ErrorRaised
from prowess.models.replay import ReplayModel


class RecordedOutput:
    """Form that refuses as many answers as were refused then, for the same reasons."""

    def __init__(self, schema: JsonObject, refusals: Sequence[str], *, is_native: bool) -> None:
        self.schema = schema
        self.is_closed = is_native
        self._refusals = list(refusals)

    def parse(self, text: str) -> str:
        if self._refusals:
            raise OutputMismatch(self._refusals.pop(0))
        return text


def find_recorded_output(model: object) -> OutputForm | None:
    """Returns the form of the answer in the recording that a model plays back, if it does and has one."""
    if not isinstance(model, ReplayModel) or model.output is None:
        return None
    refusals = _find_refusals(model.events)
    schema = json.loads(model.output.json_schema)
    return RecordedOutput(schema, refusals, is_native=model.output.native)


def _find_refusals(events: Sequence[Envelope]) -> list[str]:
    found: list[str] = []
    for envelope in events:
        event = envelope.event
        if isinstance(event, ErrorRaised) and event.code == "output-invalid":
            found.append(event.message.removeprefix(MISFIT))
    return found
