"""What is wrong with a JSON text is said with its place, and in few words, whatever the text is."""

from __future__ import annotations

import json
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prowess._internal.json_values import INVALID_JSON, describe_fault, ends_early, find_invalid, parse_object

SCALARS = st.none() | st.booleans() | st.integers() | st.text()
OBJECTS = st.dictionaries(st.text(), SCALARS | st.lists(SCALARS) | st.dictionaries(st.text(), SCALARS), min_size=1)
TEXTS = st.text() | st.text('{}[]:,"\\ntruef 01.', max_size=60)
PLACE = re.compile(r" at (?:character (\d+) of (\d+)|its end)(?:, after `(.*?)`)?(?:, before `(.*)`)?\Z", re.DOTALL)


@given(TEXTS)
def test_every_fault_has_a_place_and_is_short(text: str) -> None:
    args = parse_object(text)
    if find_invalid(args) is None:
        assert args == json.loads(text)
        return
    assert args == {INVALID_JSON: text}
    fault = describe_fault(text)
    assert len(fault) < 700 and fault.isprintable()
    place = PLACE.search(fault)
    if place is None:
        return
    at = int(place[1]) - 1 if place[1] else len(text)
    assert place[2] in (None, str(len(text))) and 0 <= at <= len(text)
    if text.isprintable() and "`" not in text:
        assert text[:at].endswith(place[3] or "") and text[at:].startswith(place[4] or "")
        assert bool(place[4]) == (at < len(text))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"a": 1e999}', "1e999 is too large a number"),
        ('{"a": "\\ud83d"}', "half of a surrogate pair, as `\\ud83d`, is no character"),
        ('{"a": ' + "[" * 100 + "]" * 100 + "}", "it is nested too deeply"),
        ('{"a": ' + "[" * 5000 + "]" * 5000 + "}", "it is nested too deeply"),
    ],
)
def test_no_object_that_a_log_could_not_store(text: str, fault: str) -> None:
    assert parse_object(text) == {INVALID_JSON: text}
    assert describe_fault(text) == fault


def test_depth_is_counted_and_not_guessed() -> None:
    wide = json.dumps({"a": [[] for _ in range(1000)], "b": "[" * 500, "c": "\U0001f600"})
    assert parse_object(wide) == json.loads(wide)
    deep = '{"a": ' + "[" * 99 + "]" * 99 + "}"
    assert parse_object(deep) == json.loads(deep)


@given(OBJECTS, st.data())
def test_an_object_that_was_cut_ends_early(value: dict[str, object], data: st.DataObject) -> None:
    whole = json.dumps(value)
    cut = whole[: data.draw(st.integers(1, len(whole) - 1))]
    assert not ends_early(whole) and parse_object(whole) == value
    assert not ends_early(f"{whole} more")
    assert PLACE.search(describe_fault(cut))
    assert ends_early(cut)


def test_long_texts_take_no_longer_than_reading_them() -> None:
    for text in ("[" * 1_000_000, '{"a": "' + "x" * 5_000_000, '{"a": ' + "1," * 1_000_000, "\n" * 2_000_000 + "{"):
        began = time.process_time()
        assert len(describe_fault(text)) < 300
        ends_early(text)
        assert time.process_time() - began < 5
