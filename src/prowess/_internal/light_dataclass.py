"""`dataclass` for values that every command imports: the same decorator, in a third of the time.

The standard decorator compiles six methods for each frozen class. This one compiles `__init__`, and the classes share
the rest. Type checkers see the standard one.
"""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from reprlib import recursive_repr

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass as dataclass
    from typing import Any
else:

    def dataclass(*, frozen: bool, slots: bool, kw_only: bool) -> Callable[[type], type]:
        if not (frozen and slots and kw_only):
            raise TypeError("Use dataclasses.dataclass: here a class is frozen, with slots and keywords only.")
        return _make


def _make(cls: type) -> type:
    above = [vars(base)["__dataclass_params__"] for base in cls.__mro__ if "__dataclass_params__" in vars(base)]
    if not all(params.frozen for params in above):
        raise TypeError("cannot inherit frozen dataclass from a non-frozen one")
    for params in above:
        params.frozen = False  # for a moment: the standard decorator sees a mutable child
    try:
        return _make_frozen(cls)
    finally:
        for params in above:
            params.frozen = True


def _make_frozen(cls: type) -> type:
    cls.__doc__ = cls.__doc__ or cls.__name__  # else the standard decorator inspects a signature
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, match_args=False, slots=True, kw_only=True)(cls)
    made.__dataclass_params__.frozen = True
    fields = dataclasses.fields(made)
    compared = [each.name for each in fields if each.compare]
    made._values = attrgetter(*compared) if len(compared) > 1 else _get_few(compared)
    made.__init__ = _compile_init(made, fields)
    for method in _SHARED:
        if method.__name__ not in cls.__dict__:
            setattr(made, method.__name__, method)
    made.__match_args__ = ()
    return made


def _get_few(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    return lambda value: tuple(getattr(value, name) for name in names)


class _Made:
    """Default of a field that a factory makes."""

    def __repr__(self) -> str:
        return "<factory>"


_MADE = _Made()


def _compile_init(cls: Any, fields: tuple[dataclasses.Field[Any], ...]) -> Any:
    scope: dict[str, Any] = {"_set": object.__setattr__, "_MADE": _MADE}
    parameters: list[str] = []
    lines: list[str] = []
    for each in fields:
        name = each.name
        value = name
        if each.default_factory is not dataclasses.MISSING:
            scope[f"_make_{name}"] = each.default_factory
            parameters.append(f"{name}=_MADE")
            value = f"_make_{name}() if {name} is _MADE else {name}"
        elif each.default is not dataclasses.MISSING:
            scope[f"_default_{name}"] = each.default
            parameters.append(f"{name}=_default_{name}")
        else:
            parameters.append(name)
        lines.append(f"  _set(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append("  self.__post_init__()")
    star = "*, " if parameters else ""
    code = f"def __init__(self, {star}{', '.join(parameters)}):\n" + "\n".join(lines or ["  pass"])
    exec(code, scope)  # noqa: S102  as the standard decorator does; the names are fields of our classes
    init = scope["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    annotations = {each.name: each.type for each in fields}
    init.__annotations__ = {**annotations, "return": None}
    return init


# --- what the classes share -------------------------------------------------------------------------------------------


@recursive_repr()
def __repr__(self: Any) -> str:
    shown = [f"{each.name}={getattr(self, each.name)!r}" for each in dataclasses.fields(self) if each.repr]
    return f"{type(self).__qualname__}({', '.join(shown)})"


def __eq__(self: Any, other: Any) -> bool:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return type(self)._values(self) == type(self)._values(other)


def __hash__(self: Any) -> int:
    return hash(type(self)._values(self))


def __setattr__(self: Any, name: str, value: Any) -> None:
    _refuse(self, name, "assign to")
    object.__setattr__(self, name, value)


def __delattr__(self: Any, name: str) -> None:
    _refuse(self, name, "delete")
    object.__delattr__(self, name)


def _refuse(value: Any, name: str, verb: str) -> None:
    """Raises, unless a class that is derived from a dataclass, and is none itself, has an attribute of its own."""
    if "__dataclass_fields__" in vars(type(value)) or name in value.__dataclass_fields__:
        raise dataclasses.FrozenInstanceError(f"cannot {verb} field {name!r}")


def __getstate__(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def __setstate__(self: Any, state: list[Any]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)


_SHARED = (__repr__, __eq__, __hash__, __setattr__, __delattr__, __getstate__, __setstate__)
