"""Makes the form of an answer from a Python type: its JSON Schema, and values that pydantic validates.

A type whose JSON is no object is wrapped in one, `{"result": …}`, because providers take only objects.
"""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from prowess._internal.json_values import JsonObject
from prowess.agent.output import OutputForm, OutputMismatch
from prowess.errors import ConfigError
from prowess.models.actions.json_repair import find_objects

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

_LOOKED_THROUGH = 1 << 20  # characters of a text in which objects are looked for
_MOST_OBJECTS = 20
_MOST_ERRORS = 8
_LONGEST = 200  # characters of one error
_HINT = "Give a pydantic model, a dataclass, a TypedDict or a plain type such as int or list[str], of a module."


def make_output(output_type: Any) -> OutputForm | None:
    """Returns the form of a type. None and str have no form: then the answer is any text."""
    if output_type is None or output_type is str:
        return None
    return TypedOutput(output_type)


class TypedOutput:
    """Form of a type."""

    def __init__(self, output_type: Any) -> None:
        """Makes the schema. ConfigError `output-type-invalid` if pydantic cannot."""
        self._name = getattr(output_type, "__name__", repr(output_type))[:100]
        plain, schema = self._adapt(output_type)
        self._plain = plain
        self._words = frozenset(_words(schema))
        self._wrapped: TypeAdapter[Any] | None = None
        if not _is_object(schema):
            from pydantic import create_model

            model = create_model("Answer", result=(output_type, ...))
            self._wrapped, schema = self._adapt(model)
        self.schema: JsonObject = _tidy(_with_plain_root(schema))
        self.is_closed = _is_closed(self.schema) and not _is_recursive(self.schema)

    def _adapt(self, output_type: Any) -> tuple[TypeAdapter[Any], JsonObject]:
        from pydantic import TypeAdapter
        from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError

        try:
            adapter = TypeAdapter(output_type)
            schema = adapter.json_schema()
            why = "it is a function" if adapter.core_schema["type"] == "call" else ""
        except (PydanticUserError, PydanticUndefinedAnnotation, NameError, TypeError, ValueError) as error:
            why = str(error).partition("\n")[0]
            raise self._invalid(why) from error
        if why:
            raise self._invalid(why)
        return adapter, schema

    def _invalid(self, why: str) -> ConfigError:
        said = why.rstrip(".")[:500]
        message = f"output_type={self._name} cannot be used: {said}."
        return ConfigError(message, code="output-type-invalid", hint=_HINT)

    def parse(self, text: str) -> Any:
        """Returns the value of an answer, also of one with a code fence or a sentence around one JSON object. A word
        of a Literal or an Enum needs no quotes."""
        bare = text.strip()
        documents = [json.dumps(bare)] if bare in self._words else _find_documents(text)
        values: list[Any] = []
        mismatches: list[OutputMismatch] = []
        for document in documents:
            try:
                values.append(self._validate(document))
            except OutputMismatch as mismatch:
                mismatches.append(mismatch)
        if len(values) == 1:
            return values[0]
        if len(documents) == 1:
            raise mismatches[0]
        raise OutputMismatch(f"- It has {len(documents)} JSON objects. Give exactly one.")

    def _validate(self, document: str) -> Any:
        """Validates one JSON document. A value without its wrapper counts, too."""
        from pydantic import ValidationError

        has_wrapper = self._wrapped is not None and _has_wrapper(document)
        adapter = self._wrapped if has_wrapper and self._wrapped else self._plain
        try:
            value = adapter.validate_json(document)
        except ValidationError as error:
            raise OutputMismatch(_render_errors(error)) from None
        except Exception as error:  # a validator is foreign code
            raise self._failed(error) from error
        return value.result if has_wrapper else value

    def _failed(self, error: Exception) -> ConfigError:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{os.path.basename(frame.filename)}:{frame.lineno}"
        message = (
            f"output_type={self._name} failed with {type(error).__name__} in {place}, instead of refusing a value."
        )
        return ConfigError(message, code="output-type-failed", hint="A validator refuses a value with ValueError.")


# --- the answer -------------------------------------------------------------------------------------------------------


def _find_documents(text: str) -> list[str]:
    """Returns the JSON of an answer: all of it, its only code block, or the objects in it. OutputMismatch if none."""
    if text.lstrip().startswith("<think>"):
        text = text.partition("</think>")[2]
    fault = _find_fault(text)
    if fault is None:
        return [text]
    parts = text.split("```")
    if len(parts) == 3:
        block = parts[1].removeprefix("json")
        if _find_fault(block) is None:
            return [block]
    found: list[str] = []
    for document in find_objects(text[:_LOOKED_THROUGH], close="nothing"):
        found.append(document)
        if len(found) == _MOST_OBJECTS:
            break
    if not found:
        raise OutputMismatch(f"- It is not JSON: {fault}.")
    return found


