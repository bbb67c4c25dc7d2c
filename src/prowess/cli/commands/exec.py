"""Command `prowess exec`: runs one command of a skill in a workspace, with its own exit codes."""

from __future__ import annotations

from typing import Any

import click

from prowess.cli.app import Call, cli_command, executor_option, roots_option, source_option
from prowess.cli.session_options import ask_timeout_option, copies_option, yes_option


@cli_command(
    "exec",
    example="prowess exec python-math -- python3 scripts/fib.py 10\n"
    "prowess exec csv-report --input sales.csv --output-dir . -- scripts/report.py work/inputs/sales.csv\n"
    "prowess exec text-stats --shell -- 'python3 scripts/stats.py work/inputs/* > out/stats.txt'",
)
@click.argument("skill")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND...")
@executor_option("What runs it.", must_run=True)
@click.option("--session", metavar="ID", help="Work in this session; its files are there again.  [default: a new one]")
@copies_option
@yes_option
@ask_timeout_option
@click.option(
    "--timeout", type=click.FloatRange(0.001, 86400), metavar="S", help="Seconds it may take.  [default: 300]"
)
@click.option(
    "--input", "inputs", multiple=True, metavar="FROM[=TO]", help="Copy a file, folder or ref in. Repeatable."
)
@click.option("--output", "outputs", multiple=True, metavar="GLOB", help="Files to bring back. Repeatable.")
@click.option("--output-dir", metavar="DIR", help="Copy what it made to DIR; exit code 125 when not all was copied.")
@click.option("--force", is_flag=True, help="Let copies replace what is in DIR.")
@click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help="Set a variable for it. Repeatable.")
@click.option(
    "--install", multiple=True, metavar="PACKAGE", help="Install a Python package that a run lacked; asks. Repeatable."
)
@click.option("--save", is_flag=True, help="Keep what it made as artifacts; exit code 125 if not all or nothing was.")
@click.option("--cwd", metavar="PATH", help="Start below the skill's folder, or in $WORK_DIR, $OUTPUT_DIR, …")
@click.option("--stdin", "with_stdin", is_flag=True, help="Give it our standard input.")
@click.option("--shell", is_flag=True, help="COMMAND is one text for bash -c.")
@source_option
@roots_option
def command(call: Call, skill: str, words: tuple[str, ...], executor: str | None, **given: Any) -> int:
    """Run a command of a skill in an isolated workspace.

    COMMAND is taken word by word, and nothing in it is expanded; it may begin with the name of a file in the skill's
    scripts/. Exit code: the command's own; 124 when its time was up, 125 when Prowess failed, 126 when it was denied,
    nobody could be asked or there is no isolation, 127 when the skill or the program was not found.
    """
    from prowess.cli.handlers.exec import execute

    return execute(call, skill, words, executor, **given)
