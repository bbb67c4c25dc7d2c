"""A JSON document in pieces is the document; what is slightly beside JSON is mended, and nothing is made up."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prowess.models.actions.json_repair import find_objects, repair
from prowess.models.actions.partial_json import MAX_DEPTH, Completed, Grown, JsonStream

TEXT = st.text(st.characters(exclude_categories=[]), max_size=12) | st.sampled_from(
    ["", "a.b", "😀", "\ud83d", "\ude00", "\ud83d\ud83d\ude00", '"', "\\", "\\u", "\n\t\x00\x7f", "}{][,:"]
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([0, -0.0, 1e300, 5e-324, 10**30])
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A document as somebody might write it, and the pieces it comes in."""
    value = draw(VALUES)
    text = json.dumps(
        value,
        ensure_ascii=draw(st.booleans()),
        indent=draw(st.sampled_from([None, 1, "\t"])),
        separators=draw(st.sampled_from([None, (",", ":"), (" ,\r\n", "\t: ")])),
    )
    text = draw(st.sampled_from(["", " ", "\n\t"])) + text + draw(st.sampled_from(["", " \n"]))
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    if draw(st.booleans()):
        cuts = list(range(len(text)))  # one character at a time
    return text, [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@given(documents())
def test_pieces_of_any_size_are_the_whole(document: tuple[str, list[str]]) -> None:
    text, pieces = document
    stream = JsonStream(["a", "a.b", "0"])
    for piece in pieces:
        stream.feed(piece)
    assert repr(stream.value()) == repr(json.loads(text))  # by repr: -0.0, 1 and True are all different


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), st.data())
def test_bytes_may_be_cut_inside_a_character(text: str, data: st.DataObject) -> None:
    raw = json.dumps({"a": text}, ensure_ascii=False).encode()
    cut = data.draw(st.integers(0, len(raw)))
    stream = JsonStream(["a"])
    events = [*stream.feed(raw[:cut]), *stream.feed(raw[cut:])]
    assert stream.value() == {"a": text}
    assert "".join(event.text for event in events if isinstance(event, Grown)) == text


@given(VALUES, TEXT, st.booleans(), st.integers(1, 5))
def test_a_watched_text_grows_to_exactly_what_it_is(other: Any, content: str, ascii: bool, size: int) -> None:
    text = json.dumps({"x": other, "action": {"type": "t", "content": content, "z": [content]}}, ensure_ascii=ascii)
    stream = JsonStream(["action.content", "action.z.0", "action"])
    events: list[Any] = []
    for start in range(0, len(text), size):
        events += stream.feed(text[start : start + size])
    for path in (("action", "content"), ("action", "z", "0")):
        mine = [event for event in events if event.path == path]
        assert isinstance(mine[-1], Completed) and mine[-1].value == json.loads(text)["action"]["content"]
        assert "".join(event.text for event in mine[:-1]) == mine[-1].value
    assert events[-1] == Completed(("action",), json.loads(text)["action"])


def test_a_text_is_told_as_it_arrives_and_an_escape_when_it_is_whole() -> None:
    stream = JsonStream(["a"])
    told = [stream.feed(piece) for piece in ['{"a": "x', "\\", "n\\ud8", "3d", "\\ude", "00", '\\ud83d!"', "}"]]
    path = ("a",)
    assert told == [
        [Grown(path, "x")],
        [],
        [Grown(path, "\n")],
        [],
        [],
        [Grown(path, "😀")],
        [Grown(path, "\ud83d!"), Completed(path, "\n😀\ud83d!".replace("\n", "x\n", 1))],
        [],
    ]
    assert stream.done


def test_only_the_path_itself_is_watched() -> None:
    stream = JsonStream(["action.type"])
    events = stream.feed(
        '{"action.type": "no", "type": "no", "x": {"action": {"type": "no"}}, "action": {"type": "yes"}}'
    )
    assert [event for event in events if isinstance(event, Completed)] == [Completed(("action", "type"), "yes")]


def test_every_type_is_told_when_it_is_complete() -> None:
    stream = JsonStream(["a", "b", "c.0", "d"])
    events = stream.feed('{"a": 12') + stream.feed('3, "b": nul') + stream.feed('l, "c": [true], "d": {"e": []}}')
    assert events == [
        Completed(("a",), 123),
        Completed(("b",), None),
        Completed(("c", "0"), True),
        Completed(("d",), {"e": []}),
    ]


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "{", "[", '"', "[1", '{"a"', '{"a":', '{"a":1', '{"a":1,', "-", "tru", '"\\', '"\\u12', '"\\ud83d'),
        *(
            "{a: 1}",
            "[1,]",
            '{"a":1,}',
            "{,}",
            "[,]",
            '{"a" 1}',
            "[1 2]",
            "{'a': 1}",
            "nul",
            "True",
            "NaN",
            "-Infinity",
        ),
        *(
            "01",
            "1.",
            ".5",
            "+1",
            "1e",
            "--1",
            "0x1",
            "1_0",
            "١",
            '"\n"',
            '"\\x"',
            '"\\u12g4"',
            "\ufeff1",
            "1 2",
            "{}{}",
        ),
        *(
            '"a" x',
            "[1}",
            '{"a":1]',
            "]",
            "}",
            ":",
            ",",
            "/* */ 1",
            "{1: 2}",
            '{"a"}',
            "[" * (MAX_DEPTH + 1),
            "9" * 5000,
        ),
    ],
)
def test_what_is_no_json_is_refused(text: str) -> None:
    stream = JsonStream()
    with pytest.raises(ValueError):
        for char in text:
            stream.feed(char)
        stream.value()


def test_what_comes_after_the_document_is_kept() -> None:
    stream = JsonStream()
    stream.feed('{"a": 1} and ')
    stream.feed("more")
    assert stream.done and stream.rest == " and more"
    with pytest.raises(ValueError, match="more after the document"):
        stream.value()


def test_the_error_names_the_place_in_the_whole() -> None:
    stream = JsonStream()
    stream.feed('{"a": ')
    with pytest.raises(ValueError, match="'x' begins no value, at character 6"):
        stream.feed("x")


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
