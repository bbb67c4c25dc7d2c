"""Every value is the same after a trip through JSON, and data that does not fit says which field."""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prowess.core import values
from prowess.core.codec import from_json, to_json
from prowess.core.values import CatalogPlan, Finding, Message, Outcome, Plan, SessionKey, Usage
from prowess.errors import StoreError

ALL_VALUES = [
    cls
    for cls in (getattr(values, name) for name in values.__all__)
    if dataclasses.is_dataclass(cls) or hasattr(cls, "_fields")
]


@functools.cache
def strategy_of(kind: Any) -> st.SearchStrategy[Any]:
    """Anything that the type allows, with the awkward ends: empty, huge, every character JSON can carry."""
    origin, options = typing.get_origin(kind), typing.get_args(kind)
    if kind is SessionKey:  # the one value that refuses some texts
        part = st.from_regex(r"[^\W_][\w @:/.-]{0,20}\w", fullmatch=True)
        return st.builds(SessionKey, tenant=part, app=part, user=part, session=part)
    if dataclasses.is_dataclass(kind) or hasattr(kind, "_fields"):
        hints = typing.get_type_hints(kind)
        return st.builds(kind, **{n: strategy_of(h) for n, h in hints.items() if typing.get_origin(h) is not ClassVar})
    if kind is Any:
        leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
        return st.recursive(
            leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        )
    if origin is Literal:
        return st.sampled_from(options)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*(st.none() if option is type(None) else strategy_of(option) for option in options))
    if origin is tuple:
        return st.lists(strategy_of(options[0]), max_size=3).map(tuple)
    if origin is dict:
        return st.dictionaries(st.text(max_size=5), strategy_of(options[1]), max_size=3)
    simple = {
        str: st.text(max_size=20),
        int: st.integers(),
        bool: st.booleans(),
        float: st.floats(allow_nan=False, allow_infinity=False),
    }
    return simple[kind]


@pytest.mark.parametrize("cls", ALL_VALUES, ids=lambda cls: cls.__name__)
@settings(deadline=None, max_examples=50, database=None)
@given(data=st.data())
def test_round_trip(cls: type, data: st.DataObject) -> None:
    value = data.draw(strategy_of(cls))
    assert from_json(cls, json.loads(json.dumps(to_json(value)))) == value


@pytest.mark.parametrize("cls", ALL_VALUES, ids=lambda cls: cls.__name__)
@settings(deadline=None, max_examples=50, database=None)
@given(data=st.data())
def test_a_field_of_a_newer_release_is_ignored(cls: type, data: st.DataObject) -> None:
    value = data.draw(strategy_of(cls))
    assert from_json(cls, {**to_json(value), "field_of_tomorrow": [1]}) == value


@settings(deadline=None, database=None)
@given(cls=st.sampled_from(ALL_VALUES), data=strategy_of(Any))
def test_any_json_is_a_value_or_a_value_error(cls: type, data: Any) -> None:
    try:
        value = from_json(cls, data)
    except ValueError as error:
        assert cls.__name__ in str(error)
    else:
        assert isinstance(value, cls)


@pytest.mark.parametrize(
    ("cls", "data", "field"),
    [
        (Finding, [], "Finding must be an object"),
        (Finding, {"code": "x"}, "Finding.severity is missing"),
        (Finding, {"code": "x", "severity": "fatal", "path": "", "message": ""}, "Finding.severity"),
        (Finding, {"code": "x", "severity": [], "path": "", "message": ""}, "Finding.severity"),
        (Finding, {"code": 1, "severity": "info", "path": "", "message": ""}, "Finding.code"),
        (Finding, {"code": "x", "severity": "info", "path": "", "message": "", "line": True}, "Finding.line"),
        (CatalogPlan, {"tokens": {"budget": 1, "used": "many"}}, "CatalogPlan.tokens.used"),
        (CatalogPlan, {"tokens": {"budget": 1, "used": 0}, "shown": "pdf"}, "CatalogPlan.shown"),
        (Message, {"role": "user", "parts": [{"kind": "text"}, {"kind": "smell"}]}, "Message.parts[1].kind"),
        (Plan, {"goal": "g", "constraints": {"max_turns": 1.5}}, "Plan.constraints.max_turns"),
        (Outcome, {"status": "ok", "data": []}, "Outcome.data"),
        (Usage, {"cost": "free"}, "Usage.cost"),
        (SessionKey, {"tenant": "t"}, "SessionKey.session is missing"),
    ],
)
def test_bad_data_names_the_field(cls: type, data: Any, field: str) -> None:
    with pytest.raises(ValueError, match=r"must be|missing") as caught:
        from_json(cls, data)
    assert field in str(caught.value)


def test_values_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Usage().input = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    "text", ["", " a", "a ", "/a", "\\a", "a\nb", "a\x00", "a\x7f", "a\u202eb", "a\ud800", "a" * 201, None, 5]
)
@pytest.mark.parametrize("part", ["tenant", "app", "user", "session"])
def test_a_key_that_cannot_be_stored_cannot_be_made(part: str, text: Any) -> None:
    with pytest.raises(StoreError) as caught:
        SessionKey(**{"session": "s", part: text})
    assert caught.value.code == "session-key-invalid" and f"SessionKey.{part}" in str(caught.value)
    with pytest.raises(ValueError, match=f"SessionKey.{part}"):
        from_json(SessionKey, {"session": "s", part: text})


@pytest.mark.parametrize("text", ["a", "会议 2024", "a/b:c@d", "..", "a" * 200, "-rf", "ünï\N{PILE OF POO}"])
def test_a_key_is_any_text_on_one_line(text: str) -> None:
    assert SessionKey(session=text) == SessionKey(tenant="default", app="default", user="default", session=text)
