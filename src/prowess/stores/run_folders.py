"""Copies each run into a folder `<timestamp>-<run>/`, for people and their tools.

`events.jsonl` has the run's lines as in the log, `run.json` has a summary. Large texts of outcomes are also files,
`outputs/<sha256>`, and run.json lists them.

The log is authoritative, and the folder is a copy. A copy that cannot be written never stops a run: the problem is
reported once. The copy is repaired from the log when the run ends, or when its session is opened again. A child run is
in the folder of its parent. If run.json exists, the copy is complete. A run.json without a `stop_reason` belongs to a
run that was cut off; it is written when the next run of the session starts.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from typing import TYPE_CHECKING

from prowess._internal.files import read_regular, write_whole
from prowess._internal.state_folder import ensure_ignored
from prowess._internal.worker_thread import OneThread
from prowess.core.codec import to_json
from prowess.core.events import CallActed, Envelope, RunFinished, RunStarted, parse_event
from prowess.core.values import ChainHead, Lease, OrphanedEvents, SessionInfo, SessionKey
from prowess.errors import AuditBroken, ProwessError, StoreError, in_one_line
from prowess.records.chain import GENESIS
from prowess.records.summary import RunSummary, SummaryReader, large_outputs, summarise

if TYPE_CHECKING:
    from prowess.core.ports import EventLog

_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_AT = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(\.\d+)?Z")
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
_OUTPUT = re.compile(r"[0-9a-f]{64}")
_HALF = re.compile(r"\.(?:events\.jsonl|run\.json|[0-9a-f]{64})\.[a-z0-9_]{8}")  # temporary names of _internal.files
EVENTS, SUMMARY, OUTPUTS = "events.jsonl", "run.json", "outputs"


class MirroredLog:
    """Event log that also writes copies of runs. `on_problem` is called once if a copy cannot be written, with the
    reason."""

    def __init__(self, inner: EventLog, folder: str, *, on_problem: Callable[[str], None]) -> None:
        self.inner = inner
        self.folder = os.path.abspath(folder)
        self._on_problem = on_problem
        self._told = False
        self.path = str(getattr(inner, "path", ""))
        self._store = store_id(self.path)
        self._thread = OneThread("prowess-runs")
        self._copies: dict[tuple[SessionKey, str], _Copy] = {}  # by run; a child run shares its parent's copy
        # Last run without an end, and its folder, until another run starts.
        self._cut_off: dict[SessionKey, tuple[str, str]] = {}

    async def append(
        self, key: SessionKey, expected_seq: int, lease: Lease, events: Sequence[Envelope]
    ) -> Sequence[Envelope]:
        stored = await self.inner.append(key, expected_seq, lease, events)
        for run, group in groupby(stored, key=lambda envelope: envelope.run):
            part = list(group)
            try:
                await self._copy(key, run, part)
            except (OSError, ProwessError, ValueError) as error:
                self._tell(run, error)
        return stored

    async def _copy(self, key: SessionKey, run: str, part: Sequence[Envelope]) -> None:
        first = part[0]
        copy = self._copies.get((key, run)) or self._begin(key, first)
        lines = [envelope.line for envelope in part]
        has_lines = all(lines)  # a log of another package may return none
        if copy is None or not has_lines or copy.last_seq + 1 != (first.seq or 0):
            copy = await self._catch_up(key, run)
        else:
            copy.last_seq = part[-1].seq or 0
            self._queue(copy, run, lines)
            if copy.reader is not None:
                for envelope in part:
                    copy.reader.add(envelope)
        is_child = run != copy.run
        if copy.has_ended or (not is_child and _has_end(part)):
            await self._finish(key, copy)
        if not is_child and isinstance(first.event, RunStarted) and key in self._cut_off:
            before, path = self._cut_off.pop(key)
            await self._repair_one(key, before, path, ended=True)

    def _queue(self, copy: _Copy, run: str, lines: Sequence[str]) -> None:
        """Adds lines to a copy, without waiting: the log has the events already, and later copies wait in the queue.

        `broken` is checked in the thread: here, a line that is still being written would look broken.
        """
        added = self._thread.ask(lambda: _add_to(copy, lines))
        added.add_done_callback(lambda done: self._look_at(run, done))

    def _begin(self, key: SessionKey, envelope: Envelope) -> _Copy | None:
        """Starts the copy of a run that begins here. Returns None if the run began earlier."""
        event = envelope.event
        run = envelope.run
        if not isinstance(event, RunStarted):
            return None
        if event.parent is not None:
            copy = self._copies.get((key, event.parent))
        else:
            seq = (envelope.seq or 0) - 1
            after = ChainHead(seq=seq, hash=envelope.prev or "")
            path = self._path(run, envelope.at)
            copy = _Copy(path=path, run=run, after=after, last_seq=seq, reader=SummaryReader(after))
        if copy is not None:
            self._copies[key, run] = copy
        return copy

    def _path(self, run: str, started_at: str) -> str:
        return os.path.join(self.folder, folder_name(run, started_at))

    async def _catch_up(self, key: SessionKey, run: str) -> _Copy:
        """Writes the whole run again from the log, because another process started it or wrote to it."""
        summary, lines = await self._slice(key, run)
        path = self._path(summary.run, summary.started_at)
        copy = _Copy(path=path, run=summary.run, after=summary.after, last_seq=summary.head.seq)
        copy.broken = True
        copy.made = True
        copy.has_ended = summary.finished_at is not None  # ended, and a person answers its question now
        for each in (summary.run, *summary.children):
            self._copies[key, each] = copy
        await self._thread.ask(lambda: _begin_again(path, lines))
        copy.broken = False
        return copy

    async def _finish(self, key: SessionKey, copy: _Copy) -> None:
        """Completes a copy with its summary and its large outputs."""
        events = os.path.join(copy.path, EVENTS)
        lacks = await self._thread.ask(lambda: copy.broken or not os.path.lexists(events))
        lines: Sequence[str] = ()
        if copy.reader is None or lacks or copy.reader.found[0].outputs:
            summary, lines = await self._slice(key, copy.run, copy.after)
        else:
            summary = copy.reader.found[0]
        for each in (summary.run, *summary.children):
            self._copies.pop((key, each), None)
        document = {**summary.to_json(), "store": self._store}
        text = json.dumps(to_json(document), indent=1)

        def finish() -> None:
            if lacks:  # the disk may have room again
                _write(copy.path, lines)
            if summary.outputs:
                _write_outputs(copy.path, lines)
            path = os.path.join(copy.path, SUMMARY)
            write_whole(path, f"{text}\n".encode(), mode=0o600)  # last: the copy is complete

        await self._thread.ask(finish)

    async def _slice(self, key: SessionKey, run: str, after: ChainHead = GENESIS) -> tuple[RunSummary, list[str]]:
        """Returns the summary of a run, and its lines in the log."""
        lines: list[str] = []
        envelopes: list[Envelope] = []
        async for line in self.inner.lines(key, after_seq=after.seq):
            lines.append(line)
            envelopes.append(parse_event(json.loads(line)))
        for summary in summarise(envelopes, after=after):
            runs = {summary.run, *summary.children}
            if run in runs:
                own = [line for line, envelope in zip(lines, envelopes, strict=True) if envelope.run in runs]
                return summary, own
        raise StoreError(f"The log has no run '{run}'.", code="run-unknown", hint="It was deleted meanwhile.")

    async def _repair(self, key: SessionKey) -> None:
        """Repairs the copies of a session from the log, after a full disk or a kill. A copy that differs from the log
        stays unchanged, for verification. A missing copy was removed and stays missing."""
        try:
            begun, ended = await self._frames(key)
        except (StoreError, ValueError, RecursionError):
            return  # the next reader of the session reports the damage
        self._cut_off.pop(key, None)
        last = next(reversed(begun), None)
        for run, started_at in begun.items():
            is_active = run == last and run not in ended
            try:
                path = self._path(run, started_at)
                if not await self._thread.ask(lambda path=path: _is_unfinished(path)):
                    continue
                await self._repair_one(key, run, path, ended=not is_active)
                if is_active:
                    self._cut_off[key] = (run, path)
            except (OSError, ProwessError, ValueError) as error:
                self._tell(run, error)

    async def _frames(self, key: SessionKey) -> tuple[dict[str, str], set[str]]:
        """Returns the starts of a session's runs, without child runs, and the runs that ended."""
        begun: dict[str, str] = {}
        ended: set[str] = set()
        async for line in self.inner.lines(key):
            if '"type":"run_' not in line:
                continue
            envelope = parse_event(json.loads(line))
            event = envelope.event
            if isinstance(event, RunStarted) and event.parent is None:
                begun[envelope.run] = envelope.at
            elif isinstance(event, RunFinished):
                ended.add(envelope.run)
        return begun, ended

    async def _repair_one(self, key: SessionKey, run: str, path: str, *, ended: bool) -> None:
        summary, lines = await self._slice(key, run)
        lacks = await self._thread.ask(lambda: _lacks_the_end(path, lines))
        if lacks is None:
            return
        if ended:
            copy = _Copy(path=path, run=run, after=summary.after, last_seq=summary.head.seq, broken=lacks)
            await self._finish(key, copy)
        elif lacks:
            await self._thread.ask(lambda: _write(path, lines))

    def _look_at(self, run: str, done: asyncio.Future[None]) -> None:
        """Reports lines that could not be added."""
        if done.cancelled():
            return
        error = done.exception()
        if isinstance(error, Exception):
            self._tell(run, error)

    def _tell(self, run: str, error: Exception) -> None:
        if self._told:
            return
        self._told = True
        why = in_one_line(error)
        if isinstance(error, OSError):
            why = (error.strerror or why).lower()
        self._on_problem(f"The copy of run {run!r} in {self.folder} is not complete: {why}. The log has it all.")

    # --- as the log inside does it

    async def lease(self, key: SessionKey, owner: str = "") -> Lease:
        lease = await self.inner.lease(key, owner)
        await self._repair(key)  # nobody else can write to the session now
        return lease

    def read(self, key: SessionKey, *, after_seq: int = 0) -> AsyncIterator[Envelope]:
        return self.inner.read(key, after_seq=after_seq)

    def lines(self, key: SessionKey, *, after_seq: int = 0) -> AsyncIterator[str]:
        return self.inner.lines(key, after_seq=after_seq)

    async def head(self, key: SessionKey) -> ChainHead:
        return await self.inner.head(key)

    async def sessions(
        self, tenant: str = "default", *, app: str | None = None, user: str | None = None, prefix: str = ""
    ) -> Sequence[SessionInfo]:
        return await self.inner.sessions(tenant, app=app, user=user, prefix=prefix)

    async def tenants(self) -> Sequence[str]:
        tell = getattr(self.inner, "tenants", None)
        if tell is None:
            return ["default"]
        return await tell()

    async def orphans(self) -> Sequence[OrphanedEvents]:
        return await self.inner.orphans()

    async def expire(self, key: SessionKey, at: str | None) -> None:
        await self.inner.expire(key, at)

    async def prune_expired(self) -> int:
        """Removes expired sessions. Their copies stay, because nobody asked to delete them."""
        prune = getattr(self.inner, "prune_expired", None)
        if prune is None:
            return 0
        return await prune()

    async def delete(self, key: SessionKey) -> None:
        """Deletes the session and its copies."""
        runs = await self._find_runs(key)
        await self.inner.delete(key)
        self._cut_off.pop(key, None)
        for known in list(self._copies):
            if known[0] == key:
                del self._copies[known]
        for summary in runs:
            try:
                path = self._path(summary.run, summary.started_at)
                await self._thread.ask(lambda path=path: remove_copy(path))
            except (OSError, ProwessError) as error:
                why = in_one_line(error)
                self._on_problem(f"The copy of run {summary.run!r} in {self.folder} could not be removed: {why}.")

    async def _find_runs(self, key: SessionKey) -> list[RunSummary]:
        """Returns the runs of a session; none if its record is damaged."""
        try:
            envelopes = [envelope async for envelope in self.inner.read(key)]
        except AuditBroken as error:  # a damaged session can still be deleted
            self._on_problem(f"The copies of session '{key.session}' in {self.folder} stay: {error.message}")
            return []
        except StoreError as error:
            if error.code != "session-unknown":
                raise
            return []  # the row is missing; the inner log knows about leftovers
        return summarise(envelopes)

    async def settle(self) -> None:
        """Waits until every appended event is copied or reported as not copied."""
        await self._thread.ask(lambda: None)

    async def close(self) -> None:
        await self.settle()
        await self.inner.close()
        self._thread.end()


