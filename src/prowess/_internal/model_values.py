"""Values of pydantic models that came from outside: their first fault in words, unknown keys, and defaults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from pydantic import BaseModel, ValidationError

Place = tuple[str | int, ...]  # keys and indices from the outside to a value
ModelValue = TypeVar("ModelValue", bound=BaseModel)


def first_fault(error: ValidationError) -> tuple[Place, str]:
    """Returns the place and the reason of the first fault. Nothing is escaped."""
    first = error.errors(include_url=False, include_context=False)[0]
    if first["type"] == "missing":
        return first["loc"], "is missing"
    what = first["msg"].removeprefix("Value error, ").replace("tuple", "list")
    what, _, _ = what.partition(" or instance of ")
    what = what.replace("a valid dictionary", "an object, such as {key: value}")
    return first["loc"], what[:1].lower() + what[1:]


def describe_fault(error: OSError | ValueError | RecursionError) -> str:
    """Returns the reason why a file or a value cannot be used; of a model's faults, the first. Nothing is escaped."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        why = first["msg"]
        place = ".".join(map(str, first["loc"]))
        if place:
            why = f"{place}: {why}"
    else:
        why = str(getattr(error, "strerror", None) or error)
    return why[:200]


def join_place(place: Place) -> str:
    """Renders a place: `expect.steps.1`. Names of types in it, which pydantic puts there for a union, are left out."""
    return ".".join(str(part) for part in place if not str(part).endswith(("]", "str")))


def find_extra_keys(value: object, place: Place = ()) -> Iterator[tuple[Place, type[BaseModel]]]:
    """Yields the places of keys that no field has, and the model around them. Models must allow extra keys."""
    if isinstance(value, BaseModel):
        for key in value.model_extra or ():
            yield (*place, key), type(value)
        for key in type(value).model_fields:
            yield from find_extra_keys(getattr(value, key), (*place, key))
    elif isinstance(value, tuple):
        for at, each in enumerate(value):
            yield from find_extra_keys(each, (*place, at))


def with_defaults(value: ModelValue, defaults: BaseModel) -> ModelValue:
    """Returns the value with the defaults for fields that are None, and for unset fields of its inner models."""
    changes: dict[str, object] = {}
    for name in type(defaults).model_fields:
        default = getattr(defaults, name)
        own = getattr(value, name)
        if own is None:
            changes[name] = default
        elif isinstance(default, BaseModel):
            given = {key: getattr(own, key) for key in own.model_fields_set}
            changes[name] = default.model_copy(update=given)
    return value.model_copy(update=changes)
