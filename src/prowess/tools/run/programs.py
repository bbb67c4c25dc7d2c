"""Programs of a session that keep running between calls.

No program outlives its session. Output is redacted before it is kept. It is kept as numbered lines up to a limit, so a
model always knows which lines it has not seen.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from prowess.core.ports import Interactive
from prowess.errors import WorkspaceError
from prowess.tools.run.skill_run import render_result
from prowess.workspace.job import JobContext, JobResult, Prepared, finish
from prowess.workspace.limits import watch_disk
from prowess.workspace.output_capture import Printed

MOST_RUNNING = 8
MOST_KEPT = 32
MAX_LINES = 20_000
MAX_LINE = 8_192
MAX_CHARACTERS = 4 << 20
SETTLED_S = 0.075
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])")
_NUMBER = re.compile(r"(?:enter|choose|select) (?:a|the) number")
_NUMBERED = re.compile(r"\s*(?:\[?\d+[.)\]]|\d+\s*[-:])\s*\S")


class LastLines:
    """Last lines of a stream. An unfinished last line counts, and is given again when it grows."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque()
        self._size = 0
        self._first = 0  # number of the oldest line that is kept
        self._open = ""
        self._pending = b""
        self.news: asyncio.Event = asyncio.Event()

    def feed(self, data: bytes) -> None:
        text, self._pending = _decoded(self._pending + data)
        text = self._open + text
        text = text.replace("\r\n", "\n")
        *whole, unfinished = text.split("\n")
        for line in whole:
            self._append(_plain(line))
        self._open = unfinished[-MAX_LINE:]
        self.news.set()

    def _append(self, line: str) -> None:
        """Keeps a line, and drops the oldest lines if there are too many."""
        self._lines.append(line)
        self._size += len(line)
        while len(self._lines) > MAX_LINES or self._size > MAX_CHARACTERS:
            oldest = self._lines.popleft()
            self._size -= len(oldest)
            self._first += 1

    @property
    def next(self) -> int:
        """Number of the next or unfinished line."""
        return self._first + len(self._lines)

    def since(self, number: int, most: int) -> tuple[int, str]:
        """Returns at most the last `most` lines from line `number` on, with the number of the first of them."""
        first = self._first
        end = self.next
        start = max(number, first, end - most)
        lines = [self._lines[at - first] for at in range(start, end)]
        if self._open or lines:
            unfinished = _plain(self._open)
            lines.append(unfinished)
        return start, "\n".join(lines)

    def tail(self) -> list[str]:
        """The last lines that are not blank."""
        last = list(self._lines)[-10:]
        last.append(_plain(self._open))
        return [line for line in last if line.strip()]