def _find_fault(text: str) -> str | None:
    """Returns why a text is no JSON. NaN and Infinity are none."""
    from pydantic_core import from_json

    try:
        from_json(text, allow_inf_nan=False, cache_strings="none")
    except ValueError as error:
        return str(error)
    return None


def _has_wrapper(document: str) -> bool:
    from pydantic_core import from_json

    try:
        data = from_json(document)
    except ValueError:  # the adapter says what is wrong with it
        return False
    return isinstance(data, dict) and "result" in data


def _render_errors(error: ValidationError) -> str:
    """Renders what is wrong, with the path of each value."""
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    lines: list[str] = []
    for each in errors[:_MOST_ERRORS]:
        path = ".".join(map(str, each["loc"])) or "answer"
        line = f"- {path}: {each['msg']}"
        lines.append(line[:_LONGEST])
    if len(errors) > _MOST_ERRORS:
        lines.append(f"- and {len(errors) - _MOST_ERRORS} more")
    return "\n".join(lines)


# --- the schema -------------------------------------------------------------------------------------------------------


def _words(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yields the texts that are the only values of a type."""
    choices = schema.get("enum", [schema.get("const")])
    return (choice for choice in choices if isinstance(choice, str))


def _is_object(schema: Mapping[str, Any]) -> bool:
    return _with_plain_root(schema).get("type") == "object"


def _with_plain_root(schema: Mapping[str, Any]) -> JsonObject:
    """Replaces a reference at the root, which a type that contains itself has, by what it refers to."""
    name = _find_reference(schema)
    if name is None:
        return dict(schema)
    defs = schema["$defs"]
    return {**defs[name], "$defs": defs}


def _find_reference(schema: Mapping[str, Any]) -> str | None:
    target = schema.get("$ref")
    if not isinstance(target, str):
        return None
    name = target.removeprefix("#/$defs/")
    return name.replace("~1", "/").replace("~0", "~")


_DROPPED = ("title", "default", "discriminator")  # they cost tokens, or providers refuse them


def _tidy(schema: Mapping[str, Any]) -> JsonObject:
    """Returns a schema that accepts no more than before, in a form that most providers can enforce."""
    tidy = {name: value for name, value in schema.items() if name not in _DROPPED}
    if "oneOf" in tidy:
        tidy["anyOf"] = tidy.pop("oneOf")
    properties = tidy.get("properties")
    if isinstance(properties, dict):
        tidy.setdefault("additionalProperties", False)
        required = set(tidy.get("required", ()))
        needed = [name for name, each in properties.items() if name in required or _is_null_by_default(each)]
        if needed:
            tidy["required"] = needed
    for name in ("properties", "$defs"):
        if name in tidy:
            tidy[name] = {key: _tidy(each) for key, each in tidy[name].items()}
    for name in ("anyOf", "allOf", "prefixItems"):
        if name in tidy:
            tidy[name] = [_tidy(each) for each in tidy[name]]
    for name in ("items", "additionalProperties"):
        if isinstance(tidy.get(name), dict):
            tidy[name] = _tidy(tidy[name])
    return tidy


def _is_null_by_default(schema: Mapping[str, Any]) -> bool:
    """True for a value that is null if it is left out, so that null can be written as well."""
    return "default" in schema and schema["default"] is None


def _inner(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yields the schemas in a schema, without its definitions."""
    yield from schema.get("properties", {}).values()
    for name in ("anyOf", "allOf", "prefixItems"):
        yield from schema.get(name, ())
    if isinstance(schema.get("items"), dict):
        yield schema["items"]


def _is_closed(schema: Mapping[str, Any]) -> bool:
    """True if no value is free: each has a type, and each object only the keys that it names."""
    if not schema or not schema.keys() - {"description"}:
        return False
    if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
        return False
    definitions = schema.get("$defs", {}).values()
    return all(map(_is_closed, [*_inner(schema), *definitions]))


def _is_recursive(schema: Mapping[str, Any]) -> bool:
    """True if a definition contains itself."""
    defs: Mapping[str, Any] = schema.get("$defs", {})
    uses = {name: set(_references(each)) for name, each in defs.items()}
    open_names = set(uses)
    while open_names:
        leaves = {name for name in open_names if not uses[name] & open_names}
        if not leaves:
            return True
        open_names -= leaves
    return False


def _references(schema: Mapping[str, Any]) -> Iterator[str]:
    name = _find_reference(schema)
    if name is not None:
        yield name
    for each in _inner(schema):
        yield from _references(each)
