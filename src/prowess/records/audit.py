"""Checks that a record is unchanged. Lines that were edited, lost, moved or cut off are found.

A run is a slice of its session's chain, so it is checked together with the event before it and the one after it. A copy
(events.jsonl) is checked by itself, against the head in run.json, and against the log. Hostile data can only make a
record invalid.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from prowess.core.codec import to_json
from prowess.core.events import Envelope, parse_event
from prowess.core.ports import EventLog
from prowess.core.values import ChainHead, OrphanedEvents, SessionKey
from prowess.errors import AuditBroken, StoreError
from prowess.records.chain import GENESIS, verify_chain
from prowess.records.summary import SCHEMA, RunSummary, summarise

_MOST_GAPS = 1000  # reading of a session stops after this many gaps
LACKS = "missing, and the log has it"  # about a copy: the lines that it has are right
_UNREADABLE = ("store-error", "store-corrupt")  # text that is not UTF-8, or a damaged page


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Result of a check. `first_bad` is the number that the first wrong or missing event should have; it is None if the
    problem is not about one event. `anchored`: a head that is stored apart from the lines agrees with them."""

    valid: bool
    events: int
    first_bad: int | None = None
    anchored: bool = False
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """Line of the log with its number. `text` is None if the line is missing; `data` is None if it is not a JSON
    object."""

    seq: int
    text: str | None
    data: Mapping[str, Any] | None

    @property
    def run(self) -> str | None:
        run = self.data.get("run") if self.data else None
        return run if isinstance(run, str) else None


class SessionRecord:
    """All lines that the log has of one session, valid or not. `key` is the key under which it is stored, or None for
    lines from another place."""

    def __init__(self, key: SessionKey | None, lines: Sequence[LogLine], head: ChainHead | None) -> None:
        self.key, self.lines, self.head = key, lines, head
        self.envelopes: list[Envelope] = []
        self._places: dict[str, list[int]] = {}  # run -> indexes of its lines
        for place, line in enumerate(lines):
            envelope = _parse(line.data)
            if envelope is not None:
                self.envelopes.append(envelope)
            if (run := line.run) is not None:
                self._places.setdefault(run, []).append(place)
        self.runs: list[RunSummary] = summarise(self.envelopes)
        self.ends = frozenset(summary.head.hash for summary in self.runs)

    @cached_property
    def faults(self) -> list[str | None]:
        """Fault of each single line: missing, edited, or at the wrong place or in the wrong session."""
        return [_fault(line, self.key) for line in self.lines]

    @cached_property
    def breaks(self) -> list[bool]:
        """True for each line that is not linked to the line before it."""
        hashes = [GENESIS.hash, *(line.data.get("hash") if line.data else None for line in self.lines)]
        return [
            not line.data or line.data.get("prev") != before
            for line, before in zip(self.lines, hashes[:-1], strict=True)
        ]

    @cached_property
    def last_bad(self) -> int:
        """Number of the last line with a fault, or 0."""
        bad = [line.seq for line, fault, off in zip(self.lines, self.faults, self.breaks, strict=True) if fault or off]
        return bad[-1] if bad else 0

    def first_bad(self, start: int, end: int) -> tuple[int, str] | None:
        """Returns the first fault among the lines from `start` up to `end`. The links between them count, and so does
        the link of the session's first line."""
        for place in range(start, end):
            if (fault := self.faults[place]) is not None:
                return self.lines[place].seq, fault
            if self.breaks[place] and (place > start or place == 0):
                return self.lines[place].seq, "not linked to the event before it"
        return None

    @classmethod
    def of_lines(cls, lines: Sequence[str], head: ChainHead | None = None) -> SessionRecord:
        """Makes a record of lines from another place, such as a copy. `head` is the stored head, if there is one."""
        numbered = [LogLine(seq=place, text=text, data=_object(text)) for place, text in enumerate(lines, 1)]
        return cls(None, numbered, head)

    def find(self, run: str) -> RunSummary | None:
        return next((summary for summary in self.runs if run == summary.run or run in summary.children), None)

    def of(self, summary: RunSummary) -> list[Envelope]:
        runs = {summary.run, *summary.children}
        return [envelope for envelope in self.envelopes if envelope.run in runs]

    def slice(self, summary: RunSummary) -> list[LogLine]:
        """Returns the lines from the run's first to its last, and unreadable lines next to them, which may belong to
        it."""
        places = [place for run in (summary.run, *summary.children) for place in self._places.get(run, ())]
        if not places:
            return []
        first, last = min(places), max(places)
        while first > 0 and self.lines[first - 1].run is None:
            first -= 1
        while last + 1 < len(self.lines) and self.lines[last + 1].run is None:
            last += 1
        return list(self.lines[first : last + 1])


