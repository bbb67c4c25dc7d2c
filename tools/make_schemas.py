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

from prowess.core import events
from prowess.core.values import (
    Artifact,
    CatalogPlan,
    ChainHead,
    Finding,
    Isolation,
    IsolationKind,
    SessionKey,
    SkillRef,
    Trigger,
    Usage,
)
from prowess.evals.case import CaseFile
from prowess.evals.document import EvalDocument
from prowess.runtime.settings import DOCS, Config

FOLDER = Path(__file__).parent.parent / "src" / "prowess" / "schemas"
DRAFT = "https://json-schema.org/draft/2020-12/schema"

TEXT, NUMBER, WHOLE, YES_NO = {"type": "string"}, {"type": "number"}, {"type": "integer"}, {"type": "boolean"}
TEXT_OR_NULL, WHOLE_OR_NULL = {"type": ["string", "null"]}, {"type": ["integer", "null"]}
TEXTS = {"type": "array", "items": TEXT}
OPEN = {"type": "object"}
SOURCE = {"enum": ["explicit", "project", "user", "url", "mcp", "builtin"]}
ANSWER = {"enum": ["once", "run", "always", "no"]}
STATUS = {"enum": ["active", "untrusted", "manual", "shadowed", "hidden", "off", "invalid", "denied"]}
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
        mode=MODE,
        allowed_tools={"type": ["array", "null"], "items": TEXT},
        run_mode=TEXT,
        role=TEXT_OR_NULL,
        user_invocable=YES_NO,
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
        "plan": shape(**plan["properties"], budget_why=TEXT),
        "prompt": shape(format={"enum": ["xml", "markdown", "json"]}, text=TEXT, plan=plan, budget_why=TEXT),
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
            catalog=shape(
                shown=WHOLE, name_only=WHOLE, over_budget=TEXTS, hidden=TEXTS, tokens=budget, budget_why=TEXT
            ),
            findings=findings,
            installation=OPEN,
            isolation=shape(
                configured=TEXT, executor=TEXT_OR_NULL, mechanism=TEXT_OR_NULL, notes=TEXTS, hint=TEXT_OR_NULL
            ),
        ),
        "tokens": shape(
            method=TEXT,
            exact=YES_NO,
            catalog=shape(tokens=WHOLE, budget=WHOLE, shown=WHOLE),
            fixed={"type": "object", "additionalProperties": shape(guidance=WHOLE, schemas=WHOLE, tokens=WHOLE)},
            skills=many(shape(id=TEXT, name=TEXT, catalog=WHOLE, body=WHOLE_OR_NULL)),
        ),
        "new": shape(name=TEXT, path=TEXT, file=TEXT),
        "init": shape(path=TEXT, written=TEXTS, kept=TEXTS),
        "trust-given": shape(
            kind={"enum": ["folder", "url"]}, place=TEXT, digest=TEXT_OR_NULL, skills=TEXTS, records=TEXTS
        ),
        "trust-revoked": shape(place=TEXT),
        "trust-list": shape(**_trust(), skills=_ACCEPTED, findings=findings),
        "trust": _stored_trust(),
        "approvals": shape(approvals=many(_standing({"type": "object", "additionalProperties": TEXT}))),
        "approvals-list": shape(
            store=TEXT,
            waiting=many(_waiting()),
            approvals=many(shape(number=WHOLE, **_standing(WHOLE)["properties"])),
            damaged=TEXTS,
            findings=findings,
        ),
        "approval-answered": shape(
            session=TEXT, run=TEXT, call_id=TEXT, capability=TEXT, answer=ANSWER, waiting=WHOLE, to_resume=TEXT
        ),
        "approval-granted": shape(skill=TEXT, digest=TEXT, allowed_tools=TEXTS),
        "approvals-revoked": shape(revoked=many(shape(skill=TEXT, digest=TEXT, capability=TEXT, at=TEXT, by=TEXT))),
        "config-show": shape(
            values=OPEN, origins=OPEN, places=OPEN, environment=OPEN, trusted=YES_NO, findings=findings
        ),
        "policy-check": _policy_check(),
        "schemas": shape(schemas=TEXTS),
        "exec": _run_result(),
        "workspaces": shape(
            dir=TEXT,
            workspaces=many(_workspace()),
            environments=many(_environment()),
            published=shape(path=TEXT, skills=WHOLE, size_bytes=WHOLE),
        ),
        "workspaces-cleaned": shape(
            dir=TEXT,
            dry_run=YES_NO,
            removed=many(_workspace()),
            in_use=many(_workspace()),
            environments=shape(removed=many(_environment()), in_use=many(_environment())),
            published=shape(
                removed=many(shape(digest=TEXT, **_ON_DISK)),
                in_use=many(shape(digest=TEXT, **_ON_DISK)),
                needed=WHOLE,
                needed_by_others=TEXTS,
                problem=TEXT_OR_NULL,
            ),
        ),
        "image": shape(tag=TEXT, id=TEXT, size_bytes=WHOLE),
        "artifacts": shape(
            store=TEXT,
            artifacts=many(shape(session=TEXT_OR_NULL, **_artifact(), versions=many(WHOLE))),
            findings=findings,
        ),
        "artifact-get": shape(**_artifact(), session=TEXT_OR_NULL, path=TEXT_OR_NULL, text=TEXT_OR_NULL),
        "artifact-put": shape(**_artifact(), session=TEXT_OR_NULL),
        "run": shape(**_run()["properties"], store=TEXT_OR_NULL),
        **_runs(),
        **_packs(findings),
        "sessions": shape(store=TEXT, sessions=many(_session()), more=WHOLE, pruned=WHOLE, findings=findings),
        "session": shape(**_session()["properties"], conversation=many(_conversation())),
        "session-deleted": shape(session=TEXT, events=WHOLE, workspace=TEXT_OR_NULL, artifacts=TEXTS),
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
    schemas["eval-cases"] = {"$schema": DRAFT, **CaseFile.model_json_schema(), "title": "Eval cases: evals/*.yaml"}
    schemas["eval"] = {"$schema": DRAFT, "title": "prowess.eval/1", **_of_pydantic(EvalDocument.model_json_schema())}
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
                for field, hint in typing.get_type_hints(kind, include_extras=True).items()
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
    isolation["properties"]["kind"] = {"enum": list(typing.get_args(IsolationKind))}
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
        "left_out": TEXTS,
        "copied": TEXTS,
        "error": shape(code=TEXT, message=TEXT, hint=TEXT_OR_NULL),
    }
    return {**result, "properties": {**result["properties"], **more}}


