"""Shows a run on stderr while it goes on: a few lines that stay, and on a terminal a status line.

The answer is not among them; it goes to stdout. Text of a model or a skill is escaped before it reaches the terminal.
`Watch` passes on each event of a run once, in order, and knows when the run is over.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from prowess._internal.text import one_line, render_seconds
from prowess.cli.screen import is_terminal, printable
from prowess.core.events import (
    ApprovalAnswered,
    CallActed,
    CallPlanned,
    Envelope,
    ModelReplied,
    ModelRequested,
    PlanChanged,
    RunFinished,
    RunStarted,
    SkillLoaded,
    TextDelta,
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
        self._plan: Plan | None = None
        self._skill = ""
        self._tokens = 0
        self._calls: dict[str, ToolCall] = {}
        self._said: set[str] = set()
        self._is_over = False
        self.isolation: dict[str, Any] | None = None  # of the last script that ran
        self._console = _open_console() if is_terminal() else None
        self._live = None if self._console is None else _open_live(self._console, self._render)

    def start(self) -> None:
        if self._live is not None and not self._is_over:
            _SHOWN.append(self)  # a Ctrl-C may come just before `__exit__` runs
            self._live.start()

    def stop(self) -> None:
        """Removes the status line and restores the cursor; printed lines stay. Ctrl-C cannot interrupt it."""
        if self._live is not None:
            with _uninterrupted():
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
        return time.monotonic() - self._began

    def begin(self) -> None:
        """Resets the view for another request."""
        self._began, self._doing, self._text, self._tokens = time.monotonic(), "starting", "", 0
        self._skill, self._plan, self.isolation = "", None, None

    # --- events -----------------------------------------------------------------------------------------------------

    def show(self, envelope: Envelope, nested: bool) -> None:
        event, call = envelope.event, None
        match event:
            case CallPlanned():
                self._calls[event.call.id] = event.call
                self._doing = render_doing(event.call)
                return
            case CallActed():
                call = self._calls.pop(event.call_id, None)
                if call is not None and isinstance(isolation := event.outcome.data.get("isolation"), dict):
                    self.isolation = isolation
            case ApprovalAnswered():
                call = self._calls.get(event.call_id)
            case TextDelta():
                self._text = (self._text + event.text)[-_TAIL:]
            case ModelReplied():
                self._tokens += event.usage.input + event.usage.output
                self._text = ""
            case ModelRequested() | RunFinished():
                self._text = ""
            case SkillLoaded():
                self._skill = one_line(event.name or event.id)
            case PlanChanged():
                self._plan = event.plan
            case _:
                pass
        text = describe_event(event, EventContext(run=envelope.run, call=call, routine=ROUTINE_TOOLS))
        self._doing = self._doing if text.doing is None else text.doing
        for line in text.live:
            self._say_line(line, "  " if nested else "")

    def _say_line(self, line: EventLine, indent: str) -> None:
        if line.kind == "fact":
            if line.text in self._said:  # once, also with many requests
                return
            self._said.add(line.text)
        if self._verbose or not line.is_detail:
            self._say(f"{indent}{line.text}", dim=line.kind == "text")

    # --- the screen -------------------------------------------------------------------------------------------------

    def _say(self, line: str, *, dim: bool = False) -> None:
        line = printable(line, lines=True)
        if self._console is None:
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()
        else:
            from rich.text import Text

            self._console.print(Text(line, style="dim" if dim else ""), soft_wrap=True)

    def _render(self) -> Any:
        """Draws the status line. The drawing thread calls it eight times a second."""
        from rich.console import Group
        from rich.text import Text

        console = self._console
        assert console is not None
        skill = "" if self._skill in self._doing else self._skill
        tokens = f"{self._tokens:,} tokens" if self._tokens else ""
        parts = [self._doing, skill, self._step(), render_seconds(self.elapsed_s), tokens]
        frame = _FRAMES[int(self.elapsed_s * 8) % len(_FRAMES)]
        status = Text(printable(f"{frame} {' · '.join(filter(None, parts))}"), no_wrap=True, overflow="ellipsis")
        if not self._text.strip():
            return status
        room = max(3, min(12, console.height - 4))
        lines = Text(printable(self._text, lines=True), style="dim").wrap(console, console.width)[-room:]
        return Group(Text("\n").join(lines), status)

    def _step(self) -> str:
        steps = self._plan.steps if self._plan else ()
        if not steps:
            return ""
        done = sum(step.status == "completed" for step in steps)
        return f"step {min(done + 1, len(steps))} of {len(steps)}"


_SHOWN: list[Display] = []  # displays that have hidden the cursor


@atexit.register
def stop_all() -> None:
    """Stops every display that is still shown, so that the cursor is visible again."""
    for display in [*_SHOWN]:
        display.stop()


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ignores Ctrl-C for the few milliseconds that the block takes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)


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
        self.started = self.ended = False  # of the run that was watched last
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
        """Prepares for another request, of which no event has been seen."""
        self.started = self.ended = False

    async def wait_for_end(self) -> None:
        """Waits until the last event of the run has been shown: events arrive after they happened."""
        if self.started:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._end.wait(), _WAIT_S)


def output_closed(hint: str) -> ProwessError:
    """Returns the error for a closed stdout, and sends later output to /dev/null so that it cannot fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ProwessError(
        "The run was cancelled: stdout cannot be written to any more.",
        code="output-closed",
        hint=f"What was done is recorded. To go on: {hint}",
    )


def print_line(envelope: Envelope, nested: bool) -> None:
    """Writes one event as one JSON line, at once (`--json`)."""
    sys.stdout.write(json.dumps(render_event(envelope)) + "\n")
    sys.stdout.flush()
