"""Shows a run on stderr while it goes on: a few lines that stay, and on a terminal a status line.

The answer is not among them; it goes to stdout. Text of a model or a skill is escaped before it reaches the terminal.
`Watch` passes on each event of a run once, in order, and knows when the run is over.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from prowess._internal.text import one_line, render_seconds
from prowess._internal.watched_process import hold_signals
from prowess.cli.screen import is_terminal, printable
from prowess.core.events import (
    ApprovalAnswered,
    CallActed,
    CallPlanned,
    Envelope,
    Event,
    ModelReplied,
    ModelRequested,
    ModelRetried,
    PlanChanged,
    RunFinished,
    RunStarted,
    SkillLoaded,
    TextDelta,
    UnknownEvent,
    render_event,
)
from prowess.core.values import Plan, ToolCall
from prowess.errors import ProwessError
from prowess.records.call_text import render_doing
from prowess.records.timeline import EventContext, EventLine, describe_event
from prowess.runtime.services.requests import ROUTINE_TOOLS

_TAIL = 4000  # characters of a text that is being written
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class Display:
    """Live view of a run. Use it as `with display:` and pass its `show` to a `Watch`."""

    def __init__(self, *, verbose: int = 0) -> None:
        self._verbose = verbose
        self._began = time.monotonic()
        self._doing = "starting"
        self._text = ""
        self._reply: list[str] = []
        self._plan: Plan | None = None
        self._skill = ""
        self._tokens = 0
        self._calls: dict[str, ToolCall] = {}
        self._said: set[str] = set()
        self._is_over = False
        self.isolation: dict[str, Any] | None = None  # of the last script that ran
        self._console: Any = None
        self._live: Any = None
        if is_terminal():
            self._console = _open_console()
            self._live = _open_live(self._console, self._render)

    def start(self) -> None:
        """Shows the status line, on a terminal, until `stop`."""
        if self._live is not None and not self._is_over:
            _SHOWN.append(self)  # a Ctrl-C may come just before `__exit__` runs
            self._live.start()

    def stop(self) -> None:
        """Removes the status line and restores the cursor; printed lines stay. A signal waits until it is done."""
        if self._live is not None:
            with hold_signals():
                self._live.stop()
                _SHOWN[:] = [display for display in _SHOWN if display is not self]

    def __enter__(self) -> Display:
        self._is_over = False
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over = True  # a cancelled task that is cleaned up later must not start it again
        self.stop()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stops the view while something else writes to the terminal."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the request began."""
        return time.monotonic() - self._began

    def begin(self) -> None:
        """Resets the view for another request."""
        self._began = time.monotonic()
        self._doing = "starting"
        self._text = ""
        self._reply = []
        self._tokens = 0
        self._skill = ""
        self._plan = None
        self.isolation = None

    @property
    def unfinished(self) -> str:
        """Text of a reply that was cut off."""
        return "".join(self._reply)

    # --- events -----------------------------------------------------------------------------------------------------

    def show(self, envelope: Envelope, nested: bool) -> None:
        """Shows one event. `nested` is true for an event of a child run."""
        event = envelope.event
        if isinstance(event, CallPlanned):
            self._calls[event.call.id] = event.call
            self._doing = render_doing(event.call)
            return
        if not nested:
            self._keep_reply(event)
        call = self._remember(event)
        context = EventContext(run=envelope.run, call=call, routine=ROUTINE_TOOLS)
        text = describe_event(event, context)
        if text.doing is not None:
            self._doing = text.doing
        indent = "  " if nested else ""
        for line in text.live:
            self._say_line(line, indent)

    def _keep_reply(self, event: Event | UnknownEvent) -> None:
        """Keeps the text of a reply until all of it is there."""
        if isinstance(event, TextDelta):
            self._reply.append(event.text)
        elif isinstance(event, (ModelRequested, ModelReplied)):
            self._reply = []

    def _remember(self, event: Event | UnknownEvent) -> ToolCall | None:
        """Keeps what the status line shows. Returns the call that the event is about, if it is known."""
        match event:
            case CallActed():
                call = self._calls.pop(event.call_id, None)
                isolation = event.outcome.data.get("isolation")
                if call is not None and isinstance(isolation, dict):
                    self.isolation = isolation
                return call
            case ApprovalAnswered():
                return self._calls.get(event.call_id)
            case TextDelta():
                text = self._text + event.text
                self._text = text[-_TAIL:]
            case ModelReplied():
                self._tokens += event.usage.input + event.usage.output
                self._text = ""
            case ModelRequested() | ModelRetried() | RunFinished():
                self._text = ""
            case SkillLoaded():
                self._skill = one_line(event.name or event.id)
            case PlanChanged():
                self._plan = event.plan
            case _:
                pass
        return None

    def _say_line(self, line: EventLine, indent: str) -> None:
        if line.kind == "fact":
            if line.text in self._said:  # once, also with many requests
                return
            self._said.add(line.text)
        if self._verbose or not line.is_detail:
            is_dim = line.kind == "text"
            self._say(f"{indent}{line.text}", dim=is_dim)

    # --- the screen -------------------------------------------------------------------------------------------------

    def _say(self, line: str, *, dim: bool = False) -> None:
        line = printable(line, lines=True)
        if self._console is None:
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()
            return
        from rich.text import Text

        style = "dim" if dim else ""
        text = Text(line, style=style)
        self._console.print(text, soft_wrap=True)

    def _render(self) -> Any:
        """Draws the status line. The drawing thread calls it eight times a second."""
        from rich.console import Group
        from rich.text import Text

        console = self._console
        assert console is not None
        frame = _FRAMES[int(self.elapsed_s * 8) % len(_FRAMES)]
        line = printable(f"{frame} {self._status()}")
        status = Text(line, no_wrap=True, overflow="ellipsis")
        if not self._text.strip():
            return status
        room = max(3, min(12, console.height - 4))
        text = Text(printable(self._text, lines=True), style="dim")
        lines = text.wrap(console, console.width)
        shown = Text("\n").join(lines[-room:])
        return Group(shown, status)

    def _status(self) -> str:
        """Renders `running scripts/a.py · csv-report · step 2 of 3 · 4.2 s · 1,204 tokens`."""
        parts = [self._doing]
        if self._skill not in self._doing:
            parts.append(self._skill)
        parts.append(self._step())
        parts.append(render_seconds(self.elapsed_s))
        if self._tokens:
            parts.append(f"{self._tokens:,} tokens")
        return " · ".join(filter(None, parts))

    def _step(self) -> str:
        """Renders `step 2 of 3` of the model's plan."""
        if self._plan is None or not self._plan.steps:
            return ""
        steps = self._plan.steps
        done = sum(step.status == "completed" for step in steps)
        current = min(done + 1, len(steps))
        return f"step {current} of {len(steps)}"


