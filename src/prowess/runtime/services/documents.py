"""JSON documents of contract.md that several commands share."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from json.encoder import encode_basestring_ascii as quoted
from typing import TYPE_CHECKING

from prowess._internal.tokens import estimate_bytes
from prowess.core.catalog_values import Finding, Mode
from prowess.errors import ProwessError
from prowess.skills.catalog import Catalog
from prowess.skills.skill import Entry, Visibility

if TYPE_CHECKING:
    from prowess.runtime.documents.shared import ErrorRow, FindingRow
    from prowess.runtime.documents.skills import SkillControls, SkillKind, SkillRow
    from prowess.skills.render import RowTokens

_NOT_BY_DEFAULT = ("shadowed", "hidden", "off")


def find_shown(
    catalog: Catalog, *, everything: bool = False, source: str | None = None
) -> tuple[list[tuple[Entry, Visibility]], int]:
    """Returns the skills to list, and the number of skills left out."""
    shown: list[tuple[Entry, Visibility]] = []
    left_out = 0
    for entry in catalog:
        if source not in (None, entry.source):
            continue
        seen = catalog.visibility(entry)
        if everything or seen.status not in _NOT_BY_DEFAULT:
            shown.append((entry, seen))
        else:
            left_out += 1
    return shown, left_out


def skill_row(catalog: Catalog, entry: Entry, *, digest: str | None = None) -> SkillRow:
    seen = catalog.visibility(entry)
    codes = catalog.finding_codes(entry)
    return {
        "id": entry.id,
        "name": entry.name,
        "description": entry.description,
        "source": entry.source,
        "path": entry.path,
        **_of_its_kind(entry, seen, digest),
        "tokens": rough_tokens(entry),
        "finding_codes": list(codes),
    }


def _of_its_kind(entry: Entry, seen: Visibility, digest: str | None = None) -> SkillKind:
    """Returns the part of a row that many skills have in common."""
    return {
        "version": entry.version,
        "digest": digest,
        "status": seen.status,
        "reasons": list(seen.reasons),
        "model_visible": seen.model_visible,
        "user_visible": seen.user_visible,
        "controls": _controls_row(entry, seen.mode),
    }


def _controls_row(entry: Entry, mode: Mode) -> SkillControls:
    controls = entry.controls
    allowed = controls.allowed_tools
    if allowed is not None:
        allowed = list(allowed)
    return {
        "mode": mode,
        "allowed_tools": allowed,
        "run_mode": controls.run_mode,
        "role": controls.role,
        "user_invocable": controls.user_invocable,
    }


def render_skill_rows(catalog: Catalog, entries: Iterable[tuple[Entry, Visibility]]) -> Iterator[str]:
    """Renders `skill_row` of each as JSON, several times as fast: parts that many skills share are rendered once."""
    kinds: dict[tuple[object, ...], str] = {}
    codes: dict[int, str] = {}
    for entry, seen in entries:
        kind = (entry.version, seen, id(entry.controls))  # the catalog keeps the object alive, so its id is unique
        common = kinds.get(kind)
        if common is None:
            common = kinds[kind] = json.dumps(_of_its_kind(entry, seen))[1:-1]
        found = codes.get(id(entry.notes))
        if found is None:
            found = codes[id(entry.notes)] = json.dumps(catalog.finding_codes(entry))
        name, source = quoted(entry.name), entry.source
        is_plain = entry.rel == entry.name and not entry.suffix
        own_id = f'"{source}:{name[1:]}' if is_plain else quoted(entry.id)
        yield (
            f'{{"id": {own_id}, "name": {name}, '
            f'"description": {quoted(entry.description)}, "source": "{source}", "path": {quoted(entry.path)}, '
            f'{common}, "tokens": {{"catalog": {entry.catalog_tokens}, '
            f'"body": {estimate_bytes(entry.size_bytes) + _FRAME}, "exact": false}}, "finding_codes": {found}}}'
        )


def render_finding_rows(findings: Iterable[Finding]) -> Iterator[str]:
    """Renders `finding_row` of each as JSON. Findings that differ only in the path are rendered once."""
    kinds: dict[tuple[object, ...], list[str]] = {}
    for finding in findings:
        kind = (finding.code, finding.severity, finding.line, finding.message, finding.hint)
        if kind not in kinds:
            row = finding_row(finding._replace(path="/"))
            kinds[kind] = json.dumps(row).split('"path": "/"', 1)
        before, after = kinds[kind]
        yield f'{before}"path": {quoted(finding.path)}{after}'


def rough_tokens(entry: Entry) -> RowTokens:
    """Counts the text of the catalog entry, and estimates the body from the file's size without opening it."""
    return {"catalog": entry.catalog_tokens, "body": estimate_bytes(entry.size_bytes) + _FRAME, "exact": False}


_FRAME = 55  # tokens that a load adds around a body


def error_row(error: ProwessError) -> ErrorRow:
    return {"code": error.code, "message": error.message, "hint": error.hint}


def finding_row(finding: Finding) -> FindingRow:
    return {
        "code": finding.code,
        "severity": finding.severity,
        "path": finding.path,
        "line": finding.line,
        "message": finding.message,
        "hint": finding.hint,
    }
