"""prowess runs export"""

from __future__ import annotations

import asyncio
import json
import os
import sys

import click

from prowess._files import write_whole
from prowess._genai import render_spans
from prowess.cli.app import Call, verb
from prowess.cli.render import count
from prowess.cli.run_records import note_findings
from prowess.cli.runs_show import read_run
from prowess.errors import ConfigError
from prowess.skills.findings import visible


@verb("export", example="prowess runs export r-1f2e -o trace.json\nprowess runs export r-1f2e --format jsonl")
@click.argument("run")
@click.option(
    "--format", "form", type=click.Choice(["otel", "jsonl"]), default="otel", show_default=True, help="What to write."
)
@click.option("-o", "--output", metavar="FILE", help="Write it there.  [default: stdout]")
def export(call: Call, run: str, form: str, output: str | None) -> int:
    """Write a run for other programs: as OpenTelemetry spans (OTLP as JSON, GenAI conventions), or its events.

    Spans have names, numbers and digests, and nothing of what was said; events have all of it.
    """
    with call.runtime() as runtime:
        note_findings(call, runtime)
        lines, envelopes, summary = asyncio.run(read_run(runtime, run))
    if form == "jsonl":
        text, things = "".join(f"{line}\n" for line in lines), count(len(lines), "event")
    else:
        document = render_spans(envelopes)
        spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
        text, things = json.dumps(document, indent=1) + "\n", count(len(spans), "span")
    if output is None or output == "-":
        sys.stdout.write(text)
        return 0
    path = os.path.join(call.cwd, output)
    if os.path.isdir(path):
        raise ConfigError(f"'{output}' is a folder.", code="usage", hint="Name a file in it.")
    write_whole(path, text.encode("utf-8", "surrogateescape"), mode=0o600)
    if call.screen.is_json:
        told = {"run": summary.run, "format": form, "path": path, "size_bytes": os.path.getsize(path)}
        call.screen.document({"schema": "prowess.run-exported/1", **told})
    else:
        call.screen.note(f"{things} · {visible(path)}")
    return 0