@dataclass(slots=True, kw_only=True)
class _Copy:
    """Folder that a run is copied to."""

    path: str
    run: str
    after: ChainHead  # head before its first event
    last_seq: int  # last event that it has or should have
    broken: bool = False
    has_ended: bool = False
    made: bool = False  # its file was created; if it is missing now, somebody removed it
    reader: SummaryReader | None = None  # has read all of its events, if this process wrote them


def store_id(path: str) -> str | None:
    """Returns an id of the store without naming its place; None if the store has no place."""
    if not path:
        return None
    if os.path.isabs(path):
        path = os.path.realpath(path)
    data = path.encode("utf-8", "surrogateescape")
    return sha256(data).hexdigest()[:12]


def folder_name(run: str, started_at: str) -> str:
    """Returns a name such as `20260102T030405Z-r-1f2e`. StoreError if it would not be a valid folder name."""
    at = _AT.fullmatch(started_at)
    if not at or not _RUN.fullmatch(run):
        what = f"A run {run!r} of {started_at!r} cannot have a folder."[:300]
        hint = "Use letters, digits, dots and dashes for a run, and UTC for its time."
        raise StoreError(what, code="run-name-invalid", hint=hint)
    year, month, day, hour, minute, second, _ = at.groups()
    return f"{year}{month}{day}T{hour}{minute}{second}Z-{run}"


