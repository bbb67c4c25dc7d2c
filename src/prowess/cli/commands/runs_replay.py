"""Action `prowess runs replay`: repeats a recorded run without a model, and shows the first difference."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import click

from prowess.cli.app import Call, cli_command, roots_option
from prowess.cli.approver import TerminalApprover
from prowess.cli.call import note_findings
from prowess.cli.commands.runs_show import render_difference, show_difference
from prowess.cli.screen import count
from prowess.cli.session_options import yes_option
from prowess.core.findings import visible
from prowess.runtime.services.preapproved import parse_yes
from prowess.runtime.services.replay import Recorded
from prowess.runtime.services.replay_run import Replayed, choose_settings, find_recorded, replay_run


@cli_command("replay", example="prowess runs replay r-1f2e\nprowess runs replay r-1f2e --root ./skills --json")
@click.argument("run")
@roots_option
@click.option(
    "--executor",
    type=click.Choice(["auto", "local", "sandbox", "container", "none"]),
    help="What runs scripts.  [default: as configured]",
)
@click.option("--instructions", metavar="TEXT", help="Other instructions than the run was given.")
@yes_option
def replay(
    call: Call, run: str, roots: Sequence[str], executor: str | None, instructions: str | None, yes: Sequence[str]
) -> int:
    """Repeat a run with today's code and skills, without a model; show the first difference.

    It works in a session and a workspace of its own; scripts are really run. Answers are those that you gave then; a
    question that was not asked then is answered with no. What --yes approved, and what would run without isolation, is
    asked about again. A run that was cut off is repeated as far as its record goes. Roots and executor are those that
    you gave the run, unless you give others. In a folder that is not trusted, or for a record that you did not make,
    neither answers nor roots and executor are taken from the record. Exit code 0: the same; 1: it went another way.
    """
    ask = TerminalApprover(parse_yes(yes), ask=not call.screen.is_json)
    with call.runtime() as runtime:
        note_findings(call, runtime)
        found = asyncio.run(find_recorded(runtime, run))
    recorded = found.recorded
    settings = choose_settings(recorded, cwd=call.cwd, roots=roots, executor=executor, instructions=instructions)
    with call.runtime(roots=settings.roots, flags=settings.flags) as runtime:
        replayed = asyncio.run(replay_run(runtime, found, settings, ask))
    if call.screen.is_json:
        document = {
            "run": recorded.run,
            "same": replayed.difference is None,
            "first": render_difference(replayed.difference),
            "events": len(recorded.events),
            "replayed": len(replayed.events),
            "error": None if replayed.error is None else replayed.error.to_json(),
            "notes": replayed.notes,
        }
        call.screen.document({"schema": "prowess.run-replayed/1", **document})
    else:
        for note in replayed.notes:
            call.screen.note(f"note: {visible(note)}")
        _show(call, recorded, replayed)
    return 0 if replayed.difference is None else 1


def _show(call: Call, recorded: Recorded, replayed: Replayed) -> None:
    if replayed.difference is None:
        same = "same as far as it goes" if recorded.was_cut_off else "same"
        call.screen.text(f"{same}  {visible(recorded.run)}  {count(len(replayed.events), 'event')}")
        return
    show_difference(call.screen, replayed.difference, "recorded", "today")
    if replayed.error is not None:
        call.screen.note(f"It ended with: {visible(replayed.error.message)} [{replayed.error.code}]")
