"""@tool: annotations are the schema, docstrings the texts, and what a function returns is what a model is told."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import datetime
import enum
import functools
import gc
import math
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from prowess.core.ports import CallGrant
from prowess.core.values import Outcome, Spawn, ToolCall
from prowess.errors import ConfigError, ToolFailed, ToolRetry
from prowess.tools.function import FunctionTool, tool
from prowess.tools.toolset import Tools
from works import within


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Order(BaseModel):
    item: str
    count: int = 1


class Colour(enum.Enum):
    RED = "red"


class Row(TypedDict):
    name: str


class Tree(BaseModel):
    below: list[Tree] = []


def use(made: Any, /, **args: Any) -> Outcome | Spawn:
    """Through a toolset, as a model would."""

    async def run() -> Outcome | Spawn:
        tools = Tools(made)
        normal = tools.normalise(ToolCall(id="c", tool=made.spec.name, args=args))
        assert tools.normalise(normal) == normal
        return await tools.call(normal, within())

    return asyncio.run(run())


def said(made: Any, /, **args: Any) -> str:
    outcome = use(made, **args)
    assert isinstance(outcome, Outcome) and outcome.status == "ok", outcome
    return outcome.content


# --- what a model sees ------------------------------------------------------------------------------------------------


@tool(read_only=True)
def weather(
    city: str,
    days: Annotated[int, "how far ahead", Field(ge=1, le=7)] = 1,
    unit: Literal["C", "F"] = "C",
    tags: list[str] | None = None,
    at: Point | None = None,
) -> dict[str, Any]:
    """The forecast
    for a city.

    It comes from nowhere.

    Args:
        city (str): which one: its name,
            in English
        unit: of the temperature
        nobody: is no parameter

    Returns:
        city: not this one
    """
    return {"city": city, "days": days, "unit": unit, "tags": tags, "at": at}


def test_the_schema_comes_from_annotations_and_docstring() -> None:
    assert weather.spec.name == "weather" and weather.spec.read_only
    assert weather.spec.description == "The forecast for a city."
    assert weather.spec.parameters == {
        "type": "object",
        "additionalProperties": False,
        "required": ["city"],
        "properties": {
            "city": {"type": "string", "description": "which one: its name, in English"},
            "days": {"type": "integer", "minimum": 1, "maximum": 7, "description": "how far ahead"},
            "unit": {"type": "string", "enum": ["C", "F"], "description": "of the temperature"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "at": {
                "type": "object",
                "additionalProperties": False,
                "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
                "required": ["x"],
            },
        },
    }


def test_it_stays_the_function_that_it_is() -> None:
    assert weather("Rome", days=2)["days"] == 2
    assert weather.__name__ == "weather" and (weather.__doc__ or "").startswith("The forecast")
    assert isinstance(weather, FunctionTool)


def test_sphinx_style_and_given_names() -> None:
    @tool(name="look-up", description="Looks.")
    def any_name(key: str, n: int = 1) -> str:
        """Ignored.

        :param key: what to look for
        :param int n: how often,
            at most
        :returns: something
        """
        return key * n

    properties = any_name.spec.parameters["properties"]
    assert (any_name.spec.name, any_name.spec.description) == ("look-up", "Looks.")
    assert properties["key"]["description"] == "what to look for"
    assert properties["n"]["description"] == "how often, at most"


def test_without_parameters_and_without_a_word() -> None:
    @tool
    def now() -> str:
        return "now"

    assert now.spec.description == "" and now.spec.parameters["properties"] == {} and said(now) == "now"


# --- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "wanted"),
    [
        ({"city": "Rome"}, {"city": "Rome"}),
        ({"city": 5, "days": "3"}, {"city": "5", "days": 3}),
        ({"city": "Rome", "days": None, "unit": None}, {"city": "Rome"}),
        ({"city": "Rome", "tags": "one"}, {"city": "Rome", "tags": ["one"]}),
        ({"city": "Rome", "tags": '["a", "b"]'}, {"city": "Rome", "tags": ["a", "b"]}),
        ({"city": "Rome", "tags": None}, {"city": "Rome", "tags": None}),
        ({"city": "Rome", "at": '{"x": 1}'}, {"city": "Rome", "at": {"x": 1, "y": 0}}),
        ({"city": "[Rome]"}, {"city": "[Rome]"}),
    ],
)
def test_arguments_are_read_as_they_were_meant(args: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert weather.normalise(args) == wanted


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({}, "weather: 'city' is required. Its arguments: city, days, unit, tags, at."),
        ({"city": None}, "'city'"),
        ({"city": "x", "days": 9}, "'days'"),
        ({"city": "x", "unit": "K"}, "'C' or 'F'"),
        ({"cty": "x"}, "did you mean 'city'"),
        ({"city": "x", "at": {"x": "no"}}, "'at.x'"),
        ({"city": "x", "tags": [1, {}]}, "'tags.1'"),
        ({"city": "x", "arg_1": 2, "days": 2}, "arg_1"),
        ({"city": "x", "at": "{broken"}, "'at'"),
    ],
)
def test_what_cannot_be_read_is_said(args: dict[str, Any], words: str) -> None:
    with pytest.raises(ToolRetry) as caught:
        weather.normalise(args)
    assert words in str(caught.value), str(caught.value)


def test_they_arrive_as_what_the_annotations_say() -> None:
    seen: list[Any] = []

    @tool
    def take(
        point: Point, order: Order, row: Row, colour: Colour, when: datetime.date, where: Path, many: set[int]
    ) -> None:
        seen.extend((point, order, row, colour, when, where, many))

    args = {"point": {"x": 1}, "order": {"item": "a"}, "row": {"name": "n"}, "colour": "red"}
    assert said(take, **args, when="2024-02-29", where="a/b", many=[1, 1]) == "done"
    assert seen[:4] == [Point(1), Order(item="a"), {"name": "n"}, Colour.RED]
    assert seen[4:] == [datetime.date(2024, 2, 29), Path("a/b"), {1}]


def test_names_that_mean_something_elsewhere() -> None:
    @tool
    def odd(json: str, copy: int, model_config: str, _private: str, normal: str, ALIASES: str, self_: str = "") -> str:
        return f"{json}{copy}{model_config}{_private}{normal}{ALIASES}"

    assert said(odd, json="a", copy=1, model_config="b", _private="c", normal="d", ALIASES="e") == "a1bcde"


def test_defaults_are_the_functions_own() -> None:
    nothing = object()

    @tool
    def given(a: int = 1, b: Any = nothing, /, c: int | None = 5, *, d: list[int] = []) -> str:  # noqa: B006
        return f"{a} {b is nothing} {c} {d}"

    assert said(given) == "1 True 5 []"
    assert said(given, c=None, d=[1]) == "1 True None [1]"
    assert said(given, b="x") == "1 False 5 []"


def test_a_first_parameter_can_be_what_the_call_is_given() -> None:
    @tool
    def asks(call: CallGrant, x: int = 0) -> str:
        return f"{call.decision.rule} {x}"

    assert list(asks.spec.parameters["properties"]) == ["x"] and said(asks, x=2) == "test 2"
    with pytest.raises(ToolRetry):
        asks.normalise({"call": {}})


# --- what it does and returns -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "content"),
    [
        ("as is\n", "as is\n"),
        ("", ""),
        (None, "done"),
        (3, "3"),
        (True, "true"),
        ({"a": [1, "ü"]}, '{"a":[1,"ü"]}'),
        (Point(1, 2), '{"x":1,"y":2}'),
        ([Order(item="a")], '[{"item":"a","count":1}]'),
        (datetime.date(2024, 1, 2), '"2024-01-02"'),
        (Path("a"), '"a"'),
        ((1, 2), "[1,2]"),
        (math.nan, '"NaN"'),
        ("half \ud800", "half \\ud800"),
    ],
)
def test_what_comes_back(result: Any, content: str) -> None:
    @tool
    def give() -> Any:
        return result

    assert said(give) == content


def test_outcomes_and_spawns_are_passed_on() -> None:
    outcome, spawn = Outcome(status="failed", code="mine", data={"a": 1}), Spawn(skill="a", request="b")
    assert use(tool(name="a")(lambda: outcome)) is outcome and use(tool(name="b")(lambda: spawn)) is spawn


@pytest.mark.parametrize("result", [b"x", bytearray(b"x"), object(), {"a": object()}, {"a": b"\xff"}])
def test_what_is_no_text_is_the_tools_mistake(result: Any) -> None:
    outcome = use(tool(name="give")(lambda: result))
    assert isinstance(outcome, Outcome) and (outcome.status, outcome.code) == ("failed", "tool-result") and outcome.hint


def test_a_result_that_contains_itself() -> None:
    loop: list[Any] = []
    loop.append(loop)
    outcome = use(tool(name="give")(lambda: loop))
    assert isinstance(outcome, Outcome) and outcome.code == "tool-result"


def test_a_large_result_is_kept_whole_and_a_monstrous_one_is_cut() -> None:
    assert len(said(tool(name="a")(lambda: "x" * (4 << 20)))) == 4 << 20
    cut = said(tool(name="a")(lambda: "x" * 34_000_000))
    assert cut.endswith("[cut here: the result has 34000000 characters]") and len(cut) < 33_600_000


def test_a_plain_function_runs_in_a_thread_with_its_context_and_an_async_one_does_not() -> None:
    here = contextvars.ContextVar("here", default="")

    @tool
    def plain() -> str:
        return f"{threading.current_thread() is threading.main_thread()} {here.get()}"

    @tool
    async def awaited(n: int) -> str:
        await asyncio.sleep(0)
        return f"{threading.current_thread() is threading.main_thread()} {n}"

    @tool
    def returns_a_coroutine(n: int) -> Any:
        async def later() -> int:
            return n

        return later()

    here.set("set")
    assert said(plain) == "False set" and said(awaited, n=1) == "True 1" and said(returns_a_coroutine, n=2) == "2"


@pytest.mark.parametrize(
    ("raised", "arrives"),
    [
        (ValueError("no"), ValueError),
        (ToolRetry("again"), ToolRetry),
        (StopIteration("x"), RuntimeError),  # would otherwise never arrive
        (SystemExit(3), ToolFailed),
        (RecursionError(), RecursionError),
    ],
)
def test_what_it_raises_goes_up(raised: BaseException, arrives: type[BaseException]) -> None:
    @tool
    def fails() -> None:
        raise raised

    with pytest.raises(arrives):
        use(fails)


def test_methods_partials_and_objects() -> None:
    class Box:
        def __init__(self, n: int) -> None:
            self.n = n

        def add(self, m: int) -> int:
            """Add to it."""
            return self.n + m

        def __call__(self, m: int) -> int:
            """Call it."""
            return self.n * m

    assert said(tool(Box(2).add), m=3) == "5"
    assert said(tool(name="times")(Box(2)), m=3) == "6"

    def both(a: int, b: int) -> int:
        return a * b

    assert said(tool(name="half")(functools.partial(both, b=5)), a=2) == "10"


def returns_nobody_knows_what(x: int) -> Nowhere:  # noqa: F821
    return x


def test_only_parameters_have_to_be_understood() -> None:
    assert said(tool(returns_nobody_knows_what), x=1) == "1"


def test_functions_around_functions() -> None:
    def inner(x: int) -> int:
        """Inside."""
        return x

    @functools.wraps(inner)
    def outer(*args: Any, **kwargs: Any) -> int:
        return inner(*args, **kwargs) + 1

    class Set:
        @tool
        @staticmethod
        def twice(x: int) -> int:
            return 2 * x

    assert said(tool(outer), x=1) == "2" and said(Set.twice, x=2) == "4" and Set.twice(3) == 6


# --- what cannot be a tool --------------------------------------------------------------------------------------------


def no_annotation(x, y: int): ...
def any_number(*x: int) -> None: ...
def any_names(**x: int) -> None: ...
def within_last(x: int, call: CallGrant) -> None: ...
def no_such_type(x: Nowhere) -> None: ...  # noqa: F821
def of_a_thread(x: threading.Thread) -> None: ...
def of_a_function(x: Sequence[contextvars.Context]) -> None: ...
def of_itself(x: Tree) -> None: ...


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (no_annotation, "'x' has no annotation"),
        (any_number, "*x"),
        (any_names, "*x"),
        (within_last, "not the first"),
        (no_such_type, "Nowhere"),
        (of_a_thread, "annotation"),
        (of_a_function, "annotation"),
        (of_itself, "contains itself"),
    ],
)
def test_a_signature_that_cannot_be_described(function: Any, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        tool(function)
    assert caught.value.code == "tool-signature" and words in caught.value.message and caught.value.hint
    assert function.__name__ in caught.value.message


def test_a_function_without_a_name_needs_one() -> None:
    with pytest.raises(ConfigError) as caught:
        tool(lambda: "x")
    assert caught.value.code == "tool-name" and "name=" in (caught.value.hint or "")
    with pytest.raises(ConfigError):
        tool(name="has spaces")(lambda: "x")


def test_a_function_that_was_changed_is_read_again() -> None:
    def weigh(what: str) -> str:
        """Weigh it."""
        return what

    first = tool(weigh).spec
    assert tool(weigh).spec == first and tool(name="other")(weigh).spec.name == "other"
    weigh.__doc__ = "Weigh it.\n\nArgs:\n    what: a thing\n"
    weigh.__annotations__["what"] = int
    changed = tool(weigh).spec.parameters["properties"]["what"]
    assert changed == {"type": "integer", "description": "a thing"} != first.parameters["properties"]["what"]


def test_a_function_that_is_a_tool_can_be_forgotten() -> None:
    def make() -> Any:
        def inner(what: str) -> str:
            return what

        return inner

    function = make()
    tool(function)
    gone = weakref.ref(function)
    del function
    gc.collect()
    assert gone() is None