def _has_end(part: Sequence[Envelope]) -> bool:
    return any(isinstance(envelope.event, RunFinished) for envelope in part)


def _encoded(lines: Sequence[str]) -> bytes:
    """Returns the content of an events.jsonl."""
    text = "".join(f"{line}\n" for line in lines)
    return text.encode("ascii")


# --- in the thread


def _make(path: str) -> None:
    """Creates the folder before anything else. Even a full disk usually has room for it, and an existing folder is
    repaired later."""
    if os.path.islink(path):
        raise OSError(f"{path} is a link")
    os.makedirs(path, mode=0o700, exist_ok=True)
    if not os.path.lexists(os.path.join(path, EVENTS)):
        runs_folder = os.path.dirname(path)
        ensure_ignored(os.path.dirname(runs_folder))


def _add_to(copy: _Copy, lines: Sequence[str]) -> None:
    if copy.broken:  # the missing lines are written when the run ends
        return
    copy.broken = True
    if not copy.made:
        _make(copy.path)
    try:
        _add(copy.path, lines, 0 if copy.made else os.O_CREAT)
    except FileNotFoundError as error:  # a new file would lack the lines before these
        raise OSError("it was removed while the run was going on") from error
    copy.broken = False
    copy.made = True


def _add(path: str, lines: Sequence[str], more: int) -> None:
    """Appends all lines, or none if the system allows it. Half a line is worse than none."""
    data = _encoded(lines)
    events = os.path.join(path, EVENTS)
    file = os.open(events, _APPEND | more, 0o600)
    try:
        before = os.fstat(file).st_size
        if os.write(file, data) != len(data):
            os.ftruncate(file, before)
            raise OSError("the disk is full, or a limit was reached")
    finally:
        os.close(file)