async def read_session(log: EventLog, key: SessionKey) -> SessionRecord:
    """Reads all lines, and continues after missing ones."""
    head = await log.head(key)
    lines: list[LogLine] = []
    gaps = 0
    if type(head.seq) is not int:  # SQLite stores a value of any type
        return SessionRecord(key, lines, ChainHead(seq=-1, hash="not a number"))
    while len(lines) < head.seq and gaps <= _MOST_GAPS:
        try:
            async for text in log.lines(key, after_seq=len(lines)):
                lines.append(LogLine(seq=len(lines) + 1, text=text, data=_object(text)))
            break
        except StoreError as error:
            if not isinstance(error, AuditBroken) and error.code not in _UNREADABLE:
                raise
            gaps += 1
            lines.append(LogLine(seq=len(lines) + 1, text=None, data=None))
    return SessionRecord(key, lines, head)


def explain_orphan(orphan: OrphanedEvents) -> str:
    owner = "" if orphan.tenant == "default" else f" of tenant '{orphan.tenant}'"
    if orphan.expiry is not None:
        return f"its row{owner} has an expiry that was not set by Prowess ({orphan.expiry[:100]}); it does not count"
    events = f"{orphan.events} {'event' if orphan.events == 1 else 'events'}"
    if orphan.orphaned:
        return f"its row is gone{owner}, and {events} of it {'is' if orphan.events == 1 else 'are'} left"
    return f"{events}{owner} outside of what its row counts"


# --- the log ----------------------------------------------------------------------------------------------------------


def check_session(record: SessionRecord) -> Check:
    """Checks the whole chain, from its start to the head in the store."""
    events = sum(line.text is not None for line in record.lines)
    fault = record.first_bad(0, len(record.lines))
    if fault is None and record.head is not None:
        fault = _differs(record.lines[-1] if record.lines else None, record.head)
    if fault is not None:
        return Check(valid=False, events=events, first_bad=fault[0], why=fault[1])
    return Check(valid=True, events=events, anchored=record.head is not None)


def check_run(record: SessionRecord, summary: RunSummary, kept: ChainHead | None = None) -> Check:
    """Checks the run's slice and the links at both ends. `kept` is the head that was stored elsewhere when the run
    ended."""
    part = record.slice(summary)
    events = sum(line.text is not None for line in part)
    if not part:
        return Check(valid=False, events=0, why="there is no event of it")
    first, last = part[0].seq, part[-1].seq
    end = len(record.lines)
    fault = record.first_bad(max(0, first - 2), min(end, last + 1))  # including one line before and one after
    if fault is None and last == end and record.head is not None:
        fault = _differs(part[-1], record.head)
    if fault is None and kept is not None:
        fault = _lacks(record, kept)
    if fault is not None:
        return Check(valid=False, events=events, first_bad=fault[0], why=fault[1])
    to_the_head = record.head is not None and record.last_bad <= last and not _differs(record.lines[-1], record.head)
    return Check(valid=True, events=events, anchored=kept is not None or to_the_head)


def _fault(line: LogLine, key: SessionKey | None) -> str | None:
    if line.text is None or line.data is None:
        return "missing" if line.text is None else "not an event"
    prev = line.data.get("prev")
    before = ChainHead(seq=line.seq - 1, hash=prev if isinstance(prev, str) else "")
    return verify_chain([line.text], after=before, key=key).why


def _differs(last: LogLine | None, head: ChainHead) -> tuple[int, str] | None:
    """Compares the last line with the stored head. None means that there is no line."""
    seq, found = (last.seq, last.data.get("hash") if last.data else None) if last else (0, GENESIS.hash)
    if seq < head.seq:
        return seq + 1, "the end is cut off"
    if seq > head.seq or found != head.hash:
        return max(1, seq), "the end is not the one that was kept"
    return None


