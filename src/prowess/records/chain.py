"""Links stored events by hashes and verifies the links, so that no line is changed, lost, moved or repeated unnoticed.

`hash` is the sha256 of the line without this field, as ASCII JSON with sorted keys and no spaces; `prev` is the hash of
the line before. Anyone who can write the log can also write a new chain or cut off its end. Only a head (count and
hash) that is stored elsewhere shows this; then the chain is anchored. The layout of a line (spaces, order of keys) is
not part of its content.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from prowess.core.events import EPHEMERAL, PLACE, Envelope, UnknownEvent, render_at, render_event
from prowess.core.values import ChainHead, Lease, SessionKey
from prowess.errors import AuditBroken, SessionConflict, StoreError

GENESIS = ChainHead()
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)


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
    head, events, first_bad, why = after, 0, None, None
    for line in lines:
        events += 1
        if first_bad is None:
            data = _data_of(line)
            why = _fault_of(data, head) or (_moved(data, key) if key else None)
            if why:
                first_bad = head.seq + 1
            else:
                head = ChainHead(seq=data["seq"], hash=data["hash"])
    if anchor and first_bad is None and head != anchor:
        cut = head.seq < anchor.seq
        first_bad = head.seq + 1 if cut else anchor.seq + 1 if head.seq > anchor.seq else head.seq
        why = "the end is cut off" if cut else "the end is not the one that was kept"
    return ChainReport(
        valid=first_bad is None, events=events, first_bad=first_bad, anchored=anchor is not None, why=why
    )


def seal(key: SessionKey, head: ChainHead, events: Sequence[Envelope]) -> tuple[list[Envelope], list[str]]:
    """Returns the events numbered and linked after `head`, and the lines to store. StoreError if an event cannot be
    stored."""
    lines, hashes = link(key, head, events)
    return numbered(head, events, lines, hashes), lines


def link(key: SessionKey, head: ChainHead, events: Sequence[Envelope]) -> tuple[list[str], list[str]]:
    """Returns the lines to store after `head`, and their hashes. StoreError if an event cannot be stored."""
    seq, last = head.seq, head.hash
    lines: list[str] = []
    hashes: list[str] = []
    for envelope in events:
        _check_storable(key, envelope)
        seq += 1
        line = render_event(envelope)
        line["seq"], line["prev"] = seq, last
        line.pop("hash", None)  # set if the envelope was read from another log
        try:
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
        raise SessionConflict(
            f"Session '{key.session}' was taken over; nothing was written.",
            code="lease-lost",
            hint="Take a new lease and read the session again, or leave it to its new owner.",
        )
    if expected_seq != seq:
        raise SessionConflict(
            f"Session '{key.session}' has {seq} events, and {expected_seq} were expected; nothing was written.",
            hint="Read the session again and go on from its end.",
        )


def unknown_session(key: SessionKey) -> StoreError:
    return StoreError(
        f"No session '{key.session}'.",
        code="session-unknown",
        hint="See: prowess sessions list; a run begins a new one.",
    )


def broken_record(key: SessionKey, what: str, hint: str | None = None) -> AuditBroken:
    return AuditBroken(
        f"The record of session '{key.session}' {what}."[:300],
        hint=hint or "Restore the database from a copy, or delete the session.",
    )


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
    hidden = sorted(set(PLACE) & event.data.keys()) if isinstance(event, UnknownEvent) else []
    if event.type in EPHEMERAL:
        why, code = f"An event of type '{event.type}' is only shown, never stored.", "event-ephemeral"
    elif (envelope.session, envelope.tenant, envelope.app, envelope.user) != (
        key.session,
        key.tenant,
        key.app,
        key.user,
    ):
        why, code = f"An event of session '{envelope.session}' does not belong to '{key.session}'.", "event-invalid"
    elif hidden:
        why, code = f"An event of type '{event.type}' has a field '{hidden[0]}', which is reserved.", "event-invalid"
    else:
        return
    raise StoreError(why, code=code, hint="This is a mistake in the program that appends it; nothing was written.")


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
        written, found = data.get(name, "default"), getattr(key, name)
        if written != found:
            return f"of {name} {str(written)[:100]!r}, and stored as one of {found[:100]!r}"
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
