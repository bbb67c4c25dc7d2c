"""The light decorator makes what the standard one makes: each test compares a class with its twin."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import typing
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from prowess._internal import light_dataclass
from prowess.core import events, ports, values

OPTIONS = {"frozen": True, "slots": True, "kw_only": True}
LIGHT: Callable[..., Any] = light_dataclass.dataclass
made: dict[str, list[Any]] = {"light": [], "standard": []}


def base(decorate: Callable[..., Any], kind: str) -> Any:
    @decorate(**OPTIONS)
    class Value:
        """A value."""

        name: str
        number: int = 3
        items: list[int] = dataclasses.field(default_factory=list)
        secret: str = dataclasses.field(default="s", repr=False)
        ignored: float = dataclasses.field(default=0.0, compare=False)
        kind: ClassVar[str] = "value"

        def __post_init__(self) -> None:
            made[kind].append(self.name)

        @property
        def upper(self) -> str:
            return self.name.upper()

    return Value


def child(parent: Any, decorate: Callable[..., Any]) -> Any:
    @decorate(**OPTIONS)
    class Child(parent):
        """A child."""

        more: str = "m"

    return Child


class Plain(base(LIGHT, "light")):  # type: ignore[misc]  # no dataclass itself
    def __init__(self) -> None:
        super().__init__(name="plain")
        self.own = 1


Light, Standard = base(LIGHT, "light"), base(dataclasses.dataclass, "standard")
LightChild, StandardChild = child(Light, LIGHT), child(Standard, dataclasses.dataclass)
MixedChild = child(Light, dataclasses.dataclass)
PAIRS = [(Light, Standard), (LightChild, StandardChild), (MixedChild, StandardChild)]


def attempt(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize(("light", "standard"), PAIRS)
@pytest.mark.parametrize(
    "act",
    [
        lambda cls: repr(cls(name="a")),
        lambda cls: cls(name="a") == cls(name="a", ignored=1.0),
        lambda cls: cls(name="a") == cls(name="b"),
        lambda cls: cls(name="a") == 7,
        lambda cls: cls(name=float("nan")) == cls(name=float("nan")),
        lambda cls: hash(cls(name="a", items=())) == hash(cls(name="a", items=(), ignored=2.0)),
        lambda cls: hash(cls(name="a")),
        lambda cls: cls(),
        lambda cls: cls("a"),
        lambda cls: cls(name="a", nothing=1),
        lambda cls: setattr(cls(name="a"), "name", "b"),
        lambda cls: delattr(cls(name="a"), "name"),
        lambda cls: cls(name="a").items is not cls(name="a").items,
        lambda cls: repr(dataclasses.replace(cls(name="a"), number=9)),
        lambda cls: dataclasses.asdict(cls(name="a")),
        lambda cls: [(each.name, each.type, each.kw_only) for each in dataclasses.fields(cls)],
        lambda cls: str(inspect.signature(cls)),
        lambda cls: typing.get_type_hints(cls, {"ClassVar": ClassVar}),
        lambda cls: repr(copy.copy(cls(name="a"))),
        lambda cls: repr(copy.deepcopy(cls(name="a", items=[1]))),
        lambda cls: cls.__match_args__,
        lambda cls: cls.__dataclass_params__.frozen,
        lambda cls: hasattr(cls(name="a"), "__dict__"),
        lambda cls: cls(name="a").upper + cls.kind,
        lambda cls: cls.__doc__,
    ],
)
def test_it_behaves_as_the_standard_one(light: Any, standard: Any, act: Callable[[Any], Any]) -> None:
    assert attempt(lambda: act(light)) == attempt(lambda: act(standard))


@pytest.mark.parametrize("cls", [Light, LightChild])
def test_a_new_attribute_is_refused(cls: Any) -> None:
    """The standard one raises a TypeError about super() here."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        cls(name="a").new = 1


def test_a_value_that_contains_itself_has_a_repr() -> None:
    value = Light(name="a")
    value.items.append(value)
    assert "..." in repr(value)


def test_a_class_below_that_is_no_dataclass_has_attributes_of_its_own() -> None:
    value = Plain()
    assert value.own == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.name = "b"


def test_a_mutable_class_is_made_with_the_standard_decorator() -> None:
    with pytest.raises(TypeError, match=r"dataclasses\.dataclass"):
        LIGHT(frozen=False, slots=True, kw_only=True)
    with pytest.raises(TypeError, match="frozen"):
        dataclasses.dataclass(slots=True)(type("Mutable", (Light,), {"__annotations__": {}}))
    mutable = dataclasses.make_dataclass("Mutable", ["x"])
    with pytest.raises(TypeError, match="frozen"):
        LIGHT(**OPTIONS)(type("Below", (mutable,), {"__annotations__": {}}))
    assert not mutable.__dataclass_params__.frozen and Light.__dataclass_params__.frozen


@pytest.mark.parametrize("module", [values, events, ports])
def test_our_values_are_pickled(module: Any) -> None:
    call = values.ToolCall(id="1", tool="t", args={"a": 1})
    assert pickle.loads(pickle.dumps(call)) == call
    found = [each for each in vars(module).values() if inspect.isclass(each) and dataclasses.is_dataclass(each)]
    assert found and all("__init__" in vars(each) for each in found)
