"""Command `prowess runs`: lists the runs. The other actions have modules of their own."""

from __future__ import annotations

import asyncio

import click

from prowess._internal.text import one_line
from prowess.cli.app import Call, actions, cli_command
from prowess.cli.call import note_findings
from prowess.cli.commands.runs_prune import prune
from prowess.cli.commands.runs_replay import replay
from prowess.cli.commands.runs_show import diff, export, show
from prowess.cli.commands.runs_verify import verify
from prowess.cli.screen import count
from prowess.cli.timeline import short_time
from prowess.core.findings import visible
from prowess.runtime.services.runs import RunRow, list_runs

_MOST = 1_000_000
_REQUEST = 60  # characters of a request in the list
_LONG_REQUEST = 1000  # the same, as JSON


@cli_command("list", example="prowess runs list\nprowess runs list --session s-1f2e --json")
@click.option("--session", metavar="ID", help="Only of this session.")
@click.option("--limit", type=click.IntRange(1, _MOST), default=20, show_default=True, help="At most so many.")
def runs_list(call: Call, session: str | None, limit: int) -> int:
    """Show the runs there are, the last one first.

    A run that exists only as a copy, because its session was removed or has expired, is marked.
    """
    with call.runtime() as runtime:
        note_findings(call, runtime)
        store, runs, more, damaged = asyncio.run(list_runs(runtime, session=session, limit=limit))
    if call.screen.is_json:
        rows = [{**row._asdict(), "request": one_line(row.request, _LONG_REQUEST)} for row in runs]
        document = {"store": store, "runs": rows, "more": more, "damaged": damaged}
        call.screen.document({"schema": "prowess.runs/1", **document})
        return 0
    if runs:
        columns = ["run", "began", "session", "model", "ended", "request"]
        call.screen.table(columns, [_cells(row) for row in runs])
    others = f" · there are more: --limit {limit * 5}" if more else ""
    call.screen.note(f"\n{count(len(runs), 'run')}{others} · {visible(store)}")
    for name in damaged:
        call.screen.note(f"warning: session {visible(name)} is damaged: prowess runs verify --all")
    return 0


def _cells(row: RunRow) -> list[str]:
    ended = row.stop_reason or ("cut off" if row.cut_off else "has not ended")
    if row.cut_off and row.resumed_by:
        ended += f", resumed by {row.resumed_by}"
    session = row.session if row.in_log else f"{row.session} (copy)"
    instead = f"(goes on with {row.resumes})" if row.resumes else "-"
    request = one_line(one_line(row.request, _LONG_REQUEST) or instead, _REQUEST)
    return [row.run, short_time(row.started_at), session, row.model, ended, request]


command = actions(
    "runs",
    {
        "list": runs_list,
        "show": show,
        "verify": verify,
        "replay": replay,
        "diff": diff,
        "export": export,
        "prune": prune,
    },
    help="Show, check, repeat, compare, export and remove the records of runs.\n\nWithout an action, the list.",
    example="prowess runs\nprowess runs show r-1f2e\nprowess runs verify --all --json",
)