def _policy_check() -> dict[str, Any]:
    """A decision about a call that nobody made; a step has no verdict when whoever was asked left it to the next."""
    verdict, nothing = {"enum": ["allow", "ask", "deny"]}, {"type": "null"}
    step = shape(
        by={"enum": ["configuration", "allowed-tools", "policy", "grant", "table", "require_approval_for"]},
        path=TEXT_OR_NULL,
        tightens=YES_NO,
        verdict={"enum": [*verdict["enum"], None]},
        rule=TEXT_OR_NULL,
        why=TEXT_OR_NULL,
        looked_at=TEXTS,
        decided=YES_NO,
    )
    error = shape(code=TEXT, message=TEXT, hint=TEXT_OR_NULL)
    return shape(
        tool=TEXT,
        called=TEXT,
        kind={"enum": ["call", "capability"]},
        args=OPEN,
        skill={"anyOf": [shape(id=TEXT, source=SOURCE, trusted=YES_NO, status=STATUS), nothing]},
        risk={"enum": ["low", "medium", "high", "unknown"]},
        verdict=verdict,
        effective=verdict,
        rule=TEXT,
        why=TEXT,
        place={"anyOf": [shape(path=TEXT, line=WHOLE_OR_NULL, number=WHOLE), nothing]},
        steps=many(step),
        loads={"anyOf": [shape(skill=TEXT, verdict=verdict, rule=TEXT, why=TEXT), nothing]},
        limits=OPEN,
        isolation={"anyOf": [of_type(Isolation), nothing]},
        isolation_error={"anyOf": [error, nothing]},
        change=TEXTS,
        notes=TEXTS,
    )


