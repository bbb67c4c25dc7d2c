"""Commands `prowess eval` and `prowess batch`: run cases or requests, many at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from prowess.cli.app import Call, cli_command, executor_option, roots_option
from prowess.cli.session_options import yes_option

_ENGINE_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    roots_option,
    yes_option,
    executor_option("What runs scripts."),
    click.option(
        "--engine", type=click.Choice(["local", "ray"]), default="local", show_default=True, help="Where runs happen."
    ),
    click.option("--address", metavar="HOST:PORT", help="Address of a Ray cluster.  [default: one on this machine]"),
    click.option("--jobs", type=click.IntRange(1, 1000), metavar="N", help="Runs at the same time."),
)


def _engine_options(function: Any) -> Any:
    for option in reversed(_ENGINE_OPTIONS):
        function = option(function)
    return function


@cli_command(
    "eval",
    example="""
prowess eval ./skills/pdf
prowess eval .agent/evals --model openai:gpt-5 --repeats 3 --report html=report.html
prowess eval ./skills/pdf --arms with_skill,without_skill --model openai:gpt-5
prowess eval ./skills --baseline last-week.json --report junit=junit.xml""",
)
@click.argument("paths", nargs=-1, metavar="PATH…")
@click.option(
    "--model", metavar="M", help="offline, openai:NAME …  [default: scripted if all cases have a script, else as usual]"
)
@click.option("--judge", metavar="M", help="Model that decides the statements under `judge`.")
@click.option("--case", "cases", multiple=True, metavar="GLOB", help="Only cases with such an id. Repeatable.")
@click.option("--repeats", type=click.IntRange(1, 1000), metavar="N", help="Runs of each case.  [default: 1]")
@click.option("--arms", metavar="ARM,…", help="with_skill, without_skill, old_skill=REF.  [default: with_skill]")
@click.option("--baseline", metavar="FILE|RUN", help="Compare with an earlier run; exit code 1 if this one is worse.")
@click.option(
    "--report", "reports", multiple=True, metavar="KIND=FILE", help="json, junit, markdown, html. Repeatable."
)
@click.option("--record", metavar="DIR", help="Record every run there; with --replay, those that are missing.")
@click.option("--force", is_flag=True, help="Replace the reports and recordings that are there.")
@click.option("--replay", metavar="DIR", help="Play recorded runs, without a model.")
@click.option("--resume", metavar="RUN", help="Go on with a run that was cut off, by its id or `latest`.")
@click.option("--max-cost", type=click.FloatRange(0, min_open=True), metavar="X", help="Money for the whole suite.")
@click.option("--allow-partial", is_flag=True, help="Exit code 0 although --max-cost left cases out.")
@click.option("--retries", type=click.IntRange(0, 20), default=2, show_default=True, help="After a fault of a server.")
@_engine_options
def _eval(call: Call, paths: tuple[str, ...], **given: Any) -> int:
    """Run eval cases: did the right skill fire, did it help, did it get worse?

    PATH is a case file, a folder of them, a skill or its name, a folder of skills, or a project. Exit code: 0 passed,
    1 a case failed or could not be run, or the gate says worse, 2 a case file or an option cannot be used.
    """
    from prowess.cli.handlers.eval import evaluate

    return evaluate(call, paths, **given)


@cli_command(
    "batch",
    example="""
prowess batch requests.jsonl -o results.jsonl --model openai:gpt-5
prowess batch requests.jsonl -o results.jsonl --output-dir files --engine ray --address 10.0.0.7:6379""",
)
@click.argument("requests", metavar="FILE")
@click.option(
    "-o", "--output", required=True, metavar="FILE", help="File for the results, in the order of the requests."
)
@click.option("--model", metavar="M", help="offline, openai:NAME, anthropic:NAME …  [default: as configured]")
@click.option("--output-dir", metavar="DIR", help="Copy the files that runs make to DIR/ID/.")
@click.option("--force", is_flag=True, help="Replace the results and copies that are there.")
@click.option("--retries", type=click.IntRange(0, 20), default=2, show_default=True, help="After a fault of a server.")
@_engine_options
def _batch(call: Call, requests: str, output: str, **given: Any) -> int:
    """Answer many requests: one JSON object a line in, one a line out.

    A request has `request`, and may have `id`, `files` and `skills`. A batch that was cut off goes on where it was when
    the same command is given again. Exit code: 0 all were answered, 1 some were not, 2 the input cannot be used.
    """
    from prowess.cli.handlers.eval import batch

    return batch(call, requests, output, **given)


COMMANDS = {"eval": _eval, "batch": _batch}
