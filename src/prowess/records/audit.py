"""Checks that a record is unchanged. Lines that were edited, lost, moved or cut off are found.

A run is a slice of its session's chain, so it is checked together with the event before it and the one after it. A copy
(events.jsonl) is checked by itself, against the head in run.json, and against the log. Hostile data can only make a
record invalid.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from prowess.core.codec import to_json
from prowess.core.events import Envelope, parse_event
from prowess.core.values import ChainHead, OrphanedEvents, SessionKey
from prowess.errors import AuditBroken, StoreError
from prowess.records.chain import GENESIS, verify_chain
from prowess.records.summary import SCHEMA, RunSummary, summarise

if TYPE_CHECKING:
    from prowess.core.ports import EventLog

_MOST_GAPS = 1000  # reading of a session stops after this many gaps
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
        return _text_field(self.data, "run")

    @property
    def hash(self) -> str | None:
        return _text_field(self.data, "hash")


class SessionRecord:
    """All lines that the log has of one session, valid or not. `key` is the key under which it is stored, or None for
    lines from another place."""

    def __init__(self, key: SessionKey | None, lines: Sequence[LogLine], head: ChainHead | None) -> None:
        self.key = key
        self.lines = lines
        self.head = head
        self.envelopes: list[Envelope] = []
        self._places: dict[str, list[int]] = {}  # run -> indexes of its lines
        for place, line in enumerate(lines):
            envelope = _parse(line.data)
            if envelope is not None:
                self.envelopes.append(envelope)
            run = line.run
            if run is not None:
                self._places.setdefault(run, []).append(place)
        self.runs: list[RunSummary] = summarise(self.envelopes)
        self.ends = frozenset(summary.head.hash for summary in self.runs)

    @cached_property
    def faults(self) -> list[str | None]:
        """Fault of each single line: missing, edited, or at the wrong place or in the wrong session."""
        key = self.key
        return [_fault(line, key) for line in self.lines]

    @cached_property
    def breaks(self) -> list[bool]:
        """True for each line that is not linked to the line before it."""
        found: list[bool] = []
        before: Any = GENESIS.hash
        for line in self.lines:
            data = line.data or {}
            is_linked = bool(data) and data.get("prev") == before
            found.append(not is_linked)
            before = data.get("hash")
        return found

    @cached_property
    def last_bad(self) -> int:
        """Number of the last line with a fault, or 0."""
        last = 0
        for line, fault, is_off in zip(self.lines, self.faults, self.breaks, strict=True):
            if fault or is_off:
                last = line.seq
        return last

    def first_bad(self, start: int, end: int) -> tuple[int, str] | None:
        """Returns the first fault among the lines from `start` up to `end`. The links between them count, and so does
        the link of the session's first line."""
        for place in range(start, end):
            seq = self.lines[place].seq
            fault = self.faults[place]
            if fault is not None:
                return seq, fault
            is_first = place == start and place > 0
            if self.breaks[place] and not is_first:
                return seq, "not linked to the event before it"
        return None

    @classmethod
    def of_lines(cls, lines: Sequence[str], head: ChainHead | None = None) -> SessionRecord:
        """Makes a record of lines from another place, such as a copy. `head` is the stored head, if there is one."""
        numbered: list[LogLine] = []
        for text in lines:
            numbered.append(_next_line(numbered, text))
        return cls(None, numbered, head)

    def find(self, run: str) -> RunSummary | None:
        """Returns the summary of the run that `run` names, or of the run that it is a child of."""
        for summary in self.runs:
            if run == summary.run:
                return summary
            if run in summary.children:
                return summary
        return None

    def of(self, summary: RunSummary) -> list[Envelope]:
        """Returns the events of a run and of its children."""
        runs = {summary.run, *summary.children}
        return [each for each in self.envelopes if each.run in runs]

    def slice(self, summary: RunSummary) -> list[LogLine]:
        """Returns the lines from the run's first to its last, and unreadable lines next to them, which may belong to
        it."""
        places: list[int] = []
        for run in (summary.run, *summary.children):
            places += self._places.get(run, ())
        if not places:
            return []
        first = min(places)
        while first > 0 and self.lines[first - 1].run is None:
            first -= 1
        end = max(places) + 1
        while end < len(self.lines) and self.lines[end].run is None:
            end += 1
        return list(self.lines[first:end])


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
                lines.append(_next_line(lines, text))
            break
        except StoreError as error:
            is_gap = isinstance(error, AuditBroken) or error.code in _UNREADABLE
            if not is_gap:
                raise
            gaps += 1
            lines.append(_next_line(lines, None))
    return SessionRecord(key, lines, head)


