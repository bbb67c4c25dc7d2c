"""Handler of `prowess runs list`. Apart from `runs`, because it imports neither an agent nor a policy."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from prowess._internal.text import one_line
from prowess.cli.app import Call
from prowess.cli.call import note_findings
from prowess.cli.screen import count
from prowess.cli.timeline import short_time
from prowess.core.codec import to_json
from prowess.core.findings import visible
from prowess.runtime.services.runs import RunRow, list_runs

if TYPE_CHECKING:
    from prowess.runtime.documents.runs import RunsDocument

_REQUEST = 60  # characters of a request in the list
_LONG_REQUEST = 1000  # the same, as JSON


def show_runs(call: Call, session: str | None, limit: int) -> int:
    with call.runtime() as runtime:
        note_findings(call, runtime)
        store, runs, more, damaged = asyncio.run(list_runs(runtime, session=session, limit=limit))
    screen = call.screen
    if screen.is_json:
        rows = [row._replace(request=one_line(row.request, _LONG_REQUEST)) for row in runs]
        document: RunsDocument = {
            "schema": "prowess.runs/1",
            "store": store,
            "runs": to_json(rows),
            "more": more,
            "damaged": damaged,
        }
        screen.document(document)
        return 0
    if runs:
        columns = ["run", "began", "session", "model", "ended", "request"]
        cells = [_cells(row) for row in runs]
        screen.table(columns, cells)
    counted = count(len(runs), "run")
    if more:
        counted += f" · there are more: --limit {limit * 5}"
    screen.note(f"\n{counted} · {visible(store)}")
    for name in damaged:
        shown = visible(name)
        screen.note(f"warning: session {shown} is damaged: prowess runs verify --all")
    return 0


def _cells(row: RunRow) -> list[str]:
    ended = row.stop_reason
    if not ended:
        ended = "cut off" if row.cut_off else "has not ended"
    if row.cut_off and row.resumed_by:
        ended += f", resumed by {row.resumed_by}"
    request = one_line(row.request, _LONG_REQUEST)
    if not request:
        request = f"(goes on with {row.resumes})" if row.resumes else "-"
    began = short_time(row.started_at)
    short_request = one_line(request, _REQUEST)
    return [row.run, began, row.session, row.model, ended, short_request]
