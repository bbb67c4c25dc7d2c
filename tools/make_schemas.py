"""Writes src/prowess/schemas/*.json: the public shapes as JSON Schema. `--check` fails when one is not up to date.

The schema of a document that a verb prints is written here by hand, in the order in which the document has its fields;
those of events and configuration are derived from their types.
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
import types
import typing
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from prowess import events
from prowess._settings import DOCS, Config
from prowess.values import Artifact, CatalogPlan, Finding, SkillRef

FOLDER = Path(__file__).parent.parent / "src" / "prowess" / "schemas"
DRAFT = "https://json-schema.org/draft/2020-12/schema"

TEXT, NUMBER, WHOLE, YES_NO = {"type": "string"}, {"type": "number"}, {"type": "integer"}, {"type": "boolean"}
TEXT_OR_NULL, WHOLE_OR_NULL = {"type": ["string", "null"]}, {"type": ["integer", "null"]}
TEXTS = {"type": "array", "items": TEXT}
OPEN = {"type": "object"}
SOURCE = {"enum": ["explicit", "project", "user", "url", "mcp", "builtin"]}
STATUS = {"enum": ["active", "untrusted", "manual", "shadowed", "hidden", "off", "invalid"]}
MODE = {"enum": ["pin", "auto", "name-only", "manual", "off"]}
IN_PROMPT = {"enum": ["shown", "name_only", "searchable", "hidden"]}


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
    finding = of_type(Finding)
    findings = many(finding)
    tokens = shape(catalog=WHOLE, body=WHOLE, exact=YES_NO)
    controls = shape(
        mode=MODE, allowed_tools={"type": ["array", "null"], "items": TEXT}, run_mode=TEXT, role=TEXT_OR_NULL
    )
    skill = {
        "id": TEXT,
        "name": TEXT,
        "description": TEXT,
        "source": SOURCE,
        "path": TEXT,
        "version": TEXT_OR_NULL,
        "digest": TEXT_OR_NULL,
        "status": STATUS,
        "reasons": TEXTS,
        "model_visible": YES_NO,
        "user_visible": YES_NO,
        "controls": controls,
        "tokens": tokens,
        "finding_codes": TEXTS,
    }
    root = shape(source=SOURCE, path=TEXT, skills=WHOLE, exists=YES_NO)
    plan = of_type(CatalogPlan)
    budget = shape(budget=WHOLE, used=WHOLE)
    documents = {
        "list": shape(skills=many(shape(**skill)), findings=findings, roots=many(root)),
        "inspect": shape(
            skill=shape(
                **skill,
                qualified_name=TEXT,
                declared_name=TEXT,
                location=TEXT,
                user_invocable=YES_NO,
                argument_hint=TEXT_OR_NULL,
                paths=TEXTS,
                requires={"type": "object", "additionalProperties": TEXTS},
                missing=TEXTS,
                keywords=TEXTS,
                fields=OPEN,
                files=many(shape(path=TEXT, size_bytes=WHOLE, executable=YES_NO)),
                docs=TEXTS,
            ),
            why=shape(
                status=STATUS,
                model_visible=YES_NO,
                user_visible=YES_NO,
                mode=MODE,
                in_prompt=IN_PROMPT,
                reasons=TEXTS,
                budget=budget,
            ),
            findings=findings,
        ),
        "validate": shape(
            valid=YES_NO,
            profile={"enum": ["default", "spec", "portable", "security"]},
            skills=many(shape(path=TEXT, name=TEXT, valid=YES_NO, findings=findings)),
        ),
        "plan": shape(**plan["properties"]),
        "prompt": shape(format={"enum": ["xml", "markdown", "json"]}, text=TEXT, plan=plan),
        "load": shape(skill=of_type(SkillRef), directory=TEXT_OR_NULL, docs=TEXTS, text=TEXT, findings=findings),
        "search": shape(
            query=TEXT,
            results=many(shape(id=TEXT, name=TEXT, source=SOURCE, score=NUMBER, description=TEXT)),
            took_ms=NUMBER,
        ),
        "doctor": shape(
            roots=many(
                shape(
                    source=SOURCE,
                    path=TEXT,
                    origin=TEXT,
                    exists=YES_NO,
                    trusted=YES_NO,
                    skills=WHOLE,
                    statuses={"type": "object", "additionalProperties": WHOLE},
                    repaired=TEXTS,
                    shadowed={"type": "object", "additionalProperties": TEXT},
                    skipped=TEXTS,
                )
            ),
            catalog=shape(shown=WHOLE, name_only=WHOLE, over_budget=TEXTS, hidden=TEXTS, tokens=budget),
            findings=findings,
            installation=OPEN,
        ),
        "tokens": shape(
            method=TEXT,
            exact=YES_NO,
            catalog=shape(tokens=WHOLE, budget=WHOLE, shown=WHOLE),
            skills=many(shape(id=TEXT, name=TEXT, catalog=WHOLE, body=WHOLE_OR_NULL)),
        ),
        "new": shape(name=TEXT, path=TEXT, file=TEXT),
        "init": shape(path=TEXT, written=TEXTS, kept=TEXTS),
        "trust-given": shape(kind={"enum": ["folder", "url"]}, place=TEXT, digest=TEXT_OR_NULL, skills=TEXTS),
        "trust-revoked": shape(place=TEXT),
        "trust-list": shape(**_trust(), findings=findings),
        "trust": shape(**_trust()),
        "config-show": shape(
            values=OPEN, origins=OPEN, places=OPEN, environment=OPEN, trusted=YES_NO, findings=findings
        ),
        "schemas": shape(schemas=TEXTS),
        "exec": _run_result(),
        "workspaces": shape(dir=TEXT, workspaces=many(_workspace())),
        "workspaces-cleaned": shape(dir=TEXT, dry_run=YES_NO, removed=many(_workspace()), in_use=many(_workspace())),
        "image": shape(tag=TEXT, id=TEXT, size_bytes=WHOLE),
        "artifacts": shape(
            store=TEXT,
            artifacts=many(shape(session=TEXT_OR_NULL, **_artifact(), versions=many(WHOLE))),
            findings=findings,
        ),
        "artifact-get": shape(**_artifact(), session=TEXT_OR_NULL, path=TEXT_OR_NULL, text=TEXT_OR_NULL),
        "artifact-put": shape(**_artifact(), session=TEXT_OR_NULL),
        "artifacts-removed": shape(removed=many(shape(session=TEXT_OR_NULL, ref=TEXT, name=TEXT, version=WHOLE))),
    }
    schemas = {name: document(name, schema) for name, schema in documents.items()}
    schemas["error"] = {
        "$schema": DRAFT,
        "title": "What every verb prints on stdout under --json when it fails",
        **shape(error=shape(code=TEXT, message=TEXT, hint=TEXT_OR_NULL)),
    }
    schemas["finding"] = {"$schema": DRAFT, **finding}
    schemas["event"] = event_schema()
    schemas["config"] = config_schema()
    return schemas


def document(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """A document says which schema it has. Fields may be added at any time, so others are allowed."""
    properties = {"schema": {"const": f"prowess.{name}/1"}, **schema["properties"]}
    required = ["schema", *schema["required"]]
    return {
        "$schema": DRAFT,
        "title": f"prowess.{name}/1",
        "type": "object",
        "properties": properties,
        "required": required,
    }


def event_schema() -> dict[str, Any]:
    kinds = []
    for name, cls in events.EVENT_TYPES.items():
        own = of_type(cls)
        properties = {"type": {"const": name}, **own["properties"]}
        kinds.append({"type": "object", "properties": properties, "required": ["type", *own["required"]]})
    envelope = {"seq": WHOLE, "at": TEXT, "session": TEXT, "run": TEXT, "type": TEXT}
    return {
        "$schema": DRAFT,
        "title": "One line of `prowess run --json` and of events.jsonl; seq is absent for what is not stored",
        "type": "object",
        "properties": envelope,
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
                for field, hint in typing.get_type_hints(kind).items()
            }
            properties[name] = {"type": "object", "properties": inner, "additionalProperties": False}
        else:
            properties[name] = {**of_type(kind), "description": DOCS[name]}
    title = ".agent/config.toml or .agent/config.json"
    return {"$schema": DRAFT, "title": title, "type": "object", "properties": properties, "additionalProperties": False}


def _run_result() -> dict[str, Any]:
    """The skill_run result, and how `prowess exec` says it went. `error` is there when nothing was run."""
    file = shape(name=TEXT, ref=TEXT, mime_type=TEXT, size_bytes=WHOLE, truncated=YES_NO)
    file["properties"]["content"] = TEXT
    held = {"enum": ["enforced", "best-effort", "absent"]}
    isolation = shape(
        executor=TEXT,
        mechanism=TEXT,
        uid=WHOLE_OR_NULL,
        network=TEXT,
        limits={"type": "object", "additionalProperties": held},
        notes=TEXTS,
    )
    result = shape(
        status={"enum": ["ok", "failed", "timeout", "denied", "unavailable"]},
        stdout=TEXT,
        stderr=TEXT,
        exit_code=WHOLE_OR_NULL,
        timed_out=YES_NO,
        duration_ms=WHOLE,
        truncated=YES_NO,
        primary_output={"anyOf": [file, {"type": "null"}]},
        output_files=many(file),
        artifact_files=many(shape(name=TEXT, version=WHOLE)),
        staged_inputs=many(shape(**{"from": TEXT, "name": TEXT, "ref": TEXT, "size_bytes": WHOLE, "files": WHOLE})),
        warnings=TEXTS,
        isolation={"anyOf": [isolation, {"type": "null"}]},
        session=TEXT_OR_NULL,
    )
    more = {
        "run": TEXT,
        "signal": WHOLE,
        "stdout_ref": TEXT,
        "stderr_ref": TEXT,
        "missing_dependency": shape(kind=TEXT, name=TEXT, hint=TEXT),
        "dependencies": TEXTS,
        "copied": TEXTS,
        "error": shape(code=TEXT, message=TEXT, hint=TEXT_OR_NULL),
    }
    return {**result, "properties": {**result["properties"], **more}}


def _artifact() -> dict[str, Any]:
    return {"ref": TEXT, **of_type(Artifact)["properties"]}


def _workspace() -> dict[str, Any]:
    return shape(id=TEXT, session=TEXT, path=TEXT, size_bytes=WHOLE, files=WHOLE, used_at=TEXT, in_use=YES_NO)


def _trust() -> dict[str, Any]:
    return {
        "folders": many(shape(path=TEXT, at=TEXT)),
        "files": many(shape(path=TEXT, sha256=TEXT, at=TEXT)),
        "urls": many(shape(url=TEXT, digest=TEXT, at=TEXT)),
    }


def shape(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def many(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def of_type(kind: Any) -> dict[str, Any]:
    """The schema of a value's type: what `to_json` writes."""
    origin, options = typing.get_origin(kind), typing.get_args(kind)
    simple = {str: TEXT, int: WHOLE, float: NUMBER, bool: YES_NO, type(None): {"type": "null"}, Any: {}}
    if kind in simple:
        return simple[kind]
    if origin is Literal:
        return {"enum": list(options)}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [of_type(option) for option in options]}
    if origin is tuple:
        return many(of_type(options[0]))
    if origin is dict:
        return {"type": "object", "additionalProperties": of_type(options[1])}
    hints = {
        name: hint for name, hint in typing.get_type_hints(kind).items() if typing.get_origin(hint) is not ClassVar
    }
    properties = {name: of_type(hint) for name, hint in hints.items()}
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name in _needed(kind)],
    }


def _needed(kind: Any) -> set[str]:
    if is_dataclass(kind):
        return {f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING}
    return set(kind._fields) - set(kind._field_defaults)


if __name__ == "__main__":
    sys.exit(main())