@dataclass(slots=True, kw_only=True)
class TerminalProcess:
    """Running program, from its start to its result."""

    id: str
    skill: str  # id of its skill
    session: Interactive
    prepared: Prepared
    desk: JobContext
    printed: Printed
    lines: LastLines
    seen: int = 0
    result: JobResult | None = None
    writing: asyncio.Task[None] | None = None  # input that the program has not read yet
    watching: asyncio.Task[None] | None = None  # ends when the program has ended and its result exists
    held: ExitStack = field(default_factory=ExitStack)  # files that must not be removed while it runs
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(slots=True)
class Programs:
    """Programs of one session: those that run, and the last that have ended."""

    known: dict[str, TerminalProcess] = field(default_factory=dict)
    _starting: int = 0

    async def start(self, prepared: Prepared, desk: JobContext, skill: str) -> TerminalProcess:
        self._check_number()
        lines = LastLines()

        def keep_lines(stream: str, data: bytes) -> None:
            lines.feed(data)

        printed = Printed(desk.place, prepared.program.run, desk.redaction, on_output=keep_lines)
        self._starting += 1
        try:
            session = await desk.workspace.open_session(prepared.program, printed.stdout.feed)
        except BaseException:
            printed.close()
            raise
        finally:
            self._starting -= 1
        id = f"session-{secrets.token_hex(4)}"
        started = TerminalProcess(
            id=id, skill=skill, session=session, prepared=prepared, desk=desk, printed=printed, lines=lines
        )
        self.known[id] = started
        started.watching = asyncio.ensure_future(self._watch(started))
        self._forget()
        return started

    def _check_number(self) -> None:
        running = [id for id, each in self.known.items() if each.session.ended is None]
        if len(running) + self._starting < MOST_RUNNING:
            return
        listed = ", ".join(running)
        message = f"{MOST_RUNNING} programs are running already."
        hint = f"End one with skill_kill_session: {listed}"
        raise WorkspaceError(message, op="start", code="too-many-sessions", hint=hint)

    async def write(self, running: TerminalProcess, data: bytes, *, wait_s: float, eof: bool = False) -> None:
        """Writes to its input, in the order of the calls. Waits at most `wait_s` if the program does not read."""
        before = running.writing

        async def in_turn() -> None:
            if before is not None:
                await before
            await running.session.write(data)
            if eof:
                running.session.close_stdin()

        running.writing = asyncio.ensure_future(in_turn())
        await asyncio.wait((running.writing,), timeout=max(wait_s, SETTLED_S))

    def get(self, id: str) -> TerminalProcess:
        found = self.known.get(id)
        if found is None:
            there = ", ".join(self.known) or "none"
            message = f"There is no session '{id[:100]}'."
            hint = f"There are: {there}. Start one with skill_exec."
            raise WorkspaceError(message, op="session", code="session-not-found", hint=hint)
        return found

    async def look(self, running: TerminalProcess, *, wait_s: float, most_lines: int) -> dict[str, Any]:
        """Waits until the program is quiet, and returns its new output; after its end also the result."""
        await _settled(running, wait_s)
        if running.session.ended is not None:
            await self._finish(running)
        else:
            running.printed.stdout.flush()
        lines = running.lines
        result = running.result
        start, output = lines.since(running.seen, most_lines)
        lines.news.clear()
        document: dict[str, Any] = {"status": "running" if result is None else "exited"}
        document["session_id"] = running.id
        document["output"] = output
        document["offset"] = start
        document["next_offset"] = lines.next
        warnings: list[str] = []
        if start > running.seen:
            warnings.append(f"Lines {running.seen} to {start - 1} are not shown here.")
        if running.writing is not None and not running.writing.done():
            warnings.append("It has not taken all of its input yet.")
        if warnings:
            document["warnings"] = warnings
        running.seen = lines.next
        if result is None:
            document["interaction"] = guess_interaction(lines.tail())
        else:
            document["exit_code"] = result.exit_code
            document["result"] = render_result(result)
        return document

    async def kill(self, running: TerminalProcess) -> dict[str, Any]:
        was = running.session.ended
        if was is None:
            await running.session.kill()
        await self._finish(running)
        status = "exited" if was is not None else "killed"
        return {"ok": True, "session_id": running.id, "status": status}

    async def aclose(self) -> None:
        for running in list(self.known.values()):
            for task in (running.watching, running.writing):
                if task is not None:
                    task.cancel()
                    await asyncio.wait((task,))
            await running.session.aclose()
            running.held.close()
            if running.result is None:
                running.printed.close()
        self.known.clear()

    async def _watch(self, running: TerminalProcess) -> None:
        """Ends the program if it writes too much to disk, and makes its result after the end, also if nobody polls."""
        desk = running.desk
        run = running.prepared.program.run
        layout = desk.workspace.layout
        quota = asyncio.ensure_future(watch_disk(layout, run, desk.disk_bytes))
        ended = asyncio.ensure_future(running.session.wait())
        try:
            await asyncio.wait((quota, ended), return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                running.prepared.warnings.append(quota.result())
                await running.session.kill()
            await self._finish(running)
        finally:
            quota.cancel()
            ended.cancel()

    async def _finish(self, running: TerminalProcess) -> None:
        """Makes the result once, also if several calls wait for it."""
        async with running.turn:
            if running.result is None:
                ended = await running.session.wait()
                running.held.close()
                running.printed.close()
                running.result = await finish(running.prepared, running.desk, running.printed, ended)
                await running.session.aclose()

    def _forget(self) -> None:
        """Drops the oldest programs that have a result, if more are kept than `MOST_KEPT`."""
        ended = [id for id, each in self.known.items() if each.result is not None]
        too_many = max(0, len(self.known) - MOST_KEPT)
        for id in ended[:too_many]:
            del self.known[id]


def guess_interaction(tail: list[str]) -> dict[str, Any]:
    """Guesses from the last lines if the program waits for input."""
    if not tail:
        return {"needs_input": False}
    last = tail[-1].strip().lower()
    if _NUMBER.search(last):
        return dict(_SELECTION)
    if not _asks(last):
        return {"needs_input": False}
    choices = [line for line in tail if _NUMBERED.match(line)]
    if len(choices) >= 2:
        return dict(_SELECTION)
    return dict(_PROMPT)


_SELECTION = {
    "needs_input": True,
    "kind": "selection",
    "hint": "Send the number with skill_write_stdin, submit true.",
}
_PROMPT = {"needs_input": True, "kind": "prompt", "hint": "Answer with skill_write_stdin, submit true."}


def _asks(last: str) -> bool:
    if last.endswith((":", "?", ">", "$", "#")):
        return True
    return "press enter" in last or "type your" in last


async def _settled(running: TerminalProcess, wait_s: float) -> None:
    """Waits until the program ends, or prints something and is then quiet for a moment, or the time is up. Output since
    the last poll counts, because the program may have answered while it was written to."""
    loop = asyncio.get_running_loop()
    until = loop.time() + wait_s
    ended = asyncio.ensure_future(running.session.wait())
    news = asyncio.ensure_future(running.lines.news.wait())
    try:
        quiet_s = wait_s
        while not ended.done():
            left = until - loop.time()
            if left <= 0:
                return
            timeout = min(left, quiet_s)
            await asyncio.wait((news, ended), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if news.done():
                quiet_s = SETTLED_S
                running.lines.news.clear()
                news = asyncio.ensure_future(running.lines.news.wait())
            elif quiet_s == SETTLED_S:
                return
    finally:
        ended.cancel()
        news.cancel()


def _decoded(data: bytes) -> tuple[str, bytes]:
    """Decodes UTF-8. Returns the text, and the bytes of an incomplete last character."""
    for cut in range(min(4, len(data) + 1)):
        end = len(data) - cut
        try:
            text = data[:end].decode()
        except UnicodeDecodeError as error:
            if error.end < end or error.reason != "unexpected end of data":
                break
        else:
            return text, data[end:]
    return data.decode("utf-8", "replace"), b""


def _plain(line: str) -> str:
    """Removes escape sequences and control characters, because models and terminals read this. Text that a progress bar
    wrote over is removed, as on a screen."""
    line = _ESCAPES.sub("", line)
    line = line.rstrip("\r")
    _, _, shown = line.rpartition("\r")
    printable = [char for char in shown if char >= " " or char == "\t"]
    return "".join(printable[:MAX_LINE])
