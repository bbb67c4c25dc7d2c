"""Actions `prowess runs show`, `diff` and `export`: read a recorded run and print, compare or convert it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import click

from prowess.cli.app import Call, cli_command
from prowess.cli.call import note_findings
from prowess.cli.inputs import find_target
from prowess.cli.screen import Screen, count, printable
from prowess.core.codec import to_json
from prowess.core.findings import visible
from prowess.records.diff import Difference, first_difference
from prowess.records.spans import render_spans
from prowess.records.summary import RunSummary
from prowess.records.timeline import Moment, timeline
from prowess.runtime.runtime import Runtime
from prowess.runtime.services.files import open_target
from prowess.runtime.services.verify_run import ReadRun, read_run

if TYPE_CHECKING:
    from prowess.runtime.documents.runs import DiffSide, RunExportedDocument, RunsDiffDocument


@cli_command(
    "show", example="prowess runs show r-1f2e\nprowess runs show r-1f2e --full\nprowess runs show r-1f2e --events"
)
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
    lines, envelopes, summary = read.events
    if events:
        for line in lines:
            sys.stdout.write(f"{line}\n")
        note_damage(call, read)
        return 0
    moments = timeline(envelopes, full=full)
    if call.screen.is_json:
        rows = [moment._asdict() for moment in timeline(envelopes, full=True)]
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


def note_damage(call: Call, read: ReadRun) -> None:
    """Shows damage on stderr: a program that reads stdout may have no field for it."""
    run = visible(read.events.summary.run)
    if read.damage is not None:
        call.screen.note(f"warning: this record is not what was written: prowess runs verify {run}")
    if read.unreadable:
        call.screen.note(f"warning: {count(read.unreadable, 'event is', 'events are')} missing or cannot be read")


def _print(screen: Screen, moment: Moment, *, indent: str, width: int) -> None:
    at = "" if moment.offset_ms is None else f"{moment.offset_ms / 1000:.3f}"
    screen.text(f"{at:>{width}}  {indent}{visible(moment.text)}".rstrip())
    if moment.more:
        pad = " " * (width + 2) + indent + "  "
        for line in printable(moment.more.rstrip("\n"), lines=True).split("\n"):
            screen.text((pad + line).rstrip())


@cli_command("diff", example="prowess runs diff r-1f2e r-5d6c\nprowess runs diff r-1f2e r-5d6c --json")
@click.argument("a")
@click.argument("b")
def diff(call: Call, a: str, b: str) -> int:
    """Compare two runs: the first event that differs, and a summary of each.

    Times, durations, ids and hashes are not compared. Exit code 0 when there is no difference, 1 when there is one.
    """
    with call.runtime() as runtime:
        note_findings(call, runtime)
        one, other = asyncio.run(_read_both(runtime, a, b))
    for read in (one, other):
        note_damage(call, read)
    first, second = one.events.summary, other.events.summary
    difference = first_difference(one.events.envelopes, other.events.envelopes, ignore=("limits",))
    if call.screen.is_json:
        document: RunsDiffDocument = {
            "schema": "prowess.runs-diff/1",
            "same": difference is None,
            "first": to_json(difference),
            "a": _side(first),
            "b": _side(second),
        }
        call.screen.document(document)
    else:
        _show(call.screen, difference, first, second)
    return 0 if difference is None else 1


async def _read_both(runtime: Runtime, a: str, b: str) -> tuple[ReadRun, ReadRun]:
    return await read_run(runtime, a), await read_run(runtime, b)


def _side(summary: RunSummary) -> DiffSide:
    usage = summary.usage
    return {
        "run": summary.run,
        "session": summary.key.session,
        "model": summary.model,
        "skills": [f"{skill['id']}@{skill['digest']}" for skill in summary.skills],
        "calls": [f"{tool} {status}{f' [{code}]' if code else ''} x{n}" for (tool, status, code), n in _calls(summary)],
        "input_tokens": usage.input,
        "output_tokens": usage.output,
        "requests": usage.requests,
        "events": summary.events,
        "stop_reason": summary.stop_reason,
    }


def _calls(summary: RunSummary) -> Sequence[tuple[tuple[str, str, str | None], int]]:
    return sorted(summary.tools.items(), key=lambda item: tuple(str(part) for part in item[0]))


def _show(screen: Screen, difference: Difference | None, first: RunSummary, second: RunSummary) -> None:
    if difference is None:
        screen.text("no difference")
    else:
        show_difference(screen, difference, first.run, second.run)
    screen.text()
    ours, theirs = _side(first), _side(second)
    rows = []
    for name, value in ours.items():
        other = theirs[name]
        texts = [", ".join(each) if isinstance(each, list) else str(each) for each in (value, other)]
        rows.append([name.replace("_", " "), "" if texts[0] == texts[1] else "*", *texts])
    screen.table(["", "", "a", "b"], rows)


def show_difference(screen: Screen, difference: Difference, ours: str, theirs: str) -> None:
    places = [f"event {seq}" if seq is not None else "no event" for seq in (difference.seq, difference.other_seq)]
    screen.text(f"first difference: {difference.what} · {difference.type} · {places[0]}, and there {places[1]}")
    for name, text in ((ours, difference.recorded), (theirs, difference.actual)):
        screen.text(f"  {visible(name)}:")
        for line in printable(text, lines=True).split("\n"):
            screen.text(f"    {line}")


@cli_command("export", example="prowess runs export r-1f2e -o trace.json\nprowess runs export r-1f2e --format jsonl")
@click.argument("run")
@click.option(
    "--format", "form", type=click.Choice(["otel", "jsonl"]), default="otel", show_default=True, help="What to write."
)
@click.option("-o", "--output", metavar="FILE", help="Write it there, whole or not at all; - is stdout.")
@click.option("--force", is_flag=True, help="Replace FILE if there is one.")
def export(call: Call, run: str, form: Literal["otel", "jsonl"], output: str | None, force: bool) -> int:
    """Write a run for other programs: as OpenTelemetry spans (OTLP as JSON, GenAI conventions), or its events.

    Spans have names, numbers and digests, and no texts; events have all texts. Exit code 1 when the record is not what
    was written; it is exported all the same.
    """
    path = find_target(call.cwd, output, force)
    with call.runtime() as runtime:
        note_findings(call, runtime)
        read = asyncio.run(read_run(runtime, run))
    lines, envelopes, summary = read.events
    if form == "jsonl":
        text, things = "".join(f"{line}\n" for line in lines), count(len(lines), "event")
    else:
        document = render_spans(envelopes)
        spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
        text, things = json.dumps(document, indent=1) + "\n", count(len(spans), "span")
    code = 0 if read.damage is None else 1
    if path is None:
        sys.stdout.write(text)
        note_damage(call, read)
        return code
    with open_target(call.cwd, path, force, mode=0o600) as file:  # events have private texts
        file.write(text.encode("utf-8", "surrogateescape"))
    if call.screen.is_json:
        written: RunExportedDocument = {
            "schema": "prowess.run-exported/1",
            "run": summary.run,
            "format": form,
            "path": path,
            "size_bytes": os.path.getsize(path),
            "damage": read.damage,
        }
        call.screen.document(written)
    else:
        call.screen.note(f"{things} · {visible(path)}")
        note_damage(call, read)
    return code