def _next_line(lines: Sequence[LogLine], text: str | None) -> LogLine:
    """Numbers a text. None stands for a line that is missing or cannot be read."""
    data = None
    if text is not None:
        data = _object(text)
    return LogLine(seq=len(lines) + 1, text=text, data=data)


def explain_orphan(orphan: OrphanedEvents) -> str:
    """Returns the reason why a row or its events are suspicious."""
    parts = {"user": orphan.user, "tenant": orphan.tenant, "app": orphan.app}
    owner = "".join(f" of {part} '{name[:100]}'" for part, name in parts.items() if name != "default")
    if orphan.unnamed:
        return f"its row{owner} has a key that is not text, so no session has it"
    if orphan.expiry is not None:
        return f"its row{owner} has an expiry that was not set by Prowess ({orphan.expiry[:100]}); it does not count"
    number = orphan.events
    events = f"{number} events"
    are = "are"
    if number == 1:
        events = "1 event"
        are = "is"
    if orphan.orphaned:
        return f"its row is gone{owner}, and {events} of it {are} left"
    return f"{events}{owner} outside of what its row counts"


# --- the log ----------------------------------------------------------------------------------------------------------


def check_session(record: SessionRecord) -> Check:
    """Checks the whole chain, from its start to the head in the store."""
    lines = record.lines
    head = record.head
    fault = record.first_bad(0, len(lines))
    if fault is None and head is not None:
        last = lines[-1] if lines else None
        fault = _differs(last, head)
    return _checked(lines, fault, anchored=head is not None)


def _checked(lines: Sequence[LogLine], fault: tuple[int, str] | None, *, anchored: bool) -> Check:
    events = sum(line.text is not None for line in lines)
    if fault is None:
        return Check(valid=True, events=events, anchored=anchored)
    seq, why = fault
    return Check(valid=False, events=events, first_bad=seq, why=why)


def check_run(record: SessionRecord, summary: RunSummary) -> Check:
    """Checks the run's slice and the links at both ends."""
    part = record.slice(summary)
    if not part:
        return Check(valid=False, events=0, why="there is no event of it")
    first = part[0].seq
    last = part[-1].seq
    end = len(record.lines)
    head = record.head
    fault = record.first_bad(max(0, first - 2), min(end, last + 1))  # including one line before and one after
    if fault is None and last == end and head is not None:
        fault = _differs(part[-1], head)
    anchored = fault is None and head is not None and record.last_bad <= last and not _differs(record.lines[-1], head)
    return _checked(part, fault, anchored=anchored)


def _fault(line: LogLine, key: SessionKey | None) -> str | None:
    text = line.text
    if text is None:
        return "missing"
    if line.data is None:
        return "not an event"
    prev = _text_field(line.data, "prev") or ""
    before = ChainHead(seq=line.seq - 1, hash=prev)
    return verify_chain([text], after=before, key=key).why


def _differs(last: LogLine | None, head: ChainHead) -> tuple[int, str] | None:
    """Compares the last line with the stored head. None means that there is no line."""
    seq = 0
    found: str | None = GENESIS.hash
    if last is not None:
        seq = last.seq
        found = last.hash
    if seq < head.seq:
        return seq + 1, "the end is cut off"
    if seq > head.seq or found != head.hash:
        return max(1, seq), "the end is not the one that was kept"
    return None


# --- a copy -----------------------------------------------------------------------------------------------------------