def _run() -> dict[str, Any]:
    skill = shape(id=TEXT, name=TEXT, digest=TEXT, trigger=of_type(Trigger), rank=WHOLE_OR_NULL, reason=TEXT_OR_NULL)
    command = shape(
        call_id=TEXT,
        tool=TEXT,
        skill=TEXT,
        command=TEXT,
        status=TEXT,
        code=TEXT_OR_NULL,
        exit_code=WHOLE_OR_NULL,
        duration_ms=WHOLE_OR_NULL,
    )
    return shape(
        run=TEXT,
        key=of_type(SessionKey),
        request=TEXT,
        normalised_request=TEXT,
        attachments=many(shape(name=TEXT_OR_NULL, ref=TEXT_OR_NULL, mime_type=TEXT_OR_NULL)),
        model=TEXT,
        versions={"type": "object", "additionalProperties": TEXT},
        resumes=TEXT_OR_NULL,
        started_at=TEXT,
        finished_at=TEXT_OR_NULL,
        stop_reason=TEXT_OR_NULL,
        code=TEXT_OR_NULL,
        text=TEXT,
        key_output={"anyOf": [shape(name=TEXT, text=TEXT), {"type": "null"}]},
        usage=of_type(Usage),
        skills=many(skill),
        resources=many(shape(skill=TEXT, path=TEXT)),
        tools=many(shape(tool=TEXT, status=TEXT, code=TEXT_OR_NULL, count=WHOLE)),
        commands=many(command),
        isolation=many(OPEN),
        prompts=shape(asked=WHOLE, answered=WHOLE, by={"type": "object", "additionalProperties": WHOLE}),
        outputs=many(shape(call_id=TEXT, field=TEXT, sha256=TEXT, size_bytes=WHOLE)),
        children=TEXTS,
        events=WHOLE,
        after=of_type(ChainHead),
        head=of_type(ChainHead),
    )


def _runs() -> dict[str, dict[str, Any]]:
    """What the actions of `prowess runs` print."""
    row = shape(
        run=TEXT,
        session=TEXT,
        started_at=TEXT,
        finished_at=TEXT_OR_NULL,
        model=TEXT,
        request=TEXT,
        stop_reason=TEXT_OR_NULL,
        cut_off=YES_NO,
        resumes=TEXT_OR_NULL,
        resumed_by=TEXT_OR_NULL,
        tokens=WHOLE,
        children=WHOLE,
        in_log=YES_NO,
    )
    moment = shape(seq=WHOLE_OR_NULL, offset_ms=WHOLE_OR_NULL, run=TEXT, kind=TEXT, text=TEXT, more=TEXT)
    found = shape(valid=YES_NO, events=WHOLE, first_bad=WHOLE_OR_NULL, anchored=YES_NO, why=TEXT_OR_NULL)["properties"]
    verified = shape(
        run=TEXT,
        session=TEXT_OR_NULL,
        **found,
        where={"enum": ["log", "copy", None]},
        checked={"type": "array", "items": {"enum": ["log", "copy"]}},
        copy_lacks=TEXT_OR_NULL,
        other_store=YES_NO,
    )
    difference = shape(what=TEXT, seq=WHOLE_OR_NULL, other_seq=WHOLE_OR_NULL, type=TEXT, recorded=TEXT, actual=TEXT)
    first = {"anyOf": [difference, {"type": "null"}]}
    side = shape(
        run=TEXT,
        session=TEXT,
        model=TEXT,
        skills=TEXTS,
        calls=TEXTS,
        input_tokens=WHOLE,
        output_tokens=WHOLE,
        requests=WHOLE,
        events=WHOLE,
        stop_reason=TEXT_OR_NULL,
    )
    error = {"anyOf": [shape(code=TEXT, message=TEXT, hint=TEXT_OR_NULL), {"type": "null"}]}
    return {
        "runs": shape(store=TEXT, runs=many(row), more=YES_NO, damaged=TEXTS),
        "run-shown": shape(
            **_run()["properties"],
            cut_off=YES_NO,
            resumed_by=TEXT_OR_NULL,
            damage=TEXT_OR_NULL,
            unreadable=WHOLE,
            timeline=many(moment),
        ),
        "run-verified": verified,
        "runs-verified": shape(valid=YES_NO, sessions=many(shape(session=TEXT, **found)), runs=many(verified)),
        "runs-diff": shape(same=YES_NO, first=first, a=side, b=side),
        "run-replayed": shape(
            run=TEXT, same=YES_NO, first=first, events=WHOLE, replayed=WHOLE, error=error, notes=TEXTS
        ),
        "run-exported": shape(
            run=TEXT, format={"enum": ["otel", "jsonl"]}, path=TEXT, size_bytes=WHOLE, damage=TEXT_OR_NULL
        ),
        "runs-pruned": shape(
            dry_run=YES_NO,
            removed=many(shape(run=TEXT, path=TEXT, size_bytes=WHOLE)),
            sessions=TEXTS,
            kept=TEXTS,
        ),
    }


