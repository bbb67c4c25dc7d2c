"""Prepares JSON Schemas for providers: schemas of a tool's parameters and of a structured answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from prowess.models.providers.message_order import clean

# Keywords that providers do not support in strict mode. They refuse the whole request.
_NOT_STRICT = frozenset(
    "allOf not if then else oneOf dependentRequired dependentSchemas patternProperties propertyNames "
    "unevaluatedProperties contains minContains maxContains uniqueItems".split()
)


def object_schema(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the parameters as an object schema, which every provider requires."""
    plain = json.loads(clean(json.dumps(parameters, ensure_ascii=False)))
    return {"type": "object", "properties": {}} | plain


def is_strict(schema: Any, *, top: bool = True) -> bool:
    """True when strict mode can take the schema: every object requires all its properties and allows no others."""
    if not isinstance(schema, Mapping) or _NOT_STRICT & schema.keys() or (top and schema.get("type") != "object"):
        return False
    properties = schema.get("properties")
    if (properties is not None or schema.get("type") == "object") and (
        not isinstance(properties, Mapping)
        or schema.get("additionalProperties") is not False
        or set(schema.get("required", ())) != set(properties)
    ):
        return False
    inner: list[Any] = [*(properties or {}).values(), *schema.get("anyOf", ())]
    inner += [value for name in ("$defs", "definitions") for value in schema.get(name, {}).values()]
    inner += [schema["items"]] if "items" in schema else []
    return all(is_strict(each, top=False) for each in inner)