def check_copy(lines: Sequence[str], summary: Mapping[str, Any] | None) -> Check:
    """Checks the lines of an events.jsonl, with the run.json beside it, if there is one."""
    after = kept_head(summary, "after")
    head = kept_head(summary)
    if not lines:
        start = after or GENESIS
        return Check(valid=False, events=0, first_bad=start.seq + 1, why="there is no event in it")
    if after is None:
        after = _before(_object(lines[0]) or {})
    report = verify_chain(lines, head, after=after)
    anchored = report.valid and head is not None
    return Check(
        valid=report.valid,
        events=report.events,
        first_bad=report.first_bad,
        anchored=anchored,
        why=report.why,
    )


def compare_copy(lines: Sequence[str], record: SessionRecord, summary: RunSummary) -> tuple[int, str] | None:
    """Returns the first line of a copy that differs from the log. The layout of a line does not count, and the log may
    have more."""
    theirs = [line for line in record.slice(summary) if line.data is not None]
    for copied, kept in zip(lines, theirs, strict=False):
        data = _object(copied)
        if not data or data != kept.data:
            return kept.seq, "not what the log has"
    if len(lines) > len(theirs):
        last = theirs[-1].seq if theirs else 0
        return last + 1, "not in the log"
    return None


def compare_summary(document: Mapping[str, Any], summary: RunSummary) -> str | None:
    """Returns the difference between run.json and the events, if any. All fields of the schema are compared, and other
    fields are not allowed. The events before the run are unknown, and so is its start."""
    wanted = summary.to_json()
    if document.get("schema") != SCHEMA:
        return f"run.json is of another schema than {SCHEMA}, which is all that this release knows"
    unknown = document.keys() - wanted.keys() - {"store"}  # older records named their store
    if unknown:
        first = min(unknown)[:100]
        return f"run.json has the field '{first}', which {SCHEMA} does not have"
    key_output = wanted["key_output"] or {}
    if document.get("key_output", "") is None and key_output.get("name") == "stdout":
        wanted["key_output"] = None  # older records had no stdout here
    wanted["after"] = to_json(kept_head(document, "after") or GENESIS)  # the chain is checked from there
    wrong: list[str] = []
    for name, value in wanted.items():
        if name not in document or _differ(document[name], to_json(value)):
            wrong.append(name)
    if not wrong:
        return None
    return f"run.json does not have the {' and '.join(wrong)} of the events"


def _differ(one: Any, other: Any) -> bool:
    """Compares as JSON, where true is not 1."""
    text = json.dumps(one, sort_keys=True)
    return text != json.dumps(other, sort_keys=True)


def kept_head(document: Mapping[str, Any] | None, name: str = "head") -> ChainHead | None:
    """Returns the head stored in run.json: at the run's end, or before its start (`after`)."""
    if not document:
        return None
    found = document.get(name)
    if not isinstance(found, Mapping):
        return None
    seq = found.get("seq")
    last = found.get("hash")
    if type(seq) is not int or not isinstance(last, str):
        return None
    return ChainHead(seq=seq, hash=last)


def _before(data: Mapping[str, Any]) -> ChainHead:
    """Returns the start that a copy's first line claims; the copy alone cannot prove it."""
    prev = _text_field(data, "prev")
    if prev is None:
        prev = GENESIS.hash
    before = 0
    seq = data.get("seq")
    if type(seq) is int:
        before = seq - 1
    return ChainHead(seq=before, hash=prev)


def _text_field(data: Mapping[str, Any] | None, name: str) -> str | None:
    if not data:
        return None
    value = data.get(name)
    if isinstance(value, str):
        return value
    return None


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
        envelope = parse_event(data)
        _check_key(envelope.tenant, envelope.app, envelope.user, envelope.session)
    except (ValueError, RecursionError, OverflowError, StoreError):
        return None
    return envelope


@lru_cache(maxsize=64)
def _check_key(tenant: str, app: str, user: str, session: str) -> None:
    """Checks the owner of an event. Cached, because all events of a session have the same one."""
    SessionKey(tenant=tenant, app=app, user=user, session=session)