_SHOWN: list[Display] = []  # displays that have hidden the cursor


@atexit.register
def stop_all() -> None:
    """Stops every display that is still shown, so that the cursor is visible again."""
    for display in [*_SHOWN]:
        display.stop()


def _open_console() -> Any:
    from rich.console import Console

    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def _open_live(console: Any, render: Callable[[], Any]) -> Any:
    from rich.live import Live

    return Live(
        get_renderable=render,
        console=console,
        transient=True,
        refresh_per_second=8,
        redirect_stdout=False,
        redirect_stderr=False,
    )


Show = Callable[[Envelope, bool], None]  # the event, and True for a child run
_WAIT_S = 5.0


class Watch:
    """Observer of a run. Calls `stop` once when its output can no longer be written."""

    def __init__(self, show: Show) -> None:
        self._show = show
        self.stop: Callable[[], object] = lambda: None
        self.problem: OSError | None = None
        self.started = False  # of the run that was watched last, as is `ended`
        self.ended = False
        self._parts: set[str] = set()
        self._end = asyncio.Event()

    async def __call__(self, envelope: Envelope) -> None:
        event = envelope.event
        run = envelope.run
        if isinstance(event, RunStarted):
            if event.parent is not None:
                self._parts.add(run)
            else:
                self.started = True
                self.ended = False
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
        """Prepares for another request, of which no event has been seen."""
        self.started = False
        self.ended = False

    async def wait_for_end(self) -> None:
        """Waits until the last event of the run has been shown: events arrive after they happened."""
        if self.started:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._end.wait(), _WAIT_S)


def output_closed(hint: str) -> ProwessError:
    """Returns the error for a closed stdout, and sends later output to /dev/null so that it cannot fail."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    return ProwessError(
        "The run was cancelled: stdout cannot be written to any more.",
        code="output-closed",
        hint=f"What was done is recorded. To go on: {hint}",
    )


def print_line(envelope: Envelope, nested: bool) -> None:
    """Writes one event as one JSON line, at once (`--json`)."""
    line = json.dumps(render_event(envelope))
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
