"""prowess runs export"""

from __future__ import annotations

import asyncio
import json
import os
import sys

import click

from prowess.cli.app import Call, verb
from prowess.cli.artifact_files import find_target, open_target
from prowess.cli.commands.runs_show import note_damage, read_run
from prowess.cli.find_run import note_findings
from prowess.cli.screen import count
from prowess.core.findings import visible
from prowess.records.spans import render_spans


@verb("export", example="prowess runs export r-1f2e -o trace.json\nprowess runs export r-1f2e --format jsonl")
@click.argument("run")
@click.option(
    "--format", "form", type=click.Choice(["otel", "jsonl"]), default="otel", show_default=True, help="What to write."
)
@click.option("-o", "--output", metavar="FILE", help="Write it there, whole or not at all; - is stdout.")
@click.option("--force", is_flag=True, help="Replace FILE if there is one.")
def export(call: Call, run: str, form: str, output: str | None, force: bool) -> int:
    """Write a run for other programs: as OpenTelemetry spans (OTLP as JSON, GenAI conventions), or its events.

    Spans have names, numbers and digests, and nothing of what was said; events have all of it. Exit code 1 when the
    record is not what was written; what is there is exported all the same.
    """
    path = find_target(call.cwd, output, force)
    with call.runtime() as runtime:
        note_findings(call, runtime)
        read = asyncio.run(read_run(runtime, run))
    lines = read.lines
    if form == "jsonl":
        text, things = "".join(f"{line}\n" for line in lines), count(len(lines), "event")
    else:
        document = render_spans(read.envelopes)
        spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
        text, things = json.dumps(document, indent=1) + "\n", count(len(spans), "span")
    code = 0 if read.damage is None else 1
    if path is None:
        sys.stdout.write(text)
        note_damage(call, read)
        return code
    with open_target(call.cwd, path, force, mode=0o600) as file:  # events have what was said, which is their owner's
        file.write(text.encode("utf-8", "surrogateescape"))
    if call.screen.is_json:
        told = {"run": read.summary.run, "format": form, "path": path, "size_bytes": os.path.getsize(path)}
        call.screen.document({"schema": "prowess.run-exported/1", **told, "damage": read.damage})
    else:
        call.screen.note(f"{things} · {visible(path)}")
        note_damage(call, read)
    return code
