"""prowess runs show"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import click

from prowess._audit import SessionRecord
from prowess.cli.app import Call, verb
from prowess.cli.render import Screen, count, printable
from prowess.cli.run_records import Found, find_run, load_lines, note_findings, opened
from prowess.cli.run_timeline import Moment, timeline
from prowess.errors import AuditBroken
from prowess.events import Envelope
from prowess.runtime import Runtime
from prowess.skills.findings import visible
from prowess.stores.run_summary import RunSummary


@verb("show", example="prowess runs show r-1f2e\nprowess runs show r-1f2e --full\nprowess runs show r-1f2e --events")
@click.argument("run")
@click.option("--events", is_flag=True, help="Print the events as they are stored, one per line.")
@click.option("--full", is_flag=True, help="Whole texts, not only what fits a line.")
def show(call: Call, run: str, events: bool, full: bool) -> int:
    """Show a run as a timeline: what was asked, decided, done and answered, when and why.

    RUN is an id, the beginning of one, the folder of a run, or a path to one.
    """
    with call.runtime() as runtime:
        note_findings(call, runtime)
        lines, envelopes, summary = asyncio.run(read_run(runtime, run))
    if events:
        for line in lines:
            sys.stdout.write(f"{line}\n")
        return 0
    moments = timeline(envelopes, full=full)
    if call.screen.is_json:
        rows = [_row(moment) for moment in timeline(envelopes, full=True)]
        call.screen.document({**summary.to_json(), "schema": "prowess.run-shown/1", "timeline": rows})
        return 0
    heading = f"{summary.run} · {summary.started_at[:19].replace('T', ' ')} · session {summary.key.session}"
    call.screen.heading(visible(heading))
    width = len(f"{(moments[-1].offset_ms or 0) / 1000:.3f}") if moments else 0
    for moment in moments:
        _print(call.screen, moment, indent="" if moment.run == summary.run else "  ", width=width)
    if len(envelopes) < len(lines):
        call.screen.note(f"warning: {count(len(lines) - len(envelopes), 'line')} cannot be read: prowess runs verify")
    call.screen.note(f"\n{count(len(envelopes), 'event')} · {summary.stop_reason or 'has not ended'}")
    return 0


async def read_run(runtime: Runtime, ref: str) -> tuple[list[str], list[Envelope], RunSummary]:
    """The lines of a run and what they say: from the log, else from its copy. AuditBroken when nothing is readable."""
    async with opened(runtime) as (log, _):
        found = await find_run(runtime, log, ref)
    return run_of(found)


def run_of(found: Found) -> tuple[list[str], list[Envelope], RunSummary]:
    if found.record is not None and found.summary is not None:
        lines = [line.text for line in found.record.slice(found.summary) if line.text is not None]
        return lines, found.record.of(found.summary), found.summary
    lines = load_lines(found.folder) if found.folder else None
    copied = SessionRecord.of_lines(lines or ())
    if not copied.runs:
        raise AuditBroken(
            f"The record of run '{found.run}' cannot be read.",
            hint=f"See what is wrong with it: prowess runs verify {found.folder or found.run}",
        )
    summary = copied.find(found.run) or copied.runs[0]
    return lines or [], copied.of(summary), summary


def _row(moment: Moment) -> dict[str, Any]:
    return moment._asdict()


def _print(screen: Screen, moment: Moment, *, indent: str, width: int) -> None:
    at = "" if moment.offset_ms is None else f"{moment.offset_ms / 1000:.3f}"
    screen.text(f"{at:>{width}}  {indent}{visible(moment.text)}".rstrip())
    if moment.more:
        pad = " " * (width + 2) + indent + "  "
        for line in printable(moment.more.rstrip("\n"), lines=True).split("\n"):
            screen.text((pad + line).rstrip())
