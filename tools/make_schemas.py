"""Writes src/prowess/schemas/*.json: the public shapes as JSON Schema. `--check` fails when one is not up to date.

Every schema is derived from a type: documents from prowess/runtime/documents, events, the configuration, eval cases.
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
import types
import typing
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NotRequired

from prowess.core import events
from prowess.core.values import Finding
from prowess.evals.case import CaseFile
from prowess.evals.document import EvalDocument
from prowess.runtime.documents import packs, permissions, runs, shared, skills, work
from prowess.runtime.settings import DOCS, Config

FOLDER = Path(__file__).parent.parent / "src" / "prowess" / "schemas"
DRAFT = "https://json-schema.org/draft/2020-12/schema"
ERROR_TITLE = "What every verb prints on stdout under --json when it fails"
DOCUMENTS = (shared, skills, permissions, work, runs, packs)
SIMPLE: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    float: {"type": "number"},
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    Any: {},
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    wanted = {f"{name}.json": json.dumps(schema, indent=1) + "\n" for name, schema in all_schemas().items()}
    stale = {path.name for path in FOLDER.glob("*.json")} - wanted.keys()
    wrong = 0
    for name, text in sorted(wanted.items()):
        path = FOLDER / name
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        if before == text:
            continue
        wrong += 1
        if check:
            sys.stdout.writelines(difflib.unified_diff(before.splitlines(True), text.splitlines(True), name, "wanted"))
        else:
            path.write_text(text, encoding="utf-8")
    for name in stale:
        wrong += 1
        sys.stdout.write(f"{name} belongs to no document\n")
        if not check:
            (FOLDER / name).unlink()
    if check and wrong:
        sys.stdout.write("Schemas are not up to date. Run: make docs\n")
        return 1
    return 0


def all_schemas() -> dict[str, dict[str, Any]]:
    schemas = {name: {"title": f"prowess.{name}/1", **of_type(kind)} for name, kind in document_types()}
    schemas["error"] = {"title": ERROR_TITLE, **of_type(shared.ErrorDocument)}
    schemas["finding"] = of_type(Finding)
    schemas["event"] = event_schema()
    schemas["config"] = config_schema()
    schemas["eval-cases"] = {**CaseFile.model_json_schema(), "title": "Eval cases: evals/*.yaml"}
    schemas["eval"] = {"title": "prowess.eval/1", **_of_pydantic(EvalDocument.model_json_schema())}
    return {name: {"$schema": DRAFT, **schema} for name, schema in schemas.items()}


def document_types() -> Iterator[tuple[str, Any]]:
    """Yields the documents and their names. The name is the only value that the field `schema` can have."""
    for module in DOCUMENTS:
        for kind in vars(module).values():
            if typing.is_typeddict(kind) and "schema" in kind.__annotations__:
                (schema,) = typing.get_args(typing.get_type_hints(kind)["schema"])
                yield schema.removeprefix("prowess.").removesuffix("/1"), kind


def _of_pydantic(schema: Any) -> Any:
    """Schema of a document as pydantic derives it, without its titles; fields may be added at any time."""
    if isinstance(schema, list):
        return [_of_pydantic(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    left_out = {("title", str), ("additionalProperties", bool)}
    return {key: _of_pydantic(value) for key, value in schema.items() if (key, type(value)) not in left_out}


def event_schema() -> dict[str, Any]:
    kinds = []
    for name, cls in events.EVENT_TYPES.items():
        own = of_type(cls)
        properties = {"type": {"const": name}, **own["properties"]}
        kinds.append({"type": "object", "properties": properties, "required": ["type", *own["required"]]})
    place = {"seq": int, "at": str, "session": str, "run": str, "type": str}
    return {
        "title": "One line of `prowess run --json` and of events.jsonl; seq is absent for what is not stored",
        "type": "object",
        "properties": {name: SIMPLE[kind] for name, kind in place.items()},
        "required": ["at", "session", "run", "type"],
        "anyOf": kinds,
    }


def config_schema() -> dict[str, Any]:
    """.agent/config.toml and config.json: every setting is optional, an unknown one is an error."""
    properties: dict[str, Any] = {}
    for name, kind in typing.get_type_hints(Config).items():
        if hasattr(kind, "_fields"):
            inner = {
                field: {**of_type(hint), "description": DOCS[f"{name}.{field}"]}
                for field, hint in typing.get_type_hints(kind, include_extras=True).items()
            }
            properties[name] = {"type": "object", "properties": inner, "additionalProperties": False}
        else:
            properties[name] = {**of_type(kind), "description": DOCS[name]}
    title = ".agent/config.toml or .agent/config.json"
    return {"title": title, "type": "object", "properties": properties, "additionalProperties": False}


def of_type(kind: Any) -> dict[str, Any]:
    """Returns the schema of a value's type, as `to_json` writes it. Fields may be added at any time, so others are
    allowed."""
    origin, options = typing.get_origin(kind), typing.get_args(kind)
    if kind in SIMPLE:
        return SIMPLE[kind]
    if origin is Literal:
        return {"const": options[0]} if len(options) == 1 else {"enum": list(options)}
    if origin is typing.Annotated:  # our own names; packages add more
        if isinstance(options[1], int):
            return {**SIMPLE[int], "minimum": options[1]}
        return {"anyOf": [{"enum": list(options[1].own)}, SIMPLE[str]]}
    if origin in (typing.Union, types.UnionType):
        return _any_of([of_type(option) for option in options])
    if origin in (tuple, list):
        return {"type": "array", "items": of_type(options[0])}
    if origin is dict:
        return (
            {"type": "object"} if options[1] is Any else {"type": "object", "additionalProperties": of_type(options[1])}
        )
    properties = {name: of_type(hint) for name, hint in _hints(kind).items()}
    required = [name for name in properties if name in _needed(kind)]
    return {"type": "object", "properties": properties, "required": required}


def _any_of(options: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns one schema for several: `{"type": ["string", "null"]}` where types are enough."""
    if all(option.keys() == {"type"} for option in options):
        return {"type": [option["type"] for option in options]}
    return {"anyOf": options}


def _hints(kind: Any) -> dict[str, Any]:
    """Returns the types of the fields; a document begins with `schema`, also if it has fields of another type."""
    hints = {
        name: hint for name, hint in typing.get_type_hints(kind).items() if typing.get_origin(hint) is not ClassVar
    }
    return {"schema": hints["schema"], **hints} if "schema" in hints and typing.is_typeddict(kind) else hints


def _needed(kind: Any) -> set[str]:
    if typing.is_typeddict(kind):
        hints = typing.get_type_hints(kind, include_extras=True)
        return {name for name, hint in hints.items() if typing.get_origin(hint) is not NotRequired}
    if is_dataclass(kind):
        return {f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING}
    return set(kind._fields) - set(kind._field_defaults)


if __name__ == "__main__":
    sys.exit(main())
