"""Handler of `prowess pack`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from prowess.cli.app import Call
from prowess.cli.pack_plan import shown_path
from prowess.cli.screen import count, size
from prowess.core.findings import visible
from prowess.packs import api
from prowess.packs.bundle import WrittenPack
from prowess.runtime.services.documents import finding_row

if TYPE_CHECKING:
    from prowess.runtime.documents.packs import PackedDocument, PackedRow


def pack(call: Call, folders: tuple[str, ...], output: str, force: bool) -> int:
    with call.screen.working("Packing"):
        made = api.pack(*folders, output=output, force=force, cwd=call.cwd)
    if call.screen.is_json:
        call.screen.document(_document(made))
    else:
        _show(call, made)
    return 0


def _document(made: WrittenPack) -> PackedDocument:
    skills: list[PackedRow] = []
    for skill in made.skills:
        findings = [finding_row(finding) for finding in skill.findings]
        row: PackedRow = {
            "name": skill.name,
            "version": skill.version,
            "digest": skill.digest,
            "files": len(skill.files),
            "findings": findings,
        }
        skills.append(row)
    return {
        "schema": "prowess.packed/1",
        "path": made.path,
        "sha256": made.sha256,
        "size_bytes": made.size_bytes,
        "skills": skills,
        "left_out": list(made.left_out),
    }


def _show(call: Call, made: WrittenPack) -> None:
    screen = call.screen
    rows: list[list[str]] = []
    for skill in made.skills:
        files = str(len(skill.files))
        rows.append([skill.name, skill.version or "-", files, skill.digest])
    screen.table(["skill", "version", "files", "digest"], rows)
    path = shown_path(call, made.path)
    shown = visible(path)
    written = size(made.size_bytes)
    screen.text(f"\n{shown}  {written}\nsha256  {made.sha256}")
    for left_out in made.left_out:
        shown = visible(left_out)
        screen.note(f"left out: {shown}")
    for skill in made.skills:
        problems = [finding for finding in skill.findings if finding.severity != "info"]
        if problems:
            name = visible(skill.name)
            number = count(len(problems), "finding")
            screen.note(f"{name}: {number}")
            screen.findings(problems)
    command = shlex.join(["prowess", "install", *call.where(), path])
    screen.note(f"Install it with: {command}")
