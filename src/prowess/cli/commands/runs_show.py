"""prowess runs show"""

from __future__ import annotations

import asyncio
import sys
from typing import Any, NamedTuple

import click

from prowess.cli.app import Call, verb
from prowess.cli.commands.runs_verify import verify_one
from prowess.cli.find_run import Found, find_run, load_lines, load_summary, note_findings, opened
from prowess.cli.screen import Screen, count, printable
from prowess.cli.timeline import Moment, timeline
from prowess.core.events import Envelope
from prowess.core.findings import visible
from prowess.errors import AuditBroken
from prowess.records.audit import SessionRecord
from prowess.records.summary import RunSummary, find_resuming, is_cut_off
from prowess.runtime.runtime import Runtime


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
        read = asyncio.run(read_run(runtime, run))
    lines, envelopes, summary = read.lines, read.envelopes, read.summary
    if events:
        for line in lines:
            sys.stdout.write(f"{line}\n")
        note_damage(call, read)
        return 0
    moments = timeline(envelopes, full=full)
    if call.screen.is_json:
        rows = [_row(moment) for moment in timeline(envelopes, full=True)]
        known = {"cut_off": read.cut_off, "resumed_by": read.resumed_by}
        known |= {"damage": read.damage, "unreadable": read.unreadable}
        call.screen.document({**summary.to_json(), "schema": "prowess.run-shown/1", **known, "timeline": rows})
        return 0
    heading = f"{summary.run} · {summary.started_at[:19].replace('T', ' ')} · session {summary.key.session}"
    call.screen.heading(visible(heading))
    width = len(f"{(moments[-1].offset_ms or 0) / 1000:.3f}") if moments else 0
    for moment in moments:
        _print(call.screen, moment, indent="" if moment.run == summary.run else "  ", width=width)
    note_damage(call, read)
    ended = summary.stop_reason or ("cut off" if read.cut_off else "has not ended")
    resumed = f" · resumed by {visible(read.resumed_by)}" if read.resumed_by else ""
    call.screen.note(f"\n{count(len(envelopes), 'event')} · {ended}{resumed}")
    return 0


class ReadRun(NamedTuple):
    """The lines of a run and what they say. `damage`: why `runs verify` says that they are not what was written;
    `unreadable`: how many events are missing from them, or are none."""

    lines: list[str]
    envelopes: list[Envelope]
    summary: RunSummary
    damage: str | None
    unreadable: int
    cut_off: bool
    resumed_by: str | None


async def read_run(runtime: Runtime, ref: str) -> ReadRun:
    """From the log, else from its copy. AuditBroken when nothing is readable."""
    async with opened(runtime) as (log, place):
        found = await find_run(runtime, log, ref)
        result = await verify_one(log, place, found)
    is_read = result["where"] == "log" or found.summary is None  # a copy that was edited changes nothing here
    return _read(found, str(result["why"]) if not result["valid"] and is_read else None)


def _read(found: Found, damage: str | None) -> ReadRun:
    lines, envelopes, summary = run_of(found)
    if found.record is None or found.summary is None:
        is_whole = found.folder is not None and load_summary(found.folder) is not None
        cut_off = is_whole and summary.finished_at is None
        return ReadRun(lines, envelopes, summary, damage, len(lines) - len(envelopes), cut_off, None)
    runs = found.record.runs
    unreadable = len(found.record.slice(summary)) - len(envelopes)
    following = is_cut_off(runs, summary), find_resuming(runs, summary)
    return ReadRun(lines, envelopes, summary, damage, unreadable, *following)


def note_damage(call: Call, read: ReadRun) -> None:
    """On stderr in any case: what is printed may go to a program that has no field for it."""
    run = visible(read.summary.run)
    if read.damage is not None:
        call.screen.note(f"warning: this record is not what was written: prowess runs verify {run}")
    if read.unreadable:
        call.screen.note(f"warning: {count(read.unreadable, 'event is', 'events are')} missing or cannot be read")


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
