"""Recording of a run as a cassette: a run plays it, and must be the recorded one.

Another machine, folder or executor is no difference.
"""

from __future__ import annotations

import os

from prowess.core.findings import visible
from prowess.core.ports import EventLog
from prowess.core.values import SessionKey
from prowess.errors import EvalError, ProwessError
from prowess.models.replay import ReplayModel, load_events
from prowess.records.diff import first_difference, settled, without_place


class Cassette:
    """Recording in a file. `model` plays it under the given name."""

    def __init__(self, file: str, name: str) -> None:
        """Reads the recording. EvalError if there is none."""
        if not os.path.exists(file):
            hint = "Record it: --record DIR"
            raise EvalError(f"There is no recording {visible(file)}.", code="cassette-miss", hint=hint)
        self._events = load_events(file)
        self.model = ReplayModel(self._events, name=name)

    async def find_miss(self, log: EventLog, key: SessionKey, error: ProwessError | None) -> EvalError | None:
        """Returns the error for a session that is not the recorded one, with the first difference. `error` is what it
        ended with."""
        events = [envelope async for envelope in log.read(key)]  # parsed as the recording was
        recorded = without_place(settled(self._events))
        actual = without_place(settled(events))
        found = first_difference(recorded, actual, ignore=("model", "limits", "request-bytes"))
        if found is None:
            return None
        where = f"event {found.seq or found.other_seq} ({found.type}, {found.what})"
        differs = f"recorded {visible(found.recorded)}; now {visible(found.actual)}"
        problem = f"The run is not the recorded one. First difference, in {where}: {differs}"
        if error is not None:
            problem += f" ({error.message})"
        hint = "Skills, prompts, files or tools changed since. Record it again: --record DIR"
        return EvalError(problem, code="cassette-miss", hint=hint)
