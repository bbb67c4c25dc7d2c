"""prowess list"""

from __future__ import annotations

from typing import Any

import click

from prowess.cli.app import Call, roots_option, source_option, verb
from prowess.cli.documents import finding_row, skill_row
from prowess.cli.render import count
from prowess.runtime import Runtime
from prowess.skills.entry import Entry

_NOT_BY_DEFAULT = ("shadowed", "hidden", "off")


@verb(
    "list",
    example="""
prowess list
prowess list --all --source project
prowess list --root ./skills --json""",
)
@click.option("--all", "everything", is_flag=True, help="Also what is shadowed, hidden or off.")
@source_option
@roots_option
@click.option("--digest", is_flag=True, help="Compute each skill's digest (reads all its files).")
@click.option("--tokens", is_flag=True, help="Count body tokens from the text, not from the file's size.")
@click.option("--max-depth", type=click.IntRange(0), help="How many levels below a root to look.  [default: 6]")
@click.option("--max-entries", type=click.IntRange(1), help="How many folder entries to see.  [default: 20000]")
def command(
    call: Call,
    everything: bool,
    source: str | None,
    roots: tuple[str, ...],
    digest: bool,
    tokens: bool,
    max_depth: int | None,
    max_entries: int | None,
) -> int:
    """Show every skill that was found, and its status.

    Skills that are shadowed, hidden or off are left out unless you ask with --all; their number is always said.
    """
    with call.runtime(roots=roots, max_depth=max_depth, max_entries=max_entries) as runtime:
        with call.screen.working("Reading skills"):
            catalog = runtime.catalog
            entries = [entry for entry in catalog if source in (None, entry.source)]
            shown = [e for e in entries if everything or catalog.visibility(e).status not in _NOT_BY_DEFAULT]
            rows = [_row(runtime, entry, digest=digest, tokens=tokens) for entry in shown]
        if call.screen.is_json:
            call.screen.document(
                {
                    "schema": "prowess.list/1",
                    "skills": rows,
                    "findings": [finding_row(finding) for finding in runtime.findings],
                    "roots": [
                        {"source": r.source, "path": r.url or r.path, "skills": r.skills, "exists": r.exists}
                        for r in catalog.roots
                    ],
                }
            )
        else:
            _show(call, runtime, rows, hidden=len(entries) - len(shown), digest=digest)
    return 0


def _row(runtime: Runtime, entry: Entry, *, digest: bool, tokens: bool) -> dict[str, Any]:
    catalog = runtime.catalog
    usable = catalog.visibility(entry).status != "invalid"
    if not (digest or tokens) or not usable:
        return skill_row(catalog, entry)
    from prowess._load import load_entry
    from prowess._tokens import estimate
    from prowess.errors import SkillError

    try:
        skill = catalog.memory_skill(entry) or load_entry(entry)
    except SkillError:
        return skill_row(catalog, entry)
    row = skill_row(catalog, entry, digest=skill.digest if digest else None)
    if tokens:
        row["tokens"] = {**row["tokens"], "body": estimate(skill.body)}
    return row


def _show(call: Call, runtime: Runtime, rows: list[dict[str, Any]], *, hidden: int, digest: bool) -> None:
    screen = call.screen
    if rows:
        columns = ["name", "status", "source", *(["digest"] if digest else []), "description"]
        screen.table(
            columns,
            [
                [
                    _label(row, rows),
                    row["status"],
                    row["source"],
                    *([(row["digest"] or "")[:19]] if digest else []),
                    " ".join(row["description"].split()) or "(no description)",
                ]
                for row in rows
            ],
            styled=1,
        )
    summary = [count(len(rows), "skill")]
    if hidden:
        summary.append(f"{hidden} more with --all")
    problems = [finding for finding in runtime.findings if finding.severity != "info"]
    if problems:
        summary.append(f"{count(len(problems), 'finding')}: prowess doctor")
    if any(row["status"] == "untrusted" for row in rows):
        summary.append("untrusted skills are kept from models: prowess trust")
    screen.note(("\n" if rows else "") + " · ".join(summary))
    if not rows:
        places = [root.url or root.path for root in runtime.catalog.roots if root.origin != "default" or root.exists]
        screen.note("Looked in: " + (", ".join(places) or "the default places") + ". Make one with: prowess new NAME")


def _label(row: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """The name, or the id where two rows share the name."""
    return row["name"] if sum(other["name"] == row["name"] for other in rows) == 1 else row["id"]