def _lacks(record: SessionRecord, kept: ChainHead) -> tuple[int, str] | None:
    if kept.seq > len(record.lines):
        return len(record.lines) + 1, "the end is cut off: run.json has a later one"
    line = record.lines[kept.seq - 1] if kept.seq > 0 else None
    if line is None or not line.data or line.data.get("hash") != kept.hash:
        return kept.seq, "not the end that run.json has kept"
    return None


# --- a copy -----------------------------------------------------------------------------------------------------------


def check_copy(lines: Sequence[str], summary: Mapping[str, Any] | None) -> Check:
    """Checks the lines of an events.jsonl, with the run.json beside it, if there is one."""
    after, head = kept_head(summary, "after"), kept_head(summary)
    if not lines:
        return Check(valid=False, events=0, first_bad=after.seq + 1 if after else 1, why="there is no event in it")
    if after is None:
        after = _before(_object(lines[0]))
    report = verify_chain(lines, head, after=after)
    valid = report.valid
    return Check(
        valid=valid,
        events=report.events,
        first_bad=report.first_bad,
        anchored=valid and head is not None,
        why=report.why,
    )


def compare_copy(lines: Sequence[str], record: SessionRecord, summary: RunSummary) -> tuple[int, str] | None:
    """Returns the first line of a copy that differs from the log. The layout of a line does not count."""
    theirs = [line for line in record.slice(summary) if line.data is not None]
    for copied, kept in zip(lines, theirs, strict=False):
        data = _object(copied)
        if data is None or not kept.data or dict(data) != dict(kept.data):
            return kept.seq, "not what the log has"
    if len(lines) < len(theirs):
        return theirs[len(lines)].seq, LACKS
    if len(lines) > len(theirs):
        return (theirs[-1].seq if theirs else 0) + 1, "not in the log"
    return None


def compare_summary(document: Mapping[str, Any], summary: RunSummary, *, alone: bool = False) -> str | None:
    """Returns the difference between run.json and the events, if any. All fields of the schema are compared, and other
    fields are not allowed. With `alone` the events before the run are unknown, and so is its start."""
    wanted = summary.to_json()
    if document.get("schema") != SCHEMA:
        return f"run.json is of another schema than {SCHEMA}, which is all that this release knows"
    if unknown := sorted(document.keys() - wanted.keys() - {"store"}):  # the events do not name the store
        return f"run.json has the field '{unknown[0][:100]}', which {SCHEMA} does not have"
    if document.get("key_output", "") is None and (wanted["key_output"] or {}).get("name") == "stdout":
        wanted["key_output"] = None  # older records had no stdout here
    names = [name for name in wanted if not (alone and name == "after")]
    wrong = [name for name in names if name not in document or _differ(document[name], to_json(wanted[name]))]
    return f"run.json does not have the {' and '.join(wrong)} of the events" if wrong else None


def _differ(one: Any, other: Any) -> bool:
    """Compares as JSON, where true is not 1."""
    return json.dumps(one, sort_keys=True) != json.dumps(other, sort_keys=True)


def kept_head(document: Mapping[str, Any] | None, name: str = "head") -> ChainHead | None:
    """Returns the head stored in run.json: at the run's end, or before its start (`after`)."""
    found = document.get(name) if document else None
    if not isinstance(found, Mapping):
        return None
    seq, last = found.get("seq"), found.get("hash")
    return ChainHead(seq=seq, hash=last) if type(seq) is int and isinstance(last, str) else None


def _before(data: Mapping[str, Any] | None) -> ChainHead:
    """Returns the start that a copy's first line claims; the copy alone cannot prove it."""
    seq, prev = (data.get("seq"), data.get("prev")) if data else (None, None)
    return ChainHead(seq=seq - 1 if type(seq) is int else 0, hash=prev if isinstance(prev, str) else GENESIS.hash)


def _object(text: str) -> Mapping[str, Any] | None:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _parse(data: Mapping[str, Any] | None) -> Envelope | None:
    if data is None:
        return None
    try:
        return parse_event(data)
    except (ValueError, RecursionError, OverflowError):
        return None
