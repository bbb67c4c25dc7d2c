"""Command `prowess runs`: lists, checks, repeats and removes recorded runs. `runs_show` shows them."""

from __future__ import annotations

from collections.abc import Sequence

import click

from prowess.cli.app import Call, actions, cli_command, executor_option, roots_option, store_option
from prowess.cli.commands.runs_import import command as import_command
from prowess.cli.commands.runs_show import diff, export, show
from prowess.cli.session_options import yes_option

_MOST = 1_000_000


@cli_command("list", example="prowess runs list\nprowess runs list --session s-1f2e --json")
@click.option("--session", metavar="ID", help="Only of this session.")
@click.option("--limit", type=click.IntRange(1, _MOST), default=20, show_default=True, help="At most so many.")
@store_option
def runs_list(call: Call, session: str | None, limit: int) -> int:
    """Show the runs there are, the last one first."""
    from prowess.cli.handlers.runs_list import show_runs

    return show_runs(call, session, limit)


@cli_command(
    "verify",
    example="prowess runs verify r-1f2e\nprowess runs verify --all --json\n"
    "prowess runs verify ../20260102T030405Z-r-1f2e/run.json",
)
@click.argument("run", required=False)
@click.option("--all", "everything", is_flag=True, help="Every session of the log.")
@store_option
def verify(call: Call, run: str | None, everything: bool) -> int:
    """Check that a record is what was written: no line changed, lost, moved, or cut off at its end.

    A run is checked in the log, and its copy in .agent/runs is compared with it. A path names a foreign record, which
    is checked by itself. Exit code 1 when a record is not valid, or a copy differs.
    """
    from prowess.cli.handlers.runs import verify

    return verify(call, run, everything)


@cli_command("replay", example="prowess runs replay r-1f2e\nprowess runs replay r-1f2e --root ./skills --json")
@click.argument("run")
@roots_option
@executor_option("What runs scripts.  [default: as configured]")
@click.option("--instructions", metavar="TEXT", help="Other instructions than the run was given.")
@yes_option
@store_option
def replay(
    call: Call, run: str, roots: Sequence[str], executor: str | None, instructions: str | None, yes: Sequence[str]
) -> int:
    """Repeat a run with today's code and skills, without a model; show the first difference.

    It works in a session and a workspace of its own; scripts are really run. Answers are those that you gave then; a
    question that was not asked then is answered with no. What --yes approved, and what would run without isolation, is
    asked about again. A run that was cut off is repeated as far as its record goes. Roots and executor are those that
    you gave the run, unless you give others. In a folder that is not trusted, or for a record that you did not make or
    that a path names, neither answers nor roots and executor are taken from the record. Exit code 0: the same; 1: it
    went another way.
    """
    from prowess.cli.handlers.runs_replay import replay

    return replay(call, run, roots, executor, instructions, yes)


@cli_command(
    "prune", example="prowess runs prune --older-than 30d\nprowess runs prune --older-than 90d --sessions --yes"
)
@click.option("--older-than", metavar="AGE", help="Of runs that ended so long ago: 12h, 30d, 4w.")
@click.option("--keep", type=click.IntRange(0), metavar="N", help="But not the last N runs.")
@click.option("--sessions", is_flag=True, help="Whole sessions from the log as well, if their last run is that old.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_option
def prune(call: Call, older_than: str | None, keep: int | None, sessions: bool, dry_run: bool, yes: bool) -> int:
    """Remove the copies of old runs from .agent/runs.

    The log keeps what was in them. With --sessions, sessions that are that old are removed from the log, too, for good.
    Workspaces and artifacts stay; see: prowess workspaces clean, prowess sessions delete --files.
    """
    from prowess.cli.handlers.runs import prune

    return prune(call, older_than, keep, sessions, dry_run, yes)


command = actions(
    "runs",
    {
        "list": runs_list,
        "show": show,
        "verify": verify,
        "replay": replay,
        "diff": diff,
        "export": export,
        "import": import_command,
        "prune": prune,
    },
    help="Show, check, repeat, compare, export and remove the records of runs.\n\nWithout an action, the list.",
    example="prowess runs\nprowess runs show r-1f2e\nprowess runs verify --all --json",
)
