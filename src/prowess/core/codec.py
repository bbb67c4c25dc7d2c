"""JSON form of values: `to_json` writes it, `from_json` reads it. An unknown field is ignored, so that a record written
by a newer release still opens.

The annotations of a class are its only schema, and pydantic_core reads by it. The schema is made here: importing
pydantic to make it takes longer than reading a whole session, and its own schema refuses a list for a tuple or accepts
"1" for 1. pydantic_core does not write: it cannot write a key with half of a surrogate pair, it writes NaN as null, and
it writes bytes and dates, which a record refuses. It is imported when the first value is read.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, TypeVar

from prowess.errors import ProwessError

if TYPE_CHECKING:
    from pydantic_core import CoreSchema, SchemaValidator, ValidationError

_SCALARS = frozenset({str, int, float, bool, NoneType})

T = TypeVar("T")
ADDED = {"added": True}  # metadata of a field that older records do not have


def to_json(value: Any) -> Any:
    """Converts to plain JSON data. Tuples become lists, named tuples objects. A field that is None stays, because
    readers rely on it, unless it is marked as `ADDED`: then a line of an older record is written with the same bytes. A
    field that is not compared (`field(compare=False)`) is left out."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    found: dict[str, Any] = {}
    names = _field_names(kind)
    if names:
        for name in names:
            item = getattr(value, name)
            found[name] = item if type(item) in _SCALARS else to_json(item)  # a call less for most
        for name in _added_names(kind):
            if found[name] is None:
                del found[name]
        return found
    if kind is dict or isinstance(value, Mapping):
        for key, item in value.items():
            found[str(key)] = item if type(item) in _SCALARS else to_json(item)
        return found
    if isinstance(value, (list, tuple)):
        items: list[Any] = []
        for item in value:
            items.append(item if type(item) in _SCALARS else to_json(item))
        return items
    return value  # a subclass of str, int or float


@cache
def _field_names(cls: type) -> tuple[str, ...]:
    if is_dataclass(cls):
        return tuple(field.name for field in fields(cls) if field.compare)
    return getattr(cls, "_fields", ()) if issubclass(cls, tuple) else ()


@cache
def _added_names(cls: type) -> tuple[str, ...]:
    if is_dataclass(cls):
        return tuple(field.name for field in fields(cls) if "added" in field.metadata)
    return ()


def from_json(cls: type[T], data: Any) -> T:
    """Builds the value from the output of `to_json`. ValueError names the field that is wrong."""
    validator = _validator(cls)
    try:
        return validator.validate_python(data)
    except ProwessError as error:  # every type is right, but the class refuses the values
        raise ValueError(f"{cls.__name__}: {error.message}") from error
    except ValueError as error:
        raise ValueError(_first_fault(cls, typing.cast("ValidationError", error))[:300]) from None


@cache
def _validator(cls: type) -> SchemaValidator:
    from pydantic_core import SchemaValidator

    return SchemaValidator(_schema_of(cls))


def _schema_of(hint: Any) -> CoreSchema:
    """Returns the schema of a type. Scalars are strict: "1" is not read as 1."""
    from pydantic_core import core_schema as schemas

    scalars = {str: schemas.str_schema, int: schemas.int_schema, float: schemas.float_schema, bool: schemas.bool_schema}
    if hint in scalars:
        return scalars[hint](strict=True)
    if hint is Any:
        return schemas.any_schema()
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return schemas.literal_schema(list(options))
    if origin in (typing.Union, UnionType):
        (option,) = (each for each in options if each is not NoneType)
        return schemas.nullable_schema(_schema_of(option))
    if origin is tuple:
        return schemas.tuple_variable_schema(_schema_of(options[0]))
    if origin is dict:
        return schemas.dict_schema(values_schema=_schema_of(options[1]))
    hints = typing.get_type_hints(hint)
    needed = _required(hint)
    own = {
        name: schemas.typed_dict_field(_schema_of(hints[name]), required=name in needed) for name in _field_names(hint)
    }
    return schemas.no_info_after_validator_function(lambda given: hint(**given), schemas.typed_dict_schema(own))


def _required(cls: Any) -> set[str]:
    if is_dataclass(cls):
        return {each.name for each in fields(cls) if each.default is MISSING and each.default_factory is MISSING}
    return set(cls._fields) - cls._field_defaults.keys()


_WANTED = {
    "string_type": "str",
    "int_type": "int",
    "float_type": "float",
    "bool_type": "bool",
    "tuple_type": "a list",
    "dict_type": "an object",
}


def _first_fault(cls: type, error: ValidationError) -> str:
    fault = error.errors(include_url=False)[0]
    where = cls.__name__
    for part in fault["loc"]:
        where += f"[{part}]" if isinstance(part, int) else f".{part}"
    if fault["type"] == "missing":
        return f"{where} is missing"
    wanted = _WANTED.get(fault["type"]) or fault.get("ctx", {}).get("expected") or fault["type"]
    return f"{where} must be {wanted}, not {fault['input']!r}"
