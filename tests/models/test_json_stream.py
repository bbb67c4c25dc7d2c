"""A part of a JSON document is a part of its value; what is slightly beside JSON is mended, and nothing is made up."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prowess.models.actions.json_repair import find_objects, repair
from prowess.models.actions.partial_json import MAX_DEPTH, TextTail, parse_partial

TEXT = st.text(st.characters(exclude_categories=[]), max_size=12) | st.sampled_from(
    ["", "a.b", "😀", "\ud83d", "\ude00", "\ud83d\ud83d\ude00", '"', "\\", "\\u", "\n\t\x00\x7f", "}{][,:"]
)


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([0, -0.0, 1e300, 5e-324, 10**30])
    | TEXT,
    _containers,
    max_leaves=12,
)


@st.composite
def documents(draw: st.DrawFn) -> tuple[Any, str]:
    """A value without numbers, whose beginning is another number, and a document as somebody might write it."""
    value = draw(st.recursive(st.none() | st.booleans() | TEXT, _containers, max_leaves=12))
    text = json.dumps(
        value,
        ensure_ascii=draw(st.booleans()),
        indent=draw(st.sampled_from([None, 1, "\t"])),
        separators=draw(st.sampled_from([None, (",", ":"), (" ,\r\n", "\t: ")])),
    )
    return value, draw(st.sampled_from(["", " ", "\n\t"])) + text


def has_halves(text: str) -> bool:
    return any("\ud800" <= char <= "\udfff" for char in json.loads(json.dumps(text)))


@given(documents(), st.integers(0, 200))
def test_the_beginning_of_a_document_is_the_beginning_of_its_value(document: tuple[Any, str], cut: int) -> None:
    """A text with half a surrogate pair is refused: no text in it can be shown."""
    _, text = document
    for cut_texts in (False, True):
        with contextlib.suppress(ValueError):
            part = parse_partial(text[:cut], cut_texts=cut_texts)
            assert part in ({}, []) or _is_beginning(part, json.loads(text))


@given(TEXT, st.booleans(), st.integers(1, 5), st.sampled_from(["", '"', '", "z": "more"}']))
def test_a_text_grows_to_exactly_what_it_is(content: str, ascii: bool, size: int, behind: str) -> None:
    raw = json.dumps(content, ensure_ascii=ascii)[1:-1] + behind
    tail = TextTail()
    try:
        told = [tail.feed(raw[start : start + size]) for start in range(0, len(raw), size)]
    except ValueError:
        assert has_halves(content)
    else:
        meant = json.loads(json.dumps(content))
        assert meant.startswith("".join(told))
        assert has_halves(content) or ("".join(told), tail.done) == (meant, bool(behind))


def test_a_text_is_told_as_it_arrives_and_an_escape_when_it_is_whole() -> None:
    tail = TextTail()
    told = [tail.feed(piece) for piece in ["x", "\\", "n\\ud8", "3d", "\\ude", "00", '!"', "}"]]
    assert told == ["x", "", "\n", "", "", "😀", "!", ""]
    assert tail.done


@pytest.mark.parametrize("raw", ["\\x1234567890", "\\u12g4567890ab", "\\ud83d!!!!!!!!!!", "\n", "\x00"])
def test_a_text_that_is_no_json_is_refused(raw: str) -> None:
    with pytest.raises(ValueError):
        TextTail().feed(raw)


def test_a_text_that_is_not_whole_is_told_only_when_it_is_asked_for() -> None:
    text = '{"a": "whole", "b": ["cut \\u00'
    assert parse_partial(text) == {"a": "whole", "b": []}
    assert parse_partial(text, cut_texts=True) == {"a": "whole", "b": ["cut "]}


@pytest.mark.parametrize("text", ["NaN", '{"a": NaN', "[-Infinity", "{a: 1}", "{'a': 1}", "nulx", "[" * 300])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_partial(text)


def test_a_long_text_is_told_piece_by_piece() -> None:
    tail = TextTail()
    for _ in range(1000):
        assert tail.feed("abc\\n\\u00") == "abc\n"
        assert tail.feed("e9") == "é"


# --- repair


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ('{"a": 1}', {"a": 1}),
        ('Sure, here it is:\n```json\n{"a": 1}\n```\nAnything else?', {"a": 1}),
        ('\ufeff\n{"a": 1}', {"a": 1}),
        ('In {curly} and {} words: {"a": {}} ', {"a": {}}),
        ('{"a": [1, 2,], "b": {"c": 3,},}', {"a": [1, 2], "b": {"c": 3}}),
        (
            '{"a": True, "b": False, "c": None, "d": "True, None"}',
            {"a": True, "b": False, "c": None, "d": "True, None"},
        ),
        ('{“a”: 1, “b”: “x y”, "c": "“kept”"}', {"a": 1, "b": "x y", "c": "“kept”"}),
        ('{"a": "two\nlines\tand a tab"}', {"a": "two\nlines\tand a tab"}),
        ('{"a": {"b": [1, {"c": true', {"a": {"b": [1, {"c": True}]}}),
        ('{"a": "not clos', {"a": "not clos"}),
        ('```\n{"a": "not closed, but fenced\n```', {"a": "not closed, but fenced"}),
        ('{"a": 1, ', {"a": 1}),
        ('{"a": 1} {"b": 2}', {"a": 1}),
        ('{"a": "```python\\nx = {}\\n```"}', {"a": "```python\nx = {}\n```"}),
        ('{"a": "\\ud83d\\ude00"', {"a": "😀"}),
    ],
)
def test_a_narrow_repair(written: str, meant: dict[str, Any]) -> None:
    repaired = repair(written)
    assert repaired is not None and json.loads(repaired) == meant


@pytest.mark.parametrize(
    "written",
    [
        *(
            "",
            "no object",
            "[1]",
            '"a"',
            "{",
            "{}",
            "{x}",
            '{"a"',
            '{"a":',
            '{"a": ',
            '{"a": tru',
            '{"a": x}',
            '{"a" 1}',
        ),
        *('{"a": 1,, "b": 2}', "{'a': 1}", '{"a": "he said "no""}', '{"a": "\\x"}', '{"a": 1 "b": 2}', '{"a": 1]'),
        *('{"a": "\\ud8', '{"a": NaN}', '{"a": undefined}', '{"a": 1e}', '{"a": ' * (MAX_DEPTH + 1) + "1", "{,}"),
        '{"plan": broken, "action": {"type": "final_answer", "content": "x"}}',  # what is inside is not the whole
    ],
)
def test_what_would_have_to_be_guessed_is_not_repaired(written: str) -> None:
    assert repair(written) is None


@pytest.mark.parametrize(
    ("written", "nothing", "objects", "all"),
    [
        ('{"a": {"b": "c"}}', True, True, True),
        ('{"a": {"b": "c"}', False, True, True),
        ('{"a": ["b"', False, False, True),  # perhaps there were more
        ('{"a": "b', False, False, True),
        ('{"a": 12', False, False, False),  # half a number is another number
        ('{"a": null', False, True, True),
        ('{"a": 12,', False, True, True),
    ],
)
def test_what_may_be_added_at_the_end_is_for_the_caller_to_say(
    written: str, nothing: bool, objects: bool, all: bool
) -> None:
    assert [repair(written, close=c) is not None for c in ("nothing", "objects", "all")] == [nothing, objects, all]


def test_objects_side_by_side_are_found_one_by_one() -> None:
    assert list(find_objects('first {"a": 1}, then {"b": {"c": 2},} {"d":')) == ['{"a": 1}', '{"b": {"c": 2}}']


@given(st.dictionaries(TEXT, VALUES, min_size=1, max_size=3), st.text("ab {}`\n.", max_size=10), st.booleans())
def test_a_document_survives_what_is_around_it(value: dict[str, Any], prose: str, fenced: bool) -> None:
    text = json.dumps(value)
    written = f"{prose}\n```json\n{text}\n```" if fenced else f"{prose}{text}"
    repaired = repair(written)
    if not fenced or prose.count("`") < 3:
        assert repaired is not None and repr(json.loads(repaired)) == repr(json.loads(text))


@given(st.text('{}[]",:\\ \n“”aTrueNon1.`', max_size=40) | st.text(max_size=20))
@example('{"a":"\\')
@example("{“a”:“")
def test_whatever_is_repaired_is_json(text: str) -> None:
    repaired = repair(text)
    assert repaired is None or isinstance(json.loads(repaired), dict)


@given(st.dictionaries(TEXT, VALUES, min_size=1, max_size=3), st.integers(0, 200))
@example({"a": [1, "b", {"c": "def"}]}, 22)
def test_what_is_left_of_a_document_that_was_cut_off_is_its_beginning(value: dict[str, Any], cut: int) -> None:
    repaired = repair(json.dumps(value, ensure_ascii=False)[:cut])
    assert repaired is None or _is_beginning(json.loads(repaired), value)


def _is_beginning(part: Any, whole: Any) -> bool:
    if isinstance(part, dict) and isinstance(whole, dict):
        return list(part) == list(whole)[: len(part)] and _is_beginning(list(part.values()), list(whole.values()))
    if isinstance(part, list) and isinstance(whole, list):
        same = len(part) <= len(whole) and part[:-1] == whole[: len(part)][:-1]
        return same and (not part or _is_beginning(part[-1], whole[len(part) - 1]))
    if isinstance(part, str) and isinstance(whole, str):
        return whole.startswith(part)
    return part == whole
