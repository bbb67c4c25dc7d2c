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

from prowess.cli.call_text import one_line, render_doing, render_done, seconds
from prowess.cli.screen import printable
from prowess.core.events import (
    ApprovalAnswered,
    ApprovalAsked,
    CallActed,
    CallDelta,
    CallPlanned,
    Compacted,
    Envelope,
    ErrorRaised,
    ModelReplied,
    ModelRequested,
    PlanChanged,
    RunFinished,
    RunStarted,
    SkillLoaded,
    SkillUnloaded,
    TextDelta,
    render_event,
)
from prowess.core.values import Plan, ToolCall, Usage
from prowess.errors import ProwessError
from prowess.policy.decision import find_risk

_TAIL = 4000  # characters of a text that is being written
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_LONGEST = 4000  # characters of the text that comes with a model's calls


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
        self._console = _open_console() if _is_terminal() else None
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
        event, indent = envelope.event, "  " if nested else ""
        match event:
            case RunStarted():
                self._started(event, nested)
            case ModelRequested():
                self._doing, self._text = "thinking", ""
            case TextDelta():
                self._doing, self._text = "writing", (self._text + event.text)[-_TAIL:]
            case CallDelta() if event.tool:
                self._doing = f"preparing {one_line(event.tool)}"
            case ModelReplied():
                self._replied(event, indent)
            case CallPlanned():
                self._calls[event.call.id] = event.call
                self._doing = render_doing(event.call)
            case CallActed():
                self._acted(event, indent)
            case SkillLoaded():
                self._skill = one_line(event.name or event.id)
                who = "" if event.trigger == "model" else f" ({_BY[event.trigger]})"
                self._say(f"{indent}loaded {self._skill}{who}")
            case SkillUnloaded():
                self._say(
                    f"{indent}unloaded {one_line(event.id)}{f': {one_line(event.reason)}' if event.reason else ''}"
                )
            case _:
                self._other(event, indent)

    def _other(self, event: Any, indent: str) -> None:
        match event:
            case PlanChanged():
                self._plan = event.plan
                if self._verbose:
                    self._say(f"{indent}plan: {one_line(event.plan.goal)}, {len(event.plan.steps)} steps")
            case ApprovalAsked():
                self._doing = "waiting for a person's approval"
            case ApprovalAnswered():
                call = self._calls.get(event.call_id)
                self._doing = "going on" if call is None else render_doing(call)
                if event.by and event.by != "terminal":
                    said = "denied" if event.answer == "no" else f"approved ({event.answer})"
                    self._say(f"{indent}{said}: {one_line(event.by)}")
            case Compacted():
                self._say(
                    f"{indent}made room: {one_line(event.why)} ({event.before_tokens:,} -> {event.after_tokens:,})"
                )
            case ErrorRaised() if event.hint and event.hint.startswith("Trying again"):
                self._doing = f"waiting: {one_line(event.message)}"
                self._say(
                    f"{indent}{one_line(event.message, 300)} {one_line(event.hint, 300)} [{one_line(event.code)}]"
                )
            case ErrorRaised() if event.code == "skill-not-found" and "taken as" in event.message:
                self._say(f"{indent}warning: {one_line(event.message, 300)} {one_line(event.hint or '', 300)}".rstrip())
            case RunFinished():
                self._doing, self._text = "ending", ""

    def _started(self, event: RunStarted, nested: bool) -> None:
        if nested:
            self._say("  the child run goes on" if event.resumes else f"  a child run: {one_line(event.request, 200)}")
            return
        for note in event.notes:
            if note not in self._said:  # once, also with many requests
                self._said.add(note)
                self._say(one_line(note, 300))

    def _replied(self, event: ModelReplied, indent: str) -> None:
        self._tokens += event.usage.input + event.usage.output
        self._text = ""
        if event.calls and event.finish != "stop" and event.text.strip():
            for line in printable(event.text.strip()[:_LONGEST], lines=True).split("\n"):
                self._say(f"{indent}{line}", dim=True)

    def _acted(self, event: CallActed, indent: str) -> None:
        outcome, self._doing = event.outcome, "going on"
        call = self._calls.pop(event.call_id, None)
        if call is None:
            return
        if isinstance(isolation := outcome.data.get("isolation"), dict):
            self.isolation = isolation
        if self._verbose or outcome.status != "ok" or find_risk(call.tool) != "low":
            self._say(f"{indent}{render_done(call, outcome)}")
        for warning in outcome.data.get("warnings") or ():
            self._say(f"{indent}warning: {one_line(str(warning), 500)}")

    # --- the screen -------------------------------------------------------------------------------------------------

    def _say(self, line: str, *, dim: bool = False) -> None:
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
        parts = [self._doing, "" if self._skill in self._doing else self._skill, self._step(), seconds(self.elapsed_s)]
        parts += [f"{self._tokens:,} tokens"] if self._tokens else []
        frame = _FRAMES[int(self.elapsed_s * 8) % len(_FRAMES)]
        status = Text(f"{frame} {' · '.join(filter(None, parts))}", no_wrap=True, overflow="ellipsis")
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


_BY = {"user": "named by you", "caller": "named by you", "path": "for a file", "nested": "as a child run"}


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


def _is_terminal() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"


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


def render_usage(usage: Usage) -> str:
    """Renders `1,204 tokens in (900 cached), 56 out · cost 0.0042`; empty when nothing was counted."""
    if not usage.input and not usage.output:
        return ""
    cached = f" ({usage.cached:,} cached)" if usage.cached else ""
    cost = f" · cost {usage.cost:.4f}" if usage.cost is not None else ""
    return f"{usage.input:,} tokens in{cached}, {usage.output:,} out{cost}"


Show = Callable[[Envelope, bool], None]  # the event, and True for a child run
_PATIENCE_S = 5.0


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
                await asyncio.wait_for(self._end.wait(), _PATIENCE_S)


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
