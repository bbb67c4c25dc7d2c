"""Progress bars for downloads, unpacking and checks. They appear on a terminal, when the work takes time."""

from __future__ import annotations

import threading
from typing import Any

from prowess.cli.screen import Screen, is_terminal, size
from prowess.core.findings import visible

_DELAY_S = 0.5
_COUNTED = ("Downloading skills",)  # the other downloads count bytes
_WIDEST = 36  # characters of a description


class ProgressBars:
    """Shows a bar for each kind of work. Call it with what is done, units so far, and all units or None."""

    def __init__(self, screen: Screen) -> None:
        self._is_shown = is_terminal() and not screen.is_json
        self._guard = threading.Lock()
        self._works: dict[str, tuple[int, int | None]] = {}
        self._bars: Any = None  # rich.progress.Progress
        self._tasks: dict[str, Any] = {}
        self._timer: threading.Timer | None = None

    def __call__(self, what: str, done: int, total: int | None) -> None:
        if not self._is_shown:
            return
        with self._guard:
            self._works[what] = (done, total)
            if self._bars is not None:
                self._update(what)
            elif self._timer is None:
                self._timer = threading.Timer(_DELAY_S, self._open)
                self._timer.daemon = True
                self._timer.start()

    def __enter__(self) -> ProgressBars:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Removes the bars from the terminal. Nothing is shown after that."""
        self._is_shown = False
        if self._timer is not None:
            self._timer.cancel()
        with self._guard:
            if self._bars is not None:
                self._bars.stop()

    def _open(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        with self._guard:
            if not self._is_shown:
                return
            self._bars = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=20),
                TextColumn("{task.fields[amount]}", markup=False),
                console=Console(stderr=True, highlight=False, emoji=False),
                transient=True,
            )
            self._bars.start()
            for what in self._works:
                self._update(what)

    def _update(self, what: str) -> None:
        done, total = self._works[what]
        if what not in self._tasks:
            text = _description(what)
            self._tasks[what] = self._bars.add_task(text, total=total, amount="")
        amount = _amount(what, done, total)
        self._bars.update(self._tasks[what], completed=done, total=total, amount=amount)


def _description(what: str) -> str:
    capitalised = what[:1].upper() + what[1:]
    text = visible(capitalised)
    if len(text) <= _WIDEST:
        return text
    return f"{text[: _WIDEST - 1]}…"


def _amount(what: str, done: int, total: int | None) -> str:
    """Renders `1.5 MB of 3.0 MB`, or `3 of 20`."""
    is_download = what.startswith(("Downloading ", "Fetching "))
    render = str
    if is_download and what not in _COUNTED:
        render = size
    if total is None:
        return render(done)
    return f"{render(done)} of {render(total)}"
