"""The public JSON shapes of contract.md that several verbs share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prowess._nouns import Finding
from prowess._tokens import estimate, estimate_bytes
from prowess.skills.entry import Entry, Skill
from prowess.skills.model import Catalog
from prowess.skills.prompt import render_skill, xml_entry


def skill_row(catalog: Catalog, entry: Entry, *, digest: str | None = None) -> dict[str, Any]:
    seen = catalog.visibility(entry)
    controls = entry.controls
    allowed = controls.allowed_tools
    return {
        "id": entry.id,
        "name": entry.name,
        "description": entry.description,
        "source": entry.source,
        "path": entry.path,
        "version": entry.version,
        "digest": digest,
        "status": seen.status,
        "reasons": list(seen.reasons),
        "model_visible": seen.model_visible,
        "user_visible": seen.user_visible,
        "controls": {
            "mode": seen.mode,
            "allowed_tools": None if allowed is None else list(allowed),
            "run_mode": controls.run_mode,
            "role": controls.role,
            "user_invocable": controls.user_invocable,
        },
        "tokens": rough_tokens(entry),
        "finding_codes": list(dict.fromkeys(finding.code for finding in catalog.findings_of(entry))),
    }


def rough_tokens(entry: Entry) -> dict[str, Any]:
    """The catalog entry's text is counted; the body is guessed from the file's size, known without opening it."""
    return {"catalog": _in_catalog(entry, estimate), "body": estimate_bytes(entry.size_bytes) + _FRAME, "exact": False}


_FRAME = 55  # what a load puts around a body


def skill_tokens(skill: Skill, counter: Callable[[str], int] = estimate) -> dict[str, Any]:
    """What a skill costs: its entry in the catalog, and what a load adds."""
    return {"catalog": _in_catalog(skill.entry, counter), "body": counter(render_skill(skill)), "exact": False}


def _in_catalog(entry: Entry, counter: Callable[[str], int]) -> int:
    return counter(xml_entry(entry, (entry.name, None)) + "\n")


def finding_row(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "severity": finding.severity,
        "path": finding.path,
        "line": finding.line,
        "message": finding.message,
        "hint": finding.hint,
    }
