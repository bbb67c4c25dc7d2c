"""Links stored events by hashes and verifies the links, so that no line is changed, lost, moved or repeated unnoticed.

`hash` is the sha256 of the line without this field, as ASCII JSON with sorted keys and no spaces; `prev` is the hash of
the line before. Anyone who can write the log can also write a new chain or cut off its end. Only a head (count and
hash) that is stored elsewhere shows this; then the chain is anchored. The layout of a line (spaces, order of keys) is
not part of its content.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from prowess._internal.light_dataclass import dataclass
from prowess.core.events import EPHEMERAL, PLACE, Envelope, UnknownEvent, render_at, render_event
from prowess.core.values import ChainHead, Lease, SessionKey
from prowess.errors import AuditBroken, SessionConflict, StoreError

GENESIS = ChainHead()
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)
_MISTAKE = "This is a mistake in the program that appends it; nothing was written."


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainReport:
    """Result of a verification. `first_bad` is the number that the first wrong or missing event should have; `why` says
    what is wrong."""

    valid: bool
    events: int
    first_bad: int | None = None
    anchored: bool = False
    why: str | None = None


def verify_chain(
    lines: Iterable[str | Mapping[str, Any] | Envelope],
    anchor: ChainHead | None = None,
    *,
    after: ChainHead = GENESIS,
    key: SessionKey | None = None,
) -> ChainReport:
    """Verifies a session's lines against each other, and if given, against the stored head at their end and the session
    key.

    A run is a slice: `after` is the head before its first line. Prefer stored lines to envelopes: an unknown field is
    part of the hash, but not of the envelope.
    """
    head = after
    events = 0
    first_bad: int | None = None
    why: str | None = None
    for line in lines:
        events += 1
        if first_bad is not None:
            continue
        data = _data_of(line)
        why = _fault_of(data, head)
        if why is None and key is not None:
            why = _moved(data, key)
        if why is not None:
            first_bad = head.seq + 1
        else:
            head = ChainHead(seq=data["seq"], hash=data["hash"])
    if anchor and first_bad is None and head != anchor:
        first_bad, why = _end_fault(head, anchor)
    valid = first_bad is None
    return ChainReport(valid=valid, events=events, first_bad=first_bad, anchored=anchor is not None, why=why)


def _end_fault(head: ChainHead, anchor: ChainHead) -> tuple[int, str]:
    """Returns the first wrong number, and the reason, if the lines do not end at the stored head."""
    if head.seq < anchor.seq:
        return head.seq + 1, "the end is cut off"
    why = "the end is not the one that was kept"
    if head.seq > anchor.seq:
        return anchor.seq + 1, why
    return head.seq, why


def seal(key: SessionKey, head: ChainHead, events: Sequence[Envelope]) -> tuple[list[Envelope], list[str]]:
    """Returns the events numbered and linked after `head`, and the lines to store. StoreError if an event cannot be
    stored."""
    lines, hashes = link(key, head, events)
    sealed = numbered(head, events, lines, hashes)
    return sealed, lines


def link(key: SessionKey, head: ChainHead, events: Sequence[Envelope]) -> tuple[list[str], list[str]]:
    """Returns the lines to store after `head`, and their hashes. StoreError if an event cannot be stored."""
    seq = head.seq
    last = head.hash
    lines: list[str] = []
    hashes: list[str] = []
    for envelope in events:
        _check_storable(key, envelope)
        seq += 1
        try:
            line = render_event(envelope)
            line["seq"] = seq
            line["prev"] = last
            line.pop("hash", None)  # set if the envelope was read from another log
            body = _canonical(line)
            if "\\ud" in body:  # joined halves of a surrogate pair are one character now, which sorts differently
                body = _canonical(json.loads(body))
        except (TypeError, ValueError, RecursionError) as error:
            raise StoreError(
                f"An event of type '{envelope.event.type}' cannot be written as JSON: {error}."[:300],
                code="event-invalid",
                hint="Use text, finite numbers, lists and objects only.",
            ) from error
        last = sha256(body.encode("ascii")).hexdigest()
        hashes.append(last)
        lines.append(f'{body[:-1]},"hash":"{last}"}}')
    return lines, hashes


def numbered(
    head: ChainHead, events: Sequence[Envelope], lines: Sequence[str], hashes: Sequence[str]
) -> list[Envelope]:
    """Returns the same events with their numbers, links and lines."""
    before = (head.hash, *hashes)
    return [
        Envelope(
            seq=head.seq + place + 1,
            at=envelope.at,
            tenant=envelope.tenant,
            app=envelope.app,
            user=envelope.user,
            session=envelope.session,
            run=envelope.run,
            event=envelope.event,
            prev=before[place],
            hash=hashes[place],
            line=lines[place],
        )
        for place, envelope in enumerate(events)
    ]


def check_fence(key: SessionKey, lease: Lease, token: int, expected_seq: int, seq: int) -> None:
    """Checks that the lease is the newest one and that the append starts after the last event. SessionConflict
    otherwise."""
    if lease.key != key or lease.token != token:
        what = f"Session '{key.session}' was taken over; nothing was written."
        hint = "Take a new lease and read the session again, or leave it to its new owner."
        raise SessionConflict(what, code="lease-lost", hint=hint)
    if expected_seq != seq:
        what = f"Session '{key.session}' has {seq} events, and {expected_seq} were expected; nothing was written."
        raise SessionConflict(what, hint="Read the session again and go on from its end.")


def unknown_session(key: SessionKey) -> StoreError:
    what = f"No session '{key.session}'."
    hint = "See: prowess sessions list; a run begins a new one."
    return StoreError(what, code="session-unknown", hint=hint)


def broken_record(key: SessionKey, what: str, hint: str | None = None) -> AuditBroken:
    """Returns the error for a session whose record is damaged."""
    if hint is None:
        hint = "Restore the database from a copy, or delete the session."
    message = f"The record of session '{key.session}' {what}."
    return AuditBroken(message[:300], hint=hint)


def parse_expiry(at: str | None) -> str | None:
    """Returns the time in a form that sorts as text. StoreError if it is not a time or has no time zone."""
    if at is None:
        return None
    try:
        moment = datetime.fromisoformat(at)
        if moment.tzinfo is not None:
            return render_at(max(moment, _FIRST))  # the year 999 would sort after all others
    except (ValueError, OverflowError):
        pass
    raise StoreError(
        f"{at!r} is not a time at which a session can expire."[:300],
        code="expiry-invalid",
        hint="Write it in ISO 8601 with its zone, such as 2026-12-31T23:59:59Z.",
    )


def _check_storable(key: SessionKey, envelope: Envelope) -> None:
    event = envelope.event
    if event.type in EPHEMERAL:
        what = f"An event of type '{event.type}' is only shown, never stored."
        raise StoreError(what, code="event-ephemeral", hint=_MISTAKE)
    if not _belongs(envelope, key):
        what = f"An event of session '{envelope.session}' does not belong to '{key.session}'."
        raise StoreError(what, code="event-invalid", hint=_MISTAKE)
    if isinstance(event, UnknownEvent):
        hidden = sorted(set(PLACE) & event.data.keys())
        if hidden:
            what = f"An event of type '{event.type}' has a field '{hidden[0]}', which is reserved."
            raise StoreError(what, code="event-invalid", hint=_MISTAKE)


def _belongs(envelope: Envelope, key: SessionKey) -> bool:
    """True if the event names the session that it is appended to."""
    if envelope.session != key.session or envelope.user != key.user:
        return False
    return envelope.app == key.app and envelope.tenant == key.tenant


def _data_of(line: str | Mapping[str, Any] | Envelope) -> Any:
    if isinstance(line, Envelope):
        return render_event(line)
    if not isinstance(line, str):
        return line
    try:
        return json.loads(line, object_pairs_hook=without_duplicates)
    except (ValueError, RecursionError):
        return None


def _fault_of(data: Any, before: ChainHead) -> str | None:
    if not isinstance(data, Mapping):
        return "not an event"
    body = {name: value for name, value in data.items() if name != "hash"}
    try:
        found = sha256(_canonical(body).encode("ascii")).hexdigest()
    except (TypeError, ValueError, RecursionError):
        return "not an event"
    if found != data.get("hash"):
        return "edited"
    seq = data.get("seq")
    if type(seq) is not int or seq != before.seq + 1:
        return "missing, moved or repeated"
    if data.get("prev") != before.hash:
        return "not linked to the event before it"
    return None


def _moved(data: Mapping[str, Any], key: SessionKey) -> str | None:
    """Returns a fault if the lines were stored under another key. A whole moved session is still a valid chain; only
    its lines name the real key."""
    for name in ("session", "user", "app", "tenant"):
        written = data.get(name, "default")
        found: str = getattr(key, name)
        if written != found:
            said = str(written)[:100]
            return f"of {name} {said!r}, and stored as one of {found[:100]!r}"
    return None


def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuses an object with two fields of the same name, because readers disagree about such an object."""
    data = dict(pairs)
    if len(data) != len(pairs):
        raise ValueError("a field is there twice")
    return data


def _canonical(data: Any) -> str:
    return _ENCODER.encode(data)


_ENCODER = json.JSONEncoder(ensure_ascii=True, allow_nan=False, sort_keys=True, separators=(",", ":"))
