"""Writes a copy of each ended run into a folder `<timestamp>-<run>/`, for people and their tools.

`events.jsonl` has the run's lines as in the log, `run.json` has a summary. Large texts of outcomes are also files,
`outputs/<sha256>`, and run.json lists them. A child run is in the folder of its parent.

The log is the truth; a copy is only an export. It is written when the run ends, and again when something comes to the
run later, such as an answer. run.json is written last: if it exists, the copy is complete. A copy that cannot be
written never stops a run: the problem is reported once.

A folder in a project may hold what others put there. So folders are opened by descriptor, no link below `top` is
followed, and each file gets a new name before it is renamed.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from prowess._internal.state_folder import ensure_ignored
from prowess.core.codec import to_json
from prowess.core.events import CallActed, Envelope, RunFinished, RunStarted, parse_event
from prowess.core.values import ChainHead, Lease, OrphanedEvents, SessionInfo, SessionKey
from prowess.errors import AuditBroken, ProwessError, StoreError, in_one_line
from prowess.records.chain import GENESIS
from prowess.records.summary import RunSummary, large_outputs, summarise

if TYPE_CHECKING:
    from prowess.core.ports import EventLog

_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_AT = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(\.\d+)?Z")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_HALF = re.compile(r"\.(?:events\.jsonl|run\.json|[0-9a-f]{64})\.[a-z0-9_]{8}")  # temporary names
_OURS = re.compile(rf"events\.jsonl|run\.json|{_HALF.pattern}")
_OUTPUT = re.compile(rf"[0-9a-f]{{64}}|{_HALF.pattern}")
EVENTS, SUMMARY, OUTPUTS = "events.jsonl", "run.json", "outputs"


class CopyPlace(NamedTuple):
    """Folder of copies: `top`, which a person named, or `.agent/runs` below a project. `writes` is False where copies
    are only removed."""

    top: str
    in_project: bool = False
    writes: bool = True

    @property
    def path(self) -> str:
        return os.path.join(self.top, *self._below)

    @property
    def _below(self) -> tuple[str, ...]:
        return (".agent", "runs") if self.in_project else ()

    @contextmanager
    def opened(self, *names: str, make: bool = False) -> Iterator[int]:
        """Opens a folder of copies. With `make`, creates missing folders, but no `.agent`."""
        if make and not self.in_project:
            os.makedirs(self.top, exist_ok=True)
        folder = os.open(self.top, _FOLDER)
        try:
            for name in (*self._below, *names):
                below = _open_below(folder, name, make=make and name != ".agent")
                os.close(folder)
                folder = below
            yield folder
        finally:
            os.close(folder)


class CopyingLog:
    """Event log that also writes copies of ended runs. `on_problem` is called once if a copy cannot be written, with
    the reason."""

    def __init__(self, inner: EventLog, copies: CopyPlace, *, on_problem: Callable[[str], None]) -> None:
        self.inner = inner
        self.path = str(getattr(inner, "path", ""))
        self._copies = copies
        self._on_problem = on_problem
        self._told = False
        # Runs that have not ended, also child runs: (run at the top, head before its first event).
        self._going_on: dict[tuple[SessionKey, str], tuple[str, ChainHead]] = {}

    async def append(
        self, key: SessionKey, expected_seq: int, lease: Lease, events: Sequence[Envelope]
    ) -> Sequence[Envelope]:
        stored = await self.inner.append(key, expected_seq, lease, events)
        if self._copies.writes:
            for run, group in groupby(stored, key=lambda envelope: envelope.run):
                try:
                    await self._copy(key, run, list(group))
                except (OSError, ProwessError, ValueError) as error:
                    self._tell(run, error)
        return stored

    async def _copy(self, key: SessionKey, run: str, part: Sequence[Envelope]) -> None:
        """Writes the copy of a run that has ended, with this part or before it."""
        first = part[0]
        if isinstance(first.event, RunStarted):
            known = (run, ChainHead(seq=(first.seq or 0) - 1, hash=first.prev or ""))
            if first.event.parent is not None:
                known = self._going_on.get((key, first.event.parent))
            if known is not None:
                self._going_on[key, run] = known
        top, before = self._going_on.get((key, run), ("", GENESIS))
        has_end = any(isinstance(envelope.event, RunFinished) for envelope in part)
        if top and not (has_end and top == run):
            return
        summary, lines = await _slice(self.inner, key, run, before)
        runs = (summary.run, *summary.children)
        if summary.finished_at is None:  # another process began it
            self._going_on |= {(key, each): (summary.run, summary.after) for each in runs}
            return
        for each in runs:
            self._going_on.pop((key, each), None)
        await asyncio.to_thread(write_copy, self._copies, summary, lines)

    def _tell(self, run: str, error: Exception) -> None:
        if not self._told:
            self._told = True
            why = _why(error)
            self._on_problem(f"The copy of run {run!r} in {self._copies.path} was not written: {why}. The log has it.")

    async def delete(self, key: SessionKey) -> None:
        """Deletes the session and the copies of its runs. Tells what stays."""
        runs = await self._find_runs(key)
        await self.inner.delete(key)
        for summary in runs:
            self._going_on.pop((key, summary.run), None)
            name = f"The copy of run {summary.run!r} in {self._copies.path}"
            try:
                left = await asyncio.to_thread(remove_copy, self._copies, summary.run, summary.started_at)
            except (OSError, ProwessError) as error:
                self._on_problem(f"{name} could not be removed: {_why(error)}.")
                continue
            if left:
                self._on_problem(f"{name} could not be removed: {', '.join(left)} stays.")

    async def _find_runs(self, key: SessionKey) -> list[RunSummary]:
        """Returns the runs of a session; none if its record is damaged."""
        try:
            return summarise([envelope async for envelope in self.inner.read(key)])
        except AuditBroken as error:  # a damaged session can still be deleted
            self._on_problem(f"The copies of session '{key.session}' in {self._copies.path} stay: {error.message}")
        except StoreError as error:
            if error.code != "session-unknown":
                raise
        return []  # the row is missing; the inner log knows about leftovers

    # --- as the log inside does it

    async def lease(self, key: SessionKey, owner: str = "") -> Lease:
        return await self.inner.lease(key, owner)

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

    async def close(self) -> None:
        await self.inner.close()


async def _slice(log: EventLog, key: SessionKey, run: str, before: ChainHead) -> tuple[RunSummary, list[str]]:
    """Returns the summary of a run, or of the run that it is a child of, and its lines in the log."""
    lines: list[str] = []
    envelopes: list[Envelope] = []
    async for line in log.lines(key, after_seq=before.seq):
        lines.append(line)
        envelopes.append(parse_event(json.loads(line)))
    for summary in summarise(envelopes, after=before):
        runs = {summary.run, *summary.children}
        if run in runs:
            own = [line for line, envelope in zip(lines, envelopes, strict=True) if envelope.run in runs]
            return summary, own
    raise StoreError(f"The log has no run '{run}'.", code="run-unknown", hint="It was deleted meanwhile.")


def folder_name(run: str, started_at: str) -> str:
    """Returns a name such as `20260102T030405Z-r-1f2e`. StoreError if it would not be a valid folder name."""
    at = _AT.fullmatch(started_at)
    if not at or not _RUN.fullmatch(run):
        what = f"A run {run!r} of {started_at!r} cannot have a folder."[:300]
        hint = "Use letters, digits, dots and dashes for a run, and UTC for its time."
        raise StoreError(what, code="run-name-invalid", hint=hint)
    year, month, day, hour, minute, second, _ = at.groups()
    return f"{year}{month}{day}T{hour}{minute}{second}Z-{run}"


def write_copy(place: CopyPlace, summary: RunSummary, lines: Sequence[str]) -> str:
    """Writes the copy of a run, or writes it again. Returns its folder."""
    name = folder_name(summary.run, summary.started_at)
    with place.opened(name, make=True) as folder:
        if place.in_project:
            ensure_ignored(os.path.join(place.top, ".agent"))
        _remove(folder, _HALF)  # what a killed process left
        with suppress(FileNotFoundError):
            os.unlink(SUMMARY, dir_fd=folder)  # until the copy is complete again
        _write(folder, EVENTS, "".join(f"{line}\n" for line in lines).encode("ascii"))
        if summary.outputs:
            _write_outputs(folder, lines)
        text = json.dumps(to_json(summary.to_json()), indent=1)
        _write(folder, SUMMARY, f"{text}\n".encode())
    return os.path.join(place.path, name)


def _write_outputs(folder: int, lines: Sequence[str]) -> None:
    """Writes one file for each text. The name is the sha256 of the content, so the same text is written once."""
    written: set[str] = set()
    with _opened(folder, OUTPUTS, make=True) as outputs:
        _remove(outputs, _HALF)
        for line in lines:
            event = parse_event(json.loads(line)).event
            if not isinstance(event, CallActed):
                continue
            for output, data in large_outputs(event):
                if output.sha256 not in written:
                    written.add(output.sha256)
                    _write(outputs, output.sha256, data)


def remove_copy(place: CopyPlace, run: str, started_at: str) -> list[str]:
    """Removes the files of a copy, and its folder. Returns the names that stay, because Prowess did not write them."""
    name = folder_name(run, started_at)
    try:
        with place.opened() as runs:
            with _opened(runs, name) as folder:
                with suppress(FileNotFoundError, NotADirectoryError), _opened(folder, OUTPUTS) as outputs:
                    _remove(outputs, _OUTPUT)
                with suppress(OSError):  # it has something else, or is no folder
                    os.rmdir(OUTPUTS, dir_fd=folder)
                _remove(folder, _OURS)
                left = sorted(os.listdir(folder))
            if not left:
                os.rmdir(name, dir_fd=runs)
            return left
    except FileNotFoundError:
        return []


# --- by descriptor ----------------------------------------------------------------------------------------------------


def _open_below(folder: int, name: str, *, make: bool = False) -> int:
    if make:
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=folder)
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except NotADirectoryError:
        raise NotADirectoryError(f"{name} is a link or no folder") from None


@contextmanager
def _opened(folder: int, name: str, *, make: bool = False) -> Iterator[int]:
    below = _open_below(folder, name, make=make)
    try:
        yield below
    finally:
        os.close(below)


def _write(folder: int, name: str, data: bytes) -> None:
    """Writes a file whole or not at all. A link of this name is replaced."""
    temporary = f".{name}.{secrets.token_hex(4)}"
    file = os.open(temporary, _NEW, 0o600, dir_fd=folder)
    try:
        with open(file, "wb") as opened:
            opened.write(data)
            opened.flush()
            os.fsync(file)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)


def _remove(folder: int, names: re.Pattern[str]) -> None:
    """Removes the files of an open folder that have such a name; one that cannot be removed stays."""
    for name in os.listdir(folder):
        if names.fullmatch(name):
            with suppress(OSError):
                os.unlink(name, dir_fd=folder)


def _why(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return in_one_line(error)
