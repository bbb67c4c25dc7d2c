"""prowess list"""

from __future__ import annotations

import shlex
from collections import Counter
from typing import Any

import click

from prowess._nouns import Finding
from prowess.cli.app import Call, roots_option, source_option, verb
from prowess.cli.documents import finding_row, skill_row, skill_tokens
from prowess.cli.render import count
from prowess.errors import SkillError
from prowess.runtime import Runtime
from prowess.skills.entry import Entry
from prowess.skills.findings import visible

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
def command(
    call: Call,
    everything: bool,
    source: str | None,
    roots: tuple[str, ...],
    digest: bool,
    tokens: bool,
) -> int:
    """Show every skill that was found, and its status.

    Skills that are shadowed, hidden or off are left out unless you ask with --all; their number is always said.
    """
    with call.runtime(roots=roots) as runtime:
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
                        {"source": r.source, "path": r.shown, "skills": r.skills, "exists": r.exists}
                        for r in catalog.roots
                    ],
                }
            )
        else:
            _show(call, runtime, rows, hidden=len(entries) - len(shown), digest=digest)
    return 0


def _row(runtime: Runtime, entry: Entry, *, digest: bool, tokens: bool) -> dict[str, Any]:
    catalog = runtime.catalog
    if not (digest or tokens) or catalog.visibility(entry).status == "invalid":
        return skill_row(catalog, entry)
    from prowess._load import load_entry  # late: only those who ask for it pay for reading whole skills

    try:
        skill = catalog.memory_skill(entry) or load_entry(entry)
    except SkillError:
        return skill_row(catalog, entry)
    row = skill_row(catalog, entry, digest=skill.digest if digest else None)
    return {**row, "tokens": skill_tokens(skill)} if tokens else row


def _show(call: Call, runtime: Runtime, rows: list[dict[str, Any]], *, hidden: int, digest: bool) -> None:
    screen = call.screen
    if rows:
        times = Counter(row["name"] for row in rows)
        columns = ["name", "status", "source", *(["digest"] if digest else []), "description"]
        screen.table(
            columns,
            [
                [
                    row["name"] if times[row["name"]] == 1 else row["id"],
                    _status(row),
                    row["source"],
                    *([(row["digest"] or "")[:19]] if digest else []),
                    " ".join(row["description"].split()) or "(no description)",
                ]
                for row in rows
            ],
            styled=1,
        )
    problems = [finding for finding in runtime.findings if finding.severity != "info"]
    if screen.verbose:
        screen.text()
        screen.findings(problems, base=runtime.places.project)
    _summarise(call, runtime, rows, hidden, problems)


def _status(row: dict[str, Any]) -> str:
    """The status; of a skill that only the model may start, with these words."""
    is_kept = row["status"] == "active" and not row["controls"]["user_invocable"]
    return "active, model only" if is_kept else row["status"]


def _summarise(call: Call, runtime: Runtime, rows: list[dict[str, Any]], hidden: int, problems: list[Finding]) -> None:
    """What the table does not show, and where to look for it."""
    screen = call.screen
    named = [root for root in runtime.catalog.roots if root.origin == "flag"]
    same_roots = "".join(f" --root {shlex.quote(root.shown)}" for root in named)
    summary = [count(len(rows), "skill")]
    if hidden:
        summary.append(f"{hidden} more with --all")
    if problems:
        summary.append(f"{count(len(problems), 'finding')}: prowess doctor{same_roots}")
    if any(row["status"] == "untrusted" for row in rows):
        urls = [root.shown for root in runtime.catalog.roots if root.url and not root.trusted]
        summary.append(f"untrusted skills are kept from models: prowess trust{' ' + urls[0] if urls else ''}")
    screen.note(("\n" if rows else "") + " · ".join(summary))
    if rows:
        screen.findings([finding for finding in problems if finding.code.startswith("url-")])
        return
    if problems:
        screen.findings(problems[:3])
        return
    places = [root.shown for root in runtime.catalog.roots if root.origin != "default" or root.exists]
    screen.note(f"Looked in: {visible(', '.join(places)) or 'the default places'}. Make one with: prowess new NAME")