def _packs(findings: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What the commands for packs print. `changes` is what an installation changes, `edits` what people changed."""
    differences = many(shape(kind={"enum": ["added", "changed", "removed", "mode"]}, path=TEXT))
    installed = shape(
        name=TEXT,
        action={"enum": ["install", "update", "restore", "accept", "record", "keep"]},
        path=TEXT,
        source=TEXT,
        kind={"enum": ["folder", "archive", "url", "git", "site", "package"]},
        ref=TEXT_OR_NULL,
        commit=TEXT_OR_NULL,
        sha256=TEXT_OR_NULL,
        version=TEXT_OR_NULL,
        version_before=TEXT_OR_NULL,
        digest=TEXT,
        digest_before=TEXT_OR_NULL,
        files=WHOLE,
        size_bytes=WHOLE,
        changes=differences,
        edits=differences,
        capabilities=TEXTS,
        capabilities_before={"type": ["array", "null"], "items": TEXT},
        findings=findings,
        status={"enum": [*STATUS["enum"], None]},
    )
    compared = {
        "same": YES_NO,
        "digest": TEXT_OR_NULL,
        "expected_digest": TEXT_OR_NULL,
        "differences": differences,
        "notes": TEXTS,
    }
    pack = shape(
        path=TEXT,
        same=YES_NO,
        sha256=TEXT_OR_NULL,
        has_manifest=YES_NO,
        skills=many(shape(path=TEXT, **compared)),
        others=TEXTS,
    )
    packed = shape(name=TEXT, version=TEXT_OR_NULL, digest=TEXT, files=WHOLE, findings=findings)
    removed = shape(name=TEXT, path=TEXT, digest=TEXT_OR_NULL, backup=TEXT_OR_NULL)
    return {
        "installed": shape(
            dry_run=YES_NO,
            changed=YES_NO,
            folder=TEXT,
            wanted=TEXT,
            lock=TEXT,
            skills=many(installed),
            notes=TEXTS,
            failed=many(shape(name=TEXT, code=TEXT, message=TEXT, hint=TEXT_OR_NULL)),
        ),
        "uninstalled": shape(purged=YES_NO, removed=many(removed)),
        "rolled-back": shape(
            name=TEXT,
            path=TEXT,
            digest=TEXT_OR_NULL,
            digest_before=TEXT_OR_NULL,
            version=TEXT_OR_NULL,
            version_before=TEXT_OR_NULL,
            source=TEXT_OR_NULL,
            changes=differences,
        ),
        "verified": shape(
            same=YES_NO,
            folder=TEXT_OR_NULL,
            lock=TEXT_OR_NULL,
            skills=many(shape(name=TEXT, path=TEXT, **compared)),
            unknown=TEXTS,
            packs=many(pack),
        ),
        "packed": shape(path=TEXT, sha256=TEXT, size_bytes=WHOLE, skills=many(packed), left_out=TEXTS),
        "batch": shape(output=TEXT, total=WHOLE, failed=WHOLE, resumed=WHOLE, notes=TEXTS),
        "eval-runs": shape(runs=many(shape(id=TEXT, started_at=TEXT, suite=TEXT, model=TEXT, arms=TEXTS)), more=YES_NO),
        "evals-init": shape(file=TEXT),
    }


def _standing(files: dict[str, Any]) -> dict[str, Any]:
    return shape(skill=TEXT, digest=TEXT, capability=TEXT, at=TEXT, by=TEXT, files=files)


def _waiting() -> dict[str, Any]:
    """`about` is what the one who is asked has to know: risk, source, isolation, what has changed, a difference."""
    return shape(
        session=TEXT,
        run=TEXT,
        call_id=TEXT,
        tool=TEXT,
        capability=TEXT,
        skill=TEXT_OR_NULL,
        args=OPEN,
        why=TEXT,
        about=OPEN,
        since=TEXT,
        answer={"enum": [*ANSWER["enum"], None]},
        of_child=YES_NO,
        state={"enum": ["waiting", "asking", "cut-off"]},
        to_answer=TEXT_OR_NULL,
        to_resume=TEXT_OR_NULL,
    )


def _session() -> dict[str, Any]:
    return shape(
        session=TEXT,
        created_at=TEXT,
        updated_at=TEXT,
        expires_at=TEXT_OR_NULL,
        events=WHOLE,
        runs=WHOLE_OR_NULL,
        last_request=TEXT_OR_NULL,
        stop_reason=TEXT_OR_NULL,
        damage=TEXT_OR_NULL,
    )


def _conversation() -> dict[str, Any]:
    said = shape(kind={"enum": ["skill", "unload", "call", "text", "note", "error", "run"]}, text=TEXT)
    said["properties"] |= {"run": TEXT, "status": TEXT_OR_NULL, "code": TEXT_OR_NULL, "id": TEXT}
    return shape(**_run()["properties"], said=many(said))


def _artifact() -> dict[str, Any]:
    return {"ref": TEXT, **of_type(Artifact)["properties"]}


def _workspace() -> dict[str, Any]:
    return shape(id=TEXT, session=TEXT, store=TEXT_OR_NULL, files=WHOLE, **_ON_DISK)


def _environment() -> dict[str, Any]:
    return shape(key=TEXT, dependencies=TEXTS, resolved=TEXTS, made_for=TEXT, whole=YES_NO, **_ON_DISK)


_ON_DISK = {"path": TEXT, "size_bytes": WHOLE, "used_at": TEXT, "in_use": YES_NO}


def _trust() -> dict[str, Any]:
    return {
        "folders": many(shape(path=TEXT, at=TEXT)),
        "files": many(shape(path=TEXT, sha256=TEXT, at=TEXT)),
        "urls": many(shape(url=TEXT, digest=TEXT, at=TEXT)),
    }


def _stored_trust() -> dict[str, Any]:
    """The file of a release that installed no skills has no list of them."""
    stored = shape(**_trust())
    return {**stored, "properties": {**stored["properties"], "skills": _ACCEPTED}}


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
    if origin is typing.Annotated:  # our own names; packages add more
        return {"anyOf": [{"enum": list(options[1].own)}, TEXT]}
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


_ACCEPTED = many(shape(path=TEXT, digest=TEXT, at=TEXT))


if __name__ == "__main__":
    sys.exit(main())
