"""Whatever is done to one line of a stored session is found, and a cut tail as well when the head was kept apart."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_values import strategy_of

from prowess.core.events import Envelope, NoteAppended, TextDelta, UnknownEvent, parse_event
from prowess.core.values import ChainHead, SessionKey
from prowess.errors import StoreError
from prowess.records.chain import GENESIS, ChainReport, seal, verify_chain

KEY = SessionKey(tenant="acme", session="s")
SOME_JSON = st.dictionaries(st.text(max_size=3).map("x".__add__), strategy_of(Any), max_size=3).filter(
    lambda data: "Infinity" not in json.dumps(data)  # which is not JSON
)


def envelope(event: Any, key: SessionKey = KEY) -> Envelope:
    return Envelope(at="now", tenant=key.tenant, session=key.session, run="r", event=event)


def sealed(*data: dict[str, Any]) -> tuple[list[str], ChainHead]:
    events, lines = seal(KEY, GENESIS, [envelope(UnknownEvent(type="of_tomorrow", data=each)) for each in data])
    last = events[-1]
    assert last.seq and last.hash
    return lines, ChainHead(seq=last.seq, hash=last.hash)


FIVE, HEAD = sealed(*({"n": n, "deep": {"text": "é", "list": [1, 2.5, None, True]}} for n in range(5)))


@given(data=st.lists(SOME_JSON, min_size=1, max_size=5))
def test_what_was_sealed_is_valid(data: list[dict[str, Any]]) -> None:
    lines, head = sealed(*data)
    for form in (lines, [json.loads(line) for line in lines], [parse_event(json.loads(line)) for line in lines]):
        assert verify_chain(form, head) == ChainReport(valid=True, events=len(data), anchored=True)
    assert verify_chain(lines) == ChainReport(valid=True, events=len(data))
    assert [parse_event(json.loads(line)).seq for line in lines] == list(range(1, len(data) + 1))


@given(data=st.data())
def test_any_changed_character_is_found_unless_it_says_the_same(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(FIVE) - 1))
    line = FIVE[at]
    place = data.draw(st.integers(0, len(line) - 1))
    kept = data.draw(st.integers(0, 1))  # replaced or inserted
    changed = line[:place] + data.draw(st.sampled_from(list(' 019aez"{}[]:,.-\\e\x00é'))) + line[place + 1 - kept :]
    try:
        same = pairs_of(changed) == pairs_of(line)
    except ValueError:
        same = False
    report = verify_chain([*FIVE[:at], changed, *FIVE[at + 1 :]])
    assert (report.valid, report.first_bad) == ((True, None) if same else (False, at + 1))


def pairs_of(line: str) -> Any:
    """With types and duplicates: 1 is not True, and a field that is there twice is not there once."""

    def tag(value: Any) -> Any:
        if isinstance(value, tuple):
            return [(name, tag(item)) for name, item in value]
        return [tag(item) for item in value] if isinstance(value, list) else (type(value), repr(value))

    return sorted(tag(json.loads(line, object_pairs_hook=tuple)), key=repr)


@given(data=st.data())
def test_any_changed_value_is_found(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(FIVE) - 1))
    line = json.loads(FIVE[at])
    name = data.draw(st.sampled_from(sorted(line)))
    if data.draw(st.booleans()):
        del line[name]
    else:
        line[name] = data.draw(strategy_of(Any).filter(lambda value: json.dumps(value) != json.dumps(line[name])))
    report = verify_chain([*FIVE[:at], json.dumps(line), *FIVE[at + 1 :]])
    assert (report.valid, report.events, report.first_bad) == (False, 5, at + 1)


@given(at=st.integers(0, 4), to=st.integers(0, 4))
def test_a_dropped_repeated_or_moved_line_is_found(at: int, to: int) -> None:
    dropped = [*FIVE[:at], *FIVE[at + 1 :]]
    assert verify_chain(dropped, HEAD).first_bad == at + 1
    assert verify_chain(dropped).valid == (at == 4)  # a cut tail needs the anchor
    repeated = [*FIVE[: at + 1], *FIVE[at:]]
    assert verify_chain(repeated).first_bad == at + 2
    if at != to:
        swapped = list(FIVE)
        swapped[at], swapped[to] = swapped[to], swapped[at]
        assert verify_chain(swapped).first_bad == min(at, to) + 1


@pytest.mark.parametrize("kept", range(5))
def test_a_cut_tail_is_found_when_anchored(kept: int) -> None:
    report = verify_chain(FIVE[:kept], HEAD)
    assert report == ChainReport(valid=False, events=kept, first_bad=kept + 1, anchored=True, why="the end is cut off")
    assert verify_chain(FIVE[:kept]).valid


def test_a_chain_that_was_written_anew_is_found_when_anchored() -> None:
    forged, _ = sealed(*({"n": n} for n in range(5)))
    assert verify_chain(forged).valid
    assert verify_chain(forged, HEAD).first_bad == 5
    longer, _ = sealed(*({"n": n} for n in range(6)))
    assert verify_chain(longer, HEAD).first_bad == 6


def test_a_run_is_a_slice() -> None:
    before = ChainHead(seq=2, hash=json.loads(FIVE[1])["hash"])
    assert verify_chain(FIVE[2:], HEAD, after=before) == ChainReport(valid=True, events=3, anchored=True)
    assert verify_chain(FIVE[2:]).first_bad == 1
    assert verify_chain(FIVE[2:], after=ChainHead(seq=2, hash="0" * 64)).first_bad == 3


def test_the_hash_covers_who_it_belongs_to_and_what_this_version_does_not_know() -> None:
    line = json.loads(FIVE[0])
    assert line["tenant"] == "acme" and line["prev"] == "0" * 64
    known = json.loads(seal(KEY, GENESIS, [envelope(NoteAppended(text="n"))])[1][0])
    assert verify_chain([known]).valid
    assert verify_chain([known | {"field_of_tomorrow": 1}]).why == "edited"


@pytest.mark.parametrize("line", ["", "[]", "null", '{"seq": NaN}', '{"seq":1,"seq":1}', "[" * 100_000, "x"])
def test_what_is_no_event_is_found(line: str) -> None:
    assert verify_chain([line]).first_bad == 1


@pytest.mark.parametrize(
    ("event", "code"),
    [
        (TextDelta(text="Hel"), "event-ephemeral"),
        (UnknownEvent(type="x", data={"hash": "0"}), "event-invalid"),
        (UnknownEvent(type="x", data={"seq": 7}), "event-invalid"),
        (UnknownEvent(type="x", data={"n": float("nan")}), "event-invalid"),
        (UnknownEvent(type="x", data={"n": b"bytes"}), "event-invalid"),
        (UnknownEvent(type="x", data={"n": 10**5000}), "event-invalid"),
    ],
)
def test_what_cannot_be_kept_is_refused(event: Any, code: str) -> None:
    with pytest.raises(StoreError) as caught:
        seal(KEY, GENESIS, [envelope(event)])
    assert caught.value.code == code and caught.value.hint


def test_an_event_of_another_session_is_refused() -> None:
    with pytest.raises(StoreError) as caught:
        seal(KEY, GENESIS, [envelope(NoteAppended(text="n"), SessionKey(session="s"))])
    assert caught.value.code == "event-invalid"


def test_halves_of_a_character_that_meet_do_not_look_like_an_edit() -> None:
    lines, head = sealed({"x": {"\ud83d" + "\ude00": 1, "\uffff": 2}, "y": "\ud83d"})
    assert verify_chain(lines, head).valid
