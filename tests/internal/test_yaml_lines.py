"""Reader of plain YAML and JSON: the value, and the line of every value."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prowess._internal.yaml_lines import Place, UnreadableText, parse_json, parse_yaml

TEXT = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Cn"], exclude_characters="\ufeff\u2028\u2029\x85"), max_size=6
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=12,
)


def lines_of(value: Any, line: int = 1, place: Place = ()) -> dict[Place, int]:
    """The lines of json.dumps with an indent, by its rules: each entry begins a line, an empty container takes none."""
    found = {place: line}
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in entries:
        inner = lines_of(each, line + 1, (*place, key))
        found |= inner
        line = max(inner.values()) + _closing(each)
    return found


def _closing(value: Any) -> int:
    """Lines with only an end mark after the last entry."""
    if not isinstance(value, (dict, list)) or not value:
        return 0
    return 1 + _closing([*value.values()][-1] if isinstance(value, dict) else value[-1])


@given(VALUES)
def test_every_value_has_its_line(value: Any) -> None:
    for found in (
        parse_json(json.dumps(value, indent=1)),
        parse_json(json.dumps(value, indent=1, ensure_ascii=False)),
        parse_yaml(json.dumps(value, indent=1, ensure_ascii=False)),
    ):
        assert found.value == value and found.lines == lines_of(value)


def test_a_place_that_is_not_there_has_the_line_around_it() -> None:
    found = parse_yaml("a: 1\nb:\n- c: 1\n  d:\n    e: [1,\n    2]\n")
    assert found.value == {"a": 1, "b": [{"c": 1, "d": {"e": [1, 2]}}]}
    assert [
        found.line_of(place) for place in (("b", 0, "d", "e", 1), ("b", 0, "x"), ("b", "union", 0, "d"), ("x",))
    ] == [
        6,
        3,
        4,
        1,
    ]
    assert parse_yaml("").line_of(("a",)) is None


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [("a: 1\na: 2", 2, "twice"), ("a: &x 1", 1, "anchors"), ("a: [1\nb", 2, "expected"), ("a\n---\nb", None, "one")],
)
def test_a_fault_has_its_line(text: str, line: int | None, says: str) -> None:
    with pytest.raises(UnreadableText, match=says) as caught:
        parse_yaml(text)
    assert caught.value.line == line


def test_a_key_that_is_there_twice_in_json_has_its_line() -> None:
    with pytest.raises(UnreadableText, match="twice") as caught:
        parse_json('{"a": 1,\n "b": {"c": 1,\n "c": 2}}')
    assert caught.value.line == 3


def test_values_that_need_far_more_memory_than_their_text_are_refused() -> None:
    with pytest.raises(UnreadableText, match="too many values"):
        parse_json("[" * 49 + "1," * 100_000 + "1" + "]" * 49)
    assert len(parse_json("[" + "1," * 100_000 + "1]").value) == 100_001


@pytest.mark.parametrize("text", ['{"a": "\\ud800"}', '[1,\n{"\\udfff": 1}]'])
def test_half_of_a_surrogate_pair_is_refused(text: str) -> None:
    with pytest.raises(UnreadableText, match="surrogate pair") as caught:
        parse_json(text)
    assert caught.value.line == text.count("\n") + 1
    with pytest.raises(UnreadableText, match="surrogate pair"):
        parse_yaml(text)
    assert parse_json('"\\ud83d\\ude00"').value == "\U0001f600"
