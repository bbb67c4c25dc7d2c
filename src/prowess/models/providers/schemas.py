"""Prepares JSON Schemas for providers: schemas of a tool's parameters and of a structured answer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from prowess._internal.json_values import JsonObject
from prowess.models.providers.message_order import clean

# Keywords that providers do not support in strict mode. They refuse the whole request.
_NOT_STRICT = frozenset(
    "allOf not if then else oneOf dependentRequired dependentSchemas patternProperties propertyNames "
    "unevaluatedProperties contains minContains maxContains uniqueItems prefixItems default".split()
)
_FORMATS = frozenset("date-time time date duration email hostname ipv4 ipv6 uuid".split())  # that strict mode knows


def object_schema(parameters: Mapping[str, Any]) -> JsonObject:
    """Returns the parameters as an object schema, which every provider requires."""
    text = json.dumps(parameters, ensure_ascii=False)
    plain = json.loads(clean(text))
    empty = {"type": "object", "properties": {}}
    return empty | plain


def is_strict(schema: Any) -> bool:
    """True when strict mode can take the schema: every object requires all its properties and allows no others."""
    return _is_strict(schema) and schema.get("type") == "object"


def _is_strict(schema: Any) -> bool:
    if not isinstance(schema, Mapping) or _NOT_STRICT & schema.keys():
        return False
    if not _is_plain(schema):
        return False
    properties = schema.get("properties")
    is_object = properties is not None or schema.get("type") == "object"
    if is_object and not _is_closed(schema, properties):
        return False
    inner = _inner_schemas(schema)
    return all(map(_is_strict, inner))


def _is_plain(schema: Mapping[str, Any]) -> bool:
    """True when strict mode knows what the schema says besides its properties: no free value, a reference alone."""
    if "$ref" in schema:
        return len(schema) == 1
    if schema.get("format", "date") not in _FORMATS:
        return False
    return any(name in schema for name in ("type", "anyOf", "enum", "const"))


def _is_closed(schema: Mapping[str, Any], properties: Any) -> bool:
    """True when an object requires all its properties and allows no others."""
    if not isinstance(properties, Mapping):
        return False
    if schema.get("additionalProperties") is not False:
        return False
    required = schema.get("required", ())
    return set(required) == set(properties)


def _inner_schemas(schema: Mapping[str, Any]) -> Iterator[Any]:
    for name in ("properties", "$defs", "definitions"):
        schemas = schema.get(name) or {}
        yield from schemas.values()
    yield from schema.get("anyOf", ())
    if "items" in schema:
        yield schema["items"]
