"""What a surface sees of a run while it goes on: each event once, in order, and when it is over."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress

from prowess.core.events import Envelope, RunFinished, RunStarted, render_event
from prowess.errors import ProwessError

Show = Callable[[Envelope, bool], None]  # the event, and whether it is of a child run
_PATIENCE_S = 5.0


class Watch:
    """An observer. When what it shows reaches nobody any more, `stop` is told, once."""

    def __init__(self, show: Show) -> None:
        self._show = show
        self.stop: Callable[[], object] = lambda: None
        self.problem: OSError | None = None
        self.started = self.ended = False  # the run that was watched last
        self._parts: set[str] = set()
        self._end = asyncio.Event()

    async def __call__(self, envelope: Envelope) -> None:
        event, run = envelope.event, envelope.run
        if isinstance(event, RunStarted):
            if event.parent is not None:
                self._parts.add(run)
            else:
                self.started, self.ended = True, False
                self._end.clear()
        nested = run in self._parts
        if self.problem is None:
            try:
                self._show(envelope, nested)
            except OSError as error:
                self.problem = error
                self.stop()
        if isinstance(event, RunFinished) and not nested:
            self.ended = True
            self._end.set()

    def reset(self) -> None:
        """Another request: nothing of it has been seen."""
        self.started = self.ended = False

    async def wait_for_end(self) -> None:
        """Events are told after they happened: until the last one of the run has been shown."""
        if self.started:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._end.wait(), _PATIENCE_S)


def output_closed(hint: str) -> ProwessError:
    """Nobody reads the events any more, and nothing that is written from now on may fail for that."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ProwessError(
        "The run was cancelled: stdout cannot be written to any more.",
        code="output-closed",
        hint=f"What was done is recorded. To go on: {hint}",
    )


def print_line(envelope: Envelope, nested: bool) -> None:
    """`--json`: one event, one line, at once."""
    sys.stdout.write(json.dumps(render_event(envelope)) + "\n")
    sys.stdout.flush()