def _begin_again(path: str, lines: Sequence[str]) -> None:
    """Writes the lines again, and removes the old summary."""
    _unlink(os.path.join(path, SUMMARY))  # it does not belong to these lines
    _write(path, lines)


def _is_unfinished(path: str) -> bool:
    """True for a folder of a run without a summary."""
    if not _is_folder(path):
        return False
    summary = os.path.join(path, SUMMARY)
    return not os.path.lexists(summary)


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _lacks_the_end(path: str, lines: Sequence[str]) -> bool | None:
    """True if the copy has less than the log, None if it differs from the log. Also removes temporary files that a kill
    left."""
    _remove_halves(path)
    whole = _encoded(lines)
    events = os.path.join(path, EVENTS)
    try:
        copied = read_regular(events, len(whole))
    except FileNotFoundError:
        copied = b""
    if not whole.startswith(copied):
        return None
    return len(copied) < len(whole)


def _write(path: str, lines: Sequence[str]) -> None:
    """Writes the whole events.jsonl."""
    _make(path)
    events = os.path.join(path, EVENTS)
    write_whole(events, _encoded(lines), mode=0o600)


def _write_outputs(path: str, lines: Sequence[str]) -> None:
    """Writes one file for each text. The name is the sha256 of the content, so the same text is written once."""
    folder = os.path.join(path, OUTPUTS)
    for line in lines:
        event = parse_event(json.loads(line)).event
        if not isinstance(event, CallActed):
            continue
        for output, data in large_outputs(event):
            if os.path.islink(folder):
                raise OSError(f"{folder} is a link")
            os.makedirs(folder, mode=0o700, exist_ok=True)
            file = os.path.join(folder, output.sha256)
            if not os.path.isfile(file) or os.path.getsize(file) != output.size_bytes:
                write_whole(file, data, mode=0o600)


def remove_copy(path: str) -> None:
    """Removes our own files, and the folder if nothing else is in it."""
    if os.path.islink(path):
        raise OSError(f"{path} is a link")
    folder = os.path.join(path, OUTPUTS)
    _remove_halves(path)
    if _is_folder(folder):
        _remove_matching(folder, _OUTPUT)
        _remove_empty(folder)
    for name in (EVENTS, SUMMARY):
        _unlink(os.path.join(path, name))
    _remove_empty(path)


def _remove_halves(path: str) -> None:
    """Removes temporary files that a killed process left."""
    for folder in (path, os.path.join(path, OUTPUTS)):
        if _is_folder(folder):
            _remove_matching(folder, _HALF)


def _remove_matching(folder: str, names: re.Pattern[str]) -> None:
    """Removes the files of a folder that have such a name."""
    for name in os.listdir(folder):
        if names.fullmatch(name):
            _unlink(os.path.join(folder, name))


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _remove_empty(path: str) -> None:
    try:
        os.rmdir(path)
    except FileNotFoundError:
        pass
