"""Handler of `prowess runs replay`. Apart from `runs`, because it imports an agent."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from prowess.cli.app import Call
from prowess.cli.approver import TerminalApprover
from prowess.cli.call import note_findings
from prowess.cli.handlers.runs_show import show_difference
from prowess.cli.interrupts import run_async
from prowess.cli.screen import count
from prowess.core.codec import to_json
from prowess.core.findings import visible
from prowess.runtime.services.documents import error_row
from prowess.runtime.services.preapproved import parse_yes
from prowess.runtime.services.replay_run import choose_settings, find_recorded, replay_run

if TYPE_CHECKING:
    from prowess.runtime.documents.runs import RunReplayedDocument
    from prowess.runtime.services.replay import Recorded
    from prowess.runtime.services.replay_run import Replayed


def replay(
    call: Call, run: str, roots: Sequence[str], executor: str | None, instructions: str | None, yes: Sequence[str]
) -> int:
    approved = parse_yes(yes)
    ask = TerminalApprover(approved, ask=not call.screen.is_json)
    with call.runtime() as runtime:
        note_findings(call, runtime)
        found = asyncio.run(find_recorded(runtime, run))
    recorded = found.recorded
    settings = choose_settings(recorded, cwd=call.cwd, roots=roots, executor=executor, instructions=instructions)
    with call.runtime(roots=settings.roots, flags=settings.flags) as runtime:
        replayed = run_async(replay_run(runtime, found, settings, ask))
    if call.screen.is_json:
        document = _replayed_document(recorded, replayed)
        call.screen.document(document)
    else:
        _show_replay(call, recorded, replayed)
    return 0 if replayed.difference is None else 1


def _replayed_document(recorded: Recorded, replayed: Replayed) -> RunReplayedDocument:
    error = None
    if replayed.error is not None:
        error = error_row(replayed.error)
    return {
        "schema": "prowess.run-replayed/1",
        "run": recorded.run,
        "same": replayed.difference is None,
        "first": to_json(replayed.difference),
        "events": len(recorded.events),
        "replayed": len(replayed.events),
        "error": error,
        "notes": replayed.notes,
    }


def _show_replay(call: Call, recorded: Recorded, replayed: Replayed) -> None:
    screen = call.screen
    for note in replayed.notes:
        shown = visible(note)
        screen.note(f"note: {shown}")
    if replayed.difference is None:
        same = "same as far as it goes" if recorded.was_cut_off else "same"
        run = visible(recorded.run)
        events = count(len(replayed.events), "event")
        screen.text(f"{same}  {run}  {events}")
        return
    show_difference(screen, replayed.difference, "recorded", "today")
    error = replayed.error
    if error is not None:
        message = visible(error.message)
        screen.note(f"It ended with: {message} [{error.code}]")
