"""Actions `prowess runs show`, `diff` and `export`: read a recorded run and print, compare or convert it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import click

from prowess.cli.app import Call, cli_command, store_option


@cli_command(
    "show", example="prowess runs show r-1f2e\nprowess runs show r-1f2e --full\nprowess runs show r-1f2e --events"
)
@click.argument("run")
@click.option("--events", is_flag=True, help="Print the events as they are stored, one per line.")
@click.option("--full", is_flag=True, help="Whole texts, not only what fits a line.")
@store_option
def show(call: Call, run: str, events: bool, full: bool) -> int:
    """Show a run as a timeline: what was asked, decided, done and answered, when and why.

    RUN is an id, the beginning of one, or the name of a copy. A path names a foreign record: the folder of a run, or
    its run.json or events.jsonl.
    """
    from prowess.cli.handlers.runs_show import show

    return show(call, run, events, full)


@cli_command("diff", example="prowess runs diff r-1f2e r-5d6c\nprowess runs diff r-1f2e r-5d6c --json")
@click.argument("a")
@click.argument("b")
@store_option
def diff(call: Call, a: str, b: str) -> int:
    """Compare two runs: the first event that differs, and a summary of each.

    Times, durations, ids and hashes are not compared. Exit code 0 when there is no difference, 1 when there is one.
    """
    from prowess.cli.handlers.runs_show import diff

    return diff(call, a, b)


@cli_command(
    "export",
    example="prowess runs export r-1f2e -o trace.json\nprowess runs export r-1f2e --format jsonl\n"
    "prowess runs export r-1f2e r-5d6c --to copies",
)
@click.argument("run", nargs=-1, required=True)
@click.option("--format", "form", type=click.Choice(["otel", "jsonl"]), help="What to write.  [default: otel]")
@click.option("-o", "--output", metavar="FILE", help="Write it there, whole or not at all; - is stdout.")
@click.option("--to", metavar="DIR", help="Write a copy of each RUN into DIR: events.jsonl, run.json and outputs/.")
@click.option("--force", is_flag=True, help="Replace FILE, or a copy in DIR, if there is one.")
@store_option
def export(
    call: Call,
    run: Sequence[str],
    form: Literal["otel", "jsonl"] | None,
    output: str | None,
    to: str | None,
    force: bool,
) -> int:
    """Write a run for other programs: as OpenTelemetry spans (OTLP as JSON, GenAI conventions), or its events.

    Spans have names, numbers and digests, and no texts; events and copies have all texts. Exit code 1 when the record
    is not what was written; it is exported all the same.
    """
    from prowess.cli.handlers.runs_show import export

    return export(call, run, form, output, to, force)
