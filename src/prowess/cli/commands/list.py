"""Command `prowess list`: lists the skills and their status."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import click

from prowess.cli.app import Call, cli_command, roots_option, source_option
from prowess.cli.commands.list_json import write_list
from prowess.cli.screen import count
from prowess.core.catalog_values import Finding, Status
from prowess.core.findings import visible
from prowess.errors import SkillError
from prowess.runtime.runtime import Runtime
from prowess.runtime.services.documents import find_shown, render_skill_rows, skill_row
from prowess.skills.render import skill_tokens
from prowess.skills.skill import Entry, Skill, Visibility

# Codes of findings that the summary tells whole, and not only by their number.
_TOLD = ("url-", "digest-denied", "accepted-changed", "locked-missing")


@cli_command(
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
@click.option("--tokens", is_flag=True, help="Show tokens, counted from the text and not from the file's size.")
def command(
    call: Call,
    everything: bool,
    source: str | None,
    roots: tuple[str, ...],
    digest: bool,
    tokens: bool,
) -> int:
    """Show every skill that was found, and its status.

    Skills that are shadowed, hidden or off are left out unless you ask with --all; their number is always shown.
    """
    with call.runtime(roots=roots) as runtime:
        with call.screen.working("Reading skills"):
            shown, hidden = find_shown(runtime.catalog, everything=everything, source=source)
        if not call.screen.is_json:
            _show(call, runtime, shown, hidden=hidden, digest=digest, tokens=tokens)
            return 0
        if digest or tokens:
            rows = _whole_rows(runtime, shown, digest, tokens)
        else:
            rows = render_skill_rows(runtime.catalog, shown)
        write_list(call, runtime, rows)
    return 0


def _whole_rows(runtime: Runtime, shown: list[tuple[Entry, Visibility]], digest: bool, tokens: bool) -> Iterator[str]:
    """Yields rows of JSON with digest or tokens, for which whole skills are read."""
    for entry, seen in shown:
        skill = _load(runtime, entry, seen)
        found_digest = skill.digest if skill and digest else None
        row: dict[str, Any] = {**skill_row(runtime.catalog, entry, digest=found_digest)}
        if skill and tokens:
            row["tokens"] = skill_tokens(skill)
        yield json.dumps(row)


def _load(runtime: Runtime, entry: Entry, seen: Visibility) -> Skill | None:
    """Loads a skill. None if it is invalid."""
    if seen.status == "invalid":
        return None
    try:
        return runtime.load_entry(entry)
    except SkillError:
        return None


def _show(
    call: Call, runtime: Runtime, shown: list[tuple[Entry, Visibility]], *, hidden: int, digest: bool, tokens: bool
) -> None:
    screen = call.screen
    if shown:
        columns = ["name", "status", "source"]
        if digest:
            columns.append("digest")
        if tokens:
            columns += ["catalog", "body"]
        columns.append("description")
        rows = _rows(runtime, shown, digest=digest, tokens=tokens)
        screen.table(columns, rows, styled=1)
    problems = [finding for finding in runtime.findings if finding.severity != "info"]
    if screen.verbose:
        screen.text()
        screen.findings(problems, base=runtime.places.project)
    statuses: list[Status] = [seen.status for _, seen in shown]
    _summarise(call, runtime, statuses, hidden, problems)


def _rows(runtime: Runtime, shown: list[tuple[Entry, Visibility]], *, digest: bool, tokens: bool) -> list[list[str]]:
    """Returns the cells of each skill. Skills that share a name are shown by their id."""
    times = Counter(entry.name for entry, _ in shown)
    rows: list[list[str]] = []
    for entry, seen in shown:
        name = entry.name
        if times[name] > 1:
            name = entry.id
        row = [name, _status(entry, seen), entry.source]
        if digest or tokens:
            skill = _load(runtime, entry, seen)
            row += _counts(skill, digest, tokens)
        words = entry.description.split()
        row.append(" ".join(words) or "(no description)")
        rows.append(row)
    return rows


def _counts(skill: Skill | None, digest: bool, tokens: bool) -> list[str]:
    """Returns the cells that need the whole skill. They are empty if it is invalid."""
    cells: list[str] = []
    if digest:
        cells.append(skill.digest[:19] if skill else "")
    if tokens and skill:
        counted = skill_tokens(skill)
        cells += [str(counted["catalog"]), str(counted["body"])]
    elif tokens:
        cells += ["", ""]
    return cells


def _status(entry: Entry, seen: Visibility) -> str:
    """Returns the status; it also says when only the model may start the skill."""
    if seen.status == "active" and not entry.controls.user_invocable:
        return "active, model only"
    return seen.status


def _summarise(call: Call, runtime: Runtime, shown: list[Status], hidden: int, problems: list[Finding]) -> None:
    """Shows counts and problems that the table leaves out, and the commands to see more."""
    screen = call.screen
    roots = runtime.catalog.roots
    summary = [count(len(shown), "skill")]
    if hidden:
        summary.append(f"{hidden} more with --all")
    if problems:
        findings = count(len(problems), "finding")
        named = [root.shown for root in roots if root.origin == "flag"]
        doctor = call.follow_up("prowess doctor", named)
        summary.append(f"{findings}: {doctor}")
    if "untrusted" in shown:
        urls = [root.shown for root in roots if root.url and not root.trusted]
        trust = " ".join(["prowess trust", *urls[:1]])
        summary.append(f"untrusted skills are kept from models: {trust}")
    text = " · ".join(summary)
    if shown:
        screen.note(f"\n{text}")
        told = [finding for finding in problems if finding.code.startswith(_TOLD)]
        screen.findings(told)
        return
    screen.note(text)
    if problems:
        screen.findings(problems[:3])
        return
    searched = [root.shown for root in roots if root.origin != "default" or root.exists]
    places = visible(", ".join(searched)) or "the default places"
    screen.note(f"Looked in: {places}. Make one with: prowess new NAME")
